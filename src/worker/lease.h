/*
 * lease.h
 *		Proof that the ZooKeeper session lives, and with it our locks.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LEASE_H
#define ZKLOCK_LEASE_H

extern void	 lease_take_over(int timeout_ms);
extern void	 lease_begin(int64 opened_at_us, int timeout_ms);
extern void	 lease_set_timeout(int timeout_ms, int64 since_us);
extern int64 lease_base(void);
extern void	 lease_end(void);
extern void	 lease_set_tick_time(int tick_ms);
extern bool	 lease_is_possible(void);
extern bool	 lease_is_possible_with(int timeout_ms, int tick_ms);
extern void	 lease_describe_timeout(char *text, size_t size);
extern void	 lease_check_timeout(int asked_ms);
extern void	 lease_attend(void);
extern int64 lease_next_wakeup(void);

#endif /* ZKLOCK_LEASE_H */
