/*
 * element.h
 *		Queues of elements: offering, showing, removing and taking.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_H
#define ZKLOCK_ELEMENT_H

#include "shared/stats.h"

/*
 * Longest element that is offered, bytes.  Elements of others are read up to ZooKeeper's
 * limit.
 */
#define TAKE_MAX_DATA (64 * 1024)

/*
 * Longest path of a queue from which a transaction takes elements: an element's path is an
 * entry's.
 */
#define TAKE_MAX_PATH ((int) (ZKLOCK_MAX_PATH - ELEMENT_NAME_SIZE))

/* An element that is shown, removed or taken */
typedef struct Element
{
	char  *name;  /* UTF-8 */
	int64  token; /* its czxid */
	int32  version;
	bytea *data;
} Element;

/* The fate of the element that a call gets */
typedef enum TakeHow
{
	TAKE_SHOW,	 /* it stays */
	TAKE_REMOVE, /* it goes */
	TAKE_CLAIM	 /* it goes when the transaction commits */
} TakeHow;

extern char				 *take_offer(const char *path, const char *data, Size length);
extern const ElementName *take_list(const char *path, int *n);
extern bool take_first(const char *path, TakeHow how, int64 timeout_ms, StatsKind kind, Element *got);

#endif /* ZKLOCK_ELEMENT_H */
