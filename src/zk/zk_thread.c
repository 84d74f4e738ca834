/*
 * zk_thread.c
 *		Threads of our own, and the signals that no thread may take.
 *
 * Work that takes long and cannot be interrupted (to look up a name, to talk to a
 * server, to close a handle) is done by a thread of our own, one for each time,
 * which ends when it has pushed an event (zk_event.c).
 *
 * Signals are meant for the main thread: PostgreSQL's handlers must not run in
 * another one.  A thread inherits what its creator blocks, so all signals are
 * blocked while one is created, by us or by the client library.
 *
 * Runs in: the worker's main thread.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <pthread.h>

#include "zk/zk_thread.h"

/* Blocks all signals; "former" gets what zk_thread_restore_signals() needs. */
void
zk_thread_block_signals(sigset_t *former)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, former);
}

void
zk_thread_restore_signals(const sigset_t *former)
{
	pthread_sigmask(SIG_SETMASK, former, NULL);
}

/*
 * Starts a thread that nobody waits for.  Returns false if that fails; "arg" is
 * the caller's then, else the thread's.
 */
bool
zk_thread_start(void *(*run)(void *arg), void *arg)
{
	pthread_t thread;
	sigset_t  former;
	bool	  started;

	zk_thread_block_signals(&former);
	started = pthread_create(&thread, NULL, run, arg) == 0;
	zk_thread_restore_signals(&former);
	if (started)
		pthread_detach(thread);
	return started;
}
