/*
 * call.h
 *		Calls to ZooKeeper, which the worker makes for this session.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_BACKEND_CALL_H
#define ZKLOCK_BACKEND_CALL_H

#include "shared/call.h"

/* Calls made one after the other for one purpose */
typedef struct Call
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
	 * A session whose calls are part of a longer wait sleeps as that wait does, which may
	 * raise an error.
	 */
	void (*sleep)(void *arg, int64 until); /* or NULL; "until" is in ms */
	void *sleep_arg;
} Call;

/* Which commits a read sees at least */
typedef enum CallSight
{
	CALL_AS_KNOWN, /* those that were seen here before */
	CALL_AFTER_SYNC
} CallSight;

/* One operation and its result */
typedef struct CallStep
{
	ZkOperation kind;
	const char *path; /* UTF-8 */
	const char *data; /* CREATE, CREATE_SEQUENTIAL, CREATE_RECORD, REPLACE_RECORD, SET_DATA,
					   * APPEND; REMOVE: the pin's path; NULL for none */
	Size		data_length; /* in bytes; 0: the data are a string */
	const char *marker;		 /* APPEND, REMOVE: path of the node that goes with it; others: its
						 * own */
	bool		watch;		 /* GET_CHILDREN: set a watch, for the sessions that wait there */
	int32		version;	 /* SET_DATA: of the data to be replaced */
	int			most;		 /* GET_DATA: longer data are not read */

	CallResult result;
	char	  *read;	 /* GET_DATA: the data and a NUL; NULL if none, or too long; APPEND,
						  * CREATE_SEQUENTIAL: the name */
	char	 **children; /* GET_CHILDREN */
} CallStep;

/*
 * Makes one operation.  Waits, and can be interrupted.  Returns if the outcome is known and
 * is CALL_OK, CALL_NO_NODE, CALL_NODE_EXISTS or CALL_BAD_VERSION, and for a write also if it
 * is CALL_UNKNOWN; every other outcome raises an error.
 */
extern const CallStep *call_make(Call *call, CallStep step, CallSight sight);

/* Makes several operations that are independent of each other; no outcome raises an error. */
extern void call_batch(Call *call, CallStep *steps, int n, CallSight sight);

extern void call_report(const CallStep *step);
extern void call_report_of(const Call *call, const CallStep *step);

/*
 * call_path.c: creating a node and its missing parents, deleting a node that was read, and
 * refusing one that has claims
 */
extern const CallStep *call_create_path(Call *call, const char *path, CallStep node);
extern bool call_delete_node(Call *call, const char *path, const NodeStat *stat, bool *in_doubt);
extern void call_refuse_claims(Call *call, const char *path, const NodeStat *stat);

#endif /* ZKLOCK_BACKEND_CALL_H */
