/*
 * log_context.h
 *		What the worker's log lines say of where they come from.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WORKER_LOG_CONTEXT_H
#define ZKLOCK_WORKER_LOG_CONTEXT_H

extern void worker_log_context_start(void);

#endif /* ZKLOCK_WORKER_LOG_CONTEXT_H */
