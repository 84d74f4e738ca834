/*
 * deadlock.h
 *		Ends deadlocks in which this session waits.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DEADLOCK_H
#define ZKLOCK_DEADLOCK_H

#include "c.h"

extern void deadlock_check(int index);
extern void deadlock_report(uint32 number);

#endif /* ZKLOCK_DEADLOCK_H */
