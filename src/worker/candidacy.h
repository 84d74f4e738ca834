/*
 * candidacy.h
 *		The elections at which this server stands.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CANDIDACY_H
#define ZKLOCK_CANDIDACY_H

#include "postgres.h"

extern void	 candidacy_reload(void);
extern void	 candidacy_attend(void);
extern void	 candidacy_withdraw_all(void);
extern int64 candidacy_next_wakeup(void);

#endif /* ZKLOCK_CANDIDACY_H */
