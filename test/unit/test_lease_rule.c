/*-------------------------------------------------------------------------
 *
 * test_lease_rule.c
 *	  Unit tests of lease_rule.c: what a chain of heartbeats proves.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"
#include "worker/lease_rule.h"

#define TICK 2000

/* Adds heartbeats from "from" to "to", each answered after "delay". */
static int64_t
beats(LeaseHistory *history, int from, int to, int interval, int delay)
{
	int64_t base = -1;

	for (int sent = from; sent <= to; sent += interval)
		base = lease_history_add(history, sent, sent + delay, TICK);
	return base;
}

static void
test_chain(void)
{
	LeaseHistory history;

	history.n = 0;
	is_int(lease_history_add(&history, 0, 10, TICK), -1, "one heartbeat proves nothing");
	is_int(lease_history_add(&history, 100, 110, TICK), -1, "nor do two");
	is_int(lease_history_add(&history, 200, 210, TICK), -1, "nor do three within a tick");
	is_int(lease_history_add(&history, 2110, 2120, TICK), -1, "a tick later: B");
	is_int(lease_history_add(&history, 2120, 2130, TICK), 0,
		   "C proves the last A but one, two of which had answers a tick before B");
}

static void
test_edges(void)
{
	LeaseHistory history;

	history.n = 0;
	(void) lease_history_add(&history, 0, 10, TICK);
	(void) lease_history_add(&history, 100, 110, TICK);
	(void) lease_history_add(&history, 2109, 2120, TICK);
	is_int(lease_history_add(&history, 2120, 2130, TICK), -1, "B a moment too early after A");

	history.n = 0;
	(void) lease_history_add(&history, 0, 10, TICK);
	(void) lease_history_add(&history, 100, 110, TICK);
	(void) lease_history_add(&history, 2110, 2120, TICK);
	is_int(lease_history_add(&history, 2119, 2130, TICK), -1, "C sent before B was answered");

	history.n = 0;
	(void) lease_history_add(&history, 0, 10, TICK);
	(void) lease_history_add(&history, 2110, 2120, TICK);
	is_int(lease_history_add(&history, 2120, 2130, TICK), -1, "the very last A may be lost");
}

static void
test_pace(void)
{
	LeaseHistory history;

	history.n = 0;
	is_int(beats(&history, 0, 100000, 1000, 1), 95000,
		   "every second, answered at once: five seconds behind");
	history.n = 0;
	is_int(beats(&history, 0, 100000, 1000, 5000), 87000,
		   "answered five seconds late, each delay counts twice");

	history.n = 0;
	is_int(beats(&history, 0, 1000000, 10, 1), -1, "too many in a tick to remember prove nothing");
	is_int(history.n, LEASE_HISTORY, "and take no more room");

	(void) beats(&history, 1001000, 1004000, 1000, 1);
	is_int(lease_history_add(&history, 1005000, 1005001, TICK), 1000000,
		   "until the pace is right again");
	history.n = 0;
	is_int(lease_history_add(&history, 1006000, 1006001, TICK), -1, "a cleared history is empty");
}

static void
test_recovery(void)
{
	LeaseRecovery recovery = {0};

	is_int(lease_recovery_add(&recovery, -1, 0, 10, TICK), -1, "after a lapse: no proof yet");
	is_int(lease_recovery_add(&recovery, 5000, 2000, 2010, TICK), -1, "a proof must be confirmed");
	is_int(lease_recovery_add(&recovery, -1, 2000, 4100, TICK), -1,
		   "not by what was answered a tick later");
	is_int(lease_recovery_add(&recovery, -1, 4009, 4110, TICK), -1,
		   "nor by what was sent a moment too early");
	is_int(lease_recovery_add(&recovery, -1, 4010, 4120, TICK), 5000,
		   "but by what was sent a tick later");

	recovery = (LeaseRecovery){0};
	(void) lease_recovery_add(&recovery, 3000, 2000, 2010, TICK);
	is_int(lease_recovery_add(&recovery, 5000, 2500, 2510, TICK), -1,
		   "a proof that is renewed waits no longer ...");
	is_int(lease_recovery_add(&recovery, 4500, 4010, 4020, TICK), 5000,
		   "... and gives the last deadline");

	recovery = (LeaseRecovery){0};
	(void) lease_recovery_add(&recovery, 3000, 2000, 2010, TICK);
	is_int(lease_recovery_add(&recovery, 6000, 4010, 4020, TICK), -1,
		   "one that is renewed too late begins again");
	is_int(lease_recovery_add(&recovery, -1, 6010, 6020, TICK), -1, "and may end unconfirmed");
	is_int(lease_recovery_add(&recovery, 6000, 6015, 6030, TICK), -1, "what is over proves nothing");
}

int
main(void)
{
	test_chain();
	test_edges();
	test_pace();
	test_recovery();
	return done_testing();
}
