/*
 * path.h
 *		What comes next on a path.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_PATH_H
#define ZKLOCK_PATH_H

#include "queue/engine.h"

extern Path *path_for(const char *name, const Recipe *recipe);
extern void	 path_arrive(Path *path, Contender *c);
extern void	 path_pump_marked(void);
extern void	 path_paused_attend(void);
extern int64 path_paused_next_wakeup(void);

#endif /* ZKLOCK_PATH_H */
