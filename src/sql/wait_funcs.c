/*
 * wait_funcs.c
 *		SQL function that shows the waits that last, of all servers.
 *
 * Servers publish the waits that others need to know to find deadlocks (deadlock/wait_search.c).
 * zk_waits() reads these records from ZooKeeper, and takes the waits of this server from shared
 * memory.  The queue in which a process waits shows for whom, and since when.
 *
 * A session that holds nothing, and keeps no other server waiting, is in no record.  So a
 * NOTICE names the servers that publish none, as far as they are known: this one, and those
 * with contenders in the queues.
 *
 * Anybody may have written what is read.  It is shown if it is text; what is no record is
 * counted in a WARNING.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/view.h"
#include "compat.h"
#include "deadlock/deadlock.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "shared/deadlock_search.h"
#include "shared/settings.h"
#include "sql/arguments.h"

COMPAT_FUNCTION_INFO_V1(zk_waits);

/* Most records, and most queues, that are read */
#define MAX_RECORDS 256
#define MAX_QUEUES 100 /* who blocks the waits in others is not shown */

/* How many records are read at a time, as they may be long */
#define RECORDS_AT_ONCE 16

/* How many nodes of a queue are read */
#define MAX_READ 100

/* How often the records are listed, if servers replace some meanwhile */
#define ROUNDS 3

typedef struct Fleet
{
	FunctionCallInfo fcinfo;
	Caller			 call;
	CallStep		 records[MAX_RECORDS];
	const WaitLine	*lines[MAX_RECORDS]; /* NULL: it is no record */
	int				 nrecords;
	int				 nignored;
	LockView		 ours;
	List			*queues; /* of Contenders */
	StringInfoData	 silent; /* names of servers that publish nothing */
} Fleet;

/* ------------------------------------------------------------------------
 * Records
 * ------------------------------------------------------------------------
 */

/* Returns the newest record of a ZooKeeper session, or -1 if there is none. */
static int
newest_record(const Fleet *fleet, int64 session)
{
	int newest = -1;

	for (int i = 0; i < fleet->nrecords; i++)
	{
		const NodeStat *stat = &fleet->records[i].result.stat;

		if (fleet->lines[i] && stat->ephemeral_owner == session &&
			(newest < 0 || stat->czxid > fleet->records[newest].result.stat.czxid))
			newest = i;
	}
	return newest;
}

/* Reads the records.  Returns false if one was gone by then: another one may have its place. */
static bool
read_records(Fleet *fleet)
{
	CallStep list =
		*call_make(&fleet->call, (ZkCall){.kind = ZK_GET_CHILDREN, .path = WAIT_RECORD_ROOT},
				   CALL_AFTER_SYNC);
	bool all = true;

	fleet->nrecords = 0;
	for (int i = 0; i < list.result.nchildren && fleet->nrecords < MAX_RECORDS; i++)
	{
		if (wait_record_session(list.children[i]) != 0)
			fleet->records[fleet->nrecords++] =
				(CallStep){.asked = {.kind = ZK_GET_DATA,
									 .path = psprintf("%s/%s", WAIT_RECORD_ROOT, list.children[i]),
									 .most = WAIT_RECORD_MAX}};
	}
	fleet->nignored = list.result.nchildren - fleet->nrecords;
	for (int i = 0; i < fleet->nrecords; i++)
	{
		CallStep *record = &fleet->records[i];

		if (i % RECORDS_AT_ONCE == 0)
			call_batch(&fleet->call, record, Min(fleet->nrecords - i, RECORDS_AT_ONCE), CALL_AS_KNOWN);
		if (record->result.outcome == CALL_UNREACHABLE)
			call_report(record);
		fleet->lines[i] = wait_record_lines(record);
		all &= record->result.outcome != CALL_NO_NODE;
		fleet->nignored += record->result.outcome != CALL_NO_NODE && fleet->lines[i] == NULL;
	}
	return all;
}

/* Adds a server to those that publish nothing, unless its ZooKeeper session does. */
static void
note_silent(Fleet *fleet, int64 session, const char *name)
{
	const char *server = display_foreign(name);
	const char *quoted = server ? psprintf("\"%s\"", server) : NULL;

	if (quoted && newest_record(fleet, session) < 0 && strstr(fleet->silent.data, quoted) == NULL)
		appendStringInfo(&fleet->silent, "%s%s", fleet->silent.len > 0 ? ", " : "", quoted);
}

/* ------------------------------------------------------------------------
 * Queues
 * ------------------------------------------------------------------------
 */

/*
 * Returns the queue in which a process waits, or NULL if it waits in none, or there are too
 * many.
 */
static const Contenders *
queue_of(Fleet *fleet, const WaitLine *wait)
{
	RecipePeer	  peer;
	const Recipe *recipe = lock_recipe.read(wait->node, &peer) ? &lock_recipe : &permit_recipe;
	Contenders	 *queue;
	CallStep	  listed;
	ListCell	 *cell;

	foreach(cell, fleet->queues)
	{
		queue = lfirst(cell);
		if (strcmp(queue->path, wait->path) == 0 && queue->recipe == recipe)
			return queue;
	}
	if (wait->path[0] == '\0' || list_length(fleet->queues) == MAX_QUEUES)
		return NULL;
	queue = palloc(sizeof(Contenders));
	*queue = (Contenders){.path = wait->path, .recipe = recipe};
	listed = contenders_read(queue, &fleet->call, MAX_READ, CALL_AS_KNOWN);
	if (listed.result.outcome == CALL_UNREACHABLE)
		call_report(&listed);
	for (int i = 0; i < queue->n; i++)
	{
		const ContenderNode *node = &queue->nodes[i];
		NodeContender		 data;

		if (node_contender_read(node->data, &data))
			note_silent(fleet, node->answer.stat.ephemeral_owner, data.server);
	}
	fleet->queues = lappend(fleet->queues, queue);
	return queue;
}

/*
 * Finds the node of that name, and the oldest one that keeps it waiting; NULL if there is
 * none.
 */
static void
find_nodes(const Contenders *queue, const char *name, const ContenderNode **self,
		   const ContenderNode **blocker)
{
	*self = *blocker = NULL;
	for (int i = 0; queue && i < queue->n; i++)
	{
		if (strcmp(queue->nodes[i].name, name) == 0)
			*self = &queue->nodes[i];
	}
	for (const ContenderNode *node = *self ? queue->nodes : NULL;
		 node < *self && *blocker == NULL; node++)
	{
		if (queue->recipe == &permit_recipe ||
			lock_recipe.excludes(&node->peer, &(RecipeRequest){.mode = (*self)->peer.mode}))
			*blocker = node;
	}
}

/* ------------------------------------------------------------------------
 * Rows
 * ------------------------------------------------------------------------
 */

/* Adds path and mode as the user knows them: a semaphore's path is above those of its queues. */
static void
add_path(Row *row, const WaitLine *wait)
{
	bool		permit = strncmp(wait->text, WAIT_FOR_PERMIT, strlen(WAIT_FOR_PERMIT)) == 0;
	const char *end = permit ? strrchr(wait->path, '/') : NULL;
	char	   *path = end ? pnstrdup(wait->path, end - wait->path) : pstrdup(wait->path);
	RecipePeer	peer;
	bool		lock = !permit && lock_recipe.read(wait->node, &peer);

	row_add_text(row, path[0] != '\0' ? display_utf8(path) : NULL);
	row_add_text(row, !lock								 ? NULL
					  : peer.mode == LOCK_MODE_EXCLUSIVE ? "exclusive"
														 : "shared");
}

/* Adds who is in the way: a contender, or else a process of the same server. */
static void
add_blocker(Row *row, const Fleet *fleet, const ContenderNode *blocker, const char *server, int pid)
{
	NodeContender	 data = {.pid = blocker ? 0 : pid};
	const EntryCopy *entry = blocker ? lock_view_of_node(&fleet->ours, blocker) : NULL;
	const char		*owner = NULL;

	if (data.pid != 0)
		strlcpy(data.server, server, sizeof(data.server));
	else if (blocker)
		owner = contenders_reservation(blocker, entry, &data);
	if (blocker && owner == NULL && !node_contender_read(blocker->data, &data))
		owner = display_node_data(blocker->data, blocker->answer.text_length);

	/* The data describes the first session that the node stood for. */
	if (entry)
		data.pid = entry->status.kept ? 0 : entry->request.pid;
	row_add_text(row, display_foreign(data.server));
	row_add_if(row, data.pid != 0, Int32GetDatum(data.pid));
	row_add_text(row, owner);
	row_add_text(row, blocker ? display_utf8(blocker->name) : NULL);
	row_add_text(row, blocker ? display_session(blocker->answer.stat.ephemeral_owner) : NULL);
}

/*
 * Shows a wait: a line of a record, behind which the first process of the same server may
 * follow for which this one waits.
 *
 *	entry	a contender of this server that waits, or NULL
 */
static void
put_wait(Fleet *fleet, const char *server, const WaitLine *wait, const EntryCopy *entry)
{
	NodeContender		 data;
	const ContenderNode *node;
	const ContenderNode *blocker;
	const ContenderNode *next;
	const Contenders	*queue = queue_of(fleet, wait);
	Row					 row = {0};

	CHECK_FOR_INTERRUPTS();
	find_nodes(queue, wait->node, &node, &blocker);

	/* It may have no node yet, while a reservation of this server is in its way. */
	if (blocker == NULL && wait[1].kind == WAIT_LINE_FOR)
		find_nodes(queue, wait[1].node, &blocker, &next);

	/* The node may have been created for another session. */
	if (node == NULL || !node_contender_read(node->data, &data) || data.pid != wait->pid)
		data = (NodeContender){.pid = 0};
	row_add_text(&row, display_foreign(server));
	row_add(&row, Int32GetDatum(wait->pid));
	row_add_text(&row, entry ? GetUserNameFromId(entry->request.role, true)
							 : display_foreign(data.user));
	row_add_text(&row, display_foreign(data.application));
	add_path(&row, wait);
	row_add_text(&row, display_foreign(wait->text));
	if (entry)
		row_add(&row, TimestampTzGetDatum(entry->request.requested_at));
	else
		row_add_zk_time(&row, node ? node->answer.stat.ctime : 0);
	row_add_text(&row, wait->node[0] != '\0' ? display_utf8(wait->node) : NULL);
	add_blocker(&row, fleet, blocker, server, wait[1].kind == WAIT_LINE_FOR ? wait[1].pid : 0);
	row_store(fleet->fcinfo, &row);
}

/* Shows the waits of a record; of this server's, those that shared memory does not have. */
static void
put_record(Fleet *fleet, int record)
{
	int64			session = fleet->records[record].result.stat.ephemeral_owner;
	const WaitLine *title = fleet->lines[record];

	if (title == NULL || newest_record(fleet, session) != record)
		return;
	for (const WaitLine *line = title; line->kind != WAIT_LINE_END; line++)
	{
		if (line->kind == WAIT_LINE_WAIT && (session != fleet->call.session || line->path[0] == '\0'))
			put_wait(fleet, title->text, line, NULL);
	}
}

/* Shows a contender of this server, if it waits, and has waited for long. */
static void
put_own(Fleet *fleet, const EntryCopy *entry)
{
	WaitLine	lines[] = {{.pid = entry->request.pid,
							.path = entry->request.path,
							.node = entry->node.name},
						   {.kind = WAIT_LINE_FOR}};
	LockBlocker blocker;

	if (entry->status.state != ENTRY_QUEUED || entry->request.manner != ASK_AND_WAIT ||
		entry->request.pid == ENTRY_SERVER_PID || entry->request.kind == REQUEST_ELEMENT ||
		zklock_ms_since(entry->request.requested_us) < deadlock_search->deadlock_timeout)
		return;
	lines[0].text = waits_describe_contender(entry);
	blocker = lock_view_blocker(&fleet->ours, entry);
	lines[1].pid = blocker.pid;
	lines[1].node = blocker.node ? blocker.node : "";
	put_wait(fleet, zklock_own_name(), lines, entry);
}

/*
 * zk_waits() returns setof record
 *
 * Shows the waits that all servers publish, and those of this server that last.
 */
Datum
zk_waits(PG_FUNCTION_ARGS)
{
	Fleet *fleet = palloc0(sizeof(Fleet));

	argument_require_holder();
	InitMaterializedSRF(fcinfo, 0);
	fleet->fcinfo = fcinfo;
	initStringInfo(&fleet->silent);
	for (int round = 0; !read_records(fleet) && round < ROUNDS; round++)
		;
	fleet->ours = lock_view_take(NULL);
	note_silent(fleet, fleet->call.session, zklock_own_name());
	for (int i = 0; i < fleet->nrecords; i++)
		put_record(fleet, i);
	for (int i = 0; i < fleet->ours.n; i++)
		put_own(fleet, fleet->ours.entries[i]);
	if (fleet->nignored > 0)
		ereport(WARNING,
				(errmsg("ignoring %d nodes below \"%s\"", fleet->nignored, WAIT_RECORD_ROOT),
				 errdetail("They are no records of waits that can be read, or more than %d.",
						   MAX_RECORDS)));
	if (fleet->silent.len > 0)
		ereport(NOTICE,
				(errmsg("servers without waits that others need to know: %s", fleet->silent.data),
				 errdetail("Sessions that hold nothing, and keep no other server waiting, are not published. zk_waits() shows them on their own server.")));
	return (Datum) 0;
}
