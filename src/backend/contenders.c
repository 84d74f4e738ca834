/*
 * contenders.c
 *		The holders and waiters on a path, as ZooKeeper has them.
 *
 * The session asks ZooKeeper twice: first for the children of the path, after a sync if the
 * caller wants all that has been committed; then, for the first ones in the queue, for the
 * owner and the data of each node.  The recipe says what the names mean; anybody may have
 * written the data.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/contenders.h"
#include "backend/display.h"
#include "utils/timestamp.h"

/* Number of nodes that are read at a time: their data may be long. */
#define NODES_AT_ONCE 100

/* Lists the children of the path, and puts its contenders in order. */
static CallStep
list(Contenders *contenders, Caller *call, CallSight sight)
{
	CallStep	  listed = {.asked = {.kind = ZK_GET_CHILDREN, .path = contenders->path}};
	RecipeQueued *queue;
	int			  nchildren;

	call_batch(call, &listed, 1, sight);
	nchildren = listed.result.nchildren;
	queue = palloc_extended(Max(nchildren, 1) * sizeof(RecipeQueued), MCXT_ALLOC_HUGE);
	contenders->n = recipe_queue(contenders->recipe, listed.children, nchildren, queue);
	contenders->nodes = palloc_extended(Max(contenders->n, 1) * sizeof(ContenderNode),
										MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int i = 0; i < contenders->n; i++)
		contenders->nodes[i] =
			(ContenderNode){.name = queue[i].name, .peer = queue[i].peer, .data = ""};
	pfree(queue);
	return listed;
}

/* Stores what ZooKeeper has answered for a node, if it has. */
void
contenders_take_node(ContenderNode *node, const CallStep *read)
{
	node->answer = read->result;
	node->data = read->read ? read->read : "";
}

/* Drops nodes that are gone.  Returns how many they are. */
static int
drop_gone(Contenders *contenders)
{
	int n = contenders->n;

	contenders->n = 0;
	for (int i = 0; i < n; i++)
	{
		if (contenders->nodes[i].answer.outcome != CALL_NO_NODE)
			contenders->nodes[contenders->n++] = contenders->nodes[i];
	}
	return n - contenders->n;
}

/*
 * Determines who holds.  For a semaphore this is known only if a lease says how many permits
 * there are; the smallest number counts.
 */
static void
judge_holders(Contenders *contenders)
{
	RecipePeer *peers;
	bool	   *holds;
	int32_t		permits = 0;

	peers = palloc_extended(Max(contenders->n, 1) * sizeof(RecipePeer), MCXT_ALLOC_HUGE);
	holds = palloc(Max(contenders->n, 1) * sizeof(bool));
	for (int i = 0; i < contenders->n; i++)
	{
		peers[i] = contenders->nodes[i].peer;
		if (peers[i].permits > 0 && (permits == 0 || peers[i].permits < permits))
			permits = peers[i].permits;
	}
	recipe_holders(contenders->recipe, peers, contenders->n, permits, holds);
	contenders->permits_unknown = contenders->recipe == &permit_recipe && permits == 0;
	for (int i = 0; i < contenders->n; i++)
		contenders->nodes[i].holds = holds[i] && !contenders->permits_unknown;
	pfree(peers);
	pfree(holds);
}

/*
 * Reads the contenders on a path, whose path and recipe are given, and the nodes of the first
 * "most" of them that are still there.  A path that does not exist has none.
 *
 * Returns the listing, or the first step whose answer is missing.
 */
CallStep
contenders_read(Contenders *contenders, Caller *call, int most, CallSight sight)
{
	CallStep listed = list(contenders, call, sight);
	int		 from = 0;

	while (from < Min(contenders->n, most) && listed.result.outcome == CALL_OK)
	{
		ContenderNode *nodes = &contenders->nodes[from];
		CallStep	   steps[NODES_AT_ONCE];
		int			   n = Min(Min(contenders->n, most) - from, NODES_AT_ONCE);

		for (int i = 0; i < n; i++)
			steps[i] =
				(CallStep){.asked = {.kind = ZK_GET_DATA,
									 .path = psprintf("%s/%s", contenders->path, nodes[i].name),
									 .most = CONTENDERS_MAX_DATA}};
		call_batch(call, steps, n, CALL_AS_KNOWN);
		for (int i = n - 1; i >= 0; i--)
		{
			contenders_take_node(&nodes[i], &steps[i]);
			if (steps[i].result.outcome == CALL_UNREACHABLE || steps[i].result.outcome == CALL_TOO_LONG)
				listed = steps[i];
		}
		from += n - drop_gone(contenders);

		/* Other contenders may have come meanwhile, or the same ones with other nodes. */
		if (contenders->n == 0)
			listed = list(contenders, call, sight);
	}
	judge_holders(contenders);
	return listed;
}

/*
 * Returns the data of a contender's node, as zklock writes them, and "reservation", with its end
 * if this server has it; NULL if the node holds none, or the data are not zklock's.  A
 * reservation is no process's.
 *
 *	entry	for which the node stands, or NULL
 */
const char *
contenders_reservation(const ContenderNode *node, const EntryCopy *entry, NodeContender *data)
{
	bool ours = node_contender_read(node->data, data);

	if (entry ? !entry->status.reserved : !ours || !data->reservation || !node->holds)
		return NULL;
	data->pid = 0;
	if (entry == NULL)
		return "reservation";
	return psprintf("reservation, until %s", timestamptz_to_str(entry->status.expires_at));
}

/*
 * Describes in a line whose node it is, in the database's encoding: the process of a database
 * server; or else the node's data, if that is text; or else its session.  Does not raise
 * errors.
 */
char *
contenders_describe(const ContenderNode *node)
{
	NodeContender data;
	const char	 *reservation;
	char		 *text;

	reservation = contenders_reservation(node, NULL, &data);
	text = display_foreign(data.server);
	if (text && reservation)
		return psprintf("a reservation of server %s", text);
	if (text)
		return psprintf("process %d of server %s", data.pid, text);
	text = display_node_data(node->data, node->answer.text_length);
	if (text)
		return text;
	if (node->answer.stat.ephemeral_owner != 0)
		return psprintf("ZooKeeper session 0x%llx",
						(unsigned long long) node->answer.stat.ephemeral_owner);
	return pstrdup("a client that does not tell its name");
}
