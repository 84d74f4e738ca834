/*
 * waits.h
 *		Who waits for whom on this server, through zklock's locks and PostgreSQL's.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WAITS_H
#define ZKLOCK_WAITS_H

#include "lib/stringinfo.h"
#include "recipes/wait_graph.h"
#include "shared/entry.h"
#include "storage/lock.h"
#include "utils/hsearch.h"

/* A copy of a contender that waits or holds, of one moment */
typedef struct WaitsContender
{
	int			   index; /* of its entry, in this generation */
	uint32		   generation;
	int			   pid;
	int			   proc_number;
	ContenderState state;
	LockMode	   mode;
	EntryKind	   kind;
	int			   permits; /* the semaphore has, by all that is known */
	bool		   nowait;
	uint64		   place;  /* of its run among the path's; the last if it has none */
	uint64		   ticket; /* its own place there */
	TimestampTz	   requested_at;
	char		  *path;
	char		  *node; /* "" while unsettled */
} WaitsContender;

/* What a vertex of the graph stands for: a process, or the wait of one */
typedef struct WaitsVertex
{
	int					  pid;
	const WaitsContender *contender; /* whose wait it is; NULL: a process */

	/* A process's wait for a lock of PostgreSQL's, if there is one */
	LOCKTAG	 tag;
	LOCKMODE mode;
	uint64	 identity; /* two looks that find the same found the same wait; 0: none */

	/* own_waits.c's: does it hold a node, and one for which others may wait? */
	bool holds;
	bool wanted;
} WaitsVertex;

/* All is in the memory context that was current when the waits were taken. */
typedef struct Waits
{
	WaitsContender *contenders; /* by path, and there the oldest first */
	int				ncontenders;
	WaitGraph		graph;
	HTAB		   *processes; /* private to waits.c */
} Waits;

static inline const WaitsVertex *
waits_vertex(const Waits *waits, int vertex)
{
	return waits->graph.vertices[vertex].what;
}

extern void	  waits_take(Waits *waits);
extern int	  waits_explore(Waits *waits, int pid);
extern int	  waits_of_entry(const Waits *waits, int index);
extern uint64 waits_identity(const Waits *waits, int vertex);
extern uint64 waits_fingerprint(const Waits *waits);
extern void	  waits_describe(const Waits *waits, int process, int next, StringInfo text);
extern void	 *waits_resize(void *memory, size_t size);

#endif /* ZKLOCK_WAITS_H */
