/*
 * contenders.h
 *		An errand: to read who contends on a path.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WORKER_CONTENDERS_H
#define ZKLOCK_WORKER_CONTENDERS_H

#include "shared/errand.h"

extern void worker_contenders_read(Errand *errand);

#endif /* ZKLOCK_WORKER_CONTENDERS_H */
