/*
 * leadership.h
 *		Does this server lead an election?  To ask, to wait for it, to give it up.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LEADERSHIP_H
#define ZKLOCK_LEADERSHIP_H

extern bool leadership_is_proved(const char *path, int64 *term);
extern bool leadership_await(const char *path, int64 timeout_ms);
extern bool leadership_resign(const char *path);

#endif /* ZKLOCK_LEADERSHIP_H */
