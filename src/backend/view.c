/*
 * view.c
 *		The holders and waiters on paths: those of this server, as shared memory has them, and
 *		those of all clients, as ZooKeeper has them.
 *
 * Shared memory has who waits for whom on this server.  Entries are copied one at a time.  A
 * copy is consistent in itself; the copies of one view may be a moment apart, as in
 * pg_stat_activity.
 *
 * The session asks ZooKeeper twice: first for the children of the path, after a sync if the
 * caller wants all that has been committed; then, for the first ones in the queue, for the
 * owner and the data of each node, of several paths at once if the caller has listed these.  The
 * recipe says what the names mean; anybody may have written the data.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/view.h"
#include "miscadmin.h"
#include "shared/settings.h"
#include "utils/timestamp.h"

/* Number of nodes that are read at a time: their data may be long. */
#define NODES_AT_ONCE 100

/* ------------------------------------------------------------------------
 * As shared memory has them
 * ------------------------------------------------------------------------
 */

/*
 * Cohorts are numbered in the order of their path's queue.  An entry that has no cohort yet
 * comes last.
 */
static uint64
cohort_order(const EntryCopy *entry)
{
	return entry->node.cohort_id != 0 ? entry->node.cohort_id : PG_UINT64_MAX;
}

/* Orders entries as a LockView has them, for qsort(). */
static int
compare_entries(const void *a, const void *b)
{
	static const int order_of_state[] = {
		[ENTRY_GRANTED] = 0, [ENTRY_QUEUED] = 1, [ENTRY_REQUESTED] = 2,
		[ENTRY_LOST] = 2,	 [ENTRY_FAILED] = 2, [ENTRY_RELEASING] = 2,
	};

	const EntryCopy *x = *(EntryCopy *const *) a;
	const EntryCopy *y = *(EntryCopy *const *) b;
	int				 order = strcmp(x->request.path, y->request.path);

	if (order != 0)
		return order;
	if (cohort_order(x) != cohort_order(y))
		return cohort_order(x) < cohort_order(y) ? -1 : 1;
	order = order_of_state[x->status.state] - order_of_state[y->status.state];
	if (order != 0)
		return order;
	return x->status.ticket < y->status.ticket ? -1 : x->status.ticket > y->status.ticket;
}

/*
 * Copies the entries in use, all or those at one path, with those that are kept for nobody or
 * without, each as it is at one moment, in the current memory context.  A palloc() for each takes
 * twice the time if there are a thousand, mostly in page faults.
 */
LockView
lock_view_take(const char *path, bool with_kept)
{
	const int  at_once = 64;
	LockView   view = {.entries = palloc(entry_pool->max_entries * sizeof(EntryCopy *))};
	EntryCopy *copy = NULL; /* the next one of its block */

	for (int i = 0; i < entry_pool->max_entries; i++)
	{
		const Entry *entry = entry_at(i);

		/*
		 * Most are free, or of another path, which a look without the spinlock shows: one that is
		 * being taken or freed now is not in the view.  What is copied is looked at again.
		 */
		if (((const volatile Entry *) entry)->status.state == ENTRY_FREE ||
			(path && strncmp(entry->request.path, path, sizeof(entry->request.path)) != 0))
			continue;
		if (copy == NULL)
			copy = palloc(at_once * sizeof(EntryCopy));
		if (!entry_copy(i, copy) || (path && strcmp(copy->request.path, path) != 0) ||
			(copy->status.kept && !with_kept))
			continue;
		if (copy->status.state == ENTRY_GRANTED && zklock_now_us() >= copy->status.expires_us)
			copy->status.state = ENTRY_LOST;
		if (copy->status.reserved)
			copy->request.pid = ENTRY_SERVER_PID;
		view.entries[view.n++] = copy;
		copy = view.n % at_once != 0 ? copy + 1 : NULL;
	}
	qsort(view.entries, view.n, sizeof(EntryCopy *), compare_entries);
	return view;
}

/*
 * Returns the path as the user knows it: for a turn or a permit the semaphore's, which is
 * above.
 */
const char *
lock_view_path(const EntryCopy *entry)
{
	const char *path = entry->request.path;

	if (entry->request.kind != REQUEST_TURN && entry->request.kind != REQUEST_PERMIT)
		return path;
	return pnstrdup(path, strrchr(path, '/') - path);
}

/* Stands for no process, not even the server itself */
#define NO_PROCESS (-1)

/* Returns the index of the first entry at a path whose cohort has that number or a later one. */
static int
first_entry_at(const LockView *view, const char *path, uint64 cohort_id)
{
	int from = 0;
	int to = view->n;

	while (from < to)
	{
		int middle = from + (to - from) / 2;
		int order = strcmp(view->entries[middle]->request.path, path);

		if (order < 0 || (order == 0 && cohort_order(view->entries[middle]) < cohort_id))
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

/*
 * Returns the first entry of a path's cohort that is in a state and is not that of process
 * "except_pid"; NULL if there is none.
 */
static const EntryCopy *
find_in_cohort(const LockView *view, const char *path, uint64 cohort_id, EntryState state, int except_pid)
{
	for (int i = first_entry_at(view, path, cohort_id);
		 i < view->n && cohort_order(view->entries[i]) == cohort_id; i++)
	{
		if (view->entries[i]->status.state == state && view->entries[i]->request.pid != except_pid)
			return view->entries[i];
	}
	return NULL;
}

/*
 * Returns for whom the process of an entry waits: for the holder in its own cohort; else for
 * what the cohort waits for, which is another cohort of this server or a foreign node; else
 * for the contender ahead of it in its own cohort.
 */
LockBlocker
lock_view_blocker(const LockView *view, const EntryCopy *entry)
{
	const char		*path = entry->request.path;
	uint64			 cohort_id = entry->node.cohort_id;
	int				 waiter = entry->request.pid;
	const EntryCopy *head = find_in_cohort(view, path, cohort_id, ENTRY_QUEUED, NO_PROCESS);
	const EntryCopy *blocker = find_in_cohort(view, path, cohort_id, ENTRY_GRANTED, waiter);
	const char		*node = NULL;

	if (blocker == NULL && head != NULL)
	{
		uint64 before = head->node.blocked_by_cohort;

		if (head->node.blocked_by_node[0] != '\0')
			node = head->node.blocked_by_node;
		blocker = find_in_cohort(view, path, before, ENTRY_GRANTED, waiter);
		if (find_in_cohort(view, path, before, ENTRY_GRANTED, NO_PROCESS) == NULL)
			blocker = find_in_cohort(view, path, before, ENTRY_QUEUED, NO_PROCESS);
		if (blocker == NULL && node == NULL)
			blocker = head;
	}
	if (blocker && blocker->status.reserved)
		node = blocker->node.name;
	if (blocker && blocker->request.pid == waiter)
		blocker = NULL;
	return (LockBlocker){.pid = blocker ? blocker->request.pid : 0, .node = node};
}

/*
 * Returns the entry at a path for which a node stands: the holder's, or else that of the
 * first that came.  Returns NULL if the node is not ours.
 */
const EntryCopy *
lock_view_of_node(const LockView *view, const char *path, const ContenderNode *node)
{
	int64 czxid = node->answer.stat.czxid;

	for (int i = first_entry_at(view, path, 0);
		 i < view->n && strcmp(view->entries[i]->request.path, path) == 0; i++)
	{
		const EntryCopy *entry = view->entries[i];
		bool			 downgraded = entry->status.mode != entry->request.terms.mode;

		/*
		 * The czxid is compared as well, since a name can be used again.  A downgraded lock has
		 * a later node.
		 */
		if (strcmp(entry->node.name, node->name) == 0 &&
			(czxid == 0 || czxid == entry->node.czxid || (downgraded && czxid > entry->node.czxid)))
			return entry;
	}
	return NULL;
}

/* ------------------------------------------------------------------------
 * As ZooKeeper has them
 * ------------------------------------------------------------------------
 */

/* Puts the contenders of a recipe that a listing shows in order. */
void
contenders_sort(Contenders *contenders, const Recipe *recipe, const CallStep *listed)
{
	int			  n = listed->result.nchildren;
	RecipeQueued *queue = palloc_extended(Max(n, 1) * sizeof(RecipeQueued), MCXT_ALLOC_HUGE);

	contenders->recipe = recipe;
	contenders->n = recipe_queue(recipe, listed->children, n, queue);
	contenders->nread = 0;
	contenders->nodes = palloc_extended(Max(contenders->n, 1) * sizeof(ContenderNode),
										MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int i = 0; i < contenders->n; i++)
		contenders->nodes[i] =
			(ContenderNode){.name = queue[i].name, .peer = queue[i].peer, .data = ""};
	pfree(queue);
}

/*
 * Reads the nodes of contenders on several paths: of the first "most" in all that are still there.
 * Those that are gone are dropped.
 *
 * Returns a step that was not answered, or one that is CALL_OK.
 */
CallStep
contenders_read_nodes(Contenders *queues, int nqueues, Caller *caller, int most)
{
	CallStep failed = {.result.outcome = CALL_OK};
	int		 ngone = 0; /* of those that have been read */

	while (failed.result.outcome == CALL_OK)
	{
		CallStep	   steps[NODES_AT_ONCE];
		ContenderNode *nodes[NODES_AT_ONCE];
		int			   n = 0;
		int			   nread = 0;

		for (int i = 0; i < nqueues; i++)
		{
			Contenders *queue = &queues[i];

			for (; queue->nread < queue->n && nread + queue->nread - ngone < most && n < NODES_AT_ONCE;
				 queue->nread++)
			{
				nodes[n] = &queue->nodes[queue->nread];

				/* No client has names of that length, and a hundred of them are no batch. */
				if (strlen(nodes[n]->name) > ZKLOCK_MAX_PATH)
					continue;
				steps[n++] = (CallStep){
					.asked = {.kind = ZK_GET_DATA,
							  .path = psprintf("%s/%s", queue->path, queue->nodes[queue->nread].name),
							  .most = CONTENDERS_MAX_DATA}};
			}
			nread += queue->nread;
		}
		if (n == 0)
			break;
		call_batch(caller, steps, n, CALL_AS_KNOWN);
		for (int i = n - 1; i >= 0; i--)
		{
			nodes[i]->answer = steps[i].result;
			nodes[i]->data = steps[i].read ? steps[i].read : "";
			if (steps[i].result.outcome == CALL_UNREACHABLE || steps[i].result.outcome == CALL_TOO_LONG)
				failed = steps[i];
			ngone += steps[i].result.outcome == CALL_NO_NODE;
		}
	}

	/*
	 * Drop those that are gone, and determine who holds.  For a semaphore this is known only if a
	 * lease says how many permits there are; the smallest number counts.
	 */
	for (int i = 0; i < nqueues; i++)
	{
		Contenders *queue = &queues[i];
		RecipePeer *peers = palloc_extended(Max(queue->n, 1) * sizeof(RecipePeer), MCXT_ALLOC_HUGE);
		bool	   *holds = palloc(Max(queue->n, 1) * sizeof(bool));
		int32_t permits = 0;
		int		left = 0;

		for (int k = 0; k < queue->n; k++)
		{
			if (queue->nodes[k].answer.outcome == CALL_NO_NODE)
				continue;
			queue->nodes[left] = queue->nodes[k];
			peers[left] = queue->nodes[k].peer;
			if (peers[left].permits > 0 && (permits == 0 || peers[left].permits < permits))
				permits = peers[left].permits;
			left++;
		}
		queue->nread -= queue->n - left;
		queue->n = left;
		recipe_holders(queue->recipe, peers, queue->n, permits, holds);
		queue->permits_unknown = queue->recipe == &permit_recipe && permits == 0;
		for (int k = 0; k < queue->n; k++)
			queue->nodes[k].holds = holds[k] && !queue->permits_unknown;
		pfree(peers);
		pfree(holds);
	}
	return failed;
}

/*
 * Reads the contenders on a path, and the nodes of the first "most" of them that are still
 * there.  A path that does not exist has none.
 */
Contenders
contenders_read(const char *path, const Recipe *recipe, Caller *caller, int most, CallSight sight)
{
	Contenders contenders = {.path = path};
	CallStep   listed;
	CallStep   failed;
	int		   n;

	/*
	 * List the children again if none of the contenders is there any more.  Others may have come
	 * meanwhile, or the same ones with other nodes.
	 */
	do
	{
		listed = (CallStep){.asked = {.kind = ZK_GET_CHILDREN, .path = path}};
		call_batch(caller, &listed, 1, sight);
		contenders_sort(&contenders, recipe, &listed);
		n = contenders.n;
		failed = contenders_read_nodes(&contenders, 1, caller, most);
	} while (n > 0 && contenders.n == 0);
	contenders.answer = failed.result.outcome == CALL_OK ? listed : failed;
	return contenders;
}

/*
 * Returns whose node it is.  The data may be anybody's, and describe the first session for which
 * the node stood; shared memory knows more of a node of this server.  A reservation is no
 * process's.
 *
 *	entry	for which the node stands, or NULL
 */
ContenderOwner
contenders_owner(const ContenderNode *node, const EntryCopy *entry)
{
	NodeContender  data;
	ContenderOwner owner = {.is_zklock = node_contender_read(node->data, &data)};

	owner.server = display_foreign(data.server);
	owner.user = display_foreign(data.user);
	owner.application = display_foreign(data.application);
	if (entry ? entry->status.reserved : data.reservation && node->holds)
		owner.other =
			entry ? psprintf("reservation, until %s", timestamptz_to_str(entry->status.expires_at))
				  : "reservation";
	else
		owner.pid = data.pid;
	if (owner.other == NULL && !owner.is_zklock)
		owner.other = display_node_data(node->data, node->answer.text_length);
	if (entry == NULL)
		return owner;

	/* A node that is kept is nobody's, and a candidate its server's. */
	if (entry->status.kept)
		return (ContenderOwner){.server = display_foreign(zklock_own_name())};
	if (owner.server == NULL)
		owner.server = display_foreign(zklock_own_name());
	if (entry->request.kind == REQUEST_CANDIDACY)
		owner.other = NULL;
	else if (owner.pid != entry->request.pid)
	{
		owner.pid = entry->request.pid;
		owner.user = GetUserNameFromId(entry->request.role, true);
		owner.application = NULL;
	}
	return owner;
}

/*
 * Describes in a line whose node it is, in the database's encoding: the process of a database
 * server; or else the node's data, if that is text; or else its session.  Does not raise
 * errors.
 */
char *
contenders_describe(const ContenderNode *node)
{
	ContenderOwner owner = contenders_owner(node, NULL);
	char		  *text;

	if (owner.server && owner.other)
		return psprintf("a reservation of server %s", owner.server);
	if (owner.server)
		return psprintf("process %d of server %s", owner.pid, owner.server);
	text = display_node_data(node->data, node->answer.text_length);
	if (text)
		return text;
	if (node->answer.stat.ephemeral_owner != 0)
		return psprintf("ZooKeeper session 0x%llx",
						(unsigned long long) node->answer.stat.ephemeral_owner);
	return pstrdup("a client that does not tell its name");
}
