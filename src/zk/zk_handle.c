/*
 * zk_handle.c
 *		Handles of the client library: how they begin and end.
 *
 * A handle runs two threads of the library, in which signals are blocked, since
 * they are meant for the main thread.  It is given numeric addresses and never
 * resolves names.
 *
 * To close a handle takes up to some seconds with a server that hangs, and ends
 * its session if it is connected.  Where the main loop cannot wait for that, a
 * thread of our own does; EVENT_CLOSED tells when it is done.
 *
 * Runs in: the worker; the main thread unless a function says otherwise.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <pthread.h>
#include <signal.h>

#include "zk/zk_handle.h"

/* What the closing thread is given. */
typedef struct Closing
{
	zhandle_t *handle;
	uintptr_t  epoch;
} Closing;

/* Makes a handle, which begins to connect; NULL, with errno set, if it cannot. */
zhandle_t *
zk_handle_open(const ZkHandleOptions *options)
{
	zhandle_t *handle;
	sigset_t   all;
	sigset_t   old;
	int		   saved_errno;

	zoo_set_debug_level(ZOO_LOG_LEVEL_INFO);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	handle = zookeeper_init2(options->servers, options->watcher, options->session_timeout,
							 options->session, (void *) options->epoch, ZOO_NO_LOG_CLIENTENV,
							 options->log);
	saved_errno = errno;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (handle)
		zoo_set_servers_resolution_delay(handle, -1);
	errno = saved_errno;
	return handle;
}

/* A thread of its own, which ends with it */
static void *
closer_main(void *arg)
{
	Closing *closing = arg;
	Event	 event = {.kind = EVENT_CLOSED, .epoch = closing->epoch};

	(void) zookeeper_close(closing->handle);
	free(closing);
	zk_event_push(&event);
	return NULL;
}

/*
 * Closes a handle in a thread of its own, and with it its session if it is
 * connected.  EVENT_CLOSED with the handle's epoch follows.  Nobody may use the
 * handle any more.
 */
void
zk_handle_close_apart(zhandle_t *handle, uintptr_t epoch)
{
	Closing	 *closing = malloc(sizeof(Closing));
	pthread_t thread;
	sigset_t  all;
	sigset_t  old;
	bool	  started = false;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (closing)
	{
		closing->handle = handle;
		closing->epoch = epoch;
		started = pthread_create(&thread, NULL, closer_main, closing) == 0;
	}
	if (started)
		pthread_detach(thread);
	else
	{
		/* Rather wait than leave a session behind. */
		Event event = {.kind = EVENT_CLOSED, .epoch = epoch};

		(void) zookeeper_close(handle);
		free(closing);
		zk_event_push(&event);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/*
 * Any thread.  The library puts the level into the text, between the process
 * and the function: "...:ZOO_WARN@function@line: message".
 */
void
zk_handle_push_log(const char *message, uintptr_t epoch)
{
	Event		event = {.kind = EVENT_LOG, .epoch = epoch};
	const char *level = strstr(message, ":ZOO_");
	const char *text = level ? strstr(level, ": ") : NULL;

	event.code = level && strncmp(level, ":ZOO_ERROR@", 11) == 0 ? ZOO_LOG_LEVEL_ERROR
																 : ZOO_LOG_LEVEL_INFO;
	event.text = strdup(text ? text + 2 : message);
	if (event.text)
		zk_event_push(&event);
}
