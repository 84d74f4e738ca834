/*
 * claims.h
 *		An errand: to claim a slot, once for all servers.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CLAIMS_H
#define ZKLOCK_CLAIMS_H

#include "shared/errand.h"

extern void worker_claims_run(Errand *errand);
extern void worker_claims_attend(void);

#endif /* ZKLOCK_CLAIMS_H */
