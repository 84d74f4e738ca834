/*
 * path.h
 *		What comes next on a path.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_PATH_H
#define ZKLOCK_PATH_H

#include "queue/engine.h"

extern void path_arrive(Path *path, Contender *c);
extern void path_pump_marked(void);

#endif /* ZKLOCK_PATH_H */
