/*
 * call_path.c
 *		Creating a node and its missing parents.
 *
 * The lowest node is tried first.  If it can be created, or is there, nothing is asked about
 * the nodes above, which have always been there, and to which we may have no rights.  If its
 * parent is missing, the parent is created in the same way.
 *
 * A new node can harm others (recipes/neighbour.c).  Few names can.  For those the parent is
 * listed first, and nothing is created if the list has somebody who would be harmed.
 *
 * ZooKeeper removes no container that never had a child: if the creation stops at one, by an
 * error or a cancellation, the worker deletes it.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/call.h"
#include "backend/wait.h"
#include "shared/entry.h"
#include "shared/settings.h"

/*
 * How often a node's parent is created: others may delete it, as ZooKeeper does with
 * containers.
 */
#define MAX_ATTEMPTS 16

/* Raises an error if a child of that name would harm users of its parent. */
static void
refuse_harm(Call *call, const char *path, const char *parent, const char *name)
{
	int		 harm = neighbour_harm(parent, name);
	CallStep list = {.kind = OP_LIST, .path = parent};

	if (parent[0] == '\0' || harm == 0)
		return;
	call_batch(call, &list, 1, CALL_AS_KNOWN);

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
 * Returns the operation that creates a node "level" levels above the path.  "data" are a
 * record's, or NULL.
 */
static CallOpKind
create_kind(const char *data, int level)
{
	if (data)
		return OP_RECORD;
	return level == 0 || zklock_parent_nodes == PARENTS_PERSISTENT ? OP_CREATE : OP_CREATE_CONTAINER;
}

/* Creates a node "level" levels above the path, and its missing parents. */
static const CallStep *
create(Call *call, const char *path, const char *node, const char *data, int level)
{
	const char *name = strrchr(node, '/') + 1;
	char	   *parent = pnstrdup(node, name - 1 - node);
	CallStep   *made = palloc(sizeof(CallStep));

	refuse_harm(call, path, parent, name);
	for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++)
	{
		const CallStep *above;

		*made = (CallStep){.kind = create_kind(data, level), .path = node, .data = data};
		call_batch(call, made, 1, CALL_AS_KNOWN);
		if (made->result.outcome == CALL_NO_CHILDREN)
			return made;
		call_report(made);
		if (made->result.outcome != CALL_NO_NODE)
			return made;
		if (parent[0] == '\0')
			request_report_failure(ENTRY_NONE, path, FAILURE_NO_CHROOT, 0);
		if (level + 1 >= ZKLOCK_MAX_LEVELS)
			request_report_failure(ENTRY_NONE, path, FAILURE_TOO_DEEP, 0);

		/* The next attempt shows whether there is a parent now. */
		above = create(call, path, parent, NULL, level + 1);
		if (above->result.outcome == CALL_NO_CHILDREN)
			return above;
	}
	request_report_failure(ENTRY_NONE, path, FAILURE_REFUSED, made->result.code);
}

/*
 * Creates a node, with the data of a record or none, and its missing parents as
 * zklock.parent_nodes says.
 *
 * The outcome is CALL_OK, CALL_NODE_EXISTS, CALL_UNKNOWN, or CALL_NO_CHILDREN if the node, or
 * one above it, would be below an ephemeral one; all else raises an error.
 */
const CallStep *
call_create_path(Call *call, const char *path, const char *data)
{
	const CallStep *volatile made;

	if (zklock_parent_nodes == PARENTS_EXISTING)
		request_report_failure(ENTRY_NONE, path, FAILURE_NO_PATH, 0);
	PG_TRY();
	{
		made = create(call, path, path, data, 0);
	}
	PG_FINALLY();
	{
		call_slot_leave_path(call_slot_own());
	}
	PG_END_TRY();
	return made;
}
