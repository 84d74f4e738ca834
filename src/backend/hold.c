/*
 * hold.c
 *		What this session holds, or asks for: locks, turns, permits and elements.
 *
 * Everything for which the session has an entry in shared memory is in one list,
 * from the moment it is asked for.  Nothing can fail between the claim of the
 * entry and its place in the list.  Locks are found by path and mode, too: a
 * session has at most one contender for each.
 *
 * An exclusive lock includes the shared one: a session that holds the former and
 * acquires the latter is granted it at once, by the same entry.  A session that
 * holds the shared lock and acquires the exclusive one, in contrast, is a new
 * contender with an entry of its own, for which the worker disregards what the same
 * session holds (see lock_recipe.c).
 *
 *	session level		survives everything but zk_unlock(), DISCARD ALL and
 *						the end of the session
 *	transaction level	goes when the transaction ends, or with the
 *						subtransaction that acquired it
 *
 * A stack of acquisitions has those that are to go.  Subtransactions nest, and their
 * numbers grow: what one of them has acquired, with those inside it, is on top when it
 * ends, and has no lower number than its own.  So when one is rolled back it takes
 * that from the stack, and when one ends well nothing need be done.
 *
 * A call that acquires several locks, and fails, must undo those that it has.
 * They are on the stack as well, whatever their level, until the call is complete.
 * So however it ends, by a timeout, an error or a cancellation at any moment, what
 * was held before is held, as often as before: an error always aborts the
 * transaction or a subtransaction, and that undoes the call.  It also gives up what
 * was only asked for: what nobody has acquired.
 *
 * An entry is given up by a step in shared memory that cannot fail and does not
 * wait: the rest is the worker's, which deletes the node or passes it on.  So this
 * may be done in callbacks at commit, abort and exit, like all that counts.  The
 * session remembers these entries, its departures, until the worker is done with
 * them.  They count among its share: else it could use up all entries by asking
 * and giving up faster than ZooKeeper answers.  And a call that unlocks waits for
 * its own, so that what follows finds the lock free.
 *
 * A lost lock stays until its counts are gone; the session never asks for it again
 * behind the user's back.
 *
 * Runs in: backends.  All this is private; shared/entry.h says how entries are
 * written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/hold.h"
#include "backend/node_data.h"
#include "backend/request.h"
#include "compat.h"
#include "recipes/recipe.h"
#include "shared/common.h"
#include "shared/path_settings.h"
#include "shared/stats.h"
#include "storage/ipc.h"
#include "utils/hsearch.h"

#define FIRST_SIZE 16 /* of arrays that grow */

static MemoryContext hold_context = NULL;

static dlist_head holds = DLIST_STATIC_INIT(holds);
static int		  nholds = 0;

/* The locks among them on one path */
typedef struct LockedPath
{
	char  path[ZKLOCK_MAX_PATH + 1]; /* hash key */
	Hold *by_mode[2];				 /* NULL if there is none */
} LockedPath;

static HTAB *locked_paths = NULL;

/* Acquisitions of one lock, one after the other, by one subtransaction */
typedef struct Acquisition
{
	Hold			*hold;
	LockMode		 mode;
	LockScope		 scope;
	SubTransactionId subid;
	int				 n;
} Acquisition;

static Acquisition *acquisitions = NULL;
static int			nacquisitions = 0;
static int			max_acquisitions = 0;

/* Something that the worker has still to finish */
typedef struct Departure
{
	int	   entry;
	uint32 generation; /* when that has changed, it is done */
	bool   given_up;   /* else downgraded, and a hold still has the entry */
} Departure;

static Departure *departures = NULL;
static int		  ndepartures = 0;
static int		  max_departures = 0;

/* ------------------------------------------------------------------------
 * The session
 * ------------------------------------------------------------------------
 */

static StatsKind
stats_kind(const Hold *hold, LockMode mode)
{
	if (hold->kind == CONTENDER_LOCK)
		return stats_kind_of_lock(mode);
	return hold->kind == CONTENDER_ELEMENT ? STATS_QUEUE : STATS_SEMAPHORE;
}

/* For how long it was held in a mode, the statistics are told at the end. */
static void
count_hold_time(const Hold *hold, LockMode mode)
{
	stats_held(stats_kind(hold, mode), zklock_now_us() - hold->since[mode]);
}

/* Gives everything back; the session ends. */
static void
release_at_exit(int code, Datum arg)
{
	for (const Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
	{
		for (int mode = 0; mode < (int) lengthof(hold->acquired); mode++)
		{
			if (hold_is_acquired_in(hold, mode))
				count_hold_time(hold, mode);
		}
		(void) entry_give_up(hold->entry, ENTRY_NO_NOTICE);
	}
	dlist_init(&holds);
}

/*
 * Prepares the session, and sees to it that its end gives everything back.  If
 * memory runs out, the next call begins again.
 */
void
hold_start_session(void)
{
	HASHCTL ctl = {.keysize = ZKLOCK_MAX_PATH + 1, .entrysize = sizeof(LockedPath)};

	if (locked_paths)
		return;
	if (hold_context == NULL)
		hold_context =
			AllocSetContextCreate(TopMemoryContext, "zklock locks", ALLOCSET_DEFAULT_SIZES);
	ctl.hcxt = hold_context;
	locked_paths = hash_create("zklock locks", 16, &ctl, HASH_ELEM | HASH_CONTEXT | HASH_STRINGS);
	on_shmem_exit(release_at_exit, 0);
}

/* Of all holds the one behind another one, or the first behind NULL; NULL at the end */
Hold *
hold_next(const Hold *hold)
{
	const dlist_node *before = hold ? &hold->link : &holds.head;

	if (before->next == &holds.head)
		return NULL;
	return dlist_container(Hold, link, before->next);
}

/* How many there are of a kind */
int
hold_number(EntryKind kind)
{
	int n = 0;

	for (const Hold *hold = hold_next(NULL); hold != NULL; hold = hold_next(hold))
		n += hold->kind == kind;
	return n;
}

/*
 * The session's lock on a path in a mode, or else the exclusive one that includes
 * it; NULL if there is none.  Needs no preload.
 */
Hold *
hold_of_lock(const char *path, LockMode mode)
{
	const LockedPath *locked = locked_paths ? hash_search(locked_paths, path, HASH_FIND, NULL) : NULL;

	if (locked == NULL)
		return NULL;
	if (mode == LOCK_MODE_SHARED && locked->by_mode[mode] == NULL)
		return locked->by_mode[LOCK_MODE_EXCLUSIVE];
	return locked->by_mode[mode];
}

/* An array of the session's, with room for so many elements */
static void *
make_room(void *array, int *max, int wanted, Size size)
{
	int enlarged = Max(*max, FIRST_SIZE);

	if (wanted <= *max)
		return array;
	while (enlarged < wanted)
		enlarged *= 2;
	if (array == NULL)
		array = MemoryContextAlloc(hold_context, enlarged * size);
	else
		array = repalloc_huge(array, enlarged * size);
	*max = enlarged;
	return array;
}

/* ------------------------------------------------------------------------
 * Departures
 * ------------------------------------------------------------------------
 */

/* The worker has something to finish, for which there is room. */
static void
depart(int entry, uint32 generation, bool given_up)
{
	departures[ndepartures++] = (Departure){entry, generation, given_up};
}

/* Forgets what is done, and returns how many entries of this session are in use. */
static int
forget_departed(void)
{
	int kept = 0;
	int used = nholds;

	for (int i = 0; i < ndepartures; i++)
	{
		if (entry_is_settled(departures[i].entry, departures[i].generation))
			continue;
		used += departures[i].given_up;
		departures[kept++] = departures[i];
	}
	ndepartures = kept;
	return used;
}

/* Makes room for the departures of all holds and one more, each downgraded and then given up. */
static void
reserve_departures(void)
{
	int wanted = ndepartures + 2 * (nholds + 1);

	if (wanted <= max_departures)
		return;
	(void) forget_departed();

	/* Half of it is to be free, or it would be looked through for each request. */
	wanted = 2 * (ndepartures + 2 * (nholds + 1));
	departures = make_room(departures, &max_departures, wanted, sizeof(Departure));
}

/* How many there are, for hold_are_gone(), while the session asks for nothing. */
int
hold_departures(void)
{
	return ndepartures;
}

/* Is the worker done with those that came behind so many? */
bool
hold_are_gone(int mark)
{
	for (int i = mark; i < ndepartures; i++)
	{
		if (!entry_is_settled(departures[i].entry, departures[i].generation))
			return false;
	}
	return true;
}

/* ------------------------------------------------------------------------
 * Asking
 * ------------------------------------------------------------------------
 */

/*
 * A call begins that acquires so many at most, or nothing.  It ends with hold_end(),
 * or with an error.
 */
int
hold_begin(int most)
{
	acquisitions =
		make_room(acquisitions, &max_acquisitions, nacquisitions + most, sizeof(Acquisition));
	return nacquisitions;
}

/* Makes a hold, which is not in the list yet.  May fail. */
static Hold *
make_hold(const HoldRequest *request)
{
	Size		len = strlen(request->path) + 1;
	Hold	   *hold = MemoryContextAllocZero(hold_context, offsetof(Hold, path) + len);
	LockedPath *locked;
	bool		found;

	hold->kind = request->kind;
	hold->mode = request->mode;
	memcpy(hold->path, request->path, len);
	if (hold->kind != CONTENDER_LOCK)
		return hold;
	locked = hash_search(locked_paths, hold->path, HASH_ENTER, &found);
	if (!found)
		locked->by_mode[LOCK_MODE_EXCLUSIVE] = locked->by_mode[LOCK_MODE_SHARED] = NULL;
	locked->by_mode[hold->mode] = hold;
	return hold;
}

/* Unmakes a hold, which is not in the list any more.  Cannot fail. */
static void
free_hold(Hold *hold)
{
	if (hold->kind == CONTENDER_LOCK)
	{
		LockedPath *locked = hash_search(locked_paths, hold->path, HASH_FIND, NULL);

		locked->by_mode[hold->mode] = NULL;
		if (locked->by_mode[LOCK_MODE_EXCLUSIVE] == NULL && locked->by_mode[LOCK_MODE_SHARED] == NULL)
			hash_search(locked_paths, hold->path, HASH_REMOVE, NULL);
	}
	pfree(hold);
}

/*
 * Raises an error if the session has its share of entries.  The worker tells nobody
 * that one has become free, so the session looks when it seems to have its share.
 */
static void
check_share(int share)
{
	int used = nholds + ndepartures;

	if (share >= entries_max() || used < share)
		return;
	used = forget_departed();
	if (used >= share)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("too many ZooKeeper locks in this session"),
				 errdetail("It holds, waits for or is just releasing %d, as many as it may.", used),
				 errhint("Release locks, or ask an administrator to increase \"zklock.max_locks_per_session\".")));
}

static void
report_no_entry(int reserved)
{
	int max = entries_max();

	ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of shared memory for zklock"),
					reserved == 0 ? errdetail("%d locks are held or waited for.", max)
								  : errdetail("%d locks are held or waited for, and the remaining %d entries are reserved for superusers.",
											  max - reserved, reserved),
					errhint("You might need to increase \"zklock.max_locks\".")));
}

/* What is asked for, and where it is below the path that the user names */
static const struct
{
	RecipeId	recipe;
	const char *below;
} kinds[] = {[CONTENDER_LOCK] = {RECIPE_LOCK, ""},
			 [CONTENDER_TURN] = {RECIPE_LOCK, PERMIT_TURNS},
			 [CONTENDER_PERMIT] = {RECIPE_PERMIT, PERMIT_LEASES},
			 [CONTENDER_ELEMENT] = {RECIPE_ELEMENT, ""}};

/*
 * Asks the worker, who tells the answer in the entry, and sets the latch.  Raises an
 * error if there is no entry left, or none for this session.
 */
Hold *
hold_ask(const HoldRequest *request)
{
	NodeDialect dialect =
		request->kind == CONTENDER_LOCK ? dialect_of_path(request->path) : DIALECT_CURATOR;
	bool		 is_element = request->kind == CONTENDER_ELEMENT;
	int			 share = share_of_entries(zklock_max_locks_per_session, entries_max());
	ShareReserve reserve = superuser() ? RESERVE_OPEN : RESERVE_CLOSED;
	int	  reserved = reserve == RESERVE_OPEN ? 0 : share_entries_reserved(entries_max());
	char *path = psprintf("%s%s", request->path, kinds[request->kind].below);
	char *data = node_data_compose(dialect, request->scope);
	Hold *hold;
	ContenderEntry *entry;

	request_refuse_election(path);
	check_share(share);
	reserve_departures();
	hold = make_hold(request);
	hold->entry = entry_claim(reserved);
	if (hold->entry == ENTRY_NONE)
	{
		free_hold(hold);
		report_no_entry(reserved);
	}

	/* Nobody looks at the entry before entry_ask(), and nothing can fail until then. */
	entry = entry_at(hold->entry);
	entry->request =
		(EntryRequest){.proc_number = compat_my_proc_number(),
					   .pid = MyProcPid,
					   .database = MyDatabaseId,
					   .role = GetSessionUserId(),
					   .kind = request->kind,
					   .recipe = kinds[request->kind].recipe,
					   .terms = {.mode = request->mode, .dialect = dialect, .permits = request->permits},
					   .parent_nodes = is_element ? PARENTS_EXISTING : (ParentNodes) zklock_parent_nodes,
					   .share = share,
					   .reserve = reserve,
					   .nowait = request->manner != ASK_AND_WAIT,
					   .eager = request->manner == ASK_AND_GRAB,
					   .replaces = ENTRY_NONE,
					   .requested_at = request->since};
	strlcpy(entry->request.path, path, sizeof(entry->request.path));
	strlcpy(entry->data, data, sizeof(entry->data));

	memset(&entry->status, 0, sizeof(entry->status)); /* the state is FREE, and stays so */
	entry->status.mode = request->mode;
	entry->status.scope = request->scope;
	entry->status.max_hold_ms = is_element ? 0 : zklock_max_hold_time;
	entry->status.on_loss =
		request->kind == CONTENDER_TURN ? LOSS_ABORT : (LossPolicy) zklock_on_lock_loss;
	entry_ask(hold->entry);
	dlist_push_tail(&holds, &hold->link);
	nholds++;
	entry_mark_dirty(hold->entry);
	pfree(path);
	pfree(data);
	return hold;
}

/* ------------------------------------------------------------------------
 * Counting.  From here on nothing can fail or wait.
 * ------------------------------------------------------------------------
 */

/* Shows the counts in zk_locks. */
static void
publish(const Hold *hold)
{
	ContenderEntry *entry = entry_at(hold->entry);

	SpinLockAcquire(&entry->mutex);
	memcpy(entry->status.acquired, hold->acquired, sizeof(entry->status.acquired));
	SpinLockRelease(&entry->mutex);
}

/* Counts one acquisition of what has been granted, between hold_begin() and hold_end(). */
void
hold_count(Hold *hold, LockMode mode, LockScope scope)
{
	CommitGuard guard = zklock_commit_guard;

	if (hold_is_acquired(hold))
	{
		stats_reacquired(stats_kind(hold, mode));
		guard = Max(guard, hold->taken_under);
	}
	hold->taken_under = guard;
	if (!hold_is_acquired_in(hold, mode))
		hold->since[mode] = zklock_now_us();
	hold->acquired[mode][scope]++;
	acquisitions[nacquisitions++] = (Acquisition){.hold = hold,
												  .mode = mode,
												  .scope = scope,
												  .subid = GetCurrentSubTransactionId(),
												  .n = 1};
	publish(hold);
}

/* Takes acquisitions back; hold_settle() is to follow. */
void
hold_uncount(Hold *hold, LockMode mode, LockScope scope, int n)
{
	hold->acquired[mode][scope] -= n;
	if (!hold_is_acquired_in(hold, mode))
		count_hold_time(hold, mode);
}

/* Gives up an entry, and the hold. */
static void
give_up(Hold *hold, EntryNotice notice)
{
	depart(hold->entry, entry_give_up(hold->entry, notice), true);
	dlist_delete(&hold->link);
	nholds--;
	free_hold(hold);
}

/* Keeps of an exclusive lock the shared one, without a moment in which it is not held. */
static void
downgrade(Hold *hold)
{
	LockedPath *locked = hash_search(locked_paths, hold->path, HASH_FIND, NULL);

	depart(hold->entry, entry_keep_shared(hold->entry), false);
	locked->by_mode[LOCK_MODE_EXCLUSIVE] = NULL;
	locked->by_mode[LOCK_MODE_SHARED] = hold;
	hold->mode = LOCK_MODE_SHARED;
}

/*
 * Gives up what is not acquired any more, after which the hold may be gone.
 *
 *	notice	is the session to be told when the worker is done?
 *
 * Returns whether anything was given up.
 */
bool
hold_settle(Hold *hold, EntryNotice notice)
{
	if (!hold_is_acquired(hold))
	{
		give_up(hold, notice);
		return true;
	}
	publish(hold);
	if (hold_is_acquired_in(hold, hold->mode))
		return false;
	downgrade(hold);
	return true;
}

/* Undoes the acquisitions on the stack above so many, the last first. */
static void
undo(int mark)
{
	while (nacquisitions > mark)
	{
		const Acquisition *last = &acquisitions[--nacquisitions];

		hold_uncount(last->hold, last->mode, last->scope, last->n);
		(void) hold_settle(last->hold, ENTRY_NO_NOTICE);
	}
}

/* Gives up what nobody has acquired: what a call has asked for, and a turn. */
static void
abandon(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &holds)
	{
		Hold *hold = dlist_container(Hold, link, iter.cur);

		if (!hold_is_acquired(hold))
			give_up(hold, ENTRY_NO_NOTICE);
	}
}

static bool
may_be_one(const Acquisition *a, const Acquisition *b)
{
	return a->hold == b->hold && a->mode == b->mode && a->scope == b->scope && a->subid == b->subid;
}

/*
 * A call ends without an error.  What it acquired at session level is the session's
 * from now on, the rest the subtransaction's; or it has failed, and has nothing.
 */
void
hold_end(int mark, bool complete)
{
	int kept = mark;

	if (!complete)
		undo(mark);
	for (int i = mark; i < nacquisitions; i++)
	{
		if (acquisitions[i].scope == LOCK_SCOPE_SESSION)
			continue;
		if (kept > 0 && may_be_one(&acquisitions[kept - 1], &acquisitions[i]))
			acquisitions[kept - 1].n++;
		else
			acquisitions[kept++] = acquisitions[i];
	}
	nacquisitions = kept;
	abandon();
}

/* ------------------------------------------------------------------------
 * The transaction
 * ------------------------------------------------------------------------
 */

/* Does the transaction hold anything that ends with it? */
bool
hold_has_transaction_locks(void)
{
	return nacquisitions > 0;
}

/* The transaction ends.  If it is committed, the elements that it has taken go. */
void
hold_end_transaction(XactEvent event)
{
	for (int i = 0; i < nacquisitions && event == XACT_EVENT_COMMIT; i++)
	{
		if (acquisitions[i].hold->kind == CONTENDER_ELEMENT)
			entry_consume(acquisitions[i].hold->entry);
	}
	undo(0);
	abandon();
}

/* A subtransaction is rolled back. */
void
hold_end_subtransaction(SubTransactionId subid)
{
	int mark = nacquisitions;

	while (mark > 0 && acquisitions[mark - 1].subid >= subid)
		mark--;
	undo(mark);
	abandon();
}
