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
	char *data; /* the copy's global variables */
	char *data_end;

	void (*configure)(const SimSettings *settings);
	void (*attach)(void); /* to shared memory, which is initialised if it is new */
	void (*main)(void);

	/* Shared memory, as any process sees it */
	bool (*entry_is_overrun)(int64 expires_us);
	int (*entries_in_use)(void);
	int (*calls_in_use)(void);
	LeaseState (*lease_state)(void);
	int64 (*lease_until)(void);
	Leadership (*election_leadership)(int election, int64 *term);
	int (*election_find)(const char *path);
	int64 (*session_id)(void);
	EntryPool *(*pool)(void);

	/* The worker's, which must have been started */
	size_t (*engine_paths)(void);
	size_t (*engine_bytes)(void);
} SimServerApi;

/* session.c: a backend */
extern void session_main(void);

/* xact.c: its transactions */
#define XACT_MAX_DEPTH 4

extern int	xact_depth(void);
extern bool xact_has_written(void);
extern void xact_begin(void);
extern void xact_write(void);
extern void xact_roll_back(int to);
extern void xact_release(void);
extern void xact_commit(void (*committed)(void), int wait_ms);

#endif /* SIMULATE_SERVER_H */
