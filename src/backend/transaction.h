/*
 * transaction.h
 *		What happens to locks when transactions end, and after statements.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_TRANSACTION_H
#define ZKLOCK_TRANSACTION_H

extern void transaction_start_session(void);
extern void backend_install_hooks(void);
extern void backend_release_all(void);

#endif /* ZKLOCK_TRANSACTION_H */
