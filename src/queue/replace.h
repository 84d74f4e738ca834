/*
 * replace.h
 *		A node of ours takes the place of another of ours, at the end of the queue.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_REPLACE_H
#define ZKLOCK_REPLACE_H

#include "queue/engine.h"

extern void run_replace(Run *run);

#endif /* ZKLOCK_REPLACE_H */
