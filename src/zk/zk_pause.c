/*
 * zk_pause.c
 *		Pauses between connections that end without an answer.
 *
 * A server that hangs up after the handshake (a jute.maxbuffer too small for our
 * watches, a proxy) is connected to again at once by the library, ten times a
 * second if need be.  So connections that end before a server has answered a
 * read are counted, and from the second one in a row on the library has to pause.
 *
 * It offers no way to ask for that.  But it has a pause of its own, too short
 * and of fixed length, when it has tried all servers, and says so in its log
 * right before.  Its I/O thread calls our log function then and can be held up
 * there, as it is idle without a connection.  If a later release of the library
 * uses other words, there are no pauses, and nothing else changes.
 *
 * Runs in: the worker; the main thread unless a function says otherwise.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <pthread.h>

#include "zk/zk_pause.h"

/* The first pause; each is twice as long as the one before, up to a limit. */
#define FIRST_PAUSE_MS 200
#define MAX_PAUSE_MS 10000 /* or a third of the session timeout */
#define MAX_DOUBLINGS 8

/* After so many failures to connect, the next are no matter of unanswered connections. */
#define MAX_REFUSALS 2

static int	unanswered; /* connections in a row that ended without an answer */
static int	refusals;	/* in a row: failures before a connection stood */
static bool answered;	/* the last connection has been */

static pthread_mutex_t pause_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  pause_over = PTHREAD_COND_INITIALIZER;
static int			   pause_ms; /* under pause_mutex: how long the library is to pause */

/*
 * The library's I/O thread, about to log this: pauses, if the library is about
 * to do so itself, for as long as set_pause() says.
 */
void
zk_pause_hold(const char *log_message)
{
	struct timespec until;

	if (strstr(log_message, ": Delaying connection after") == NULL)
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

/* How long the library is to pause from now on, ms; 0 ends a pause, too. */
static void
set_pause(int ms)
{
	pthread_mutex_lock(&pause_mutex);
	pause_ms = ms;
	if (ms == 0)
		pthread_cond_broadcast(&pause_over);
	pthread_mutex_unlock(&pause_mutex);
}

/* A connection stands. */
void
zk_pause_connected(void)
{
	answered = false;
	refusals = 0;
}

/* A server has answered. */
void
zk_pause_answered(void)
{
	answered = true;
	unanswered = 0;
}

/* A connection that stood is gone. */
void
zk_pause_hung_up(int session_timeout_ms)
{
	int longest = Min(MAX_PAUSE_MS, session_timeout_ms / 3);

	if (!answered)
		unanswered++;
	if (unanswered < 2)
		set_pause(0);
	else
		set_pause(Min(FIRST_PAUSE_MS << Min(unanswered - 2, MAX_DOUBLINGS), longest));
}

/*
 * A connection has failed before it stood.  What one thread of the library says
 * of that may come before the other has told of the connection, hence a few.
 */
void
zk_pause_refused(void)
{
	if (++refusals < MAX_REFUSALS)
		return;
	unanswered = 0;
	set_pause(0);
}

/* The library is not to pause any more: its handle is about to be closed. */
void
zk_pause_end(void)
{
	set_pause(0);
}

/* Do so many connections end without an answer that there are pauses? */
bool
zk_pause_is_due(void)
{
	return unanswered > 1;
}
