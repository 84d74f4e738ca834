/*
 * check.c
 *		What must hold after each step, in calm, and when all is over.
 *
 *	I1	at most one exclusive holder, or shared ones, per path, over all servers and
 *		foreign clients; no more holders of a semaphore than it has permits
 *	I2	who holds has its node, of its server's session
 *	I3	tokens grow from one exclusive grant to the next
 *	I4	each node of a server's session is in one of its entries
 *	E	at most one server leads
 *	Q	an element goes when a transaction that took it commits, and nobody has it again
 *	L	while a lease holds, the leader has not ended the session
 *
 * In calm, moreover:
 *
 *	W	who holds would hear of the end of its node
 *	S	who waits does so for somebody else
 *
 * A session holds what its entry and the lease tell it at this moment.  What somebody
 * else has deleted is held by nobody, but its holder cannot know at once: it has until
 * the next calm.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "process.h"

#include "model.h"

#define MAX_HOLDERS 160
#define REMEMBERED 65536

/* Of a worker that has nothing to do, with what it had to allocate before */
#define MAX_MEMORY (512 * 1024)

/* Somebody who holds something now */
typedef struct Holder
{
	int			server;	 /* FOREIGN: a foreign client */
	int			process; /* or the client */
	int			path;
	EntryKind	kind;
	bool		shared;
	int64		token;
	int			entry;
	const char *node;
	const char *place; /* what is held: a path, or an element */
} Holder;

static Holder holders[MAX_HOLDERS];
static int	  nholders;

static int64  last_token[SIM_PATHS];
static int64  told_token[SIM_SERVERS][SIM_ENTRIES]; /* of the holder seen there last */
static uint32 told_generation[SIM_SERVERS][SIM_ENTRIES];

/* Nodes of zklock that others have deleted, and heirs, by their czxid */
static int64 deleted[REMEMBERED];
static int64 deleted_by[REMEMBERED]; /* zxid */
static int64 heirs[REMEMBERED];
static int64 ancestors[REMEMBERED];
static int64 created_last;		 /* czxid */
static char	 created_number[16]; /* the end of its name */

/* The end of a name, where the number of a contender is */
static const char *
number_of(const char *path)
{
	size_t len = strlen(path);

	return path + (len > 10 ? len - 10 : 0);
}

/* Where a node is remembered; hardly ever do two share a place */
static int
slot_of(int64 czxid)
{
	return ((czxid >> 32) * 4099 + (czxid & 0xffffffff)) % REMEMBERED;
}

/* The node for which this one stands, if it is an heir */
static int64
ancestor(int64 czxid)
{
	int slot = slot_of(czxid);

	return heirs[slot] == czxid ? ancestors[slot] : czxid;
}

static bool
was_deleted(int64 czxid)
{
	return deleted[slot_of(czxid)] == czxid;
}

/* Elements that were taken in a transaction that committed, by their czxid, and in which session */
static int64 consumed[REMEMBERED];
static int64 consumed_in[REMEMBERED];

void
check_consumed(int64_t session, int path, int64_t czxid)
{
	consumed[slot_of(czxid)] = czxid;
	consumed_in[slot_of(czxid)] = session;
	sim_tell("element 0x%llx of %s is consumed", (long long) czxid, sim_paths[path].path);
}

/* Is it the session of one of our servers, or was it? */
static bool
is_servers(int64 session)
{
	bool is = false;

	for (int s = 0; s < sim_nservers && !is; s++)
		is = server_enter(s, SIM_WORKER)->session_id() == session;
	server_leave();
	return is;
}

static bool
is_element(const ModelNode *node)
{
	const char *name = strrchr(node->path, '/') + 1;

	return strncmp(name, ELEMENT_PREFIX, strlen(ELEMENT_PREFIX)) == 0;
}

static bool
session_lives(int64 id)
{
	const ModelSession *session = model_sessions;

	while (session && session->id != id)
		session = session->next;
	return session && !session->closing;
}

static void
on_created(const ModelNode *node, const ModelSession *by)
{
	sim_changed = true;
	created_last = node->stat.czxid;
	strlcpy(created_number, number_of(node->path), sizeof(created_number));
	if (sim_tells)
		sim_tell("zookeeper: 0x%llx creates %s (czxid 0x%llx)", by ? (long long) by->id : 0LL,
				 node->path, (long long) node->stat.czxid);
}

static void
on_deleted(const ModelNode *node, const ModelSession *by, bool expired)
{
	sim_changed = true;
	if (sim_tells)
		sim_tell("zookeeper: 0x%llx deletes %s (czxid 0x%llx)%s", by ? (long long) by->id : 0LL,
				 node->path, (long long) node->stat.czxid, expired ? ", its session is over" : "");
	if (by && !expired && is_element(node) && is_servers(by->id) &&
		consumed[slot_of(node->stat.czxid)] != node->stat.czxid)
		sim_violation(node->path,
					  "Q: element %s is removed, and no transaction that took it has committed",
					  node->path);
	if (by && by->id != node->owner && node->owner != 0)
	{
		int64 czxid = ancestor(node->stat.czxid);

		deleted[slot_of(czxid)] = czxid;
		deleted_by[slot_of(czxid)] = model_last_zxid();
	}
	else if (by && !expired && created_last == model_last_zxid() &&
			 strcmp(created_number, number_of(node->path)) == 0)
	{
		heirs[slot_of(created_last)] = created_last;
		ancestors[slot_of(created_last)] = ancestor(node->stat.czxid);
	}
}

/* L: the leader ends a session. */
static void
on_session_ended(const ModelSession *session, bool expired)
{
	sim_changed = true;
	sim_tell("zookeeper: session 0x%llx %s", (long long) session->id, expired ? "expires" : "is closed");
	for (int s = 0; s < sim_nservers; s++)
	{
		const SimServerApi *api = server_enter(s, SIM_WORKER);

		if (expired && api->session_id() == session->id && api->lease_state() == LEASE_HOLDS)
			sim_violation(NULL, "L: the leader ends session 0x%llx of server %d, whose lease holds for %lld ms",
						  (long long) session->id, s,
						  (long long) (api->lease_until() - sim_now()) / 1000);
		server_leave();
	}
}

void
check_start(int64_t tick)
{
	static const ModelHooks hooks = {.deleted = on_deleted,
									 .created = on_created,
									 .session_ended = on_session_ended,
									 .random = sim_random};

	model_start(&hooks, tick);
}

/* ------------------------------------------------------------------------
 * Who holds what
 * ------------------------------------------------------------------------
 */

/* The path of which an entry's is, or is below; -1 if none */
static int
path_of(const char *name)
{
	for (int i = 0; i < sim_npaths; i++)
	{
		size_t len = strlen(sim_paths[i].path);

		if (strncmp(name, sim_paths[i].path, len) == 0 &&
			(name[len] == '\0' || sim_paths[i].use == USE_SEMAPHORE || sim_paths[i].use == USE_QUEUE))
			return i;
	}
	return -1;
}

/* I2: the node of a holder is there, and its server's. */
static void
check_node(int server, int index, const ContenderEntry *entry, int64 session)
{
	const ModelNode *parent = model_node(entry->request.path);

	for (const ModelNode *node = parent ? parent->children : NULL; node; node = node->behind)
	{
		if (node->owner == session && ancestor(node->stat.czxid) == entry->node.czxid)
			return;
	}
	sim_violation(entry->request.path,
				  "I2: server %d, entry %d holds \"%s/%s\" (czxid 0x%llx), which does not exist", server,
				  index, entry->request.path, entry->node.name, (long long) entry->node.czxid);
}

/* Q: what was taken and committed is taken again only if the session has ended first. */
static void
check_element(const Holder *holder)
{
	const ModelNode *node = model_node(holder->place);
	int64			 czxid = node ? node->stat.czxid : 0;

	if (czxid != 0 && consumed[slot_of(czxid)] == czxid && session_lives(consumed_in[slot_of(czxid)]))
		sim_violation(sim_paths[holder->path].path,
					  "Q: server %d, entry %d has element %s, which was consumed",
					  holder->server, holder->entry, holder->place);
}

/* I3 */
static void
check_token(const Holder *holder, uint32 generation, int64 czxid)
{
	int64 *told = &told_token[holder->server][holder->entry];

	if (*told == holder->token && told_generation[holder->server][holder->entry] == generation)
		return;
	*told = holder->token;
	told_generation[holder->server][holder->entry] = generation;
	if (was_deleted(czxid) && deleted_by[slot_of(czxid)] <= worker_zxid(holder->server))
		sim_violation(sim_paths[holder->path].path,
					  "I2: server %d, entry %d is granted node \"%s\" (czxid 0x%llx), which had been deleted with zxid 0x%llx",
					  holder->server, holder->entry, holder->node, (long long) czxid,
					  (long long) deleted_by[slot_of(czxid)]);
	if (holder->kind == CONTENDER_PERMIT || holder->kind == CONTENDER_ELEMENT ||
		holder->shared || was_deleted(czxid))
		return;
	if (holder->token <= last_token[holder->path])
		sim_violation(sim_paths[holder->path].path,
					  "I3: server %d, entry %d is granted with token %lld after %lld",
					  holder->server, holder->entry, (long long) holder->token,
					  (long long) last_token[holder->path]);
	last_token[holder->path] = holder->token;
}

/* Is a candidate's entry that of the leader, as sessions are told? */
static bool
leads(const SimServerApi *api, const ContenderEntry *entry)
{
	int	  election = api->election_find(entry->request.path);
	int64 term;

	return election >= 0 && api->election_leadership(election, &term) == LEADERSHIP_PROVED &&
		   term == entry->status.token;
}

static void
collect_server(int server)
{
	const SimServerApi *api = server_enter(server, SIM_WORKER);
	EntryPool		   *pool = api->pool();
	int64				session = api->session_id();
	bool				proved = api->lease_state() == LEASE_HOLDS;

	for (int i = 0; i < SIM_ENTRIES; i++)
	{
		const ContenderEntry *entry = &pool->entries[i];
		Holder				  holder = {.server = server, .entry = i};

		if (entry->status.state != CONTENDER_GRANTED ||
			api->entry_is_overrun(entry->status.expires_us) ||
			!(entry->request.kind == CONTENDER_CANDIDACY ? leads(api, entry) : proved))
			continue;
		holder.path = path_of(entry->request.path);
		holder.process = entry->request.pid;
		holder.kind = entry->request.kind;
		holder.shared = entry->status.mode == LOCK_MODE_SHARED;
		holder.token = entry->status.token;
		holder.node = entry->node.name;
		holder.place = entry->request.path;
		if (holder.kind == CONTENDER_ELEMENT)
			check_element(&holder);
		check_token(&holder, entry->generation, entry->node.czxid);
		if (was_deleted(entry->node.czxid))
			continue;
		check_node(server, i, entry, session);
		holders[nholders++] = holder;
	}
	server_leave();
}

static void
collect(void)
{
	nholders = 0;
	for (int s = 0; s < sim_nservers; s++)
		collect_server(s);
	for (int i = 0; i < foreign_count(); i++)
	{
		ForeignHolder	 foreign;
		bool			 holds = foreign_holds(i, &foreign);
		const ModelNode *node = holds ? model_node(foreign.node) : NULL;

		if (node && (foreign.czxid == 0 || foreign.czxid == node->stat.czxid))
			holders[nholders++] =
				(Holder){.server = FOREIGN,
						 .process = i,
						 .path = foreign.path,
						 .kind = sim_paths[foreign.path].use == USE_ELECTION ? CONTENDER_CANDIDACY
																			 : CONTENDER_LOCK,
						 .shared = foreign.shared,
						 .node = foreign.node};
	}
}

/* ------------------------------------------------------------------------
 * I4
 * ------------------------------------------------------------------------
 */

/* Does the entry tell of the node?  As long as the create is not answered, it has the beginning of the name. */
static bool
tells_of(const ContenderEntry *entry, const ModelNode *node)
{
	const char *name = strrchr(node->path, '/') + 1;

	if (entry->status.state == CONTENDER_FREE || entry->node.run_id == 0 ||
		strcmp(entry->request.path, node->parent->path) != 0)
		return false;
	return entry->node.czxid == ancestor(node->stat.czxid) ||
		   (entry->node.czxid == 0 && strncmp(name, entry->node.name, strlen(entry->node.name)) == 0);
}

static void
check_records(int server, int64 session, const EntryPool *pool, const ModelNode *parent)
{
	for (const ModelNode *node = parent ? parent->children : NULL; node; node = node->behind)
	{
		bool is_told = node->owner != session;

		for (int i = 0; i < SIM_ENTRIES && !is_told; i++)
			is_told = tells_of(&pool->entries[i], node);
		if (!is_told)
			sim_violation(parent->path, "I4: server %d has node %s (czxid 0x%llx) in no entry",
						  server, node->path, (long long) node->stat.czxid);
		check_records(server, session, pool, node);
	}
}

/* ------------------------------------------------------------------------
 * I1, E
 * ------------------------------------------------------------------------
 */

static bool
excludes(const Holder *a, const Holder *b)
{
	if (a->path != b->path || a->kind != b->kind || a->kind == CONTENDER_PERMIT ||
		(a->shared && b->shared))
		return false;
	if (a->server == FOREIGN && b->server == FOREIGN)
		return false; /* theirs to see to */

	if (a->kind == CONTENDER_ELEMENT && strcmp(a->place, b->place) != 0)
		return false;

	/* A session does not wait for itself. */
	return a->server != b->server || a->process != b->process;
}

static void
check_permits(void)
{
	int held[SIM_PATHS] = {0};

	for (int i = 0; i < nholders; i++)
	{
		int path = holders[i].path;

		if (holders[i].kind == CONTENDER_PERMIT && ++held[path] > sim_paths[path].permits)
			sim_violation(sim_paths[path].path, "I1: %d sessions hold one of %d permits",
						  held[path], sim_paths[path].permits);
	}
}

/* Checks what must always hold. */
void
check_step(void)
{
	collect();
	for (int i = 0; i < nholders; i++)
	{
		for (int j = 0; j < i; j++)
		{
			if (excludes(&holders[i], &holders[j]))
				sim_violation(sim_paths[holders[i].path].path,
							  "%s: two hold it: server %d, entry %d, node %s; server %d, entry %d, node %s",
							  holders[i].kind == CONTENDER_CANDIDACY ? "E" : "I1",
							  holders[j].server, holders[j].entry, holders[j].node,
							  holders[i].server, holders[i].entry, holders[i].node);
		}
	}
	check_permits();
	for (int s = 0; s < sim_nservers; s++)
	{
		int64 session = server_enter(s, SIM_WORKER)->session_id();

		for (int i = 0; i < sim_npaths && session_lives(session); i++)
			check_records(s, session, server_entries(s), model_node(sim_paths[i].path));
		server_leave();
	}
}

/* ------------------------------------------------------------------------
 * In calm, and at the end
 * ------------------------------------------------------------------------
 */

/* W: does a watch of the session's tell of the node's end? */
static void
check_watched(const ModelNode *node)
{
	const ModelConnection *connection = model_connections;

	while (connection &&
		   (connection->broken || !connection->session || connection->session->id != node->owner))
		connection = connection->next;
	for (const ModelWatch *watch = connection ? connection->watches : NULL; watch;
		 watch = watch->next)
	{
		if (strcmp(watch->path, watch->children ? node->parent->path : node->path) == 0)
			return;
	}
	sim_violation(node->parent->path,
				  "W: session 0x%llx would not hear of the end of %s, under which it holds",
				  (long long) node->owner, node->path);
}

/* Is somebody behind the node whom the one that waits has to wait for? */
static bool
is_of_others(const EntryPool *pool, const ModelNode *node, const ContenderEntry *waits)
{
	bool is_ours = false;

	for (int i = 0; i < SIM_ENTRIES; i++)
	{
		const ContenderEntry *entry = &pool->entries[i];

		if (!tells_of(entry, node))
			continue;
		is_ours = true;
		if (entry->request.pid != waits->request.pid &&
			(entry->node.run_id != waits->node.run_id || entry->status.ticket < waits->status.ticket))
			return true;
	}
	return !is_ours;
}

/* S */
static void
check_waits(int server, const EntryPool *pool, const ContenderEntry *waits)
{
	const Recipe *recipe = waits->request.kind == CONTENDER_CANDIDACY ? &election_recipe : &lock_recipe;
	const ModelNode *path = model_node(waits->request.path);
	RecipeRequest	 request = waits->request.terms;
	RecipePeer		 own;

	request.mode = waits->status.mode;
	(void) recipe->read(waits->node.name, &own);
	for (const ModelNode *node = path ? path->children : NULL; node; node = node->behind)
	{
		const char *name = strrchr(node->path, '/') + 1;
		RecipePeer	peer;
		bool		is_before = recipe->read(name, &peer) && peer.sequence < own.sequence &&
						 (recipe->excludes == NULL || recipe->excludes(&peer, &request));

		if ((is_before || strcmp(name, waits->node.name) == 0) && is_of_others(pool, node, waits))
			return;
	}
	sim_violation(waits->request.path, "S: server %d, entry %d waits for nobody, with node \"%s\"",
				  server, (int) (waits - pool->entries), waits->node.name);
}

/* All has been told by now: nobody holds what somebody has deleted. */
void
check_calm(void)
{
	memset(deleted, 0, sizeof(deleted));
	check_step();
	for (int i = 0; i < nholders; i++)
	{
		char node[ZKLOCK_MAX_PATH + ZKLOCK_NODE_SIZE + 2];

		snprintf(node, sizeof(node), "%s/%s", holders[i].place, holders[i].node);
		if (holders[i].server != FOREIGN)
			check_watched(model_node(node));
	}
	for (int s = 0; s < sim_nservers; s++)
	{
		const EntryPool *pool = server_entries(s);

		for (int i = 0; i < SIM_ENTRIES; i++)
		{
			const ContenderEntry *entry = &pool->entries[i];

			if (entry->status.state == CONTENDER_QUEUED && entry->node.czxid != 0 &&
				entry->request.kind != CONTENDER_PERMIT && entry->request.kind != CONTENDER_ELEMENT)
				check_waits(s, pool, entry);
		}
	}
}

static void
check_nodes(const ModelNode *node)
{
	for (const ModelNode *child = node->children; child; child = child->behind)
	{
		int path = path_of(node->path);

		check_nodes(child);
		if (child->owner != 0 && (path < 0 || sim_paths[path].use != USE_ELECTION))
			sim_violation(node->path, "left: node %s (czxid 0x%llx)", child->path,
						  (long long) child->stat.czxid);
	}
}

/* Nobody has anything, or waits: nothing is left. */
void
check_drained(void)
{
	zhandle_t *handles[64];
	int		   n = library_handles(handles, lengthof(handles));
	int		   nelections = 0;

	for (int i = 0; i < sim_npaths; i++)
		nelections += sim_paths[i].use == USE_ELECTION;
	check_nodes(model_first_node());
	for (int s = 0; s < sim_nservers; s++)
	{
		const SimServerApi *api = server_enter(s, SIM_WORKER);

		if (api->entries_in_use() > nelections)
			sim_violation(NULL, "left: %d entries of server %d are in use", api->entries_in_use(), s);
		if ((int) api->engine_paths() > nelections)
			sim_violation(NULL, "left: server %d knows %zu paths", s, api->engine_paths());
		if (nelections == 0 && api->engine_bytes() > 0)
			sim_violation(NULL, "left: server %d accounts for %zu bytes", s, api->engine_bytes());
		if (worker_memory(s) > MAX_MEMORY)
			sim_violation(NULL, "left: worker %d has %zu bytes of memory", s, worker_memory(s));
		server_leave();
	}
	for (int i = 0; i < n; i++)
	{
		if (library_owner(handles[i]) != FOREIGN && library_watches(handles[i]) > 2 * nelections)
			sim_violation(NULL, "left: server %d has %d watches", library_owner(handles[i]),
						  library_watches(handles[i]));
	}
}
