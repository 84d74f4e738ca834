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

/* As a tree has it; it does not change */
typedef struct ModelNode
{
	int				   refs; /* of trees, parents and answers */
	char			  *path;
	char			  *data; /* NULL if there are none */
	bool			   container;
	int64_t			   owner;
	struct Stat		   stat;	 /* as clients see it */
	struct ModelNode **children; /* in no order */
} ModelNode;

typedef struct ModelOp
{
	ModelKind		  kind;
	char			 *path;	   /* the leader completes that of a sequential node */
	char			 *data;	   /* CREATE, SET: NULL if there are none */
	int				  length;  /* of the data */
	int				  version; /* -1: any */
	int				  mode;	   /* CREATE: the library's */
	ModelWatchKind	  watch;   /* that READ or LIST sets, 0 if none; that UNWATCH removes */
	int				  code;	   /* answer: the library's */
	struct ModelNode *node;	   /* answer to CREATE, SET, LOOK, READ, LIST; or NULL */
} ModelOp;

typedef struct ModelConnection ModelConnection;
typedef struct ModelSession	   ModelSession;

/*
 * What is under way.  A request is an entry of the log once the leader has decided, and
 * comes back to the client as its own answer.
 */
typedef struct ModelPacket
{
	uint64_t number; /* the client's */
	int		 nops;	 /* more than one in a multi */
	ModelOp *ops;
	int		 code; /* answer: ZOK, or nothing was done; EVENT: its type, the library's */
	int64_t	 zxid; /* BEGIN, SET_WATCHES: seen; then its own, or what the server had applied */

	/* The model's */
	int				 nqueues;	 /* that it is in: with the last one, it goes */
	ModelConnection *connection; /* that it came on; NULL if it is no client's */
	ModelSession	*session;	 /* NULL if it concerns none */
	int64_t			 decided_at; /* us */
	ModelNode		*tree;		 /* after it */
} ModelPacket;

typedef struct ModelQueue
{
	ModelPacket **items;
	int			  begin;
	int			  end;
	int			  room;
} ModelQueue;

struct ModelSession
{
	ModelSession *next;
	int64_t		  id;
	int64_t		  timeout;	  /* us */
	int64_t		  expires_at; /* us, by the leader */
	bool		  closing;	  /* the leader refuses what it asks */
	int			  owner;	  /* the server it was connected to last, as the leader knows */
	int		   heard[MODEL_SERVERS]; /* how often, by a server, since the leader's last ping */
	bool	   lost[MODEL_SERVERS];	 /* what a server had heard by then, it has not reported */
	ModelQueue pending[MODEL_SERVERS]; /* what a server has not answered */
};

struct ModelConnection
{
	ModelConnection *next;
	int				 server;
	ModelSession	*session;		/* NULL before the handshake */
	int64_t			 offered;		/* handshake: the session's id, 0 for a new one */
	int64_t			 timeout;		/* handshake */
	bool			 broken;		/* the client does not know it yet, perhaps */
	bool			 left;			/* the client has no use for it any more */
	int64_t			 stalled_until; /* us: nothing moves on it */
	ModelPacket		 watches;		/* the server's */
	ModelQueue		 sent;
	ModelQueue		 received;
	void			*client; /* the caller's */
};

/* The caller hears that the truth has changed. */
typedef struct ModelHooks
{
	void (*deleted)(const ModelNode *node, const ModelSession *by, bool expired);
	void (*created)(const ModelNode *node, const ModelSession *by);
	void (*session_ended)(const ModelSession *session, bool expired);
} ModelHooks;

extern int64_t model_now; /* us; the caller advances it by model_advance() */
extern int	   model_leader;
extern int	   model_deposed; /* it led before, and does not know that it does not; -1: none */
extern ModelSession	   *model_sessions;
extern ModelConnection *model_connections;
extern bool				model_cut_off[MODEL_SERVERS]; /* from the leader */
extern bool				model_down[MODEL_SERVERS];	  /* it takes no connections */
extern int64_t model_lag[MODEL_SERVERS]; /* us: so long after the leader it applies what is in the log */

extern void	   model_start(const ModelHooks *hooks, int64_t tick);
extern void	   model_advance(int64_t to);
extern int64_t model_next_timer(void);

/* A client's side */
extern ModelConnection *model_connect(int server, int64_t session, int64_t timeout,
									  int64_t seen, void *client);
extern void				model_send(ModelConnection *connection, ModelPacket *packet);
extern bool				model_can_receive(const ModelConnection *connection);
extern ModelPacket	   *model_receive(ModelConnection *connection);
extern void				model_leave(ModelConnection *connection);

/* Steps, and whether there is something to do */
extern bool model_can_step_connection(const ModelConnection *connection);
extern void model_step_connection(ModelConnection *connection);
extern bool model_can_forward(int server);
extern void model_step_forward(int server);
extern bool model_can_apply(int server);
extern void model_step_apply(int server);
extern bool model_step_reap(void); /* returns false if there was nothing */

/* Faults */
extern void model_break(ModelConnection *connection);
extern void model_stop_server(int server);
extern void model_reset_server(int server);
extern void model_new_leader(int server);
extern void model_expire(ModelSession *session);

/* The truth: what the log amounts to */
extern const ModelNode *model_node(const char *path);
extern int64_t			model_last_zxid;
extern bool				model_is_idle(void);

/* packet.c */
extern ModelPacket *model_packet(ModelKind kind, const char *path);
extern ModelOp	   *model_add_op(ModelPacket *packet, ModelKind kind, const char *path);
extern void			model_op_data(ModelOp *op, const char *data, int length);
extern void			model_release(ModelPacket *packet); /* that was received, or never sent */
extern ModelWatchKind model_event_fires(int event);

/* Watches, which are operations of a packet */
extern void model_watch_set(ModelPacket *watches, const char *path, ModelWatchKind kind);
extern bool model_watch_has(const ModelPacket *watches, const char *path, ModelWatchKind kinds);
extern bool model_watch_take(ModelPacket *watches, const char *path, ModelWatchKind kinds);
extern void model_packet_clear(ModelPacket *packet);

#endif /* SIMULATE_MODEL_H */
