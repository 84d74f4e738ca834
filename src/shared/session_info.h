/*
 * session_info.h
 *		The worker, its ZooKeeper session and the lease, as all processes see them, and the
 *		marks that show the worker what to look at.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SESSION_INFO_H
#define ZKLOCK_SESSION_INFO_H

#include "compat.h"
#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "shared/common.h"

#define ZKLOCK_ENDED_SESSIONS 16
#define ZKLOCK_NO_WORKER PG_UINT32_MAX

/* An obstacle, with a place for the name of a server */
#define SESSION_UNPROVED \
	"The connection to ZooKeeper server %s stands, but the session is not proved to be alive."

typedef enum SessionState
{
	SESSION_DOWN, /* no client handle: not started, or retrying */
	SESSION_CONNECTING,
	SESSION_CONNECTED,
	SESSION_AUTH_FAILED /* ZooKeeper refused our credentials */
} SessionState;

/* What zk_session shows and a restarted worker needs */
typedef struct SessionInfo
{
	SessionState state;
	int64		 id; /* 0 if there is no session */
	char		 password[ZKLOCK_PASSWORD_SIZE];
	char		 chroot[ZKLOCK_MAX_PATH + 1]; /* the session's */
	char		 server[128];				  /* host:port we are connected to */
	int			 negotiated_timeout;		  /* ms */
	int			 shortest_timeout;			  /* ms, the shortest ever negotiated; the lease
											   * goes by it */
	TimestampTz	 connected_since;
	int64		 reconnects;
	int64		 expirations;
	char		 last_error[ZKLOCK_ERROR_SIZE];
	TimestampTz	 last_error_at;
	char		 obstacle[ZKLOCK_ERROR_SIZE]; /* why no lock is granted now; empty if locks are
											   * granted */
	int64		 obstacle_since;			  /* by zklock_now_us() */
} SessionInfo;

/* What is known about the session, and so about the locks held in it */
typedef enum LeaseState
{
	LEASE_HOLDS,	 /* the session lives */
	LEASE_SUSPENDED, /* it may have ended without our knowing */
	LEASE_OVER		 /* it counts as ended */
} LeaseState;

/*
 * The settings with which the session runs.  They may differ from those that are set: a
 * change waits until no lock is held.
 */
typedef struct SessionSettings
{
	char	 servers[ZKLOCK_SERVERS_SIZE];
	char	 auth_file[ZKLOCK_FILE_SIZE];
	TlsFiles tls;
	int		 session_timeout; /* ms, asked for */
	int		 tick_time;		  /* ms */
	int		 acl;			  /* a ZklockAcl */
} SessionSettings;

/* Written by the worker alone */
typedef struct SharedSession
{
	/* The number of the worker's process, or ZKLOCK_NO_WORKER.  Under no lock */
	pg_atomic_uint32 worker;

	/*
	 * Times by zklock_now_us(), 0 for none.  Under no lock; session_info.c says in which
	 * order they are written and read.
	 */
	pg_atomic_uint64 lease_until; /* when the lease ends */
	pg_atomic_uint64 lease_over;  /* when locks held under it count as lost */

	/*
	 * Others copy it until they find the same even version before and after; the state alone
	 * is one word.  So neither side ever waits for the other.
	 */
	pg_atomic_uint32 version; /* grows with each change of "info"; odd during it */
	SessionInfo		 info;

	/* Read by the worker alone, and by the next one, under no lock */
	SessionSettings settings;
	char addresses[ZKLOCK_ADDRESSES_SIZE]; /* of settings.servers, when last looked up; or "" */
	bool  settings_work;				   /* a server has answered with these */
	int	  failures;						   /* failed connections in a row */
	int64 ended[ZKLOCK_ENDED_SESSIONS];	   /* ids of our sessions, newest first */
} SharedSession;

/* Marks: a bit for each of n things that the worker may have to look at, in that many words */
#define ZKLOCK_MARK_WORDS(n) (((n) + 63) / 64)
typedef void (*MarkVisitor)(int index);

/* In shared memory */
extern SharedSession *zklock_session;

/* At the start */
extern void session_info_attach(SharedSession *session, bool is_new);

/* Any process */
extern void		  session_info_read(SessionInfo *info);
extern bool		  zklock_connected(void);
extern int		  zklock_worker_pid(void);
extern void		  zklock_wake_worker(void);
extern LeaseState lease_state(void);

/* The worker */
extern void zklock_worker_ends(void);
extern void zklock_visit_marked(pg_atomic_uint64 *marks, int n, MarkVisitor visit);
extern void session_info_set_state(SessionState state);
extern void session_info_set_error(const char *message);
extern void session_info_set_obstacle(const char *text);
extern void session_info_publish(const SessionInfo *info);
extern void lease_publish(int64 until, int64 over);

/* Returns when the lease ends, us; 0 for none. */
static inline int64
lease_until(void)
{
	return (int64) pg_atomic_read_u64(&zklock_session->lease_until);
}

/* Returns when locks held under the lease count as lost, us; 0 for none. */
static inline int64
lease_over(void)
{
	return (int64) pg_atomic_read_u64(&zklock_session->lease_over);
}

/* Has the worker look at something in its next round.  Cannot fail, does not wait. */
static inline void
zklock_mark(pg_atomic_uint64 *marks, int index)
{
	pg_atomic_fetch_or_u64(&marks[index / 64], UINT64CONST(1) << (index % 64));
}

/* Returns the number of possible processes; each has a number below it. */
static inline int
zklock_max_processes(void)
{
	return MaxBackends + NUM_AUXILIARY_PROCS;
}

/* ------------------------------------------------------------------------
 * shmem.c: the parts of shared memory
 * ------------------------------------------------------------------------
 */

extern void zklock_shmem_install_hooks(void);
extern void zklock_shmem_startup(void);
extern void zklock_require_preload(void);

#endif /* ZKLOCK_SESSION_INFO_H */
