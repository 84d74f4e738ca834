/*
 * parents.h
 *		Missing nodes on the way to a path.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_PARENTS_H
#define ZKLOCK_PARENTS_H

#include "queue/engine.h"

extern void parents_missing(Run *run, int code);
extern void parents_exist(Path *path);

#endif /* ZKLOCK_PARENTS_H */
