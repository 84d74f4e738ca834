/*
 * stats.c
 *		Statistics: what has happened since the server started, or since a reset.
 *
 * Each process counts in a slot of its own, that of its number among PostgreSQL's
 * processes, in cache lines that nobody else writes.  So a count is a plain
 * addition: it takes some nanoseconds, waits for nobody, and none is lost.  A
 * process that ends leaves its counts in the slot, and the next one with that
 * number goes on from there: the sum over all slots only grows, whatever process,
 * the worker included, comes and goes.
 *
 * Nobody writes into others' slots, so a reset sets nothing to zero.  It keeps the
 * sum of that moment, which is subtracted from then on.
 *
 * What belongs together, such as a wait, its time and its place in the histogram,
 * is counted in one change of the slot.  As with entries, "changes" is odd while a
 * change is under way, and a reader copies the slot again if it has changed
 * meanwhile.  So sums that must agree do, at any time: a kind's waits are
 *
 *		acquisitions - reentrant - kept + timeouts + busy + cancels + deadlocks + failures
 *
 * and also the sum of its histogram.
 *
 * Paths are ranked by how long sessions have waited at them (stats_ranking.c).
 * All processes share that ranking, at the end of a wait, under a lock.
 *
 * Nothing here can fail: it may be called at commit, abort and exit.  If the
 * server crashes, all is initialised again.
 *
 * Runs in: backends and the worker, as the header says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "port/atomics.h"
#include "shared/shmem.h"
#include "shared/stats.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#define TRANCHE "zklock_stats"

/* How long a reader leaves a process alone that has not finished a change, us. */
#define CHANGE_US 100

const int64 stats_wait_bounds_us[] = {500,		1000,	   2000,	  5000,		 10000,
									  20000,	50000,	   100000,	  200000,	 500000,
									  1000000,	2000000,   5000000,	  10000000,	 30000000,
									  60000000, 300000000, 600000000, 3600000000};

static const struct
{
	const char *kind;
	const char *mode; /* or NULL */
} names[STATS_KINDS] =
	{[STATS_LOCK_EXCLUSIVE] = {"lock", "exclusive"}, [STATS_LOCK_SHARED] = {"lock", "shared"},
	 [STATS_SEMAPHORE] = {"semaphore", NULL},		 [STATS_QUEUE] = {"queue", NULL},
	 [STATS_ELECTION] = {"election", NULL},			 [STATS_CLAIM] = {"claim", NULL}};

/* Which counter a wait adds to by the way in which it ended */
static const StatsCounter counter_of_end[] =
	{[STATS_WAIT_GRANTED] = STATS_ACQUISITIONS, [STATS_WAIT_HANDED_OVER] = STATS_ACQUISITIONS,
	 [STATS_WAIT_TIMEOUT] = STATS_TIMEOUTS,		[STATS_WAIT_BUSY] = STATS_BUSY,
	 [STATS_WAIT_CANCELLED] = STATS_CANCELS,	[STATS_WAIT_DEADLOCK] = STATS_DEADLOCKS,
	 [STATS_WAIT_FAILED] = STATS_FAILURES};

/*
 * What a process has counted, and those before it in its slot.  Written by that
 * process alone, under no lock; others read it as copy_slot() does.
 */
typedef struct Slot
{
	uint32		changes; /* odd while a change is under way */
	StatsCounts counts;
} Slot;

/* A slot in cache lines of its own */
typedef union PaddedSlot
{
	Slot slot;
	char pad[TYPEALIGN(PG_CACHE_LINE_SIZE, sizeof(Slot))];
} PaddedSlot;

struct StatsShared
{
	/* Read and written under the lock "baseline" */
	StatsCounts before; /* the sum at the last reset */
	TimestampTz reset_at;

	/* Read and written under the lock "ranking" */
	TimestampTz	 ranking_reset_at;
	StatsRanking ranking;
};

/* The locks of the tranche.  Nothing that can fail is done under them. */
typedef enum StatsLock
{
	STATS_LOCK_BASELINE,
	STATS_LOCK_RANKING,
	STATS_LOCKS
} StatsLock;

/* In shared memory */
static StatsShared	*stats;
static LWLockPadded *locks;
static PaddedSlot	*slots; /* by the number of the process; behind "stats" */

/* ------------------------------------------------------------------------
 * Shared memory
 * ------------------------------------------------------------------------
 */

/* How much of it is needed, bytes. */
Size
stats_size(void)
{
	return add_size(CACHELINEALIGN(sizeof(StatsShared)) + PG_CACHE_LINE_SIZE,
					mul_size(zklock_max_processes(), sizeof(PaddedSlot)));
}

/* Reserves the locks; called in the postmaster when that is allowed. */
void
stats_request(void)
{
	RequestNamedLWLockTranche(TRANCHE, STATS_LOCKS);
}

/*
 * Attaches to the memory, which is all zero if it is new.
 */
void
stats_attach(StatsShared *shared, bool found)
{
	stats = shared;
	slots = (PaddedSlot *) CACHELINEALIGN(shared + 1);
	locks = GetNamedLWLockTranche(TRANCHE);
	if (!found)
		stats->reset_at = stats->ranking_reset_at = GetCurrentTimestamp();
}

/* ------------------------------------------------------------------------
 * Counting
 * ------------------------------------------------------------------------
 */

/* Begins to change this process's counts.  Nothing may fail before end_change(). */
static inline StatsCounts *
begin_change(void)
{
	Slot *slot = &slots[compat_my_proc_number()].slot;

	slot->changes++;
	pg_write_barrier();
	return &slot->counts;
}

static inline void
end_change(void)
{
	pg_write_barrier();
	slots[compat_my_proc_number()].slot.changes++;
}

/* A session has acquired once more what it holds. */
void
stats_reacquired(StatsKind kind)
{
	uint64 *counts = begin_change()->of_kind[kind];

	counts[STATS_ACQUISITIONS]++;
	counts[STATS_REENTRANT]++;
	end_change();
}

/* A session has acquired what it had kept since it last held it. */
void
stats_kept(StatsKind kind)
{
	uint64 *counts = begin_change()->of_kind[kind];

	counts[STATS_ACQUISITIONS]++;
	counts[STATS_KEPT]++;
	end_change();
}

/* The bucket of the histogram to which a wait belongs. */
static int
bucket_of(int64 us)
{
	int bucket = 0;

	while (bucket < STATS_BUCKETS - 1 && us >= stats_wait_bounds_us[bucket])
		bucket++;
	return bucket;
}

/*
 * A wait has ended.
 *
 *	path	what was asked for, UTF-8
 *	us		how long that took, microseconds
 */
void
stats_waited(StatsKind kind, const char *path, StatsWaitEnd end, int64 us)
{
	uint64 *counts = begin_change()->of_kind[kind];

	counts[counter_of_end[end]]++;
	counts[STATS_HANDED_OVER] += end == STATS_WAIT_HANDED_OVER;
	counts[STATS_WAITS]++;
	counts[STATS_WAIT_US] += us;
	counts[STATS_HISTOGRAM + bucket_of(us)]++;
	end_change();

	LWLockAcquire(&locks[STATS_LOCK_RANKING].lock, LW_EXCLUSIVE);
	stats_ranking_add(&stats->ranking, path, kind, us);
	LWLockRelease(&locks[STATS_LOCK_RANKING].lock);
}

/* What has been held for so long, microseconds, is held no more. */
void
stats_held(StatsKind kind, int64 us)
{
	begin_change()->of_kind[kind][STATS_HOLD_US] += us;
	end_change();
}

/* A session, or in an election this server, has lost what it held. */
void
stats_lost(StatsKind kind)
{
	begin_change()->of_kind[kind][STATS_LOSSES]++;
	end_change();
}

/* A request to ZooKeeper has ended that was sent so long ago, microseconds. */
void
stats_requested(StatsRequestEnd end, int64 us)
{
	uint64 *counts = begin_change()->of_session;

	counts[STATS_REQUESTS]++;
	counts[STATS_REQUEST_US] += us;
	counts[STATS_ERRORS] += end == STATS_REQUEST_FAILED;
	end_change();
}

/* Something has happened to the ZooKeeper session. */
void
stats_session(StatsSessionCounter counter)
{
	begin_change()->of_session[counter]++;
	end_change();
}

/* ------------------------------------------------------------------------
 * Reading
 * ------------------------------------------------------------------------
 */

/* Copies what a slot was at one moment. */
static void
copy_slot(const Slot *slot, StatsCounts *copy)
{
	uint32 changes;

	do
	{
		while ((changes = ((const volatile Slot *) slot)->changes) % 2 != 0)
		{
			CHECK_FOR_INTERRUPTS();
			pg_usleep(CHANGE_US);
		}
		pg_read_barrier();
		*copy = slot->counts;
		pg_read_barrier();
	} while (((const volatile Slot *) slot)->changes != changes);
}

/* Adds counts to a sum, or takes them away. */
static void
add(StatsCounts *sum, const StatsCounts *counts, int times)
{
	for (int kind = 0; kind < STATS_KINDS; kind++)
	{
		for (int i = 0; i < STATS_COUNTERS; i++)
			sum->of_kind[kind][i] += times * counts->of_kind[kind][i];
	}
	for (int i = 0; i < STATS_SESSION_COUNTERS; i++)
		sum->of_session[i] += times * counts->of_session[i];
}

/* Sums up what all processes have counted, ever. */
static void
sum_up(StatsCounts *sum)
{
	StatsCounts copy;

	memset(sum, 0, sizeof(*sum));
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		copy_slot(&slots[i].slot, &copy);
		add(sum, &copy, 1);
	}
}

/*
 * Reads the counts since the last reset, and when that was, or when the server
 * started.  The baseline is read first: what has been counted since is in the sum.
 */
void
stats_read(StatsCounts *counts, TimestampTz *reset_at)
{
	StatsCounts before;

	LWLockAcquire(&locks[STATS_LOCK_BASELINE].lock, LW_SHARED);
	before = stats->before;
	*reset_at = stats->reset_at;
	LWLockRelease(&locks[STATS_LOCK_BASELINE].lock);
	sum_up(counts);
	add(counts, &before, -1);
}

/* Likewise the ranking of paths. */
void
stats_read_ranking(StatsRanking *ranking, TimestampTz *reset_at)
{
	LWLockAcquire(&locks[STATS_LOCK_RANKING].lock, LW_SHARED);
	*ranking = stats->ranking;
	*reset_at = stats->ranking_reset_at;
	LWLockRelease(&locks[STATS_LOCK_RANKING].lock);
}

/*
 * Begins to count anew.  What is counted meanwhile is in the counts before or
 * after, not in both and not in neither.
 */
void
stats_reset(void)
{
	TimestampTz now = GetCurrentTimestamp();
	StatsCounts sum;

	sum_up(&sum);
	LWLockAcquire(&locks[STATS_LOCK_BASELINE].lock, LW_EXCLUSIVE);
	stats->before = sum;
	stats->reset_at = now;
	LWLockRelease(&locks[STATS_LOCK_BASELINE].lock);

	LWLockAcquire(&locks[STATS_LOCK_RANKING].lock, LW_EXCLUSIVE);
	memset(&stats->ranking, 0, sizeof(stats->ranking));
	stats->ranking_reset_at = now;
	LWLockRelease(&locks[STATS_LOCK_RANKING].lock);
}

const char *
stats_kind_name(StatsKind kind)
{
	return names[kind].kind;
}

/* NULL if the kind has no modes. */
const char *
stats_mode_name(StatsKind kind)
{
	return names[kind].mode;
}
