/*
 * status.h
 *		What zk_session and errors tell of the session.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_STATUS_H
#define ZKLOCK_STATUS_H

#include "shared/shmem.h"

extern void status_start(void);
extern void status_set_state(SessionState state);
extern void status_set_error(const char *message);
extern void status_set_chroot_exists(bool exists);
extern void status_attend(void);

#endif /* ZKLOCK_STATUS_H */
