/*
 * compare_model.c
 *		The model of ZooKeeper, and the library above it, in the place of the real ones
 *		(compare.c).  Nothing happens by itself, and no time passes.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "sim.h"

SimRates sim_rates;
int		 sim_current = FOREIGN;

const ModelHooks model_hooks;

extern void world_run(void);
extern void world_break(zhandle_t *handle, int fd);
extern void world_connect(zhandle_t *handle);

static void __attribute__((constructor)) start(void)
{
	model_start(2000 * MS);
}

/* In a round whatever is under way gets to the leader, back to the servers, or to its client. */
void
world_run(void)
{
	for (int round = 0; round < 8; round++)
	{
		for (zhandle_t *h = library_handles; h; h = h->next)
		{
			while (library_next_step(h) <= model_now)
				library_step(h);
		}
		for (ModelConnection *c = model_connections; c; c = c->next)
		{
			while (model_can_step_connection(c))
				model_step_connection(c);
		}
		for (ModelServer *s = model_servers; s < model_servers + MODEL_SERVERS; s++)
		{
			while (model_can_forward(s))
				model_step_forward(s);
		}
		for (ModelServer *s = model_servers; s < model_servers + MODEL_SERVERS; s++)
		{
			while (model_apply_at(s) <= model_now)
				model_step_apply(s);
		}
		library_attend_connections();
	}
}

void
world_break(zhandle_t *handle, int fd)
{
	model_break(handle->connection);
	while (handle->connection)
		library_step(handle);
	handle->connect_at = SIM_NEVER;
}

void
world_connect(zhandle_t *handle)
{
	handle->connect_at = model_now;
}
