/*
 * deadlock.c
 *		Ends deadlocks in which this session waits.
 *
 * A session that waits for a lock of zklock's looks after deadlock_timeout whether
 * it waits for itself, through whatever locks of this server, and again, less and
 * less often (wait.c).  PostgreSQL's own check looks once, when a process has waited for
 * that time: the last to wait sees the whole cycle.  Here the last may wait for a
 * lock of PostgreSQL's, whose check knows nothing of ours; then one that has been
 * waiting for long must find it.
 *
 * Two looks, one after the other, that see the same waits prove that they were
 * there at once (waits.c).  The session whose wait is the youngest in the
 * cycle raises the error, in itself.  No signal is needed, and no other session
 * can come to the same conclusion about the same waits.
 *
 * A circle through other servers is found by the session that searches for all
 * (deadlock_across.c).
 *
 * The error is in PostgreSQL's words; the statements of the sessions go to the
 * server's log alone.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/deadlock.h"
#include "backend/display.h"
#include "backend/waits.h"
#include "compat.h"

/* Raises the error; what goes to the client goes to the log, too, with the queries. */
void
deadlock_report(const char *cycle, const char *queries)
{
	ereport(ERROR, (errcode(ERRCODE_T_R_DEADLOCK_DETECTED), errmsg("deadlock detected"),
					errdetail_internal("%s", cycle), errdetail_log("%s%s", cycle, queries),
					errhint("See server log for query details.")));
}

/* Adds what a process of this server runs, for the log. */
void
deadlock_append_query(StringInfo queries, int pid)
{
	appendStringInfo(queries, _("\nProcess %d: %s"), pid,
					 pgstat_get_backend_current_activity(pid, false));
}

/* The result of one look */
typedef struct Look
{
	Waits  waits;
	int	   self;  /* this session's vertex */
	bool   found; /* a cycle that this session is to end */
	uint64 fingerprint;
} Look;

/* Looks at all for whom this session waits by that entry. */
static void
take_look(Look *look, int index)
{
	const WaitsProcess *process;

	waits_take(&look->waits);
	look->self = waits_explore(&look->waits, MyProcPid);
	process = waits_process(&look->waits, look->self);
	wait_graph_solve(&look->waits.graph);
	look->found = process->waiting && process->waiting->index == index &&
				  wait_graph_is_victim(&look->waits.graph, look->self);
	look->fingerprint = waits_fingerprint(&look->waits);
}

/* The processes of the cycle, from this session on: who waits for what, and whom. */
static char *
describe_cycle(const Look *look)
{
	StringInfoData text;
	int			   at = look->self;

	initStringInfo(&text);
	do
	{
		const WaitsProcess *process = waits_process(&look->waits, at);

		at = look->waits.graph.vertices[at].parent;
		appendStringInfo(&text, _("%sProcess %d waits for %s; blocked by process %d."),
						 text.len > 0 ? "\n" : "", process->pid, waits_describe(process),
						 waits_process(&look->waits, at)->pid);
	} while (at != look->self);
	return display_utf8(text.data);
}

/* What the processes of the cycle run, for the log */
static char *
describe_queries(const Look *look)
{
	StringInfoData text;
	int			   at = look->self;

	initStringInfo(&text);
	do
	{
		deadlock_append_query(&text, waits_process(&look->waits, at)->pid);
		at = look->waits.graph.vertices[at].parent;
	} while (at != look->self);
	return text.data;
}

/*
 * Raises an error if the session waits for itself, by that entry, and is the one
 * to give up.
 */
void
deadlock_check(int index)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "zklock deadlock check",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Look		 *first = palloc(sizeof(Look));
	Look		 *second = palloc(sizeof(Look));

	take_look(first, index);
	if (first->found)
	{
		take_look(second, index);
		if (second->found && second->fingerprint == first->fingerprint)
			deadlock_report(describe_cycle(second), describe_queries(second));
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
