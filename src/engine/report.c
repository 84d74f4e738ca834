/*
 * report.c
 *		Messages in the log: about a path, once; about losses, each time.
 *
 * A role must not be able to fill the log.  Events that it can cause as often as it likes
 * are reported once a second.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine_internal.h"

/* Messages of a level about paths that are written at most on behalf of a role */
#define MAX_REPORTED 1000

/* Losses that one message names at most */
#define MAX_LOSSES_NAMED 20

/* A message that has been written; or a level and a role, which no message is called */
typedef struct Reported
{
	char what[ZKLOCK_MAX_PATH + 64]; /* hash key */
	int	 n;							 /* number of messages of that level and role */
} Reported;

/*
 * Returns true if a message about a path is news; this worker then does not write it again.
 * The subject distinguishes the messages about one path.  Each role is counted by itself, so it
 * silences nothing that others cause; and so is each level: a warning that two clients hold a
 * lock at once is not lost after many messages of less weight.
 */
static bool
is_news(int level, const Path *path, const char *subject)
{
	static HTAB *reported;

	const ZkCall *answering = zk_answering;
	char		  key[ZKLOCK_MAX_PATH + 64];
	HASHCTL		  ctl = {.keysize = sizeof(key), .entrysize = sizeof(Reported)};
	Reported	 *count;
	bool		  found;

	if (reported == NULL)
		reported = hash_create("zklock messages", 16, &ctl, HASH_ELEM | HASH_STRINGS);
	snprintf(key, sizeof(key), "%d %u", level, answering ? answering->owner.role : InvalidOid);
	count = hash_search(reported, key, HASH_ENTER, &found);
	count->n = found ? count->n : 0;
	if (count->n >= MAX_REPORTED)
		return false;
	snprintf(key, sizeof(key), "%s %s", subject, path->path);
	hash_search(reported, key, HASH_ENTER, &found);
	count->n += !found;
	return !found;
}

/*
 * Reports a child whose name the recipe does not know.  One that ends in a sequence may be
 * meant as a contender; others, such as paths below this one, are not.
 */
void
report_unrecognised(const Path *path, const char *child)
{
	if (!node_name_has_sequence(child) || !is_news(LOG, path, "unrecognised"))
		return;
	ereport(LOG,
			(errmsg("ignoring child \"%s\" of %s path \"%s\"", child, path->recipe->name, path->path),
			 errdetail("Its name is not one that a known %s recipe writes.", path->recipe->name)));
}

/*
 * Reports another client's node if that client does not wait for what a session of ours
 * writes.  It does not matter which of them came first.  One line is written for each path and
 * kind of client.
 */
static void
report_if_heedless(const Path *path, const char *name, const RecipeRequest *request)
{
	RecipeHeedless why;

	if (!path->recipe->heedless(name, request, &why) || !is_news(WARNING, path, why.theirs))
		return;
	ereport(WARNING,
			(errmsg("clients that do not wait for each other lock ZooKeeper path \"%s\"", path->path),
			 errdetail("Sessions of this server write names of dialect \"%s\". Node \"%s\" has one of dialect \"%s\", whose clients, other than zklock, do not wait for those: both may hold the lock at once.",
					   why.ours, name, why.theirs),
			 errhint("Set \"zklock.path_dialects\" to '%s=%s' on all servers%s", path->path,
					 why.theirs, why.remedy ? why.remedy : ".")));
}

/*
 * Reports those of other clients' contenders in a listing whose clients do not wait for those
 * that this server has on the path.
 */
void
report_heedless(Path *path)
{
	dlist_iter iter;

	for (int i = 0; path->recipe->heedless && i < path->nforeign; i++)
	{
		for (const Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
		{
			if (!cohort_is_empty(cohort))
				report_if_heedless(path, path->foreign[i].name, &cohort->request);
		}
		dlist_foreach (iter, &path->arrivals)
		{
			RecipeRequest request = contender_request(dlist_container(Contender, link, iter.cur));

			report_if_heedless(path, path->foreign[i].name, &request);
		}
	}
}

/* Reports that a path will need a new counter one day. */
void
report_sequence(const Path *path, int64 sequence, int64 limit)
{
	if (!is_news(WARNING, path, "sequence"))
		return;
	ereport(WARNING,
			(errmsg("half of the sequence numbers of ZooKeeper path \"%s\" are used up", path->path),
			 errdetail("The last one was " INT64_FORMAT ". From " INT64_FORMAT
					   " on, zklock refuses to lock the path.",
					   sequence, limit),
			 errhint("When nobody uses the path, delete its node. It is created again with the next lock, and the numbers begin anew.")));
}

/* Reports that the cohort's node is gone without our doing. */
void
report_deletion(const Cohort *cohort)
{
	Losses losses;

	report_losses_begin(&losses);
	for (const Contender *c = cohort_head(cohort); c; c = contender_behind(c))
		report_losses_add(&losses, c);
	ereport(losses.count > 0 ? WARNING : LOG,
			(errmsg("node \"%s/%s\" of %s \"%s\" was deleted by someone else", cohort->path->path,
					cohort->name, cohort->path->recipe->name, cohort->path->path),
			 losses.count > 0 ? errdetail("Its holder has lost the %s; waiting sessions queue again.%s",
										  cohort->path->recipe->name, report_losses_list(&losses))
							  : errdetail("Waiting sessions queue again.")));
}

/*
 * Reports that a claim is gone which was to be deleted with its element, after a commit, and
 * that the element may still be there.
 */
void
report_unremoved(const Path *path, LossReason reason)
{
	ereport(WARNING,
			(errmsg("%s \"%s\" was taken by a transaction that committed, and may not have been removed",
					path->recipe->name, path->path),
			 reason == LOSS_EXPIRED
				 ? errdetail("The ZooKeeper session ended first. If it is still there it is taken again, with the same token.")
				 : errdetail("Its claim was deleted by someone else first. If it is still there it is taken again, with the same token.")));
}

/*
 * Reports a contender that has outlived its session, which was one of ours.  Right after the
 * end of a session that may be so for a moment.
 */
void
report_stale(const Path *path, const char *name, const ZkReply *reply)
{
	char subject[32];

	snprintf(subject, sizeof(subject), "stale " INT64_FORMAT, reply->stat.czxid);
	if (!is_news(LOG, path, subject))
		return;
	ereport(LOG, (errmsg("node \"%s\" of lock \"%s\" belongs to ZooKeeper session 0x%llx of this server, which has ended",
						 name, path->path, (unsigned long long) reply->stat.ephemeral_owner),
				  errhint("If it does not go away by itself, zk_break_lock() removes it.")));
}

/* ------------------------------------------------------------------------
 * Losses
 * ------------------------------------------------------------------------
 */

/* Begins a list of losses, which lasts until the end of the round. */
void
report_losses_begin(Losses *losses)
{
	MemoryContext caller = MemoryContextSwitchTo(engine.scratch);

	losses->count = 0;
	initStringInfo(&losses->lines);
	MemoryContextSwitchTo(caller);
}

/* Adds a contender that is about to lose what it holds, if it holds it. */
void
report_losses_add(Losses *losses, const Contender *c)
{
	const Entry *entry = entry_of(c);
	EntryStatus	 status = entry_status(entry_index(c));

	/* The server's own losses are in the log already. */
	if (status.state != ENTRY_GRANTED || entry->request.pid == ENTRY_SERVER_PID)
		return;
	if (losses->count++ >= MAX_LOSSES_NAMED)
		return;
	if (status.reserved)
		appendStringInfo(&losses->lines, "\nThe reservation of \"%s\" is over.", entry->request.path);
	else
		appendStringInfo(&losses->lines, "\nProcess %d has lost \"%s\".", entry->request.pid,
						 entry->request.path);
}

/* Returns the losses, each on a line of its own after a line break; "" if there are none. */
const char *
report_losses_list(Losses *losses)
{
	if (losses->count > MAX_LOSSES_NAMED)
		appendStringInfo(&losses->lines, "\nAnd %d more.", losses->count - MAX_LOSSES_NAMED);
	return losses->lines.data;
}

/* ------------------------------------------------------------------------
 * Holders whose time is over
 * ------------------------------------------------------------------------
 */

/* Since the last message */
static Losses overruns; /* locks and permits */
static Losses expired;	/* reservations */

static int64 overruns_at; /* no message before, ms */

/* Counts a holder that is about to lose what it has held for too long. */
void
report_overrun(const Contender *c)
{
	Losses *losses = entry_of(c)->request.scope == LOCK_SCOPE_RESERVATION ? &expired : &overruns;

	/* The lines are kept from round to round. */
	if (losses->lines.data == NULL)
		initStringInfo(&losses->lines);
	report_losses_add(losses, c);
}

static void
forget_losses(Losses *losses)
{
	losses->count = 0;
	resetStringInfo(&losses->lines);
}

/* Reports the holders that have been counted, if that is due. */
void
report_overruns(void)
{
	if (zklock_now_ms() < report_next_wakeup())
		return;
	if (overruns.count > 0)
	{
		ereport(WARNING,
				(errmsg("locks were held for longer than \"zklock.max_hold_time\""),
				 errdetail("Locks lost: %d.%s", overruns.count, report_losses_list(&overruns))));
		forget_losses(&overruns);
	}
	if (expired.count > 0)
	{
		ereport(LOG, (errmsg("reservations were not renewed in time"),
					  errdetail("Reservations: %d.%s", expired.count, report_losses_list(&expired))));
		forget_losses(&expired);
	}
	overruns_at = zklock_now_ms() + MESSAGE_PAUSE_MS;
}

/* Returns when report_overruns() must be called, ms. */
int64
report_next_wakeup(void)
{
	return overruns.count + expired.count > 0 ? overruns_at : NEVER;
}
