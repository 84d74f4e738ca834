/*
 * wait_records.c
 *		Deadlocks across servers: the records of all servers, as they are read.
 *
 * They are kept from round to round: what was read once is not read again, as a record
 * never changes.  What bears the name of another session than its own, or is of
 * another form, is left alone.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "recipes/wait_record.h"
#include "utils/memutils.h"
#include "worker/own_record.h"
#include "worker/round_calls.h"
#include "worker/wait_records.h"
#include "zk/zk_call.h"

/* No more records are read: one for each server. */
#define MAX_RECORDS 256

/* A record below WAIT_RECORD_ROOT */
typedef struct Found
{
	char		  name[RECORD_NAME_LENGTH + 1];
	int64		  czxid;
	int			  length; /* of the data, bytes */
	bool		  good;	  /* it is its session's, and of this form */
	ReadRecord	  record;
	MemoryContext context; /* of what the record points to; NULL if it is not read */
} Found;

static Found *records;
static int	  nrecords;

static void
forget_found(Found *found)
{
	if (found->context)
		MemoryContextDelete(found->context);
	found->context = NULL;
	found->good = false;
}

/* Takes over what is known of records that are there still. */
static void
take_listing(const ZkReply *reply)
{
	Found *listed = MemoryContextAllocZero(TopMemoryContext, MAX_RECORDS * sizeof(Found));
	int	   n = 0;

	worker_own_record_listed(reply);
	for (int i = 0; i < reply->nchildren; i++)
	{
		const char *name = reply->children[i];

		if (worker_record_session(name) != 0 && !worker_own_record_is_remains(name) && n < MAX_RECORDS)
			strlcpy(listed[n++].name, name, sizeof(listed->name));
	}
	for (int i = 0; i < nrecords; i++)
	{
		for (int k = 0; k < n && records[i].good; k++)
		{
			if (strcmp(listed[k].name, records[i].name) != 0)
				continue;
			listed[k] = records[i];
			records[i].context = NULL;
		}
		forget_found(&records[i]);
	}
	if (records)
		pfree(records);
	records = listed;
	nrecords = n;
}

static void
on_listed(void *arg, const ZkReply *reply)
{
	ZkReply nothing = {.outcome = ZK_OK};
	bool	is_told = reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE;

	if (is_told)
		take_listing(reply->outcome == ZK_OK ? reply : &nothing);
	worker_round_answered(is_told ? ROUND_GOES_ON : ROUND_FAILED);
}

/* Which records are there? */
void
worker_records_list(void)
{
	worker_round_calls.pending++;
	zk_sync(NULL, NULL);
	zk_list(ZK_WORKER, WAIT_RECORD_ROOT, ZK_UNWATCHED, on_listed, NULL);
}

static void
on_looked(void *arg, const ZkReply *reply)
{
	Found *found = arg;
	bool   is_known = found->good && reply->outcome == ZK_OK && found->czxid == reply->czxid;

	if (!is_known)
	{
		forget_found(found);
		found->czxid = reply->czxid;
		found->length = reply->data_length;

		/* What is not its session's is not looked at. */
		found->good = reply->outcome == ZK_OK && reply->data_length <= WAIT_RECORD_MAX &&
					  reply->ephemeral_owner == worker_record_session(found->name);
	}
	worker_round_answered(reply->outcome == ZK_UNKNOWN ? ROUND_FAILED : ROUND_GOES_ON);
}

/* By which session is each, and when was it written? */
void
worker_records_look(void)
{
	for (int i = 0; i < nrecords; i++)
	{
		char *path = worker_record_path(records[i].name);

		worker_round_calls.pending++;
		zk_look(ZK_WORKER, path, on_looked, &records[i]);
		pfree(path);
	}
}

static void
on_read(void *arg, const ZkReply *reply)
{
	Found *found = arg;

	found->good = reply->outcome == ZK_OK && reply->data_length > 0 && reply->czxid == found->czxid;
	if (found->good)
	{
		MemoryContext old;
		char		 *text;

		found->context =
			AllocSetContextCreate(TopMemoryContext, "zklock wait record", ALLOCSET_SMALL_SIZES);
		old = MemoryContextSwitchTo(found->context);
		text = palloc(reply->data_length);
		memcpy(text, reply->data, reply->data_length);
		found->record =
			(ReadRecord){.owner = worker_record_session(found->name), .czxid = found->czxid};
		found->good = worker_record_parse(&found->record, text, reply->data_length);
		MemoryContextSwitchTo(old);
	}
	worker_round_answered(reply->outcome == ZK_UNKNOWN ? ROUND_FAILED : ROUND_GOES_ON);
}

/* Reads those that are new. */
void
worker_records_read(void)
{
	for (int i = 0; i < nrecords; i++)
	{
		Found *found = &records[i];

		if (found->good && found->context == NULL)
		{
			char *path = worker_record_path(found->name);

			worker_round_calls.pending++;
			zk_fetch(ZK_WORKER, path, on_read, found);
			pfree(path);
		}
	}
}

/*
 * The newest record of each session, palloc'd.
 *
 *	n	gets their number
 */
const ReadRecord **
worker_records_newest(int *n)
{
	const ReadRecord **newest = palloc(Max(nrecords, 1) * sizeof(ReadRecord *));

	*n = 0;
	for (int i = 0; i < nrecords; i++)
	{
		const Found *found = &records[i];
		int			 k = 0;

		if (!found->good)
			continue;
		while (k < *n && newest[k]->owner != found->record.owner)
			k++;
		if (k == *n)
			newest[(*n)++] = &found->record;
		else if (newest[k]->czxid < found->czxid)
			newest[k] = &found->record;
	}
	return newest;
}
