/*
 * run_owner.h
 *		Whose the foreign node is for which a run waits.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_RUN_OWNER_H
#define ZKLOCK_RUN_OWNER_H

#include "queue/engine.h"

extern void run_owner_read(Run *run);

#endif /* ZKLOCK_RUN_OWNER_H */
