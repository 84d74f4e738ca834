/*
 * take.h
 *		Queues of elements: offering, showing, removing and taking.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_TAKE_H
#define ZKLOCK_TAKE_H

#include "recipes/element_name.h"

/* Longest element that is offered, bytes.  Those of others are read up to ZooKeeper's limit. */
#define TAKE_MAX_DATA (64 * 1024)

/* Longest path of a queue of which a transaction takes elements: with their names it is an entry's. */
#define TAKE_MAX_PATH ((int) (ZKLOCK_MAX_PATH - ELEMENT_NAME_SIZE))

/* An element, as it is shown, removed or taken */
typedef struct Element
{
	char *name;	 /* UTF-8 */
	int64 token; /* its czxid */
	int32 version;
	char *data; /* bytes */
	Size  length;
} Element;

/* take_offer.c */
extern char *take_offer(const char *path, const char *data, Size length);

/* take_seek.c */
extern bool take_peek(const char *path, Element *element);
extern bool take_remove(const char *path, int64 timeout_ms, Element *element);
extern bool take_first(const char *path, int64 timeout_ms, Element *element);

#endif /* ZKLOCK_TAKE_H */
