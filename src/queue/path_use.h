/*
 * path_use.h
 *		Is a path in use for claims?
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_PATH_USE_H
#define ZKLOCK_PATH_USE_H

#include "queue/engine.h"

extern void path_use_look(Path *path, const ZkReply *listing);
extern bool path_use_is_known(const Path *path);

#endif /* ZKLOCK_PATH_USE_H */
