/*
 * claim.c
 *		Claiming entries in shared memory.
 *
 * A session may have its share of the entries, no more.  What it has released
 * counts until the worker is done with it: else a session could use up all
 * entries by asking and giving up faster than ZooKeeper answers.
 *
 * What is merely kept (zklock.keep_idle) is given up before a session is refused
 * an entry: its own if it has its share, anybody's if there are no more.
 *
 * Nobody tells a session that an entry has become free.  So it keeps a list of
 * those it has claimed, and looks through it when that seems full.  An entry
 * whose generation has changed has been freed since.
 *
 * Runs in: backends.  The list is private to each.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/claim.h"
#include "compat.h"
#include "miscadmin.h"
#include "shared/clock.h"
#include "shared/entry_keep.h"
#include "shared/session_info.h"
#include "shared/wait_event.h"
#include "storage/latch.h"
#include "utils/memutils.h"

#define FIRST_SIZE 16

/* How long a session waits for what was kept to be free, and how often it looks, ms */
#define MAX_ROOM_MS 10000
#define ROOM_MS 5

typedef struct Claim
{
	int	   entry;
	uint32 generation;
} Claim;

static Claim *claims = NULL;
static int	  nclaims = 0;
static int	  maxclaims = 0;

/* Takes from the list what has become free. */
static void
forget_freed(void)
{
	int kept = 0;

	for (int i = 0; i < nclaims; i++)
	{
		if (entry_generation(claims[i].entry) == claims[i].generation)
			claims[kept++] = claims[i];
	}
	nclaims = kept;
}

/* Makes room for one more claim. */
static void
reserve_claim(void)
{
	if (nclaims < maxclaims)
		return;
	forget_freed();

	/* Half of the list has to be free, or it would be looked through for each claim. */
	if (nclaims <= maxclaims / 2 && maxclaims > 0)
		return;
	if (claims == NULL)
		claims = MemoryContextAlloc(TopMemoryContext, FIRST_SIZE * sizeof(Claim));
	else
		claims = repalloc(claims, 2 * maxclaims * sizeof(Claim));
	maxclaims = maxclaims == 0 ? FIRST_SIZE : 2 * maxclaims;
}

/* Gives up all that this session has kept.  Cannot fail, does not wait. */
bool
claim_give_up_kept(void)
{
	bool given_up = false;

	for (int i = 0; i < nclaims; i++)
		given_up |= entry_give_up_kept(claims[i].entry, claims[i].generation);
	return given_up;
}

/* Gives up what any session has kept.  Returns whether there was anything. */
static bool
give_up_all_kept(void)
{
	bool given_up = false;

	for (int i = 0; i < entries_max(); i++)
		given_up |= entry_give_up_kept(i, entry_generation(i));
	return given_up;
}

/* Is the worker about to free an entry, of this session? */
static bool
own_is_released(void)
{
	for (int i = 0; i < nclaims; i++)
	{
		if (entry_get_state(claims[i].entry) == CONTENDER_RELEASING)
			return true;
	}
	return false;
}

/* Likewise, of any session? */
static bool
any_is_released(void)
{
	for (int i = 0; i < entries_max(); i++)
	{
		if (entry_get_state(i) == CONTENDER_RELEASING)
			return true;
	}
	return false;
}

/*
 * Waits a little for the worker to free entries that were kept, and are given up for
 * others to be had.
 *
 *	given_up	have some just been?
 *	released	is the worker about to free entries that would do?
 *
 * Returns false if there is nothing to wait for.
 */
static bool
wait_for_room(bool given_up, bool released)
{
	static int64 until = 0;
	int64		 now = zklock_now_ms();

	if (given_up)
		until = now + MAX_ROOM_MS;
	if (now >= until || !zklock_connected() || !(given_up || released))
		return false;
	CHECK_FOR_INTERRUPTS();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ROOM_MS,
					 zklock_wait_event(ZKLOCK_WAIT_UNLOCK));
	ResetLatch(MyLatch);
	return true;
}

/* Has the session its share of entries? */
static bool
share_is_used(int share)
{
	if (share >= entries_max() || nclaims < share)
		return false;
	forget_freed();
	return nclaims >= share;
}

/*
 * Claims an entry; see entry_claim().
 *
 *	share	how many the session may have
 *	reserve	may it have those for superusers?
 *
 * Returns its index; raises an error if there is none.
 */
int
claim_entry(int share, ShareReserve reserve)
{
	int	   max = entries_max();
	int	   reserved = reserve == RESERVE_OPEN ? 0 : share_entries_reserved(max);
	uint32 generation;
	int	   index;

	while (share_is_used(share) && wait_for_room(claim_give_up_kept(), own_is_released()))
		;
	if (share_is_used(share))
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("too many ZooKeeper locks in this session"),
				 errdetail("It holds, waits for or is just releasing %d, as many as it may.", nclaims),
				 errhint("Release locks, or ask an administrator to increase \"zklock.max_locks_per_session\".")));
	reserve_claim();
	while ((index = entry_claim(reserved, &generation)) < 0 &&
		   wait_for_room(give_up_all_kept(), any_is_released()))
		;
	if (index < 0)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of shared memory for zklock"),
						reserved == 0 ? errdetail("%d locks are held or waited for.", max)
									  : errdetail("%d locks are held or waited for, and the remaining %d entries are reserved for superusers.",
												  max - reserved, reserved),
						errhint("You might need to increase \"zklock.max_locks\".")));
	claims[nclaims].entry = index;
	claims[nclaims].generation = generation;
	nclaims++;
	return index;
}
