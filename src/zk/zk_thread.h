/*
 * zk_thread.h
 *		Threads of our own, and the signals that no thread may take.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_THREAD_H
#define ZKLOCK_ZK_THREAD_H

#include <signal.h>

extern bool zk_thread_start(void *(*run)(void *arg), void *arg);
extern void zk_thread_block_signals(sigset_t *former);
extern void zk_thread_restore_signals(const sigset_t *former);

#endif /* ZKLOCK_ZK_THREAD_H */
