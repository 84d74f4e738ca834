/*
 * zk_send.c
 *		Handing a call to the client library.
 *
 * Each kind of call in the library's terms.  A multi contains checks of nodes,
 * changes, deletions, and creates of persistent and ephemeral nodes; a container
 * in one would abort the process, and a create2 is not sent (trap 6).  Watches are
 * set by "get" and "list" only, as "exists" would leave them on missing nodes
 * (trap 11).
 *
 * Runs in: the worker's main loop.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "zk/zk_batch.h"
#include "zk/zk_callback.h"
#include "zk/zk_send.h"

/* A kind of node in the library's terms */
static int
create_mode(ZkNodeKind kind)
{
	switch (kind)
	{
		case ZK_CONTAINER:
			return ZOO_CONTAINER;
		case ZK_PERSISTENT:
			return ZOO_PERSISTENT;
		case ZK_EPHEMERAL:
			return ZOO_EPHEMERAL;
		case ZK_EPHEMERAL_SEQUENTIAL:
			break;
	}
	return ZOO_EPHEMERAL_SEQUENTIAL;
}

/* Creates a node with data, and its receipt. */
static int
send_append(zhandle_t *handle, const struct ACL_vector *acls, const Call *call)
{
	ZkAppend *append = calloc(1, sizeof(ZkAppend));
	zoo_op_t  ops[2];
	int		  code;

	if (append == NULL)
		return ZSYSTEMERROR;
	append->number = call->number;
	zoo_create_op_init(&ops[0], call->path, call->data, call->data_length, acls,
					   ZOO_PERSISTENT_SEQUENTIAL, append->path, sizeof(append->path));
	zoo_create_op_init(&ops[1], call->other, NULL, -1, acls, ZOO_EPHEMERAL, NULL, 0);
	code = zoo_amulti(handle, lengthof(ops), ops, append->results, zk_callback_appended, append);
	if (code != ZOK)
		free(append);
	return code;
}

/* Deletes a node, or those of several calls, all or none. */
static int
send_delete(zhandle_t *handle, const Call *first)
{
	/* Written by the library when the answer comes, if ever; never read. */
	static zoo_op_result_t results[ZK_BATCH_MAX];

	const void *context = zk_callback_context(first->number);
	zoo_op_t	ops[ZK_BATCH_MAX];
	int			nops = 0;

	if (first->next == NULL)
		return zoo_adelete(handle, first->path, -1, zk_callback_done, context);
	for (const Call *call = first; call; call = call->next)
		zoo_delete_op_init(&ops[nops++], call->path, -1);
	return zoo_amulti(handle, nops, ops, results, zk_callback_done, context);
}

/*
 * Hands a call to the library.  The answer comes as an event with its number.
 *
 * Returns an error code of the library if it does not even try.
 */
int
zk_send(zhandle_t *handle, uintptr_t handle_number, ZkAcl acl, const Call *call)
{
	/* Written by the library when the answer comes, if ever; never read. */
	static zoo_op_result_t results[3];
	static struct Stat	   stat;

	const void				*context = zk_callback_context(call->number);
	const struct ACL_vector *acls = acl == ZK_ACL_CREATOR ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
	watcher_fn				 watcher = call->watch ? zk_callback_event : NULL;
	zoo_op_t				 ops[3];
	int						 nops = 0;

	switch (call->kind)
	{
		case CALL_CREATE:
			return zoo_acreate2(handle, call->path, call->data, call->data_length, acls,
								create_mode(call->node_kind),
								call->followed ? zk_callback_created_followed : zk_callback_created,
								context);
		case CALL_EXCHANGE:
			zoo_create_op_init(&ops[nops++], call->path, call->data, call->data_length, acls,
							   create_mode(call->node_kind), NULL, 0);
			if (call->notice == ZK_NOTICED)
				zoo_set_op_init(&ops[nops++], call->other, call->data, call->data_length, -1, &stat);
			zoo_delete_op_init(&ops[nops++], call->other, -1);
			return zoo_amulti(handle, nops, ops, results, zk_callback_done, context);
		case CALL_APPEND:
			return send_append(handle, acls, call);
		case CALL_DELETE_BOTH:
			zoo_delete_op_init(&ops[nops++], call->path, -1);
			zoo_delete_op_init(&ops[nops++], call->other, -1);
			return zoo_amulti(handle, nops, ops, results, zk_callback_done, context);
		case CALL_SET:
			return zoo_aset(handle, call->path, call->data, call->data_length, call->version,
							zk_callback_stat, context);
		case CALL_DELETE:
			return send_delete(handle, call);
		case CALL_GET:
			return zoo_awget(handle, call->path, watcher, (void *) handle_number,
							 zk_callback_content, context);
		case CALL_LOOK:
			return zoo_aexists(handle, call->path, 0, zk_callback_stat, context);
		case CALL_READ:
			return zoo_aget(handle, call->path, 0, zk_callback_content, context);
		case CALL_FETCH:
			return zoo_aget(handle, call->path, 0, zk_callback_whole, context);
		case CALL_LIST:
			return zoo_awget_children2(handle, call->path, watcher, (void *) handle_number,
									   zk_callback_children, context);
		case CALL_CHECK:
		case CALL_BEAT:
			zoo_check_op_init(&ops[0], call->path, -1);
			return zoo_amulti(handle, 1, ops, results, zk_callback_done, context);
		case CALL_SYNC:
			return zoo_async(handle, call->path, zk_callback_synced, context);
		case CALL_NUDGE:
			return zoo_aexists(handle, call->path, 0, zk_callback_stat, context);
		case CALL_UNWATCH_DATA:
			return zoo_aremove_all_watches(handle, call->path, ZWATCHTYPE_DATA, 0,
										   (void_completion_t *) zk_callback_done, context);
		case CALL_UNWATCH_CHILDREN:
			return zoo_aremove_all_watches(handle, call->path, ZWATCHTYPE_CHILD, 0,
										   (void_completion_t *) zk_callback_done, context);
	}
	return ZBADARGUMENTS; /* cannot happen */
}
