/*
 * zk_window.c
 *		How many calls may be under way at once.
 *
 * What is under way when a heartbeat is sent delays it, and heartbeats are what
 * everybody's locks depend on.  So there is a window of calls under way, and the
 * rest waits in zk_turn.c, where heartbeats pass by.
 *
 * The window follows what is observed.  A call that had few others ahead of it
 * shows how long ZooKeeper takes by itself.  When calls behind more than that
 * take twice as long, or MAX_DELAY_US longer if that is more, the window
 * shrinks; it grows as long as they do not and more are waiting.  So it is small
 * for a slow server, and large for one that is far away, which needs more under
 * way to be busy.
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/clock.h"
#include "zk/zk_window.h"

/*
 * A server does 5,000 to 10,000 calls in a second when it has enough to do at
 * once, so MIN_WINDOW are some 5 ms of work.
 */
#define MIN_WINDOW 32
#define FIRST_WINDOW 128
#define MAX_WINDOW 512
#define MAX_DELAY_US 10000

static int	 window = FIRST_WINDOW;
static int64 undisturbed; /* a call takes so long with few others, us; 0: unknown */
static int64 changed_at;  /* us */

/* How many calls there may be under way, besides those that need no room. */
int
zk_window_size(void)
{
	return window;
}

/*
 * Learns from the answer to a call that has just come.  The window changes once
 * in the time of a call, for only later ones show what came of it.
 *
 *	ahead	how many calls were under way when it was sent
 */
void
zk_window_learn(int64 sent_at_us, int ahead, ZkDemand demand)
{
	int64 now = zklock_now_us();
	int64 taken = now - sent_at_us;

	if (ahead < MIN_WINDOW)
	{
		/* Much can make a call slow for once, nothing makes it fast. */
		if (undisturbed == 0)
			undisturbed = taken;
		else
			undisturbed += (taken - undisturbed) / (taken < undisturbed ? 4 : 256);
		return;
	}
	if (sent_at_us < changed_at)
		return;
	if (taken > undisturbed + Max(undisturbed, MAX_DELAY_US))
		window = Max(window - window / 4, MIN_WINDOW);
	else if (demand == ZK_DEMAND_WAITING)
		window = Min(window + window / 8, MAX_WINDOW);
	else
		return;
	changed_at = now;
}
