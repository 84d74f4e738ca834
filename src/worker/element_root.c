/*
 * element_root.c
 *		Creating the path of a queue.
 *
 * As for a lock (queue/parents.c): it is looked upwards for what exists, and what
 * is missing is created below it, unless that would harm a lock or a semaphore
 * there.  The queue's own node is persistent whatever zklock.parent_nodes says: if
 * ZooKeeper removed it when it is empty, those who wait there would wait for ever,
 * and numbers would begin anew.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "recipes/neighbour.h"
#include "worker/element_queue.h"
#include "worker/element_root.h"
#include "zk/zk_call.h"

/* Nodes created for one queue: its own and those above it */
#define MAX_LEVELS 16

/* A queue's path is made in the name of a request. */
typedef struct Making
{
	ElementQueue *queue;
	int			  owner;
	ZkNodeKind	  parents;
} Making;

static void ascend(Making *making);

static void
refuse(ElementQueue *queue, ElementOutcome outcome, int code)
{
	if (queue->refusal == ELEMENT_OUTCOME_OK)
	{
		queue->refusal = outcome;
		queue->refusal_code = code;
	}
}

/* All is created, or it cannot be. */
static void
end(Making *making)
{
	ElementQueue *queue = making->queue;

	queue->making = false;
	queue->is_missing = false;
	queue->listed = false;
	if (queue->refusal != ELEMENT_OUTCOME_OK)
		worker_element_fail_all(queue, queue->refusal, queue->refusal_code);
	pfree(making);
	worker_element_queue_call_ends(queue);
}

/* The reply to a create, if it is a reason to give up */
static void
take_refusal(ElementQueue *queue, const ZkReply *reply)
{
	if (reply->outcome == ZK_REFUSED)
		refuse(queue, ELEMENT_OUTCOME_REFUSED, reply->code);
	else if (reply->outcome == ZK_NO_CHILDREN)
		refuse(queue, ELEMENT_OUTCOME_NO_CHILDREN, reply->code);
}

static void
on_created(void *arg, const ZkReply *reply)
{
	Making *making = arg;

	take_refusal(making->queue, reply);
	if (--making->queue->creating == 0)
		end(making);
}

/* Creates all below the first "len" bytes of the path, from the top. */
static void
descend(Making *making, size_t len)
{
	ElementQueue *queue = making->queue;

	while (queue->path[len] != '\0')
	{
		char *node;
		bool  last;

		len += 1 + strcspn(queue->path + len + 1, "/");
		last = queue->path[len] == '\0';
		node = pnstrdup(queue->path, len);
		queue->creating++;
		zk_create(making->owner, node, NULL, last ? ZK_PERSISTENT : making->parents, on_created, making);
		pfree(node);
	}
}

/* Does a listing of a parent show somebody whom a child of that name would harm? */
static bool
does_harm(const char *parent, const char *name, const ZkReply *reply)
{
	bool to_semaphore = neighbour_disturbs_semaphore(parent);
	bool to_lock = neighbour_disturbs_lock(name);

	for (int i = 0; i < reply->nchildren; i++)
	{
		if ((to_semaphore && neighbour_is_disturbed_semaphore(reply->children[i])) ||
			(to_lock && neighbour_is_disturbed_lock(reply->children[i])))
			return true;
	}
	return false;
}

/* The name of the highest level that is missing */
static char *
missing_name(const ElementQueue *queue)
{
	const char *name = queue->path + queue->missing_len + 1;

	return pnstrdup(name, strcspn(name, "/"));
}

static void
on_listed(void *arg, const ZkReply *reply)
{
	Making *making = arg;
	char   *parent = pnstrdup(making->queue->path, making->queue->missing_len);
	char   *name = missing_name(making->queue);

	/* What we may not see is no reason to refuse. */
	if (reply->outcome == ZK_OK && does_harm(parent, name, reply))
		refuse(making->queue, ELEMENT_OUTCOME_HARMFUL, 0);
	pfree(parent);
	pfree(name);
	if (reply->outcome == ZK_UNKNOWN || making->queue->refusal != ELEMENT_OUTCOME_OK)
		end(making);
	else
		descend(making, making->queue->missing_len);
}

/* What has been looked for exists, or not. */
static void
on_looked(void *arg, const ZkReply *reply)
{
	Making		 *making = arg;
	ElementQueue *queue = making->queue;
	char		 *parent;
	char		 *name;

	if (reply->outcome == ZK_NO_NODE)
	{
		ascend(making);
		return;
	}
	if (reply->outcome != ZK_OK || queue->path[queue->missing_len] == '\0')
	{
		take_refusal(queue, reply);
		end(making);
		return;
	}
	parent = pnstrdup(queue->path, queue->missing_len);
	name = missing_name(queue);
	if (parent[0] != '\0' && (neighbour_disturbs_semaphore(parent) || neighbour_disturbs_lock(name)))
		zk_list(making->owner, parent, ZK_UNWATCHED, on_listed, making);
	else
		descend(making, queue->missing_len);
	pfree(parent);
	pfree(name);
}

/* What has been looked for is missing: looks for the node above. */
static void
ascend(Making *making)
{
	ElementQueue *queue = making->queue;
	char		 *node;

	if (queue->missing_len == 0)
		refuse(queue, ELEMENT_OUTCOME_NO_CHROOT, 0);
	else if (queue->missing++ >= MAX_LEVELS)
		refuse(queue, ELEMENT_OUTCOME_TOO_DEEP, 0);
	if (queue->refusal != ELEMENT_OUTCOME_OK)
	{
		end(making);
		return;
	}
	while (queue->path[--queue->missing_len] != '/')
		;
	node = queue->missing_len == 0 ? pstrdup("/") : pnstrdup(queue->path, queue->missing_len);
	zk_look(making->owner, node, on_looked, making);
	pfree(node);
}

/* Begins to make something in the name of a request; NULL if it must not, or it is being made. */
static Making *
begin(ElementQueue *queue, const ElementRequest *request)
{
	Making *making;

	if (queue->making)
		return NULL;
	if (request->parent_nodes == PARENTS_EXISTING)
		return NULL;
	making = palloc(sizeof(Making));
	making->queue = queue;
	making->owner = request->pid;
	making->parents = request->parent_nodes == PARENTS_PERSISTENT ? ZK_PERSISTENT : ZK_CONTAINER;
	queue->making = true;
	queue->refusal = ELEMENT_OUTCOME_OK;
	queue->calls++;
	return making;
}

/* Creates the path, in the name of a request.  All requests are marked in the end. */
void
worker_element_root_make(ElementQueue *queue, const ElementRequest *request)
{
	Making *making = begin(queue, request);

	if (making)
	{
		queue->missing_len = strlen(queue->path);
		queue->missing = 0;
		ascend(making);
	}
	else if (!queue->making)
		worker_element_fail_all(queue, ELEMENT_OUTCOME_NO_PATH, 0);
}

/* Likewise the parent of receipts. */
void
worker_element_root_make_receipts(ElementQueue *queue, const ElementRequest *request)
{
	Making *making = begin(queue, request);

	if (making)
	{
		queue->creating = 1;
		zk_create(making->owner, ELEMENT_RECEIPTS, NULL, making->parents, on_created, making);
	}
	else if (!queue->making)
		worker_element_fail_all(queue, ELEMENT_OUTCOME_NO_RECEIPTS, 0);
}
