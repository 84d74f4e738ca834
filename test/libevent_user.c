/*
 * libevent_user.c
 *		A library for PostgreSQL that uses libevent, as some extensions do.
 *
 * PostgreSQL loads libraries into one space of names: what one of them exports
 * may be called by another that means its own.  libevent and zklock both have
 * had an event_free().
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <event2/event.h>

#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(libevent_rounds);

static void
on_timeout(evutil_socket_t fd, short what, void *arg)
{
	++*(int *) arg;
}

/* Has one event happen as often as asked, and returns how often it did. */
Datum
libevent_rounds(PG_FUNCTION_ARGS)
{
	struct event_base *base = event_base_new();
	int				   happened = 0;

	for (int i = 0; i < PG_GETARG_INT32(0); i++)
	{
		struct event *event = event_new(base, -1, 0, on_timeout, &happened);

		event_active(event, EV_TIMEOUT, 1);
		event_base_loop(base, EVLOOP_ONCE);
		event_free(event);
	}
	event_base_free(base);
	PG_RETURN_INT32(happened);
}
