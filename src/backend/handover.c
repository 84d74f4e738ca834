/*
 * handover.c
 *		Giving entries up, and waiting until others can have what they stood for.
 *
 * A session gives an entry up by a step in shared memory that cannot fail and
 * does not wait: the rest is the worker's, which deletes the node or passes it
 * on.  So this may be done in callbacks at commit, abort and exit.  A call that
 * unlocks waits afterwards until the worker is done, so that what follows finds
 * the lock free.
 *
 * Runs in: backends.  Entries are changed under their spinlocks, along the
 * arrows drawn in shmem.c.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/handover.h"
#include "compat.h"
#include "shared/entry.h"
#include "shared/lease_state.h"
#include "shared/session_info.h"
#include "shared/shmem.h"
#include "shared/wait_event.h"

/* Makes an empty list with room for "max" handovers. */
void
handover_list_init(HandoverList *list, int max)
{
	list->handovers = palloc(max * sizeof(Handover));
	list->n = 0;
}

/*
 * Gives an entry up, whatever its state.  Cannot fail, does not wait.
 *
 * "awaited", if not NULL, gets what is still to be done, and has room for it.
 */
void
handover_release(int entry, HandoverList *awaited)
{
	uint32 generation = entry_give_up(entry, awaited ? ENTRY_NOTICE : ENTRY_NO_NOTICE);

	if (awaited)
		awaited->handovers[awaited->n++] = (Handover){entry, generation};
}

/* Likewise, keeps of an exclusive entry only the shared lock. */
void
handover_downgrade(int entry, HandoverList *awaited)
{
	uint32 generation = entry_keep_shared(entry);

	if (awaited)
		awaited->handovers[awaited->n++] = (Handover){entry, generation};
}

static void
handover_wait(const Handover *handover)
{
	for (;;)
	{
		ResetLatch(MyLatch);
		if (entry_is_settled(handover->entry, handover->generation) || !zklock_connected())
			return;
		CHECK_FOR_INTERRUPTS();

		/* No latch is set when a lease ends while the worker is stopped. */
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1000,
						 zklock_wait_event(ZKLOCK_WAIT_UNLOCK));
	}
}

/*
 * Waits until the worker is done with all that is in a list, but not for
 * ZooKeeper to come back, and frees the list.  A cancellation ends the wait
 * only: what is in the list has been given up already.
 */
void
handover_list_wait(HandoverList *list)
{
	for (int i = 0; i < list->n; i++)
		handover_wait(&list->handovers[i]);
	pfree(list->handovers);
}
