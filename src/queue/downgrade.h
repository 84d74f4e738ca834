/*
 * downgrade.h
 *		From exclusive to shared without letting go.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DOWNGRADE_H
#define ZKLOCK_DOWNGRADE_H

#include "queue/engine.h"

extern bool run_wants_downgrade(const Run *run);
extern void run_downgrade_pump(Run *run);

#endif /* ZKLOCK_DOWNGRADE_H */
