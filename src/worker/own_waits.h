/*
 * own_waits.h
 *		What this server tells others of waits that last.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_OWN_WAITS_H
#define ZKLOCK_OWN_WAITS_H

/* A wait that is told */
typedef struct OwnWait
{
	uint64 identity;   /* as in the record */
	int	   entry;	   /* of the session that waits for another server or client */
	uint32 generation; /* of that entry */
} OwnWait;

typedef struct OwnWaits
{
	char	   *record;
	const char *body; /* of the record: what does not change from look to look */
	OwnWait	   *waits;
	int			n;
} OwnWaits;

extern void worker_own_waits(OwnWaits *own, int64 seen);

#endif /* ZKLOCK_OWN_WAITS_H */
