/*
 * wait_records.c
 *		Deadlocks across servers: calls to ZooKeeper, and the records of all servers.
 *
 * The session waits for ZooKeeper's answers and for its own lock at the same time: when
 * anything happens to the latter, the search is given up in the middle.  Nothing here
 * raises an error because of ZooKeeper.
 *
 * The session that searches for its server keeps the records that it has read for later
 * searches: a record never changes, but is replaced by another one.  It belongs to the
 * ZooKeeper session whose id is in its name, and which owns the node.
 *
 * Runs in: backends, in the one that searches for all.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "deadlock/deadlock.h"
#include "deadlock/deadlock_internal.h"
#include "miscadmin.h"
#include "shared/common.h"
#include "shared/session_info.h"
#include "utils/memutils.h"
#include "zk/zk_client.h"

/* Most operations in one batch, as answers may be long */
#define MAX_STEPS 16

/* Most records that are read, one for each server */
#define MAX_RECORDS 256

/* ------------------------------------------------------------------------
 * Answers
 * ------------------------------------------------------------------------
 */

/*
 * Makes calls.  Returns false if some are not answered, or the ZooKeeper session is another
 * one than before: then the search is given up.  A call that is given up takes the slot's
 * marker node with it, which is our record.
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
		if (steps[done].result.outcome == CALL_UNREACHABLE)
			wait_records_withdraw();
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

static ReadRecord *records[MAX_RECORDS + 1]; /* one more, as ours is always read */
static int		   nrecords;

static char own_name[RECORD_NAME_LENGTH + 1]; /* name of the record that this session has
											   * published, or "" */

/*
 * Returns the ZooKeeper session whose id is in the name of a record; 0 if it is no such
 * name.  Whether the record is of this session shows in the node's owner.
 */
int64
wait_record_session(const char *name)
{
	bool is_name = strlen(name) == RECORD_NAME_LENGTH &&
				   strspn(name, "0123456789abcdef") == 16 && name[16] == '-';

	return is_name ? (int64) strtoull(name, NULL, 16) : 0;
}

/* Returns the record of that name, or NULL if it has not been read. */
static const ReadRecord *
find_record(const char *name)
{
	for (int i = 0; i < nrecords; i++)
	{
		if (strcmp(records[i]->name, name) == 0)
			return records[i];
	}
	return NULL;
}

/* Forgets the records that are not among n names. */
static void
forget_others(char *const *names, int n)
{
	for (int i = nrecords - 1; i >= 0; i--)
	{
		int at = 0;

		while (at < n && strcmp(names[at], records[i]->name) != 0)
			at++;
		if (at < n)
			continue;
		pfree(records[i]);
		records[i] = records[--nrecords];
	}
}

/* Parses a record's text, in the current memory context.  Returns NULL if it is not valid. */
static const WaitLine *
parse(const char *text, Size length)
{
	WaitLine *lines;
	int		  n = 1;

	for (Size i = 0; i < length; i++)
		n += text[i] == '\n';
	lines = palloc(n * sizeof(WaitLine));
	return wait_record_read(memcpy(palloc(length + 1), text, length + 1), length, lines) ? lines : NULL;
}

/*
 * Parses a record that has been read, in the current memory context.  Its text comes from
 * any client that may write below WAIT_RECORD_ROOT.  Returns NULL if it is not valid, or the
 * name is that of another session than the node's owner.
 */
const WaitLine *
wait_record_lines(const CallStep *record)
{
	const char *name = record->asked.path + strlen(WAIT_RECORD_ROOT "/");

	if (record->read == NULL || record->result.stat.ephemeral_owner != wait_record_session(name))
		return NULL;
	return parse(record->read, record->result.text_length);
}

/* Keeps a record that has been read, in one piece.  If it is not valid, its text is empty. */
static void
keep_record(const CallStep *step)
{
	const char *name = step->asked.path + strlen(WAIT_RECORD_ROOT "/");
	Size		length = wait_record_lines(step) ? step->result.text_length : 0;
	ReadRecord *record;

	record = MemoryContextAllocZero(TopMemoryContext, offsetof(ReadRecord, text) + length + 1);
	strlcpy(record->name, name, sizeof(record->name));
	record->owner = wait_record_session(name);
	record->czxid = step->result.stat.czxid;
	if (length > 0)
		memcpy(record->text, step->read, length);
	records[nrecords++] = record;
}

/*
 * Returns true if a record with our ZooKeeper session's id is to be deleted: this session
 * has published another one.  Until it has published one, the record of the session that
 * searched before stands, if it is valid.
 */
static bool
is_stray(const char *name)
{
	const ReadRecord *record = find_record(name);

	return own_name[0] != '\0' ? strcmp(name, own_name) != 0 : record && record->text[0] == '\0';
}

/* Reads the new records, including our own, and deletes strays. */
static bool
read_new(Search *search, const CallStep *list)
{
	CallStep *steps = palloc0((MAX_RECORDS + 1) * sizeof(CallStep));
	int		  n = 0;

	for (int i = 0; i < list->result.nchildren && n <= MAX_RECORDS; i++)
	{
		const char *name = list->children[i];
		int64		session = wait_record_session(name);
		bool stray = session == search->session && search_is_ours(search->index) && is_stray(name);
		bool fits = nrecords + n < MAX_RECORDS + (strcmp(name, own_name) == 0 ? 1 : 0);

		if (session == 0 || (!stray && (find_record(name) || !fits)))
			continue;
		steps[n++] = (CallStep){.asked = {.kind = stray ? ZK_DELETE : ZK_GET_DATA,
										  .path = psprintf("%s/%s", WAIT_RECORD_ROOT, name),
										  .most = WAIT_RECORD_MAX}};
	}
	if (!wait_records_make_calls(search, steps, n, CALL_AS_KNOWN))
		return false;
	for (int i = 0; i < n; i++)
	{
		if (steps[i].asked.kind == ZK_GET_DATA)
			keep_record(&steps[i]);
	}
	return true;
}

/* Returns true if this is the newest valid record of its session. */
static bool
is_newest(const ReadRecord *record)
{
	for (int i = 0; i < nrecords; i++)
	{
		const ReadRecord *other = records[i];

		if (other->text[0] != '\0' && other->owner == record->owner && other->czxid > record->czxid)
			return false;
	}
	return record->text[0] != '\0';
}

/* Reads the records that exist.  Returns false if they cannot be had now. */
bool
wait_records_read(Search *search)
{
	CallStep list = {.asked = {.kind = ZK_GET_CHILDREN, .path = WAIT_RECORD_ROOT}};

	if (!wait_records_make_calls(search, &list, 1, CALL_AFTER_SYNC) ||
		(list.result.outcome != CALL_OK && list.result.outcome != CALL_NO_NODE))
		return false;
	search->has_root = list.result.outcome == CALL_OK;
	forget_others(list.children, list.result.nchildren);
	if (!read_new(search, &list))
		return false;
	if (find_record(own_name) == NULL)
		wait_records_withdraw();
	for (int i = 0; i < nrecords; i++)
	{
		ReadRecord *record = records[i];

		record->lines = NULL;
		if (search->call.is_called_away(search))
			return false;
		if (!is_newest(record))
			continue;
		record->lines = parse(record->text, strlen(record->text));
		search->records = lappend(search->records, record);
		search->seen = Max(search->seen, record->czxid);
	}
	return true;
}

/* ------------------------------------------------------------------------
 * Our own
 *
 * It is the marker node of this session's calls, so the worker, or the next one, deletes
 * it when the session no longer wants it, even if the session has exited.
 * ------------------------------------------------------------------------
 */

/*
 * Returns true if the record of this session already has these lines, and a "seen" that is
 * high enough.  The server's name in the first line is not compared.
 */
static bool
is_published(const char *text, int64 seen)
{
	const ReadRecord *ours = find_record(own_name);

	return ours && ours->lines && (int64) ours->lines[0].number >= seen &&
		   strcmp(strchr(ours->text, '\n'), strchr(text, '\n')) == 0;
}

/* Logs that ZooKeeper refuses to create a node, once until it has created one. */
static void
report_refusal(Search *search, const char *what, int code)
{
	if (!search->findings.refusal_is_logged)
		ereport(LOG_SERVER_ONLY,
				(errmsg("could not %s ZooKeeper node \"%s\": %s", what, WAIT_RECORD_ROOT,
						zk_error_name(code)),
				 errdetail("Deadlocks across servers are not found."),
				 errhint("Create the node, with rights for all servers to create, read and delete nodes below it.")));
	search->findings.refusal_is_logged = true;
}

/* Creates the node below which all records are, unless zklock.parent_nodes forbids that. */
static void
create_root(Search *search)
{
	CallStep root = {.asked = {.kind = ZK_CREATE,
							   .node_kind = deadlock_search->parent_nodes == PARENTS_PERSISTENT
												? ZK_PERSISTENT
												: ZK_CONTAINER,
							   .path = WAIT_RECORD_ROOT}};

	if (deadlock_search->parent_nodes == PARENTS_EXISTING ||
		!wait_records_make_calls(search, &root, 1, CALL_AS_KNOWN))
		return;
	if (root.result.outcome == CALL_REFUSED)
		report_refusal(search, "create", root.result.code);
	search->has_root = root.result.outcome == CALL_OK || root.result.outcome == CALL_NODE_EXISTS;
}

/*
 * Publishes a new record in place of the old one, unless that says the same.
 *
 *	seen	the new one must say that records up to this zxid had been read
 */
void
wait_records_publish(Search *search, const char *text, int64 seen)
{
	CallStep step = {.asked = {.kind = ZK_PUBLISH, .data = text}};
	uint32	 number;
	bool	 is_answered;

	if (is_published(text, seen) || !search_is_ours(search->index) ||
		!pg_strong_random(&number, sizeof(number)))
		return;
	if (!search->has_root)
		create_root(search);
	snprintf(own_name, sizeof(own_name), "%016llx-%08x", (unsigned long long) search->session, number);
	step.asked.path = step.asked.marker = psprintf("%s/%s", WAIT_RECORD_ROOT, own_name);
	is_answered = wait_records_make_calls(search, &step, 1, CALL_AS_KNOWN);
	if (is_answered && step.result.outcome == CALL_OK)
	{
		search->findings.refusal_is_logged = false;
		return;
	}

	/* The old record, or the root, may be gone by now: the next search sees that. */
	if (is_answered && (step.result.outcome != CALL_NO_NODE || !search->has_root))
		report_refusal(search, "create nodes below", step.result.code);
	wait_records_withdraw();
}

/* Returns true if this session has published a record, as far as it knows. */
bool
wait_records_has_own(void)
{
	return own_name[0] != '\0';
}

/* Withdraws the record of this session, if it has one. */
void
wait_records_withdraw(void)
{
	if (own_name[0] != '\0')
		call_slot_give_up(call_slot_own());
	own_name[0] = '\0';
}

/* Forgets all records, when this session searches no more. */
void
wait_records_forget(void)
{
	wait_records_withdraw();
	forget_others(NULL, 0);
}
