/*
 * report.c
 *		What the log is told of a path, once.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "compat.h"
#include "queue/report.h"

/* Beyond so many paths nothing more is said. */
#define MAX_REPORTED_PATHS 1000

/* What the log has been told of a path in this worker's life. */
typedef struct ReportedPath
{
	char path[ZKLOCK_MAX_PATH + 1]; /* hash key */
	bool unrecognised;				/* a child that may be meant as a contender */
	bool sequence;					/* the counter is past its half */
} ReportedPath;

static HTAB *reported_paths;

/* The book of what has been said of a path; NULL if no more is to be. */
static ReportedPath *
reported_path(const Path *path)
{
	HASHCTL		  ctl = {.keysize = ZKLOCK_MAX_PATH + 1, .entrysize = sizeof(ReportedPath)};
	bool		  found;
	bool		  full;
	ReportedPath *reported;

	if (reported_paths == NULL)
		reported_paths =
			hash_create("zklock reported paths", 16, &ctl, HASH_ELEM | COMPAT_HASH_STRINGS);
	full = hash_get_num_entries(reported_paths) >= MAX_REPORTED_PATHS;
	reported = hash_search(reported_paths, path->path, full ? HASH_FIND : HASH_ENTER, &found);
	if (!full && !found)
		memset((char *) reported + sizeof(reported->path), 0,
			   sizeof(ReportedPath) - sizeof(reported->path));
	return reported;
}

/*
 * A child's name is none that the recipe knows.  One that ends in a sequence may
 * be meant as a contender; others, such as paths below this one, are not.
 */
void
report_unrecognised(const Path *path, const char *child)
{
	ReportedPath *reported = node_name_has_sequence(child) ? reported_path(path) : NULL;

	if (reported == NULL || reported->unrecognised)
		return;
	reported->unrecognised = true;
	ereport(LOG, (errmsg("ignoring child \"%s\" of lock path \"%s\"", child, path->path),
				  errdetail("Its name is not one that a known lock recipe writes.")));
}

/* A path will need a new counter one day. */
void
report_sequence(const Path *path, int64 sequence, int64 limit)
{
	ReportedPath *reported = reported_path(path);

	if (reported == NULL || reported->sequence)
		return;
	reported->sequence = true;
	ereport(WARNING,
			(errmsg("half of the sequence numbers of ZooKeeper path \"%s\" are used up", path->path),
			 errdetail("The last one was " INT64_FORMAT ". From " INT64_FORMAT
					   " on, zklock refuses to lock the path.",
					   sequence, limit),
			 errhint("When nobody uses the path, delete its node. It is created again with the next lock, and the numbers begin anew.")));
}

/*
 * A contender has outlived its session, which was one of ours.  Right after the
 * end of a session that may be so for a moment.
 */
void
report_stale(const Path *path, const char *name, const ZkReply *reply)
{
	static int64 reported; /* czxid of the node reported last */

	if (reported == reply->czxid)
		return;
	reported = reply->czxid;
	ereport(LOG, (errmsg("node \"%s\" of lock \"%s\" belongs to ZooKeeper session 0x%llx of this server, which has ended",
						 name, path->path, (unsigned long long) reply->ephemeral_owner),
				  errhint("If it does not go away by itself, zk_remove_stale_node() removes it.")));
}
