/*
 * model.h
 *		ZooKeeper, as far as its clients can tell: a model of an ensemble.
 *
 * One log, to which the leader appends.  Each server has applied a prefix of it, and
 * answers reads from that.  What a client sends goes through queues, of which each
 * moves one packet on in a step that the caller chooses:
 *
 *		client --sent--> server --forwarded--> leader --log--> server --received--> client
 *
 * Pure C; nothing here chooses or waits.  Nothing is freed either: 100,000 steps leave some 5 MB,
 * and a run is over before that matters.  model.c explains the rest.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef SIMULATE_MODEL_H
#define SIMULATE_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

#define MODEL_SERVERS 3

typedef enum ModelKind
{
	/* The leader decides, and the log has it */
	MODEL_CREATE,
	MODEL_DELETE,
	MODEL_SET,
	MODEL_CHECK,
	MODEL_SYNC,
	MODEL_CLOSE,
	MODEL_BEGIN,  /* the handshake, of a new session or one that exists */
	MODEL_EXPIRE, /* the leader's own: a session ends */
	MODEL_TOUCH,  /* a server's, not in the log: it has heard of a session */
	/* The client's server answers */
	MODEL_LOOK,
	MODEL_LOOK_ACL,
	MODEL_READ,
	MODEL_LIST,
	MODEL_UNWATCH,
	MODEL_SET_WATCHES, /* one operation for each */
	MODEL_PING,		   /* in the log: the leader pings the servers */
	/* A server says so of its own accord */
	MODEL_EVENT
} ModelKind;

/* Kinds of watches, which can be combined */
typedef enum ModelWatchKind
{
	MODEL_WATCH_DATA = 1,
	MODEL_WATCH_CHILDREN = 2
} ModelWatchKind;

/* As trees have it; it does not change */
typedef struct ModelNode
{
	const char *path;
	const char *name;	/* the end of it ... */
	const char *parent; /* ... and the rest */
	const char *data;	/* NULL if there are none */
	bool		container;
	struct Stat stat; /* as clients see it */
} ModelNode;

typedef struct ModelTree
{
	int		   n;
	ModelNode *nodes[]; /* each behind its parent */
} ModelTree;

typedef struct ModelOp
{
	ModelKind	   kind;
	const char	  *path;	/* the leader completes that of a sequential node */
	const char	  *data;	/* CREATE, SET: NULL if there are none */
	int			   length;	/* of the data */
	int			   version; /* -1: any */
	int			   mode;	/* CREATE: the library's */
	ModelWatchKind watch;	/* that READ or LIST sets, 0 if none; that UNWATCH removes */
	int			   code;	/* answer: the library's */
	ModelNode	  *node;	/* answer: that it was about; DELETE: as it was; or NULL */
} ModelOp;

typedef struct ModelConnection ModelConnection;
typedef struct ModelSession	   ModelSession;

/*
 * What is under way.  A request is an entry of the log once the leader has decided, and
 * comes back to the client as its own answer.
 */
typedef struct ModelPacket
{
	int		 nops; /* more than one in a multi */
	ModelOp *ops;
	int		 code; /* answer: ZOK, or nothing was done; EVENT: its type, the library's */
	int64_t	 zxid; /* BEGIN, SET_WATCHES: seen; then its own, or what the server had applied */

	/* The model's */
	ModelConnection *connection; /* that it came on; NULL if it is no client's */
	ModelSession	*session;	 /* NULL if it concerns none */
	int64_t			 decided_at; /* us */
	ModelTree		*tree;		 /* after it, or that it has looked at */
} ModelPacket;

typedef struct ModelQueue
{
	ModelPacket **items;
	int			  begin;
	int			  end;
	int			  room;
} ModelQueue;

typedef struct ModelServer
{
	int64_t cut_off_until; /* us, from the leader; the caller ends it.  0: it is not */
	bool	down;		   /* it takes no connections */
	int64_t lag;		   /* us: so long after the leader it applies what is in the log */
	const ModelPacket *applied;	  /* the last of the log that it has applied */
	ModelQueue		   log;		  /* the rest */
	ModelQueue		   forwarded; /* on its way to the leader */
} ModelServer;

/* What a server has of a session */
typedef struct ModelPart
{
	int		   heard;	/* how often, since the leader's last ping */
	bool	   lost;	/* what it had heard by then, it has not reported */
	ModelQueue pending; /* what is not answered */
} ModelPart;

struct ModelSession
{
	ModelSession *next;
	int64_t		  id;
	int			  client;	  /* that has begun it ... */
	int64_t		  began;	  /* ... with that zxid */
	int64_t		  timeout;	  /* us */
	int64_t		  expires_at; /* us, by the leader */
	bool		  closing;	  /* the leader refuses what it asks */
	ModelServer	 *owner;	  /* that it was connected to last, as the leader knows */
	ModelPart	  parts[MODEL_SERVERS];
};

struct ModelConnection
{
	ModelConnection *next;
	ModelServer		*server;
	ModelSession	*session;		/* NULL before the handshake */
	int				 client;		/* the caller's number for it */
	int64_t			 offered;		/* handshake: the session's id, 0 for a new one */
	int64_t			 timeout;		/* handshake */
	bool			 broken;		/* the client does not know it yet, perhaps */
	bool			 left;			/* the client has no use for it any more */
	int64_t			 stalled_until; /* us: nothing moves on it */
	ModelPacket		 watches;		/* the server's */
	ModelQueue		 sent;
	ModelQueue		 received;
};

/* The caller hears that the truth has changed, of what is not NULL. */
typedef struct ModelHooks
{
	void (*deleted)(const ModelNode *node, const ModelSession *by, bool expired);
	void (*created)(const ModelNode *node, const ModelSession *by);
	void (*session_ended)(const ModelSession *session, bool expired);
} ModelHooks;

extern const ModelHooks model_hooks;

extern int64_t		model_now; /* us; the caller advances it by model_advance() */
extern ModelServer	model_servers[MODEL_SERVERS];
extern ModelServer *model_leader;
extern ModelServer *model_deposed; /* it led before, and does not know that it does not; or NULL */
extern ModelSession	   *model_sessions;
extern ModelConnection *model_connections;

extern void	   model_start(int64_t tick);
extern void	   model_advance(int64_t to);
extern int64_t model_next_timer(void);

/* A client's side */
extern ModelSession	   *model_session(int64_t id); /* NULL if it has ended */
extern ModelConnection *model_connect(ModelServer *server, int client, int64_t session,
									  int64_t timeout, int64_t seen);
extern void				model_leave(ModelConnection *connection);

/* Steps, and whether there is something to do */
extern bool	   model_can_step_connection(const ModelConnection *connection);
extern void	   model_step_connection(void *connection);
extern bool	   model_can_forward(const ModelServer *server);
extern void	   model_step_forward(void *server);
extern int64_t model_apply_at(const ModelServer *server); /* us */
extern void	   model_step_apply(void *server);
extern bool	   model_step_reap(void); /* returns false if there was nothing */

/* Faults */
extern void model_break(ModelConnection *connection);
extern void model_stop_server(const ModelServer *server);
extern void model_reset_server(ModelServer *server);
extern void model_new_leader(ModelServer *server);
extern void model_expire(ModelSession *session);

/* The truth: what the log amounts to */
extern ModelTree *model_truth;
extern int64_t	  model_last_zxid;
extern bool		  model_is_idle(void);

/* packet.c */
extern ModelPacket	 *model_packet(ModelKind kind, const char *path);
extern void			  model_add_op(ModelPacket *packet, ModelOp op);
extern ModelWatchKind model_event_fires(int event);
extern void			  queue_push(ModelQueue *queue, ModelPacket *packet);
extern ModelPacket	 *queue_pop(ModelQueue *queue); /* NULL if it is empty */

static inline int
queue_length(const ModelQueue *queue)
{
	return queue->end - queue->begin;
}

/* NULL if it is empty */
static inline ModelPacket *
queue_first(const ModelQueue *queue)
{
	return queue->begin < queue->end ? queue->items[queue->begin] : NULL;
}

/* Watches, which are operations of a packet */
extern void model_watch_set(ModelPacket *watches, const char *path, ModelWatchKind kind);
extern bool model_watch_has(const ModelPacket *watches, const char *path, ModelWatchKind kinds);
extern bool model_watch_take(ModelPacket *watches, const char *path, ModelWatchKind kinds);

/* tree.c */
extern ModelTree *tree_new(void);
extern ModelNode *tree_find(const ModelTree *tree, const char *path); /* NULL if there is none */
extern int		  tree_check(const ModelTree *tree, ModelOp *op);
extern ModelTree *tree_after(ModelTree *tree, const ModelPacket *packet, ModelOp *op);

#endif /* SIMULATE_MODEL_H */
