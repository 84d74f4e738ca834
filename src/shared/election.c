/*
 * election.c
 *		Elections at which this server stands, as all processes may know them.
 *
 * That this server leads is told by three things, which are read in this order:
 *
 *		the lease			it holds
 *		the candidate		the election names the entry of its contender
 *		that entry			it is granted; its token is the term
 *
 * Nothing is copied that could get out of step: a loss is a step of the entry
 * (entry.c), the end of the lease a time that passes by itself (lease_state.c),
 * and to lay leadership down is to name no candidate any more.  So a reader needs
 * an atomic word and the entry's spinlock.  A lease that was seen before is the one
 * under which the entry was granted; see lease_state.c.
 *
 * An election's slot may get another path, but never while it has a candidate.
 * A process that remembers which slot a path has looks at the version before and after.  A
 * term is a token, so it is never another election's.
 *
 * Sessions that rely on leadership say so before they look a last time, and the
 * worker lays it down before it looks for them: either it sees them, or they see
 * that it is gone.  This goes for the interruption of a transaction that has been
 * told that it leads, and for the end of one that commits.
 *
 * Runs in: all processes; election.h says who writes what.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>

#include "compat.h"
#include "fault.h"
#include "shared/election.h"
#include "shared/lease_state.h"
#include "shared/worker_process.h"
#include "utils/timestamp.h"

StaticAssertDecl(ELECTIONS_LIMIT <= 64, "a client's sets of elections have 64 bits");

ElectionTable *election_table = NULL;
LWLock		  *zklock_election_lock = NULL;

Size
election_table_size(int nclients)
{
	return add_size(offsetof(ElectionTable, clients), mul_size(nclients, sizeof(ElectionClient)));
}

/* Initialises memory that is all zero, for so many processes. */
void
election_table_init(ElectionTable *table, int nclients)
{
	pg_atomic_init_u64(&table->version, 0);
	for (int i = 0; i < ELECTIONS_LIMIT; i++)
	{
		pg_atomic_init_u64(&table->elections[i].candidate, 0);
		pg_atomic_init_u32(&table->elections[i].resigns_wanted, 0);
		pg_atomic_init_u32(&table->elections[i].resigns_done, 0);
	}
	table->nclients = nclients;
	for (int i = 0; i < nclients; i++)
		SpinLockInit(&table->clients[i].mutex);
}

static uint64
election_bit(int election)
{
	return UINT64CONST(1) << election;
}

/* ------------------------------------------------------------------------
 * Any process
 * ------------------------------------------------------------------------
 */

/* The election at a path, in UTF-8; ELECTION_NONE if there is none here. */
int
election_find(const char *path)
{
	int found = ELECTION_NONE;

	LWLockAcquire(zklock_election_lock, LW_SHARED);
	for (int i = 0; i < ELECTIONS_LIMIT && found == ELECTION_NONE; i++)
	{
		if (strcmp(election_at(i)->path, path) == 0)
			found = i;
	}
	LWLockRelease(zklock_election_lock);
	return found;
}

/*
 * Is there an election at a path, or at one above it?
 *
 *	found	has room for ZKLOCK_MAX_PATH + 1 bytes, and gets the election's path
 */
bool
election_is_above(const char *path, char *found)
{
	bool is_above = false;

	if (pg_atomic_read_u64(&election_table->version) == 0)
		return false;
	LWLockAcquire(zklock_election_lock, LW_SHARED);
	for (int i = 0; i < ELECTIONS_LIMIT && !is_above; i++)
	{
		const char *election = election_at(i)->path;
		size_t		len = strlen(election);

		is_above = len > 0 && strncmp(path, election, len) == 0 &&
				   (path[len] == '\0' || path[len] == '/');
		if (is_above)
			strcpy(found, election);
	}
	LWLockRelease(zklock_election_lock);
	return is_above;
}

/* The election's granted entry, or NULL; *token is its token. */
static ContenderEntry *
granted_entry(int election, int64 *token)
{
	uint64			candidate = pg_atomic_read_u64(&election_at(election)->candidate);
	int				index = (int) (candidate & PG_UINT32_MAX) - 1;
	ContenderEntry *entry;
	bool			granted;

	if (candidate == 0)
		return NULL;
	entry = entry_at(index);
	SpinLockAcquire(&entry->mutex);
	granted = entry->status.state == CONTENDER_GRANTED;
	*token = entry->status.token;
	SpinLockRelease(&entry->mutex);

	/* What was read is of another contender if the entry has been freed since. */
	return granted && entry_generation(index) == (uint32) (candidate >> 32) ? entry : NULL;
}

/*
 * Does this server lead the election?
 *
 *	term	set unless the answer is LEADERSHIP_NONE
 */
Leadership
election_leadership(int election, int64 *term)
{
	LeaseState lease = lease_state();

	if (granted_entry(election, term) == NULL)
		return LEADERSHIP_NONE;
	if (ZKLOCK_FAULT("lead-unproved"))
		return LEADERSHIP_PROVED;
	if (lease == LEASE_OVER)
		return LEADERSHIP_NONE;
	return lease == LEASE_HOLDS ? LEADERSHIP_PROVED : LEADERSHIP_SUSPENDED;
}

/* Does a term go on?  The lease is to be looked at before. */
bool
election_is_term(int election, int64 term)
{
	int64 token;

	return granted_entry(election, &token) != NULL && token == term;
}

/* ------------------------------------------------------------------------
 * Backends
 * ------------------------------------------------------------------------
 */

/* Changes when an election comes or goes: then election_find() may find another one. */
uint64
election_version(void)
{
	uint64 version;

	pg_read_barrier();
	version = pg_atomic_read_u64(&election_table->version);
	pg_read_barrier();
	return version;
}

/*
 * Copies what is shown of an election.
 *
 *	path	has room for ZKLOCK_MAX_PATH + 1 bytes; empty if the slot is free
 */
void
election_read(int election, char *path, CandidacyStatus *status)
{
	LWLockAcquire(zklock_election_lock, LW_SHARED);
	strcpy(path, election_at(election)->path);
	*status = election_at(election)->status;
	LWLockRelease(zklock_election_lock);
}

/* Asks the worker to lay leadership down.  Returns the resignation's number. */
uint32
election_want_resign(int election)
{
	uint32 number = pg_atomic_add_fetch_u32(&election_at(election)->resigns_wanted, 1);

	zklock_wake_worker();
	return number;
}

bool
election_resign_is_done(int election, uint32 number)
{
	return (int32) (pg_atomic_read_u32(&election_at(election)->resigns_done) - number) >= 0;
}

/*
 * Asks for a check of the leader's node by a quorum.  Returns false if the term is over.
 *
 *	number	set, for election_check_is_done()
 */
bool
election_want_check(int election, int64 term, uint32 *number)
{
	int64			token;
	ContenderEntry *entry = granted_entry(election, &token);

	if (entry == NULL || token != term)
		return false;
	SpinLockAcquire(&entry->mutex);
	*number = ++entry->status.check_wanted;
	SpinLockRelease(&entry->mutex);
	entry_mark_dirty(entry - entry_pool->entries);
	return true;
}

/* Has that check been passed? */
bool
election_check_is_done(int election, int64 term, uint32 number)
{
	int64			token;
	ContenderEntry *entry = granted_entry(election, &token);
	uint32			done;

	if (entry == NULL || token != term)
		return false;
	SpinLockAcquire(&entry->mutex);
	done = entry->status.check_done;
	SpinLockRelease(&entry->mutex);
	return (int32) (done - number) >= 0;
}

static ElectionClient *
own_client(void)
{
	return &election_table->clients[compat_my_proc_number()];
}

/* The session begins to have to do with elections. */
void
election_client_begin(void)
{
	ElectionClient *client = own_client();

	SpinLockAcquire(&client->mutex);
	client->pid = MyProcPid;
	client->relied_on = 0;
	client->waited_for = 0;
	client->committing = false;
	client->interrupt = 0;
	SpinLockRelease(&client->mutex);
}

/* The transaction is about to rely on leadership; to be followed by another look at it. */
void
election_client_rely(int election, LossPolicy on_loss)
{
	ElectionClient *client = own_client();

	SpinLockAcquire(&client->mutex);
	client->relied_on |= election_bit(election);
	client->on_loss = on_loss;
	SpinLockRelease(&client->mutex);
}

/* The session wants its latch to be set by changes, until the transaction ends. */
void
election_client_wait(int election)
{
	ElectionClient *client = own_client();

	SpinLockAcquire(&client->mutex);
	client->waited_for |= election_bit(election);
	SpinLockRelease(&client->mutex);
}

/* The transaction is about to pass the guard; to be followed by another look. */
void
election_client_commit(void)
{
	ElectionClient *client = own_client();

	SpinLockAcquire(&client->mutex);
	client->committing = true;
	SpinLockRelease(&client->mutex);
}

/* What a loss does to the session from now on */
void
election_client_set_policy(LossPolicy on_loss)
{
	ElectionClient *client = own_client();

	SpinLockAcquire(&client->mutex);
	client->on_loss = on_loss;
	SpinLockRelease(&client->mutex);
}

/*
 * The transaction has ended.  Cannot fail, does not wait.  Returns true if the
 * worker may wait for that.
 */
bool
election_client_end(void)
{
	ElectionClient *client = own_client();
	bool			committing;

	SpinLockAcquire(&client->mutex);
	committing = client->committing;
	client->relied_on = 0;
	client->waited_for = 0;
	client->committing = false;
	SpinLockRelease(&client->mutex);
	return committing;
}

/*
 * Takes note of a signal that was sent for the loss of leadership.
 *
 *	at	set to when that was
 *
 * Returns the election, or ELECTION_NONE if none was sent.
 */
int
election_client_take_interrupt(int signal, TimestampTz *at)
{
	ElectionClient *client = own_client();
	int				election = ELECTION_NONE;

	SpinLockAcquire(&client->mutex);
	if (client->interrupt == signal)
	{
		election = client->interrupted_for;
		*at = client->interrupted_at;
		client->interrupt = 0;
	}
	SpinLockRelease(&client->mutex);
	return election;
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

static void
advance_version(void)
{
	pg_write_barrier();
	pg_atomic_write_u64(&election_table->version, pg_atomic_read_u64(&election_table->version) + 1);
	pg_write_barrier();
}

/* Makes an election.  Returns its number, ELECTION_NONE if there is no room. */
int
election_add(const ElectionItem *item)
{
	for (int i = 0; i < ELECTIONS_LIMIT; i++)
	{
		Election *election = election_at(i);

		if (election->path[0] != '\0')
			continue;
		advance_version();
		LWLockAcquire(zklock_election_lock, LW_EXCLUSIVE);
		election->family = item->family;
		memset(&election->status, 0, sizeof(election->status));
		strcpy(election->path, item->path);
		LWLockRelease(zklock_election_lock);
		memset(&election->candidacy, 0, sizeof(election->candidacy));

		/* What was asked of the slot's election before is not asked of this one. */
		election->candidacy.resigning = pg_atomic_read_u32(&election->resigns_wanted);
		advance_version();
		return i;
	}
	return ELECTION_NONE;
}

/*
 * Makes all that the setting names, in the postmaster: sessions know them before
 * the first worker does.
 */
void
election_add_all(void)
{
	PathListReader reader;
	ElectionItem   item;

	election_list_begin(&reader);
	while (election_list_next(&reader, &item))
		(void) election_add(&item);
}

/* It has no candidate any more, and nobody is to find it. */
void
election_remove(int election)
{
	Assert(pg_atomic_read_u64(&election_at(election)->candidate) == 0);
	advance_version();
	LWLockAcquire(zklock_election_lock, LW_EXCLUSIVE);
	election_at(election)->path[0] = '\0';
	LWLockRelease(zklock_election_lock);
	advance_version();
}

void
election_set_status(int election, const CandidacyStatus *status)
{
	LWLockAcquire(zklock_election_lock, LW_EXCLUSIVE);
	election_at(election)->status = *status;
	LWLockRelease(zklock_election_lock);
}

/* Names the entry whose grant is leadership; ENTRY_NONE for none. */
void
election_set_candidate(int election, int entry, uint32 generation)
{
	uint64 candidate = entry == ENTRY_NONE ? 0 : (uint64) generation << 32 | (uint32) (entry + 1);

	pg_atomic_write_u64(&election_at(election)->candidate, candidate);
	pg_memory_barrier();
}

/* Does a transaction commit that relied on leadership? */
bool
election_has_commits(int election)
{
	for (int i = 0; i < election_table->nclients; i++)
	{
		ElectionClient *client = &election_table->clients[i];
		bool			commits;

		SpinLockAcquire(&client->mutex);
		commits = client->committing && (client->relied_on & election_bit(election)) != 0;
		SpinLockRelease(&client->mutex);
		if (commits)
			return true;
	}
	return false;
}

/* Sets the latches of sessions that want to hear of changes, or wait for a check. */
void
election_wake_clients(int election)
{
	for (int i = 0; i < election_table->nclients; i++)
	{
		ElectionClient *client = &election_table->clients[i];
		bool			wake;

		SpinLockAcquire(&client->mutex);
		wake = ((client->waited_for | (client->committing ? client->relied_on : 0)) &
				election_bit(election)) != 0;
		SpinLockRelease(&client->mutex);
		if (wake)
			SetLatch(&GetPGProcByNumber(i)->procLatch);
	}
}

/* Leadership is lost: interrupts the sessions whose transactions rely on it, if they want that. */
void
election_interrupt_clients(int election, ElectionInterrupter interrupt)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < election_table->nclients; i++)
	{
		ElectionClient *client = &election_table->clients[i];
		int				signal = 0;
		int				pid;

		SpinLockAcquire(&client->mutex);
		pid = client->pid;
		if ((client->relied_on & election_bit(election)) != 0)
		{
			if (client->on_loss == LOSS_CANCEL)
				signal = SIGINT;
			else if (client->on_loss == LOSS_TERMINATE)
				signal = SIGTERM;
		}
		if (signal != 0)
		{
			client->interrupt = signal;
			client->interrupted_at = now;
			client->interrupted_for = election;
		}
		SpinLockRelease(&client->mutex);
		if (signal != 0)
			interrupt(pid, signal);
	}
}
