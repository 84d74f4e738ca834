/*
 * take_queue.h
 *		Queues of elements: offering, showing, removing and taking.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_TAKE_QUEUE_H
#define ZKLOCK_TAKE_QUEUE_H

/* Longest element that is offered, bytes.  Those of others are read up to ZooKeeper's limit. */
#define TAKE_MAX_DATA (64 * 1024)

/* An element, as it is shown, removed or taken */
typedef struct Element
{
	char *name;	 /* UTF-8 */
	int64 token; /* its czxid */
	int32 version;
	char *data; /* bytes */
	Size  length;
} Element;

extern char *take_offer(const char *path, const char *data, Size length);
extern bool	 take_peek(const char *path, Element *element);
extern bool	 take_remove(const char *path, int64 timeout_ms, Element *element);
extern bool	 take_first(const char *path, int64 timeout_ms, Element *element);

#endif /* ZKLOCK_TAKE_QUEUE_H */
