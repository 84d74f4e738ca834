/*
 * transaction.h
 *		What happens to locks when transactions end.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_TRANSACTION_H
#define ZKLOCK_TRANSACTION_H

extern void transaction_start_session(void);
extern void transaction_come_first(void);
extern void transaction_end_prepared(void);

#endif /* ZKLOCK_TRANSACTION_H */
