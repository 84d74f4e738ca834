/*
 * parents.c
 *		Creating the missing levels of a path.
 *
 * When a node cannot be created because its path does not exist, the path's own node is
 * created, and those above it that are missing, too, in the order that recipes/node_name.c
 * says.  Then the cohort's node is tried again.  A refusal counts only if the path is still
 * missing then: others may have created it.  The walk just ends when nobody waits for the path
 * any more.
 *
 * A new node can harm others (see recipes/recipe.c).  Few names can.  For those, the parent is
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
 * out for one session, so in this order (zk_client.c), and the walk begins after both answers.
 *
 * If nobody needs the path any more before a node has come below it, the containers that
 * were created are deleted again, from below: ZooKeeper removes none that never had a child,
 * from release 3.10 on not for five minutes.  What has children or data by then stays.  Another
 * client that has just found such a node finds it gone, as it may at any time with containers,
 * and creates it again.  If the connection or the worker is lost meanwhile, the lowest node may
 * stay; no session can bring that about.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "engine/engine_internal.h"

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

static void on_parents_answered(void *arg, const ZkReply *reply);

/* Returns the first "length" bytes of the path, a node above ours; until the end of the round. */
static char *
path_above(const Path *path, size_t length)
{
	return memcpy(MemoryContextAllocZero(engine.scratch, length + 1), path->path, length);
}

/* Makes a call about the path's levels, of which there is one at a time, for a cohort or nobody. */
static void
parents_call(Path *path, const Cohort *cohort, ZkCall call)
{
	path->calls++;
	path->parents_pending = true;
	call.owner = cohort ? cohort_owner(cohort) : (ZkOwner){.pid = ZK_WORKER};
	zk_call(call, on_parents_answered, path);
}

/* Returns true if the path is beside those to which the guess applies. */
static bool
is_sibling(const Path *path)
{
	return zklock_now_ms() < guess_until &&
		   guess_length == missing_path_above(path->path, strlen(path->path)) &&
		   memcmp(guess, path->path, guess_length) == 0;
}

/* ------------------------------------------------------------------------
 * Neighbours
 * ------------------------------------------------------------------------
 */

/*
 * Returns true if the node being tried is one of the two of the semaphore that is asked for.
 */
static bool
is_semaphore_part(const Cohort *cohort)
{
	RequestKind kind = entry_of(cohort_head(cohort))->request.kind;

	return (kind == REQUEST_TURN || kind == REQUEST_PERMIT) &&
		   cohort->path->path[cohort->path->missing.length] == '\0';
}

/*
 * Returns what kinds of contenders a node of that name may harm, except locks where a look has
 * found none a moment ago, or for which the session that asks answers: it holds one on the
 * parent.
 */
static int
possible_harm(const Cohort *cohort, const char *parent, const char *name)
{
	int			harm = neighbour_harm(parent, name);
	const Path *path;

	if (zklock_now_ms() < harmless_until && strcmp(harmless, parent) == 0)
		harm &= ~HARMS_LOCK;
	path = (harm & HARMS_LOCK) ? path_find(parent) : NULL;
	for (int i = 0; path && i < entry_pool->max_entries; i++)
	{
		const Contender *c = &engine.contenders[i];

		if (c->path == path && c->place == PLACE_GRANTED &&
			entry_same_session(&entry_of(c)->request, &entry_of(cohort_head(cohort))->request))
			return harm & ~HARMS_LOCK;
	}
	return harm;
}

/* ------------------------------------------------------------------------
 * The walk
 * ------------------------------------------------------------------------
 */

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

/* Creates the node that is missing. */
static void
create_missing(Path *path, const Cohort *cohort)
{
	ParentNodes kind = entry_of(cohort_head(cohort))->request.parent_nodes;

	parents_call(path, cohort,
				 (ZkCall){.kind = ZK_CREATE,
						  .path = path_above(path, path->missing.length),
						  .node_kind = kind == PARENTS_PERSISTENT ? ZK_PERSISTENT : ZK_CONTAINER});
}

/*
 * Does what comes next of the walk, for those in a cohort who wait for the path, or have come
 * meanwhile; NULL if nobody does.
 */
static void
take_missing_step(Path *path, Cohort *cohort, MissingStep step)
{
	size_t		length = path->missing.length;
	size_t		above;
	const char *parent;

	switch (step)
	{
		case MISSING_LOOK:
			above = missing_path_above(path->path, length);
			parent = path_above(path, above);
			if (cohort && above > 0 &&
				(is_semaphore_part(cohort) ||
				 possible_harm(cohort, parent, path_above(path, length) + above + 1) != 0))
			{
				parents_call(path, cohort, (ZkCall){.kind = ZK_EXISTS, .path = parent});
				break;
			}
			pg_fallthrough;
		case MISSING_CREATE:
			if (cohort)
				fail_without_path(cohort);
			if (cohort && !dlist_is_empty(&cohort->queue))
				create_missing(path, cohort);
			break;
		case MISSING_END: /* the cohort's node is tried again */
			break;
		case MISSING_NO_CHROOT:
			path->parents_refusal = (Refusal){FAILURE_NO_CHROOT, 0};
			break;
		case MISSING_TOO_DEEP:
			path->parents_refusal = (Refusal){FAILURE_TOO_DEEP, 0};
			break;
	}
}

/*
 * Handles what is answered about a level of the path, by the kind of call, and goes on with the
 * walk.  The parent of the node to be created has been looked at: its stat; the listing that
 * follows if it has children, and not too many; and its data, if it is a semaphore's and may be a
 * claim's.  If we may not see it, that is no reason to refuse.  Or a node was created, of the
 * walk or ahead of a cohort's node, whose reply follows; or deleted, on the way back.
 */
static void
on_parents_answered(void *arg, const ZkReply *reply)
{
	Path	   *path = arg;
	const char *node = reply->asked->path;
	size_t		length = path->missing.length;
	bool		ok = reply->outcome == CALL_OK;
	bool		gone = reply->outcome == CALL_NO_NODE;
	Cohort	   *cohort = cohort_first(path);

	path_mark(path);
	path->calls--;
	path->parents_pending = false;

	/* The cohort for which parents are created, or NULL if nobody needs them now */
	while (cohort && (cohort->state != COHORT_PLANNED || cohort_head(cohort) == NULL))
		cohort = cohort_after(cohort);

	switch (reply->asked->kind)
	{
		case ZK_EXISTS:
		case ZK_GET_CHILDREN:
		{
			const char *parent = node;
			const char *name = path_above(path, length) + strlen(parent) + 1;
			int			harm;
			Path	   *ours;

			if (gone)
			{
				take_missing_step(path, cohort, missing_path_next(&path->missing, path->path, false));
				break;
			}
			if (reply->outcome == CALL_UNKNOWN || cohort == NULL)
				break;
			if (reply->asked->kind == ZK_EXISTS && ok && reply->stat.child_count > 0 &&
				reply->stat.child_count <= MAX_LISTED)
			{
				parents_call(path, cohort,
							 (ZkCall){.kind = ZK_GET_CHILDREN, .path = parent, .bulky = true});
				break;
			}

			/* Our own lock nodes say nothing about others. */
			harm = possible_harm(cohort, parent, name);
			ours = (harm & HARMS_LOCK) ? path_find(parent) : NULL;
			for (int i = 0; i < reply->nchildren; i++)
			{
				const char *child = reply->children[i];
				bool		is_ours = ours && cohort_by_name(ours, child);

				if (neighbour_is_harmed(is_ours ? harm & ~HARMS_LOCK : harm, child))
					path->parents_refusal = (Refusal){FAILURE_HARMFUL, 0};
				else if (is_semaphore_part(cohort) && recipe_shows_election(child))
					path->parents_refusal = (Refusal){FAILURE_IS_ELECTION, 0};
				else
					continue;
				return;
			}
			if (harm & HARMS_LOCK)
			{
				strlcpy(harmless, parent, sizeof(harmless));
				harmless_until = zklock_now_ms() + GUESS_MS;
			}
			if (is_semaphore_part(cohort) && reply->stat.data_length > 0 &&
				reply->stat.data_length < CLAIM_RECORD_SIZE)
				parents_call(path, cohort, (ZkCall){.kind = ZK_GET_DATA, .path = node});
			else
				take_missing_step(path, cohort, MISSING_CREATE);
			break;
		}

		case ZK_GET_DATA:
			if (reply->outcome == CALL_UNKNOWN || cohort == NULL)
				break;
			if (ok && claim_record_recognised(reply->data, reply->data_length))
				path->parents_refusal = (Refusal){FAILURE_IS_CLAIMS, 0};
			else
				take_missing_step(path, cohort, MISSING_CREATE);
			break;

		case ZK_CREATE:
		{
			size_t above = missing_path_above(path->path, length);
			bool   ahead = path->parents_attempts == 0; /* there is no walk */
			bool   exists = ok || reply->outcome == CALL_NODE_EXISTS;
			bool   is_new = ok && reply->asked->node_kind == ZK_CONTAINER;

			/* A new container may have to be deleted again. */
			if (is_new && (path->created_to == 0 || path->created_to != above))
				path->created_from = length;
			if (exists)
				path->created_to = is_new ? length : 0;

			/* Paths beside a new one may be missing, too. */
			if (ok && path->path[length] == '\0')
			{
				guess_created = is_sibling(path) ? guess_created + 1 : 1;
				guess_length = above;
				memcpy(guess, path->path, above);
				guess_until = zklock_now_ms() + GUESS_MS;
			}
			else if (ahead)
				guess_until = 0;

			if (ahead)
				break;
			if (exists || gone)
				take_missing_step(path, cohort, missing_path_next(&path->missing, path->path, exists));
			else if (reply->outcome == CALL_REFUSED)
				path->parents_refusal = (Refusal){FAILURE_REFUSED, reply->code};
			else if (reply->outcome == CALL_NO_CHILDREN)
				path->parents_refusal = (Refusal){FAILURE_NO_CHILDREN, reply->code};

			/* If the answer is unknown, the cohort's node is tried again. */
			break;
		}

		case ZK_DELETE: /* it is gone, or in use by others */
			path->created_to = (ok || gone) && path->created_to > path->created_from
								   ? missing_path_above(path->path, path->created_to)
								   : 0;
			break;

		default:
			elog(ERROR, "unexpected answer about node \"%s\"", node);
	}
}

/*
 * Handles a missing path, for which the node of a cohort that is PLANNED again could not be
 * created.  Creates the path, or refuses all who wait in the cohort if its creation has
 * failed.
 */
void
parents_missing(Cohort *cohort)
{
	Path *path = cohort->path;
	int	  code = cohort->no_path_code;

	if (path->parents_pending)
		return; /* the create of the path that went ahead is not answered yet */
	cohort->no_path_code = 0;
	fail_without_path(cohort);
	if (path->parents_refusal.failure == FAILURE_NONE && path->parents_attempts >= MISSING_PATH_ATTEMPTS)
		path->parents_refusal = (Refusal){FAILURE_REFUSED, code};
	if (path->parents_refusal.failure != FAILURE_NONE)
	{
		/* A refusal concerns only the contenders that waited for the path's parents. */
		cohort_fail(cohort, path->parents_refusal.failure, path->parents_refusal.code);
		path->parents_attempts = 0;
		path->parents_refusal.failure = FAILURE_NONE;
	}
	else if (!dlist_is_empty(&cohort->queue))
	{
		path->parents_attempts++;
		path->missing = (MissingPath){.end = strlen(path->path), .length = strlen(path->path)};
		take_missing_step(path, cohort, MISSING_LOOK);
	}
}

/*
 * Creates the path ahead of a cohort's node, if it is taken to be missing.  Returns true if so.
 */
bool
parents_create_ahead(Cohort *cohort)
{
	Path			   *path = cohort->path;
	size_t				length = strlen(path->path);
	const EntryRequest *request = &entry_of(cohort_head(cohort))->request;

	/* Beside the others, it is below their parent. */
	if (request->kind != REQUEST_LOCK || request->parent_nodes == PARENTS_EXISTING ||
		path->lists_sent > 0 || guess_created < 2 || !is_sibling(path) ||
		possible_harm(cohort, path_above(path, guess_length), path->path + guess_length + 1) != 0)
		return false;
	path->missing = (MissingPath){.end = length, .length = length};
	create_missing(path, cohort);
	return true;
}

/* ------------------------------------------------------------------------
 * The way back
 * ------------------------------------------------------------------------
 */

/*
 * Deletes the lowest node that was created for a path that nobody needs any more, if nothing
 * has come below or into it.  Returns false if there is none.
 */
bool
parents_delete(Path *path)
{
	if (path->created_to == 0 || zk_connection < ZK_CONNECTED)
		return false;
	parents_call(path, NULL,
				 (ZkCall){.kind = ZK_DELETE, .path = path_above(path, path->created_to), .versioned = true});
	return true;
}
