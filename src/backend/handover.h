/*
 * handover.h
 *		Giving entries up, and waiting until others can have what they stood for.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_HANDOVER_H
#define ZKLOCK_HANDOVER_H

/* No entry in shared memory, where an entry's index is expected */
#define NO_ENTRY (-1)

/* What the worker has still to do until a lock is free, or free to share. */
typedef struct Handover
{
	int	   entry;
	uint32 generation; /* when that has changed, it is done */
} Handover;

/* The handovers that a call waits for before it returns. */
typedef struct HandoverList
{
	Handover *handovers;
	int		  n;
} HandoverList;

extern void handover_list_init(HandoverList *list, int max);
extern void handover_list_wait(HandoverList *list);
extern void handover_release(int entry, HandoverList *awaited);
extern void handover_downgrade(int entry, HandoverList *awaited);

#endif /* ZKLOCK_HANDOVER_H */
