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

#include "backend/display.h"
#include "backend/wait.h"
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

/*
 * Looks at all for whom this session waits by that entry.  Returns what is the same
 * only for the same waits, or 0 if the session is not to give up.
 */
static uint64
take_look(Waits *waits, int index)
{
	const WaitsProcess *self;

	waits_take(waits);
	self = waits_explore(waits, MyProcPid);
	wait_graph_solve(&waits->graph);
	if (self->waiting == NULL || (*self->waiting)->index != index ||
		!wait_graph_is_victim(&waits->graph, self->vertex))
		return 0;
	return waits_fingerprint(waits);
}

/* Raises the error: who waits for whom, from this session on, and what they run */
static void
report(Waits *waits)
{
	StringInfoData cycle;
	StringInfoData queries;
	int			   self = waits_explore(waits, MyProcPid)->vertex;
	int			   at = self;

	initStringInfo(&cycle);
	initStringInfo(&queries);
	do
	{
		const WaitsProcess *process = waits_process(waits, at);

		at = waits->graph.vertices[at].parent;
		appendStringInfo(&cycle, _("%sProcess %d waits for %s; blocked by process %d."),
						 cycle.len > 0 ? "\n" : "", process->pid, waits_describe(process),
						 waits_process(waits, at)->pid);
		deadlock_append_query(&queries, process->pid);
	} while (at != self);
	deadlock_report(display_utf8(cycle.data), queries.data);
}

/*
 * Raises an error if the session waits for itself, by that entry, and is the one
 * to give up.  Memory is the caller's to free.
 */
void
deadlock_check(int index)
{
	Waits  waits;
	uint64 first = take_look(&waits, index);

	if (first != 0 && take_look(&waits, index) == first)
		report(&waits);
}
