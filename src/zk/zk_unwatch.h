/*
 * zk_unwatch.h
 *		Removing watches that nobody wants any more.
 *
 * Private to src/zk.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_UNWATCH_H
#define ZKLOCK_ZK_UNWATCH_H

#include "zk/zk_call_record.h"

extern void	 zk_unwatch_submit(Call *unwatch);
extern void	 zk_unwatch_put_off(Call *unwatch);
extern void	 zk_unwatch_forget(const Call *watch);
extern void	 zk_unwatch_again(void);
extern int64 zk_unwatch_next_wakeup(void);
extern void	 zk_unwatch_over(void);

#endif /* ZKLOCK_ZK_UNWATCH_H */
