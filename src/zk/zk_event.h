/*
 * zk_event.h
 *		News from threads for the main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_EVENT_H
#define ZKLOCK_ZK_EVENT_H

#include "zk/zk_answer.h"

typedef enum EventKind
{
	EVENT_REPLY,	/* to a call */
	EVENT_SESSION,	/* a handle's state has changed */
	EVENT_WATCH,	/* a watch has fired */
	EVENT_LOG,		/* the library has written a line */
	EVENT_LOOKED_UP /* names of servers */
} EventKind;

/* Is the main loop to be woken for it? */
typedef enum EventUrgency
{
	EVENT_AT_ONCE,
	EVENT_BEFORE_NEXT /* no: another one follows at once */
} EventUrgency;

/*
 * An event carries the number of what it belongs to: a call (REPLY), a handle
 * (SESSION, WATCH), or a question (LOOKED_UP).
 */
typedef struct Event
{
	struct Event *next;
	EventKind	  kind;
	uintptr_t	  number;
	int			  code;		   /* REPLY: result; SESSION: state; WATCH: type;
								 * LOG: does it complain? */
	const char	 *fault;	   /* REPLY, WATCH: what is wrong with it, or NULL */
	AnswerStat	  stat;		   /* REPLY of create, get, look, read */
	int			  nchildren;   /* REPLY of list */
	char		**children;	   /* one block with the strings */
	char		 *text;		   /* REPLY, WATCH: a path; LOG: a message; LOOKED_UP:
								 * addresses; REPLY of read: data; or NULL */
	int			  text_length; /* of data, which may contain NULs */
} Event;

extern int	  zk_event_queue_open(void);
extern void	  zk_event_push(const Event *event, EventUrgency urgency);
extern bool	  zk_event_may_sleep(void);
extern void	  zk_event_woken(void);
extern Event *zk_event_take_all(void);
extern void	  zk_event_free(Event *event);

/* Watch events of what we delete ourselves */
extern void zk_echo_expect(const char *deleted);
extern void zk_echo_over(const char *deleted);
extern bool zk_echo_is(const char *changed);

#endif /* ZKLOCK_ZK_EVENT_H */
