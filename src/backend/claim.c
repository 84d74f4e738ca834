/*
 * claim.c
 *		Claiming entries in shared memory.
 *
 * A session may have its share of the entries, no more.  What it has released
 * counts until the worker is done with it: else a session could use up all
 * entries by asking and giving up faster than ZooKeeper answers.
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
#include "shared/entry.h"
#include "utils/memutils.h"

#define FIRST_SIZE 16

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

	if (share_is_used(share))
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("too many ZooKeeper locks in this session"),
				 errdetail("It holds, waits for or is just releasing %d, as many as it may.", nclaims),
				 errhint("Release locks, or ask an administrator to increase \"zklock.max_locks_per_session\".")));
	reserve_claim();
	index = entry_claim(reserved, &generation);
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
