/*
 * admin.h
 *		Questions of administrators' functions to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ADMIN_H
#define ZKLOCK_ADMIN_H

#include "shared/shmem.h"

/* A node, as it was read. */
typedef struct AdminNode
{
	char  path[ZKLOCK_ADMIN_NODE_SIZE]; /* UTF-8 */
	int64 czxid;
	int64 owner; /* its session, 0 if it is not ephemeral */
} AdminNode;

/* Backends */
extern AdminOutcome admin_ask(AdminKind kind, AdminNode *node);

/* Worker */
extern void admin_attend(void);

#endif /* ZKLOCK_ADMIN_H */
