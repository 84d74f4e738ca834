/*
 * parents.c
 *		Creating the missing levels of a path.
 *
 * When a node cannot be created because its path does not exist, the path's own node is
 * created, and those above it that are missing, too.
 *
 *	up		The lowest missing level is tried first: if it can be created, or exists by
 *			now, all is well.  If its parent is missing as well, that is tried next, and
 *			so on.  So no request touches what has always been there, and above which we
 *			may have no rights.
 *	down	From the first level that exists now, the others are created below it.
 *
 * Then the cohort's node is tried again.  The reply that a node exists is as good as a new
 * one.  A refusal counts only if the path is still missing then: others may have created it.
 * If something has been deleted meanwhile, as empty containers are, all is done again, a
 * bounded number of times.  The walk just ends when nobody waits for the path any more.
 *
 * Each request creates ZKLOCK_MAX_LEVELS nodes at most, since they may stay for good.
 *
 * A new node can harm others (see neighbour.c).  Few names can.  For those, the parent is
 * listed first, and nothing is created if that shows somebody who would be harmed.  This
 * server's own lock nodes do not count, as they say nothing about others; and a session that
 * holds a lock on the parent is trusted to know what belongs below it, which is how
 * zk_lock_tree() comes down.  The parent of a semaphore's own nodes is listed as well: it
 * must be neither an election's path nor that of claims, whose record it would show
 * (watch.c).
 *
 * Anybody can have a parent grow, and lock many paths below it.  So its stat is read first: a
 * parent with very many children is not listed, as heartbeats would come behind the listings.
 * And a parent where no lock would be harmed is not looked at again for a moment: a lock of
 * Curator's that begins meanwhile finds the node that is there by then in its way as well.
 *
 * The walk's calls are made for one session at a time, the one whose turn it is at that step.
 *
 * Locks of paths that did not exist often come with others beside them: a job for each row, say.
 * So for a while after two paths below one parent were created in a row, the create of a node
 * on another path there is preceded by that of the path, if the parent need not be looked at
 * first.  If the guess is right, that saves two requests and two round trips.  If not, whatever
 * the answer is, the create of the node is answered as without the guess, which ends.  Both go
 * out for one session, so in this order (zk_flow.c), and the walk begins after both answers.
 *
 * If nobody needs the path any more before a node has come below it, the containers that
 * were created are deleted again, from below: ZooKeeper removes none that never had a child,
 * from release 3.10 on not for five minutes.  What has children or data by then stays.  Another client that has just found such a node
 * finds it gone, as it may at any time with containers, and creates it again.  If the
 * connection or the worker is lost meanwhile, the lowest node may stay; no session can
 * bring that about.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"

/* Attempts in a row before we give up */
#define MAX_ATTEMPTS 16

/* So long after the creation of two paths, others beside them are taken to be missing */
#define GUESS_MS 1000

/* Most children of a parent that is listed */
#define MAX_LISTED 1000

static char	  guess[ZKLOCK_MAX_PATH]; /* their parent */
static size_t guess_length;
static int	  guess_created; /* how many have been created there in a row */
static int64  guess_until;	 /* ms */

static char	 harmless[ZKLOCK_MAX_PATH + 1]; /* a parent where no lock could be harmed */
static int64 harmless_until;				/* ms */

/* Returns the cohort for which parents are created, or NULL if nobody needs them now. */
static Cohort *
needy_cohort(Path *path)
{
	for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (cohort->state == COHORT_PLANNED && !dlist_is_empty(&cohort->queue))
			return cohort;
	}
	return NULL;
}

/*
 * Forgets earlier attempts, and a refusal, which concerns only the contenders that waited for
 * the path's parents.
 */
static void
begin_anew(Path *path)
{
	path->parents_attempts = 0;
	path->parents_failure = FAILURE_NONE;
}

/* Takes note that there is a node below the path. */
void
parents_exist(Path *path)
{
	begin_anew(path);
	path->created_to = 0;
}

/* Records why the parents could not be created. */
static void
refuse(Path *path, Failure failure, int code)
{
	path->parents_failure = failure;
	path->parents_code = code;
}

/* Returns the length of the path above the one that has "len" bytes. */
static size_t
length_above(const Path *path, size_t len)
{
	while (path->path[--len] != '/')
		;
	return len;
}

/* Returns the first "len" bytes of the path, a node above ours; until the end of the round. */
static char *
path_above(const Path *path, size_t len)
{
	return memcpy(MemoryContextAllocZero(engine.scratch, len + 1), path->path, len);
}

/* Makes a call for a cohort; the path has one such call at a time. */
static void
make_call(const Cohort *cohort, ZkCall call, ZkReplyHandler handler)
{
	Path *path = cohort->path;

	path->calls++;
	path->parents_pending = true;
	call.owner = cohort_owner(cohort);
	zk_call(call, handler, path);
}

/* Takes note that its reply has come. */
static void
end_call(Path *path)
{
	path_mark(path);
	path->calls--;
	path->parents_pending = false;
}

/* Returns true if the path is beside those to which the guess applies. */
static bool
is_sibling(const Path *path)
{
	return zklock_now_ms() < guess_until && guess_length == length_above(path, strlen(path->path)) &&
		   memcmp(guess, path->path, guess_length) == 0;
}

/* Takes note that the path did not exist, and does now. */
static void
guess_siblings(const Path *path)
{
	guess_created = is_sibling(path) ? guess_created + 1 : 1;
	guess_length = length_above(path, strlen(path->path));
	memcpy(guess, path->path, guess_length);
	guess_until = zklock_now_ms() + GUESS_MS;
}

/* ------------------------------------------------------------------------
 * Neighbours
 * ------------------------------------------------------------------------
 */

/* Returns true if the session that asks holds a lock on this path. */
static bool
session_holds(const Cohort *cohort, const char *name)
{
	const Path *path = path_find(name);

	for (int i = 0; path && i < entries_max(); i++)
	{
		const Contender *c = &engine.contenders[i];

		if (c->path == path && c->place == PLACE_GRANTED &&
			contender_same_session(c, cohort_head(cohort)))
			return true;
	}
	return false;
}

/*
 * Returns true if the node being tried is one of the two of the semaphore that is asked for.
 */
static bool
is_semaphore_part(const Cohort *cohort)
{
	RequestKind kind = entry_of(cohort_head(cohort))->request.kind;

	return (kind == REQUEST_TURN || kind == REQUEST_PERMIT) &&
		   cohort->path->path[cohort->path->missing_len] == '\0';
}

/*
 * Returns what kinds of contenders a node of that name may harm, except those for which the
 * session that asks answers, and locks where a look has found none a moment ago.
 */
static int
possible_harm(const Cohort *cohort, const char *parent, const char *name)
{
	int harm = neighbour_harm(parent, name);

	if (zklock_now_ms() < harmless_until && strcmp(harmless, parent) == 0)
		harm &= ~HARMS_LOCK;
	if ((harm & HARMS_LOCK) && session_holds(cohort, parent))
		harm &= ~HARMS_LOCK;
	return harm;
}

/*
 * Returns why a node is not to be created, by a listing of its parent: it shows somebody who
 * would be harmed, or a semaphore's node would be on the path of an election.  Takes note of a
 * parent where no lock would be harmed.
 */
static Failure
obstacle(const Cohort *cohort, const char *parent, const char *name, const ZkReply *reply)
{
	int	  harm = possible_harm(cohort, parent, name);
	Path *path = (harm & HARMS_LOCK) ? path_find(parent) : NULL;

	for (int i = 0; i < reply->nchildren; i++)
	{
		const char *child = reply->children[i];
		bool		is_ours = path && cohort_by_name(path, child);

		if (neighbour_is_harmed(is_ours ? harm & ~HARMS_LOCK : harm, child))
			return FAILURE_HARMFUL;
		if (is_semaphore_part(cohort) && recipe_shows_election(child))
			return FAILURE_IS_ELECTION;
	}
	if (harm & HARMS_LOCK)
	{
		strlcpy(harmless, parent, sizeof(harmless));
		harmless_until = zklock_now_ms() + GUESS_MS;
	}
	return FAILURE_NONE;
}

/* ------------------------------------------------------------------------
 * The walk
 * ------------------------------------------------------------------------
 */

static void try_missing(Path *path);
static void create_missing(Path *path);

/* Refuses those in a cohort for whom the path, which does not exist, is not to be created. */
static void
fail_without_path(Cohort *cohort)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &cohort->queue)
	{
		Contender *c = dlist_container(Contender, link, iter.cur);

		if (c->place == PLACE_WAITING && entry_of(c)->request.parent_nodes == PARENTS_EXISTING)
			contender_fail(c, FAILURE_NO_PATH, 0);
	}
}

/* Goes on with the node below the one that was tried, which exists now. */
static void
go_down(Path *path)
{
	const char *rest = path->path + path->missing_len;

	path->descending = true;
	if (rest[0] == '\0')
		return;
	path->missing_len += 1 + strcspn(rest + 1, "/");
	create_missing(path);
}

/* Tries the parent of the node that was tried, if there is one, as that is missing, too. */
static void
go_up(Path *path)
{
	int levels = 1;

	for (const char *c = path->path + path->missing_len; *c != '\0'; c++)
		levels += *c == '/';
	path->missing_len = length_above(path, path->missing_len);
	if (path->missing_len == 0)
		refuse(path, FAILURE_NO_CHROOT, 0);
	else if (levels >= ZKLOCK_MAX_LEVELS)
		refuse(path, FAILURE_TOO_DEEP, 0);
	else
		try_missing(path);
}

/*
 * Takes note that the node that was tried exists.  A new container may have to be deleted
 * again.
 */
static void
note_created(Path *path, const ZkReply *reply)
{
	bool is_new = reply->outcome == CALL_OK && reply->asked->node_kind == ZK_CONTAINER;

	if (is_new && (path->created_to == 0 || path->created_to != length_above(path, path->missing_len)))
		path->created_from = path->missing_len;
	path->created_to = is_new ? path->missing_len : 0;
}

/* Handles the reply to a create of a node of the path. */
static void
on_parent_created(void *arg, const ZkReply *reply)
{
	Path *path = arg;

	end_call(path);
	if (reply->outcome == CALL_OK || reply->outcome == CALL_NODE_EXISTS)
	{
		note_created(path, reply);
		if (reply->outcome == CALL_OK && path->path[path->missing_len] == '\0')
			guess_siblings(path);
		go_down(path);
	}
	else if (reply->outcome == CALL_NO_NODE && !path->descending)
		go_up(path);
	else if (reply->outcome == CALL_REFUSED)
		refuse(path, FAILURE_REFUSED, reply->code);
	else if (reply->outcome == CALL_NO_CHILDREN)
		refuse(path, FAILURE_NO_CHILDREN, reply->code);
}

/* Returns the create of the node that is missing. */
static ZkCall
create_call(const Cohort *cohort)
{
	ParentNodes kind = entry_of(cohort_head(cohort))->request.parent_nodes;

	return (ZkCall){.kind = ZK_CREATE,
					.owner = cohort_owner(cohort),
					.path = path_above(cohort->path, cohort->path->missing_len),
					.node_kind = kind == PARENTS_PERSISTENT ? ZK_PERSISTENT : ZK_CONTAINER};
}

/* Creates the node that is missing, for those who have come meanwhile as well. */
static void
create_missing(Path *path)
{
	Cohort *cohort = needy_cohort(path);

	if (cohort)
		fail_without_path(cohort);
	if (cohort && !dlist_is_empty(&cohort->queue))
		make_call(cohort, create_call(cohort), on_parent_created);
}

/* Handles the data of the parent of a semaphore's nodes, which may be a claim's. */
static void
on_parent_read(void *arg, const ZkReply *reply)
{
	Path *path = arg;

	end_call(path);
	if (reply->outcome == CALL_OK && claim_record_recognised(reply->data, reply->data_length))
		refuse(path, FAILURE_IS_CLAIMS, 0);
	else if (reply->outcome != CALL_UNKNOWN)
		create_missing(path);
}

/*
 * Handles the listing of the parent of the node to be created, which shows whom that might
 * harm, or its stat, if it is not to be listed.  If we may not see it, that is no reason to
 * refuse.
 */
static void
on_parent_listed(void *arg, const ZkReply *reply)
{
	Path	   *path = arg;
	Cohort	   *cohort = needy_cohort(path);
	const char *parent = reply->asked->path;
	const char *name = path_above(path, path->missing_len) + strlen(parent) + 1;
	Failure		failure;

	end_call(path);
	if (reply->outcome == CALL_NO_NODE)
		go_up(path);
	else if (reply->outcome == CALL_UNKNOWN || cohort == NULL)
		return;
	else if ((failure = obstacle(cohort, parent, name, reply)) != FAILURE_NONE)
		refuse(path, failure, 0);
	else if (is_semaphore_part(cohort) && reply->stat.data_length > 0 &&
			 reply->stat.data_length < CLAIM_RECORD_SIZE)
		make_call(cohort, (ZkCall){.kind = ZK_GET_DATA, .path = parent}, on_parent_read);
	else
		create_missing(path);
}

/* Handles the stat of the parent, which is listed if it has children, and not too many. */
static void
on_parent_seen(void *arg, const ZkReply *reply)
{
	Path   *path = arg;
	Cohort *cohort = needy_cohort(path);

	if (cohort && reply->outcome == CALL_OK && reply->stat.child_count > 0 &&
		reply->stat.child_count <= MAX_LISTED)
	{
		end_call(path);
		make_call(cohort,
				  (ZkCall){.kind = ZK_GET_CHILDREN, .path = reply->asked->path, .bulky = true},
				  on_parent_listed);
	}
	else
		on_parent_listed(path, reply);
}

/* Creates the missing node, or first looks at its parent. */
static void
try_missing(Path *path)
{
	Cohort	   *cohort = needy_cohort(path);
	const char *node = path_above(path, path->missing_len);
	const char *name = strrchr(node, '/') + 1;
	const char *parent = path_above(path, name - 1 - node);

	if (cohort && parent[0] != '\0' &&
		(is_semaphore_part(cohort) || possible_harm(cohort, parent, name) != 0))
		make_call(cohort, (ZkCall){.kind = ZK_EXISTS, .path = parent}, on_parent_seen);
	else
		create_missing(path);
}

/*
 * Handles a missing path, for which the node of a cohort that is PLANNED again could not be
 * created.  Creates the path, or refuses all who wait in the cohort if its creation has
 * failed.
 */
void
parents_missing(Cohort *cohort, int code)
{
	Path *path = cohort->path;

	fail_without_path(cohort);
	if (path->parents_failure == FAILURE_NONE && path->parents_attempts >= MAX_ATTEMPTS)
		refuse(path, FAILURE_REFUSED, code);
	if (path->parents_failure != FAILURE_NONE)
	{
		cohort_fail(cohort, path->parents_failure, path->parents_code);
		begin_anew(path);
	}
	else if (!dlist_is_empty(&cohort->queue))
	{
		path->parents_attempts++;
		path->missing_len = strlen(path->path);
		path->descending = false;
		try_missing(path);
	}
}

/* Handles the reply to parents_create_ahead(); that to the create of a node below follows. */
static void
on_created_ahead(void *arg, const ZkReply *reply)
{
	Path *path = arg;

	path_mark(path);
	path->calls--;
	if (reply->outcome == CALL_OK)
	{
		note_created(path, reply);
		guess_siblings(path);
	}
	else
		guess_until = 0;
}

/*
 * Creates the path ahead of a cohort's node, if it is taken to be missing.  Returns true if so.
 */
bool
parents_create_ahead(Cohort *cohort)
{
	Path			   *path = cohort->path;
	size_t				length = strlen(path->path);
	size_t				above = length_above(path, length);
	const EntryRequest *request = &entry_of(cohort_head(cohort))->request;

	if (request->kind != REQUEST_LOCK || request->parent_nodes == PARENTS_EXISTING ||
		path->lists_sent > 0 || guess_created < 2 || !is_sibling(path) ||
		possible_harm(cohort, path_above(path, above), path->path + above + 1) != 0)
		return false;
	path->missing_len = length;
	path->calls++;
	zk_call(create_call(cohort), on_created_ahead, path);
	return true;
}

/* ------------------------------------------------------------------------
 * The way back
 * ------------------------------------------------------------------------
 */

/*
 * Handles the reply to a delete of a node created for the path: it is gone, or in use by
 * others.
 */
static void
on_parent_deleted(void *arg, const ZkReply *reply)
{
	Path *path = arg;
	bool  gone = reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE;

	end_call(path);
	path->created_to =
		gone && path->created_to > path->created_from ? length_above(path, path->created_to) : 0;
}

/*
 * Deletes the lowest node that was created for a path that nobody needs any more, if nothing
 * has come below or into it.  Returns false if there is none.
 */
bool
parents_delete(Path *path)
{
	if (path->created_to == 0 || !zk_client_connected())
		return false;
	path->calls++;
	path->parents_pending = true;
	zk_call((ZkCall){.kind = ZK_DELETE, .path = path_above(path, path->created_to), .versioned = true},
			on_parent_deleted, path);
	return true;
}
