/*
 * session_info.h
 *		The ZooKeeper session, as all processes may know it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SESSION_INFO_H
#define ZKLOCK_SESSION_INFO_H

#include "datatype/timestamp.h"
#include "recipes/node_name.h"
#include "shared/limits.h"
#include "storage/lwlock.h"

#define ZKLOCK_ENDED_SESSIONS 16

typedef enum SessionState
{
	SESSION_DOWN, /* no client handle: not started, or retrying */
	SESSION_CONNECTING,
	SESSION_CONNECTED,
	SESSION_AUTH_FAILED /* ZooKeeper refused our credentials */
} SessionState;

/* What zk_session shows and a restarted worker needs. */
typedef struct SessionInfo
{
	SessionState state;
	int64		 id; /* 0 if there is no session */
	char		 password[ZKLOCK_PASSWORD_SIZE];
	char		 chroot[ZKLOCK_MAX_PATH + 1]; /* the session's */
	char		 server[128];				  /* host:port we are connected to */
	int			 negotiated_timeout;		  /* ms */
	int			 shortest_timeout;			  /* ms, that it ever had: the lease's */
	TimestampTz	 connected_since;
	int64		 reconnects;
	int64		 expirations;
	char		 last_error[ZKLOCK_ERROR_SIZE];
	TimestampTz	 last_error_at;
	char obstacle[ZKLOCK_ERROR_SIZE]; /* why nothing is granted now; empty if nothing is in the way */
	TimestampTz obstacle_since;
} SessionInfo;

/*
 * The settings that the session runs with, which may be others than those that are
 * set: what could cost the session waits until no lock is held.
 */
typedef struct SessionSettings
{
	bool   known; /* else no worker has run yet */
	char   servers[ZKLOCK_SERVERS_SIZE];
	char   auth_file[MAXPGPATH];
	char   tls_ca_file[MAXPGPATH]; /* TLS is on if it is not empty */
	char   tls_cert_file[MAXPGPATH];
	char   tls_key_file[MAXPGPATH];
	uint64 tls_fingerprint; /* of these files; 0 without TLS */
	int	   session_timeout; /* ms, asked for */
	int	   tick_time;		/* ms */
	int	   acl;				/* a ZklockAcl */
} SessionSettings;

/* All of it is written by the worker alone. */
typedef struct SharedSession
{
	/*
	 * Written under zklock_session_lock, and read by others under it.  The worker
	 * may read what it has written without.
	 */
	SessionInfo info;

	/* Read by the worker alone, and by the next one, under no lock */
	SessionSettings settings;
	int				failures; /* connections in a row that came to nothing */
	int64			ended[ZKLOCK_ENDED_SESSIONS]; /* ids of our sessions, newest first */
} SharedSession;

/* In shared memory */
extern SharedSession *zklock_session;

/*
 * Protects zklock_session->info, of which there is too much to be copied under a
 * spinlock.  It is held for one copy, and nothing that can fail is done under it;
 * so the worker may take it when it exits.
 */
extern LWLock *zklock_session_lock;

/* At the start */
extern void session_info_keep_secret(void);

/* Any process */
extern void session_info_read(SessionInfo *info);
extern bool zklock_connected(void);

/* The worker */
extern void session_info_ended(int64 id);
extern bool session_info_has_ended(int64 id);

#endif /* ZKLOCK_SESSION_INFO_H */
