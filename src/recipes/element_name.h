/*-------------------------------------------------------------------------
 *
 * element_name.h
 *	  ZooKeeper's recipe for queues: names of elements, and their order.
 *
 * Pure C: allocates nothing, keeps no state, runs in any process or thread, holds
 * no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELEMENT_NAME_H
#define ZKLOCK_ELEMENT_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a name begins with; ZooKeeper appends a sequence. */
#define ELEMENT_PREFIX "qn-"

/* Longest name of an element, with its NUL.  Longer ones are somebody else's. */
#define ELEMENT_NAME_SIZE 32

/* The ephemeral child of an element that a transaction has taken */
#define ELEMENT_CLAIM "claim"

/* Where the receipts of all servers are */
#define ELEMENT_RECEIPTS "/zklock-receipts"

/* An element of a queue, as a listing shows it */
typedef struct ElementName
{
	int64_t		number; /* its place: lower ones come first */
	const char *name;
} ElementName;

/* Another use of a path that is no queue */
typedef enum ElementOtherUse
{
	ELEMENT_USE_NONE, /* nothing else, as far as is known */
	ELEMENT_USE_LOCK, /* or a semaphore */
	ELEMENT_USE_ELECTION,
	ELEMENT_USE_CLAIMS
} ElementOtherUse;

extern bool element_name_read(const char *child, int64_t *number);
extern int	element_name_compare(const void *a, const void *b);
extern int	element_name_sort(char *const *children, int n, ElementName *elements);

extern ElementOtherUse element_name_other_use(const char *child);

#endif /* ZKLOCK_ELEMENT_NAME_H */
