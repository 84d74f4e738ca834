/*
 * log_context.c
 *		What the worker's log lines say of where they come from.
 *
 * Each has a CONTEXT: ZooKeeper session and server, while there is a session; and
 * while the worker sees to a path or an answer, that path, and the process of the
 * session for which ZooKeeper was asked.
 *
 * Runs in: the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/queue.h"
#include "worker/log_context.h"
#include "worker/session_status.h"
#include "zk/zk_call.h"
#include "zk/zk_flow.h"

/* Called for each message.  Must not fail. */
static void
add_context(void *arg)
{
	int			pid = ZK_WORKER;
	const char *path = zk_flow_answering(&pid);

	if (session_status_id() != 0)
		errcontext("ZooKeeper session 0x%llx, server %s",
				   (unsigned long long) session_status_id(), zklock_session->info.server);
	if (path == NULL)
		path = queue_attended_path();
	if (path && pid != ZK_WORKER)
		errcontext("path \"%s\", for process %d", path, pid);
	else if (path)
		errcontext("path \"%s\"", path);
}

/* From now on, for as long as the process lives. */
void
worker_log_context_start(void)
{
	static ErrorContextCallback context = {.callback = add_context};

	context.previous = error_context_stack;
	error_context_stack = &context;
}
