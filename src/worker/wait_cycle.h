/*
 * wait_cycle.h
 *		Deadlocks across servers: who gives up, and what that one is told.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WAIT_CYCLE_H
#define ZKLOCK_WAIT_CYCLE_H

#include "lib/stringinfo.h"
#include "worker/wait_search.h"

extern const SearchWait *worker_cycle_victim(Search *search, StringInfo cycle);

#endif /* ZKLOCK_WAIT_CYCLE_H */
