/*
 * zk_unwatch.c
 *		Removing watches that nobody wants any more.
 *
 * A watch is removed by a call.  If that fails, the library would carry the watch
 * from one connection to the next, so the removal is repeated, unless somebody
 * asks for the watch again meanwhile.  It is put off in the same way while a read
 * that sets the watch is waiting, which it must not pass.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/clock.h"
#include "zk/zk_turn.h"
#include "zk/zk_unwatch.h"

#define AGAIN_MS 5000

static dlist_head put_off = DLIST_STATIC_INIT(put_off);
static int64	  again_at; /* ms */

/* A removal is to be sent later.  It is in no list. */
void
zk_unwatch_put_off(Call *unwatch)
{
	dlist_push_tail(&put_off, &unwatch->link);
	again_at = zklock_now_ms() + AGAIN_MS;
}

/* Sends a removal in its turn, or later if a read that sets the watch waits for its own. */
void
zk_unwatch_submit(Call *unwatch)
{
	if (zk_turn_sets_watch(unwatch))
		zk_unwatch_put_off(unwatch);
	else
		zk_turn_wait(unwatch);
}

/* Somebody asks for a watch: it need not be removed. */
void
zk_unwatch_forget(const Call *watch)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &put_off)
	{
		Call *unwatch = dlist_container(Call, link, iter.cur);

		if (zk_call_same_watch(watch, unwatch))
		{
			dlist_delete(&unwatch->link);
			zk_call_free(unwatch);
		}
	}
}

/* Tries again to send what was put off. */
void
zk_unwatch_again(void)
{
	dlist_head	again = DLIST_STATIC_INIT(again);
	dlist_node *link;

	while (!dlist_is_empty(&put_off))
	{
		link = dlist_pop_head_node(&put_off);
		dlist_push_tail(&again, link);
	}
	while (!dlist_is_empty(&again))
	{
		Call *unwatch = dlist_container(Call, link, dlist_pop_head_node(&again));

		zk_call_renumber(unwatch);
		zk_unwatch_submit(unwatch);
	}
}

/* When zk_unwatch_again() is to be called, ms; or -1. */
int64
zk_unwatch_next_wakeup(void)
{
	return dlist_is_empty(&put_off) ? -1 : again_at;
}

/* There is no watch any more. */
void
zk_unwatch_over(void)
{
	while (!dlist_is_empty(&put_off))
		zk_call_free(dlist_container(Call, link, dlist_pop_head_node(&put_off)));
}
