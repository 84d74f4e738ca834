/*
 * interrupt.h
 *		Whether the loss of a lock interrupts this session, and what it is told.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_INTERRUPT_H
#define ZKLOCK_INTERRUPT_H

extern void interrupt_set_policy(int policy, void *extra);
extern void interrupt_defer(void);
extern void interrupt_resume(void);
extern bool interrupt_is_deferred(void);
extern void interrupt_context_begin(ErrorContextCallback *context);
extern void interrupt_context_end(const ErrorContextCallback *context);

#endif /* ZKLOCK_INTERRUPT_H */
