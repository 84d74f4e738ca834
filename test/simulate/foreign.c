/*
 * foreign.c
 *		Clients that are not zklock: Curator's mutex and read-write lock, kazoo's and Hive's
 *		locks, and somebody who deletes what is not his.
 *
 * They are as simple as their recipes allow: one request at a time, and they ask again
 * and again instead of watching.  To add a kind, give it its names in prefix() and what it
 * does in foreign_run().
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/recipe.h"

#define MAX_CLIENTS 8
#define MAX_SWEPT 16

typedef enum ForeignState
{
	FOREIGN_IDLE,
	FOREIGN_CREATES,
	FOREIGN_SEARCHES, /* its create was not answered */
	FOREIGN_WAITS,
	FOREIGN_HOLDS,
	FOREIGN_DELETES,
	FOREIGN_MEDDLES /* lists, and deletes somebody's node */
} ForeignState;

typedef struct Foreign
{
	zhandle_t	*handle;
	bool		 expired;
	bool		 busy; /* a request is under way */
	ForeignState state;
	int			 path;
	bool		 shared;
	char		 prefix[128];
	char		 node[256]; /* its whole path, once it is known */
	int64_t		 czxid;		/* of that; 0 if it was found by its name */
	int64_t		 next_at;
} Foreign;

static Foreign clients[MAX_CLIENTS];
static int	   nclients;

static void
on_session(zhandle_t *handle, int type, int state, const char *path, void *context)
{
	Foreign *client = context;

	if (type == ZOO_SESSION_EVENT && state == ZOO_EXPIRED_SESSION_STATE)
		client->expired = true;
}

static void
open_handle(Foreign *client)
{
	client->handle = zookeeper_init2("", on_session, 4000, NULL, client, 0, NULL);
	client->expired = client->busy = false;
	client->state = FOREIGN_IDLE;
	client->node[0] = '\0';
}

void
foreign_start(int n)
{
	nclients = n;
	for (int i = 0; i < n; i++)
		open_handle(&clients[i]);
}

int
foreign_count(void)
{
	return nclients;
}

static void
tell(const Foreign *client, const char *what)
{
	if (sim_tells)
		sim_tell("foreign %d: %s %s %s", (int) (client - clients), what,
				 sim_paths[client->path].path, client->node[0] ? client->node : client->prefix);
}

/* ------------------------------------------------------------------------
 * Their names
 * ------------------------------------------------------------------------
 */

static const Recipe *
recipe_of(const Foreign *client)
{
	return sim_paths[client->path].use == USE_ELECTION ? &election_recipe : &lock_recipe;
}

static RecipeRequest
request_of(const Foreign *client)
{
	const SimPath *path = &sim_paths[client->path];

	return (RecipeRequest){.mode = client->shared ? LOCK_MODE_SHARED : LOCK_MODE_EXCLUSIVE,
						   .dialect = path->dialect,
						   .family = path->family};
}

static void
prefix(Foreign *client)
{
	const SimPath *path = &sim_paths[client->path];
	RecipeRequest  request;
	uint8_t		   uuid[ZKLOCK_UUID_BYTES];

	for (int i = 0; i < ZKLOCK_UUID_BYTES; i++)
		uuid[i] = sim_random();
	client->shared = path->use == USE_LOCK && path->dialect != DIALECT_CURATOR && sim_one_in(2);
	request = request_of(client);
	recipe_of(client)->write(client->prefix, sizeof(client->prefix), &request, uuid);
}

/* Does the name of its node not tell whose it is? */
static bool
recurs(const Foreign *client)
{
	RecipeRequest request = request_of(client);

	return recipe_of(client)->recurs && recipe_of(client)->recurs(&request);
}

/* May the client have the lock, if these are the children?  False if its node is not there. */
static bool
is_first(const Foreign *client, const struct String_vector *children, bool *exists)
{
	const Recipe *recipe = recipe_of(client);
	RecipeRequest request = request_of(client);
	const char	 *own = strrchr(client->node, '/') + 1;
	RecipePeer	  self;
	bool		  first = true;

	*exists = false;
	(void) recipe->read(own, &self);
	for (int i = 0; i < children->count; i++)
	{
		RecipePeer peer;

		if (strcmp(children->data[i], own) == 0)
			*exists = true;
		else if (recipe->read(children->data[i], &peer) && peer.sequence < self.sequence &&
				 (recipe->excludes == NULL || recipe->excludes(&peer, &request)))
			first = false;
	}
	return first && *exists;
}

/* ------------------------------------------------------------------------
 * Answers
 * ------------------------------------------------------------------------
 */

static void
on_created(int code, const char *path, const struct Stat *stat, const void *context)
{
	Foreign *client = (Foreign *) context;

	client->busy = false;
	if (client->state != FOREIGN_CREATES)
		return;
	if (code == ZOK)
	{
		snprintf(client->node, sizeof(client->node), "%s", path);
		client->czxid = stat->czxid;
		client->state = FOREIGN_WAITS;
		tell(client, "has created");
	}
	else if (code > ZAPIERROR)
		client->state = FOREIGN_SEARCHES;
	else
		client->state = FOREIGN_IDLE;
}

static void
on_parent(int code, const char *path, const struct Stat *stat, const void *context)
{
	((Foreign *) context)->busy = false;
}

static void
on_deleted(int code, const void *context)
{
	Foreign *client = (Foreign *) context;

	client->busy = false;
	if (client->state != FOREIGN_DELETES || (code != ZOK && code != ZNONODE))
		return;
	client->node[0] = '\0';
	client->state = FOREIGN_IDLE;
}

static void
on_meddled(int code, const void *context)
{
	((Foreign *) context)->busy = false;
}

/* Deletes the path with all that is below it. */
static void
sweep(Foreign *client, const struct String_vector *children)
{
	const char	   *path = sim_paths[client->path].path;
	char			victims[MAX_SWEPT][512];
	zoo_op_t		ops[MAX_SWEPT + 1];
	zoo_op_result_t results[MAX_SWEPT + 1];

	for (int i = 0; i < children->count; i++)
	{
		snprintf(victims[i], sizeof(victims[i]), "%s/%s", path, children->data[i]);
		zoo_delete_op_init(&ops[i], victims[i], -1);
	}
	zoo_delete_op_init(&ops[children->count], path, -1);
	(void) zoo_amulti(client->handle, children->count + 1, ops, results, on_meddled, client);
}

/* Deletes one of the children, or all and the path with them. */
static void
meddle(Foreign *client, const struct String_vector *children)
{
	const char *path = sim_paths[client->path].path;
	char		victim[512];

	if (children->count <= MAX_SWEPT && sim_one_in(recurs(client) ? 1 : 3))
	{
		client->busy = true;
		sweep(client, children);
		return;
	}
	if (children->count == 0)
		snprintf(victim, sizeof(victim), "%s", path);
	else
		snprintf(victim, sizeof(victim), "%s/%s", path, children->data[sim_below(children->count)]);
	client->busy = true;
	if (sim_tells)
		sim_tell("foreign %d: deletes %s", (int) (client - clients), victim);
	(void) zoo_adelete(client->handle, victim, -1, on_meddled, client);
}

static void
search(Foreign *client, const struct String_vector *children)
{
	for (int i = 0; i < children->count; i++)
	{
		if (strncmp(children->data[i], client->prefix, strlen(client->prefix)) != 0)
			continue;
		snprintf(client->node, sizeof(client->node), "%s/%s", sim_paths[client->path].path,
				 children->data[i]);
		client->czxid = 0;
		client->state = FOREIGN_WAITS;
		return;
	}
	client->state = FOREIGN_IDLE;
}

static void
on_listed(int code, const struct String_vector *children, const struct Stat *stat, const void *context)
{
	Foreign *client = (Foreign *) context;
	bool	 exists;

	client->busy = false;
	if (code == ZNONODE && client->state != FOREIGN_HOLDS)
	{
		client->node[0] = '\0';
		client->state = FOREIGN_IDLE;
	}
	if (code != ZOK)
		return;
	if (client->state == FOREIGN_SEARCHES)
		search(client, children);
	else if (client->state == FOREIGN_MEDDLES)
	{
		client->state = FOREIGN_IDLE;
		meddle(client, children);
	}
	else if (client->state == FOREIGN_WAITS && is_first(client, children, &exists))
	{
		client->state = FOREIGN_HOLDS;
		client->next_at = sim_now() + sim_below(20 * MS * sim_pace);
		sim_changed = true;
		tell(client, "has");
	}
	else if (client->state == FOREIGN_WAITS && !exists)
	{
		client->node[0] = '\0';
		client->state = FOREIGN_IDLE;
	}
}

/* What another server has committed of ours is to be seen in the listing that follows. */
static void
on_synced(int code, const char *path, const void *context)
{
	Foreign *client = (Foreign *) context;

	client->busy = code == ZOK;
	if (code == ZOK)
		(void) zoo_awget_children2(client->handle, sim_paths[client->path].path, NULL, NULL,
								   on_listed, client);
}

/* ------------------------------------------------------------------------
 * Steps
 * ------------------------------------------------------------------------
 */

bool
foreign_can_run(int i)
{
	return clients[i].expired ||
		   (!clients[i].busy && sim_now() >= clients[i].next_at && !foreign_is_done(i));
}

int64_t
foreign_next_timer(int i)
{
	return clients[i].busy || foreign_is_done(i) ? SIM_NEVER : clients[i].next_at;
}

/* Is there nothing that it would do now? */
bool
foreign_is_done(int i)
{
	return (sim_phase != PHASE_TURMOIL && clients[i].state == FOREIGN_IDLE && !clients[i].busy) ||
		   (sim_phase == PHASE_CALM && clients[i].state == FOREIGN_HOLDS);
}

static void
begin(Foreign *client)
{
	char path[512];

	client->path = sim_below(sim_npaths);
	if (sim_paths[client->path].use == USE_SEMAPHORE || sim_paths[client->path].use == USE_CLAIM)
		return;
	client->busy = true;
	if (sim_paths[client->path].use == USE_QUEUE && !sim_one_in(sim_rates.delete_node))
	{
		bool is_element = !sim_one_in(4);

		snprintf(path, sizeof(path), "%s%s", sim_paths[client->path].path,
				 is_element ? "/" ELEMENT_PREFIX : "");
		(void) zoo_acreate2(client->handle, path, "data", 4, &ZOO_OPEN_ACL_UNSAFE,
							is_element ? ZOO_PERSISTENT_SEQUENTIAL : ZOO_CONTAINER, on_parent,
							client);
		return;
	}
	if (sim_one_in(sim_rates.delete_node))
	{
		client->state = FOREIGN_MEDDLES;
		(void) zoo_awget_children2(client->handle, sim_paths[client->path].path, NULL, NULL,
								   on_listed, client);
	}
	else if (sim_one_in(3))
		(void) zoo_acreate2(client->handle, sim_paths[client->path].path, NULL, -1,
							&ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, on_parent, client);
	else
	{
		prefix(client);
		snprintf(path, sizeof(path), "%s/%s", sim_paths[client->path].path, client->prefix);
		client->state = FOREIGN_CREATES;
		(void) zoo_acreate2(client->handle, path, "", 0, &ZOO_OPEN_ACL_UNSAFE,
							ZOO_EPHEMERAL_SEQUENTIAL, on_created, client);
	}
}

void
foreign_run(int i)
{
	Foreign *client = &clients[i];

	client->next_at = sim_now() + sim_below(sim_phase == PHASE_CALM ? 4000 * MS : 20 * MS * sim_pace);

	/* If names do not tell whose they are, it starts anew after a lost answer. */
	if (client->expired || (client->state == FOREIGN_SEARCHES && recurs(client)))
	{
		(void) zookeeper_close(client->handle);
		open_handle(client);
		return;
	}
	/* A server of ours leads for ever. */
	if (client->state == FOREIGN_WAITS && sim_phase == PHASE_DRAIN &&
		sim_paths[client->path].use == USE_ELECTION)
		client->state = FOREIGN_DELETES;
	switch (client->state)
	{
		case FOREIGN_IDLE:
			begin(client);
			break;
		case FOREIGN_HOLDS:
			tell(client, "gives back");
			client->state = FOREIGN_DELETES;
			client->busy = true;
			sim_changed = true;
			(void) zoo_adelete(client->handle, client->node, -1, on_deleted, client);
			break;
		case FOREIGN_DELETES:
			client->busy = true;
			(void) zoo_adelete(client->handle, client->node, -1, on_deleted, client);
			break;
		case FOREIGN_SEARCHES:
			client->busy = true;
			(void) zoo_async(client->handle, "/", on_synced, client);
			break;
		default:
			client->busy = true;
			(void) zoo_awget_children2(client->handle, sim_paths[client->path].path, NULL,
									   NULL, on_listed, client);
	}
}

bool
foreign_holds(int i, ForeignHolder *holder)
{
	*holder =
		(ForeignHolder){i, clients[i].path, clients[i].shared, clients[i].node, clients[i].czxid};
	return clients[i].state == FOREIGN_HOLDS;
}

void
foreign_describe(int i)
{
	if (clients[i].state != FOREIGN_IDLE)
		printf("  foreign %d is in state %d at %s, node %s\n", i, clients[i].state,
			   sim_paths[clients[i].path].path, clients[i].node);
}
