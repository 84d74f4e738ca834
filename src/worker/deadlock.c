/*
 * deadlock.c
 *		Deadlocks across servers: publishing and reading waits that last.
 *
 * While sessions of this server have waited for long, and for what another server
 * or client has, the worker goes round:
 *
 *	LIST	which records are there?
 *	LOOK	by which session is each, and when was it written?
 *	READ	those that are new
 *	ASK		what else is to be known of suspects (wait_search.c)
 *	WRITE	our own record, if what it tells has changed
 *	DELETE	what of ours is there besides
 *
 * A record (recipes/wait_record.c) is an ephemeral node below WAIT_RECORD_ROOT that is
 * never changed: a new one takes its place, and the old one is deleted.  Its name
 * has the id of its session, which ZooKeeper confirms, and a number.  When nobody
 * waits for long any more, ours is deleted.  As long as nobody does, nothing is
 * asked and nothing is written.
 *
 * A lost reply is settled by the next listing: what has our session's id in its name
 * and is not the record that we know of is deleted.  That one may exist is noted
 * in shared memory before it is created, so the next worker sees to it as well.  A
 * new session has nothing to clear away.
 *
 * Two readings confirm a deadlock.  In the first, at some zxid, all its waits are
 * there, as far as the records tell.  Each server whose wait is stuck looks again
 * and writes a new record, which tells the newest zxid that it had read before.  If in
 * the second reading all servers tell the same waits, and have looked since that
 * zxid, then each wait has lasted from before it until after it, as a process that
 * waits does nothing else: at that zxid, all were there at once.  A server that is
 * gone, or stopped, does not look again, and so its old record proves nothing.
 *
 * Then the server that has the youngest wait tells its session to give up
 * (shared/verdict.c).  That is all that a record can bring about, be it true, stale
 * or forged: a session of ours ends a wait.
 *
 * What a round needs goes with its memory context.  Calls are made outside of it:
 * they outlive the handler of the last reply, with which a round ends.
 *
 * Runs in: the worker.  All of this is private to it, but for what verdict.h says.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/long_wait.h"
#include "recipes/wait_record.h"
#include "shared/clock.h"
#include "shared/entry.h"
#include "shared/lease_state.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/verdict.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "worker/deadlock.h"
#include "worker/own_waits.h"
#include "worker/wait_search.h"
#include "zk/zk_call.h"
#include "zk/zk_client.h"

/* Rounds begin no oftener, ms. */
#define SHORTEST_PAUSE_MS 50

/* A suspicion makes so many rounds so much more frequent. */
#define HASTE 4
#define HASTY_ROUNDS 40

/* No more records are read: one for each server. */
#define MAX_RECORDS 256

/* "<session id>-<number>", in hexadecimal digits */
#define NAME_LENGTH 25
#define NAME_ID_LENGTH 16

typedef enum Step
{
	STEP_NONE, /* no round is under way */
	STEP_LIST,
	STEP_LOOK,
	STEP_READ,
	STEP_ASK,
	STEP_WRITE,
	STEP_DELETE
} Step;

/* A record below WAIT_RECORD_ROOT */
typedef struct Found
{
	char		  name[NAME_LENGTH + 1];
	int64		  czxid;
	int			  length; /* of the data, bytes */
	bool		  good;	  /* it is its session's, and of this form */
	ReadRecord	  record;
	MemoryContext context; /* of what the record points to; NULL if it is not read */
} Found;

/* Our own record */
typedef struct Published
{
	char  name[NAME_LENGTH + 1]; /* "" if there is none that we know of */
	int64 session;
	int64 seen;
	char *body; /* palloc'd */
} Published;

/* What the first reading has found */
typedef struct Suspicion
{
	bool   any;
	uint64 fingerprint;
	int64  newest; /* zxid */
	int	   rounds; /* since */
} Suspicion;

typedef struct Round
{
	Step		  step;
	int			  pending; /* calls that are not answered */
	bool		  failed;  /* one was not answered as it should */
	MemoryContext context;
	Found		 *found; /* allocated apart: they are kept from round to round */
	int			  nfound;
	int64		  seen;	  /* newest zxid of a record that has been read */
	int64		  newest; /* of one that has to do with what we suspect */
	OwnWaits	  own;
	Search		 *search;  /* NULL if there are no suspects */
	char		**remains; /* names of what is to be deleted */
	int			  nremains;
} Round;

static Round	 current;
static Published published;
static Suspicion suspicion;
static int64	 next_at = -1;	  /* the next round, ms; -1: when somebody waits for long */
static bool		 refusal_is_told; /* the log has been told that nothing can be published */

static void go_on(void);

static int64
our_session(void)
{
	return zklock_session->info.id;
}

static char *
node_path(const char *name)
{
	return psprintf("%s/%s", WAIT_RECORD_ROOT, name);
}

/* ------------------------------------------------------------------------
 * Reading
 * ------------------------------------------------------------------------
 */

/* The session whose id is in the name of a record; 0 if it is no such name. */
static int64
session_of_name(const char *name)
{
	if (strlen(name) != NAME_LENGTH || name[NAME_ID_LENGTH] != '-' ||
		strspn(name, "0123456789abcdef") != NAME_ID_LENGTH ||
		strspn(name + NAME_ID_LENGTH + 1, "0123456789abcdef") != NAME_LENGTH - NAME_ID_LENGTH - 1)
		return 0;
	return (int64) strtoull(name, NULL, 16);
}

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
	Found *found = MemoryContextAllocZero(TopMemoryContext, MAX_RECORDS * sizeof(Found));
	bool   is_there = false;
	int	   n = 0;

	/* Two more: our record, and the one that it replaces */
	current.remains = palloc((reply->nchildren + 2) * sizeof(char *));
	for (int i = 0; i < reply->nchildren; i++)
	{
		const char *name = reply->children[i];
		int64		session = session_of_name(name);

		is_there |= strcmp(name, published.name) == 0;
		if (session == our_session() && session != 0 && strcmp(name, published.name) != 0)
			current.remains[current.nremains++] = pstrdup(name);
		else if (session != 0 && n < MAX_RECORDS)
			strlcpy(found[n++].name, name, sizeof(found->name));
	}
	if (!is_there)
		published.name[0] = '\0';
	for (int i = 0; i < current.nfound; i++)
	{
		for (int k = 0; k < n && current.found[i].good; k++)
		{
			if (strcmp(found[k].name, current.found[i].name) != 0)
				continue;
			found[k] = current.found[i];
			current.found[i].context = NULL;
		}
		forget_found(&current.found[i]);
	}
	if (current.found)
		pfree(current.found);
	current.found = found;
	current.nfound = n;
}

static void
on_listed(void *arg, const ZkReply *reply)
{
	MemoryContext old = MemoryContextSwitchTo(current.context);
	ZkReply		  nothing = {.outcome = ZK_OK};

	current.pending--;
	if (reply->outcome == ZK_OK)
		take_listing(reply);
	else if (reply->outcome == ZK_NO_NODE)
		take_listing(&nothing);
	else
		current.failed = true;
	MemoryContextSwitchTo(old);
	go_on();
}

static void
on_looked(void *arg, const ZkReply *reply)
{
	Found *found = arg;
	bool   is_known;

	current.pending--;
	current.failed |= reply->outcome == ZK_UNKNOWN;
	is_known = found->good && reply->outcome == ZK_OK && found->czxid == reply->czxid;
	if (!is_known)
	{
		forget_found(found);
		found->czxid = reply->czxid;
		found->length = reply->data_length;

		/* What is not its session's is not looked at. */
		found->good = reply->outcome == ZK_OK && reply->data_length <= WAIT_RECORD_MAX &&
					  reply->ephemeral_owner == session_of_name(found->name);
	}
	go_on();
}

static void
on_read(void *arg, const ZkReply *reply)
{
	Found *found = arg;

	current.pending--;
	current.failed |= reply->outcome == ZK_UNKNOWN;
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
		found->record = (ReadRecord){.owner = session_of_name(found->name), .czxid = found->czxid};
		found->good = worker_record_parse(&found->record, text, reply->data_length);
		MemoryContextSwitchTo(old);
	}
	go_on();
}

/* ------------------------------------------------------------------------
 * Suspects
 * ------------------------------------------------------------------------
 */

static void
on_path_told(void *arg, const ZkReply *reply)
{
	PathFact *fact = arg;

	current.pending--;
	current.failed |= reply->outcome == ZK_UNKNOWN;
	if (reply->outcome == ZK_OK)
	{
		fact->children =
			MemoryContextAllocHuge(current.context, Max(reply->nchildren, 1) * sizeof(char *));
		for (int i = 0; i < reply->nchildren; i++)
			fact->children[i] = MemoryContextStrdup(current.context, reply->children[i]);
		fact->nchildren = reply->nchildren;
	}
	go_on();
}

static void
on_node_told(void *arg, const ZkReply *reply)
{
	NodeFact *fact = arg;

	current.pending--;
	current.failed |= reply->outcome == ZK_UNKNOWN;
	fact->is_so = reply->outcome == ZK_OK && reply->ephemeral_owner == fact->claimed;
	fact->czxid = reply->czxid;
	go_on();
}

/* The newest record of each session */
static const ReadRecord **
good_records(int *n)
{
	const ReadRecord **records = palloc(Max(current.nfound, 1) * sizeof(ReadRecord *));

	*n = 0;
	for (int i = 0; i < current.nfound; i++)
	{
		const Found *found = &current.found[i];
		int			 k = 0;

		if (!found->good)
			continue;
		while (k < *n && records[k]->owner != found->record.owner)
			k++;
		if (k == *n)
			records[(*n)++] = &found->record;
		else if (records[k]->czxid < found->czxid)
			records[k] = &found->record;
	}
	return records;
}

/* Looks at our own waits, then at all that has been read. */
static void
search(void)
{
	MemoryContext	   old = MemoryContextSwitchTo(current.context);
	int				   n;
	const ReadRecord **records = good_records(&n);
	Search			  *found = palloc(sizeof(Search));

	for (int i = 0; i < n; i++)
		current.seen = Max(current.seen, records[i]->czxid);
	worker_own_waits(&current.own, current.seen);
	if (current.own.n > 0 && worker_search_suspects(found, records, n, our_session()))
		current.search = found;
	MemoryContextSwitchTo(old);
}

static void
ask(void)
{
	Search *asked = current.search;

	for (int i = 0; i < asked->npaths; i++)
	{
		current.pending++;
		zk_list(ZK_WORKER, asked->paths[i].path, ZK_UNWATCHED, on_path_told, &asked->paths[i]);
	}
	for (int i = 0; i < asked->nnodes; i++)
	{
		char *path = psprintf("%s/%s", asked->nodes[i].node.path, asked->nodes[i].node.name);

		current.pending++;
		zk_look(ZK_WORKER, path, on_node_told, &asked->nodes[i]);
		pfree(path);
	}
}

/* Tells the session of ours that is to give up, if it still waits as it did. */
static void
pass_verdict(void)
{
	StringInfoData	  cycle;
	const SearchWait *victim;

	initStringInfo(&cycle);
	victim = worker_search_victim(current.search, &cycle);
	for (int i = 0; victim && i < current.own.n; i++)
	{
		const OwnWait *own = &current.own.waits[i];

		if (own->identity != victim->wait->identity)
			continue;
		(void) entry_condemn(own->entry, own->generation,
							 verdict_pass(cycle.data, own->pids, own->npids));
		suspicion.any = false;
		return;
	}
}

/* Weighs what has been read twice by now. */
static void
judge(void)
{
	MemoryContext old = MemoryContextSwitchTo(current.context);
	uint64		  fingerprint;
	int64		  seen;

	worker_search_verify(current.search);
	if (!worker_search_is_stuck(current.search, &fingerprint, &current.newest, &seen))
		suspicion.any = false;
	else if (!suspicion.any || suspicion.fingerprint != fingerprint)
		suspicion = (Suspicion){.any = true, .fingerprint = fingerprint, .newest = current.newest};
	else if (seen >= suspicion.newest)
		pass_verdict();
	suspicion.rounds++;
	MemoryContextSwitchTo(old);
}

/* ------------------------------------------------------------------------
 * Writing
 * ------------------------------------------------------------------------
 */

static void
tell_refusal(const char *what, int code)
{
	if (!refusal_is_told)
		ereport(LOG, (errmsg("could not %s ZooKeeper node \"%s\": %s", what, WAIT_RECORD_ROOT,
							 zk_error_name(code)),
					  errdetail("Deadlocks across servers are not found."),
					  errhint("Create the node, with rights for all servers to create, read and delete nodes below it.")));
	refusal_is_told = true;
}

static void
on_deleted(void *arg, const ZkReply *reply)
{
	current.pending--;

	/* Whatever is left is deleted in the next round. */
	current.failed |= reply->outcome != ZK_OK && reply->outcome != ZK_NO_NODE;
	go_on();
}

static void
delete_node(const char *name)
{
	char *path = node_path(name);

	current.pending++;
	zk_delete(ZK_WORKER, path, on_deleted, NULL);
	pfree(path);
}

/* The record is there: the one before goes. */
static void
on_written(void *arg, const ZkReply *reply)
{
	Published *written = arg;

	current.pending--;
	current.failed |= reply->outcome != ZK_OK;
	if (reply->outcome == ZK_OK)
	{
		refusal_is_told = false;
		if (published.name[0] != '\0')
			current.remains[current.nremains++] =
				MemoryContextStrdup(current.context, published.name);
		if (published.body)
			pfree(published.body);
		published = *written;
		published.body = MemoryContextStrdup(TopMemoryContext, written->body);
	}
	else if (reply->outcome == ZK_REFUSED)
		tell_refusal("create nodes below", reply->code);
	go_on();
}

static void
on_root_created(void *arg, const ZkReply *reply)
{
	current.pending--;
	if (reply->outcome == ZK_REFUSED)
		tell_refusal("create", reply->code);

	/* Its first record is written in the next round, soon. */
	current.failed = true;
	if (reply->outcome == ZK_OK || reply->outcome == ZK_NODE_EXISTS)
		next_at = 0;
	go_on();
}

static void
on_written_first(void *arg, const ZkReply *reply)
{
	if (reply->outcome != ZK_NO_NODE)
		on_written(arg, reply);
	else if (zklock_parent_nodes == PARENTS_EXISTING)
	{
		tell_refusal("create nodes below", reply->code);
		on_written(arg, reply);
	}
	else
		zk_create(ZK_WORKER, WAIT_RECORD_ROOT, NULL,
				  zklock_parent_nodes == PARENTS_PERSISTENT ? ZK_PERSISTENT : ZK_CONTAINER,
				  on_root_created, NULL);
}

/* Has what we tell changed, or do others need to know that it has not? */
static bool
has_news(void)
{
	if (published.name[0] == '\0' || strcmp(published.body, current.own.body) != 0)
		return true;
	return suspicion.any && published.seen < current.newest;
}

/* Publishes what we have to tell. */
static void
write_record(void)
{
	Published *written = MemoryContextAllocZero(current.context, sizeof(Published));
	uint32	   number;
	char	  *path;

	if (!pg_strong_random(&number, sizeof(number)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
	written->session = our_session();
	written->seen = current.seen;
	written->body = MemoryContextStrdup(current.context, current.own.body);
	snprintf(written->name, sizeof(written->name), "%016llx-%08x",
			 (unsigned long long) written->session, number);
	verdicts->record_may_exist = true;
	path = node_path(written->name);
	current.pending++;
	zk_create(ZK_WORKER, path, current.own.record, ZK_EPHEMERAL, on_written_first, written);
	pfree(path);
}

/* ------------------------------------------------------------------------
 * A round
 * ------------------------------------------------------------------------
 */

/* Makes the calls of a step, if any are needed. */
static void
take_step(void)
{
	switch (current.step)
	{
		case STEP_NONE:
			break;
		case STEP_LIST:
			current.pending++;
			zk_sync(NULL, NULL);
			zk_list(ZK_WORKER, WAIT_RECORD_ROOT, ZK_UNWATCHED, on_listed, NULL);
			break;
		case STEP_LOOK:
			for (int i = 0; i < current.nfound; i++)
			{
				char *path = node_path(current.found[i].name);

				current.pending++;
				zk_look(ZK_WORKER, path, on_looked, &current.found[i]);
				pfree(path);
			}
			break;
		case STEP_READ:
			for (int i = 0; i < current.nfound; i++)
			{
				Found *found = &current.found[i];

				if (found->good && found->context == NULL)
				{
					char *path = node_path(found->name);

					current.pending++;
					zk_fetch(ZK_WORKER, path, on_read, found);
					pfree(path);
				}
			}
			break;
		case STEP_ASK:
			search();
			if (current.search)
				ask();
			break;
		case STEP_WRITE:
			if (current.search)
				judge();
			else
				suspicion.any = false;
			if (current.own.n > 0 && has_news())
				write_record();
			break;
		case STEP_DELETE:
			if (current.own.n == 0 && published.name[0] != '\0')
			{
				current.remains[current.nremains++] =
					MemoryContextStrdup(current.context, published.name);
				published.name[0] = '\0';
			}
			for (int i = 0; i < current.nremains; i++)
				delete_node(current.remains[i]);
			break;
	}
}

/* Ends the round; the next one comes soon if there is a suspicion. */
static void
end_round(void)
{
	bool  done = !current.failed && current.own.n == 0;
	bool  hasty = suspicion.any && suspicion.rounds <= HASTY_ROUNDS;
	int64 pause = hasty ? DeadlockTimeout / HASTE : DeadlockTimeout;

	if (done)
		verdicts->record_may_exist = false;
	if (next_at != 0)
		next_at = zklock_now_ms() + Max(pause, SHORTEST_PAUSE_MS);
	current.step = STEP_NONE;
	MemoryContextDelete(current.context);
	current.context = NULL;
}

/* Takes the next steps, as long as nothing is to be waited for. */
static void
go_on(void)
{
	while (current.pending == 0 && current.step != STEP_NONE)
	{
		if (current.failed || current.step == STEP_DELETE || !zk_client_connected())
			end_round();
		else
		{
			current.step++;
			take_step();
		}
	}
}

static void
begin_round(void)
{
	if (published.session != our_session())
	{
		/* What another session had is gone with it. */
		published.name[0] = '\0';
		published.session = our_session();
		suspicion.any = false;
	}
	next_at = -1;
	current.step = STEP_LIST;
	current.failed = false;
	current.seen = 0;
	current.newest = 0;
	current.own.n = 0;
	current.search = NULL;
	current.nremains = 0;
	current.context =
		AllocSetContextCreate(TopMemoryContext, "zklock deadlock round", ALLOCSET_DEFAULT_SIZES);
	take_step();
}

/* Have we anything to tell others, or told them anything? */
static bool
is_concerned(void)
{
	MemoryContext context;
	MemoryContext old;
	OwnWaits	  own;

	if (verdicts->record_may_exist)
		return true;
	context = AllocSetContextCreate(TopMemoryContext, "zklock long waits", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	worker_own_waits(&own, 0);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return own.n > 0;
}

/* Begins a round if one is due. */
void
worker_deadlock_attend(void)
{
	if (current.step != STEP_NONE || (next_at >= 0 && zklock_now_ms() < next_at))
		return;
	if (!verdicts->record_may_exist && !queue_has_long_waits())
		next_at = -1;
	else if (zk_client_connected() && lease_state() == LEASE_HOLDS && our_session() != 0 &&
			 is_concerned())
		begin_round();
	else
		next_at = zklock_now_ms() + Max(DeadlockTimeout, SHORTEST_PAUSE_MS);
}

/* When worker_deadlock_attend() wants to run next at the latest, ms; or -1. */
int64
worker_deadlock_next_wakeup(void)
{
	return current.step == STEP_NONE ? next_at : -1;
}
