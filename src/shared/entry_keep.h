/*
 * entry_keep.h
 *		Entries of locks that are kept: the steps from and to KEPT.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ENTRY_KEEP_H
#define ZKLOCK_ENTRY_KEEP_H

#include "shared/entry.h"

/* With what a session takes again what it has kept. */
typedef struct EntryAgain
{
	LockScope	scope;
	int			max_hold_ms;
	LossPolicy	on_loss;
	Oid			role;	 /* as in the request; if they are others ... */
	NodeDialect dialect; /* ... it is not that any more */
} EntryAgain;

/* Backends */
extern bool entry_keep(int index, int64 until_us, EntryNotice notice, uint32 *generation);
extern bool entry_take_again(int index, uint32 generation, const EntryAgain *again);
extern bool entry_give_up_kept(int index, uint32 generation);

/* Worker */
extern void entry_allow_keeping(int index);
extern bool entry_recall(int index);
extern void entry_kept_told(int index);

#endif /* ZKLOCK_ENTRY_KEEP_H */
