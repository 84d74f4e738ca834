/*
 * seek.c
 *		Who looks for an element of a queue, and in which order.
 *
 * Of the sessions of a server that wait for an element of a queue, one at a time
 * looks for it: the one that came first.  The worker tells it alone when
 * something has happened there; when it has an element, or goes, it tells the next.  So
 * a thousand that wait ask ZooKeeper no more than one does, and each gets its turn.
 *
 * Runs in: backends and the worker.  All is protected by seek_lock, which is held
 * for a look at the table.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "shared/seek.h"
#include "shared/session_info.h"

SeekTable *seek_table = NULL;
LWLock	  *seek_lock = NULL;

Size
seek_table_size(int processes)
{
	return add_size(offsetof(SeekTable, seekers), mul_size(processes, sizeof(Seeker)));
}

/* Initialises memory that is all zero. */
void
seek_table_init(SeekTable *table, int processes)
{
	table->nseekers = processes;
	table->next_ticket = 1;
	pg_atomic_init_u32(&table->left, 0);
}

static Seeker *
own_seeker(void)
{
	return &seek_table->seekers[compat_my_proc_number()];
}

/* The first of those at a path, or NULL. */
static Seeker *
first_seeker(const char *path)
{
	Seeker *first = NULL;

	for (int i = 0; i < seek_table->nseekers; i++)
	{
		Seeker *seeker = &seek_table->seekers[i];

		if (seeker->ticket != 0 && (first == NULL || seeker->ticket < first->ticket) &&
			strcmp(seeker->path, path) == 0)
			first = seeker;
	}
	return first;
}

/* It is to look. */
static void
tell(Seeker *seeker)
{
	seeker->changed = true;
	SetLatch(&GetPGProcByNumber(seeker - seek_table->seekers)->procLatch);
}

/* This session seeks at a path, behind those that do already. */
void
seek_join(const char *path)
{
	Seeker *seeker = own_seeker();

	LWLockAcquire(seek_lock, LW_EXCLUSIVE);
	Assert(seeker->ticket == 0);
	seeker->ticket = seek_table->next_ticket++;
	seeker->changed = true;
	strlcpy(seeker->path, path, sizeof(seeker->path));
	LWLockRelease(seek_lock);
}

/* Is it this session's turn, and has anything happened since it looked, or is it to look anyhow? */
bool
seek_is_turn(bool anyhow)
{
	Seeker *seeker = own_seeker();
	bool	turn;

	LWLockAcquire(seek_lock, LW_EXCLUSIVE);
	turn = (seeker->changed || anyhow) && first_seeker(seeker->path) == seeker;
	if (turn)
		seeker->changed = false;
	LWLockRelease(seek_lock);
	return turn;
}

/* This session seeks no more, if it did.  The next one has its turn. */
void
seek_leave(void)
{
	Seeker *seeker = own_seeker();
	Seeker *next;

	if (seeker->ticket == 0)
		return;
	LWLockAcquire(seek_lock, LW_EXCLUSIVE);
	seeker->ticket = 0;
	next = first_seeker(seeker->path);
	if (next)
		tell(next);
	LWLockRelease(seek_lock);
	if (next == NULL)
	{
		pg_atomic_write_u32(&seek_table->left, 1);
		zklock_wake_worker();
	}
}

/* Something has happened at a path. */
void
seek_tell(const char *path)
{
	Seeker *first;

	LWLockAcquire(seek_lock, LW_EXCLUSIVE);
	first = first_seeker(path);
	if (first)
		tell(first);
	LWLockRelease(seek_lock);
}

/* Something may have happened anywhere. */
void
seek_tell_all(void)
{
	LWLockAcquire(seek_lock, LW_EXCLUSIVE);
	for (int i = 0; i < seek_table->nseekers; i++)
	{
		if (seek_table->seekers[i].ticket != 0)
			tell(&seek_table->seekers[i]);
	}
	LWLockRelease(seek_lock);
}

/* Does anybody seek at a path? */
bool
seek_exists(const char *path)
{
	bool exists;

	LWLockAcquire(seek_lock, LW_SHARED);
	exists = first_seeker(path) != NULL;
	LWLockRelease(seek_lock);
	return exists;
}
