/*
 * candidacy_entry.h
 *		The contender of a candidacy: what is asked for, and what its entry tells.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CANDIDACY_ENTRY_H
#define ZKLOCK_CANDIDACY_ENTRY_H

#include "shared/election.h"

/* What the entry of a candidacy tells */
typedef struct Standing
{
	ContenderState	 state;
	ContenderFailure failure;
	int				 code;
	LossReason		 loss;
	int64			 token;
	int				 position;
	uint32			 check_done;
	const char		*blocker; /* a node */
} Standing;

extern int candidacy_entry_claim(const Election *election, int replaces, uint32 *generation);
extern Standing candidacy_entry_look(const Candidacy *candidacy);

#endif /* ZKLOCK_CANDIDACY_ENTRY_H */
