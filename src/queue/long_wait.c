/*
 * long_wait.c
 *		Which contenders have waited for long, and for whom.
 *
 * Deadlocks are looked for on behalf of contenders that wait for long.  What they
 * have to do with other servers, the engine knows: the nodes of others on their
 * paths.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/engine.h"
#include "queue/long_wait.h"
#include "queue/run.h"

/* Is anybody waiting who has waited for deadlock_timeout? */
bool
queue_has_long_waits(void)
{
	for (int i = 0; engine.long_waits && i < entries_max(); i++)
	{
		if (engine.contenders[i].place != PLACE_NONE && entry_is_long_wait(i))
			return true;
	}
	engine.long_waits = false;
	return false;
}

/*
 * Does a contender that has waited for long wait for what is not this server's, as
 * far as is known?  That may be gone by now, but is never missed.
 */
bool
queue_waits_abroad(int index)
{
	const Contender *c = &engine.contenders[index];
	const Path		*path = c->path;

	if (c->place != PLACE_WAITING || !run_has_node(c->run) || !entry_is_long_wait(index))
		return false;
	for (int i = 0; i < path->nforeign; i++)
	{
		const RecipePeer *peer = &path->foreign[i].peer;

		/* A permit may be given back by anybody. */
		if (path->recipe->excludes == NULL || (peer->sequence < c->run->peer.sequence &&
											   path->recipe->excludes(peer, &c->run->request)))
			return true;
	}
	return false;
}

/*
 * May another server or client wait for what a contender holds?  False if there is
 * surely none: the child watch stands, and what was listed before has nobody behind
 * the node.
 */
bool
queue_is_wanted_abroad(int index)
{
	const Contender *c = &engine.contenders[index];
	const Path		*path = c->path;

	if (c->place != PLACE_GRANTED)
		return false;
	if (path->child_watch != WATCH_SET)
		return true;
	for (int i = 0; i < path->nforeign; i++)
	{
		if (path->recipe->excludes == NULL || path->foreign[i].peer.sequence > c->run->peer.sequence)
			return true;
	}
	return false;
}
