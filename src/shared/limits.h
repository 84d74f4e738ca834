/*
 * limits.h
 *		Sizes of what processes tell each other.
 *
 * For all storeys; src/zk may know no more of src/shared than this and the clock.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LIMITS_H
#define ZKLOCK_LIMITS_H

#define ZKLOCK_SERVERS_SIZE 1024 /* a connect string, with its NUL */
#define ZKLOCK_ERROR_SIZE 256	 /* a sentence about what went wrong, likewise */
#define ZKLOCK_PASSWORD_SIZE 16	 /* bytes of a ZooKeeper session's password */

#endif /* ZKLOCK_LIMITS_H */
