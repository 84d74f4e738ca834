/*
 * wait_event.h
 *		What pg_stat_activity shows of a process of zklock that waits.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WAIT_EVENT_H
#define ZKLOCK_WAIT_EVENT_H

typedef enum ZklockWaitEvent
{
	ZKLOCK_WAIT_LOCK,		  /* a session, for a lock or permit */
	ZKLOCK_WAIT_COMMIT_GUARD, /* for proof of its locks, before it commits */
	ZKLOCK_WAIT_UNLOCK,		  /* until what it has released is free */
	ZKLOCK_WAIT_CALL,		  /* for an answer of ZooKeeper */
	ZKLOCK_WAIT_ELEMENT,	  /* for an element of a queue, or until it is added */
	ZKLOCK_WAIT_WORKER		  /* the worker, for anything to do */
} ZklockWaitEvent;

extern uint32 zklock_wait_event(ZklockWaitEvent event);

#endif /* ZKLOCK_WAIT_EVENT_H */
