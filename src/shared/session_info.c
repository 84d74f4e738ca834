/*
 * session_info.c
 *		The worker, its ZooKeeper session and the lease, as all processes see them, and the
 *		marks that show the worker what to look at.
 *
 * The worker proves that the session lives, and publishes until when (worker/lease.c).
 * This is a time on a clock that runs on while the machine sleeps, so it passes by itself,
 * whatever happens to the worker.  A second time says when locks held under that lease
 * count as lost.
 *
 * The two times are read without a lock.  Therefore a later end of the lease is written
 * after the time that goes with it, and read before: no process sees the former without the
 * latter.  A barrier stands between the two on either side.
 *
 * The lease and an entry's state are not read at one moment either.  A process that must
 * know that a lock is held reads the lease first.  If it holds, it is the lease under which
 * the lock was granted, or else the state that is read afterwards shows the loss: the
 * worker writes losses before it begins another lease.
 *
 * Runs in: all processes; the header says what protects what.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>
#include <sys/mman.h>

#include "fault.h"
#include "port/pg_bitutils.h"
#include "shared/session_info.h"
#include "utils/timestamp.h"

/* How often session_info_read() tries, once in a millisecond */
#define READ_TRIES 100

/* A worker that has not published for so long that the lease has lapsed does nothing. */
#define WORKER_LATE_MS 1000

#define NO_WORKER "The zklock worker is not running."
#define WORKER_STOPPED "The zklock worker has been stopped, or gets no processor time."

SharedSession *zklock_session = NULL;

/* Stores why no lock is granted from now on, or "" if nothing is in the way. */
static void
set_obstacle(SessionInfo *session, const char *text)
{
	if (session->obstacle[0] == '\0')
		session->obstacle_since = zklock_now_us();
	strlcpy(session->obstacle, text, sizeof(session->obstacle));
}

/*
 * Attaches to the memory, which is all zero if it is new.
 *
 * The password of the ZooKeeper session is kept out of core files of this process, the
 * postmaster, and of those that inherit its memory.  Only whole pages can be left out, so
 * their other contents are missing, too.  A failure is harmless, and normal with huge
 * pages.
 */
void
session_info_attach(SharedSession *session, bool is_new)
{
	uintptr_t page = (uintptr_t) sysconf(_SC_PAGESIZE);
	uintptr_t begin = (uintptr_t) session->info.password;
	uintptr_t end = begin + sizeof(session->info.password);

	begin -= begin % page;
	(void) madvise((void *) begin, TYPEALIGN(page, end) - begin, MADV_DONTDUMP);
	if (is_new)
	{
		set_obstacle(&session->info, NO_WORKER);
		pg_atomic_init_u32(&session->worker, ZKLOCK_NO_WORKER);
		pg_atomic_init_u32(&session->version, 0);
		pg_atomic_init_u64(&session->lease_until, 0);
		pg_atomic_init_u64(&session->lease_over, 0);
	}
	zklock_session = session;
}

/* ------------------------------------------------------------------------
 * The ZooKeeper session
 * ------------------------------------------------------------------------
 */

/*
 * Begins a change of the session's state.  The version stays odd if an earlier worker has
 * failed in the middle.
 */
static void
begin_change(void)
{
	pg_atomic_write_u32(&zklock_session->version, pg_atomic_read_u32(&zklock_session->version) | 1);
	pg_write_barrier();
}

static void
end_change(void)
{
	pg_write_barrier();
	pg_atomic_write_u32(&zklock_session->version, pg_atomic_read_u32(&zklock_session->version) + 1);
}

/*
 * Copies the session's state without its password, which only the worker may see.  A worker
 * publishes within a moment that the lease has lapsed; if it has not, it does nothing, and
 * the copy has that as its obstacle.  If it has been stopped while it writes, that is all
 * that the copy has.
 */
void
session_info_read(SessionInfo *info)
{
	int	   tries = 0;
	uint32 version;

	for (;;)
	{
		version = pg_atomic_read_u32(&zklock_session->version);
		pg_read_barrier();
		*info = zklock_session->info;
		if (ZKLOCK_FAULT("stop-view"))
			(void) raise(SIGSTOP);
		pg_read_barrier();
		if (version % 2 == 0 && pg_atomic_read_u32(&zklock_session->version) == version)
			break;
		if (++tries == READ_TRIES)
		{
			*info = (SessionInfo){.state = SESSION_DOWN,
								  .obstacle = WORKER_STOPPED,
								  .obstacle_since = zklock_now_us()};
			return;
		}
		pg_usleep(1000);
	}
	explicit_bzero(info->password, sizeof(info->password));
	if (info->obstacle[0] == '\0' && info->state == SESSION_CONNECTED && lease_state() != LEASE_HOLDS)
	{
		int64 until = lease_until();

		info->obstacle_since = until > 0 ? until : zklock_now_us();
		if (zklock_ms_since(info->obstacle_since) < WORKER_LATE_MS)
			snprintf(info->obstacle, sizeof(info->obstacle), SESSION_UNPROVED, info->server);
		else
			strlcpy(info->obstacle, WORKER_STOPPED, sizeof(info->obstacle));
	}
}

/* Returns true if a worker runs, is connected to ZooKeeper, and its lease holds. */
bool
zklock_connected(void)
{
	return zklock_worker_pid() != 0 && zklock_session->info.state == SESSION_CONNECTED &&
		   lease_state() == LEASE_HOLDS;
}

void
session_info_set_state(SessionState state)
{
	begin_change();
	zklock_session->info.state = state;
	end_change();
}

/* Stores an error: a sentence without its period. */
void
session_info_set_error(const char *message)
{
	SessionInfo *session = &zklock_session->info;

	begin_change();
	strlcpy(session->last_error, message, sizeof(session->last_error));
	session->last_error_at = GetCurrentTimestamp();
	end_change();
}

/* Stores why no lock is granted: a sentence or two, or "" if nothing is in the way. */
void
session_info_set_obstacle(const char *text)
{
	SessionInfo *session = &zklock_session->info;

	begin_change();
	if (ZKLOCK_FAULT("fail-status"))
		elog(ERROR, "fault: fail-status");
	set_obstacle(session, text);
	end_change();
}

/* Publishes a new state of the session. */
void
session_info_publish(const SessionInfo *info)
{
	begin_change();
	zklock_session->info = *info;
	if (ZKLOCK_FAULT("stop-status"))
		(void) raise(SIGSTOP);
	end_change();
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

/* Returns the worker's process id, or 0 if no worker runs. */
int
zklock_worker_pid(void)
{
	uint32 worker = pg_atomic_read_u32(&zklock_session->worker);

	return worker == ZKLOCK_NO_WORKER ? 0 : GetPGProcByNumber(worker)->pid;
}

/*
 * Sets the worker's latch, if a worker runs.  Cannot fail, does not wait.
 *
 * The caller has written its news under a spinlock, or by an atomic operation.  A barrier
 * stands between that and the look at "worker": a worker that is just starting is not
 * woken, but looks at everything there is.
 */
void
zklock_wake_worker(void)
{
	uint32 worker;

	pg_memory_barrier();
	worker = pg_atomic_read_u32(&zklock_session->worker);
	if (worker != ZKLOCK_NO_WORKER)
		SetLatch(&GetPGProcByNumber(worker)->procLatch);
}

/*
 * Calls "visit" for each mark that is set, of n.  A mark is cleared before its call, which
 * may set it again for the next round.
 */
void
zklock_visit_marked(pg_atomic_uint64 *marks, int n, MarkVisitor visit)
{
	for (int word = 0; word < ZKLOCK_MARK_WORDS(n); word++)
	{
		uint64 bits;

		if (pg_atomic_read_u64(&marks[word]) == 0)
			continue;
		bits = pg_atomic_exchange_u64(&marks[word], 0);
		for (; bits != 0; bits &= bits - 1)
			visit(word * 64 + pg_rightmost_one_pos64(bits));
	}
}

/* Shows that the worker exits.  Cannot fail. */
void
zklock_worker_ends(void)
{
	begin_change();
	zklock_session->info.state = SESSION_DOWN;
	set_obstacle(&zklock_session->info, NO_WORKER);
	end_change();
	pg_atomic_write_u32(&zklock_session->worker, ZKLOCK_NO_WORKER);
}

/* ------------------------------------------------------------------------
 * The lease
 * ------------------------------------------------------------------------
 */

/*
 * Returns the state of the lease.  What the caller reads afterwards is no older than that.
 *
 * "lease_until" is compared with a time taken after it was read, "lease_over" with one
 * taken before: so after LEASE_OVER, the worker cannot have renewed the lease.
 */
LeaseState
lease_state(void)
{
	int64 before = zklock_now_us();
	int64 until;
	int64 over;

	until = lease_until();
	pg_read_barrier();
	over = lease_over();
	pg_read_barrier();
	if (zklock_now_us() < until)
		return LEASE_HOLDS;
	return over != 0 && before >= over ? LEASE_OVER : LEASE_SUSPENDED;
}

/*
 * Publishes until when the lease holds, and when it is over; 0 for none.
 *
 * A later end is written last: no process sees it without the time that goes with it.  The
 * barrier also stands between the losses that the worker has written and the new end.  A lease
 * that is over for good, after those that held a lock under it have been notified of the loss,
 * ends first: a process that sees only one of the two times changed finds the lease over, or
 * suspended.
 */
void
lease_publish(int64 until, int64 over)
{
	if (until == 0)
	{
		pg_atomic_write_u64(&zklock_session->lease_until, 0);
		pg_write_barrier();
		pg_atomic_write_u64(&zklock_session->lease_over, (uint64) over);
	}
	else
	{
		pg_atomic_write_u64(&zklock_session->lease_over, (uint64) over);
		pg_write_barrier();
		pg_atomic_write_u64(&zklock_session->lease_until, (uint64) until);
	}
}
