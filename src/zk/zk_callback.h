/*
 * zk_callback.h
 *		Functions that the client library's threads call.
 *
 * Private to src/zk.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_CALLBACK_H
#define ZKLOCK_ZK_CALLBACK_H

#include <zookeeper/zookeeper.h>

#include "recipes/node_name.h"

/* What is handed on of a node's data, bytes */
#define ZK_DATA_MAX 1024

/* The watcher of all handles and nodes; its context is the handle's number. */
extern void zk_callback_event(zhandle_t *zh, int type, int state, const char *path, void *context);

/* Completions; their context is the call's number. */
extern void zk_callback_created(int code, const char *path, const struct Stat *stat,
								const void *context);
extern void zk_callback_created_followed(int code, const char *path, const struct Stat *stat,
										 const void *context);
extern void zk_callback_content(int code, const char *value, int len, const struct Stat *stat,
								const void *context);
extern void zk_callback_whole(int code, const char *value, int len, const struct Stat *stat,
							  const void *context);
extern void zk_callback_appended(int code, const void *append);
extern void zk_callback_stat(int code, const struct Stat *stat, const void *context);
extern void zk_callback_children(int code, const struct String_vector *children,
								 const struct Stat *stat, const void *context);
extern void zk_callback_done(int code, const void *context);
extern void zk_callback_synced(int code, const char *path, const void *context);

/*
 * What the library writes of the answer to an append.  It may write late, or
 * never: so this is not the caller's, but goes with the completion.
 */
typedef struct ZkAppend
{
	uintptr_t		number; /* of the call */
	zoo_op_result_t results[2];
	char			path[ZKLOCK_MAX_PATH + 256]; /* of the new node, with its NUL */
} ZkAppend;

/* A number as the context of a completion */
static inline const void *
zk_callback_context(uintptr_t number)
{
	return (const void *) number;
}

#endif /* ZKLOCK_ZK_CALLBACK_H */
