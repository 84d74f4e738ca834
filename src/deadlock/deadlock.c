/*
 * deadlock.c
 *		Deadlocks on this server, through zklock's locks and PostgreSQL's.
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
 * not granted (add_contender_wait()), or for a lock of PostgreSQL (add_heavy_wait()).
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
 * same waits prove that these existed at the same time (fingerprint_of()).  The session
 * whose wait is the youngest in the cycle raises the error, in itself.  That needs no
 * signal, and no other session can come to the same conclusion about the same waits.
 *
 * The error is in PostgreSQL's words; the statements of the sessions go only to the
 * server's log.
 *
 * Runs in: backends.  LWLocks are held only while PostgreSQL copies from its lock table.
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
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"

/* ------------------------------------------------------------------------
 * The graph
 * ------------------------------------------------------------------------
 */

/* Returns how many permits the semaphore has, as far as is known. */
int
waits_permits(const EntryCopy *contender)
{
	int others = contender->status.others_permits;

	return others > 0 ? Min(others, contender->request.terms.permits)
					  : contender->request.terms.permits;
}

/* Enlarges a graph's array; a new one is in the current memory context. */
void *
waits_resize(void *memory, size_t size)
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

/* Adds the edge by which a process waits for another one. */
static void
add_wait(Waits *waits, const WaitsProcess *process, int blocker)
{
	wait_graph_connect(&waits->graph, process->vertex, get_process(waits, blocker)->vertex);
}

/* Copies the entries of sessions that wait or hold.  The graph has no edges at first. */
void
waits_take(Waits *waits)
{
	HASHCTL	 ctl = {.keysize = sizeof(int), .entrysize = sizeof(WaitsProcess), .hcxt = CurrentMemoryContext};
	LockView view = lock_view_take(NULL);

	*waits = (Waits){.contenders = view.entries, .graph.resize = waits_resize};
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

/*
 * Adds the processes for which a process waits by its contender.
 *
 * A contender for a lock waits for all older ones of the path with which it conflicts,
 * whether they hold or wait: ZooKeeper's order never changes.  The nearest exclusive one
 * waits for all before it, or holds alone, so those need no edge, and a queue of n has
 * about n edges.
 *
 * A contender for a permit needs some of the older ones to go, no matter which.  Permits of
 * other clients count as if they might go at any time: they are in neither number (see
 * permit_recipe.c for the rule).
 */
static void
add_contender_wait(Waits *waits, const WaitsProcess *process)
{
	EntryCopy *const *waiting = process->waiting;
	const EntryCopy	 *self = *waiting;
	bool			  permit = self->request.kind == REQUEST_PERMIT;
	int				  n = 0;

	while (waiting > waits->contenders)
	{
		const EntryCopy *older = *--waiting;
		bool			 exclusive = older->status.mode == LOCK_MODE_EXCLUSIVE;
		bool			 conflicts = older->request.pid != self->request.pid &&
						 (exclusive || self->status.mode == LOCK_MODE_EXCLUSIVE);

		if (strcmp(older->request.path, self->request.path) != 0)
			break;
		if (!permit && !conflicts)
			continue;
		add_wait(waits, process, older->request.pid);
		n++;
		if (!permit && exclusive)
			break;
	}
	if (permit)
		waits->graph.vertices[process->vertex].needs = Max(n - waits_permits(self) + 1, 0);
}

/*
 * Stores for which lock of PostgreSQL a process waits, itself or one that runs its query in
 * parallel.  Returns false if none waits.
 */
static bool
look_at_heavy_wait(WaitsProcess *process)
{
	BlockedProcsData *data = GetBlockerStatusData(process->pid);

	for (int i = 0; i < data->nlocks; i++)
	{
		const LockInstanceData *instance = &data->locks[i];
		PGPROC				   *proc = NULL;

		if (instance->leaderPid == process->pid && instance->waitLockMode != NoLock)
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
		return true;
	}
	return false;
}

/*
 * Adds the processes for which a process waits in PostgreSQL's locks, as pg_blocking_pids()
 * returns them; parallel workers count as their leader.
 *
 * That function takes all partitions of the lock table, so it is not called for a process
 * that does not wait, as an unlocked read of its PGPROC shows; one that begins to wait is
 * seen in the next look.  The lock is read after the blockers: if it is the same as in an
 * earlier look, it was the same in between.
 */
static void
add_heavy_wait(Waits *waits, WaitsProcess *process)
{
	const PGPROC *proc = BackendPidGetProc(process->pid);
	ArrayType	 *blockers;
	Datum		 *pids;
	int			  n;

	if (proc == NULL || (proc->statusFlags & PROC_IS_AUTOVACUUM) != 0 ||
		(((const volatile PGPROC *) proc)->waitLock == NULL && proc->lockGroupLeader == NULL))
		return;
	blockers =
		DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(process->pid)));
	if (!look_at_heavy_wait(process))
		return;
	deconstruct_array(blockers, INT4OID, sizeof(int32), true, TYPALIGN_INT, &pids, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		if (DatumGetInt32(pids[i]) != 0) /* 0 is a prepared transaction */
			add_wait(waits, process, DatumGetInt32(pids[i]));
	}
}

/* Returns the vertices for which a process waits, as far as it has been explored. */
List *
waits_blockers(const Waits *waits, const WaitsProcess *process)
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
WaitsProcess *
waits_explore(Waits *waits, int pid)
{
	WaitsProcess *self = get_process(waits, pid);
	List		 *found = list_make1_int(self->vertex);

	for (int i = 0; i < list_length(found); i++)
	{
		WaitsProcess *process = waits_process(waits, list_nth_int(found, i));

		CHECK_FOR_INTERRUPTS();
		if (process->explored)
			continue;
		process->explored = true;
		if (process->waiting)
			add_contender_wait(waits, process);
		else
			add_heavy_wait(waits, process);
		found = list_concat(found, waits_blockers(waits, process));
	}
	list_free(found);
	return self;
}

/* ------------------------------------------------------------------------
 * A deadlock
 * ------------------------------------------------------------------------
 */

/*
 * Returns a number for the wait of a process, and for no other wait: if two looks find the
 * same number, the process has waited from one to the other.
 */
uint64
waits_identity(const WaitsProcess *process)
{
	uint64 parts[3] = {process->pid, 0, process->identity};

	if (process->waiting)
	{
		parts[1] = (*process->waiting)->index + 1;
		parts[2] = (*process->waiting)->generation;
	}
	return hash_bytes_extended((const unsigned char *) parts, sizeof(parts), 0);
}

/*
 * Returns a number that is the same for two graphs only if the same waits are stuck.  A
 * process that waits does nothing else, so such a wait has lasted from one look to the
 * other, and the process has kept what it has.  Therefore all these waits existed together
 * between the two looks.
 */
static uint64
fingerprint_of(const Waits *waits)
{
	uint64 fingerprint = 0;

	/* a sum, since the order of vertices may differ */
	for (int i = 0; i < waits->graph.nvertices; i++)
	{
		if (waits->graph.vertices[i].stuck)
			fingerprint += waits_identity(waits_process(waits, i));
	}
	return fingerprint;
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
char *
waits_describe(const WaitsProcess *process)
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
	const WaitsProcess *process = waits_process(waits, vertex);

	return (WaitDescription){.pid = process->pid,
							 .where = "",
							 .what = waits_describe(process),
							 .is_ours = true};
}

/*
 * Looks at all processes for which this session waits by that entry.  Returns the
 * fingerprint of the waits, or 0 if the session is not to give up.
 */
static uint64
deadlock_look(Waits *waits, int index)
{
	const WaitsProcess *self;

	waits_take(waits);
	self = waits_explore(waits, MyProcPid);
	wait_graph_solve(&waits->graph);
	if (self->waiting == NULL || (*self->waiting)->index != index ||
		!wait_graph_is_victim(&waits->graph, self->vertex))
		return 0;
	return fingerprint_of(waits);
}

/*
 * Raises an error if the session waits for itself by that entry, and is the one to give up.
 * The caller frees the memory.
 */
void
deadlock_check(int index)
{
	Waits  waits;
	uint64 first = deadlock_look(&waits, index);

	if (first != 0 && deadlock_look(&waits, index) == first)
		deadlock_report(&waits.graph, waits_explore(&waits, MyProcPid)->vertex, describe_local, &waits);
}
