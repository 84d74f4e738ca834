/*
 * zk_flow.h
 *		Calls to ZooKeeper, from when they are made until they are answered.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_FLOW_H
#define ZKLOCK_ZK_FLOW_H

#include "zk/zk_call_record.h"

extern int64	   zk_flow_next_wakeup(void);
extern bool		   zk_flow_idle(void);
extern const char *zk_flow_answering(int *owner);

/* Private to src/zk: how calls get to the library, and what becomes of it. */
typedef struct ZkFlowCallbacks
{
	/*
	 * Hands a call to the library.  Returns an error code of the library if it
	 * does not even try.
	 */
	int (*send)(const Call *call);

	/* An answer makes no sense; "fault" says why, as a sentence. */
	void (*malformed)(const char *fault);

	/* A call that was sent has been answered, or given up, after so long, us. */
	void (*answered)(ZkOutcome outcome, int64 us);
} ZkFlowCallbacks;

extern void zk_flow_start(const ZkFlowCallbacks *callbacks);
extern void zk_flow_connected(int64 session);
extern void zk_flow_disconnected(void);
extern void zk_flow_over(void);
extern void zk_flow_answer(const Event *answer);
extern void zk_flow_send(void);
extern void zk_flow_submit(Call *call);
extern void zk_flow_submit_unwatch(Call *unwatch);

#endif /* ZKLOCK_ZK_FLOW_H */
