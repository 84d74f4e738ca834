/*
 * shmem.h
 *		Shared memory: who has which part of it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SHMEM_H
#define ZKLOCK_SHMEM_H

extern void zklock_shmem_request(void);
extern void zklock_shmem_startup(void);
extern void zklock_require_preload(void);

#endif /* ZKLOCK_SHMEM_H */
