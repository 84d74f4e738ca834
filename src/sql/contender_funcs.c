/*
 * contender_funcs.c
 *		SQL function that shows who holds and who waits, whatever client it is.
 *
 * zk_contenders() reads from ZooKeeper, through the worker.  A path can have
 * several queues, which it shows one after the other:
 *
 *		lock		the nodes of a lock at the path itself
 *		candidate	those of an election there; looked for only if there is no lock,
 *					as an election may have the names of one
 *		semaphore	the leases of a semaphore at the path, below "leases"
 *		turn		who has, and waits for, the turn to get one, below "locks";
 *					looked for only if there are leases
 *
 * Names tell mode, dialect and place in the queue, and with the place of the
 * others who is granted.  The rest is what a node's data says.  Anybody may have
 * written it: it is shown, if it is text, and nothing is concluded from it but
 * that zklock, which is to be told by its data alone, heeds all others.
 *
 * A node of this server stands for all contenders behind it.  Shared memory
 * knows which of them is granted, and its token; the data has the first.
 *
 * Like zk_session(), it is for members of pg_monitor: names and data of other
 * services are nobody else's business.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/ask.h"
#include "backend/display.h"
#include "backend/lock_view.h"
#include "backend/request.h"
#include "compat.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "recipes/heed.h"
#include "recipes/node_contender.h"
#include "recipes/permit_recipe.h"
#include "recipes/queue_order.h"
#include "shared/errand_list.h"
#include "shared/lease_state.h"
#include "shared/path_settings.h"
#include "shared/server_name.h"
#include "sql/arguments.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(zk_contenders);

/* What is shown of a foreign node's data, bytes */
#define OWNER_MAX 256

/* The columns of a row */
typedef enum Column
{
	COLUMN_POSITION,
	COLUMN_NODE,
	COLUMN_KIND,
	COLUMN_MODE,
	COLUMN_DIALECT,
	COLUMN_GRANTED,
	COLUMN_TOKEN,
	COLUMN_SERVER,
	COLUMN_PID,
	COLUMN_USER,
	COLUMN_APPLICATION,
	COLUMN_OWNER,
	COLUMN_SESSION,
	COLUMN_CREATED,
	COLUMN_HEEDS_US
} Column;

#define COLUMNS (COLUMN_HEEDS_US + 1)

/* A queue, as it is shown */
typedef struct Queue
{
	const char *kind;
	RecipeId	recipe;
	bool		has_modes;		 /* its names tell a mode */
	NodeDialect dialect;		 /* that this session writes here */
	int			n;				 /* contenders */
	bool	   *holds;			 /* do they, by their place in the queue? */
	bool		permits_unknown; /* no node tells how many there are: nor who holds */
	EntryView **entries;		 /* this server's contenders on the path, by node */
	int			nentries;		 /* how many these are */
	int			shown;			 /* contenders that have a row */
} Queue;

typedef struct ContenderRow
{
	Datum values[COLUMNS];
	bool  nulls[COLUMNS];
} ContenderRow;

static void
set(ContenderRow *row, Column column, Datum value)
{
	row->values[column] = value;
	row->nulls[column] = false;
}

/* Text of a node's data, of which nothing is known, if it can be shown. */
static void
set_text(ContenderRow *row, Column column, const char *text, int len)
{
	char *shown = display_foreign(text, len);

	if (shown)
		set(row, column, CStringGetTextDatum(shown));
}

/* Shows whom the data names; true if that is a session of zklock. */
static bool
show_data(ContenderRow *row, const ErrandNode *node)
{
	NodeContender data;

	if (!node_contender_read(node->data, node->data_length, &data))
	{
		int len = node->data_length;

		/* The worker's clipping may have cut a character in two, and ours must not. */
		if (len > OWNER_MAX)
			len = pg_encoding_mbcliplen(PG_UTF8, node->data, len, OWNER_MAX);
		set_text(row, COLUMN_OWNER, node->data, len);
		return false;
	}
	set_text(row, COLUMN_SERVER, data.server, strlen(data.server));
	set(row, COLUMN_PID, Int32GetDatum(data.pid));
	set_text(row, COLUMN_USER, data.user, strlen(data.user));
	set_text(row, COLUMN_APPLICATION, data.application, strlen(data.application));
	return true;
}

/* When a node was created.  A server may say anything. */
static void
show_created(ContenderRow *row, int64 ctime)
{
	TimestampTz time;

	if (display_time(ctime, &time))
		set(row, COLUMN_CREATED, TimestampTzGetDatum(time));
}

/* By node, and for each first what it stands for: who holds, then who came first. */
static int
compare_entries(const void *a, const void *b)
{
	const EntryView *x = *(EntryView *const *) a;
	const EntryView *y = *(EntryView *const *) b;
	int				 order = strcmp(x->node, y->node);

	if (order != 0)
		return order;
	if (x->state != y->state)
		return x->state == CONTENDER_GRANTED || y->state == CONTENDER_QUEUED ? -1 : 1;
	return x->ticket < y->ticket ? -1 : x->ticket > y->ticket ? 1 : 0;
}

/*
 * The contender of this server for which a node stands: the first that is
 * granted, or else the first that waits.  NULL if the node is not ours.
 */
static const EntryView *
own_contender(const Queue *queue, const char *name)
{
	int from = 0;
	int to = queue->nentries;

	while (from < to)
	{
		int middle = from + (to - from) / 2;

		if (strcmp(queue->entries[middle]->node, name) < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from < queue->nentries && strcmp(queue->entries[from]->node, name) == 0
			   ? queue->entries[from]
			   : NULL;
}

/*
 * What shared memory knows better: the data has a run's first contender, and a
 * session that holds a lock does not wait for itself.
 */
static void
show_own(ContenderRow *row, const EntryView *entry)
{
	if (entry->kind == CONTENDER_CANDIDACY)
	{
		StringInfoData name;

		initStringInfo(&name);
		zklock_append_server_name(&name);
		set_text(row, COLUMN_SERVER, name.data, name.len);
		row->nulls[COLUMN_OWNER] = true;
	}
	else if (row->nulls[COLUMN_PID] || DatumGetInt32(row->values[COLUMN_PID]) != entry->pid)
	{
		char *role = GetUserNameFromId(entry->role, true);

		set(row, COLUMN_PID, Int32GetDatum(entry->pid));
		row->nulls[COLUMN_USER] = role == NULL;
		row->values[COLUMN_USER] = role ? CStringGetTextDatum(role) : (Datum) 0;
		row->nulls[COLUMN_APPLICATION] = true;
	}
	if (entry->state != CONTENDER_GRANTED || lease_state() == LEASE_OVER)
		return;
	set(row, COLUMN_GRANTED, BoolGetDatum(true));
	if (entry->kind == CONTENDER_LOCK || entry->kind == CONTENDER_CANDIDACY)
		set(row, COLUMN_TOKEN, Int64GetDatum(entry->token));
}

/* Shows the next contender of a queue. */
static void
put_row(ReturnSetInfo *rsinfo, Queue *queue, const ErrandNode *node)
{
	char			*name = pnstrdup(node->name, node->name_length);
	Heed			 heed = HEED_YES;
	const EntryView *own = own_contender(queue, name);
	bool			 is_zklock = own != NULL;
	ContenderRow	 row;

	memset(&row, 0, sizeof(row));
	memset(row.nulls, true, sizeof(row.nulls));
	set(&row, COLUMN_POSITION, Int32GetDatum(queue->shown + 1));
	set(&row, COLUMN_NODE, CStringGetTextDatum(display_utf8(name)));
	set(&row, COLUMN_KIND, CStringGetTextDatum(queue->kind));
	if (!queue->permits_unknown)
		set(&row, COLUMN_GRANTED, BoolGetDatum(queue->holds[queue->shown]));
	if (node->was_read)
	{
		is_zklock |= show_data(&row, node);
		show_created(&row, node->ctime);
		if (node->owner != 0)
			set(&row, COLUMN_SESSION,
				CStringGetTextDatum(psprintf("0x%llx", (unsigned long long) node->owner)));
	}
	if (own)
		show_own(&row, own);
	if (queue->recipe == RECIPE_ELECTION)
	{
		RecipePeer peer;

		(void) election_recipe.read(name, &peer);
		set(&row, COLUMN_DIALECT, CStringGetTextDatum(election_family_names[peer.family]));
		heed = HEED_UNKNOWN;
	}
	else if (queue->has_modes)
	{
		NodeName parsed;

		(void) node_name_parse(name, &parsed);
		set(&row, COLUMN_MODE,
			CStringGetTextDatum(parsed.mode == LOCK_MODE_EXCLUSIVE ? "exclusive" : "shared"));
		set(&row, COLUMN_DIALECT, CStringGetTextDatum(node_dialect_names[parsed.dialect]));
		heed = heed_expected(queue->dialect, LOCK_MODE_EXCLUSIVE, name);
	}
	else
		set(&row, COLUMN_DIALECT, CStringGetTextDatum(node_dialect_names[DIALECT_CURATOR]));
	if (is_zklock)
		heed = HEED_YES;
	if (heed != HEED_UNKNOWN)
		set(&row, COLUMN_HEEDS_US, BoolGetDatum(heed == HEED_YES));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row.values, row.nulls);
	queue->shown++;
}

/* Finds this server's contenders on a path that have a node. */
static void
find_entries(Queue *queue, const LockView *view, const char *path)
{
	queue->entries = palloc(Max(view->n, 1) * sizeof(EntryView *));
	for (int i = 0; i < view->n; i++)
	{
		EntryView *entry = &view->entries[i];

		if (strcmp(entry->path, path) == 0 &&
			(entry->state == CONTENDER_GRANTED || entry->state == CONTENDER_QUEUED))
			queue->entries[queue->nentries++] = entry;
	}
	qsort(queue->entries, queue->nentries, sizeof(EntryView *), compare_entries);
}

/*
 * Reads the names of an answer: how many there are, and who holds.  Of a
 * semaphore's leases that is only known if any of them tells how many permits
 * there are; the smallest number counts.  Returns how many nodes were not looked
 * at.
 */
static int
read_names(Queue *queue, const Question *question)
{
	const Recipe *recipe = recipe_by_id(queue->recipe);
	const char	 *end = question->answer + question->answer_length;
	const char	 *at = question->answer;
	ErrandNode	  node;
	RecipePeer	 *peers;
	int32_t		  permits = 0;
	int			  unread = 0;

	while (errand_list_next(&at, end, &node))
		queue->n++;
	peers = MemoryContextAllocHuge(CurrentMemoryContext, Max(queue->n, 1) * sizeof(RecipePeer));
	queue->holds = palloc(Max(queue->n, 1) * sizeof(bool));
	at = question->answer;
	for (int i = 0; errand_list_next(&at, end, &node); i++)
	{
		char *name = pnstrdup(node.name, node.name_length);

		(void) recipe->read(name, &peers[i]);
		pfree(name);
		if (peers[i].permits > 0 && (permits == 0 || peers[i].permits < permits))
			permits = peers[i].permits;
		unread += !node.was_read;
	}
	recipe_holders(recipe, peers, queue->n, permits, queue->holds);
	queue->permits_unknown = queue->recipe == RECIPE_PERMIT && permits == 0;
	pfree(peers);
	return unread;
}

/* Shows the queue at a path.  Returns false if there is no such path. */
static bool
show_queue(ReturnSetInfo *rsinfo, Queue *queue, const char *path)
{
	Question	  question = {.kind = ERRAND_CONTENDERS,
							  .recipe = queue->recipe,
							  .limit = ERRAND_LIST_READ,
							  .path = path,
							  .answer_size = ERRAND_MAX_ANSWER};
	MemoryContext row_context =
		AllocSetContextCreate(CurrentMemoryContext, "zklock contender", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old;
	LockView	  view;
	ErrandNode	  node;
	const char	 *at;
	int			  unread;

	if (backend_ask(&question) == ERRAND_NO_NODE)
		return false;
	unread = read_names(queue, &question);
	lock_view_take(&view);
	find_entries(queue, &view, path);
	old = MemoryContextSwitchTo(row_context);
	at = question.answer;
	while (errand_list_next(&at, question.answer + question.answer_length, &node))
	{
		CHECK_FOR_INTERRUPTS();
		put_row(rsinfo, queue, &node);
		MemoryContextReset(row_context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(row_context);
	lock_view_drop(&view);
	if (unread > 0)
		ereport(NOTICE, (errmsg("only the first %d of %d contenders on \"%s\" are shown in full",
								queue->n - unread, queue->n, display_path(path)),
						 errdetail("Of the others, what their nodes' names tell is shown.")));
	return true;
}

/*
 * zk_contenders(path text) returns setof record
 *
 * Shows the holders and waiters at a path, in the order of the queue.  A path that does
 * not exist has no rows.
 */
Datum
zk_contenders(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	char		  *path = argument_path(fcinfo, ANY_PATH);
	Queue		   locks = {.kind = "lock",
							.recipe = RECIPE_LOCK,
							.has_modes = true,
							.dialect = dialect_of_path(path)};
	Queue		   candidates = {.kind = "candidate", .recipe = RECIPE_ELECTION};
	Queue		   leases = {.kind = "semaphore", .recipe = RECIPE_PERMIT};
	Queue		   waiters = {.kind = "turn", .recipe = RECIPE_LOCK, .has_modes = true, .dialect = DIALECT_CURATOR};

	InitMaterializedSRF(fcinfo, 0);
	if (!show_queue(rsinfo, &locks, path))
		return (Datum) 0;
	if (locks.n == 0)
		(void) show_queue(rsinfo, &candidates, path);
	if (show_queue(rsinfo, &leases, psprintf("%s" PERMIT_LEASES, path)))
		(void) show_queue(rsinfo, &waiters, psprintf("%s" PERMIT_TURNS, path));
	return (Datum) 0;
}
