/*
 * server.h
 *		What a copy of the extension offers the world around it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef SIMULATE_SERVER_H
#define SIMULATE_SERVER_H

#include "postgres.h"

#include "backend/guard.h"
#include "shared/call.h"
#include "shared/election.h"
#include "shared/entry.h"
#include "shared/session_info.h"
#include "storage/proc.h"

typedef struct SimServerApi
{
	char *data; /* the copy's global variables */
	char *data_end;

	void (*configure)(void);
	void (*attach)(void); /* to shared memory, which is initialised if it is new */
	void (*main)(void);

	void (*check_rest)(const char *name, int nelections); /* of the worker, in the end */

	/* Shared memory, as any process sees it */
	SharedSession **session;
	EntryPool	  **pool;
	bool (*is_overrun)(int64 expires_us); /* by the server's clock */
	LeaseState (*lease_state)(void);
	Leadership (*election_leadership)(int election, int64 *term);
	int (*election_find)(const char *path);

	const Reliance *reliance; /* a backend's own: on what its transaction relies */
} SimServerApi;

/*
 * What comes in the place of a function of PostgreSQL's or the system's, by the linker's --wrap:
 * the value of an expression.  The Makefile finds the names.
 */
#define INSTEAD(name, value, type, ...) \
	type __wrap_##name(__VA_ARGS__);    \
	type __wrap_##name(__VA_ARGS__)     \
	{                                   \
		return value;                   \
	}

/* session.c: a backend */
extern void session_main(void);

/* xact.c: its transactions */
#define XACT_MAX_DEPTH 4

extern int	xact_depth; /* in savepoints; 0: there is no transaction */
extern bool xact_has_written;
extern void xact_begin(void);
extern void xact_roll_back(int to);
extern void xact_release(void);
extern void xact_commit(void (*committed)(void), int wait_ms);

#endif /* SIMULATE_SERVER_H */
