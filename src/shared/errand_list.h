/*
 * errand_list.h
 *		The answer to ERRAND_CONTENDERS: nodes, in the order of their queue.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ERRAND_LIST_H
#define ZKLOCK_ERRAND_LIST_H

#include "lib/stringinfo.h"

/* Of so many, the first, more is read than the name. */
#define ERRAND_LIST_READ 200

/* A node's data that is longer is not read, bytes. */
#define ERRAND_LIST_MAX_DATA 8192

/* A contender's node.  Texts have no terminating NUL. */
typedef struct ErrandNode
{
	const char *name;
	uint32		name_length;
	bool		was_read; /* if not, nothing below is known */
	int64		czxid;
	int64		ctime;		 /* ms since 1970, by ZooKeeper's clock */
	int64		owner;		 /* its session, 0 if it is not ephemeral */
	const char *data;		 /* the beginning of it */
	uint32		data_length; /* 0 also if it may not be read or is too long */
} ErrandNode;

extern void errand_list_put(StringInfo list, const ErrandNode *node);
extern bool errand_list_next(const char **at, const char *end, ErrandNode *node);

#endif /* ZKLOCK_ERRAND_LIST_H */
