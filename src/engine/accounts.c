/*
 * accounts.c
 *		The engine's accounts: paths, bytes, watches, outstanding calls.
 *
 * The paths of all our nodes must fit into one packet, and those of all watches into
 * another, which registers them anew on each connection (share.c).  So the engine counts
 * their bytes.  A node is charged to the session for which it is created, until it is gone,
 * even if other sessions wait behind it by then.  A reservation's node is charged to its role,
 * with those of all its reservations.  A node that is kept (kept.c) is charged to nobody: the
 * packets have room of their own for these, and for their watches.  Watches are not charged to
 * sessions: there are at most two for a node that has a lock, and three for one that waits.
 *
 * Each call counts as outstanding for its path, and for its cohort if it has one, until it is
 * answered; neither is freed before.  A cohort that is of no more use by then is COHORT_GONE,
 * and the replies no longer change it.
 *
 * Runs in: the worker.  All of this is private to it; a new worker builds it again.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"
#include "fault.h"
#include "shared/call.h"
#include "utils/memutils.h"

/* Bytes that each path takes in such a packet in addition to its own */
#define PATH_OVERHEAD 4

/* A payer's share of the bytes of nodes */
typedef struct Account
{
	int64  payer; /* hash key */
	size_t bytes;
} Account;

Engine engine = {.retry_at = NEVER, .resume_until = NEVER, .sync_at = NEVER};

static HTAB *accounts;

PG_USED_FOR_ASSERTS_ONLY static const bool watch_steps[][WATCH_REFUSED + 1] = {
	[WATCH_NONE] = {[WATCH_ASKED] = true, [WATCH_SET] = true, [WATCH_REFUSED] = true},
	[WATCH_ASKED] = {[WATCH_NONE] = true, [WATCH_SET] = true, [WATCH_REFUSED] = true},
	[WATCH_SET] = {[WATCH_NONE] = true},
	[WATCH_REFUSED] = {[WATCH_NONE] = true, [WATCH_ASKED] = true},
};

/* Creates the engine's tables. */
void
accounts_start(void)
{
	HASHCTL paths = {.keysize = ZKLOCK_MAX_PATH + 1, .entrysize = sizeof(Path)};
	HASHCTL payers = {.keysize = sizeof(int64), .entrysize = sizeof(Account)};

	engine.scratch =
		AllocSetContextCreate(CurrentMemoryContext, "zklock round", ALLOCSET_DEFAULT_SIZES);
	engine.paths = hash_create("zklock paths", 128, &paths, HASH_ELEM | HASH_STRINGS);
	engine.contenders = palloc0(entries_max() * sizeof(Contender));
	dlist_init(&engine.marked);
	accounts = hash_create("zklock accounts", 64, &payers, HASH_ELEM | HASH_BLOBS);
}

/* Returns true if a time has come; if not, the main loop comes back then. */
bool
engine_retry_is_due(int64 at)
{
	if (at <= zklock_now_ms())
		return true;
	engine.retry_at = Min(engine.retry_at, at);
	return false;
}

/* ------------------------------------------------------------------------
 * Paths
 * ------------------------------------------------------------------------
 */

/* Returns the full path of a node, which lasts until the end of the round. */
char *
path_node(const Path *path, const char *name)
{
	MemoryContext caller = MemoryContextSwitchTo(engine.scratch);
	char		 *node = psprintf("%s/%s", path->path, name);

	MemoryContextSwitchTo(caller);
	return node;
}

/* Returns the path of that name, and creates it if it is new, for the recipe. */
Path *
path_get(const char *name, const Recipe *recipe)
{
	bool  found;
	Path *path = hash_search(engine.paths, name, HASH_ENTER, &found);

	if (!found)
	{
		memset((char *) path + sizeof(path->path), 0, sizeof(Path) - sizeof(path->path));
		path->recipe = recipe;
		dlist_init(&path->cohorts);
		dlist_init(&path->arrivals);
	}
	return path;
}

/* Returns the path of that name, or NULL. */
Path *
path_find(const char *name)
{
	/* Other clients may have nodes with longer paths than ours can be. */
	return strlen(name) <= ZKLOCK_MAX_PATH ? hash_search(engine.paths, name, HASH_FIND, NULL) : NULL;
}

/* Marks a path to which something has happened: it is looked at in this round. */
void
path_mark(Path *path)
{
	if (!path->marked)
		dlist_push_tail(&engine.marked, &path->marked_link);
	path->marked = true;
}

void
path_mark_all(void)
{
	HASH_SEQ_STATUS status;
	Path		   *path;

	hash_seq_init(&status, engine.paths);
	while ((path = hash_seq_search(&status)) != NULL)
		path_mark(path);
}

/* Forgets what is known of other clients' contenders. */
void
path_foreign_clear(Path *path)
{
	for (int i = 0; i < path->nforeign; i++)
		pfree(path->foreign[i].name);
	if (path->foreign)
		pfree(path->foreign);
	path->foreign = NULL;
	path->nforeign = 0;
}

/*
 * Has cohorts look again that would wait for the downgraded node of an exclusive contender
 * that is gone: the shared node that may have replaced it.
 */
static void
look_for_downgraded_node(Path *path, const RecipePeer *gone)
{
	const Recipe *recipe = path->recipe;
	RecipePeer	  downgraded = *gone;

	downgraded.mode = LOCK_MODE_SHARED;
	for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (cohort->state == COHORT_CREATED && recipe->excludes(&downgraded, &cohort->request))
			cohort->listed = false;
	}
}

/*
 * Removes another client's contender, which is gone.  While the child watch stands, nothing
 * but this deletion has happened, so there is no downgraded node (downgrade.c).
 */
void
path_foreign_remove(Path *path, const char *name, DowngradeChance downgrade)
{
	for (int i = 0; i < path->nforeign; i++)
	{
		ForeignContender *gone = &path->foreign[i];

		if (strcmp(gone->name, name) != 0)
			continue;
		if (downgrade == DOWNGRADE_POSSIBLE && path->child_watch != WATCH_SET &&
			path->recipe->downgraded_name && gone->peer.mode == LOCK_MODE_EXCLUSIVE)
			look_for_downgraded_node(path, &gone->peer);
		pfree(gone->name);
		*gone = path->foreign[--path->nforeign];
		return;
	}
}

/* ------------------------------------------------------------------------
 * Bytes
 * ------------------------------------------------------------------------
 */

/* Returns the bytes of a watch on the path, or on a node below it. */
static size_t
watch_cost(const Path *path, const char *name)
{
	return engine.chroot_len + strlen(path->path) + (name ? 1 + strlen(name) : 0) + PATH_OVERHEAD;
}

/* Returns the bytes of a node of ours on the path. */
static size_t
node_cost(const Path *path)
{
	return watch_cost(path, NULL) + ZKLOCK_NODE_SIZE;
}

/* Returns how many bytes nodes, or watches, may take together when this request is served. */
static size_t
budget(const Entry *entry)
{
	return entry->request.reserve == RESERVE_OPEN ? PACKET_BUDGET : PACKET_BUDGET - PACKET_RESERVE;
}

/* Returns FAILURE_NONE if there is room for a node on the path, and its watches. */
Failure
path_has_room(const Path *path, const Entry *entry)
{
	size_t		   bytes = node_cost(path);
	int64		   payer = entry_payer(entry);
	const Account *account = hash_search(accounts, &payer, HASH_FIND, NULL);

	if (bytes + (account ? account->bytes : 0) > share_of_bytes(entry->request.share, entries_limit()))
		return FAILURE_SHARE_FULL;
	if (engine.node_bytes + bytes > budget(entry) ||
		engine.watch_bytes + 3 * bytes > budget(entry) + engine.kept_bytes)
		return FAILURE_SESSION_FULL;
	return FAILURE_NONE;
}

/* Adds bytes to the account of a payer, or to those charged to nobody. */
static void
account_change(int64 payer, ssize_t bytes)
{
	Account *account;
	bool	 found;

	if (payer == PAYER_NOBODY)
	{
		engine.kept_bytes += bytes;
		return;
	}
	engine.node_bytes += bytes;
	account = hash_search(accounts, &payer, HASH_ENTER, &found);
	account->bytes = bytes + (found ? account->bytes : 0);
	if (account->bytes == 0)
		hash_search(accounts, &payer, HASH_REMOVE, NULL);
}

/* Charges the cohort's node, which may exist from now on, to a payer, or to PAYER_NOBODY. */
void
cohort_charge(Cohort *cohort, int64 payer)
{
	if (cohort->bytes != 0)
		return;
	cohort->bytes = node_cost(cohort->path);
	cohort->payer = payer;
	account_change(payer, cohort->bytes);
}

/* Takes the charge back: the node does not exist. */
void
cohort_refund(Cohort *cohort)
{
	if (cohort->bytes != 0)
		account_change(cohort->payer, -(ssize_t) cohort->bytes);
	cohort->bytes = 0;
}

/* Has another payer, or PAYER_NOBODY, pay for the cohort's node. */
void
cohort_pay(Cohort *cohort, int64 payer)
{
	cohort_refund(cohort);
	cohort_charge(cohort, payer);
}

/* ------------------------------------------------------------------------
 * Watches
 * ------------------------------------------------------------------------
 */

bool
watch_exists(WatchState state)
{
	return state == WATCH_ASKED || state == WATCH_SET;
}

/*
 * Returns true if there is room for a watch on a node of the path; without an entry, the
 * reserve may be used, too.
 */
bool
watch_has_room(const Path *path, const char *name, const Entry *entry)
{
	size_t room = entry ? budget(entry) : PACKET_BUDGET;

	return !ZKLOCK_FAULT("watches-full") &&
		   engine.watch_bytes + watch_cost(path, name) <= room + engine.kept_bytes;
}

/* Moves a watch to a state, unless it is in that, and counts its bytes. */
static void
watch_set(WatchState *watch, WatchState state, size_t bytes)
{
	if (*watch == state)
		return;
	Assert(watch_steps[*watch][state]);
	if (!watch_exists(*watch) && watch_exists(state))
		engine.watch_bytes += bytes;
	else if (watch_exists(*watch) && !watch_exists(state))
		engine.watch_bytes -= bytes;
	*watch = state;
}

void
watch_child_set(Path *path, WatchState state)
{
	watch_set(&path->child_watch, state, watch_cost(path, NULL));
}

/* Gives the child watch up, and has it removed if it is set. */
void
watch_child_give_up(Path *path)
{
	if (path->child_watch == WATCH_SET)
	{
		zk_call((ZkCall){.kind = ZK_UNWATCH_CHILDREN, .path = path->path}, NULL, NULL);
		queue_wait_wake(path->path, strlen(path->path)); /* queue waits there lose the watch,
														  * too */
	}
	watch_child_set(path, WATCH_NONE);
}

/* Returns true if a cohort of the path watches that child: its own node, or its blocker. */
bool
watch_is_needed(const Path *path, const char *child)
{
	for (const Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if ((watch_exists(cohort->own_watch) && strcmp(cohort->name, child) == 0) ||
			(cohort->blocker && strcmp(cohort->blocker, child) == 0))
			return true;
	}
	return false;
}

/*
 * Has the watch on a child of the path removed, unless a cohort needs it.  Queue waits, which
 * may watch a claim, lose it, too.
 */
void
watch_remove(const Path *path, const char *child)
{
	if (watch_is_needed(path, child))
		return;
	zk_call((ZkCall){.kind = ZK_UNWATCH_DATA, .path = path_node(path, child)}, NULL, NULL);
	if (path->recipe->fixed_name)
		queue_wait_wake(path->path, strrchr(path->path, '/') - path->path);
}

void
watch_own_set(Cohort *cohort, WatchState state)
{
	watch_set(&cohort->own_watch, state, watch_cost(cohort->path, cohort->name));
}

/* Sets the state of the watch on the blocker, whose name is forgotten with the watch. */
void
watch_blocker_set(Cohort *cohort, WatchState state)
{
	watch_set(&cohort->blocker_watch, state, watch_cost(cohort->path, cohort->blocker));
	if (!watch_exists(state))
	{
		pfree(cohort->blocker);
		cohort->blocker = NULL;
	}
}

/* Gives that watch up, and has it removed if it is set. */
void
watch_blocker_give_up(Cohort *cohort, WatchState state)
{
	char *blocker = MemoryContextStrdup(engine.scratch, cohort->blocker);
	bool  is_set = cohort->blocker_watch == WATCH_SET;

	watch_blocker_set(cohort, state);
	if (is_set)
		watch_remove(cohort->path, blocker);
}

/* ------------------------------------------------------------------------
 * Outstanding calls
 * ------------------------------------------------------------------------
 */

void
cohort_call_begin(Cohort *cohort)
{
	cohort->calls++;
	cohort->path->calls++;
}

/* Counts a reply.  Returns false if the cohort is gone: it may have been freed. */
bool
cohort_call_end(Cohort *cohort)
{
	path_mark(cohort->path);
	cohort->calls--;
	cohort->path->calls--;
	if (cohort->state != COHORT_GONE)
		return true;
	if (cohort->calls == 0)
		pfree(cohort);
	return false;
}

/* Makes a call for the session whose turn it is in the cohort; the handler gets the cohort. */
void
cohort_call(Cohort *cohort, ZkCall call, ZkReplyHandler handler)
{
	call.owner = cohort_owner(cohort);
	cohort_call_begin(cohort);
	zk_call(call, handler, cohort);
}

/*
 * Does the same for a call about the cohort's node, which must not wait for calls that watch.
 */
void
cohort_node_call(Cohort *cohort, ZkCall call, ZkReplyHandler handler)
{
	cohort->node_calls++;
	cohort_call(cohort, call, handler);
}

bool
cohort_node_call_end(Cohort *cohort)
{
	cohort->node_calls--;
	return cohort_call_end(cohort);
}

/*
 * Plans the repetition of a call that must succeed, but was refused.  Returns true if the
 * caller is to log that: once in a state, if need be at a later attempt.
 */
bool
cohort_refused(Cohort *cohort)
{
	static int64 log_at; /* no message before, ms */

	int64			 now = zklock_now_ms();
	const Contender *owner = cohort_head_or_last_owner(cohort);
	bool			 is_due = cohort->refusal_logged_in != cohort->state && now >= log_at;

	cohort->refused_in = cohort->state;
	cohort->retry_at = now + RETRY_MS;
	if (owner)
		entry_refuse_release(entry_index(owner));
	if (is_due)
	{
		cohort->refusal_logged_in = cohort->state;
		log_at = now + MESSAGE_PAUSE_MS;
	}
	return is_due;
}
