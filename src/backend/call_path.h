/*
 * call_path.h
 *		Creating a node, and what is missing above it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CALL_PATH_H
#define ZKLOCK_CALL_PATH_H

#include "backend/call.h"

extern const CallStep *call_create_path(Call *call, const char *path, const char *data,
										CallOpKind kind);

#endif /* ZKLOCK_CALL_PATH_H */
