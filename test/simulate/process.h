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

/* A worker or a backend.  The code that runs in it sees this as sim_process. */
struct SimProcess
{
	int			server;
	int			number; /* of the server's processes: the worker is SIM_WORKER */
	const char *name;	/* for the history */

	ProcessState state;
	int64_t		 start_at;	   /* us; DEAD */
	int64_t		 wake_at;	   /* us; ASLEEP */
	int64_t		 frozen_until; /* us */
	int64_t		 timeout_at;   /* us: its lock_timeout passes */
	bool		 woken;		   /* by the client library */
	bool		 doomed;	   /* it fails where it is */
	bool		 exiting;

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
};

extern int		  sim_nservers;
extern SimProcess sim_processes[];
extern int		  sim_nprocesses;

extern void server_load(int server, int nprocesses, const SimSettings *settings);
extern void server_crash(int server);			   /* and is started anew */
extern const SimServerApi *server_api(int server); /* for what looks at shared memory alone */
extern const SimServerApi *server_enter(int server);
extern void				   server_leave(void);

extern SimProcess *server_worker(int server);

extern bool	   process_can_run(const SimProcess *process);
extern int64_t process_next_timer(const SimProcess *process);
extern void	   process_run(SimProcess *process);
extern void	   process_signal(const SimProcess *process, int signal);
extern int	   process_pid(const SimProcess *process);
extern size_t  process_memory(const SimProcess *process);

#endif /* SIMULATE_PROCESS_H */
