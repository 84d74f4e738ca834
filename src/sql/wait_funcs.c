/*
 * wait_funcs.c
 *		SQL function that shows the waits that last, of all servers.
 *
 * Servers publish the waits that others need to know to find deadlocks (deadlock/wait_record.c).
 * zk_waits() reads these records from ZooKeeper, and takes the other waits of this server that
 * last from shared memory.  For each it looks at the queue in which the process waits: there is
 * who it waits for, and since when.
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

#include "backend/contenders.h"
#include "backend/display.h"
#include "compat.h"
#include "deadlock/deadlock.h"
#include "funcapi.h"
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

/* A process that waits */
typedef struct FleetWait
{
	const char		*server;
	int64			 session; /* the server's in ZooKeeper */
	int				 pid;
	const char		*what;
	const char		*path;		 /* of its queue, "" if it waits in none */
	const char		*node;		 /* with which it waits there */
	int				 behind_pid; /* a process of the same server for which it waits, or 0 */
	const EntryCopy *entry;		 /* NULL: it is in a record */
} FleetWait;

typedef struct Fleet
{
	Call			call;
	int				nrecords;
	CallStep		records[MAX_RECORDS];
	const WaitLine *lines[MAX_RECORDS]; /* NULL: it is no record */
	int				nignored;
	LockView		ours;
	List		   *queues; /* of Contenders */
	List		   *silent; /* names of servers that publish nothing */
} Fleet;

/* ------------------------------------------------------------------------
 * Records
 * ------------------------------------------------------------------------
 */

/* Returns true if a record is the newest of its session. */
static bool
is_newest_record(const Fleet *fleet, int record)
{
	const NodeStat *stat = &fleet->records[record].result.stat;

	for (int i = 0; i < fleet->nrecords; i++)
	{
		const NodeStat *other = &fleet->records[i].result.stat;

		if (fleet->lines[i] && other->ephemeral_owner == stat->ephemeral_owner &&
			other->czxid > stat->czxid)
			return false;
	}
	return true;
}

/* Returns true if a ZooKeeper session has published a record. */
static bool
publishes(const Fleet *fleet, int64 session)
{
	for (int i = 0; i < fleet->nrecords; i++)
	{
		if (fleet->lines[i] && fleet->records[i].result.stat.ephemeral_owner == session)
			return true;
	}
	return false;
}

/* Reads the records.  Returns false if one was gone by then: another one may have its place. */
static bool
read_records(Fleet *fleet)
{
	const CallStep *list =
		call_make(&fleet->call, (CallStep){.kind = ZK_GET_CHILDREN, .path = WAIT_RECORD_ROOT},
				  CALL_AFTER_SYNC);
	bool all = true;

	fleet->nrecords = 0;
	for (int i = 0; i < list->result.nchildren && fleet->nrecords < MAX_RECORDS; i++)
	{
		if (wait_record_session(list->children[i]) != 0)
			fleet->records[fleet->nrecords++] =
				(CallStep){.kind = ZK_GET_DATA,
						   .path = psprintf("%s/%s", WAIT_RECORD_ROOT, list->children[i]),
						   .most = WAIT_RECORD_MAX};
	}
	fleet->nignored = list->result.nchildren - fleet->nrecords;
	for (int i = 0; i < fleet->nrecords; i++)
	{
		CallStep *record = &fleet->records[i];

		if (i % RECORDS_AT_ONCE == 0)
			call_batch(&fleet->call, record, Min(fleet->nrecords - i, RECORDS_AT_ONCE), CALL_AS_KNOWN);
		if (record->result.outcome == CALL_UNREACHABLE)
			call_report(record);
		fleet->lines[i] = wait_record_lines(record);
		if (record->result.outcome == CALL_NO_NODE)
			all = false;
		else if (fleet->lines[i] == NULL)
			fleet->nignored++;
	}
	return all;
}

/* ------------------------------------------------------------------------
 * Queues
 * ------------------------------------------------------------------------
 */

/* Adds a server to those that publish nothing, unless its ZooKeeper session does. */
static void
note_silent(Fleet *fleet, int64 session, const char *name)
{
	char	 *server = display_foreign(name);
	ListCell *cell;

	if (publishes(fleet, session) || server == NULL)
		return;
	foreach(cell, fleet->silent)
	{
		if (strcmp(lfirst(cell), server) == 0)
			return;
	}
	fleet->silent = lappend(fleet->silent, server);
}

/* Returns the queue in which a process waits, or NULL if it waits in none, or there are too many. */
static const Contenders *
queue_of(Fleet *fleet, const FleetWait *wait)
{
	bool		is_lock = lock_recipe.read(wait->node, &(RecipePeer){0});
	Contenders *queue;
	CallStep	listed;
	ListCell   *cell;

	if (wait->path[0] == '\0')
		return NULL;
	foreach(cell, fleet->queues)
	{
		queue = lfirst(cell);
		if (strcmp(queue->path, wait->path) == 0 && (queue->recipe == &lock_recipe) == is_lock)
			return queue;
	}
	if (list_length(fleet->queues) == MAX_QUEUES)
		return NULL;
	queue = palloc(sizeof(Contenders));
	*queue = (Contenders){.path = wait->path, .recipe = is_lock ? &lock_recipe : &permit_recipe};
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

/* Returns the node of that name, or NULL if it is not there. */
static const ContenderNode *
find_node(const Contenders *queue, const char *name)
{
	for (int i = 0; queue && i < queue->n; i++)
	{
		if (strcmp(queue->nodes[i].name, name) == 0)
			return &queue->nodes[i];
	}
	return NULL;
}

/* Returns the oldest node that keeps a node waiting, or NULL if there is none. */
static const ContenderNode *
find_blocker(const Contenders *queue, const ContenderNode *self)
{
	for (const ContenderNode *node = self ? queue->nodes : NULL; node != self; node++)
	{
		if (queue->recipe == &permit_recipe ||
			lock_recipe.excludes(&node->peer, &(RecipeRequest){.mode = self->peer.mode}))
			return node;
	}
	return NULL;
}

/* ------------------------------------------------------------------------
 * Rows
 * ------------------------------------------------------------------------
 */

/* Adds who a process waits for: a process of its own server, if no node is in its way. */
static void
add_blocker(Row *row, const Fleet *fleet, const FleetWait *wait, const ContenderNode *blocker)
{
	NodeContender	 data = {.pid = wait->behind_pid};
	const EntryCopy *entry = blocker ? lock_view_of_node(&fleet->ours, blocker) : NULL;
	const char		*owner = NULL;

	if (blocker == NULL && data.pid != 0)
		strlcpy(data.server, wait->server, sizeof(data.server));
	else if (blocker && !node_contender_read(blocker->data, &data))
		owner = display_node_data(blocker->data, blocker->answer.text_length);

	/* The node's data describes the first session that it stood for. */
	if (entry)
		data.pid = entry->status.kept ? 0 : entry->request.pid;
	row_add_text(row, display_foreign(data.server));
	row_add_if(row, data.pid != 0, Int32GetDatum(data.pid));
	row_add_text(row, owner);
	row_add_text(row, blocker ? display_utf8(blocker->name) : NULL);
	row_add_text(row, blocker ? display_session(blocker->answer.stat.ephemeral_owner) : NULL);
}

/* Adds path and mode as the user knows them: a semaphore's path is above those of its queues. */
static void
add_path(Row *row, const FleetWait *wait)
{
	bool		permit = strncmp(wait->what, WAIT_FOR_PERMIT, strlen(WAIT_FOR_PERMIT)) == 0;
	const char *end = permit ? strrchr(wait->path, '/') : NULL;
	char	   *path = end ? pnstrdup(wait->path, end - wait->path) : pstrdup(wait->path);
	RecipePeer	peer;

	row_add_text(row, path[0] != '\0' ? display_utf8(path) : NULL);
	if (permit || !lock_recipe.read(wait->node, &peer))
		row_add_text(row, NULL);
	else
		row_add_text(row, peer.mode == LOCK_MODE_EXCLUSIVE ? "exclusive" : "shared");
}

static void
put_wait(FunctionCallInfo fcinfo, Fleet *fleet, const FleetWait *wait)
{
	const Contenders	*queue = queue_of(fleet, wait);
	const ContenderNode *node = find_node(queue, wait->node);
	NodeContender		 data = {.pid = 0};
	Row					 row = {0};

	/* The node may have been created for another session. */
	if (node == NULL || !node_contender_read(node->data, &data) || data.pid != wait->pid)
		data = (NodeContender){.pid = 0};
	row_add_text(&row, display_foreign(wait->server));
	row_add(&row, Int32GetDatum(wait->pid));
	row_add_text(&row, wait->entry ? GetUserNameFromId(wait->entry->request.role, true)
								   : display_foreign(data.user));
	row_add_text(&row, display_foreign(data.application));
	add_path(&row, wait);
	row_add_text(&row, display_foreign(wait->what));
	if (wait->entry)
		row_add(&row, TimestampTzGetDatum(wait->entry->request.requested_at));
	else
		row_add_zk_time(&row, node ? node->answer.stat.ctime : 0);
	row_add_text(&row, wait->node[0] != '\0' ? display_utf8(wait->node) : NULL);
	add_blocker(&row, fleet, wait, find_blocker(queue, node));
	row_store(fcinfo, &row);
}

/* Shows the waits of a record. */
static void
put_record(FunctionCallInfo fcinfo, Fleet *fleet, int record)
{
	const char *server = fleet->lines[record]->text;

	for (const WaitLine *line = fleet->lines[record]; line->kind != WAIT_LINE_END; line++)
	{
		FleetWait wait = {.server = server,
						  .pid = line->pid,
						  .what = line->text,
						  .path = line->path,
						  .node = line->node};

		if (line->kind != WAIT_LINE_WAIT)
			continue;
		if (line[1].kind == WAIT_LINE_FOR)
			wait.behind_pid = line[1].pid;
		put_wait(fcinfo, fleet, &wait);
	}
}

/* Returns true if this server's record has a wait of a process. */
static bool
is_published_wait(const Fleet *fleet, int pid)
{
	for (int i = 0; i < fleet->nrecords; i++)
	{
		const WaitLine *line = fleet->lines[i];

		if (fleet->records[i].result.stat.ephemeral_owner != fleet->call.session)
			continue;
		for (; line && line->kind != WAIT_LINE_END; line++)
		{
			if (line->kind == WAIT_LINE_WAIT && line->pid == pid)
				return true;
		}
	}
	return false;
}

/* Shows a contender of this server if it waits, has waited for long, and is in no record. */
static void
put_own(FunctionCallInfo fcinfo, Fleet *fleet, const EntryCopy *entry)
{
	FleetWait wait = {.server = zklock_own_name(),
					  .pid = entry->request.pid,
					  .what = waits_describe_contender(entry),
					  .path = entry->request.path,
					  .node = entry->node.czxid != 0 ? entry->node.name : "",
					  .behind_pid = lock_view_blocker(&fleet->ours, entry).pid,
					  .entry = entry};

	if (entry->status.state == ENTRY_QUEUED && entry->request.manner == ASK_AND_WAIT &&
		entry->request.pid != ENTRY_SERVER_PID && entry->request.kind != REQUEST_ELEMENT &&
		zklock_ms_since(entry->request.requested_us) >= deadlock_search->deadlock_timeout &&
		!is_published_wait(fleet, entry->request.pid))
		put_wait(fcinfo, fleet, &wait);
}

/* Reports what is not shown, and which servers publish nothing. */
static void
report_unpublished(const Fleet *fleet)
{
	StringInfoData names;
	ListCell	  *cell;

	if (fleet->nignored > 0)
		ereport(WARNING,
				(errmsg("ignoring %d nodes below \"%s\"", fleet->nignored, WAIT_RECORD_ROOT),
				 errdetail("They are no records of waits that can be read, or more than %d.",
						   MAX_RECORDS)));
	initStringInfo(&names);
	foreach(cell, fleet->silent)
	{
		appendStringInfo(&names, "%s\"%s\"", names.len > 0 ? ", " : "", (char *) lfirst(cell));
	}
	if (names.len > 0)
		ereport(NOTICE,
				(errmsg("servers that publish no waits: %s", names.data),
				 errdetail("Sessions that hold nothing, and keep no other server waiting, are not published: zk_locks shows those of its server.")));
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
	for (int round = 0; !read_records(fleet) && round < ROUNDS; round++)
		;
	fleet->ours = lock_view_take();
	note_silent(fleet, fleet->call.session, zklock_own_name());
	for (int i = 0; i < fleet->nrecords; i++)
	{
		if (fleet->lines[i] && is_newest_record(fleet, i))
			put_record(fcinfo, fleet, i);
	}
	for (int i = 0; i < fleet->ours.n; i++)
		put_own(fcinfo, fleet, fleet->ours.entries[i]);
	report_unpublished(fleet);
	return (Datum) 0;
}
