/*
 * contender.h
 *		The worker's steps in a contender's life.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_CONTENDER_H
#define ZKLOCK_CONTENDER_H

#include "queue/engine.h"

extern ContenderState contender_state(const Contender *c);
extern RecipeRequest  contender_request(const Contender *c);
extern bool			  contender_is_downgrading(const Contender *c);
extern bool			  contender_same_session(const Contender *a, const Contender *b);
extern void			  contender_place(Contender *c, int position);
extern void			  contender_arrive_again(Contender *c);
extern void			  contender_publish(Contender *c);
extern void			  contender_forget(Contender *c);
extern void			  contender_detach(Contender *c);
extern void			  contender_fail(Contender *c, ContenderFailure failure, int code);
extern void			  contender_turn_away(Contender *c, ContenderFailure failure);
extern void			  contender_lose(Contender *c, LossReason reason);
extern bool			  contender_overrun(Contender *c, int64 now_us);
extern bool			  contender_grant(Contender *c);
extern void			  contender_downgraded(Contender *c);
extern void			  contender_remark(Contender *c, int32 remark);
extern void			  contender_blocked_by(Contender *c, const Run *run, const char *node);

#endif /* ZKLOCK_CONTENDER_H */
