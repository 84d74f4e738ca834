/*
 * take.c
 *		Elements of queues that this session has.
 *
 * A session has the worker claim an element (shared/element.h).  What it takes for
 * its transaction it keeps in a list, by subtransaction, until that is over:
 *
 *	commit is visible	the worker removes it
 *	anything else		the worker gives it back
 *
 * The callbacks only change states and set the worker's latch.
 *
 * Runs in: backends.  The list is private; elements are changed under their
 * mutexes.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/take.h"
#include "miscadmin.h"
#include "shared/clock.h"
#include "shared/stats.h"
#include "storage/ipc.h"

static HeldElement held[ELEMENTS_PER_SESSION]; /* in the order of taking */
static int		   nheld = 0;

/* The transaction does not have the element any more: it stays in the queue.  Cannot fail. */
static void
give_back(const HeldElement *element)
{
	stats_held(STATS_QUEUE, zklock_now_us() - element->taken_at);
	element_drop(element->element);
}

/* Likewise: it goes. */
static void
commit(const HeldElement *element)
{
	stats_held(STATS_QUEUE, zklock_now_us() - element->taken_at);
	element_commit(element->element);
}

/* Gives everything back; the session ends. */
static void
release_at_exit(int code, Datum arg)
{
	for (int i = 0; i < nheld; i++)
		give_back(&held[i]);
	nheld = 0;
}

/* The element is the transaction's from now on.  Cannot fail. */
void
take_keep(TakenElement *element)
{
	held[nheld++] = (HeldElement){.element = element,
								  .subid = GetCurrentSubTransactionId(),
								  .taken_under = (CommitGuard) zklock_commit_guard,
								  .taken_at = zklock_now_us()};
}

/*
 * Asks for the claim of an element.  The answer sets the latch.  The caller drops
 * the element, or keeps it, however that ends.
 *
 * Raises an error if the session, or all, have too many.
 */
TakenElement *
take_claim(const char *path, const char *name)
{
	static bool started = false;

	int			  n = element_count_own();
	uint8		  uuid[ZKLOCK_UUID_BYTES];
	TakenElement *element;

	if (!started)
		on_shmem_exit(release_at_exit, 0);
	started = true;
	if (!pg_strong_random(uuid, sizeof(uuid)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
	if (n >= ELEMENTS_PER_SESSION)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY),
						errmsg("too many elements of ZooKeeper queues in this session"),
						errdetail("It holds, or is just giving back, %d, as many as it may.", n),
						errhint("Take fewer elements in one transaction.")));
	element = element_reserve(superuser() ? RESERVE_OPEN : RESERVE_CLOSED);
	if (element == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of shared memory for zklock"),
				 errdetail("All sessions together hold %d elements of ZooKeeper queues.", ELEMENTS)));
	memcpy(element->uuid, uuid, sizeof(uuid));
	strlcpy(element->path, path, sizeof(element->path));
	strlcpy(element->name, name, sizeof(element->name));
	element_ask(element);
	return element;
}

/* ------------------------------------------------------------------------
 * The transaction
 * ------------------------------------------------------------------------
 */

/* Has the transaction taken any element? */
bool
take_has_elements(void)
{
	return nheld > 0;
}

/* Calls "visit" for each element that the transaction has. */
void
take_visit(HeldElementVisitor visit, void *arg)
{
	for (int i = 0; i < nheld; i++)
		visit(&held[i], arg);
}

/* Raises the error for an element that others may have by now. */
void
take_report_lost_element(const TakenElement *element)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("element \"%s\" of ZooKeeper queue \"%s\" was lost",
					display_utf8(element->name), display_path(element->path)),
			 errdetail("The ZooKeeper session ended, or somebody deleted the claim of the element."),
			 errhint("Others may have taken the element meanwhile. Retry the transaction.")));
}

void
take_report_lost(const HeldElement *lost)
{
	take_report_lost_element(lost->element);
}

/* The transaction has ended.  Cannot fail. */
void
take_end_transaction(XactEvent event)
{
	for (int i = 0; i < nheld; i++)
	{
		if (event == XACT_EVENT_COMMIT)
			commit(&held[i]);
		else
			give_back(&held[i]);
	}
	nheld = 0;
}

/* A subtransaction has ended: what it took becomes the parent's, or goes back.  Cannot fail. */
void
take_end_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent)
{
	int kept = 0;

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	for (int i = 0; i < nheld; i++)
	{
		if (held[i].subid == subid && event == SUBXACT_EVENT_ABORT_SUB)
		{
			give_back(&held[i]);
			continue;
		}
		if (held[i].subid == subid)
			held[i].subid = parent;
		held[kept++] = held[i];
	}
	nheld = kept;
}
