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
 * session whose id is in its name, and which owns it.  What is new, bears our session's
 * name and is not ours is deleted.
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
wait_records_is_called_away(void *arg)
{
	const Search *search = arg;

	return entry_status(search->index).state != CONTENDER_QUEUED || InterruptPending ||
		   zklock_worker_pid() == 0 || zklock_now_ms() >= search->until ||
		   !search_take_over(search->index);
}

/*
 * Asks the engine for which entries others matter.  Returns false if it has not answered.
 *
 * If an earlier search was called away, the answer may be to its question, and a moment
 * older than ours.  That decides only what is looked at and told, as does an entry that
 * changes behind an answer; the next search asks again.
 */
bool
wait_records_ask_engine(Search *search)
{
	search_ask_engine();
	for (;;)
	{
		ResetLatch(MyLatch);
		if (!search_engine_is_asked())
			return true;
		if (wait_records_is_called_away(search))
			return false;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(Max(search->until - zklock_now_ms(), 0), LOOK_MS),
						 zklock_wait_event(ZKLOCK_WAIT_LOCK));
	}
}

/*
 * Makes calls.  Returns false if not all are answered as they should be, or in
 * another ZooKeeper session than those before: then the search is given up.
 */
bool
wait_records_make_calls(Search *search, CallStep *steps, int n, CallSight sight)
{
	for (int done = 0, some; done < n; done += some)
	{
		some = Min(n - done, MAX_STEPS);
		call_batch(&search->call, steps + done, some, sight);
		if (search->session != 0 && search->call.session != search->session)
			return false;
		search->session = search->call.session;
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

static dlist_head records = DLIST_STATIC_INIT(records); /* of ReadRecord */

static void
forget(ReadRecord *record)
{
	dlist_delete(&record->link);
	pfree(record);
}

static bool
is_known(const char *name)
{
	dlist_iter iter;

	dlist_foreach (iter, &records)
	{
		if (strcmp(dlist_container(ReadRecord, link, iter.cur)->name, name) == 0)
			return true;
	}
	return false;
}

/* Forgets the records that are not there any more. */
static void
forget_unlisted(const CallStep *list)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &records)
	{
		ReadRecord *record = dlist_container(ReadRecord, link, iter.cur);
		bool		listed = false;

		for (int i = 0; i < list->result.nchildren && !listed; i++)
			listed = strcmp(list->children[i], record->name) == 0;
		if (!listed)
			forget(record);
	}
}

/*
 * Keeps what has been read of a node.  The text comes from whoever may write below
 * WAIT_RECORD_ROOT; what bears the name of another session is left alone.
 */
static void
keep(const CallStep *step)
{
	const char *name = step->path + strlen(WAIT_RECORD_ROOT "/");
	Size		length = step->read ? step->result.text_length : 0;
	ReadRecord *record =
		MemoryContextAllocZero(TopMemoryContext, offsetof(ReadRecord, text) + length + 1);

	strlcpy(record->name, name, sizeof(record->name));
	if (length > 0 && step->result.stat.ephemeral_owner == search_record_session(name))
		record->owner = step->result.stat.ephemeral_owner;
	record->czxid = step->result.stat.czxid;
	record->length = length;
	if (length > 0)
		memcpy(record->text, step->read, length);
	dlist_push_tail(&records, &record->link);
}

/* Reads those that are new; deletes what bears our name and is none of ours, such as a forged one. */
static bool
read_new(Search *search, const CallStep *list)
{
	SearchRecord ours = search_record();
	int			 room = MAX_RECORDS;
	CallStep	*steps = palloc0(MAX_RECORDS * sizeof(CallStep));
	int			 n = 0;
	dlist_iter	 iter;

	dlist_foreach (iter, &records)
		room--;
	for (int i = 0; i < list->result.nchildren && n < room; i++)
	{
		const char *name = list->children[i];
		int64		session = search_record_session(name);
		bool		stray = session == search->session && strcmp(name, ours.name) != 0 &&
					 strcmp(name, ours.replaces) != 0;

		if (session == 0 || is_known(name))
			continue;
		steps[n++] = (CallStep){.kind = stray ? OP_DELETE : OP_READ,
								.path = psprintf("%s/%s", WAIT_RECORD_ROOT, name),
								.most = WAIT_RECORD_MAX};
	}
	if (!wait_records_make_calls(search, steps, n, CALL_AS_KNOWN))
		return false;
	for (int i = 0; i < n; i++)
	{
		if (steps[i].kind == OP_READ)
			keep(&steps[i]);
	}
	return true;
}

/* Reads the lines of a record, in the current memory context. */
static void
parse(ReadRecord *record)
{
	char	 *text = palloc(record->length + 1);
	int		  n = 1;
	WaitLine *lines;

	memcpy(text, record->text, record->length);
	for (Size i = 0; i < record->length; i++)
		n += text[i] == '\n';
	lines = palloc(n * sizeof(WaitLine));
	record->lines = wait_record_read(text, record->length, lines) ? lines : NULL;
}

/* Finds the newest good record of each session. */
static void
find_newest(Search *search)
{
	dlist_iter iter;

	dlist_foreach (iter, &records)
	{
		ReadRecord *record = dlist_container(ReadRecord, link, iter.cur);
		ListCell   *cell;

		if (record->owner == 0)
			continue;
		search->seen = Max(search->seen, record->czxid);
		parse(record);
		if (record->lines == NULL)
			continue;
		foreach(cell, search->records)
		{
			ReadRecord *other = lfirst(cell);

			if (other->owner != record->owner)
				continue;
			if (other->czxid < record->czxid)
				lfirst(cell) = record;
			break;
		}
		if (cell == NULL)
			search->records = lappend(search->records, record);
	}
}

/* Which records are there, and what do they tell? */
bool
wait_records_read(Search *search)
{
	CallStep list = {.kind = OP_LIST, .path = WAIT_RECORD_ROOT};

	if (!wait_records_make_calls(search, &list, 1, CALL_AFTER_SYNC) ||
		(list.result.outcome != CALL_OK && list.result.outcome != CALL_NO_NODE))
		return false;
	forget_unlisted(&list);
	if (!read_new(search, &list))
		return false;
	find_newest(search);
	return true;
}

/* This session searches no more. */
void
wait_records_forget(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &records)
		forget(dlist_container(ReadRecord, link, iter.cur));
}
