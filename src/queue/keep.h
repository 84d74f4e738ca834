/*
 * keep.h
 *		Locks that nobody holds and that are kept for a while: zklock.keep_idle.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_KEEP_H
#define ZKLOCK_KEEP_H

#include "queue/engine.h"

extern void		  keep_look_later(const Contender *c);
extern Contender *keep_recall(Path *path);
extern void		  keep_let_go(Path *path);
extern void		  keep_prepare(Path *path);
extern void		  keep_pump(Path *path);
extern bool		  keep_make_room(const Contender *asking, ContenderFailure failure);
extern void		  queue_keep_attend(void);
extern int64	  queue_keep_next_wakeup(void);
extern void		  queue_keep_let_go(void);
extern void		  queue_keep_stop(void);

#endif /* ZKLOCK_KEEP_H */
