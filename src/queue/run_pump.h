/*
 * run_pump.h
 *		For whom a run waits, whom it grants, and what comes next for it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_RUN_PUMP_H
#define ZKLOCK_RUN_PUMP_H

#include "queue/engine.h"

extern bool contender_is_barred(const Contender *c);
extern bool contender_is_outrun(const Contender *c);
extern bool contender_is_blocked(Contender *c);
extern void run_pump(Run *run);

#endif /* ZKLOCK_RUN_PUMP_H */
