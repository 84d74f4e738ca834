/*
 * take_offer.c
 *		Adding an element to a queue.
 *
 * ZooKeeper gives both creates of an offer, the element's and the scratch node's,
 * the same transaction number, by which the element is found if the answer was lost.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/call.h"
#include "backend/display.h"
#include "backend/request.h"
#include "backend/take_queue.h"
#include "common/hashfn.h"

/* A queue that has so many children takes no more: Java's clients list up to 61,679. */
#define MAX_CHILDREN 50000

/* Sequence numbers end at 2147483647, and order with them: long before, an offer is refused. */
#define LAST_SEQUENCE (PG_INT32_MAX - 1000000)

#define MAX_ATTEMPTS 16 /* to offer, while others delete the path */
#define SEARCH 128 /* newest elements, among which one is looked for after a lost answer */
#define KNOWN_QUEUES 16 /* that this session has listed */

/* Refuses an offer if a path with children is no queue; that is found out once. */
static void
refuse_unknown(TakeQueue *queue, const CallResult *look)
{
	static struct
	{
		uint32 hash;
		int64  czxid;
	} known[KNOWN_QUEUES];
	static int next_known = 0;

	uint32 hash = hash_bytes((const unsigned char *) queue->path, (int) strlen(queue->path));

	for (int i = 0; i < KNOWN_QUEUES; i++)
	{
		if (known[i].hash == hash && known[i].czxid == look->stat.czxid)
			return;
	}
	(void) take_list(queue, false);
	known[next_known].hash = hash;
	known[next_known].czxid = look->stat.czxid;
	next_known = (next_known + 1) % KNOWN_QUEUES;
}

/* Looks whether an element can be offered.  Creates the path if it is missing. */
static void
prepare(TakeQueue *queue)
{
	const CallStep *step =
		call_make(&queue->call, (CallStep){.kind = OP_LOOK, .path = queue->path}, CALL_AS_KNOWN);
	const CallResult *look = &step->result;

	if (look->outcome == CALL_NO_NODE)
	{
		call_report(call_create_path(&queue->call, queue->path, NULL, OP_CREATE));
		return;
	}
	take_refuse_claims(queue, look);
	if (look->stat.child_count >= MAX_CHILDREN)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("ZooKeeper queue \"%s\" is full", display_path(queue->path)),
				 errdetail("It has %d elements or more.", MAX_CHILDREN),
				 errhint("With many more, clients could not list them. For thousands of elements, use a table and SELECT ... FOR UPDATE SKIP LOCKED.")));
	if (look->stat.child_changes < 0 || look->stat.child_changes > LAST_SEQUENCE)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("the sequence numbers of ZooKeeper queue \"%s\" are used up",
							   display_path(queue->path)),
						errdetail("ZooKeeper numbers the nodes below a path up to 2147483647; beyond that there is no order."),
						errhint("When the queue is empty and nobody uses it, delete its node.")));
	if (look->stat.child_count > 0)
		refuse_unknown(queue, look);
}

/* The name of the element that was created then; NULL if it is there no more. */
static char *
find_created(TakeQueue *queue, int64 czxid)
{
	int				   n;
	const ElementName *names = take_sort(take_list(queue, false), &n);
	int				   first = Max(n - SEARCH, 0);
	CallStep		  *looks = palloc0(SEARCH * sizeof(CallStep));

	for (int i = first; i < n; i++)
		looks[i - first] =
			(CallStep){.kind = OP_LOOK, .path = take_element_path(queue, names[i].name)};
	if (n > 0)
		call_batch(&queue->call, looks, n - first, CALL_AS_KNOWN);
	for (int i = first; i < n; i++)
	{
		if (looks[i - first].result.outcome == CALL_OK && looks[i - first].result.stat.czxid == czxid)
			return pstrdup(names[i].name);
	}
	return NULL;
}

/* Sends an offer.  Returns false if it was not made, and may be made now. */
static bool
append(TakeQueue *queue, const char *data, Size length, char **name)
{
	CallStep step = {.kind = OP_APPEND,
					 .path = psprintf("%s/" ELEMENT_PREFIX, queue->path),
					 .data = length > 0 ? data : NULL,
					 .data_length = length};

	queue->offering = true;
	take_make_certainly(queue, &step);
	queue->offering = false;
	take_check(queue, &step);
	*name = step.read;
	if (step.result.outcome == CALL_OK && step.read == NULL)
		*name = find_created(queue, step.result.stat.czxid);
	return step.result.outcome == CALL_OK;
}

/*
 * Adds an element to a queue, which is created if it does not exist.  Returns its
 * name, or NULL if that is not known: the answer was lost, and somebody has taken
 * the element before it could be asked for.
 */
char *
take_offer(const char *path, const char *data, Size length)
{
	TakeQueue queue = {.path = path};
	ErrorContextCallback context = {.callback = take_context, .arg = &queue, .previous = error_context_stack};
	char				*name = NULL;
	bool				 made = false;

	request_refuse_election(path);
	error_context_stack = &context;
	for (int attempt = 0; !made && attempt < MAX_ATTEMPTS; attempt++)
	{
		prepare(&queue);
		made = append(&queue, data, length, &name);
		if (!made)
			(void) take_create_receipts(&queue);
	}
	if (!made)
		ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR),
						errmsg("cannot use ZooKeeper queue \"%s\"", display_path(path)),
						errdetail("Others delete it as soon as it is there.")));
	error_context_stack = context.previous;
	return name;
}
