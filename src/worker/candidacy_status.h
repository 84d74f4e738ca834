/*
 * candidacy_status.h
 *		What is told of a candidacy: its state and place, and who leads.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CANDIDACY_STATUS_H
#define ZKLOCK_CANDIDACY_STATUS_H

#include "shared/election.h"

extern void	 candidacy_tell(int i, CandidacyState state, int position, const char *detail);
extern void	 candidacy_tell_leader(int i, const char *name, int len);
extern void	 candidacy_ask_leader(int i, const char *node);
extern char *candidacy_failure_text(ContenderFailure failure, int code);
extern const char *candidacy_loss_text(LossReason loss);

#endif /* ZKLOCK_CANDIDACY_STATUS_H */
