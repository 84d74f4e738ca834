/*
 * model.h
 *		ZooKeeper, as far as its clients can tell: a model of an ensemble.
 *
 * One log, to which the leader appends.  Each server has applied a prefix of it, and
 * answers reads from that.  What a client sends goes through queues, of which each
 * moves one message on in a step that the caller chooses:
 *
 *		client --sent--> server --forwarded--> leader --log--> server --received--> client
 *
 * Pure C; nothing here chooses or waits.  model.c explains the rest.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef SIMULATE_MODEL_H
#define SIMULATE_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <zookeeper/zookeeper.h>

#define MODEL_SERVERS 3
#define MODEL_PASSWORD 16

typedef enum ModelKind
{
	MODEL_CREATE,
	MODEL_DELETE,
	MODEL_SET,
	MODEL_CHECK,
	MODEL_SYNC,
	MODEL_CLOSE,
	MODEL_BEGIN, /* a new session */
	MODEL_LOOK,
	MODEL_READ,
	MODEL_LIST,
	MODEL_UNWATCH_DATA,
	MODEL_UNWATCH_CHILDREN,
	MODEL_SET_WATCHES
} ModelKind;

typedef struct ModelOp
{
	ModelKind kind;
	char	 *path;
	char	 *data; /* NULL if there are none */
	int		  length;
	int		  version; /* -1: any */
	bool	  ephemeral;
	bool	  sequential;
	bool	  container;
} ModelOp;

/* A watch, as a client keeps it */
typedef struct ModelWatch
{
	struct ModelWatch *next;
	bool			   children;
	uint32_t		   hash;
	char			  *path;
} ModelWatch;

typedef struct ModelConnection ModelConnection;
typedef struct ModelSession	   ModelSession;

typedef struct ModelRequest
{
	struct ModelRequest *next;		 /* in a queue of a connection, or of what is forwarded */
	struct ModelRequest *behind;	 /* in the queue of its session on a server */
	uint64_t			 number;	 /* the client's */
	uint64_t			 connection; /* the number of the one it was sent on */
	ModelSession		*session;
	int					 server;
	int					 nops;
	ModelOp				*ops;
	bool				 watch; /* READ, LIST */
	bool				 forwarded;
	ModelWatch			*watches; /* SET_WATCHES */
	int64_t				 seen;	  /* SET_WATCHES: zxid */
	ModelSession	   **touched; /* no request, but what a server answers to a ping */
	int					 ntouched;
} ModelRequest;

typedef enum ModelNews
{
	NEWS_ANSWER,
	NEWS_EVENT,
	NEWS_CONNECTED,
	NEWS_EXPIRED
} ModelNews;

/* What a server sends to a client */
typedef struct ModelMessage
{
	struct ModelMessage *next;
	ModelNews			 news;
	uint64_t			 number; /* ANSWER: of the request */
	ModelKind			 kind;	 /* ANSWER: of its first operation */
	int					 code;
	int64_t				 zxid;
	int					 event; /* EVENT: the library's type */
	char				*path;	/* EVENT; ANSWER to a create: the new node's */
	struct Stat			 stat;
	char				*data; /* NULL if there are none */
	int					 length;
	int					 nchildren;
	char			   **children; /* one block with the strings */
} ModelMessage;

struct ModelSession
{
	ModelSession *next;
	int64_t		  id;
	char		  password[MODEL_PASSWORD];
	int64_t		  timeout;	  /* us */
	int64_t		  expires_at; /* us, by the leader */
	bool		  closing;	  /* the leader refuses what it asks */
	bool		  closed;	  /* in the log */
	int			  owner;	  /* the server it was connected to last, as the leader knows */
	bool		  touched[MODEL_SERVERS];
	ModelRequest *pending[MODEL_SERVERS]; /* received by a server, not answered */
	ModelRequest *pending_last[MODEL_SERVERS];
};

struct ModelConnection
{
	ModelConnection *next;
	uint64_t		 number;
	int				 server;
	ModelSession	*session; /* NULL before the handshake */
	int64_t			 offered; /* handshake: the session's id, 0 for a new one */
	char			 password[MODEL_PASSWORD];
	int64_t			 timeout;
	int64_t			 seen;			/* zxid */
	bool			 begun;			/* the server has the handshake */
	bool			 broken;		/* the client does not know it yet, perhaps */
	bool			 left;			/* the client has no use for it any more */
	int64_t			 stalled_until; /* us: nothing moves on it */
	ModelWatch		*watches;		/* the server's */
	ModelRequest	*sent;
	ModelRequest	*sent_last;
	ModelMessage	*received;
	ModelMessage	*received_last;
	void			*client; /* the caller's */
};

typedef struct ModelNode ModelNode;

struct ModelNode
{
	ModelNode  *chain; /* in a bucket of the tree */
	uint32_t	hash;
	char	   *path;
	ModelNode  *parent;
	ModelNode  *children;
	ModelNode  *before; /* among the parent's children */
	ModelNode  *behind;
	char	   *data;
	bool		container;
	int64_t		owner;
	struct Stat stat; /* cversion counts creates only; pzxid is kept */
};

/* What the caller is told of: the truth has changed. */
typedef struct ModelHooks
{
	void (*deleted)(const ModelNode *node, const ModelSession *by, bool expired);
	void (*created)(const ModelNode *node, const ModelSession *by);
	void (*session_ended)(const ModelSession *session, bool expired);
	uint64_t (*random)(void);
} ModelHooks;

extern int64_t			model_now; /* us; the caller advances it by model_advance() */
extern int				model_leader;
extern ModelSession	   *model_sessions;
extern ModelConnection *model_connections;
extern bool				model_cut_off[MODEL_SERVERS]; /* from the leader */
extern bool				model_down[MODEL_SERVERS];	  /* it takes no connections */
extern int64_t model_lag[MODEL_SERVERS]; /* us: so long after the leader it applies what is in the log */

extern void		model_start(const ModelHooks *hooks, int64_t tick);
extern void		model_advance(int64_t to);
extern uint32_t model_hash(const char *path);
extern int64_t	model_next_timer(void);

/* A client's side */
extern ModelConnection *model_connect(int server, int64_t session, const char *password,
									  int64_t timeout, int64_t seen, void *client);
extern ModelRequest	   *model_request(ModelKind kind, const char *path);
extern void				model_op_set(ModelOp *op, ModelKind kind, const char *path);
extern void				model_op_data(ModelOp *op, const char *data, int length);
extern void				model_send(ModelConnection *connection, ModelRequest *request);
extern ModelMessage	   *model_receive(ModelConnection *connection);
extern void				model_message_free(ModelMessage *message);
extern void				model_request_free(ModelRequest *request);
extern void				model_leave(ModelConnection *connection);

/* Steps; each returns false if there is nothing to do */
extern bool model_step_connection(ModelConnection *connection);
extern bool model_step_forward(int server);
extern bool model_step_apply(int server);
extern bool model_step_reap(void);
extern bool model_can_step_connection(const ModelConnection *connection);
extern bool model_can_forward(int server);
extern bool model_can_apply(int server);

/* Faults */
extern void model_break(ModelConnection *connection);
extern void model_stop_server(int server);
extern void model_new_leader(int server);
extern void model_expire(ModelSession *session);

/* The truth: what the log amounts to */
extern const ModelNode *model_node(const char *path);
extern const ModelNode *model_first_node(void);
extern int				model_count_nodes(void);
extern int				model_count_watches(void);
extern int64_t			model_last_zxid(void);
extern bool				model_is_idle(void);

#endif /* SIMULATE_MODEL_H */
