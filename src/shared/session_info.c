/*
 * session_info.c
 *		The ZooKeeper session, as all processes may know it.
 *
 * Runs in: all processes; the header says what protects what.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <sys/mman.h>
#include <unistd.h>

#include "shared/lease_state.h"
#include "shared/session_info.h"
#include "shared/worker_process.h"

SharedSession *zklock_session = NULL;
LWLock		  *zklock_session_lock = NULL;

/*
 * The postmaster: keeps the password of the ZooKeeper session out of core files, of
 * this process and those that inherit its memory.  Only whole pages can be left
 * out; what lies beside it on that page goes with it.  Nothing is worse if that
 * fails, as it does with huge pages.
 */
void
session_info_keep_secret(void)
{
	uintptr_t page = (uintptr_t) sysconf(_SC_PAGESIZE);
	uintptr_t begin = (uintptr_t) zklock_session->info.password;
	uintptr_t end = begin + sizeof(zklock_session->info.password);

	begin -= begin % page;
	(void) madvise((void *) begin, TYPEALIGN(page, end) - begin, MADV_DONTDUMP);
}

/* Copies what is known of the session, but for its password, which is the worker's alone. */
void
session_info_read(SessionInfo *info)
{
	LWLockAcquire(zklock_session_lock, LW_SHARED);
	*info = zklock_session->info;
	LWLockRelease(zklock_session_lock);
	explicit_bzero(info->password, sizeof(info->password));
}

/* Is a worker running, and in touch with a quorum of ZooKeeper's servers? */
bool
zklock_connected(void)
{
	SessionState state;

	LWLockAcquire(zklock_session_lock, LW_SHARED);
	state = zklock_session->info.state;
	LWLockRelease(zklock_session_lock);
	return zklock_worker_pid() != 0 && state == SESSION_CONNECTED && lease_state() == LEASE_HOLDS;
}

/* Remembers the id of a session of ours that has ended. */
void
session_info_ended(int64 id)
{
	int64 *ended = zklock_session->ended;

	memmove(ended + 1, ended, (ZKLOCK_ENDED_SESSIONS - 1) * sizeof(int64));
	ended[0] = id;
}

/* Is it the id of a session of ours that has ended? */
bool
session_info_has_ended(int64 id)
{
	for (int i = 0; i < ZKLOCK_ENDED_SESSIONS; i++)
	{
		if (id != 0 && zklock_session->ended[i] == id)
			return true;
	}
	return false;
}
