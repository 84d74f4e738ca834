/*
 * deadlock.c
 *		The waits of this server: deadlocks among them, through zklock's locks and
 *		PostgreSQL's, and what of them other servers need to know.
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
 * servers is found by the session that searches for all (deadlock_across.c).  A process
 * that waits for anything else has no edges, such as a commit that waits for proof of its
 * locks, or a session that waits for a leader or for an element of a queue, which any
 * client may provide.  Neither has the startup process of a standby, which PostgreSQL does
 * not show here, nor autovacuum, which PostgreSQL cancels when it blocks somebody.
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
 * Runs in: backends; the record is written in the one that searches for all.  LWLocks are
 * held only while PostgreSQL copies from its lock table.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/view.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "compat.h"
#include "deadlock/deadlock.h"
#include "deadlock/deadlock_internal.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "shared/common.h"
#include "shared/deadlock_search.h"
#include "shared/settings.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"

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

static WaitsProcess *
process_at(const Waits *waits, int vertex)
{
	return list_nth(waits->processes, vertex);
}

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

/* Returns the vertices for which a process waits, as far as it has been explored. */
static List *
blockers_of(const Waits *waits, const WaitsProcess *process)
{
	const WaitGraph *graph = &waits->graph;
	List			*blockers = NIL;

	for (int e = graph->vertices[process->vertex].first[WAIT_FROM]; e != WAIT_GRAPH_NONE;
		 e = graph->edges[e].next[WAIT_FROM])
		blockers = lappend_int(blockers, graph->edges[e].end[WAIT_TO]);
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
	List		 *found = list_make1_int(self->vertex);

	for (int i = 0; i < list_length(found); i++)
	{
		WaitsProcess	 *process = process_at(waits, list_nth_int(found, i));
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

/*
 * Raises the error.  It shows who waits for whom, from the victim on; the log also gets the
 * queries of processes of this server.
 */
void
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
describe_local(const void *waits, int vertex)
{
	const WaitsProcess *process = process_at(waits, vertex);

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
				fingerprint += identity_of(process_at(&waits, i));
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

/*
 * Returns the contender with which a process waits if it is still in the wait of that
 * identity; else NULL.
 */
const EntryCopy *
own_waits_find(Waits *waits, int pid, uint64 identity)
{
	const WaitsProcess *process = explore_waits(waits, pid);

	return process->waiting && identity_of(process) == identity ? *process->waiting : NULL;
}

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
const char *
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
	for (int i = 0; i < graph->nvertices; i++)
		matters |= graph->vertices[i].stuck && process_at(waits, i)->rank >= RANK_BETWEEN;
	if (!remote || !matters)
		return NULL;

	/* These, those of the highest rank first, and after each rank all for which they wait */
	for (WaitsRank rank = RANK_BLOCKS_REMOTE; rank > RANK_NONE; rank--)
	{
		List *found = NIL;

		for (int i = 0; i < graph->nvertices; i++)
		{
			if (process_at(waits, i)->rank == rank)
				found = lappend_int(found, i);
		}
		for (int n = 0; n < list_length(found); n++)
		{
			WaitsProcess *process = process_at(waits, list_nth_int(found, n));

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
			if (graph->vertices[lfirst_int(cell)].stuck)
				appendStringInfo(&record, "for\t0\t%d\t0\t\t\n",
								 process_at(waits, lfirst_int(cell))->pid);
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
