/*
 * foreign.c
 *		Clients that are not zklock: those of the common recipes, and somebody who deletes
 *		what is not his.
 *
 * Each client has a stack of its own, so that its recipe reads as in the client's own
 * source: create(), list(), get() and remove_node() ask ZooKeeper and return when the answer
 * is there; meanwhile, and in rest(), others run.  A client may crash where it rests, and its
 * session may expire at any time: then it begins anew in another one.
 *
 * To add a kind of client, give it a row in kinds[], and a recipe of its own if contend()
 * is not what it does.  Whom its names heed, src/recipes/recipe.c says for check.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "sim.h"

#include <limits.h>

#include "recipes/recipe.h"

#define MAX_CLIENTS 8
#define MAX_SWEPT 16
#define MAX_HEEDED 2
#define DIGITS 10 /* of the number at the end of a name */

struct ForeignKind
{
	SimUse use;		/* of the paths where it is at home */
	int	   dialect; /* there: a NodeDialect, an ElectionFamily, or 0 */
	void (*recipe)(Foreign *client);
	const char *name;			   /* of its node, with a UUID for %s */
	UuidForm	uuid;			   /* UUID_NONE: nobody can tell whose it is */
	const char *heeds[MAX_HEEDED]; /* what is before the number in names that it waits for, or takes */
	int			traits;
};

enum /* traits */
{
	SHARES = 1,
	GIVES_UP = 2,	/* instead of waiting, and tries again */
	TIDIES = 4,		/* it deletes the path behind its node */
	NEEDS_PATH = 8, /* it does not create it */
	USES_CONTAINERS = 16
};

Foreign foreign_clients[MAX_CLIENTS];
int		foreign_count;

static Foreign	 *running;
static ucontext_t world;

static void
tell(const Foreign *client, const char *what, const char *path)
{
	sim_tell("foreign %d: %s %s", client->number, what, path);
}

static const char *
path_of(const Foreign *client)
{
	return sim_paths[client->path].path;
}

/* ------------------------------------------------------------------------
 * Asking and waiting
 * ------------------------------------------------------------------------
 */

static void
enter(Foreign *client)
{
	running = client;
	swapcontext(&world, &client->context);
}

/* Lets so much time pass at most, or until a watch fires. */
static void
rest(Foreign *client, int64_t most)
{
	client->next_at = model_now + sim_below(most);
	swapcontext(&client->context, &world);
}

/* Waits for the answer, and returns its code. */
static int
answer(Foreign *client)
{
	client->busy = true;
	swapcontext(&client->context, &world);
	return client->code;
}

static void
on_done(int code, const void *context)
{
	Foreign *client = (Foreign *) context;

	client->busy = false;
	client->code = code;
	enter(client);
}

static void
on_created(int code, const char *path, const struct Stat *stat, const void *context)
{
	Foreign *client = (Foreign *) context;

	if (code == ZOK && stat->ephemeralOwner != 0)
	{
		snprintf(client->node, PATH_SIZE, "%s", path);
		client->node_czxid = stat->czxid;
		tell(client, "has created", path);
	}
	on_done(code, client);
}

static void
on_listed(int code, const struct String_vector *children, const struct Stat *stat, const void *context)
{
	((Foreign *) context)->children = children;
	on_done(code, context);
}

static void
on_got(int code, const char *data, int length, const struct Stat *stat, const void *context)
{
	on_done(code, context);
}

static void
on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
	Foreign *client = context;

	client->session_over |= type == ZOO_SESSION_EVENT && state == ZOO_EXPIRED_SESSION_STATE;
	client->next_at = model_now;
}

static int
create(Foreign *client, const char *path, int mode)
{
	const char *data = mode == ZOO_CONTAINER ? NULL : "data"; /* as Curator creates a path */

	(void) zoo_acreate2(client->handle, path, data, 4, &ZOO_OPEN_ACL_UNSAFE, mode, on_created, client);
	return answer(client);
}

static int
list(Foreign *client, watcher_fn watcher)
{
	(void) zoo_awget_children2(client->handle, path_of(client), watcher, client, on_listed, client);
	return answer(client);
}

static int
get(Foreign *client, const char *path, watcher_fn watcher)
{
	(void) zoo_awget(client->handle, path, watcher, client, on_got, client);
	return answer(client);
}

static int
remove_node(Foreign *client, const char *path)
{
	(void) zoo_adelete(client->handle, path, -1, on_done, client);
	return answer(client);
}

static void
remove_certainly(Foreign *client, const char *path)
{
	int code;

	do
		code = remove_node(client, path);
	while (code != ZOK && code != ZNONODE);
}

/* ------------------------------------------------------------------------
 * Recipes
 * ------------------------------------------------------------------------
 */

/* Creates the client's node, and the path if that is missing. */
static int
create_node(Foreign *client, int mode, char *prefix)
{
	const ForeignKind *kind = client->kind;
	uint8_t			   uuid[ZKLOCK_UUID_BYTES];
	char			   text[37];
	char			   name[PATH_SIZE / 2];
	int				   code;

	for (int i = 0; i < ZKLOCK_UUID_BYTES; i++)
		uuid[i] = sim_random();
	uuid_format(text, sizeof(text), uuid, kind->uuid);
	snprintf(name, sizeof(name), kind->name, text);
	snprintf(prefix, PATH_SIZE, "%s/%s", path_of(client), name);
	while ((code = create(client, prefix, mode)) == ZNONODE && !(kind->traits & NEEDS_PATH))
	{
		char  above[PATH_SIZE];
		char *end;

		strcpy(above, path_of(client));
		while (create(client, above,
					  kind->traits & USES_CONTAINERS ? ZOO_CONTAINER : ZOO_PERSISTENT) == ZNONODE &&
			   (end = strrchr(above, '/')) > above)
			*end = '\0';
	}
	return code;
}

/* Finds a child that begins so in the listing; returns false if there is none. */
static bool
find(Foreign *client, const char *beginning)
{
	const char *name = strrchr(beginning, '/') + 1;

	for (int i = 0; i < client->children->count; i++)
	{
		if (strncmp(client->children->data[i], name, strlen(name)) != 0)
			continue;
		snprintf(client->node, PATH_SIZE, "%s/%s", path_of(client), client->children->data[i]);
		return true;
	}
	return false;
}

/* The number at the end of a name */
static long
number_of(const char *name)
{
	return atol(name + strlen(name) - DIGITS);
}

/* Does a client wait for older nodes of that name? */
static bool
heeds(const ForeignKind *kind, const char *name)
{
	size_t length = strlen(name);

	for (int i = 0; i < MAX_HEEDED && kind->heeds[i]; i++)
	{
		size_t before = strlen(kind->heeds[i]);

		if (length >= before + DIGITS &&
			strncmp(name + length - DIGITS - before, kind->heeds[i], before) == 0)
			return true;
	}
	return false;
}

/*
 * Finds, of the children in the listing that the client heeds, the oldest, if it has a lower
 * number.  (Many clients watch the last of those before them; they wake less often.)
 */
static bool
find_heeded(const Foreign *client, long number, char *found)
{
	long oldest = number;

	for (int i = 0; i < client->children->count; i++)
	{
		const char *child = client->children->data[i];

		if (!heeds(client->kind, child) || number_of(child) >= oldest)
			continue;
		oldest = number_of(child);
		snprintf(found, PATH_SIZE, "%s/%s", path_of(client), child);
	}
	return oldest < number;
}

static void
hold(Foreign *client)
{
	tell(client, "has", client->node);
	client->shares = client->kind->traits & SHARES;
	client->holds = sim_changed = true;
	rest(client, 20 * MS * sim_pace);
	tell(client, "gives back", client->node);
	client->holds = false;
	sim_changed = true;
}

/* Waits until nobody is before it: locks and elections. */
static void
contend(Foreign *client)
{
	char prefix[PATH_SIZE];
	char before[PATH_SIZE];
	int	 code = create_node(client, ZOO_EPHEMERAL_SEQUENTIAL, prefix);

	/* If there was no answer, it looks for its node, wherever; and ends its session if it finds none. */
	if (code > ZAPIERROR && code < ZOK)
	{
		client->node_czxid = 0;
		client->session_over = client->kind->uuid == UUID_NONE || list(client, NULL) != ZOK ||
							   !find(client, prefix);
	}
	if (code < ZAPIERROR || client->session_over)
		return;
	for (;;)
	{
		code = list(client, NULL);
		if (code == ZNONODE || (code == ZOK && !find(client, client->node)))
			return;
		if (code != ZOK)
			continue;
		if (!find_heeded(client, number_of(client->node), before))
		{
			hold(client);
			break;
		}
		if (client->kind->traits & GIVES_UP)
			break;
		if (sim_phase == PHASE_DRAIN && client->kind->use == USE_ELECTION)
			break; /* a server of ours leads for ever */
		if (get(client, before, on_event) == ZOK)
			rest(client, 2000 * MS);
	}
	remove_certainly(client, client->node);
	if (client->kind->traits & TIDIES)
		(void) remove_node(client, path_of(client));
}

static void
offer(Foreign *client)
{
	char prefix[PATH_SIZE];

	(void) create_node(client, ZOO_PERSISTENT_SEQUENTIAL, prefix);
}

/* Takes a queue's first element, and waits for one if there is none, or not. */
static void
take(Foreign *client)
{
	char first[PATH_SIZE];

	while (list(client, on_event) == ZOK)
	{
		int code;

		if (!find_heeded(client, LONG_MAX, first))
		{
			if (sim_phase != PHASE_TURMOIL || sim_one_in(4))
				return;
			rest(client, 2000 * MS);
			continue;
		}
		code = get(client, first, NULL);
		if (code == ZOK)
			code = remove_node(client, first);
		if (code != ZNONODE)
			return;
	}
}

/* Has something below the path for a while. */
static void
visit(Foreign *client)
{
	char visitor[PATH_SIZE];

	(void) create(client, path_of(client), ZOO_CONTAINER);
	rest(client, 20 * MS * sim_pace);
	(void) create_node(client, ZOO_EPHEMERAL, visitor);
	rest(client, 20 * MS * sim_pace);
	remove_certainly(client, visitor);
}

/* Deletes the path with all of its children, or only one of them. */
static void
meddle(Foreign *client)
{
	char			victims[MAX_SWEPT + 1][PATH_SIZE];
	zoo_op_t		ops[MAX_SWEPT + 1];
	zoo_op_result_t results[MAX_SWEPT + 1];
	int				n = 0;

	if (list(client, NULL) != ZOK)
		return;
	for (; n < client->children->count && n < MAX_SWEPT; n++)
		snprintf(victims[n], PATH_SIZE, "%s/%s", path_of(client), client->children->data[n]);
	strcpy(victims[n++], path_of(client));
	if (sim_one_in(2))
	{
		(void) remove_node(client, victims[sim_below(n)]);
		return;
	}
	for (int i = 0; i < n; i++)
		zoo_delete_op_init(&ops[i], victims[i], -1);
	(void) zoo_amulti(client->handle, n, ops, results, on_done, client);
	(void) answer(client);
}

/* ------------------------------------------------------------------------
 * Who they are
 * ------------------------------------------------------------------------
 */

static const ForeignKind meddler = {.recipe = meddle};

static const ForeignKind kinds[] = {
	/* Curator's mutex, go-zookeeper's, and Curator's read-write lock */
	{USE_LOCK, DIALECT_CURATOR, contend, "_c_%s-lock-", UUID_DASHES, {"lock-"}, USES_CONTAINERS},
	{USE_LOCK, DIALECT_CURATOR, contend, "_c_%s-lock-", UUID_HEX, {"lock-", "__READ__"}},
	{USE_LOCK, DIALECT_CURATOR_RW, contend, "_c_%s-__WRIT__", UUID_DASHES, {"__WRIT__", "__READ__"}, USES_CONTAINERS},
	{USE_LOCK, DIALECT_CURATOR_RW, contend, "_c_%s-__READ__", UUID_DASHES, {"__WRIT__"}, SHARES | USES_CONTAINERS},

	/* kazoo's Lock, WriteLock and ReadLock */
	{USE_LOCK, DIALECT_KAZOO, contend, "%s__lock__", UUID_HEX, {"__lock__"}},
	{USE_LOCK, DIALECT_KAZOO, contend, "%s__lock__", UUID_HEX, {"__lock__", "__rlock__"}},
	{USE_LOCK, DIALECT_KAZOO, contend, "%s__rlock__", UUID_HEX, {"__lock__"}, SHARES},

	/* ZooKeeper's WriteLock, but for a number by chance in the place of its session's, and Hive's locks */
	{USE_LOCK, DIALECT_ZOOKEEPER, contend, "x-%s-", UUID_HALF, {"-"}},
	{USE_LOCK, DIALECT_HIVE, contend, "LOCK-EXCLUSIVE-", UUID_NONE, {"LOCK-EXCLUSIVE-", "LOCK-SHARED-"}, GIVES_UP | TIDIES},
	{USE_LOCK, DIALECT_HIVE, contend, "LOCK-SHARED-", UUID_NONE, {"LOCK-EXCLUSIVE-"}, SHARES | GIVES_UP | TIDIES},

	/* Curator's LeaderLatch, and ZooKeeper's LeaderElectionSupport */
	{USE_ELECTION, ELECTION_LATCH, contend, "_c_%s-latch-", UUID_DASHES, {"latch-"}, USES_CONTAINERS},
	{USE_ELECTION, ELECTION_SUPPORT, contend, "n_", UUID_NONE, {""}, NEEDS_PATH},

	/* ZooKeeper's DistributedQueue and Curator's SimpleDistributedQueue: who offers, and who takes */
	{USE_QUEUE, 0, offer, ELEMENT_PREFIX, UUID_NONE},
	{USE_QUEUE, 0, offer, ELEMENT_PREFIX, UUID_NONE, .traits = USES_CONTAINERS},
	{USE_QUEUE, 0, take, .heeds = {ELEMENT_PREFIX}},

	/* Somebody who does not know that there are claims on the path */
	{USE_CLAIM, 0, visit, "visitor", UUID_NONE, .traits = USES_CONTAINERS},
};

/* Chooses who to be, of those who are at home on some path. */
static void
choose_kind(Foreign *client)
{
	const SimPath *path;
	int			   n = 0;

	client->path = sim_below(sim_npaths);
	path = &sim_paths[client->path];
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
	{
		if (kinds[i].use == path->use &&
			kinds[i].dialect == (path->use == USE_ELECTION ? path->family : path->dialect) &&
			sim_below(++n) == 0)
			client->kind = &kinds[i];
	}
	if (client->kind && path->use != USE_CLAIM && sim_one_in(sim_rates.delete_node))
		client->kind = &meddler;
}

static void
client_main(void)
{
	Foreign *client = running;

	for (;;)
	{
		client->kind = NULL;
		rest(client, 20 * MS * sim_pace);
		choose_kind(client);
		if (client->kind)
			client->kind->recipe(client);
	}
}

/* ------------------------------------------------------------------------
 * Steps
 * ------------------------------------------------------------------------
 */

static void
start(Foreign *client)
{
	client->handle = zookeeper_init2("", on_event, 4000, NULL, client, 0, NULL);
	client->session_over = client->holds = client->busy = false;
	getcontext(&client->context);
	client->context.uc_stack.ss_sp = client->stack;
	client->context.uc_stack.ss_size = sizeof(client->stack);
	makecontext(&client->context, client_main, 0);
	enter(client);
}

void
foreign_start(int n)
{
	foreign_count = n;
	for (int i = 0; i < n; i++)
	{
		foreign_clients[i].number = i;
		start(&foreign_clients[i]);
	}
}

/* Is there nothing that it would do now? */
bool
foreign_is_done(const Foreign *client)
{
	return (sim_phase != PHASE_TURMOIL && client->kind == NULL) ||
		   (sim_phase == PHASE_CALM && client->holds);
}

int64_t
foreign_next_step(const Foreign *client)
{
	if (client->session_over)
		return model_now;
	return client->busy || foreign_is_done(client) ? SIM_NEVER : client->next_at;
}

void
foreign_run(void *who)
{
	Foreign *client = who;

	if (sim_one_in(sim_rates.abandon))
	{
		tell(client, "crashes", "");
		library_drop(client->handle);
		start(client);
	}
	else if (client->session_over)
	{
		(void) zookeeper_close(client->handle);
		start(client);
	}
	else
		enter(client);
}
