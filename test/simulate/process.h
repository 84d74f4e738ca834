/*
 * process.h
 *		Database servers and their workers.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef SIMULATE_PROCESS_H
#define SIMULATE_PROCESS_H

#include "sim.h"

#include "server.h"

extern int sim_nservers;

extern void server_load(int server, const char *library, const SimSettings *settings);
extern const SimServerApi *server_enter(int server, int process);
extern void				   server_leave(void);
extern EntryPool		  *server_entries(int server);

/* Its worker */
extern bool	   worker_lives(int server);
extern bool	   worker_can_run(int server);
extern void	   worker_run(int server);
extern int64_t worker_next_timer(int server);
extern void	   worker_kill(int server);
extern void	   worker_freeze(int server, int64_t until);
extern bool	   worker_is_asleep(int server);
extern int64_t worker_zxid(int server); /* all until then it has taken note of */
extern size_t  worker_memory(int server);

/* All of it crashes, and is started anew. */
extern void server_crash(int server);

/* Latches of its backends */
extern bool latch_is_set(int server, int process);

#endif /* SIMULATE_PROCESS_H */
