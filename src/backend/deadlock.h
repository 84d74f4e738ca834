/*
 * deadlock.h
 *		Ends deadlocks in which this session waits.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DEADLOCK_H
#define ZKLOCK_DEADLOCK_H

extern void deadlock_check(int index);

#endif /* ZKLOCK_DEADLOCK_H */
