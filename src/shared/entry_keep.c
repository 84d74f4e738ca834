/*
 * entry_keep.c
 *		Entries of locks that are kept: the steps from and to KEPT.
 *
 * What is KEPT nobody holds (zklock.keep_idle).  Its node is there for the session
 * to have it again without asking anybody, and for as long as nobody else wants
 * it: of that the worker judges, which allows a contender to be kept and takes
 * that back under the same spinlock under which the session takes the two steps.
 * So of the session that wants it again and the worker that recalls it, one comes
 * first; and what was held when somebody came is not kept any more afterwards.
 * A grant by the session itself is one more under the node: the token grows.
 *
 * Nobody tells the worker of these steps, but for the first time.  It looks at the
 * entry again when it has said it would (look_at_us); the session wakes it if that
 * is too late for the end of the time for which something is kept, or held.
 *
 * The steps are taken under the entry's spinlock, as all others (entry.c).
 *
 * Runs in: the backends, and the worker, as the header says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "shared/clock.h"
#include "shared/entry_keep.h"
#include "utils/timestamp.h"

/* ------------------------------------------------------------------------
 * Backends
 * ------------------------------------------------------------------------
 */

/* Does the worker have to be woken to look at the entry in time?  Under the spinlock. */
static bool
look_is_late(const EntryStatus *status, int64 by_us)
{
	return status->look_at_us == 0 || status->look_at_us > by_us;
}

/*
 * GRANTED -> KEPT, if nobody else wants it, as far as the worker knows.  Cannot
 * fail, does not wait.
 *
 *	until_us	for how long, by zklock_now_us()
 *	notice		of the moment from which on other servers know that it is not held
 *	generation	is set to the entry's, for entry_is_settled() and entry_take_again()
 *
 * Returns false if it is to be given up instead.
 */
bool
entry_keep(int index, int64 until_us, EntryNotice notice, uint32 *generation)
{
	ContenderEntry *entry = entry_at(index);
	bool			kept;
	bool			late = false;

	*generation = entry->generation;
	SpinLockAcquire(&entry->mutex);
	kept = entry->status.state == CONTENDER_GRANTED && entry->status.keepable &&
		   entry->status.mode == entry->request.terms.mode;
	if (kept)
	{
		late = look_is_late(&entry->status, until_us);
		entry->status.notice = notice;
		entry->status.session_count = 0;
		entry->status.transaction_count = 0;
		entry->status.kept_until_us = until_us;
		entry->status.expires_us = 0;
		entry->status.state = CONTENDER_KEPT;
	}
	SpinLockRelease(&entry->mutex);
	if (late)
		entry_mark_dirty(index);
	return kept;
}

/* Can a session have what it has kept, on these terms?  Under the spinlock. */
static bool
can_take_again(const ContenderEntry *entry, const EntryAgain *again)
{
	return entry->status.state == CONTENDER_KEPT && (entry->status.token & MAX_GRANTS) < MAX_GRANTS &&
		   entry->request.role == again->role && entry->request.terms.dialect == again->dialect;
}

/*
 * KEPT -> GRANTED, with a new token.  The caller has seen before that the lease
 * holds.
 *
 *	generation	the entry's when it was kept
 *
 * Returns false if it is not kept any more, or is not what is asked for.
 */
bool
entry_take_again(int index, uint32 generation, const EntryAgain *again)
{
	ContenderEntry *entry = entry_at(index);
	TimestampTz		now = GetCurrentTimestamp();
	int64			expires_us =
		  again->max_hold_ms > 0 ? zklock_now_us() + INT64CONST(1000) * again->max_hold_ms : 0;
	bool taken;
	bool late = false;

	SpinLockAcquire(&entry->mutex);
	taken = entry->generation == generation && can_take_again(entry, again);
	if (taken)
	{
		late = expires_us != 0 && look_is_late(&entry->status, expires_us);
		entry->status.scope = again->scope;
		entry->status.max_hold_ms = again->max_hold_ms;
		entry->status.on_loss = again->on_loss;
		entry->status.token++;
		entry->status.granted_at = now;
		entry->status.expires_us = expires_us;
		entry->status.state = CONTENDER_GRANTED;
	}
	SpinLockRelease(&entry->mutex);
	if (late)
		entry_mark_dirty(index);
	return taken;
}

/*
 * KEPT -> RELEASING, of whichever session; of a contender of that generation.
 * Cannot fail, does not wait.  Returns false if it is not KEPT.
 */
bool
entry_give_up_kept(int index, uint32 generation)
{
	ContenderEntry *entry = entry_at(index);
	bool			stepped;

	SpinLockAcquire(&entry->mutex);
	stepped = entry->status.state == CONTENDER_KEPT && entry->generation == generation;
	if (stepped)
		entry->status.state = CONTENDER_RELEASING;
	SpinLockRelease(&entry->mutex);
	if (stepped)
		entry_mark_dirty(index);
	return stepped;
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

/* Nobody else wants what is GRANTED: its session may keep it. */
void
entry_allow_keeping(int index)
{
	ContenderEntry *entry = entry_at(index);

	SpinLockAcquire(&entry->mutex);
	entry->status.keepable = true;
	SpinLockRelease(&entry->mutex);
}

/*
 * Somebody else may want it: from now on it cannot be kept, and if it is,
 * KEPT -> RELEASING.
 *
 * Returns false if it is not KEPT.
 */
bool
entry_recall(int index)
{
	ContenderEntry *entry = entry_at(index);
	bool			stepped;

	SpinLockAcquire(&entry->mutex);
	entry->status.keepable = false;
	entry->status.kept_told = false;
	stepped = entry->status.state == CONTENDER_KEPT;
	if (stepped && !ZKLOCK_FAULT("keep-on"))
		entry->status.state = CONTENDER_RELEASING;
	SpinLockRelease(&entry->mutex);
	return stepped;
}

/* Other servers can know from now on that the entry's node may be kept. */
void
entry_kept_told(int index)
{
	ContenderEntry *entry = entry_at(index);

	SpinLockAcquire(&entry->mutex);
	entry->status.kept_told = true;
	SpinLockRelease(&entry->mutex);
	entry_set_owner_latch(entry);
}
