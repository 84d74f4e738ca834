/*
 * node_data.h
 *		What a node of ours tells about the session for which it stands.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_NODE_DATA_H
#define ZKLOCK_NODE_DATA_H

#include "shared/entry.h"

extern char *node_data_compose(NodeDialect dialect, LockScope scope);

#endif /* ZKLOCK_NODE_DATA_H */
