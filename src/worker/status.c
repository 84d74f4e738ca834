/*
 * status.c
 *		What zk_session and errors tell of the session.
 *
 * The state and the last error are set as they come.  The obstacle, which says
 * why nothing is granted, follows from both and from the lease: the main loop
 * looks whether another one is in the way now.
 *
 * Runs in: the worker.  SessionInfo is written under ZklockShared.mutex, by the
 * worker alone, which may read what it has written without.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/lease_state.h"
#include "shared/settings.h"
#include "utils/timestamp.h"
#include "worker/lease.h"
#include "worker/status.h"

typedef enum Obstacle
{
	OBSTACLE_NONE,
	OBSTACLE_NO_CONNECTION,
	OBSTACLE_REFUSED,
	OBSTACLE_NO_CHROOT,
	OBSTACLE_NO_LEASE_POSSIBLE,
	OBSTACLE_NO_LEASE
} Obstacle;

static Obstacle shown = OBSTACLE_NONE;
static bool		changed; /* what an obstacle's text tells of */
static bool		chroot_missing;

/* A new worker: what the one before it knew may be different now. */
void
status_start(void)
{
	changed = true;
}

void
status_set_state(SessionState state)
{
	LWLockAcquire(zklock_session_lock, LW_EXCLUSIVE);
	zklock_shared->session.state = state;
	LWLockRelease(zklock_session_lock);
}

/* Takes note of an error: a sentence without its period. */
void
status_set_error(const char *message)
{
	TimestampTz now = GetCurrentTimestamp();

	LWLockAcquire(zklock_session_lock, LW_EXCLUSIVE);
	strlcpy(zklock_shared->session.last_error, message, ZKLOCK_ERROR_SIZE);
	zklock_shared->session.last_error_at = now;
	LWLockRelease(zklock_session_lock);
	changed = true;
}

/*
 * ZooKeeper has answered whether the chroot exists, if there is one.  The log
 * tells when that changes.
 */
void
status_set_chroot_exists(bool exists)
{
	const char *chroot = zklock_shared->session.chroot;

	if (exists != chroot_missing)
		return;
	chroot_missing = !exists;
	if (exists)
		ereport(LOG, (errmsg("the chroot \"%s\" in \"zklock.servers\" exists now", chroot)));
	else
	{
		ereport(WARNING,
				(errmsg("the chroot \"%s\" in \"zklock.servers\" does not exist in ZooKeeper", chroot),
				 errhint("Create the chroot node in ZooKeeper, or correct \"zklock.servers\".")));
		status_set_error("the chroot in \"zklock.servers\" does not exist");
	}
}

/* What is in the way of granting locks? */
static Obstacle
current_obstacle(const SessionInfo *session)
{
	if (session->state == SESSION_AUTH_FAILED)
		return OBSTACLE_REFUSED;
	if (session->state != SESSION_CONNECTED)
		return OBSTACLE_NO_CONNECTION;
	if (chroot_missing)
		return OBSTACLE_NO_CHROOT;
	if (lease_state() == LEASE_HOLDS)
		return OBSTACLE_NONE;
	return lease_is_possible() ? OBSTACLE_NO_LEASE : OBSTACLE_NO_LEASE_POSSIBLE;
}

static void
describe(Obstacle obstacle, const SessionInfo *session, char *text, size_t size)
{
	text[0] = '\0';
	switch (obstacle)
	{
		case OBSTACLE_NONE:
			break;
		case OBSTACLE_NO_CONNECTION:
			if (session->last_error[0] != '\0')
				snprintf(text, size, "There is no connection to ZooKeeper: %s.", session->last_error);
			else
				strlcpy(text, "There is no connection to ZooKeeper.", size);
			break;
		case OBSTACLE_REFUSED:
			snprintf(text, size, "ZooKeeper refuses to serve: %s.", session->last_error);
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
					 session->server);
			break;
	}
}

/* Shows what is in the way of granting locks, if that has changed. */
void
status_attend(void)
{
	const SessionInfo *session = &zklock_shared->session;
	Obstacle		   obstacle = current_obstacle(session);
	char			   text[ZKLOCK_ERROR_SIZE];

	if (obstacle == shown && !changed)
		return;
	describe(obstacle, session, text, sizeof(text));
	shown = obstacle;
	changed = false;
	LWLockAcquire(zklock_session_lock, LW_EXCLUSIVE);
	strlcpy(zklock_shared->session.obstacle, text, ZKLOCK_ERROR_SIZE);
	LWLockRelease(zklock_session_lock);
}
