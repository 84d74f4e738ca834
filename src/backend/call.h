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
	int64		 until;		   /* but no longer than that, by zklock_now_ms(); 0: for ever */
	int64		 session;	   /* the ZooKeeper session in which the last answer was given */
	int64		 sent_session; /* and that in which a scratch node was created */

	/*
	 * A session that waits for something else at the same time gives the call up as soon
	 * as it is called away, and lets no interrupt end it: that is for the other wait.
	 */
	bool (*is_called_away)(void *arg); /* or NULL */
	void *away_arg;

	/* A session whose calls are part of a longer wait sleeps as that does, which may raise an error. */
	void (*sleep)(void *arg, int64 until); /* or NULL; until then, ms */
	void *sleep_arg;
} Call;

/* Does a read see all that anybody has committed before? */
typedef enum CallSight
{
	CALL_AS_KNOWN, /* all that was seen here before */
	CALL_AFTER_SYNC
} CallSight;

/* One operation, and what has become of it */
typedef struct CallStep
{
	CallOpKind	kind;
	const char *path; /* UTF-8 */
	const char *data; /* CREATE, RECORD, REPLACE, SET, APPEND; REMOVE: the pin's path; NULL for none */
	Size		data_length; /* of it; 0: it is a string */
	const char *scratch; /* APPEND, REMOVE: path of the node that goes with it; others: its own */
	bool		watch;	 /* LIST: for those that seek there */
	int32		version; /* SET: of the data to be replaced */
	int			most;	 /* READ: longer data are not read */

	CallResult result;
	char  *read; /* READ: the data, with a NUL behind; NULL if there are none, or too long */
	char **children; /* LIST */
} CallStep;

/*
 * This waits, and can be interrupted.  It raises an error unless the outcome is
 * known and none but CALL_OK, CALL_NO_NODE, CALL_NODE_EXISTS or CALL_BAD_VERSION;
 * for those that write CALL_UNKNOWN is none either.
 */
extern const CallStep *call_make(Call *call, CallStep step, CallSight sight);

/* The same of several operations that are independent of each other; no outcome is an error. */
extern void call_batch(Call *call, CallStep *steps, int n, CallSight sight);

extern void call_report(const CallStep *step);

/* call_path.c: creating a node, and what is missing above it */
extern const CallStep *call_create_path(Call *call, const char *path, const char *data);

#endif /* ZKLOCK_BACKEND_CALL_H */
