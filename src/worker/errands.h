/*
 * errands.h
 *		How the worker runs backends' errands.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ERRANDS_H
#define ZKLOCK_ERRANDS_H

extern void worker_errands_start(void);
extern void worker_errands_attend(void);

#endif /* ZKLOCK_ERRANDS_H */
