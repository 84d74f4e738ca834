/*
 * zk_batch.h
 *		Deletions that go out in one request.
 *
 * Private to src/zk.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_BATCH_H
#define ZKLOCK_ZK_BATCH_H

#include "zk/zk_call_record.h"

#define ZK_BATCH_MAX 32 /* calls in one request */

extern bool zk_batch_gathers(int under_way);
extern int	zk_batch_gather(Call *first, int room);
extern int	zk_batch_size(const Call *first);
extern void zk_batch_learn(int64 taken_us);
extern bool zk_batch_is_refused(const Call *first, int code);
extern void zk_batch_part(Call *first, dlist_head *calls);

#endif /* ZKLOCK_ZK_BATCH_H */
