/*
 * probe.h
 *		What became of a node whose create was not answered.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_PROBE_H
#define ZKLOCK_PROBE_H

#include "queue/engine.h"

extern void run_probe(Run *run);

#endif /* ZKLOCK_PROBE_H */
