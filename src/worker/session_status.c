/*
 * session_status.c
 *		The state of the ZooKeeper session, for all processes to see.
 *
 * The view zk_session shows it, errors tell of it, and the next worker goes on
 * from it.  This file alone writes it.
 *
 * Runs in: the worker.  SessionInfo is written under zklock_session_lock, in
 * exclusive mode.  The worker alone writes it, so it may read a field without the
 * lock; session_info_read() copies all of them but the password.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "utils/timestamp.h"
#include "worker/inside.h"

static ChrootState chroot_state = CHROOT_EXISTS; /* as ZooKeeper has answered last */

/* Begins to change what is known; nothing may fail before end_change(). */
static SessionInfo *
begin_change(void)
{
	LWLockAcquire(zklock_session_lock, LW_EXCLUSIVE);
	return &zklock_session->info;
}

static void
end_change(void)
{
	LWLockRelease(zklock_session_lock);
}

void
session_status_set_state(SessionState state)
{
	begin_change()->state = state;
	end_change();
}

/* Takes note of an error: a sentence without its period. */
void
session_status_set_error(const char *message)
{
	TimestampTz	 now = GetCurrentTimestamp();
	SessionInfo *session = begin_change();

	strlcpy(session->last_error, message, sizeof(session->last_error));
	session->last_error_at = now;
	end_change();
}

/* A connection stands, of this session. */
void
session_status_connected(const SessionInfo *session)
{
	*begin_change() = *session;
	end_change();
}

void
session_status_expired(void)
{
	begin_change()->expirations++;
	end_change();
}

/* There is no session any more. */
void
session_status_forget(void)
{
	SessionInfo *session = begin_change();

	session->id = 0;
	memset(session->password, 0, sizeof(session->password));
	end_change();
}

/*
 * ZooKeeper has answered whether the chroot exists.  The log tells when that
 * changes.
 */
void
session_status_set_chroot(ChrootState state)
{
	const char *chroot = zklock_session->info.chroot;

	if (state == chroot_state)
		return;
	chroot_state = state;
	if (state == CHROOT_EXISTS)
		ereport(LOG, (errmsg("the chroot \"%s\" in \"zklock.servers\" exists now", chroot)));
	else
	{
		ereport(WARNING,
				(errmsg("the chroot \"%s\" in \"zklock.servers\" does not exist in ZooKeeper", chroot),
				 errhint("Create the chroot node in ZooKeeper, or correct \"zklock.servers\".")));
		session_status_set_error("the chroot in \"zklock.servers\" does not exist");
	}
}

/* Says why no lock is granted: a sentence or two, or "" if nothing is in the way. */
static void
set_obstacle(const char *text)
{
	SessionInfo *session = begin_change();

	if (ZKLOCK_FAULT("fail-status"))
		elog(ERROR, "fault: fail-status");
	if (session->obstacle[0] == '\0')
		session->obstacle_since = GetCurrentTimestamp();
	strlcpy(session->obstacle, text, sizeof(session->obstacle));
	end_change();
}

/*
 * Shows what is in the way of granting locks, if that has changed: in zk_session, and
 * in the errors of sessions that wait in vain.  It follows from the session's state,
 * the chroot and the lease.
 */
void
session_status_attend(void)
{
	const SessionInfo *session = &zklock_session->info;
	char			   text[ZKLOCK_ERROR_SIZE] = "";

	if (session->state == SESSION_AUTH_FAILED)
		snprintf(text, sizeof(text), "ZooKeeper refuses to serve: %s.", session->last_error);
	else if (session->state != SESSION_CONNECTED)
		snprintf(text, sizeof(text), "There is no connection to ZooKeeper%s%s.",
				 session->last_error[0] != '\0' ? ": " : "", session->last_error);
	else if (chroot_state == CHROOT_MISSING)
		strlcpy(text, "The chroot in \"zklock.servers\" does not exist.", sizeof(text));
	else if (lease_state() != LEASE_HOLDS && !lease_is_possible())
		lease_describe_timeout(text, sizeof(text));
	else if (lease_state() != LEASE_HOLDS)
		snprintf(text, sizeof(text),
				 "The connection to ZooKeeper server %s stands, but the session is not proved to be alive.",
				 session->server);
	if (strcmp(text, session->obstacle) != 0)
		set_obstacle(text);
}
