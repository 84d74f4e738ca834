/*
 * run_calls.h
 *		What a run asks ZooKeeper about its node.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_RUN_CALLS_H
#define ZKLOCK_RUN_CALLS_H

#include "queue/engine.h"

extern void run_choose_name(Run *run);
extern void run_create(Run *run);
extern void run_delete(Run *run);
extern void run_identify(Run *run, const char *name, ZkReplyHandler handler);
extern void contender_check(Contender *c);
extern void watch_own(Run *run);
extern void watch_blocker(Run *run, const char *name);

#endif /* ZKLOCK_RUN_CALLS_H */
