/*
 * run.h
 *		The runs of a path: their states, and those in their queues.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_RUN_H
#define ZKLOCK_RUN_H

#include "queue/engine.h"

extern Run *run_new(Path *path, uint64 id, const RecipeRequest *request);
extern void run_join(Run *run, Contender *c);
extern Run *run_last(Path *path);
extern Run *run_before(Run *run);
extern Run *run_by_name(Path *path, const char *name);
extern bool run_has_node(const Run *run);
extern bool run_is_wanted(const Run *run, const Contender *by_others_than);
extern bool run_is_open(const Run *run, const RecipeRequest *request);
extern bool run_is_fresh(const Run *run);
extern bool run_shares(const Run *run);
extern bool run_name_recurs(const Run *run);
extern void run_replaces(Run *run, Contender *replaced);
extern void run_publish(Run *run);
extern void run_fail(Run *run, ContenderFailure failure, int code);
extern void run_creating(Run *run);
extern void run_replanned(Run *run);
extern void run_unsettled(Run *run);
extern void run_created(Run *run, const char *name, int64 czxid);
extern void run_adopted(Run *run, const char *name, int64 czxid, int payer);
extern void run_granted(Run *run);
extern void run_downgrading(Run *run, const RecipeRequest *request);
extern void run_downgraded(Run *run);
extern void run_abandoned(Run *run);
extern void run_heir_deleted(Run *run);
extern void run_finish(Run *run);
extern void run_not_created(Run *run);
extern void run_expired(Run *run);
extern void run_deleted(Run *run);
extern void run_usurped(Run *run);
extern void run_vanished(Run *run);

#endif /* ZKLOCK_RUN_H */
