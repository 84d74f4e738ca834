/*
 * zk_greeting.c
 *		The read that a server must answer before its connection counts.
 *
 * The library takes whatever arrives first for the answer to its handshake, and
 * calls that connected.  So we ask for something, and wait for an answer, while
 * the connection is UNCONFIRMED or GREETED (zk_connection.c).
 *
 * A server may sit on a request until the next one comes (trap 5), so the read is
 * repeated.  The library gives a connection up in time that is not answered, but
 * not if it took the time from something that is no ZooKeeper server.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/clock.h"
#include "zk/zk_connection.h"
#include "zk/zk_greeting.h"

#define AGAIN_MS 400

static uintptr_t number = ZK_OF_GREETING; /* of the read */
static int64	 begun_at;				  /* ms */
static int64	 again_at;				  /* ms */

static bool
is_unanswered(void)
{
	return zk_connection_state() == ZK_CONNECTION_UNCONFIRMED ||
		   zk_connection_state() == ZK_CONNECTION_GREETED;
}

static void
send_read(void)
{
	char root[] = "/";
	Call read = {.kind = CALL_NUDGE, .path = root, .number = number};

	again_at = zklock_now_ms() + AGAIN_MS;
	(void) zk_connection_send(&read);
}

/* A connection stands: asks for an answer.  Those of earlier ones do not count. */
void
zk_greeting_begin(void)
{
	number = ZK_OF_GREETING | (number + 1);
	begun_at = zklock_now_ms();
	send_read();
}

/* Is it the reply to the read of the connection that stands, and the first? */
bool
zk_greeting_is_answer(const Event *reply)
{
	return is_unanswered() && reply->number == number && zk_error_outcome(reply->code) != ZK_UNKNOWN;
}

/* When zk_greeting_attend() wants to run next at the latest, ms; or -1. */
int64
zk_greeting_next_wakeup(void)
{
	return is_unanswered() ? again_at : -1;
}

/* Is a session that nobody has confirmed without an answer for longer than it could live? */
bool
zk_greeting_is_hopeless(void)
{
	return zk_connection_state() == ZK_CONNECTION_UNCONFIRMED &&
		   zklock_now_ms() >= begun_at + zk_connection_config()->session_timeout;
}

/* Asks again if there is no answer. */
void
zk_greeting_attend(void)
{
	if (is_unanswered() && zklock_now_ms() >= again_at)
		send_read();
}
