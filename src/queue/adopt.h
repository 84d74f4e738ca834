/*
 * adopt.h
 *		Taking over what an earlier worker left in shared memory.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ADOPT_H
#define ZKLOCK_ADOPT_H

extern void adopt_entries(const int *indexes, int n);

#endif /* ZKLOCK_ADOPT_H */
