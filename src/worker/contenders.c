/*
 * contenders.c
 *		An errand: to read who contends on a path.
 *
 *		sync and list				one round trip
 *		look at the first nodes		one, for all together
 *		read their data				likewise
 *
 * "First" is by the path's recipe; what the names and the data mean is the
 * backend's business.  All calls are made in the name of the session that asks,
 * so they share what can be under way with those of other sessions (zk_turn.c),
 * and nobody's locks wait for them.  ZooKeeper sends a node's data whole, and
 * heartbeats come behind it, so a node is looked at before its data is asked for:
 * what is long is left where it is.
 *
 * What is read is kept in a memory context of the errand's own, which goes when
 * the last call has been answered, in whatever way: each is exactly once.
 * When the backend gives up, nothing more is asked.
 *
 * Runs in: the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "recipes/queue_order.h"
#include "shared/errand_list.h"
#include "utils/memutils.h"
#include "worker/answer.h"
#include "worker/contenders.h"
#include "zk/zk_call.h"
#include "zk/zk_client.h"

typedef struct Reading Reading;

/* In this order */
typedef enum Step
{
	STEP_LOOK,
	STEP_READ,
	STEP_DELIVER
} Step;

/* One of the nodes that are looked at */
typedef struct ReadNode
{
	Reading	  *reading;
	ErrandNode node;
	bool	   gone;		/* it has been deleted meanwhile */
	int		   data_length; /* all there are, bytes */
} ReadNode;

/* An errand under way, from the listing on */
struct Reading
{
	Errand		 *errand;
	MemoryContext context; /* this, and all it points to */
	int			  pending; /* calls that are not answered */
	bool		  failed;  /* a call's outcome is unknown */
	RecipeQueued *queue;
	int			  count;  /* of the queue */
	ReadNode	 *nodes;  /* the first of them */
	int			  nnodes; /* how many these are */
	Step		  step;	  /* to be taken when nothing is pending */
};

static void go_on(Reading *reading);

/* Answers the errand with what has been read. */
static void
deliver(Reading *reading)
{
	MemoryContext  old = MemoryContextSwitchTo(reading->context);
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < reading->nnodes; i++)
	{
		if (!reading->nodes[i].gone)
			errand_list_put(&list, &reading->nodes[i].node);
	}
	for (int i = reading->nnodes; i < reading->count; i++)
	{
		ErrandNode node = {.name = reading->queue[i].name,
						   .name_length = strlen(reading->queue[i].name)};

		errand_list_put(&list, &node);
	}
	worker_answer_long(reading->errand, list.data, list.len);
	MemoryContextSwitchTo(old);
}

/* Makes a call about a node. */
static void
ask(ReadNode *read, void (*call)(int, const char *, ZkReplyHandler, void *), ZkReplyHandler handler)
{
	Errand *errand = read->reading->errand;
	char   *path = psprintf("%s/%s", errand->path, read->node.name);

	read->reading->pending++;
	call(errand->pid, path, handler, read);
	pfree(path);
}

static void
on_content(void *arg, const ZkReply *reply)
{
	ReadNode *read = arg;
	Reading	 *reading = read->reading;

	reading->pending--;
	reading->failed |= reply->outcome == ZK_UNKNOWN;
	read->gone |= reply->outcome == ZK_NO_NODE;
	if (reply->outcome == ZK_OK && reply->data_length > 0)
	{
		char *data = MemoryContextAlloc(reading->context, reply->data_length);

		memcpy(data, reply->data, reply->data_length);
		read->node.data = data;
		read->node.data_length = reply->data_length;
	}
	go_on(reading);
}

static void
on_seen(void *arg, const ZkReply *reply)
{
	ReadNode *read = arg;
	Reading	 *reading = read->reading;

	reading->pending--;
	reading->failed |= reply->outcome == ZK_UNKNOWN;
	read->gone |= reply->outcome == ZK_NO_NODE;
	if (reply->outcome == ZK_OK)
	{
		read->node.was_read = true;
		read->node.czxid = reply->czxid;
		read->node.ctime = reply->ctime;
		read->node.owner = reply->ephemeral_owner;
		read->data_length = reply->data_length;
	}
	go_on(reading);
}

/* Is the node's data worth reading, and not too long? */
static bool
has_data(const ReadNode *read)
{
	return !read->gone && read->data_length > 0 && read->data_length <= ERRAND_LIST_MAX_DATA;
}

/* Takes the next step if all calls have been answered. */
static void
go_on(Reading *reading)
{
	while (reading->pending == 0)
	{
		Step step = reading->step++;

		if (reading->failed || !zk_client_connected() || errand_state(reading->errand) != ERRAND_TAKEN)
		{
			errand_answer(reading->errand, ERRAND_UNREACHABLE, 0);
			MemoryContextDelete(reading->context);
			return;
		}
		if (step == STEP_DELIVER)
		{
			deliver(reading);
			MemoryContextDelete(reading->context);
			return;
		}
		for (int i = 0; i < reading->nnodes; i++)
		{
			if (step == STEP_LOOK)
				ask(&reading->nodes[i], zk_look, on_seen);
			else if (has_data(&reading->nodes[i]))
				ask(&reading->nodes[i], zk_read, on_content);
		}
	}
}

/* Copies the listing, in one piece, and puts it in order. */
static void
take_listing(Reading *reading, const ZkReply *reply)
{
	char **children = palloc(Max(reply->nchildren, 1) * sizeof(char *));
	Size   names = 0;

	for (int i = 0; i < reply->nchildren; i++)
		names += strlen(reply->children[i]) + 1;
	if (names > 0)
	{
		char *at = MemoryContextAllocHuge(CurrentMemoryContext, names);

		for (int i = 0; i < reply->nchildren; i++)
		{
			children[i] = at;
			strcpy(at, reply->children[i]);
			at += strlen(at) + 1;
		}
	}
	reading->queue = MemoryContextAllocHuge(CurrentMemoryContext,
											Max(reply->nchildren, 1) * sizeof(RecipeQueued));
	reading->count = recipe_queue(recipe_by_id(reading->errand->recipe), children,
								  reply->nchildren, reading->queue);
	reading->nnodes = Min(reading->count, reading->errand->limit);
	reading->nodes = palloc0(Max(reading->nnodes, 1) * sizeof(ReadNode));
	for (int i = 0; i < reading->nnodes; i++)
	{
		ReadNode *read = &reading->nodes[i];

		read->reading = reading;
		read->node.name = reading->queue[i].name;
		read->node.name_length = strlen(read->node.name);
	}
}

/* Are the names alone too long for an answer? */
static bool
is_too_long(const Reading *reading)
{
	Size size = 0;

	for (int i = 0; i < reading->count; i++)
		size += strlen(reading->queue[i].name);
	return size > ERRAND_MAX_ANSWER;
}

static void
on_listed(void *arg, const ZkReply *reply)
{
	Errand		 *errand = arg;
	MemoryContext context;
	MemoryContext old;
	Reading		 *reading;

	if (reply->outcome != ZK_OK)
	{
		worker_answer_outcome(errand, reply->outcome, reply->code);
		return;
	}
	context = AllocSetContextCreate(CurrentMemoryContext, "zklock contenders", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	reading = palloc0(sizeof(Reading));
	reading->errand = errand;
	reading->context = context;
	take_listing(reading, reply);
	MemoryContextSwitchTo(old);
	if (!is_too_long(reading))
	{
		go_on(reading);
		return;
	}
	errand_answer(errand, ERRAND_TOO_LONG, 0);
	MemoryContextDelete(context);
}

/* ERRAND_CONTENDERS: no older than what anybody knows by now */
void
worker_contenders_read(Errand *errand)
{
	zk_sync(NULL, NULL);
	zk_list(errand->pid, errand->path, ZK_UNWATCHED, on_listed, errand);
}
