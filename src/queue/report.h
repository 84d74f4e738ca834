/*
 * report.h
 *		What the log is told of a path, once.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_REPORT_H
#define ZKLOCK_REPORT_H

#include "queue/engine.h"

extern void report_unrecognised(const Path *path, const char *child);
extern void report_sequence(const Path *path, int64 sequence, int64 limit);
extern void report_stale(const Path *path, const char *name, const ZkReply *reply);

#endif /* ZKLOCK_REPORT_H */
