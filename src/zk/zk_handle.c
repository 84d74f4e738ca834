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
 * The library connects again at once, but for a little pause when it has tried all
 * servers.  It logs that in its I/O thread, which can be held up there for longer.
 *
 * Runs in: the worker; the main thread unless a function says otherwise.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "zk/zk_handle.h"

/* What the closing thread is given. */
typedef struct Closing
{
	zhandle_t *handle;
	uintptr_t  epoch;
} Closing;

static pthread_mutex_t pause_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  pause_over = PTHREAD_COND_INITIALIZER;
static int			   pause_ms; /* under pause_mutex */

/* How long the library is to pause from now on, ms.  0 ends a pause. */
void
zk_handle_set_pause(int ms)
{
	pthread_mutex_lock(&pause_mutex);
	pause_ms = ms;
	if (ms == 0)
		pthread_cond_broadcast(&pause_over);
	pthread_mutex_unlock(&pause_mutex);
}

/*
 * Any thread: the library logs a message.  If it is about to pause, without a
 * connection, it does so for longer.
 */
void
zk_handle_pause(const char *message)
{
	struct timespec until;

	if (strstr(message, ": Delaying connection after") == NULL)
		return;
	(void) clock_gettime(CLOCK_REALTIME, &until);
	pthread_mutex_lock(&pause_mutex);
	until.tv_sec += pause_ms / 1000;
	until.tv_nsec += pause_ms % 1000 * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	while (pause_ms > 0 && pthread_cond_timedwait(&pause_over, &pause_mutex, &until) == 0)
		;
	pthread_mutex_unlock(&pause_mutex);
}

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
