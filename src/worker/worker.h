/*
 * worker.h
 *		The background worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WORKER_H
#define ZKLOCK_WORKER_H

#include "postgres.h"

#include "compat.h"

extern void				zklock_register_worker(void);
extern PGDLLEXPORT void zklock_worker_main(Datum arg);

#endif /* ZKLOCK_WORKER_H */
