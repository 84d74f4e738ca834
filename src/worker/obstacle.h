/*
 * obstacle.h
 *		What keeps locks from being granted.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_OBSTACLE_H
#define ZKLOCK_OBSTACLE_H

extern void worker_obstacle_attend(void);

#endif /* ZKLOCK_OBSTACLE_H */
