/*
 * backend.h
 *		A session's life: statements after which something is to be done.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_BACKEND_H
#define ZKLOCK_BACKEND_H

extern void backend_install_hooks(void);
extern void backend_release_all(void);

#endif /* ZKLOCK_BACKEND_H */
