/*
 * obstacle.c
 *		What keeps locks from being granted.
 *
 * The obstacle follows from the session's state, the chroot and the lease.  Once
 * per round the main loop looks whether it is still the same; if not, zk_session
 * and the errors of sessions that wait in vain tell of the new one.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/lease_state.h"
#include "shared/session_info.h"
#include "worker/lease.h"
#include "worker/obstacle.h"
#include "worker/session_status.h"

typedef enum Obstacle
{
	OBSTACLE_UNKNOWN, /* a new worker has not looked yet */
	OBSTACLE_NONE,
	OBSTACLE_NO_CONNECTION,
	OBSTACLE_REFUSED,
	OBSTACLE_NO_CHROOT,
	OBSTACLE_NO_LEASE_POSSIBLE,
	OBSTACLE_NO_LEASE
} Obstacle;

static Obstacle shown = OBSTACLE_UNKNOWN;
static uint64	shown_errors; /* session_status_errors() at that time */

static Obstacle
current_obstacle(void)
{
	SessionState state = session_status_state();

	if (state == SESSION_AUTH_FAILED)
		return OBSTACLE_REFUSED;
	if (state != SESSION_CONNECTED)
		return OBSTACLE_NO_CONNECTION;
	if (session_status_chroot() == CHROOT_MISSING)
		return OBSTACLE_NO_CHROOT;
	if (lease_state() == LEASE_HOLDS)
		return OBSTACLE_NONE;
	return lease_is_possible() ? OBSTACLE_NO_LEASE : OBSTACLE_NO_LEASE_POSSIBLE;
}

static void
describe(Obstacle obstacle, char *text, size_t size)
{
	SessionInfo session;

	session_info_read(&session);
	text[0] = '\0';
	switch (obstacle)
	{
		case OBSTACLE_UNKNOWN:
		case OBSTACLE_NONE:
			break;
		case OBSTACLE_NO_CONNECTION:
			if (session.last_error[0] != '\0')
				snprintf(text, size, "There is no connection to ZooKeeper: %s.", session.last_error);
			else
				strlcpy(text, "There is no connection to ZooKeeper.", size);
			break;
		case OBSTACLE_REFUSED:
			snprintf(text, size, "ZooKeeper refuses to serve: %s.", session.last_error);
			break;
		case OBSTACLE_NO_CHROOT:
			strlcpy(text, "The chroot in \"zklock.servers\" does not exist.", size);
			break;
		case OBSTACLE_NO_LEASE_POSSIBLE:
			lease_describe_timeout(text, size);
			break;
		case OBSTACLE_NO_LEASE:
			snprintf(text, size,
					 "The connection to ZooKeeper server %s stands, but the session is not proved to be alive.",
					 session.server);
			break;
	}
}

/* Shows what is in the way of granting locks, if that has changed. */
void
worker_obstacle_attend(void)
{
	Obstacle obstacle = current_obstacle();
	char	 text[ZKLOCK_ERROR_SIZE];

	/* The description may quote the last error. */
	if (obstacle == shown && session_status_errors() == shown_errors)
		return;
	shown = obstacle;
	shown_errors = session_status_errors();
	describe(obstacle, text, sizeof(text));
	session_status_set_obstacle(text);
}
