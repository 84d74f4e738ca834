/*
 * server.h
 *		What a copy of the extension offers the world around it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef SIMULATE_SERVER_H
#define SIMULATE_SERVER_H

#include "postgres.h"

#include "shared/call.h"
#include "shared/election.h"
#include "shared/entry.h"
#include "shared/session_info.h"
#include "storage/proc.h"

typedef struct SimSettings
{
	int			session_timeout; /* ms */
	int			tick_time;		 /* ms */
	const char *name;
	const char *elections;
	const char *faults;
} SimSettings;

typedef struct SimServerApi
{
	void (*configure)(const SimSettings *settings);
	void (*startup)(void); /* the postmaster's: shared memory is new */
	void (*worker_main)(Datum arg);

	/* Backends */
	int (*entry_ask)(const EntryRequest *request, const char *data, LossPolicy on_loss, int leave);
	void (*entry_give_up)(int index, EntryNotice notice);
	void (*entry_keep_shared)(int index);
	void (*entry_consume)(int index);
	bool (*entry_is_settled)(int index, uint32 generation);
	void (*entry_mark_dirty)(int index);
	EntryStatus (*entry_status)(int index);
	bool (*entry_copy)(int index, EntryCopy *copy);
	uint32 (*entry_generation)(int index);
	bool (*entry_is_overrun)(int64 expires_us);
	int (*entries_in_use)(void);
	LeaseState (*lease_state)(void);
	int64 (*lease_until)(void);
	Leadership (*election_leadership)(int election, int64 *term);
	void (*election_want_resign)(int election, int64 term);
	int (*election_find)(const char *path);
	size_t (*engine_paths)(void); /* the worker's, which must have been started */
	size_t (*engine_bytes)(void);
	int64 (*session_id)(void);
	EntryPool *(*pool)(void);
} SimServerApi;

/* The callbacks of a process, which the wrapped on_shmem_exit() has collected */
typedef struct SimExit
{
	void (*call)(int code, Datum arg);
	Datum arg;
} SimExit;

#define SIM_EXITS 16

extern SimExit sim_exits[SIM_SERVERS][SIM_EXITS];
extern int	   sim_nexits[SIM_SERVERS];

/* Shared memory: blocks by name, which outlive the processes */
extern void *sim_shared(const char *name, Size size, bool *found);

#endif /* SIMULATE_SERVER_H */
