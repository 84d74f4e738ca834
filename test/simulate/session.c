/*
 * session.c
 *		A session of PostgreSQL: the main function of a simulated backend.
 *
 * It does one thing after the other, by chance: each is a call of the extension, in a
 * transaction or one of its own, or begins or ends a transaction.  Errors are caught as
 * PostgreSQL does it.  A ledger has what the calls have promised, and after each of
 * them it is compared with what the extension has counted.
 *
 * To add a thing, write a function and give it a line in "things".
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "process.h"

#include "backend/element.h"
#include "backend/guard.h"
#include "backend/lock.h"
#include "backend/wait.h"
#include "shared/settings.h"
#include "sql/arguments.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#define MAX_ELEMENTS 20 /* in a queue */

extern Datum zk_claim(PG_FUNCTION_ARGS);
extern Datum zk_lock_persistent(PG_FUNCTION_ARGS);
extern Datum zk_lock_persistent_shared(PG_FUNCTION_ARGS);
extern Datum zk_unlock_persistent(PG_FUNCTION_ARGS);
extern Datum zk_await_leadership(PG_FUNCTION_ARGS);
extern Datum zk_resign(PG_FUNCTION_ARGS);
extern Datum zk_reserve(PG_FUNCTION_ARGS);
extern Datum zk_renew(PG_FUNCTION_ARGS);
extern Datum zk_rely(PG_FUNCTION_ARGS);
extern Datum zk_unreserve(PG_FUNCTION_ARGS);

/* How often each path is acquired: by mode, and there by level */
#define LEDGER_SIZE (SIM_PATHS * 4)

typedef struct Ledger
{
	int of[LEDGER_SIZE];
	int ntaken; /* of queues, by the transaction */
} Ledger;

static Ledger ledger;
static Ledger at_savepoint[XACT_MAX_DEPTH + 1]; /* by depth: before that was reached */
static Ledger at_statement;						/* before that began */

/* An element by its czxid, or a reservation by its token */
typedef struct Taken
{
	int	  path;
	int64 number;
} Taken;

static Taken taken[64]; /* of queues, by the transaction */

static Taken		 removed;  /* by this statement; or 0 */
static Taken		 reserved; /* the same */
static int			 offering; /* the element, while that is offered; or 0 */
static int64		 commit_zxid;
static MemoryContext statement_context;

/* ------------------------------------------------------------------------
 * The ledger
 * ------------------------------------------------------------------------
 */

static int *
count_of(Ledger *of, int path, LockMode mode, LockScope scope)
{
	return &of->of[path * 4 + mode * 2 + scope];
}

/* It is released once at session level, if it is held. */
static void
uncount(int path, LockMode mode)
{
	int *count = count_of(&ledger, path, mode, LOCK_SCOPE_SESSION);

	*count = Max(*count - 1, 0);
}

/* Does the session hold what its calls have promised, as often, and nothing else? */
static void
check_ledger(const char *after)
{
	Ledger counted = {0};

	for (const Hold *hold = hold_next(NULL); hold; hold = hold_next(hold))
	{
		EntryStatus status;

		for (int i = 0; i < 4; i++)
			*count_of(&counted, sim_path_of(hold->path), i / 2, i % 2) +=
				hold->acquired[i / 2][i % 2];
		status = entry_status(hold->entry);
		if (!hold_is_acquired(hold) || entry_generation(hold->entry) != hold->generation ||
			(status.state != ENTRY_GRANTED && status.state != ENTRY_LOST))
			sim_violation(hold->path, "H: after %s, %s has entry %d, which is not acquired",
						  after, sim_process->name, hold->entry);
	}
	for (int i = 0; i < LEDGER_SIZE; i++)
	{
		if (counted.of[i] != ledger.of[i])
			sim_violation(sim_paths[i / 4].path,
						  "H: after %s, %s has acquired it %d times in mode %d at level %d, not %d times",
						  after, sim_process->name, counted.of[i], i / 2 % 2, i % 2, ledger.of[i]);
	}
	if (transaction_reliance.nterms > 0 && xact_depth == 0)
		sim_violation(NULL, "H: after %s, %s relies on a term outside a transaction", after,
					  sim_process->name);
}

/* What the transaction has is as it was before that depth was reached. */
static void
restore(int depth)
{
	for (int i = LOCK_SCOPE_TRANSACTION; i < LEDGER_SIZE; i += 2)
		ledger.of[i] = at_savepoint[depth].of[i];
	ledger.ntaken = at_savepoint[depth].ntaken;
}

/* ------------------------------------------------------------------------
 * Transactions
 * ------------------------------------------------------------------------
 */

static void
choose_settings(void)
{
	zklock_commit_guard = sim_one_in(8)	  ? COMMIT_GUARD_OFF
						  : sim_one_in(3) ? COMMIT_GUARD_QUORUM
										  : COMMIT_GUARD_LEASE;
	zklock_parent_nodes = sim_one_in(4) ? PARENTS_PERSISTENT : PARENTS_CONTAINER;
	zklock_max_hold_time = sim_one_in(16) ? 1 + sim_below(50) : 0;
	zklock_max_locks_per_session = sim_one_in(8) ? 3 : SIM_ENTRIES;
	zklock_on_lock_loss = sim_one_in(4)	  ? LOSS_CANCEL
						  : sim_one_in(8) ? LOSS_TERMINATE
										  : LOSS_ABORT;
	interrupt_set_policy(zklock_on_lock_loss, NULL);
	LockTimeout = sim_one_in(8) ? 1 + sim_below(200) : 0;
}

static void
do_savepoint(int path)
{
	xact_begin();
	at_savepoint[xact_depth] = ledger;
}

static void
do_begin(int path)
{
	choose_settings();
	do_savepoint(path);
}

static void
do_write(int path)
{
	xact_has_written = true;
}

static void
do_release_savepoint(int path)
{
	xact_release();
}

static void
roll_back(int depth)
{
	xact_roll_back(depth);
	restore(depth + 1);
}

static void
do_roll_back(int path)
{
	roll_back(sim_below(xact_depth));
}

/* Checks an entry on which a transaction that commits has relied.  Returns true if nothing guards it. */
static bool
is_unguarded(CommitGuard taken_under, int entry, uint32 generation)
{
	CommitGuard guard = Max(taken_under, (CommitGuard) zklock_commit_guard);

	if (guard != COMMIT_GUARD_OFF)
		check_relied(sim_process->server, entry, generation,
					 guard == COMMIT_GUARD_QUORUM ? commit_zxid : 0);
	return guard == COMMIT_GUARD_OFF;
}

/* The commit is certain: all that the transaction has relied on is looked at. */
static void
on_committed(void)
{
	bool risky = false;

	for (const Hold *hold = hold_next(NULL); hold; hold = hold_next(hold))
	{
		if (xact_has_written || hold_is_acquired_at(hold, LOCK_SCOPE_TRANSACTION))
			risky |= is_unguarded(hold->taken_under, hold->entry, hold->generation);
	}
	for (const ReliedReservation *relied = transaction_reliance.reservations; relied;
		 relied = relied->next)
		(void) is_unguarded(relied->taken_under, relied->reservation.index,
							relied->reservation.generation);
	for (int i = 0; i < transaction_reliance.nterms && xact_has_written; i++)
	{
		const LeadershipTerm *term = &transaction_reliance.terms[i];

		if (Max(term->taken_under, (CommitGuard) zklock_commit_guard) != COMMIT_GUARD_OFF)
			check_relied_term(sim_process->server, term->election, term->token);
	}
	for (int i = 0; i < ledger.ntaken; i++)
		check_delivered(taken[i].path, taken[i].number, zklock_session->info.id, risky);
}

static void
do_commit(int path)
{
	commit_zxid = model_last_zxid;
	xact_commit(on_committed, ledger.ntaken == 0 && sim_one_in(8) ? 1 + sim_below(50) : 0);
	restore(1);
}

/* ------------------------------------------------------------------------
 * Calls
 * ------------------------------------------------------------------------
 */

/* The timeout of a call, ms.  Who may wait for ever for what need not come is helped in the end. */
static int64
some_timeout(bool may_not_come)
{
	int64 timeout = sim_one_in(3)	? LOCK_NO_WAIT
					: sim_one_in(3) ? 1 + (int64) sim_below(50)
									: 3000;

	if (!sim_one_in(4))
		return timeout;
	sim_process->is_stuck = may_not_come;
	return LOCK_WAIT_FOREVER;
}

/* A lock, and some more now and then; they are in order, as the paths are */
static LockSet
some_locks(int path, int *paths)
{
	static LockTarget targets[SIM_PATHS];
	LockSet			  set = {.targets = targets};
	bool			  several = sim_one_in(4);

	for (int i = 0; i < sim_npaths; i++)
	{
		if (i != path && !(several && sim_paths[i].use == USE_LOCK && sim_one_in(2)))
			continue;
		paths[set.n] = i;
		targets[set.n++] =
			(LockTarget){.path = sim_paths[i].path,
						 .mode = sim_one_in(sim_writers) ? LOCK_MODE_EXCLUSIVE : LOCK_MODE_SHARED};
	}
	return set;
}

static void
tell_locks(const char *what, const LockSet *set, LockScope scope)
{
	for (int i = 0; i < set->n; i++)
		sim_tell("%s %s %s%s", what, set->targets[i].mode == LOCK_MODE_SHARED ? "shared" : "exclusive",
				 set->targets[i].path, scope == LOCK_SCOPE_TRANSACTION ? " for the transaction" : "");
}

static void
do_lock(int path)
{
	int		  paths[SIM_PATHS];
	LockSet	  set = some_locks(path, paths);
	LockScope scope = sim_below(2);

	tell_locks("asks for", &set, scope);
	if (!lock_acquire(set, scope, some_timeout(false)))
		return;
	for (int i = 0; i < set.n; i++)
		++*count_of(&ledger, paths[i], set.targets[i].mode, scope);
	tell_locks("has", &set, scope);
}

/* Whatever becomes of the call, it has released what was held. */
static void
do_unlock(int path)
{
	int		paths[SIM_PATHS];
	LockSet set = some_locks(path, paths);
	bool	held = true;

	set.whole = sim_one_in(2);
	for (int i = 0; i < set.n; i++)
		held &= *count_of(&ledger, paths[i], set.targets[i].mode, LOCK_SCOPE_SESSION) > 0;
	for (int i = 0; (held || !set.whole) && i < set.n; i++)
		uncount(paths[i], set.targets[i].mode);
	tell_locks("releases", &set, LOCK_SCOPE_SESSION);
	(void) lock_release(set);
}

/* Locks it several times in a row, so that its node is kept in between. */
static void
do_lock_again(int path)
{
	LockTarget target;
	LockSet	   set = {.targets = &target, .n = 1};

	for (int i = 2 + (int) sim_below(4); i > 0; i--)
	{
		target = (LockTarget){.path = sim_paths[path].path, .mode = LOCK_MODE_EXCLUSIVE};
		sim_tell("asks again and again for %s", target.path);
		if (!lock_acquire(set, LOCK_SCOPE_SESSION, some_timeout(false)))
			return;
		sim_tell("has, and releases %s", target.path);
		(void) lock_release(set);
	}
}

/* Goes some steps on the way from having a lock for itself to sharing it. */
static void
do_downgrade(int path)
{
	int		  *exclusive = count_of(&ledger, path, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_SESSION);
	int		  *shared = count_of(&ledger, path, LOCK_MODE_SHARED, LOCK_SCOPE_SESSION);
	LockTarget target;
	LockSet	   set = {.targets = &target, .n = 1};

	do
	{
		bool	 gives_up = *exclusive > 0 && *shared > 0;
		LockMode mode = *exclusive > 0 && !gives_up ? LOCK_MODE_SHARED : LOCK_MODE_EXCLUSIVE;

		target = (LockTarget){.path = sim_paths[path].path, .mode = mode};
		tell_locks(gives_up ? "gives up" : "asks, so as to downgrade, for", &set, LOCK_SCOPE_SESSION);
		if (gives_up)
		{
			uncount(path, LOCK_MODE_EXCLUSIVE);
			(void) lock_release(set);
			return;
		}
		if (!lock_acquire(set, LOCK_SCOPE_SESSION, some_timeout(false)))
			return;
		++*(mode == LOCK_MODE_SHARED ? shared : exclusive);
		at_statement = ledger; /* this call is complete, whatever becomes of the next one */
	} while (!sim_one_in(4));
}

static void
do_release_all(int path)
{
	sim_tell("releases all");
	for (int i = LOCK_SCOPE_SESSION; i < LEDGER_SIZE; i += 2)
		ledger.of[i] = 0;
	lock_release_those(NULL, NULL);
}

static void
do_acquire_permit(int path)
{
	LockScope scope = sim_below(2);

	sim_tell("asks for a permit of %s", sim_paths[path].path);
	if (!permit_acquire(sim_paths[path].path, sim_paths[path].permits, scope, some_timeout(false)))
		return;
	++*count_of(&ledger, path, LOCK_MODE_EXCLUSIVE, scope);
	sim_tell("has a permit of %s", sim_paths[path].path);
}

static void
do_release_permit(int path)
{
	sim_tell("releases a permit of %s", sim_paths[path].path);
	uncount(path, LOCK_MODE_EXCLUSIVE);
	(void) permit_release(sim_paths[path].path);
}

static void
do_offer(int path)
{
	const char		*queue = sim_paths[path].path;
	const ModelNode *node = tree_find(model_truth, queue);
	char			 data[16];
	char			*name;

	if (node && node->stat.numChildren >= MAX_ELEMENTS)
		return;
	offering = check_offer();
	snprintf(data, sizeof(data), "%d", offering);
	sim_tell("offers %s at %s", data, queue);
	name = take_offer(queue, data, strlen(data));
	sim_tell("has added %s/%s", queue, name ? name : "?");
}

/* Gets the first element of a queue.  Returns false if there is none in time. */
static bool
seek(int path, TakeHow how, Element *element)
{
	int64 timeout = some_timeout(true);
	bool  found;

	sim_tell("%s an element of %s", how == TAKE_REMOVE ? "removes" : "takes", sim_paths[path].path);
	sim_process->seeks = path;
	sim_process->removes = how == TAKE_REMOVE;
	found = take_first(sim_paths[path].path, how, timeout, STATS_QUEUE, element);
	if (found)
		sim_tell("has %s", element->name);
	return found;
}

static void
do_remove(int path)
{
	Element element;

	if (seek(path, TAKE_REMOVE, &element))
		removed = (Taken){path, element.token};
}

static void
do_take(int path)
{
	Element element;

	if (ledger.ntaken == (int) lengthof(taken) || !seek(path, TAKE_CLAIM, &element))
		return;
	taken[ledger.ntaken++] = (Taken){path, element.token};
	++*count_of(&ledger, path, LOCK_MODE_EXCLUSIVE, LOCK_SCOPE_TRANSACTION);
}

static void
do_show(int path)
{
	Element element;

	(void) take_first(sim_paths[path].path, TAKE_SHOW, LOCK_NO_WAIT, WAIT_UNCOUNTED, &element);
}

/* Waits for an element where permits or locks are: the wait shares their child watch. */
static void
do_take_elsewhere(int path)
{
	const char *suffix = sim_paths[path].use == USE_SEMAPHORE ? "/leases" : "";
	Element		element;

	(void) take_first(psprintf("%s%s", sim_paths[path].path, suffix), TAKE_CLAIM,
					  some_timeout(true), STATS_QUEUE, &element);
}

#define SQL_NULL ((NullableDatum){0, true})

static NullableDatum
sql_value(Datum value)
{
	return (NullableDatum){value, false};
}

/* An interval; of a timeout that never comes, NULL */
static NullableDatum
sql_ms(int64 ms)
{
	Interval *interval = palloc0(sizeof(Interval));

	interval->time = ms * 1000;
	return ms < 0 ? SQL_NULL : sql_value(IntervalPGetDatum(interval));
}

/* Calls an SQL function of a path and up to two arguments; returns 0 for NULL. */
static Datum
call_sql(PGFunction function, int path, NullableDatum second, NullableDatum third)
{
	LOCAL_FCINFO(fcinfo, 3);
	Datum result;

	InitFunctionCallInfoData(*fcinfo, NULL, 3, InvalidOid, NULL, NULL);
	fcinfo->args[0] = sql_value(PointerGetDatum(cstring_to_text(sim_paths[path].path)));
	fcinfo->args[1] = second;
	fcinfo->args[2] = third;
	result = function(fcinfo);
	return fcinfo->isnull ? (Datum) 0 : result;
}

/* The duration of a reservation.  Whatever is left of it is over when a drain is. */
static NullableDatum
some_duration(void)
{
	return sql_ms(1 + (int64) sim_below(sim_one_in(2) ? 100 : 6000));
}

static void
do_reserve(int path)
{
	NullableDatum duration = some_duration();
	int64		  token;

	sim_tell("reserves %s", sim_paths[path].path);
	token = DatumGetInt64(call_sql(zk_reserve, path, duration, sql_ms(some_timeout(false))));
	reserved = (Taken){path, token};
}

/* Uses the reservation that was made last: any session may, of whichever server. */
static void
do_use_reservation(int path)
{
	static const struct
	{
		const char *name;
		PGFunction	function;
	} uses[] = {{"renews", zk_renew}, {"relies on", zk_rely}, {"ends", zk_unreserve}};

	int	  use = (int) sim_below(lengthof(uses));
	int64 token = check_reserved_last[path];
	bool  was_over = check_is_over(path, token);
	bool  done;

	sim_tell("%s the reservation of %s, token %lld", uses[use].name, sim_paths[path].path,
			 (long long) token);
	done = DatumGetBool(call_sql(uses[use].function, path, sql_value(Int64GetDatum(token)),
								 some_duration())) ||
		   uses[use].function == zk_rely; /* or that has raised an error */
	sim_tell("the reservation of %s: %s", sim_paths[path].path, done ? "done" : "it is over");
	if (done && was_over)
		sim_violation(sim_paths[path].path, "R: it %s a reservation that is over", uses[use].name);
	if (done && uses[use].function == zk_unreserve && !check_is_over(path, token))
		sim_violation(sim_paths[path].path, "R: reservation %lld was ended, and goes on",
					  (long long) token);
}

/* Takes a lock that no session holds, unless somebody is in its way. */
static void
do_lock_persistently(int path)
{
	bool  shared = sim_one_in(2);
	int64 token;

	sim_tell("asks for %s %s persistently", shared ? "shared" : "exclusive", sim_paths[path].path);
	sim_process->persists = path;
	token = DatumGetInt64(call_sql(shared ? zk_lock_persistent_shared : zk_lock_persistent,
								   path, SQL_NULL, SQL_NULL));
	if (token == 0)
		return;
	sim_tell("has %s persistently, token %lld", sim_paths[path].path, (long long) token);
	check_locked_persistently(path, token);
}

/* Unlocks what any session has locked so. */
static void
do_unlock_persistently(int path)
{
	int64 token = check_unlocks_persistently(path);

	if (token == 0)
		return;
	sim_tell("unlocks %s, token %lld", sim_paths[path].path, (long long) token);
	(void) call_sql(zk_unlock_persistent, path, sql_value(Int64GetDatum(token)), SQL_NULL);
	check_unlocked_persistently(path, token);
}

static void
do_claim(int path)
{
	int last = check_last_claim[path];
	int slot = last + (last == 0) + (int) sim_below(3);

	if (tree_find(model_truth, sim_paths[path].path) == NULL && !sim_one_in(20))
		return; /* others may make the path first */
	sim_tell("claims slot %d of %s", slot, sim_paths[path].path);
	if (!DatumGetBool(call_sql(zk_claim, path,
							   sql_value(TimestampTzGetDatum(slot * USECS_PER_MINUTE)), SQL_NULL)))
		return;
	sim_tell("has claimed slot %d of %s", slot, sim_paths[path].path);
	check_claimed(path, slot, last);
}

static void
do_lead(int path)
{
	int	  election = election_find(sim_paths[path].path);
	int64 term = election != -1 ? transaction_leads(election) : 0;

	if (term != 0)
		sim_tell("is told that its server leads, term %lld", (long long) term);
}

static void
do_await(int path)
{
	(void) call_sql(zk_await_leadership, path, sql_ms(some_timeout(true)), SQL_NULL);
}

static void
do_resign(int path)
{
	if (sim_process->number % 2 == 1)
		return;
	sim_tell("has its server resign from %s", sim_paths[path].path);
	sim_process->is_stuck = true;
	(void) call_sql(zk_resign, path, SQL_NULL, SQL_NULL);
}

/* ------------------------------------------------------------------------
 * One thing after the other
 * ------------------------------------------------------------------------
 */

#define ANY_USE (-1)

typedef struct Thing
{
	const char *name;
	void (*act)(int path);
	int	 use;  /* of the path */
	int	 from; /* at this depth ... */
	int	 to;   /* ... to that */
	int	 rare; /* one in so many */
	bool ends; /* or begins, a transaction or subtransaction: it is no call within one */
} Thing;

enum /* those that drain() does */
{
	DO_COMMIT,
	DO_DISCARD_ALL,
	DO_UNLOCK_PERSISTENTLY
};

static const Thing things[] = {
	[DO_COMMIT] = {"COMMIT", do_commit, ANY_USE, 1, XACT_MAX_DEPTH, 4, true},
	[DO_DISCARD_ALL] = {"DISCARD ALL", do_release_all, ANY_USE, 0, XACT_MAX_DEPTH, 12},
	[DO_UNLOCK_PERSISTENTLY] = {"unlock persistently", do_unlock_persistently, USE_LOCK, 0,
								XACT_MAX_DEPTH, 1},
	{"BEGIN", do_begin, ANY_USE, 0, 0, 2, true},
	{"ROLLBACK", do_roll_back, ANY_USE, 1, XACT_MAX_DEPTH, 8, true},
	{"SAVEPOINT", do_savepoint, ANY_USE, 1, XACT_MAX_DEPTH - 1, 6, true},
	{"RELEASE", do_release_savepoint, ANY_USE, 2, XACT_MAX_DEPTH, 6, true},
	{"write", do_write, ANY_USE, 1, XACT_MAX_DEPTH, 2},
	{"lock", do_lock, USE_LOCK, 0, XACT_MAX_DEPTH, 1},
	{"unlock", do_unlock, USE_LOCK, 0, XACT_MAX_DEPTH, 2},
	{"downgrade", do_downgrade, USE_LOCK, 0, XACT_MAX_DEPTH, 2},
	{"lock persistently", do_lock_persistently, USE_LOCK, 0, XACT_MAX_DEPTH, 8},
	{"permit", do_acquire_permit, USE_SEMAPHORE, 0, XACT_MAX_DEPTH, 1},
	{"permit back", do_release_permit, USE_SEMAPHORE, 0, XACT_MAX_DEPTH, 1},
	{"is_leader", do_lead, USE_ELECTION, 0, XACT_MAX_DEPTH, 1},
	{"await", do_await, USE_ELECTION, 0, XACT_MAX_DEPTH, 2},
	{"resign", do_resign, USE_ELECTION, 0, XACT_MAX_DEPTH, 2},
	{"offer", do_offer, USE_QUEUE, 0, XACT_MAX_DEPTH, 1},
	{"remove", do_remove, USE_QUEUE, 0, XACT_MAX_DEPTH, 1},
	{"take", do_take, USE_QUEUE, 0, XACT_MAX_DEPTH, 1},
	{"show", do_show, USE_QUEUE, 0, XACT_MAX_DEPTH, 2},
	{"take elsewhere", do_take_elsewhere, USE_LOCK, 0, XACT_MAX_DEPTH, 8},
	{"take elsewhere", do_take_elsewhere, USE_SEMAPHORE, 0, XACT_MAX_DEPTH, 4},
	{"claim", do_claim, USE_CLAIM, 0, XACT_MAX_DEPTH, 1},
	{"lock again", do_lock_again, USE_LOCK, 0, XACT_MAX_DEPTH, 2},
	{"reserve", do_reserve, USE_LOCK, 0, XACT_MAX_DEPTH, 4},
	{"use reservation", do_use_reservation, USE_LOCK, 0, XACT_MAX_DEPTH, 2},
};

/* What might be done at a path now */
static const Thing *
choose(int path)
{
	const Thing *thing;

	do
		thing = &things[sim_below(lengthof(things))];
	while ((thing->use != ANY_USE && thing->use != (int) sim_paths[path].use) ||
		   xact_depth < thing->from || xact_depth > thing->to || !sim_one_in(thing->rare));
	return thing;
}

/* The client hears that the statement has done what it was to do. */
static void
on_done(void)
{
	if (offering)
		check_offered(offering, OFFER_MADE);
	if (removed.number)
		check_delivered(removed.path, removed.number, 0, false);
	if (reserved.number)
		check_reserved(reserved.path, reserved.number);
}

/*
 * After an error: what it says of what may have been done counts, and nothing that the
 * statement has acquired is held.
 */
static void
on_error(const char *name)
{
	ErrorData  *error;
	const char *context;
	bool		doubt;

	MemoryContextSwitchTo(statement_context);
	error = CopyErrorData();
	context = error->context ? error->context : "";
	doubt = strstr(error->message, "could not find out") || strstr(context, "may ") ||
			strstr(context, "after ");
	roll_back(xact_depth > 1 && sim_one_in(2) ? xact_depth - 1 : 0);
	FlushErrorState();
	sim_tell("%s: error: %s | %s | %s", name, error->message,
			 error->detail ? error->detail : "", context);
	if (error->sqlerrcode == ERRCODE_INTERNAL_ERROR)
		sim_violation(NULL, "%s: %s fails: %s", sim_process->name, name, error->message);
	if (offering)
		check_offered(offering, doubt ? OFFER_IN_DOUBT : OFFER_FAILED);
	if (sim_process->seeks >= 0 && sim_process->removes && doubt)
		check_removals_in_doubt[sim_process->seeks]++;
	if (sim_process->persists >= 0 && doubt)
		check_persistent_in_doubt[sim_process->persists]++;
	for (int i = LOCK_SCOPE_SESSION; i < LEDGER_SIZE; i += 2)
		ledger.of[i] = Min(ledger.of[i], at_statement.of[i]);
}

static void
execute(const Thing *thing, int path)
{
	bool alone = xact_depth == 0 && !thing->ends;

	sim_process->doing = thing->name;
	at_statement = ledger;
	removed = reserved = (Taken){0};
	MemoryContextReset(statement_context);
	MemoryContextSwitchTo(statement_context);
	PG_TRY();
	{
		if (alone)
			do_savepoint(path);
		thing->act(path);
		sim_process->is_stuck = false;
		CHECK_FOR_INTERRUPTS();
		on_done();
		sim_process->seeks = -1;
		if (alone)
		{
			(void) zklock_now_us(); /* an interrupt that comes now is looked at by no executor */
			do_commit(path);
		}
	}
	PG_CATCH();
	{
		on_error(thing->name);
	}
	PG_END_TRY();
	sim_process->seeks = sim_process->persists = -1;
	offering = 0;
	sim_process->is_stuck = false;
	sim_process->doing = NULL;
	check_ledger(thing->name);
}

/* Rests.  A session that is idle does not look at cancellations. */
static void
rest(int64_t ms)
{
	int64_t until = model_now + ms * MS;

	MemoryContextReset(statement_context);
	do
	{
		ResetLatch(MyLatch);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT, Max(until - model_now, MS) / MS, 0);
		sim_process->cancelled = false;
		if (sim_process->terminated)
			ProcessInterrupts();
	} while (model_now < until);
}

/* Who has something gives it back. */
static void
drain(void)
{
	static const Ledger empty;

	while (xact_depth > 0)
		execute(&things[DO_COMMIT], 0);
	while (memcmp(&ledger, &empty, sizeof(Ledger)) != 0)
		execute(&things[DO_DISCARD_ALL], 0);
	for (int path = 0; path < sim_npaths; path++)
	{
		while (check_unlocks_persistently(path) != 0)
			execute(&things[DO_UNLOCK_PERSISTENTLY], path);
	}
	sim_process->is_done = true;
	rest(1 + sim_below(4000));
	sim_process->is_done = sim_phase == PHASE_DRAIN;
}

void
session_main(void)
{
	statement_context = AllocSetContextCreate(TopMemoryContext, "statement", ALLOCSET_DEFAULT_SIZES);
	choose_settings();
	while (sim_phase != PHASE_TURMOIL || !sim_one_in(200))
	{
		if (sim_phase == PHASE_DRAIN)
			drain();
		else if (sim_phase == PHASE_CALM)
			rest(1 + sim_below(4000));
		else
		{
			int path = sim_below(sim_npaths);

			execute(choose(path), path);
			rest(sim_one_in(4) ? sim_below(40 * sim_pace) : sim_below(3 * sim_pace));
		}
	}
}
