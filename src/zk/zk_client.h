/*
 * zk_client.h
 *		The ZooKeeper client as the worker's main loop sees it: the session, and calls.
 *		It also declares, for every process, what errors and connect strings mean.
 *
 * This header is pure C, as some of the files behind it are.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_CLIENT_H
#define ZKLOCK_ZK_CLIENT_H

#include "shared/common.h"

/* ------------------------------------------------------------------------
 * connect_string.c: "host:port,host:port/chroot"
 * ------------------------------------------------------------------------
 */

#define CONNECT_STRING_NOWHERE "255.255.255.255:1" /* nobody can connect to it */

extern const char *connect_string_fault(const char *string);
extern const char *connect_string_chroot(const char *string);
extern int	connect_string_machine(const char *resolved, const char *address, size_t len);
extern bool connect_string_has_new(const char *resolved, const char *known);
extern bool connect_string_has_port(const char *resolved, const char *port);
extern bool connect_string_resolve(const char *string, char *resolved, size_t size);
extern void connect_string_for_library(const char *resolved, char *hosts, size_t size);

/* ------------------------------------------------------------------------
 * zk_answer.c: names and meanings of ZooKeeper's error codes
 * ------------------------------------------------------------------------
 */

/* The codes that other files use. */
#define ZK_CONNECTION_LOSS (-4)
#define ZK_UNIMPLEMENTED (-6)
#define ZK_API_ERROR (-100)
#define ZK_NO_AUTH (-102)
#define ZK_BAD_VERSION (-103)
#define ZK_NOT_EMPTY (-111)
#define ZK_EXPIRED (-112)
#define ZK_INVALID_ACL (-114)
#define ZK_AUTH_FAILED (-115)
#define ZK_CLOSING (-116)
#define ZK_LOCAL_SESSION (-120) /* ZEPHEMERALONLOCALSESSION */
#define ZK_NO_WATCHER (-121)
#define ZK_QUOTA_EXCEEDED (-125)
#define ZK_REQUIRES_AUTH (-124) /* ZSESSIONCLOSEDREQUIRESASLAUTH, since 3.7 */
#define ZK_THROTTLED (-127)		/* ZTHROTTLEDOP, since 3.7 */

/* What a code means */
typedef struct ZkError
{
	const char *name; /* that of an unknown code is valid until the next call */
	CallOutcome outcome;
	bool		lacks_permission; /* we lack one */
	bool		is_breakdown;	  /* something broke, so that it is not known what was done */
} ZkError;

extern ZkError zk_error(int code);

/* ------------------------------------------------------------------------
 * The session
 * ------------------------------------------------------------------------
 */

#define ZK_AUTH_SIZE 512
#define ZK_SERVER_SIZE 128

typedef struct ZkClientConfig
{
	bool	tls;			 /* with the files that zk_security_load() has read */
	bool	sasl;			 /* with what it has read, instead of credentials */
	int		session_timeout; /* ms, asked for */
	int		acl;			 /* a ZklockAcl, of nodes that are created */
	int64_t session_id;		 /* to resume, or 0 */
	char	session_password[ZKLOCK_PASSWORD_SIZE];
	char	auth_scheme[ZK_AUTH_SIZE]; /* "" for none */
	char	auth_credentials[ZK_AUTH_SIZE];
} ZkClientConfig;

/* The session of the connection, as the library knows it */
typedef struct ZkSession
{
	int64_t id;
	char	password[ZKLOCK_PASSWORD_SIZE];
	int		negotiated_timeout;		/* ms */
	char	server[ZK_SERVER_SIZE]; /* "address:port" */
} ZkSession;

typedef enum ZkWatchEvent
{
	ZK_WATCH_DELETED,
	ZK_WATCH_CHANGED, /* the node's data */
	ZK_WATCH_CHILDREN
} ZkWatchEvent;

/* What happens to the session; the worker acts on it. */
typedef enum ZkSessionEvent
{
	ZK_SESSION_CONNECTED,	 /* a server has accepted it */
	ZK_SESSION_DISCONNECTED, /* the library keeps trying by itself */
	ZK_SESSION_EXPIRED,		 /* the handle is gone */
	ZK_SESSION_AUTH_FAILED,	 /* the handle is gone */
	ZK_SESSION_SASL_FAILED,	 /* the handle is gone; a complaint has said why */
	ZK_SESSION_IN_DOUBT		 /* the handle is gone; the server may not be ZooKeeper */
} ZkSessionEvent;

typedef struct ZkClientCallbacks
{
	/* "session" is that of a connection that stands now, else NULL. */
	void (*session)(ZkSessionEvent event, const ZkSession *session);
	void (*watch)(ZkWatchEvent event, const char *path);

	/* The look-up is done: its addresses, or NULL; see zk_client_look_up(). */
	void (*looked_up)(uintptr_t lookup, const char *addresses);

	/* An answer is malformed; "fault" says why, as a sentence. */
	void (*malformed)(const char *fault);

	/* The library is stuck: another process must continue.  "why" is part of a sentence. */
	void (*stuck)(const char *why);

	/* A call that was sent has been answered, or given up, after "us" microseconds. */
	void (*answered)(CallOutcome outcome, int64_t us);

	/* A complaint about a server: a sentence without its period.  Only the first one of
	 * an outage is logged. */
	void (*complaint)(const char *message);
} ZkClientCallbacks;

/*
 * How far the connection is, as zk_client.c draws it; only src/zk changes that.  Calls may be
 * made from ZK_CONNECTED on.
 */
typedef enum ZkConnection
{
	ZK_NO_HANDLE,
	ZK_CONNECTING,
	ZK_CONNECTED, /* in the session */
	ZK_ANSWERED	  /* the server has answered on this connection */
} ZkConnection;

extern ZkConnection zk_connection;

extern int	zk_client_start(const ZkClientCallbacks *callbacks);
extern bool zk_client_open(const char *addresses, const ZkClientConfig *config);
extern bool zk_client_close(void);
extern bool zk_client_look_again(void);

/* zk_library.c */
extern uintptr_t zk_client_look_up(const char *servers);
extern bool		 zk_event_may_sleep(void);

/* zk_security.c */
extern char *zk_security_load(ZkClientConfig *config, const TlsFiles *tls, const char *auth_file);

/* The main loop */
extern void	   zk_client_dispatch(void);
extern int64_t zk_client_send(void);
extern bool	   zk_client_idle(void);

/* ------------------------------------------------------------------------
 * Making calls
 * ------------------------------------------------------------------------
 */

/* A reply.  What it points to is valid until the handler returns. */
typedef struct ZkReply
{
	const struct ZkCall *asked; /* the call that it answers */
	CallOutcome			 outcome;
	int					 code;	  /* ZooKeeper's, for zk_error() */
	int64_t				 sent_at; /* when the client library got the call, us; 0: never */
	bool		watching;	 /* GET_DATA, GET_CHILDREN: the requested watch is set; can be true
								  * even if the outcome is CALL_UNKNOWN */
	const char *path;		 /* CREATE, APPEND: the new node's path */
	NodeStat	stat;		 /* CREATE, SET_DATA, EXISTS, GET_DATA, GET_CHILDREN */
	const char *data;		 /* GET_DATA, GET_ACL */
	int			data_length; /* bytes of it */
	int			nchildren;	 /* GET_CHILDREN */
	char	  **children;
} ZkReply;

typedef void (*ZkReplyHandler)(void *arg, const ZkReply *reply);

typedef enum ZkNodeKind
{
	ZK_EPHEMERAL_SEQUENTIAL,
	ZK_EPHEMERAL,
	ZK_CONTAINER,
	ZK_PERSISTENT,
	ZK_PERSISTENT_SEQUENTIAL
} ZkNodeKind;

#define ZK_ANY_VERSION (-1)
#define ZK_WORKER 0 /* a pid: the call is for no session in particular */

/*
 * The PostgreSQL session that a call is made for.  Each role gets its share of the calls
 * under way, and each session its share of its role's.
 */
typedef struct ZkOwner
{
	int		 pid;
	uint32_t role;
} ZkOwner;

/*
 * A call: one operation on nodes.  Sessions say with it what they want of the worker
 * (backend/call.h), and the worker what it wants of ZooKeeper.
 */
typedef struct ZkCall
{
	ZkOperation kind;
	ZkNodeKind	node_kind; /* CREATE, REPLACE */
	ZkOwner		owner;	   /* set by the worker */
	const char *path;	   /* UTF-8 */
	const char *data; /* CREATE, REPLACE, APPEND, SET_DATA, CREATE_RECORD, REPLACE_RECORD; NULL for
					   * none */
	int			data_length; /* bytes, which may be NUL; 0: it is a string */
	int32_t version; /* SET_DATA, REMOVE, REPLACE, versioned DELETE: of the data that are replaced,
					  * or deleted */
	union			 /* a second text; which one, the kind says */
	{
		const char *marker;	  /* APPEND, REMOVE: an ephemeral node that is created in the same
								   * step; PUBLISH, PIN: the path itself */
		const char *replaced; /* REPLACE: the node to delete in the same step */
		const char *also_deleted; /* DELETE: another node to delete in the same step; or NULL */
		const char *acl; /* CREATE_RECORD: the ACL, as ZK_GET_ACL has returned it, of the node to
						  * replace; or NULL */
	};
	const char *pin; /* REMOVE, REPLACE: a third node, to delete whatever its version; or NULL */
	int	 most;		/* GET_DATA, for a session: longer data are not read; or CALL_ANY_LENGTH */
	bool watch;		/* GET_DATA, GET_CHILDREN: sets a watch as well, if the node exists */
	bool notice;	/* REPLACE: watches of the node to delete report a change of its
					   * data, not its deletion */
	bool followed;	/* CREATE: the next call of this owner goes out right behind it */
	bool versioned; /* DELETE: only if its data have that version, and by itself */
	bool patient;	/* DELETE, followed CREATE of an ephemeral sequential node: it may
					   * go out with others, when earlier ones have been answered */
	bool bulky;		/* GET_DATA, GET_CHILDREN: the answer may be long */
	bool urgent;	/* goes out at once, ahead of all calls that wait */
} ZkCall;

/*
 * Makes a call.  It is sent when its turn comes, at the end of the main loop's round at
 * the earliest, unless it is urgent; zk_client.c says in which order.  Its handler runs
 * exactly once, never before this returns: in zk_client_dispatch(), or where the connection
 * or the handle is given up.  What the call points to is copied.  While
 * no connection stands, only removals of watches may be made, which have no
 * handler.
 */
extern void zk_call(ZkCall call, ZkReplyHandler handler, void *arg);

/* The call whose handler runs, unless it is an urgent one; else NULL */
extern const ZkCall *zk_answering;

/* ------------------------------------------------------------------------
 * zk_answer.c: checks of the answers of a ZooKeeper server
 * ------------------------------------------------------------------------
 */

/* Each returns NULL if all is well, else the fault as a sentence (constant). */
extern const char *zk_answer_fault(const ZkCall *asked, const ZkReply *answer, int64_t session);
extern const char *zk_answer_children_fault(char *const *children, int n);
extern const char *zk_answer_event_fault(const char *path);
extern const char *zk_answer_session_fault(const ZkSession *offered, const ZkClientConfig *wanted);

#endif /* ZKLOCK_ZK_CLIENT_H */
