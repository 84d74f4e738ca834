/*
 * call.h
 *		Calls to ZooKeeper, which the worker makes for this session.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_BACKEND_CALL_H
#define ZKLOCK_BACKEND_CALL_H

#include "shared/call.h"
#include "zk/zk_client.h"

/* Who makes calls, one after the other for one purpose, and how it waits */
typedef struct Caller
{
	CallPatience patience;	   /* for a connection */
	int64		 until;		   /* deadline, by zklock_now_ms(); 0: none */
	int64		 session;	   /* the ZooKeeper session in which the last answer was given */
	int64		 sent_session; /* the one in which a marker node was created */

	/*
	 * A session that waits for something else at the same time gives the call up as soon as
	 * it is called away.  No interrupt ends such a call: interrupts are for the other wait.
	 */
	bool (*is_called_away)(void *arg); /* or NULL */
	void *away_arg;

	/*
	 * A session whose calls are part of a longer wait attends to outages as that wait does, which
	 * may raise an error, and returns when it is to do so again, ms.
	 */
	int64 (*attend)(void *arg); /* or NULL */
	void *attend_arg;

	/* What is being done, for the context of errors; see call_tell() */
	const char			*doing;
	const char			*doubt;
	bool				 in_doubt;
	ErrorContextCallback context;
} Caller;

/* Which commits a read sees at least */
typedef enum CallSight
{
	CALL_AS_KNOWN, /* those that were seen here before */
	CALL_AFTER_SYNC
} CallSight;

/* One call and its result */
typedef struct CallStep
{
	ZkCall	   asked;
	CallResult result;
	char	  *read; /* GET_DATA: the data and a NUL; NULL if none, or too long; APPEND, CREATE
						  * of a persistent sequential node: its name */
	char	 **children; /* GET_CHILDREN */
} CallStep;

/*
 * Makes one call.  Waits, and can be interrupted.  Returns if the outcome is known and
 * is CALL_OK, CALL_NO_NODE, CALL_NODE_EXISTS or CALL_BAD_VERSION, and for a write also if it
 * is CALL_UNKNOWN; every other outcome raises an error.
 */
extern const CallStep *call_make(Caller *caller, ZkCall asked, CallSight sight);

/* Makes several calls that are independent of each other; no outcome raises an error. */
extern void call_batch(Caller *caller, CallStep *steps, int n, CallSight sight);

extern void call_report(const Caller *caller, const CallStep *step);
extern void call_tell(Caller *caller, const char *doing, const char *doubt);

extern const CallStep *call_create_path(Caller *caller, const char *path, ZkCall node);
extern bool call_delete_node(Caller *caller, const char *path, const NodeStat *stat);
extern void call_refuse_claims(Caller *caller, const char *path, const NodeStat *stat);

#endif /* ZKLOCK_BACKEND_CALL_H */
