/*
 * process.h
 *		Database servers and their processes.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef SIMULATE_PROCESS_H
#define SIMULATE_PROCESS_H

#include "sim.h"

#include "server.h"

typedef enum ProcessState
{
	PROCESS_DEAD,
	PROCESS_RUNNABLE, /* it was held up where it looked at the clock */
	PROCESS_ASLEEP
} ProcessState;

/* PostgreSQL's globals of a process, while another one runs */
typedef struct Globals
{
	MemoryContext		  top;
	MemoryContext		  current;
	MemoryContext		  transaction;
	sigjmp_buf			 *exceptions;
	ErrorContextCallback *contexts;
	uint32				  holdoff;
	uint32				  cancel_holdoff;
	bool				  exiting;
} Globals;

/* A worker or a backend.  The code that runs in it sees this as sim_process. */
struct SimProcess
{
	int					server;
	int					number;	  /* of the server's processes: the worker is SIM_WORKER */
	char				name[16]; /* for the history */
	const SimServerApi *api;
	char			   *pristine; /* its global variables as it begins */
	char			   *stack;
	PGPROC			   *proc;
	int64_t				start_at;	  /* us; DEAD */
	int64_t				frozen_until; /* us */

	/* This and what follows begins anew with the process. */
	ProcessState  state;
	ucontext_t	  context;
	Globals		  globals;
	MemoryContext memory;
	int64_t		  wake_at;	  /* us; ASLEEP */
	int64_t		  timeout_at; /* us: its lock_timeout passes */
	bool		  woken;	  /* by the client library */
	bool		  doomed;	  /* it fails where it is */
	bool		  exiting;

	/* Signals that it has not looked at */
	bool cancelled;
	bool terminated;
	bool timed_out; /* lock_timeout has cancelled it */

	/* While any of these is set, it is not held up. */
	int	 locks; /* LWLocks that it holds */
	bool reports;
	bool commits;

	const void *awaits; /* a condition variable, or NULL */
	int			rounds; /* since it slept */
	int64_t		zxid;	/* of a worker: seen when it woke last */

	/* A backend's */
	const char *doing;	  /* NULL: it is idle */
	bool		is_done;  /* it has nothing and waits for nothing */
	bool		is_stuck; /* it waits for what need not come */
	int			seeks;	  /* an element of that path; -1: none ... */
	bool		removes;  /* ... to remove it */
	int			persists; /* it locks that path persistently; -1: none */
};

extern int		  sim_nservers;
extern SimProcess sim_processes[];
extern int		  sim_nprocesses;

extern void server_load(int server, int nprocesses);
extern void server_crash(int server); /* and is started anew */

extern SimProcess *server_worker(int server);

extern int64_t process_next_step(const SimProcess *process);
extern void	   process_run(void *process);
extern void	   process_signal(const SimProcess *process, int signal);

#endif /* SIMULATE_PROCESS_H */
