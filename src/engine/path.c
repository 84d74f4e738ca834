/*
 * path.c
 *		What the engine has: paths, their cohorts and contenders, what these cost, and calls
 *		under way.
 *
 * Bytes
 * -----
 *
 * The paths of all our nodes must fit into one packet, and those of all watches into
 * another, which registers them anew on each connection (PACKET_BUDGET).  So the engine counts
 * their bytes.  A node is charged to the session for which it is created, until it is gone,
 * even if other sessions wait behind it by then.  A reservation's node is charged to its role,
 * with those of all its reservations.  A node that is kept (kept.c) is charged to nobody: the
 * packets have room of their own for these, and for their watches.  Watches are not charged to
 * sessions: there are at most two for a node that has a lock, and three for one that waits.
 *
 * Calls
 * -----
 *
 * Each call counts as outstanding for its path, and for its cohort if it has one, until it is
 * answered; neither is freed before.  A cohort that is of no more use by then is COHORT_GONE,
 * and the replies no longer change it.
 *
 * Messages
 * --------
 *
 * A role must not be able to fill the log.  What concerns a path is reported once, losses each
 * time, and events that a role can cause as often as it likes once a second.
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written; everything else
 * here is private to the worker, and a new one builds it again.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine.h"
#include "engine/engine_internal.h"
#include "fault.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Bytes that each path takes in such a packet in addition to its own */
#define PATH_OVERHEAD 4

/* Messages of a level about paths that are written at most on behalf of a role */
#define MAX_REPORTED 1000

/* Losses that one message names at most */
#define MAX_LOSSES_NAMED 20

/* A message that has been written; or a level and a role, which no message is called */
typedef struct Reported
{
	char what[ZKLOCK_MAX_PATH + 64]; /* hash key */
	int	 n;							 /* number of messages of that level and role */
} Reported;

/* By which a contender gets what it asks for */
const Recipe *const engine_recipes[] = {
	[REQUEST_LOCK] = &lock_recipe,		 [REQUEST_TURN] = &lock_recipe,
	[REQUEST_PERMIT] = &permit_recipe,	 [REQUEST_CANDIDACY] = &election_recipe,
	[REQUEST_ELEMENT] = &element_recipe,
};

const char *engine_attended;
bool		engine_synced;

Engine engine = {.retry_at = NEVER, .resume_until = NEVER, .sync_at = NEVER};

/* ------------------------------------------------------------------------
 * Paths
 * ------------------------------------------------------------------------
 */

/* Returns whether a time has come; if not, has the main loop come back then. */
bool
engine_await(int64 at)
{
	if (at <= zklock_now_ms())
		return true;
	engine.retry_at = Min(engine.retry_at, at);
	return false;
}

/* Returns the full path of a node, which lasts until the end of the round. */
char *
path_node(const Path *path, const char *name)
{
	MemoryContext caller = MemoryContextSwitchTo(engine.scratch);
	char		 *node = psprintf("%s/%s", path->path, name);

	MemoryContextSwitchTo(caller);
	return node;
}

/* Returns the path of that name, or NULL. */
Path *
path_find(const char *name)
{
	/* Other clients may have nodes with longer paths than ours can be. */
	return strlen(name) <= ZKLOCK_MAX_PATH ? hash_search(engine.paths, name, HASH_FIND, NULL) : NULL;
}

/*
 * Marks a path to which something has happened.  It is looked at when all answers, events and
 * requests of the round have been taken in: so what comes together is decided together, and no
 * handler finds a cohort freed under it.
 */
void
path_mark(Path *path)
{
	if (!path->marked)
		dlist_push_tail(&engine.marked, &path->marked_link);
	path->marked = true;
}

/* ------------------------------------------------------------------------
 * Cohorts
 * ------------------------------------------------------------------------
 */

/*
 * Returns the cohort that has the node, or may have it as its downgraded node, the shared node
 * that replaces the cohort's exclusive one; or NULL.
 */
Cohort *
cohort_by_name(Path *path, const char *name)
{
	for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (cohort_has_node(cohort) &&
			(strcmp(cohort->name, name) == 0 || strcmp(cohort->downgraded_name, name) == 0))
			return cohort;
	}
	return NULL;
}

/*
 * Returns true if a node that has the cohort's name is the cohort's.  The owner alone does not
 * tell that:  when a path has been deleted and created again, a node that our session has made
 * for another cohort, and whose reply was lost, may have the name of a holder's.  It is no proof
 * that nobody else has held the lock in between, and the token would be too old.  The czxid of a
 * downgraded node is not known, but our session creates no other node of its name later.
 */
bool
cohort_owns(const Cohort *cohort, const NodeStat *stat)
{
	if (stat->ephemeral_owner != engine.session_id)
		return false;
	return cohort->downgraded ? stat->czxid > cohort->czxid : stat->czxid == cohort->czxid;
}

/* Takes note how a cohort has ended; cohort_advance() does what follows. */
void
cohort_note_end(Cohort *cohort, CohortEnd how)
{
	cohort->ended = Max(cohort->ended, how);
	path_mark(cohort->path);
}

/* ------------------------------------------------------------------------
 * Contenders
 *
 * These functions keep three things in step with each other: a contender's entry in shared
 * memory, its place in the worker's queues, and the node that it names.  shared/entry.h draws
 * the states of entries; entry.c makes the steps.
 * ------------------------------------------------------------------------
 */

/*
 * Returns the contender's request, with the mode to which its backend may have downgraded it.
 */
RecipeRequest
contender_request(const Contender *c)
{
	RecipeRequest request = entry_of(c)->request.terms;

	request.mode = entry_status(entry_index(c)).mode;
	return request;
}

/*
 * Records in the entry which node stands for the contender.  Nobody has announced yet that a
 * new one will be deleted.
 */
void
contender_publish(Contender *c)
{
	Entry		 *entry = entry_of(c);
	const Cohort *cohort = c->cohort;

	SpinLockAcquire(&entry->mutex);
	if (entry->node.czxid != cohort->czxid)
		entry->status.deletion = LOSS_DELETED;
	entry->node.cohort_id = cohort->id;
	memcpy(entry->node.name, cohort->name, sizeof(cohort->name));
	entry->node.czxid = cohort->czxid;
	entry->node.grants = cohort->grants;
	SpinLockRelease(&entry->mutex);
}

/*
 * Forgets a contender: its entry is given back, at once or when its backend has taken note of
 * a failure or loss.
 */
void
contender_forget(Contender *c)
{
	Entry *entry = entry_of(c);
	bool   released;

	c->place = PLACE_NONE;
	c->path = NULL;
	c->cohort = NULL;
	SpinLockAcquire(&entry->mutex);
	entry->node.cohort_id = 0;
	released = entry->status.state == ENTRY_RELEASING;
	SpinLockRelease(&entry->mutex);
	if (released)
		entry_free(entry_index(c));
}

/*
 * Takes a contender out of its queue.  If it was the last of a cohort that has, or may have, a
 * node, its entry keeps the node's name.
 */
void
contender_detach(Contender *c)
{
	Cohort *cohort = c->cohort;

	path_mark(c->path);
	dlist_delete(&c->link);
	if (cohort && cohort_head(cohort) == NULL && cohort->state != COHORT_PLANNED)
	{
		Assert(cohort->last_owner == NULL);
		cohort->last_owner = c;
		c->place = PLACE_KEEPS_NODE;
		return;
	}
	if (cohort && cohort_head(cohort) != NULL)
		contender_publish(cohort_head(cohort));
	contender_forget(c);
}

/* Refuses a contender that waits. */
void
contender_fail(Contender *c, Failure failure, int code)
{
	entry_fail(entry_index(c), failure, code);
	contender_detach(c);
}

/* Refuses all who wait in a cohort. */
void
cohort_fail(Cohort *cohort, Failure failure, int code)
{
	dlist_mutable_iter iter;

	cohort->closed = true;
	dlist_foreach_modify (iter, &cohort->queue)
	{
		Contender *c = dlist_container(Contender, link, iter.cur);

		if (c->place == PLACE_WAITING)
			contender_fail(c, failure, code);
	}
}

/*
 * Marks a granted contender's lock as lost, whether or not the node is gone, and counts the
 * loss, unless its backend has given it up meanwhile.
 */
void
contender_lose(Contender *c, LossReason reason)
{
	c->cohort->may_keep = false;

	/*
	 * Nobody holds a turn, and worker/candidacy.c counts the losses of candidates, since it
	 * knows whether they still led.  A reservation that nobody has renewed is not lost, but
	 * over.
	 */
	if (entry_lose(entry_index(c), reason))
	{
		RequestKind kind = entry_of(c)->request.kind;
		EntryStatus status = entry_status(entry_index(c));
		int64		held = GetCurrentTimestamp() - status.granted_at;

		if (status.reserved)
			stats_add(STATS_LOCK_EXCLUSIVE, STATS_HOLD_US, Max(held, 0));
		if (kind != REQUEST_TURN && kind != REQUEST_CANDIDACY &&
			(!status.reserved || reason != LOSS_OVERRUN))
			stats_add(stats_kind(kind, status.mode), STATS_LOSSES, 1);
	}
	contender_detach(c);
}

/* ------------------------------------------------------------------------
 * Bytes
 * ------------------------------------------------------------------------
 */

/* Returns the bytes of a watch on the path, or on a node below it. */
size_t
path_cost(const Path *path, const char *name)
{
	return engine.chroot_len + strlen(path->path) + (name ? 1 + strlen(name) : 0) + PATH_OVERHEAD;
}

/* Adds the bytes of a node to the account of a payer; or to those charged to nobody, with its watch. */
static void
account_change(int64 payer, ssize_t bytes, ssize_t watch)
{
	Account *account;
	bool	 found;

	if (payer == PAYER_NONE)
		return;
	if (payer == PAYER_NOBODY)
	{
		engine.kept_bytes += bytes;
		engine.kept_watch_bytes += watch;
		return;
	}
	engine.node_bytes += bytes;
	account = hash_search(engine.accounts, &payer, HASH_ENTER, &found);
	account->bytes = bytes + (found ? account->bytes : 0);
	if (account->bytes == 0)
		hash_search(engine.accounts, &payer, HASH_REMOVE, NULL);
}

/*
 * Charges the cohort's node, which may exist from now on, to a payer, or to PAYER_NOBODY,
 * instead of the one before; or takes the charge back (PAYER_NONE), as it does not exist.  A
 * node that is kept has its name, and costs no more than that takes.
 */
void
cohort_charge(Cohort *cohort, int64 payer)
{
	size_t watch = path_cost(cohort->path, NULL);

	account_change(cohort->payer, -(ssize_t) cohort->bytes, -(ssize_t) watch);
	cohort->payer = payer;
	cohort->bytes = payer == PAYER_NOBODY ? path_cost(cohort->path, cohort->name)
										  : watch + ZKLOCK_NODE_SIZE;
	account_change(payer, cohort->bytes, watch);
}

/* ------------------------------------------------------------------------
 * Outstanding calls
 * ------------------------------------------------------------------------
 */

/* Makes a call for the session whose turn it is in the cohort; the handler gets the cohort. */
void
cohort_call(Cohort *cohort, ZkCall call, ZkReplyHandler handler)
{
	call.owner = cohort_owner(cohort);
	cohort->calls++;
	cohort->path->calls++;
	zk_call(call, handler, cohort);
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

/* ------------------------------------------------------------------------
 * Messages
 * ------------------------------------------------------------------------
 */

/*
 * Returns true the first time that a message about a path is to be written, and never again.
 * The subject distinguishes the messages about one path.  Each role is counted by itself, so it
 * silences nothing that others cause; and so is each level: a warning that two clients hold a
 * lock at once is not lost after many messages of less weight.
 */
bool
report_once(int level, const Path *path, const char *subject)
{
	static HTAB *reported;

	const ZkCall *answering = zk_answering;
	char		  key[ZKLOCK_MAX_PATH + 64];
	HASHCTL		  ctl = {.keysize = sizeof(key), .entrysize = sizeof(Reported)};
	Reported	 *count;
	bool		  found;

	if (reported == NULL)
		reported = hash_create("zklock messages", 16, &ctl, HASH_ELEM | HASH_STRINGS);
	snprintf(key, sizeof(key), "%d %u", level, answering ? answering->owner.role : InvalidOid);
	count = hash_search(reported, key, HASH_ENTER, &found);
	count->n = found ? count->n : 0;
	if (count->n >= MAX_REPORTED)
		return false;
	snprintf(key, sizeof(key), "%s %s", subject, path->path);
	hash_search(reported, key, HASH_ENTER, &found);
	count->n += !found;
	return !found;
}

/* Adds a contender that is about to lose what it holds, if it holds it. */
void
report_losses_add(Losses *losses, const Contender *c)
{
	const Entry *entry = entry_of(c);
	EntryStatus	 status = entry_status(entry_index(c));

	/* The server's own losses are in the log already. */
	if (status.state != ENTRY_GRANTED || entry->request.pid == ENTRY_SERVER_PID)
		return;
	if (losses->count++ >= MAX_LOSSES_NAMED)
		return;
	if (losses->lines.data == NULL)
		initStringInfo(&losses->lines);
	if (status.reserved)
		appendStringInfo(&losses->lines, "\nThe reservation of \"%s\" is over.", entry->request.path);
	else
		appendStringInfo(&losses->lines, "\nProcess %d has lost \"%s\".", entry->request.pid,
						 entry->request.path);
}

/*
 * Returns the losses, each on a line of its own after a line break; "" if there are none.  The
 * lines last until the end of the round, and the list is empty again, but for the count.
 */
char *
report_losses_take(Losses *losses)
{
	char *lines = "";

	if (losses->count > MAX_LOSSES_NAMED)
		appendStringInfo(&losses->lines, "\nAnd %d more.", losses->count - MAX_LOSSES_NAMED);
	if (losses->lines.data)
	{
		lines = MemoryContextStrdup(engine.scratch, losses->lines.data);
		pfree(losses->lines.data);
		losses->lines.data = NULL;
	}
	return lines;
}
