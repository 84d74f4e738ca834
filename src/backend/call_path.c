/*
 * call_path.c
 *		Creating a node and its missing parents, deleting a node that was read, and refusing
 *		one that has claims.
 *
 * The lowest node is tried first.  If it can be created, or is there, nothing is asked about
 * the nodes above, which have always been there, and to which we may have no rights.  If its
 * parent is missing, the parent is created in the same way.
 *
 * A new node can harm others (recipes/neighbour.c).  Few names can.  For those the parent is
 * listed first, and nothing is created if the list has somebody who would be harmed.
 *
 * ZooKeeper removes no container that never had a child, or not for five minutes: if the
 * creation stops at one, by an error or a cancellation, the worker deletes it.  A contender's
 * node is provisional as well, until its session says otherwise.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/call.h"
#include "backend/hold.h"
#include "shared/entry.h"
#include "shared/settings.h"

/*
 * How often a node's parent is created: others may delete it, as ZooKeeper does with
 * containers.
 */
#define MAX_ATTEMPTS 16

/* Raises an error if a child of that name would harm users of its parent. */
static void
refuse_harm(Caller *caller, const char *path, const char *parent, const char *name)
{
	int		 harm = neighbour_harm(parent, name);
	CallStep list = {.asked = {.kind = ZK_GET_CHILDREN, .path = parent}};

	if (parent[0] == '\0' || harm == 0)
		return;
	call_batch(caller, &list, 1, CALL_AS_KNOWN);

	/* A parent whose children we may not see is no reason to refuse. */
	if (list.result.outcome == CALL_UNREACHABLE)
		call_report(&list);
	for (int i = 0; i < list.result.nchildren; i++)
	{
		if (neighbour_is_harmed(harm, list.children[i]))
			request_report_failure(ENTRY_NONE, path, FAILURE_HARMFUL, 0);
	}
}

/*
 * Creates the lowest node, "lowest", or that "level" levels above it, "path", and its missing
 * parents.  "used" is the path that messages name for the lowest one.
 */
static const CallStep *
create(Caller *caller, const char *used, const ZkCall *lowest, const char *path, int level)
{
	const char *name = strrchr(path, '/') + 1;
	char	   *parent = pnstrdup(path, name - 1 - path);
	CallStep   *made = palloc(sizeof(CallStep));

	/* A contender stands behind the others. */
	if (level > 0 || lowest->node_kind != ZK_PERSISTENT_SEQUENTIAL)
		refuse_harm(caller, used, parent, name);
	for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++)
	{
		const CallStep *above;

		*made = (CallStep){.asked = *lowest};
		if (level > 0)
			*made = (CallStep){.asked = {.kind = ZK_CREATE,
										 .node_kind = zklock_parent_nodes == PARENTS_PERSISTENT
														  ? ZK_PERSISTENT
														  : ZK_CONTAINER,
										 .path = path}};
		call_batch(caller, made, 1, CALL_AS_KNOWN);
		if (made->result.outcome != CALL_NO_NODE)
			return made;
		if (zklock_parent_nodes == PARENTS_EXISTING)
			request_report_failure(ENTRY_NONE, used, FAILURE_NO_PATH, 0);
		if (parent[0] == '\0')
			request_report_failure(ENTRY_NONE, used, FAILURE_NO_CHROOT, 0);
		if (level + 1 >= ZKLOCK_MAX_LEVELS)
			request_report_failure(ENTRY_NONE, used, FAILURE_TOO_DEEP, 0);

		/* The next attempt shows whether there is a parent now. */
		above = create(caller, used, lowest, parent, level + 1);
		if (above->result.outcome != CALL_OK && above->result.outcome != CALL_NODE_EXISTS &&
			above->result.outcome != CALL_UNKNOWN)
			return above;
	}
	request_report_failure(ENTRY_NONE, used, FAILURE_REFUSED, made->result.code);
}

/*
 * Creates a node, and its missing parents as zklock.parent_nodes says.
 *
 *	path	that is used, for messages
 *	node	the operation that creates the node: ZK_CREATE and ZK_CREATE_RECORD the path's own,
 *			a sequential one is a contender's below it
 *
 * Returns the creation of the node, or that of the parent which was refused: then the node has
 * not been created.  A contender's node is deleted unless call_slot_keep_node() follows.
 */
const CallStep *
call_create_path(Caller *caller, const char *path, ZkCall node)
{
	const CallStep *volatile made = NULL;

	if (zklock_parent_nodes == PARENTS_EXISTING && node.node_kind != ZK_PERSISTENT_SEQUENTIAL)
		request_report_failure(ENTRY_NONE, path, FAILURE_NO_PATH, 0);
	PG_TRY();
	{
		made = create(caller, path, &node, node.path, 0);
	}
	PG_CATCH();
	{
		call_slot_leave_path(call_slot_own());
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (node.node_kind != ZK_PERSISTENT_SEQUENTIAL)
		call_slot_leave_path(call_slot_own());
	return made;
}

/* Returns true if it still is the node that was read. */
static bool
is_there(Caller *caller, const char *path, const NodeStat *stat)
{
	const CallStep *look =
		call_make(caller, (ZkCall){.kind = ZK_EXISTS, .path = path}, CALL_AFTER_SYNC);

	return look->result.outcome == CALL_OK && look->result.stat.czxid == stat->czxid &&
		   look->result.stat.ephemeral_owner == stat->ephemeral_owner;
}

/*
 * Deletes a node that was read, unless another node has its name by now.  ZooKeeper deletes
 * by name, so a moment remains between that check and the deletion (doc/guarantees.md).
 *
 *	stat		the node's, as it was read
 *	in_doubt	set while the node may have been deleted and that is not known, for the
 *				caller's error context
 *
 * Returns false if another client has deleted it.
 */
bool
call_delete_node(Caller *caller, const char *path, const NodeStat *stat, bool *in_doubt)
{
	while (is_there(caller, path, stat))
	{
		CallStep step = {.asked = {.kind = ZK_DELETE, .path = path}};

		*in_doubt = true;
		call_batch(caller, &step, 1, CALL_AS_KNOWN);
		*in_doubt = step.result.outcome == CALL_UNKNOWN;
		call_report(&step);
		if (step.result.outcome == CALL_OK)
			return true;

		/* A deletion in doubt must be settled, however long that takes. */
		caller->patience = *in_doubt ? CALL_PATIENT : CALL_IMPATIENT;
	}
	return *in_doubt;
}

/*
 * Raises an error if the data of a node are a claim's.
 *
 *	stat	the node's, as it was read or listed
 */
void
call_refuse_claims(Caller *caller, const char *path, const NodeStat *stat)
{
	CallStep read = {.asked = {.kind = ZK_GET_DATA, .path = path, .most = CLAIM_RECORD_SIZE - 1}};

	if (stat->data_length == 0 || stat->data_length >= CLAIM_RECORD_SIZE)
		return;
	call_batch(caller, &read, 1, CALL_AS_KNOWN);

	/* Data that we may not read are no reason to refuse. */
	if (read.result.outcome == CALL_UNREACHABLE)
		call_report_of(caller, &read);
	if (claim_record_recognised(read.read, read.result.text_length))
		request_report_failure(ENTRY_NONE, path, FAILURE_IS_CLAIMS, 0);
}
