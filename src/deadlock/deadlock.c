/*
 * deadlock.c
 *		The search for deadlocks: on this server, through zklock's locks and PostgreSQL's;
 *		and across servers, for which one waiting session searches for all of its server.
 *
 * On this server
 *
 * A session that waits for a lock of zklock looks after deadlock_timeout whether it waits
 * for itself, through any locks of this server, and again, less and less often
 * (backend/wait.c).  PostgreSQL's own check looks once, when a process has waited for that
 * time: the last to wait sees the whole cycle.  Here the last may wait for a lock of
 * PostgreSQL, whose check knows nothing of ours; then a session that has long been waiting
 * must find the cycle.
 *
 * The graph (wait_graph.h) has a vertex for each process, known by the pid of its leader if
 * it runs a query in parallel.  A process waits for those that block its contender that is
 * not granted, or for a lock of PostgreSQL (explore_waits()).
 *
 * Contenders of other clients and servers are not in this graph; a cycle through other
 * servers is found by the session that searches for all.  A process that waits for anything
 * else has no edges, such as a commit that waits for proof of its locks, or a session that
 * waits for a leader or for an element of a queue, which any client may provide.  Neither has
 * the startup process of a standby, which PostgreSQL does not show here, nor autovacuum, which
 * PostgreSQL cancels when it blocks somebody.
 * Prepared transactions, reservations and the server's candidacies are no processes, and so
 * no vertices: they give nothing up, or end by themselves, and a candidacy shares its path
 * with no session of its server.
 *
 * The graph may change while it is taken.  Two looks, one after the other, that see the
 * same waits prove that these existed at the same time (deadlock_check()).  The session
 * whose wait is the youngest in the cycle raises the error, in itself.  That needs no
 * signal, and no other session can come to the same conclusion about the same waits.
 *
 * The error is in PostgreSQL's words; the statements of the sessions go only to the
 * server's log.
 *
 * A session that has long waited for another server or client may be part of a cycle
 * through other servers, and so may all that cannot go on before it does, through any locks
 * of this server.  They matter to others if they hold nodes, or stand between readers of
 * others that would not wait for each other.  So the record (wait_search.c) has the part
 * of the graph that cannot go on if the waits for others never end: these, and all for which
 * they wait.
 *
 * A record has limited room.  Each wait gets the same share, and has as many of its nodes
 * in the record as fit.  Processes for which others may wait come first, with all for which
 * these wait: so a crowd that merely waits behind a deadlock leaves room for those in it.
 *
 * Across servers
 *
 * While sessions of this server have long been waiting, one of them asks the engine again
 * and again whether they wait for another server or client, which costs ZooKeeper one sync.
 * If they do, and others need to know, it goes on in this order:
 *
 *	- It reads which records exist, and the new ones.
 *	- It takes the waits of this server, as above.
 *	- It looks whether a wait of ours is stuck, by all records together, and by what
 *	  ZooKeeper confirms of the suspects (wait_search.c).
 *	- It weighs the deadlocks that our waits are to end (judge_deadlocks()).
 *	- It publishes a new record if the waits of this server have changed, or if others need
 *	  one that was made after theirs had been read.
 *
 * As long as no session waits for long, nothing is asked.  The session waits for ZooKeeper's
 * answers and for its own lock at the same time: when anything happens to the latter, the
 * search is given up in the middle.  Nothing here raises an error because of ZooKeeper.
 *
 * Two readings confirm a deadlock, that is the waits of a component and those for which it
 * waits.  Waits that are merely behind it do not count, as the crowd may differ from one
 * look to the next.  In the first reading, at some zxid, all these waits exist, as far as
 * the records say.  Each server whose wait is stuck looks again and writes a new record,
 * with the newest zxid that it had read before.  If in the second reading the records of
 * all these servers have the same waits, and were made by looks after that zxid, then each
 * wait has lasted from before it until after it, as a process that waits does nothing else:
 * at that zxid, all existed together.  A server that is gone, or stopped, does not look
 * again, and so its old record proves nothing.
 *
 * Then the session with the youngest wait gives up, on its server.  That is all that a
 * record can cause, whether it is true, stale or forged: a session of ours ends a wait.
 *
 * Runs in: backends.  LWLocks are held only while PostgreSQL copies from its lock table, and
 * for a moment to see who searches; shared/deadlock_search.h says what is shared, and all else is
 * the session's.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>

#include "backend/display.h"
#include "backend/view.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "deadlock/deadlock.h"
#include "deadlock/wait_search.h"
#include "fault.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "shared/settings.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"

/* Most records that are read, one for each server */
#define MAX_RECORDS 256

/* Shortest pause between two searches, ms */
#define SHORTEST_PAUSE_MS 50

/* After a new suspicion, HASTY_SEARCHES searches follow each other HASTE times as fast. */
#define HASTE 4
#define HASTY_SEARCHES 40

/*
 * An unknown contender in the cycle may be a wait that its server has not published yet:
 * this many searches are made before the error reports it as unknown.
 */
#define PATIENT_SEARCHES (2 * HASTE)

/* How often search_lock is tried, once in a millisecond */
#define LOCK_TRIES 100

/* Longest wait for an answer, ms; there may be no worker to answer */
#define PATIENCE_MS 10000

/* Another session takes over from one that searches and has been silent for this long, ms. */
#define SILENCE_MS 5000

/* ------------------------------------------------------------------------
 * The graph
 * ------------------------------------------------------------------------
 */

/* How much other servers need to know of a process; the highest rank that it has counts */
typedef enum WaitsRank
{
	RANK_NONE,
	RANK_WRITER,	   /* it waits for an exclusive lock: readers may wait behind its node */
	RANK_BETWEEN,	   /* ... and readers of others stand before it */
	RANK_HOLDER,	   /* it holds a node */
	RANK_BLOCKS_REMOTE /* it holds a node for which others may wait */
} WaitsRank;

/* A process that waits or holds, or for which another one waits: a vertex of the graph */
typedef struct WaitsProcess
{
	int				  pid; /* hash key */
	int				  vertex;
	EntryCopy *const *waiting;	/* its contender that is not granted, in Waits.contenders;
								 * or NULL */
	bool			  explored; /* its edges are in the graph */

	/* Its wait for a lock of PostgreSQL, if any */
	LOCKTAG	 tag;
	LOCKMODE mode;
	uint64	 identity; /* two looks that find the same number have found the same wait; 0:
						* none */

	/* For what other servers need to know */
	WaitsRank rank;
	bool	  in_record; /* it is to be in the record, if there is room */
} WaitsProcess;

/* The waits of this server, in the memory context that was current when they were taken */
typedef struct Waits
{
	EntryCopy **contenders; /* those that wait or hold: by path and cohort, those without a
							 * cohort last */
	int			ncontenders;
	WaitGraph	graph;
	List	   *processes; /* of WaitsProcess, by vertex; ... */
	HTAB	   *by_pid;	   /* ... and the same ones here */
} Waits;

/* Enlarges a graph's array; a new one is in the current memory context. */
static void *
resize_graph(void *memory, size_t size)
{
	return memory ? repalloc_huge(memory, size) : MemoryContextAllocHuge(CurrentMemoryContext, size);
}

/* Returns a process; it gets a vertex if it has none yet. */
static WaitsProcess *
get_process(Waits *waits, int pid)
{
	bool		  found;
	WaitsProcess *process = hash_search(waits->by_pid, &pid, HASH_ENTER, &found);

	if (!found)
	{
		*process = (WaitsProcess){.pid = pid, .vertex = wait_graph_add(&waits->graph)};
		waits->processes = lappend(waits->processes, process);
	}
	return process;
}

/* Copies the entries of sessions that wait or hold.  The graph has no edges at first. */
static void
take_waits(Waits *waits)
{
	HASHCTL	 ctl = {.keysize = sizeof(int), .entrysize = sizeof(WaitsProcess), .hcxt = CurrentMemoryContext};
	LockView view = lock_view_take(NULL, false);

	*waits = (Waits){.contenders = view.entries, .graph.resize = resize_graph};
	waits->by_pid = hash_create("zklock waits", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	for (int i = 0; i < view.n; i++)
	{
		EntryCopy	**contender = &waits->contenders[waits->ncontenders];
		EntryState	  state = view.entries[i]->status.state;
		WaitsProcess *process;

		if ((state != ENTRY_REQUESTED && state != ENTRY_QUEUED && state != ENTRY_GRANTED) ||
			view.entries[i]->request.pid == ENTRY_SERVER_PID)
			continue;
		*contender = view.entries[i];
		waits->ncontenders++;
		process = get_process(waits, (*contender)->request.pid);
		if (state == ENTRY_GRANTED || (*contender)->request.manner != ASK_AND_WAIT)
			continue;
		process->waiting = contender;
		waits->graph.vertices[process->vertex].order = (*contender)->request.requested_us;
		waits->graph.vertices[process->vertex].tie = (*contender)->index;
	}
}

/* Returns how many permits the semaphore has, as far as is known. */
static int
permits_of(const EntryCopy *contender)
{
	int others = contender->status.others_permits;

	return others > 0 ? Min(others, contender->request.terms.permits)
					  : contender->request.terms.permits;
}

/*
 * Adds the processes for which a process waits in PostgreSQL's locks, itself or one that runs
 * its query in parallel, as pg_blocking_pids() returns them; parallel workers count as their
 * leader.  Stores for which lock it waits.
 */
static void
add_heavy_wait(Waits *waits, WaitsProcess *process)
{
	PGPROC			 *proc = BackendPidGetProc(process->pid);
	ArrayType		 *blockers;
	BlockedProcsData *data;
	bool			  waits_for_lock = false;
	Datum			 *pids;
	int				  n;

	/*
	 * pg_blocking_pids() takes all partitions of the lock table, so it is not called for a
	 * process that does not wait, as an unlocked read of its PGPROC shows; one that begins to
	 * wait is seen in the next look.
	 */
	if (proc == NULL || (proc->statusFlags & PROC_IS_AUTOVACUUM) != 0 ||
		(((const volatile PGPROC *) proc)->waitLock == NULL && proc->lockGroupLeader == NULL))
		return;
	blockers =
		DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(process->pid)));

	/*
	 * The lock is read after the blockers: if it is the same as in an earlier look, it was the
	 * same in between.
	 */
	data = GetBlockerStatusData(process->pid);
	for (int i = 0; i < data->nlocks && !waits_for_lock; i++)
	{
		const LockInstanceData *instance = &data->locks[i];

		if (instance->leaderPid != process->pid || instance->waitLockMode == NoLock)
			continue;
		proc = BackendPidGetProc(instance->pid);
		if (proc == NULL)
			continue;
		process->tag = instance->locktag;
		process->mode = instance->waitLockMode;

		/*
		 * PostgreSQL sets waitStart a moment late: until then the lock distinguishes two
		 * waits.
		 */
		process->identity =
			hash_bytes_extended((const unsigned char *) &instance->locktag, sizeof(LOCKTAG),
								pg_atomic_read_u64(&proc->waitStart) + instance->waitLockMode);
		waits_for_lock = true;
	}
	if (!waits_for_lock)
		return;
	deconstruct_array(blockers, INT4OID, sizeof(int32), true, TYPALIGN_INT, &pids, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		if (DatumGetInt32(pids[i]) != 0) /* 0 is a prepared transaction */
			wait_graph_connect(&waits->graph, process->vertex,
							   get_process(waits, DatumGetInt32(pids[i]))->vertex);
	}
}

/* Returns the processes for which a process waits, as far as it has been explored. */
static List *
blockers_of(const Waits *waits, const WaitsProcess *process)
{
	const WaitGraph *graph = &waits->graph;
	List			*blockers = NIL;

	for (int e = graph->vertices[process->vertex].first[WAIT_FROM]; e != WAIT_GRAPH_NONE;
		 e = graph->edges[e].next[WAIT_FROM])
		blockers = lappend(blockers, list_nth(waits->processes, graph->edges[e].end[WAIT_TO]));
	return blockers;
}

/*
 * Adds the processes for which a process waits, those for which these wait, and so on,
 * unless they are in the graph already.  Returns the process.
 */
static WaitsProcess *
explore_waits(Waits *waits, int pid)
{
	WaitsProcess *self = get_process(waits, pid);
	List		 *found = list_make1(self);

	for (int i = 0; i < list_length(found); i++)
	{
		WaitsProcess	 *process = list_nth(found, i);
		EntryCopy *const *at = process->waiting;
		const EntryCopy	 *waiting = at ? *at : NULL;
		bool			  permit = waiting && waiting->request.kind == REQUEST_PERMIT;
		int				  n = 0;

		CHECK_FOR_INTERRUPTS();
		if (process->explored)
			continue;
		process->explored = true;
		if (waiting == NULL)
			add_heavy_wait(waits, process);

		/*
		 * A contender for a lock waits for all older ones of the path with which it conflicts,
		 * whether they hold or wait: ZooKeeper's order never changes.  The nearest exclusive one
		 * waits for all before it, or holds alone, so those need no edge, and a queue of n has
		 * about n edges.
		 *
		 * A contender for a permit needs some of the older ones to go, no matter which.  Permits
		 * of other clients count as if they might go at any time: they are in neither number
		 * (see permit_blocker() for the rule).
		 */
		while (waiting && at > waits->contenders)
		{
			const EntryCopy *older = *--at;
			bool			 exclusive = older->status.mode == LOCK_MODE_EXCLUSIVE;
			bool			 conflicts = older->request.pid != waiting->request.pid &&
							 (exclusive || waiting->status.mode == LOCK_MODE_EXCLUSIVE);

			if (strcmp(older->request.path, waiting->request.path) != 0)
				break;
			if (!permit && !conflicts)
				continue;
			wait_graph_connect(&waits->graph, process->vertex,
							   get_process(waits, older->request.pid)->vertex);
			n++;
			if (!permit && exclusive)
				break;
		}
		if (permit)
			waits->graph.vertices[process->vertex].needs = Max(n - permits_of(waiting) + 1, 0);
		found = list_concat(found, blockers_of(waits, process));
	}
	list_free(found);
	return self;
}

/*
 * Returns a number for the wait of a process, and for no other wait: if two looks find the
 * same number, the process has waited from one to the other.
 */
static uint64
identity_of(const WaitsProcess *process)
{
	uint64 parts[3] = {process->pid, 0, process->identity};

	if (process->waiting)
	{
		parts[1] = (*process->waiting)->index + 1;
		parts[2] = (*process->waiting)->generation;
	}
	return hash_bytes_extended((const unsigned char *) parts, sizeof(parts), 0);
}

/* Describes what a contender waits for, such as "ExclusiveLock on ZooKeeper path "/a"".  Palloc'd. */
char *
waits_describe_contender(const EntryCopy *waiting)
{
	return psprintf("%s on ZooKeeper path \"%s\"",
					waiting->request.kind != REQUEST_LOCK		  ? WAIT_FOR_PERMIT
					: waiting->status.mode == LOCK_MODE_EXCLUSIVE ? "ExclusiveLock"
																  : "ShareLock",
					lock_view_path(waiting));
}

/* Describes what a process waits for, such as "ShareLock on transaction 731".  Palloc'd. */
static char *
describe_process(const WaitsProcess *process)
{
	StringInfoData tag;
	const char	  *name;

	if (process->waiting)
		return waits_describe_contender(*process->waiting);
	initStringInfo(&tag);
	DescribeLockTag(&tag, &process->tag);
	name = GetLockmodeName((LOCKMETHODID) process->tag.locktag_lockmethodid, process->mode);
	return psprintf("%s on %s", name, tag.data);
}

/* ------------------------------------------------------------------------
 * A deadlock
 * ------------------------------------------------------------------------
 */

/* What an error says of a wait */
typedef struct WaitDescription
{
	int			pid;   /* 0: an unknown contender, which stands between two others */
	const char *where; /* the server of the process, as a phrase, or "" */
	const char *what;  /* what the process waits for */
	bool		is_ours;
} WaitDescription;

typedef WaitDescription (*WaitDescriber)(const void *arg, int vertex);

/*
 * Raises the error.  It shows who waits for whom, from the victim on; the log also gets the
 * queries of processes of this server.
 */
static void
deadlock_report(const WaitGraph *graph, int victim, WaitDescriber describe, const void *arg)
{
	StringInfoData cycle;
	StringInfoData queries;
	const char	  *shown;
	int			   at = victim;

	initStringInfo(&cycle);
	initStringInfo(&queries);
	do
	{
		WaitDescription wait = describe(arg, at);
		WaitDescription next = describe(arg, at = graph->vertices[at].parent);
		bool			behind = next.pid == 0;

		if (behind)
			next = describe(arg, at = graph->vertices[at].parent);
		appendStringInfo(&cycle, "%sProcess %d%s waits for %s%s; blocked by process %d%s.",
						 cycle.len > 0 ? "\n" : "", wait.pid, wait.where, wait.what,
						 behind ? " behind another contender" : "", next.pid, next.where);
		if (wait.is_ours)
			appendStringInfo(&queries, "\nProcess %d: %s", wait.pid,
							 pgstat_get_backend_current_activity(wait.pid, false));
	} while (at != victim);
	shown = display_utf8(cycle.data);
	ereport(ERROR, (errcode(ERRCODE_T_R_DEADLOCK_DETECTED), errmsg("deadlock detected"),
					errdetail_internal("%s", shown), errdetail_log("%s%s", shown, queries.data),
					errhint("See server log for query details.")));
}

static WaitDescription
describe_local(const void *arg, int vertex)
{
	const Waits		   *waits = arg;
	const WaitsProcess *process = list_nth(waits->processes, vertex);

	return (WaitDescription){.pid = process->pid,
							 .where = "",
							 .what = describe_process(process),
							 .is_ours = true};
}

/*
 * Raises an error if the session waits for itself by that entry, and is the one to give up.
 * The caller frees the memory.
 *
 * It looks twice at all processes for which the session waits.  The fingerprint is the same
 * in both looks only if the same waits are stuck.  A process that waits does nothing else,
 * so such a wait has lasted from one look to the other, and the process has kept what it
 * has.  Therefore all these waits existed together between the two looks.
 */
void
deadlock_check(int index)
{
	uint64 first = 0;

	for (int look = 1; look <= 2; look++)
	{
		Waits				waits;
		const WaitsProcess *self;
		uint64				fingerprint = 0;

		take_waits(&waits);
		self = explore_waits(&waits, MyProcPid);
		wait_graph_solve(&waits.graph);
		if (self->waiting == NULL || (*self->waiting)->index != index ||
			!wait_graph_is_victim(&waits.graph, self->vertex))
			return;

		/* a sum, since the order of vertices may differ */
		for (int i = 0; i < waits.graph.nvertices; i++)
		{
			if (waits.graph.vertices[i].stuck)
				fingerprint += identity_of(list_nth(waits.processes, i));
		}
		if (look == 2 && fingerprint == first)
			deadlock_report(&waits.graph, self->vertex, describe_local, &waits);
		first = fingerprint;
	}
}

/* ------------------------------------------------------------------------
 * What other servers need to know
 * ------------------------------------------------------------------------
 */

/* Returns the rank of a contender.  If several wait with one node, only the first has one. */
static WaitsRank
rank_of(const Waits *waits, int i)
{
	const EntryCopy *contender = waits->contenders[i];
	bool			 blocks_remote = contender->node.blocks_remote;

	if (contender->node.czxid == 0)
		return RANK_NONE;
	if (contender->status.state == ENTRY_GRANTED)
		return blocks_remote ? RANK_BLOCKS_REMOTE : RANK_HOLDER;
	if (contender->request.kind != REQUEST_LOCK || contender->status.mode != LOCK_MODE_EXCLUSIVE ||
		(i > 0 && waits->contenders[i - 1]->node.cohort_id == contender->node.cohort_id))
		return RANK_NONE;
	return blocks_remote ? RANK_BETWEEN : RANK_WRITER;
}

/*
 * Appends a text as the last field.  Control characters become blanks, and a text that is
 * too long is clipped.
 */
static void
append_text(StringInfo record, const char *text)
{
	int start = record->len;

	appendBinaryStringInfo(record, text,
						   pg_encoding_mbcliplen(PG_UTF8, text, strlen(text), WAIT_RECORD_MAX_TEXT));
	for (char *at = record->data + start; *at != '\0'; at++)
	{
		if ((unsigned char) *at < ' ' || *at == 0x7F)
			*at = ' ';
	}
	appendStringInfoChar(record, '\n');
}

/*
 * Takes the waits of this server, in the current memory context.  Returns the record of
 * them, or NULL if there is nothing that others need to know.
 *
 *	seen	highest zxid of a record that has been read before
 */
static const char *
own_waits_write(Waits *waits, int64 seen)
{
	WaitGraph	  *graph = &waits->graph;
	StringInfoData record;
	List		  *order = NIL; /* the processes for the record */
	bool		   remote = false;
	bool		   matters = false;
	ListCell	  *cell;

	take_waits(waits);
	for (int i = 0; i < waits->ncontenders; i++)
	{
		const EntryCopy *contender = waits->contenders[i];
		WaitsProcess	*process = explore_waits(waits, contender->request.pid);

		process->rank = Max(process->rank, rank_of(waits, i));

		/*
		 * It goes on only when others do if it has waited for another server or client for
		 * deadlock_timeout.  A contender that will be refused because others are there does
		 * not wait.
		 */
		if (process->waiting != &waits->contenders[i] || contender->status.state != ENTRY_QUEUED ||
			contender->node.czxid == 0 || !contender->node.waits_remote ||
			zklock_ms_since(contender->request.requested_us) < deadlock_search->deadlock_timeout)
			continue;
		remote = true;
		graph->vertices[process->vertex].needs = WAIT_GRAPH_NEVER;
	}

	/* Which processes cannot go on if no wait for others ends? */
	wait_graph_solve(graph);
	foreach(cell, waits->processes)
	{
		const WaitsProcess *process = lfirst(cell);

		matters |= graph->vertices[process->vertex].stuck && process->rank >= RANK_BETWEEN;
	}
	if (!remote || !matters)
		return NULL;

	/* These, those of the highest rank first, and after each rank all for which they wait */
	for (WaitsRank rank = RANK_BLOCKS_REMOTE; rank > RANK_NONE; rank--)
	{
		List *found = NIL;

		foreach(cell, waits->processes)
		{
			WaitsProcess *process = lfirst(cell);

			if (process->rank == rank)
				found = lappend(found, process);
		}
		for (int n = 0; n < list_length(found); n++)
		{
			WaitsProcess *process = list_nth(found, n);

			if (process->in_record || !graph->vertices[process->vertex].stuck)
				continue;
			process->in_record = true;
			order = lappend(order, process);
			found = list_concat(found, blockers_of(waits, process));
		}
	}

	initStringInfo(&record);
	appendStringInfo(&record, WAIT_RECORD_TITLE "\t%llx\t0\t0\t\t", (unsigned long long) seen);
	append_text(&record, zklock_own_name());
	for (int n = 0; n < list_length(order); n++)
	{
		const WaitsProcess *process = list_nth(order, n);
		const EntryCopy	   *waiting = process->waiting ? *process->waiting : NULL;
		bool				permit = waiting && waiting->request.kind == REQUEST_PERMIT;
		int					start = record.len;
		int					share = (WAIT_RECORD_MAX - start) / (list_length(order) - n);
		bool				any = false;

		appendStringInfo(&record, "wait\t%llx\t%d\t%d\t", (unsigned long long) identity_of(process),
						 process->pid, permit ? permits_of(waiting) : 0);
		if (waiting && waiting->node.czxid != 0)
			appendStringInfo(&record, "%s/%s", waiting->request.path, waiting->node.name);
		appendStringInfoChar(&record, '\t');
		append_text(&record, describe_process(process));

		/* The nodes of a semaphore show who has its permits. */
		foreach(cell, permit ? NIL : blockers_of(waits, process))
		{
			const WaitsProcess *blocker = lfirst(cell);

			if (graph->vertices[blocker->vertex].stuck)
				appendStringInfo(&record, "for\t0\t%d\t0\t\t\n", blocker->pid);
		}

		/*
		 * It may need more than its share: one node that it holds is always there, others only
		 * as far as they fit.
		 */
		for (WaitsRank rank = RANK_BLOCKS_REMOTE; rank >= RANK_HOLDER; rank--)
		{
			for (int i = 0; i < waits->ncontenders; i++)
			{
				const EntryCopy *held = waits->contenders[i];

				if (held->request.pid != process->pid || rank_of(waits, i) != rank ||
					(any && record.len >= start + share))
					continue;
				appendStringInfo(&record, "held\t0\t0\t0\t%s/%s\t\n", held->request.path,
								 held->node.name);
				any = true;
			}
		}

		/* If there is no room for it, it is left out. */
		if (record.len > WAIT_RECORD_MAX)
		{
			record.len = start;
			record.data[start] = '\0';
		}
	}
	return record.data;
}

/* ------------------------------------------------------------------------
 * The records of all servers
 *
 * The session that searches for its server keeps the records that it has read for later
 * searches: a record never changes, but is replaced by another one.  It belongs to the
 * ZooKeeper session whose id is in its name, and which owns the node.
 *
 * Our own is the marker node of this session's calls, so the worker, or the next one,
 * deletes it when the session no longer wants it, even if the session has exited.
 * ------------------------------------------------------------------------
 */

static ReadRecord *records[MAX_RECORDS + 1]; /* one more, as ours is always read */
static int		   nrecords;

static char own_name[RECORD_NAME_LENGTH + 1]; /* name of the record that this session has
											   * published, or "" */

/* Withdraws the record of this session, if it has one. */
static void
withdraw_record(void)
{
	if (own_name[0] != '\0')
		call_slot_give_up();
	own_name[0] = '\0';
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

/* Forgets the records that are not among n names; with none of these, all. */
static void
forget_other_records(char *const *names, int n)
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

/* Reads the records that exist.  Returns false if they cannot be had now. */
static bool
read_wait_records(WaitSearch *search)
{
	CallStep  list = {.asked = {.kind = ZK_GET_CHILDREN, .path = WAIT_RECORD_ROOT}};
	CallStep *steps = palloc0((MAX_RECORDS + 1) * sizeof(CallStep));
	int		  n = 0;

	if (!wait_search_make_calls(search, &list, 1, CALL_AFTER_SYNC) ||
		(list.result.outcome != CALL_OK && list.result.outcome != CALL_NO_NODE))
		return false;
	search->has_root = list.result.outcome == CALL_OK;
	forget_other_records(list.children, list.result.nchildren);

	/*
	 * The new ones are read, our own among them.  One with our ZooKeeper session's id is
	 * deleted if this session has published another one.  Until it has published one, the
	 * record of the session that searched before stands, if it is valid.
	 */
	for (int i = 0; i < list.result.nchildren && n <= MAX_RECORDS; i++)
	{
		const char		 *name = list.children[i];
		const ReadRecord *known = find_record(name);
		int64			  session = wait_record_session(name);
		bool			  stray = own_name[0] != '\0' ? strcmp(name, own_name) != 0
													  : known && known->text[0] == '\0';
		bool fits = nrecords + n < MAX_RECORDS + (strcmp(name, own_name) == 0 ? 1 : 0);

		stray = stray && session == search->session && search_is_ours(search->index);
		if (session == 0 || (!stray && (known || !fits)))
			continue;
		steps[n++] = (CallStep){.asked = {.kind = stray ? ZK_DELETE : ZK_GET_DATA,
										  .path = psprintf("%s/%s", WAIT_RECORD_ROOT, name),
										  .most = WAIT_RECORD_MAX}};
	}
	if (!wait_search_make_calls(search, steps, n, CALL_AS_KNOWN))
		return false;

	/* Each is kept in one piece.  If it is not valid, its text is empty. */
	for (int i = 0; i < n; i++)
	{
		const char *name = steps[i].asked.path + strlen(WAIT_RECORD_ROOT "/");
		Size		length;
		ReadRecord *record;

		if (steps[i].asked.kind != ZK_GET_DATA)
			continue;
		length = wait_record_lines(&steps[i]) ? steps[i].result.text_length : 0;
		record = MemoryContextAllocZero(TopMemoryContext, offsetof(ReadRecord, text) + length + 1);
		strlcpy(record->name, name, sizeof(record->name));
		record->owner = wait_record_session(name);
		record->czxid = steps[i].result.stat.czxid;
		if (length > 0)
			memcpy(record->text, steps[i].read, length);
		records[nrecords++] = record;
	}
	if (find_record(own_name) == NULL)
		withdraw_record();

	/* The search takes the newest valid one of each session. */
	for (int i = 0; i < nrecords; i++)
	{
		ReadRecord *record = records[i];
		bool		is_newest = record->text[0] != '\0';

		record->lines = NULL;
		for (int k = 0; k < nrecords; k++)
		{
			const ReadRecord *other = records[k];

			if (other->text[0] != '\0' && other->owner == record->owner &&
				other->czxid > record->czxid)
				is_newest = false;
		}
		if (!is_newest)
			continue;
		search->records = lappend(search->records, record);
		search->seen = Max(search->seen, record->czxid);
	}
	return true;
}

/* ------------------------------------------------------------------------
 * Which session searches
 *
 * It is named by its entry.  Another session takes over when that one no longer waits, or
 * has not looked here for too long.  A session that stops waiting names a successor and
 * wakes it, and a session that finds that another one's wait is to be given up has that one
 * search.
 * ------------------------------------------------------------------------
 */

/*
 * Takes search_lock.  Returns false if its holder seems to have been stopped: who waits for an
 * LWLock can be neither cancelled nor terminated.
 */
static bool
lock_search(void)
{
	for (int tries = 0; !LWLockConditionalAcquire(search_lock, LW_EXCLUSIVE); tries++)
	{
		if (tries == LOCK_TRIES)
			return false;
		pg_usleep(1000);
	}
	if (ZKLOCK_FAULT("stop-search"))
		(void) raise(SIGSTOP);
	return true;
}

/*
 * Returns true if the session of this entry, which waits, is the one that searches.  If the
 * one that did waits no more, or has been silent for too long, this one takes over.
 *
 *	findings	set to what the last search has left, if that can be read
 */
static bool
take_search_over(int index, SearchFindings *findings)
{
	DeadlockSearch *search = deadlock_search;
	int64			now = zklock_now_ms();
	bool			is_ours;

	if (!lock_search())
		return false;
	if (search->searcher == ENTRY_NONE || entry_status(search->searcher).state != ENTRY_QUEUED ||
		entry_generation(search->searcher) != search->generation || now - search->alive_at > SILENCE_MS)
	{
		search->searcher = index;
		search->generation = entry_generation(index);
	}
	is_ours = search->searcher == index;
	if (is_ours)
		search->alive_at = now;
	if (is_ours && pg_atomic_exchange_u32(&search->reloaded, 0) != 0)
		search->findings.next_at = 0;
	*findings = search->findings;
	LWLockRelease(search_lock);
	return is_ours;
}

/*
 * Has the session of another entry search from now on, or none for ENTRY_NONE, if the
 * session of this entry does now.  The other one is woken; it may be the same.  If the lock
 * cannot be had, another session takes over later, and what was found is found again.
 *
 *	findings	what the search has left, or NULL if there was none
 */
static void
pass_search_on(int index, int next, const SearchFindings *findings)
{
	DeadlockSearch *search = deadlock_search;
	bool			was_ours;

	if (!lock_search())
		return;
	was_ours = search->searcher == index;
	if (was_ours)
	{
		search->searcher = next;
		search->generation = next == ENTRY_NONE ? 0 : entry_generation(next);
		search->alive_at = zklock_now_ms();
		if (findings)
			search->findings = *findings;
	}
	LWLockRelease(search_lock);
	if (was_ours && next != ENTRY_NONE)
		entry_set_owner_latch(entry_at(next));
}

/* ------------------------------------------------------------------------
 * Suspects
 * ------------------------------------------------------------------------
 */

static WaitDescription
describe_recorded(const void *arg, int vertex)
{
	const WaitSearch *search = arg;
	const SearchWait *wait;

	if (vertex >= search->nwaits)
		return (WaitDescription){.pid = 0}; /* an unknown contender */
	wait = &search->waits[vertex];
	return (WaitDescription){.pid = wait->line->pid,
							 .where = psprintf(" of server \"%s\"", wait->record->lines->text),
							 .what = wait->line->text,
							 .is_ours = wait->record->owner == search->session};
}

/*
 * Weighs each deadlock that a wait of ours is to end, by the records of all waits for which
 * that one waits: those merely behind it do not matter.  If several are confirmed, they take
 * turns, so that a session that is stopped, and so does not give up, hides no other deadlock.
 */
static void
judge_deadlocks(WaitSearch *search, Waits *own)
{
	const WaitVertex *vertices = search->graph.vertices;
	SearchFindings	 *findings = &search->findings;
	SearchFindings	  before = *findings; /* what earlier searches have found */
	int				  victim = WAIT_GRAPH_NONE;
	Suspicion		 *chosen = NULL;
	int				  chosen_entry = ENTRY_NONE;

	for (int i = 0; i < search->nwaits; i++)
	{
		if (vertices[i].reached)
			search->newest = Max(search->newest, search->waits[i].record->czxid);
	}
	findings->nsuspicions = 0;
	for (int self = 0; self < search->nwaits; self++)
	{
		const WaitLine	   *line = search->waits[self].line;
		const WaitsProcess *process;
		Suspicion			now = {.fingerprint = 0};
		int64 seen = PG_INT64_MAX; /* the writers of all these records had read up to this zxid
									* before they looked */
		Suspicion *kept;
		int		   at;

		/* The process must still be in the wait that our record shows. */
		if (!wait_search_is_victim(search, self))
			continue;
		process = explore_waits(own, line->pid);
		if (process->waiting == NULL || identity_of(process) != line->number)
			continue;
		for (int i = 0; i < search->nwaits; i++)
		{
			const SearchWait *wait = &search->waits[i];

			if (!vertices[i].reached)
				continue;
			now.fingerprint += wait->line->number * 31 + (uint64) wait->record->owner;
			now.newest = Max(now.newest, wait->record->czxid);
			seen = Min(seen, (int64) wait->record->lines->number);
		}
		for (int i = 0; i < before.nsuspicions; i++)
		{
			if (before.suspicions[i].fingerprint == now.fingerprint)
				now = before.suspicions[i];
		}
		if (findings->nsuspicions == MAX_SUSPICIONS)
			continue;
		kept = &findings->suspicions[findings->nsuspicions++];
		*kept = now;
		if (kept->searches++ == 0)
			findings->searches = 0;
		else if (seen >= now.newest)
		{
			/* It is confirmed.  Does the cycle lead through an unknown contender? */
			for (at = vertices[self].parent; at != self && at < search->nwaits;)
				at = vertices[at].parent;
			if ((at == self || now.searches >= PATIENT_SEARCHES) &&
				(chosen == NULL || kept->passes < chosen->passes))
			{
				victim = self;
				chosen = kept;
				chosen_entry = (*process->waiting)->index;
			}
		}
	}
	findings->searches = search->newest != 0 ? findings->searches + 1 : 0;
	if (chosen == NULL)
		return;
	chosen->passes++;

	/*
	 * If the wait is another session's, that one searches from now on, and comes to the same
	 * conclusion.
	 */
	search->next = chosen_entry;
	if (search->next == search->index && wait_search_is_victim(search, victim))
		deadlock_report(&search->graph, victim, describe_recorded, search);
}

/* ------------------------------------------------------------------------
 * A search
 * ------------------------------------------------------------------------
 */

/* Returns true if the session has something else to do than to wait for an answer. */
static bool
is_called_away_from_search(void *arg)
{
	const WaitSearch *search = arg;
	SearchFindings	  findings;

	return entry_status(search->index).state != ENTRY_QUEUED || InterruptPending ||
		   !zklock_connected() || zklock_now_ms() >= search->call.until ||
		   !take_search_over(search->index, &findings);
}

/*
 * Searches once, and publishes a new record of this server's waits in place of the old one, if
 * others need it.  Returns at once when the session has something else to do.
 */
static void
search_once(WaitSearch *search)
{
	CallStep ask_engine = {.asked = {.kind = ZK_REMOTE_WAITS, .path = "/"}};
	CallStep step = {.asked = {.kind = ZK_PUBLISH}};
	CallStep root = {.asked = {.kind = ZK_CREATE, .node_kind = ZK_CONTAINER, .path = WAIT_RECORD_ROOT}};
	const CallStep	 *refused = NULL;
	Waits			  own;
	const ReadRecord *ours;
	const char		 *text = NULL;
	uint32			  number;
	bool			  is_answered;

	if (!wait_search_make_calls(search, &ask_engine, 1, CALL_AS_KNOWN) ||
		ask_engine.result.outcome != CALL_OK)
		return;

	/*
	 * Our waits are taken after the records of others were read; before, too, if these may
	 * not be needed.
	 */
	if (own_name[0] != '\0' || own_waits_write(&own, 0))
	{
		if (!read_wait_records(search))
			return;
		text = own_waits_write(&own, search->seen);
	}
	if (text == NULL)
	{
		search->findings.searches = search->findings.nsuspicions = 0;
		withdraw_record();
		return;
	}
	if (!wait_search(search))
		return;
	judge_deadlocks(search, &own);

	/*
	 * The record that stands serves if it says the same, and that those of the stuck waits had
	 * been read.  The server's name, in the first line, is not compared.
	 */
	ours = find_record(own_name);
	if (ours && ours->lines && (int64) ours->lines[0].number >= search->newest &&
		strcmp(strchr(ours->text, '\n'), strchr(text, '\n')) == 0)
		return;
	if (!search_is_ours(search->index) || !pg_strong_random(&number, sizeof(number)))
		return;

	/* The node below which all records are is created, unless zklock.parent_nodes forbids it. */
	if (deadlock_search->parent_nodes == PARENTS_PERSISTENT)
		root.asked.node_kind = ZK_PERSISTENT;
	if (!search->has_root && deadlock_search->parent_nodes != PARENTS_EXISTING &&
		wait_search_make_calls(search, &root, 1, CALL_AS_KNOWN))
	{
		if (root.result.outcome == CALL_REFUSED)
			refused = &root;
		search->has_root = root.result.outcome == CALL_OK || root.result.outcome == CALL_NODE_EXISTS;
	}
	snprintf(own_name, sizeof(own_name), "%016llx-%08x", (unsigned long long) search->session, number);
	step.asked.data = text;
	step.asked.path = step.asked.marker = psprintf("%s/%s", WAIT_RECORD_ROOT, own_name);
	is_answered = wait_search_make_calls(search, &step, 1, CALL_AS_KNOWN);
	if (is_answered && step.result.outcome == CALL_OK)
	{
		search->findings.refusal_is_logged = false;
		search->lost_record = false;
		return;
	}

	/*
	 * The old record, or the root, may be gone by now: the next search sees that.  If ZooKeeper
	 * refuses to create a node, that is logged, once until it has created one.
	 */
	if (refused == NULL && is_answered && (step.result.outcome != CALL_NO_NODE || !search->has_root))
		refused = &step;
	if (refused && !search->findings.refusal_is_logged)
	{
		ereport(LOG_SERVER_ONLY,
				(errmsg("could not %s ZooKeeper node \"%s\": %s",
						refused == &root ? "create" : "create nodes below", WAIT_RECORD_ROOT,
						zk_error(refused->result.code).name),
				 errdetail("Deadlocks across servers are not found."),
				 errhint("Create the node, with rights for all servers to create, read and delete nodes below it.")));
		search->findings.refusal_is_logged = true;
	}
	withdraw_record();
}

static int64 next_at; /* when the next search is due, ms */

/*
 * Searches for deadlocks across servers, in a session that waits with that entry, if a
 * search is due and no other session searches.  To be called when the session has waited for
 * deadlock_timeout, or another one has passed the search on to it.  The caller frees the memory.
 *
 *	until	when it has something else to do, ms
 *
 * Returns when it is to be called next, ms.
 */
int64
deadlock_across_attend(int index, int64 until)
{
	WaitSearch search = {.index = index, .next = index, .graph.resize = resize_graph};
	int		   pause;

	if (!take_search_over(index, &search.findings))
	{
		/* Our record stands until the session that searches now may have published its own. */
		if (zklock_now_ms() >= next_at && search.findings.next_at > next_at)
		{
			withdraw_record();
			forget_other_records(NULL, 0);
		}
		return search_is_ours(index) ? next_at : NEVER;
	}

	/*
	 * Where waits soon end many sessions take over, but search no more often than one
	 * would.
	 */
	next_at = search.findings.next_at;
	if (zklock_now_ms() < next_at)
		return next_at;
	search.call = (Caller){.until = Min(until, zklock_now_ms() + PATIENCE_MS),
						   .is_called_away = is_called_away_from_search,
						   .away_arg = &search};
	if (zklock_connected() && lease_state() == LEASE_HOLDS)
		search_once(&search);
	if (search.lost_record)
		withdraw_record();

	/* Soon, if there is a suspicion. */
	pause = deadlock_search->deadlock_timeout;
	if (search.findings.searches > 0 && search.findings.searches <= HASTY_SEARCHES)
		pause /= HASTE;
	next_at = zklock_now_ms() + Max(pause, SHORTEST_PAUSE_MS);

	/* The session that is to give up searches at once. */
	search.findings.next_at = search.next == index ? next_at : 0;
	pass_search_on(index, search.next, &search.findings);

	/* Makes the wait look at its entry again: the search has reset the latch. */
	SetLatch(MyLatch);
	return search_is_ours(index) ? next_at : NEVER;
}

/*
 * Ends the part of a session in the search when its wait has ended, for whatever reason.
 * Cannot fail.
 */
void
deadlock_across_leave(int index)
{
	/*
	 * The next is the one that has waited longest, if one has waited for deadlock_timeout.  It
	 * will probably go on waiting, so searches follow each other even where most waits soon
	 * end.
	 */
	if (search_is_ours(index))
	{
		int64 since = zklock_now_us() - INT64CONST(1000) * DeadlockTimeout;
		int	  next = ENTRY_NONE;

		for (int i = 0; i < entry_pool->max_entries; i++)
		{
			const EntryRequest *request = &entry_at(i)->request;

			if (i != index && entry_status(i).state == ENTRY_QUEUED &&
				request->proc_number != ENTRY_NO_LATCH && request->manner == ASK_AND_WAIT &&
				request->requested_us <= since)
			{
				next = i;
				since = request->requested_us;
			}
		}
		pass_search_on(index, next, NULL);
	}
	withdraw_record();
	forget_other_records(NULL, 0);
}
