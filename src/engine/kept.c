/*
 * kept.c
 *		Nodes that are kept for a moment when nobody needs them.
 *
 * A server that locks a path again and again would have ZooKeeper create and delete a node
 * each time.  Instead, the cohort's node stays when its queue is empty.  The next contender of
 * this server joins the cohort, as it would join one with others in its queue: the same node,
 * the same watch, the same lease, the next number of the token.  So nothing is proved here
 * that is not proved for a lock that is handed over.
 *
 *	begins	when the last contender of a cohort has released an exclusive lock, nobody else is
 *			known on the path, and the child watch stands, which reports a newcomer
 *	ends	when somebody has come, at once, or wants to use the path for something else; when
 *			zklock.keep_idle has passed; when there is another cohort of ours, or too many
 *			nodes are kept (zklock.max_kept_locks, or bytes), the oldest first; with the
 *			session, the lease, or a setting; or by zk_release_kept().
 *			Then nobody joins the cohort any more, and its node is deleted like any other.
 *
 * A path whose lock was released here less than keep_idle ago is hot, unless somebody else has
 * been there in the last VISITED_MS.  Only a node that is created for a hot path may be kept.
 * So other clients that try again and again without waiting find a kept node once in that time
 * at most, however quickly this server comes back.  A new node waits until the one before it
 * is deleted:  otherwise that deletion would use up the watch.
 *
 * The name of a node that may be kept shows it, by a UUID of version 8.  A call elsewhere that
 * does not wait for other holders, and finds nothing in its way but such a node, creates its
 * own all the same and waits for a moment: if the other one is kept for nobody, it goes.
 * Without that, such calls would never succeed beside a server that is always back in time.
 *
 * The entry of the last contender has the node's name, as long as no other has: a later worker
 * finds it there, and deletes the node.  But it is marked as kept: it counts for no session
 * any more, nor do the node's bytes.  Both have room of their own, so no request fails because
 * of them.
 *
 * Runs in: the worker.  shared/entry.h says how entries are written; everything else here is
 * private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "engine/engine.h"
#include "engine/engine_internal.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "utils/memutils.h"

/* A path is not kept for so long after somebody else has been there */
#define VISITED_MS 10000

/* When a lock was released here last */
typedef struct Release
{
	uint64 path; /* a hash */
	int64  at;	 /* ms; 0: none */
} Release;

/*
 * Paths share a row of that many releases, and the last ones have it.  So two paths that are
 * locked in turn do not forget each other.
 */
#define RELEASES_TOGETHER 8

/*
 * What is remembered of a path.  Paths may share the time of a visit: then all of them count as
 * visited.  There are many places, so that a path hardly ever costs another one.
 */
typedef struct PathMemory
{
	uint64	 hash;
	Release *release;		/* its own if the hash says so; or that which it may have */
	int64	*visited_until; /* ms: it is not kept for VISITED_MS after a visit */
} PathMemory;

static dlist_head kept = DLIST_STATIC_INIT(kept); /* cohorts, the longest kept first */

static PathMemory
path_remembered(const Path *path)
{
	static Release *releases;
	static int64   *visits;
	static uint64	n;

	PathMemory memory;
	Release	  *row;

	if (releases == NULL)
	{
		n = Max(8 * entry_pool->nspare, 8192);
		visits = MemoryContextAllocZero(TopMemoryContext, n * sizeof(int64));
		releases = MemoryContextAllocZero(TopMemoryContext, n * sizeof(Release));
	}
	memory.hash = hash_bytes_extended((const unsigned char *) path->path, strlen(path->path), 0);
	memory.visited_until = &visits[memory.hash % n];
	row = &releases[memory.hash % n / RELEASES_TOGETHER * RELEASES_TOGETHER];
	memory.release = row;
	for (int i = 0; i < RELEASES_TOGETHER && memory.release->path != memory.hash; i++)
	{
		if (row[i].path == memory.hash || row[i].at < memory.release->at)
			memory.release = &row[i];
	}
	return memory;
}

/* Takes note that another client has been on the path. */
void
kept_visited(const Path *path)
{
	*path_remembered(path).visited_until = zklock_now_ms() + VISITED_MS;
}

/*
 * Returns true if the cohort is of a kind that can be kept, by its first contender, or its
 * last.
 */
static bool
kept_is_suitable(const Cohort *cohort)
{
	const Contender *c = cohort_head_or_last_owner(cohort);

	return c && entry_of(c)->request.kind == REQUEST_LOCK &&
		   cohort->request.mode == LOCK_MODE_EXCLUSIVE && !cohort->reusable;
}

/*
 * Returns true if a node that is created for the cohort now may be kept later: the lock was
 * released here a moment ago, and nobody else has been there.
 */
bool
kept_later(const Cohort *cohort)
{
	PathMemory memory;
	int64	   now;

	if (!kept_is_suitable(cohort) || cohort->path->nforeign > 0)
		return false;
	memory = path_remembered(cohort->path);
	now = zklock_now_ms();
	return entry_pool->nspare > 0 && now >= *memory.visited_until &&
		   memory.release->path == memory.hash && now < memory.release->at + zklock_keep_idle;
}

/* Ends the time for which a cohort is kept, if it is: it is not kept again.  Counts why. */
void
kept_end(Cohort *cohort, StatsCounter why)
{
	if (cohort->kept_since == 0)
		return;
	dlist_delete(&cohort->kept_link);
	cohort->kept_since = 0;
	stats_add(STATS_LOCK_EXCLUSIVE, why, 1);
}

/* Gives up the cohort that has been kept for longest, if any is kept. */
static void
kept_give_up_oldest(StatsCounter why)
{
	Cohort *cohort;

	if (dlist_is_empty(&kept))
		return;
	cohort = dlist_head_element(Cohort, kept_link, &kept);
	kept_end(cohort, why);
	path_mark(cohort->path);
}

/*
 * Settles whether the node of a cohort whose queue is empty stays, and begins to keep it, or
 * ends that.  Returns true if it stays.
 */
bool
kept_settle(Cohort *cohort)
{
	Path	   *path = cohort->path;
	bool		is_new = cohort->payer != PAYER_NOBODY;
	bool		stays = cohort->kept_since != 0;
	int			index;
	EntryStatus status;

	if (!kept_is_suitable(cohort))
		return false;
	if (is_new)
	{
		PathMemory memory = path_remembered(path);

		/* This server has released the lock. */
		if (zklock_now_ms() >= *memory.visited_until)
			*memory.release = (Release){.path = memory.hash, .at = zklock_now_ms()};
	}

	/*
	 * The next contender of this server could be granted the lock under the node, and others
	 * would be heard of.  After a reconnect it is listed when somebody has joined (node.c).
	 */
	if (zk_connection >= ZK_CONNECTED && engine_synced && lease_state() == LEASE_HOLDS &&
		cohort->may_keep && (cohort->listed || stays) && !cohort->closed &&
		cohort->joined < MAX_GRANTS && path->nforeign == 0 && path->child_watch == WATCH_SET &&
		cohort == cohort_first(path) && cohort_after(cohort) == NULL)
	{
		if (!is_new)
			return stays;

		/* It begins if its last contender has just released the lock. */
		index = entry_index(cohort->last_owner);
		status = entry_status(index);
		if (status.state == ENTRY_RELEASING && status.mode == LOCK_MODE_EXCLUSIVE &&
			zklock_now_us() < status.expires_us && kept_later(cohort))
		{
			int	   most = entry_pool->nspare;
			size_t bytes = engine.kept_bytes + path_cost(path, cohort->name);
			size_t watches = engine.kept_watch_bytes + path_cost(path, NULL);
			size_t most_watches = kept_share_of_watches(most);

			stays = bytes <= KEPT_NODE_BYTES && watches <= most_watches && entry_keep(index);
			if (stays)
			{
				cohort_charge(cohort, PAYER_NOBODY);
				cohort->kept_since = zklock_now_ms();
				dlist_push_tail(&kept, &cohort->kept_link);
			}

			/*
			 * The one that has been kept for longest gives way, so that the last sixteenth is
			 * free for the next: what is given up takes room until its node is gone.
			 */
			if (!stays || entry_pool->nkept > most - most / 16 ||
				bytes > KEPT_NODE_BYTES / 16 * 15 || watches > most_watches / 16 * 15)
				kept_give_up_oldest(STATS_KEPT_CROWDED);
			return stays && cohort->kept_since != 0;
		}
	}
	kept_end(cohort, path->nforeign > 0 || path->child_watch != WATCH_SET ? STATS_KEPT_VISITED
																		  : STATS_KEPT_OTHERWISE);
	return false;
}

/*
 * Returns when kept cohorts must be looked at, ms.  All cohorts are looked at in the same
 * moments, so that many of them do not wake the worker more often than a few; but not all are
 * given up at once.  None is kept for longer than zklock.keep_idle.
 */
int64
kept_next_wakeup(void)
{
	int64 step = Max(Min(zklock_keep_idle / 4, 100), 1);

	if (dlist_is_empty(&kept))
		return NEVER;
	return (dlist_head_element(Cohort, kept_link, &kept)->kept_since + zklock_keep_idle) / step * step;
}

/* Ends the time of those cohorts for which it is over; of all if a session wants that. */
void
kept_expire(void)
{
	if (pg_atomic_read_u32(&entry_pool->release_kept) != 0 &&
		pg_atomic_exchange_u32(&entry_pool->release_kept, 0) != 0)
	{
		while (!dlist_is_empty(&kept))
			kept_give_up_oldest(STATS_KEPT_OTHERWISE);
	}
	while (zklock_now_ms() >= kept_next_wakeup())
		kept_give_up_oldest(STATS_KEPT_EXPIRED);
}

/*
 * Has a contender that finds the lock taken, and does not wait for other holders, wait all the
 * same if nothing is in its way but one node of another client, which may be kept for nobody:
 * it is to have a node, and then to wait a little, for KEPT_PATIENCE_MS, and for as long as
 * its own node has taken, since ZooKeeper may be far away.  Returns false if it is not to wait.
 */
bool
kept_wait_for(Contender *c)
{
	const Path	 *path = c->path;
	RecipeRequest request = contender_request(c);
	int64		  now = zklock_now_ms();
	int			  n = 0;

	if (entry_of(c)->request.manner != ASK_AND_LOOK || path->recipe->excludes == NULL)
		return false;
	for (int i = 0; i < path->nforeign; i++)
	{
		const RecipePeer *peer = &path->foreign[i].peer;

		if (!path->recipe->excludes(peer, &request) ||
			(c->cohort && peer->sequence > c->cohort->peer.sequence))
			continue;
		if (!peer->may_be_kept)
			return false;
		n++;
	}
	if (n != 1)
		return false;
	if (c->cohort == NULL)
		return true;
	if (c->gives_up == 0)
		c->gives_up = now + (now - c->came_at) + KEPT_PATIENCE_MS;
	return !engine_await(c->gives_up);
}
