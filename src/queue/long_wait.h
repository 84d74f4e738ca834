/*
 * long_wait.h
 *		Which contenders have waited for long, and for whom.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LONG_WAIT_H
#define ZKLOCK_LONG_WAIT_H

extern bool queue_has_long_waits(void);
extern bool queue_waits_abroad(int index);
extern bool queue_is_wanted_abroad(int index);

#endif /* ZKLOCK_LONG_WAIT_H */
