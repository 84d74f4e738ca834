/*
 * zk_event.h
 *		What the client library's threads tell the main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_EVENT_H
#define ZKLOCK_ZK_EVENT_H

#include "zk/connect_string.h"
#include "zk/zk_answer.h"

typedef enum EventKind
{
	EVENT_REPLY,
	EVENT_SESSION,
	EVENT_WATCH,
	EVENT_LOG,
	EVENT_RESOLVED,
	EVENT_TRIAL,  /* of a trial handle: session or reply (zk_trial.c) */
	EVENT_CLOSED, /* a handle has been closed in a thread of its own */
	EVENT_ASKED	  /* a question was answered, or not (zk_ask.c) */
} EventKind;

typedef struct Event
{
	struct Event *next;
	EventKind	  kind;
	uint64		  call;		 /* REPLY: the call's number; TRIAL: what it is */
	uintptr_t	  epoch;	 /* the handle's; RESOLVED: for whose, ASKED: the
							  * question's number */
	int			  code;		 /* REPLY: result; SESSION: state; WATCH: type;
								 * LOG: level; RESOLVED: success; TRIAL: result or
								 * state; ASKED: answer */
	const char	 *fault;	 /* REPLY: what is wrong with it, or NULL */
	AnswerStat	  stat;		 /* REPLY of create, get */
	int			  nchildren; /* REPLY of list */
	char		**children;	 /* one block with the strings */
	char		 *text;		 /* a path, a message or addresses; or NULL */
} Event;

extern int	  zk_event_queue_open(void);
extern void	  zk_event_push(const Event *event);
extern Event *zk_event_take_all(void);
extern void	  zk_event_free(Event *event);
extern bool	  zk_event_resolve(const ConnectString *servers, uintptr_t epoch);

#endif /* ZKLOCK_ZK_EVENT_H */
