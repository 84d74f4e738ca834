/*
 * wait_records.h
 *		Deadlocks across servers: the records of all servers, as they are read.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WAIT_RECORDS_H
#define ZKLOCK_WAIT_RECORDS_H

#include "worker/wait_search.h"

/* Steps of a round */
extern void worker_records_list(void);
extern void worker_records_look(void);
extern void worker_records_read(void);

extern const ReadRecord **worker_records_newest(int *n);

#endif /* ZKLOCK_WAIT_RECORDS_H */
