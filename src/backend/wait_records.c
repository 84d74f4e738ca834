/*
 * wait_records.c
 *		Deadlocks across servers: how ZooKeeper is asked, and the records of all servers.
 *
 * The session waits for ZooKeeper's answers and for its own lock at once: when the
 * latter has anything to say, the search is given up in the middle.  Nothing here
 * raises an error because of ZooKeeper.
 *
 * The session that searches for its server keeps what it has read from search to
 * search: a record is never changed, but replaced by another one.  It is of the
 * session whose id is in its name, and which owns it.  What bears our session's name
 * and is not ours is deleted.
 *
 * Runs in: backends, in the one that searches for all.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/waits.h"
#include "miscadmin.h"
#include "shared/common.h"
#include "shared/session_info.h"
#include "storage/latch.h"
#include "utils/memutils.h"

/* Nobody tells that the worker is gone: the session looks again after so long, ms. */
#define LOOK_MS 1000

/* So much is asked at once; answers may be long. */
#define MAX_STEPS 16

/* No more records are read: one for each server. */
#define MAX_RECORDS 256

/* ------------------------------------------------------------------------
 * Answers
 * ------------------------------------------------------------------------
 */

/* Has the session something better to do than to wait for an answer? */
bool
wait_search_is_called_away(void *arg)
{
	const SearchRound *round = arg;

	return entry_status(round->index).state != CONTENDER_QUEUED || InterruptPending ||
		   zklock_worker_pid() == 0 || zklock_now_ms() >= round->until ||
		   !search_take_over(round->index);
}

/* Waits until the worker has answered the engine's question of that number. */
bool
wait_search_await(SearchRound *round, uint32 question)
{
	for (;;)
	{
		ResetLatch(MyLatch);
		if (search_engine_answered(question, &round->signs))
			return true;
		if (wait_search_is_called_away(round))
			return false;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(Max(round->until - zklock_now_ms(), 0), LOOK_MS),
						 zklock_wait_event(ZKLOCK_WAIT_LOCK));
	}
}

/*
 * Makes calls.  Returns false if not all are answered as they should be, or in
 * another ZooKeeper session than those before: then the search is given up.
 */
bool
wait_search_make_calls(SearchRound *round, CallStep *steps, int n, CallSight sight)
{
	for (int done = 0, some; done < n; done += some)
	{
		some = Min(n - done, MAX_STEPS);
		call_batch(&round->call, steps + done, some, sight);
		if (round->session != 0 && round->call.session != round->session)
			return false;
		for (int i = done; i < done + some; i++)
		{
			if (steps[i].result.outcome == CALL_UNKNOWN || steps[i].result.outcome == CALL_UNREACHABLE)
				return false;
		}
	}
	return true;
}

/* ------------------------------------------------------------------------
 * Records
 * ------------------------------------------------------------------------
 */

/* A record below WAIT_RECORD_ROOT, in a memory context of its own */
typedef struct Found
{
	MemoryContext context;
	char		  name[RECORD_NAME_LENGTH + 1];
	bool		  is_read;
	bool		  good; /* it is its session's, and of this form */
	ReadRecord	  record;
} Found;

static MemoryContext keeping; /* what is kept from search to search */
static List			*records; /* of Found */

/*
 * Reads a record's text, which it keeps.  Returns false if it is none.  The text
 * comes from whoever may write below WAIT_RECORD_ROOT; recipes/wait_record.c says
 * what is accepted.
 */
static bool
parse(ReadRecord *record, char *text, size_t len)
{
	int		   max = 1;
	int		   n = 0;
	WaitReader reader;
	WaitLine  *lines;

	for (size_t i = 0; i < len; i++)
		max += text[i] == '\n';
	lines = palloc(max * sizeof(WaitLine));
	if (!wait_record_begin(&reader, text, len))
		return false;
	do
	{
		if (!wait_record_next(&reader, &lines[n]))
			return false;
	} while (lines[n++].kind != WAIT_LINE_END);
	record->lines = lines;
	record->server = lines[0].text;
	record->seen = (int64) lines[1].number;
	return true;
}

static Found *
find_record(const char *name)
{
	ListCell *cell;

	foreach(cell, records)
	{
		Found *found = lfirst(cell);

		if (strcmp(found->name, name) == 0)
			return found;
	}
	return NULL;
}

static Found *
new_record(const char *name)
{
	MemoryContext context =
		AllocSetContextCreate(keeping, "zklock wait record", ALLOCSET_SMALL_SIZES);
	Found *found = MemoryContextAllocZero(context, sizeof(Found));

	found->context = context;
	strlcpy(found->name, name, sizeof(found->name));
	return found;
}

/* Keeps the records that are there, known or new, and forgets those that are not. */
static void
take_listing(const CallStep *list)
{
	MemoryContext old;
	List		 *listed = NIL;
	ListCell	 *cell;

	if (keeping == NULL)
		keeping = AllocSetContextCreate(TopMemoryContext, "zklock wait records", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(keeping);
	for (int i = 0; i < list->result.nchildren && list_length(listed) < MAX_RECORDS; i++)
	{
		const char *name = list->children[i];
		Found	   *found;

		if (search_record_session(name) == 0)
			continue;
		found = find_record(name);
		listed = lappend(listed, found ? found : new_record(name));
	}
	foreach(cell, records)
	{
		Found *found = lfirst(cell);

		if (!list_member_ptr(listed, found))
			MemoryContextDelete(found->context);
	}
	list_free(records);
	records = listed;
	MemoryContextSwitchTo(old);
}

/* Takes in what a node's data tell.  What bears the name of another session is left alone. */
static void
take_record(Found *found, const CallStep *step)
{
	MemoryContext old;
	char		 *text;

	found->is_read = true;
	if (step->kind != OP_READ || step->result.outcome != CALL_OK || step->read == NULL ||
		step->result.stat.ephemeral_owner != search_record_session(found->name))
		return;
	old = MemoryContextSwitchTo(found->context);
	text = palloc(step->result.text_length + 1);
	memcpy(text, step->read, step->result.text_length);
	found->record.owner = step->result.stat.ephemeral_owner;
	found->record.czxid = step->result.stat.czxid;
	found->good = parse(&found->record, text, step->result.text_length);
	MemoryContextSwitchTo(old);
}

/* Reads those that are new; deletes what bears our name and is none of ours, such as a forged one. */
static bool
read_records(SearchRound *round)
{
	CallStep *steps = palloc0((list_length(records) + 1) * sizeof(CallStep));
	Found	**unread = palloc((list_length(records) + 1) * sizeof(Found *));
	int		  n = 0;
	ListCell *cell;

	foreach(cell, records)
	{
		Found *found = lfirst(cell);
		bool   ours = search_record_session(found->name) == round->session;

		if (found->is_read)
			continue;
		steps[n].kind = ours && !search_has_record(found->name) ? OP_DELETE : OP_READ;
		steps[n].path = psprintf("%s/%s", WAIT_RECORD_ROOT, found->name);
		steps[n].most = WAIT_RECORD_MAX;
		unread[n++] = found;
	}
	if (!wait_search_make_calls(round, steps, n, CALL_AS_KNOWN))
		return false;
	for (int i = 0; i < n; i++)
		take_record(unread[i], &steps[i]);
	return true;
}

/* Which records are there, and what do they tell? */
bool
wait_records_read(SearchRound *round)
{
	CallStep list = {.kind = OP_LIST, .path = WAIT_RECORD_ROOT};

	if (!wait_search_make_calls(round, &list, 1, CALL_AFTER_SYNC) ||
		(list.result.outcome != CALL_OK && list.result.outcome != CALL_NO_NODE))
		return false;
	round->session = round->call.session;
	take_listing(&list);
	return read_records(round);
}

/* The newest record of each session, palloc'd; "n" gets their number. */
const ReadRecord **
wait_records_newest(int *n)
{
	const ReadRecord **newest = palloc((list_length(records) + 1) * sizeof(ReadRecord *));
	ListCell		  *cell;

	*n = 0;
	foreach(cell, records)
	{
		const Found *found = lfirst(cell);
		int			 k = 0;

		if (!found->good)
			continue;
		while (k < *n && newest[k]->owner != found->record.owner)
			k++;
		if (k == *n)
			newest[(*n)++] = &found->record;
		else if (newest[k]->czxid < found->record.czxid)
			newest[k] = &found->record;
	}
	return newest;
}

/* This session searches no more. */
void
wait_records_forget(void)
{
	records = NIL;
	if (keeping)
		MemoryContextDelete(keeping);
	keeping = NULL;
}
