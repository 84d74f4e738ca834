/*
 * check.c
 *		What must hold after each step, in calm, and when all is over.
 *
 *	I1	at most one exclusive holder, or shared ones, per path, over all servers and
 *		foreign clients; no more holders of a semaphore than it has permits
 *	I2	who holds has its node, of its server's session
 *	I3	tokens grow from one exclusive grant to the next
 *	I4	each node of a server's session is in one of its entries, and took nobody's place
 *	E	at most one server leads, and it gives way to none while a transaction relies on that
 *	Q	an element is added once, and delivered once: by a removal, or to a transaction
 *		that commits.  Where that cannot be said, an error says so
 *	C	a slot of a claim path is claimed at most once, and each is later than the last
 *	G	what a transaction that commits has relied on is held
 *	P	a persistent lock is gone when it is unlocked; a call that gets none leaves nothing,
 *		or its error says that this is in doubt
 *	R	a reservation that is over stays so, and a session was told of one that is not
 *	S	who waits for an element gets one that is free; nobody joins who is to be downgraded, or was
 *	H	a session holds what its calls have promised, and nothing else (session.c)
 *	L	a lease ends before the leader would end the session, if it heard no more of it
 *	K	no more nodes are kept for nobody than the setting allows
 *
 * In calm, moreover:
 *
 *	W	who holds would hear of the end of its node
 *	K	a node that is kept for nobody is alone, and its server would hear of another
 *	S	who waits does so for somebody else
 *
 * A session holds what its entry and the lease tell it at this moment.  What somebody
 * else has deleted is held by nobody, but its holder cannot know at once: it has until
 * the next calm.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "process.h"

#define MAX_HOLDERS 256
#define MAX_ENTRIES (SIM_ENTRIES + SIM_KEPT)
#define NOBODY SIM_SERVERS
#define REMEMBERED 65536
#define PIN_PREFIX "zk-queue-"	/* as in ELEMENT_PIN */
#define MAX_MEMORY (512 * 1024) /* in use by a process that has nothing to do */

char *zklock_faults = NULL; /* faults are for servers, not for the recipes as the world knows them */

/* Each node that there is, in ZooKeeper's truth */
#define foreach_node(node)                                                                          \
	for (const ModelNode *node, **each_ = (const ModelNode **) model_truth->nodes;                  \
		 each_ < (const ModelNode **) model_truth->nodes + model_truth->n && (node = *each_, true); \
		 each_++)

/* Each entry of a server */
#define foreach_entry(entry, pool) \
	for (const Entry *entry = (pool)->entries; entry < (pool)->entries + (pool)->max_entries; entry++)

/* Somebody who holds something now */
typedef struct Holder
{
	int				 server;  /* FOREIGN: a foreign client; NOBODY: the lock is persistent */
	int				 process; /* or the client, or the node */
	int				 path;
	RequestKind		 kind;
	bool			 shared;
	int64			 token;
	int				 entry;
	const char		*node;
	int64			 czxid; /* of that; 0: of a foreign client */
	const ModelNode *at;	/* the same, in ZooKeeper */
	const char		*place; /* what is held: a path, or an element */
} Holder;

static Holder holders[MAX_HOLDERS];
static int	  nholders;

static int64  last_token[SIM_PATHS];
static int64  told_token[SIM_SERVERS][MAX_ENTRIES]; /* of the holder seen there last */
static uint32 told_generation[SIM_SERVERS][MAX_ENTRIES];

/* What is known of a node, by its czxid and its place: one step may create nodes on several paths */
typedef struct Known
{
	int64  czxid;
	uint32 place;			/* its parent's: see place_of() */
	int64  deleted_by;		/* zxid, if somebody else has deleted it */
	int64  downgraded_from; /* the first of those for which it stands; 0: for itself */
	int64  created_by;		/* the ZooKeeper session */

	/* Of a persistent lock */
	bool locked;   /* a session was told its token */
	bool unlocked; /* a session has begun to */

	/* Of an element */
	int64 taken_in; /* the ZooKeeper session, if a transaction took it last */
	bool  removed;	/* by a server */
	bool  delivered;
	bool  unguarded; /* to a transaction that would not know that it has lost the element */
} Known;

static Known  all_known[REMEMBERED];
static Known *created_last = all_known;
static char	  created_number[16]; /* the end of its name */

/* The end of a name, where the number of a contender is */
static const char *
number_of(const char *path)
{
	size_t len = strlen(path);

	return path + (len > 10 ? len - 10 : 0);
}

/* Returns a number for a path, by FNV-1a.  Hardly ever do two have the same. */
static uint32
place_of(const char *path)
{
	uint32 hash = 2166136261u;

	while (*path)
		hash = (hash ^ (unsigned char) *path++) * 16777619u;
	return hash;
}

/*
 * It is in one of eight elements of the array, of which the oldest is forgotten if it is new.
 * Epochs are spread by the golden ratio: what lasts for many of them is not forgotten for that.
 */
static Known *
known(int64 czxid, const char *parent)
{
	uint32 place = place_of(parent);
	uint64 key = (czxid >> 32) * 40503 + (czxid & 0xffffffff) + (uint64) place * 64;
	Known *oldest = &all_known[key % REMEMBERED];

	for (int i = 0; i < 8; i++)
	{
		Known *found = &all_known[(key + i) % REMEMBERED];

		if (found->czxid == czxid && found->place == place)
			return found;
		if (found->czxid < oldest->czxid)
			oldest = found;
	}
	*oldest = (Known){.czxid = czxid, .place = place};
	return oldest;
}

static Known *
known_node(const ModelNode *node)
{
	return known(node->stat.czxid, node->parent);
}

/* The czxid of the node for which this one stands, if it is a downgraded node; else its own */
static int64
ancestor(const ModelNode *node)
{
	int64 downgraded_from = known_node(node)->downgraded_from;

	return downgraded_from ? downgraded_from : node->stat.czxid;
}

/* ------------------------------------------------------------------------
 * Elements and claims
 * ------------------------------------------------------------------------
 */

static int undelivered[SIM_PATHS]; /* elements removed by servers */
int		   check_removals_in_doubt[SIM_PATHS];

/* By the number of an offer */
typedef struct Offer
{
	bool made;
	bool failed;
} Offer;

static Offer offers[REMEMBERED];
static int	 noffers;

static bool claimed[SIM_PATHS][REMEMBERED];
int			check_last_claim[SIM_PATHS];

/* The path of which that is an element; -1 if it is none */
static int
queue_of(const ModelNode *node)
{
	int path = sim_path_of(node->path);

	return path >= 0 && sim_paths[path].use == USE_QUEUE &&
				   strcmp(node->parent, sim_paths[path].path) == 0 &&
				   strncmp(node->name, ELEMENT_PREFIX, strlen(ELEMENT_PREFIX)) == 0
			   ? path
			   : -1;
}

/* A session begins to offer an element, which has that number. */
int
check_offer(void)
{
	noffers = noffers % (REMEMBERED - 1) + 1;
	offers[noffers] = (Offer){false};
	return noffers;
}

void
check_offered(int element, OfferEnd end)
{
	Offer *offer = &offers[element];

	if (end == OFFER_MADE && !offer->made)
		sim_violation(NULL, "Q: element %d is said to be in the queue, and is not", element);
	if (end == OFFER_FAILED && offer->made)
		sim_violation(NULL, "Q: element %d is in the queue, though the offer has failed", element);
	offer->failed = end == OFFER_FAILED;
}

static void
element_created(const ModelNode *node)
{
	Offer *offer = &offers[node->data ? atoi(node->data) : 0];

	if (offer->made || offer->failed)
		sim_violation(node->path, "Q: element %s is added, though the offer %s", node->data,
					  offer->made ? "was made before" : "has failed");
	offer->made = true;
}

static void
element_removed(int path, int64 czxid)
{
	Known *element = known(czxid, sim_paths[path].path);

	element->removed = true;
	undelivered[path] += !element->delivered;
}

/*
 * Somebody has got an element, by a removal or by a transaction, which can get it once more
 * after the end of the ZooKeeper session in which it was taken.
 */
void
check_delivered(int path, int64_t czxid, int64_t taken_in, bool unguarded)
{
	Known *element = known(czxid, sim_paths[path].path);

	sim_tell("element 0x%llx of %s is delivered", (long long) czxid, sim_paths[path].path);
	if (element->delivered && !element->unguarded && !unguarded &&
		(element->taken_in == 0 || model_session(element->taken_in)))
		sim_violation(sim_paths[path].path, "Q: element 0x%llx is delivered twice", (long long) czxid);
	if (taken_in == 0 && !element->removed)
		sim_violation(sim_paths[path].path,
					  "Q: element 0x%llx is delivered, and another one was removed",
					  (long long) czxid);
	undelivered[path] -= element->removed && !element->delivered;
	element->delivered = true;
	element->unguarded |= unguarded;
	element->taken_in = taken_in;
}

/* A slot was claimed, by a call that began when the last one was that. */
void
check_claimed(int path, int slot, int last)
{
	if (slot >= REMEMBERED)
		return;
	if (claimed[path][slot] || slot <= last)
		sim_violation(sim_paths[path].path, "C: slot %d is claimed, after slot %d", slot,
					  claimed[path][slot] ? slot : last);
	claimed[path][slot] = true;
	check_last_claim[path] = Max(check_last_claim[path], slot);
}

/* Has a server's worker been connected, in that session, since before a zxid? */
static bool
was_connected(int64 session, int64 zxid)
{
	for (const zhandle_t *h = library_handles; h; h = h->next)
	{
		if (h->owner != FOREIGN && h->id.client_id == session)
			return h->connected_since < zxid;
	}
	return false;
}

/* ------------------------------------------------------------------------
 * Persistent locks
 * ------------------------------------------------------------------------
 */

int check_persistent_in_doubt[SIM_PATHS];

/* The path to which a persistent lock's node belongs; -1 if it is none */
static int
persistent_of(const ModelNode *node, RecipePeer *peer)
{
	int path = node->stat.ephemeralOwner == 0 ? sim_path_of(node->path) : -1;

	return path >= 0 && sim_paths[path].use == USE_LOCK &&
				   strcmp(node->parent, sim_paths[path].path) == 0 &&
				   lock_recipe.read(node->name, peer)
			   ? path
			   : -1;
}

/* A persistent lock of that token, or with 0 the first of those whose end nobody has begun; or NULL */
static const ModelNode *
find_persistent(int path, int64 token)
{
	RecipePeer peer;

	foreach_node (node)
	{
		const Known *lock;

		if (persistent_of(node, &peer) != path)
			continue;
		lock = known_node(node);
		if (token != 0 ? token_of_grant(node->stat.czxid, 1) == token
					   : sim_phase == PHASE_DRAIN || (lock->locked && !lock->unlocked))
			return node;
	}
	return NULL;
}

/* A session hears that it has the lock, unless somebody has deleted its node meanwhile. */
void
check_locked_persistently(int path, int64_t token)
{
	const ModelNode *node = find_persistent(path, token);
	RecipePeer		 peer;

	if (node == NULL)
		return;
	known_node(node)->locked = sim_changed = true;
	(void) persistent_of(node, &peer);
	if (peer.mode == LOCK_MODE_SHARED)
		return;
	if (token <= last_token[path])
		sim_violation(sim_paths[path].path, "I3: it is locked persistently with token %lld, after %lld",
					  (long long) token, (long long) last_token[path]);
	last_token[path] = token;
}

/* A session begins to unlock one.  Returns its token, or 0 if there is none. */
int64_t
check_unlocks_persistently(int path)
{
	const ModelNode *node = find_persistent(path, 0);

	if (node == NULL)
		return 0;
	known_node(node)->unlocked = true;
	return token_of_grant(node->stat.czxid, 1);
}

void
check_unlocked_persistently(int path, int64_t token)
{
	const ModelNode *node = find_persistent(path, token);

	if (node)
		sim_violation(node->parent, "P: %s is there, though it was unlocked", node->path);
}

/*
 * P: a call that has not locked leaves a node only if its error says so, and it has lost the
 * connection.
 */
static void
check_persistent(int path)
{
	int		   n = 0;
	bool	   is_being_locked = false;
	RecipePeer peer;

	for (int i = 0; i < sim_nprocesses; i++)
		is_being_locked |= sim_processes[i].persists == path;
	foreach_node (node)
	{
		const Known *lock;

		if (is_being_locked || persistent_of(node, &peer) != path)
			continue;
		lock = known_node(node);
		if (!lock->locked && (++n > check_persistent_in_doubt[path] ||
							  was_connected(lock->created_by, lock->czxid)))
			sim_violation(node->parent, "P: node %s is left by a call that has not locked", node->path);
	}
}

/* ------------------------------------------------------------------------
 * Reservations
 * ------------------------------------------------------------------------
 */

int64_t check_reserved_last[SIM_PATHS];

/* A session hears that it has reserved a path, perhaps after another one that came later. */
void
check_reserved(int path, int64_t token)
{
	sim_tell("has reserved %s, token %lld", sim_paths[path].path, (long long) token);
	check_reserved_last[path] = Max(check_reserved_last[path], token);
}

/* Is a reservation over?  Then it remains so. */
bool
check_is_over(int path, int64_t token)
{
	for (int s = 0; s < sim_nservers; s++)
	{
		const SimServerApi *api = server_worker(s)->api;

		foreach_entry (entry, *api->pool)
		{
			if (entry->status.state == ENTRY_GRANTED && entry->status.reserved &&
				entry->status.token == token && sim_path_of(entry->request.path) == path)
				return api->is_overrun(entry->status.expires_us) || api->lease_state() == LEASE_OVER;
		}
	}
	return true;
}

/* ------------------------------------------------------------------------
 * What happens in ZooKeeper
 * ------------------------------------------------------------------------
 */

static void
on_created(const ModelNode *node, const ModelSession *by)
{
	sim_changed = true;
	created_last = known_node(node);
	created_last->created_by = by ? by->id : 0;
	if (by && by->client != FOREIGN && queue_of(node) >= 0)
		element_created(node);
	strlcpy(created_number, number_of(node->path), sizeof(created_number));
	sim_tell("zookeeper: 0x%llx creates %s (czxid 0x%llx)", by ? (long long) by->id : 0LL,
			 node->path, (long long) node->stat.czxid);
}

static void
on_deleted(const ModelNode *node, const ModelSession *by, bool expired)
{
	int	 queue;
	bool heir;

	sim_changed = true;
	sim_tell("zookeeper: 0x%llx deletes %s (czxid 0x%llx)%s", by ? (long long) by->id : 0LL,
			 node->path, (long long) node->stat.czxid, expired ? ", its session is over" : "");
	if (by && !expired && by->client != FOREIGN && (queue = queue_of(node)) >= 0)
		element_removed(queue, node->stat.czxid);
	heir = by && !expired && created_last->czxid == model_last_zxid &&
		   strcmp(created_number, number_of(node->path)) == 0;
	if (by && by->id != node->stat.ephemeralOwner && node->stat.ephemeralOwner != 0)
	{
		known(ancestor(node), node->parent)->deleted_by = model_last_zxid;
		if (heir)
			sim_violation(node->parent, "I4: a downgrade takes the place of another client's node, %s",
						  node->path);
	}
	else if (heir)
		created_last->downgraded_from = ancestor(node);
}

static void
on_session_ended(const ModelSession *session, bool expired)
{
	sim_changed = true;
	sim_tell("zookeeper: session 0x%llx %s", (long long) session->id, expired ? "expires" : "is closed");
}

const ModelHooks model_hooks = {on_deleted, on_created, on_session_ended};

/* ------------------------------------------------------------------------
 * I4
 * ------------------------------------------------------------------------
 */

/* Does the entry tell of the node?  As long as the create is not answered, it has the beginning of the name. */
static bool
tells_of(const Entry *entry, const ModelNode *node)
{
	if (entry->status.state == ENTRY_FREE || entry->node.cohort_id == 0 ||
		strcmp(node->parent, entry->request.path) != 0)
		return false;
	return entry->node.czxid == ancestor(node) ||
		   (entry->node.czxid == 0 &&
			strncmp(node->name, entry->node.name, strlen(entry->node.name)) == 0);
}

/* A pin is a call's for a while. */
static void
check_records(int server, int64 session, const EntryPool *pool)
{
	foreach_node (node)
	{
		bool is_told = node->stat.ephemeralOwner != session ||
					   strncmp(node->name, PIN_PREFIX, strlen(PIN_PREFIX)) == 0 ||
					   sim_path_of(node->path) < 0;

		foreach_entry (entry, pool)
			is_told = is_told || tells_of(entry, node);
		if (!is_told)
			sim_violation(node->parent, "I4: server %d has node %s (czxid 0x%llx) in no entry",
						  server, node->path, (long long) node->stat.czxid);
	}
}

/* ------------------------------------------------------------------------
 * Who holds what
 * ------------------------------------------------------------------------
 */

pg_noreturn static void
accuse(const Holder *holder, const char *what, int64 number)
{
	sim_violation(sim_paths[holder->path].path,
				  "%s %lld (0x%llx): server %d, entry %d, node \"%s\" (czxid 0x%llx)", what,
				  (long long) number, (long long) number, holder->server, holder->entry,
				  holder->node, (long long) holder->czxid);
}

/* The zxid with which somebody else has deleted the node of a holder; 0: nobody has */
static int64
deleted_by_others(const Holder *holder)
{
	return known(holder->czxid, holder->place)->deleted_by;
}

/* I2: the node of a holder is there, and its server's.  Returns it; a downgraded node has a name of its own. */
static const ModelNode *
check_node(const Holder *holder, int64 session)
{
	foreach_node (node)
	{
		if (node->stat.ephemeralOwner == session && ancestor(node) == holder->czxid &&
			strcmp(node->parent, holder->place) == 0)
			return node;
	}
	accuse(holder, "I2: what is held has no node of session", session);
}

/* Q: what a transaction took and committed is had again only if the session has ended first. */
static void
check_element(const Holder *holder)
{
	const ModelNode *node =
		holder->kind == REQUEST_ELEMENT ? tree_find(model_truth, holder->place) : NULL;
	const Known *element = node ? known_node(node) : NULL;

	if (element && element->delivered && !element->unguarded && model_session(element->taken_in))
		accuse(holder, "Q: the element was delivered:", element->czxid);
}

/* I3 */
static void
check_token(const Holder *holder, uint32 generation)
{
	int64 *told = &told_token[holder->server][holder->entry];
	int64  deleted_by = deleted_by_others(holder);

	if (*told == holder->token && told_generation[holder->server][holder->entry] == generation)
		return;
	*told = holder->token;
	told_generation[holder->server][holder->entry] = generation;
	if (deleted_by != 0 && deleted_by <= server_worker(holder->server)->zxid)
		accuse(holder, "I2: it is granted, though its node was deleted with zxid", deleted_by);
	if (holder->kind == REQUEST_PERMIT || holder->kind == REQUEST_ELEMENT || holder->shared ||
		deleted_by != 0)
		return;
	if (holder->token <= last_token[holder->path])
		accuse(holder, "I3: it is granted with a token no higher than", last_token[holder->path]);
	last_token[holder->path] = holder->token;
}

/* Is a candidate's entry that of the leader, as sessions are told? */
static bool
leads(const SimServerApi *api, const Entry *entry)
{
	int	  election = api->election_find(entry->request.path);
	int64 term;

	return election >= 0 && api->election_leadership(election, &term) == LEADERSHIP_PROVED &&
		   term == entry->status.token;
}

/* L: what of the lease is left, and of the session, us; and the worker wakes when it is over */
static void
check_lease(int server, int64 lease, int64 session)
{
	const SimProcess *worker = server_worker(server);

	if (worker->state == PROCESS_ASLEEP && worker->wake_at > model_now + lease + 2 * MS)
		sim_violation(NULL, "L: the worker of server %d sleeps on when the lease is over", server);
	if (lease > session)
		sim_violation(NULL, "L: the lease of server %d holds for %lld ms, its session for %lld ms",
					  server, (long long) lease / 1000, (long long) session / 1000);
}

/* Does a downgraded node stand for the holder? */
static bool
is_downgraded(const Entry *holder)
{
	RecipePeer peer;

	return holder->request.kind == REQUEST_LOCK &&
		   holder->request.terms.mode == LOCK_MODE_EXCLUSIVE &&
		   lock_recipe.read(holder->node.name, &peer) && peer.mode == LOCK_MODE_SHARED;
}

/*
 * S: nobody waits behind the node of a holder that the worker is to downgrade, and nobody is there
 * when it has done so.
 */
static void
check_downgrades(int server)
{
	const SimProcess *worker = server_worker(server);
	const EntryPool	 *pool = *worker->api->pool;

	if (worker->state != PROCESS_ASLEEP || worker->frozen_until > model_now ||
		process_next_step(worker) <= model_now)
		return; /* it may not know yet */
	foreach_entry (holder, pool)
	{
		bool done = holder->status.state == ENTRY_GRANTED && is_downgraded(holder);

		if (!done && (holder->status.state != ENTRY_GRANTED || !holder->status.downgrading))
			continue;
		foreach_entry (other, pool)
		{
			if (other != holder && other->node.cohort_id == holder->node.cohort_id &&
				(other->status.state == ENTRY_QUEUED || (done && other->status.state == ENTRY_GRANTED)))
				sim_violation(holder->request.path,
							  "S: server %d, entry %d waits to be downgraded, or was, with entry %d behind it",
							  server, (int) (holder - pool->entries), (int) (other - pool->entries));
		}
	}
}

static void
collect_server(int server)
{
	const SimServerApi *api = server_worker(server)->api;
	int64				session = (*api->session)->info.id;
	const ModelSession *lives = model_session(session);
	bool				proved = api->lease_state() == LEASE_HOLDS;

	foreach_entry (entry, *api->pool)
	{
		Holder holder = {.server = server, .entry = (int) (entry - (*api->pool)->entries)};

		if (entry->status.state != ENTRY_GRANTED || api->is_overrun(entry->status.expires_us) ||
			!(entry->request.kind == REQUEST_CANDIDACY ? leads(api, entry) : proved))
			continue;
		holder.path = sim_path_of(entry->request.path);
		holder.process = entry->request.scope == LOCK_SCOPE_RESERVATION ? -1 - holder.entry
																		: entry->request.pid;
		holder.kind = entry->request.kind;
		holder.shared = entry->status.mode == LOCK_MODE_SHARED;
		holder.token = entry->status.token;
		holder.node = entry->node.name;
		holder.czxid = entry->node.czxid;
		holder.place = entry->request.path;
		check_element(&holder);
		check_token(&holder, entry->generation);
		if (deleted_by_others(&holder) != 0)
			continue;
		if (entry->status.reserved && holder.token != check_reserved_last[holder.path])
			accuse(&holder, "R: nobody was told of the reservation with token", holder.token);
		holder.at = check_node(&holder, session);
		holder.node = holder.at->name;
		holders[nholders++] = holder;
	}

	/*
	 * ZooKeeper says that a session is over before its nodes are gone, and if its leader falls in
	 * between they stay for another timeout.  The worker has forgotten them by then.
	 */
	if (lives && (*api->session)->ended[0] != session)
		check_records(server, session, *api->pool);
	check_downgrades(server);
	if (lives && proved)
		check_lease(server, pg_atomic_read_u64(&(*api->session)->lease_until) - model_now,
					lives->expires_at - model_now);
}

/* Persistent locks are held as long as their nodes are there. */
static void
collect_persistent(void)
{
	RecipePeer peer;

	foreach_node (node)
	{
		int path = persistent_of(node, &peer);

		if (path >= 0 && known_node(node)->locked && !known_node(node)->unlocked)
			holders[nholders++] = (Holder){.server = NOBODY,
										   .process = (int) node->stat.czxid,
										   .path = path,
										   .kind = REQUEST_LOCK,
										   .shared = peer.mode == LOCK_MODE_SHARED,
										   .node = node->name};
	}
}

static void
collect(void)
{
	nholders = 0;
	for (int s = 0; s < sim_nservers; s++)
		collect_server(s);
	collect_persistent();
	for (const Foreign *f = foreign_clients; f < foreign_clients + foreign_count; f++)
	{
		const ModelNode *node = f->holds ? tree_find(model_truth, f->node) : NULL;
		bool			 leads = sim_paths[f->path].use == USE_ELECTION;

		if (node && (f->node_czxid == 0 || f->node_czxid == node->stat.czxid))
			holders[nholders++] = (Holder){.server = FOREIGN,
										   .process = f->number,
										   .path = f->path,
										   .kind = leads ? REQUEST_CANDIDACY : REQUEST_LOCK,
										   .shared = f->shares,
										   .node = node->name};
	}
}

/* ------------------------------------------------------------------------
 * I1, E
 * ------------------------------------------------------------------------
 */

/* Is "a" that of a foreign client which need not wait for the older one of ours? */
static bool
ignores(const Holder *a, const Holder *b)
{
	const SimPath *path = &sim_paths[a->path];

	return a->server == FOREIGN && path->use == USE_LOCK &&
		   strcmp(number_of(a->node), number_of(b->node)) > 0 &&
		   heed_expected(path->dialect, b->shared ? LOCK_MODE_SHARED : LOCK_MODE_EXCLUSIVE,
						 a->node) != HEED_YES;
}

static bool
excludes(const Holder *a, const Holder *b)
{
	if (a->path != b->path || a->kind != b->kind || a->kind == REQUEST_PERMIT ||
		(a->shared && b->shared))
		return false;
	if (a->server == FOREIGN && b->server == FOREIGN)
		return false; /* theirs to see to */
	if (ignores(a, b) || ignores(b, a))
		return false;
	if (a->kind == REQUEST_ELEMENT && strcmp(a->place, b->place) != 0)
		return false;

	/* A session does not wait for itself. */
	return a->server != b->server || a->process != b->process;
}

/* Checks what must always hold. */
void
check_step(void)
{
	int permits[SIM_PATHS] = {0};

	collect();
	for (const Holder *a = holders; a < holders + nholders; a++)
	{
		const SimPath *path = &sim_paths[a->path];

		if (a->kind == REQUEST_PERMIT && ++permits[a->path] > path->permits)
			sim_violation(path->path, "I1: %d sessions hold one of %d permits",
						  permits[a->path], path->permits);
		for (const Holder *b = holders; b < a; b++)
		{
			if (excludes(a, b))
				sim_violation(path->path,
							  "%s: two hold it: server %d, entry %d, node %s; server %d, entry %d, node %s",
							  a->kind == REQUEST_CANDIDACY ? "E" : "I1", b->server, b->entry,
							  b->node, a->server, a->entry, a->node);
		}
	}
	for (int s = 0; s < sim_nservers; s++)
	{
		const EntryPool *pool = *server_worker(s)->api->pool;

		if (pool->nkept > pool->nspare)
			sim_violation(NULL, "K: %d nodes are kept for nobody, of %d", pool->nkept, pool->nspare);
	}
}

/* ------------------------------------------------------------------------
 * Transactions and processes that end
 * ------------------------------------------------------------------------
 */

void
check_relied(int server, int index, uint32_t generation, int64_t zxid)
{
	const SimServerApi *api = server_worker(server)->api;
	const Entry		   *entry = &(*api->pool)->entries[index];
	const Holder		holder = {.server = server,
								  .path = sim_path_of(entry->request.path),
								  .entry = index,
								  .node = entry->node.name,
								  .czxid = entry->node.czxid,
								  .place = entry->request.path};
	int64				deleted_by = deleted_by_others(&holder);

	if (entry->status.state != ENTRY_GRANTED || entry->generation != generation ||
		api->is_overrun(entry->status.expires_us) || api->lease_state() != LEASE_HOLDS)
		accuse(&holder, "G: a transaction commits that has relied on what is in state",
			   entry->status.state);
	if (zxid > 0 && deleted_by != 0 && deleted_by <= zxid)
		accuse(&holder, "G: a transaction commits that has relied on what was deleted with zxid",
			   deleted_by);
}

void
check_relied_term(int server, int election, int64_t term)
{
	int64 now;

	if (server_worker(server)->api->election_leadership(election, &now) != LEADERSHIP_PROVED ||
		now != term)
		sim_violation(NULL, "G: a transaction of server %d commits that has relied on a term which is over",
					  server);
}

/* E: a server has given way in a term */
void
check_given_away(int server, int election, int64_t term)
{
	for (int i = 0; i < sim_nprocesses; i++)
	{
		const SimProcess *process = &sim_processes[i];
		const Reliance	 *reliance = process->api->reliance;

		for (int k = 0;
			 process->server == server && process->state != PROCESS_DEAD && k < reliance->nterms; k++)
		{
			if (reliance->terms[k].election == election && reliance->terms[k].token == term)
				sim_violation(NULL, "E: server %d gives its leadership away, on which %s relies",
							  server, process->name);
		}
	}
}

/* A backend is no more: nor is what it had, and what it did is in doubt. */
void
check_ended(const SimProcess *process)
{
	const EntryPool *pool = *server_worker(process->server)->api->pool;

	if (process->seeks >= 0 && process->removes)
		check_removals_in_doubt[process->seeks]++;
	if (process->persists >= 0)
		check_persistent_in_doubt[process->persists]++;
	foreach_entry (entry, pool)
	{
		if (entry->request.pid == process->proc->pid && entry->status.state != ENTRY_FREE &&
			entry->status.state != ENTRY_RELEASING && !entry->status.reserved)
			sim_violation(entry->request.path, "H: %s has ended, and has entry %d",
						  process->name, (int) (entry - pool->entries));
	}
}

/* ------------------------------------------------------------------------
 * In calm, and at the end
 * ------------------------------------------------------------------------
 */

/* S: nobody waits for an element of a queue in which one is free. */
static void
check_seeker(const SimProcess *process)
{
	foreach_node (node)
	{
		if (process->seeks >= 0 && queue_of(node) == process->seeks && node->stat.numChildren == 0)
			sim_violation(node->parent, "S: %s waits for an element, and %s is free",
						  process->name, node->path);
	}
}

/* Does the owner of a node have a watch there? */
static bool
is_watched(const ModelNode *node, const char *path, ModelWatchKind kind)
{
	ModelConnection *connection = model_connections;

	while (connection && (connection->broken || !connection->session ||
						  connection->session->id != node->stat.ephemeralOwner))
		connection = connection->next;
	return connection && model_watch_has(&connection->watches, path, kind);
}

/* W: does a watch of the session's tell of the node's end? */
static void
check_watched(const ModelNode *node)
{
	if (!is_watched(node, node->path, MODEL_WATCH_DATA) &&
		!is_watched(node, node->parent, MODEL_WATCH_CHILDREN))
		sim_violation(node->parent,
					  "W: session 0x%llx would not hear of the end of %s, under which it holds",
					  (long long) node->stat.ephemeralOwner, node->path);
}

/* K: an entry whose node may be kept, if that is not gone by now */
static void
check_kept(const Entry *entry)
{
	foreach_node (node)
	{
		bool	   is_own = strcmp(node->name, entry->node.name) == 0;
		RecipePeer peer;

		if (strcmp(node->parent, entry->request.path) != 0)
			continue;
		if (is_own && !is_watched(node, node->parent, MODEL_WATCH_CHILDREN))
			sim_violation(node->parent,
						  "K: nobody would hear of another than %s, which is kept", node->path);
		if (!is_own && lock_recipe.read(node->name, &peer))
			sim_violation(node->parent, "K: %s is kept beside %s", entry->node.name, node->path);
	}
}

/* Is somebody behind the node whom the one that waits has to wait for? */
static bool
is_of_others(const EntryPool *pool, const ModelNode *node, const Entry *waits)
{
	bool is_ours = false;

	foreach_entry (entry, pool)
	{
		if (!tells_of(entry, node))
			continue;
		is_ours = true;
		if (!entry->status.kept && !entry_same_session(&entry->request, &waits->request) &&
			(entry->node.cohort_id != waits->node.cohort_id ||
			 entry->status.ticket < waits->status.ticket))
			return true;
	}
	return !is_ours;
}

/* S */
static void
check_waits(int server, const EntryPool *pool, const Entry *waits)
{
	const Recipe *recipe = waits->request.kind == REQUEST_CANDIDACY ? &election_recipe : &lock_recipe;
	RecipeRequest request = waits->request.terms;
	RecipePeer	  own;

	request.mode = waits->status.mode;
	(void) recipe->read(waits->node.name, &own);
	foreach_node (node)
	{
		RecipePeer peer;
		bool	   is_own = strcmp(node->name, waits->node.name) == 0;

		if (strcmp(node->parent, waits->request.path) == 0 && recipe->read(node->name, &peer) &&
			(is_own || (peer.sequence < own.sequence &&
						(recipe->excludes == NULL || recipe->excludes(&peer, &request)))) &&
			is_of_others(pool, node, waits))
			return;
	}
	sim_violation(waits->request.path, "S: server %d, entry %d waits for nobody, with node \"%s\"",
				  server, (int) (waits - pool->entries), waits->node.name);
}

/* All has been told by now: nobody holds what somebody has deleted. */
void
check_calm(void)
{
	for (int i = 0; i < REMEMBERED; i++)
		all_known[i].deleted_by = 0;
	check_step();
	for (int i = 0; i < sim_npaths; i++)
		check_persistent(i);
	for (int i = 0; i < sim_nprocesses; i++)
		check_seeker(&sim_processes[i]);
	for (int i = 0; i < nholders; i++)
	{
		if (holders[i].at)
			check_watched(holders[i].at);
	}
	for (int s = 0; s < sim_nservers; s++)
	{
		const EntryPool *pool = *server_worker(s)->api->pool;
		int				 nkept = 0;

		foreach_entry (entry, pool)
		{
			if (entry->status.state == ENTRY_RELEASING && entry->status.kept)
			{
				check_kept(entry);
				nkept++;
			}
			if (entry->status.state == ENTRY_QUEUED && entry->node.czxid != 0 &&
				entry->request.kind != REQUEST_PERMIT && entry->request.kind != REQUEST_ELEMENT)
				check_waits(s, pool, entry);
		}
		if (nkept != pool->nkept)
			sim_violation(NULL, "K: %d nodes are kept for nobody, not %d", nkept, pool->nkept);
	}
}

/*
 * Nodes of sessions are left only of candidates; a container that never had a child, which
 * ZooKeeper keeps for ever, only if who created it has lost the connection; and no persistent lock.
 */
static void
check_nodes(void)
{
	foreach_node (node)
	{
		int		   path = sim_path_of(node->path);
		RecipePeer peer;

		if (persistent_of(node, &peer) >= 0 ||
			(node->stat.ephemeralOwner != 0 && (path < 0 || sim_paths[path].use != USE_ELECTION)) ||
			(node->container && node->stat.cversion == 0 &&
			 was_connected(known_node(node)->created_by, node->stat.czxid)))
			sim_violation(node->parent, "left: node %s (czxid 0x%llx)", node->path,
						  (long long) node->stat.czxid);
	}
}

void
check_left(const char *of, const char *what, size_t n, size_t most)
{
	if (n > most)
		sim_violation(NULL, "left: %s has %zu %s", of, n, what);
}

/* Returns the bytes that a context and those below it have in use. */
static Size
memory_in_use(MemoryContext context)
{
	MemoryContextCounters counters = {0};
	Size				  used;

	context->methods->stats(context, NULL, NULL, &counters, false);
	used = counters.totalspace - counters.freespace;
	for (MemoryContext child = context->firstchild; child; child = child->nextchild)
		used += memory_in_use(child);
	return used;
}

/* Nobody has anything, or waits: nothing is left. */
void
check_drained(void)
{
	int nelections = 0;

	check_nodes();
	for (int i = 0; i < sim_npaths; i++)
	{
		nelections += sim_paths[i].use == USE_ELECTION;
		if (undelivered[i] > check_removals_in_doubt[i])
			sim_violation(sim_paths[i].path,
						  "Q: %d elements were removed and not delivered, %d of them with an error that says so",
						  undelivered[i], check_removals_in_doubt[i]);
		undelivered[i] = check_removals_in_doubt[i] = check_persistent_in_doubt[i] = 0;
	}
	for (int s = 0; s < sim_nservers; s++)
		server_worker(s)->api->check_rest(server_worker(s)->name, nelections);
	for (int i = 0; i < sim_nprocesses; i++)
	{
		const SimProcess *process = &sim_processes[i];

		check_left(process->name, "bytes of memory",
				   process->memory ? memory_in_use(process->memory) : 0, MAX_MEMORY);
	}
	for (const zhandle_t *h = library_handles; h; h = h->next)
	{
		if (h->owner != FOREIGN)
			check_left(server_worker(h->owner)->name, "watches", h->watches.nops, 2 * nelections);
	}
}
