/*
 * zk_echo.h
 *		Watch events of what we delete ourselves.
 *
 * Private to src/zk.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_ECHO_H
#define ZKLOCK_ZK_ECHO_H

extern void zk_echo_expect(const char *deleted);
extern void zk_echo_over(const char *deleted);
extern bool zk_echo_is(const char *changed);

#endif /* ZKLOCK_ZK_ECHO_H */
