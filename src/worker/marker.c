/*
 * marker.c
 *		Marker nodes: what sessions' calls leave in ZooKeeper for a while.
 *
 * An append or a removal creates a marker node in the same step.  The node's name is
 * written into the slot before the call is sent: the node shows later whether the operation
 * was done.  A published node is itself a marker node, so it goes when its session does; a
 * pin is one too, unless the removal deletes it first.
 *
 * A marker node that is no longer wanted is deleted, and nothing that creates another one
 * is sent before that, unless it replaces the old one.  If ZooKeeper refuses the deletion, it
 * is sent again later.  If we lack the right, a batch that would create another one is
 * refused meanwhile, whichever process has the slot by then: else they would grow ever more.
 *
 * A provisional node belongs to no ZooKeeper session, and the slot has room for the name of one.
 * So one that was given up is deleted before a batch is sent that creates another.
 *
 * Runs in: the worker.  All of this is private to it, but for the slots; shared/call.h says
 * what protects them.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "worker/worker_internal.h"
#include "zk/zk_client.h"

/* When a marker node whose deletion was refused is to be deleted again, ms */
#define DELETE_AGAIN_MS 5000

typedef struct Deletion
{
	enum
	{
		DELETION_NONE,
		DELETION_SENT,
		DELETION_REFUSED /* it waits for delete_again_at */
	} state;
	int	 code;			 /* REFUSED: ZooKeeper's */
	bool of_provisional; /* the deletion of the slot's provisional node has been sent */
} Deletion;

static Deletion *deletions;				  /* by slot */
static int64	 delete_again_at = NEVER; /* ms, if any was refused */

static Deletion *
deletion_of(const CallSlot *slot)
{
	return &deletions[slot - call_pool->slots];
}

/* The operation of a batch that creates a marker node */
static const ZkCall *
creation(CallSlot *slot)
{
	return (ZkCall *) call_slot_text(slot, &slot->batch_room);
}

/* Returns true if it replaces the existing one. */
static bool
replaces(CallSlot *slot)
{
	const ZkCall *call = creation(slot);

	return call->kind == ZK_PUBLISH ||
		   (call->kind == ZK_REMOVE && call->pin && strcmp(call->pin, slot->marker) == 0);
}

/* Notes the marker node of a batch that is about to be sent. */
void
worker_marker_sent(CallSlot *slot)
{
	if (slot->next_marker[0] == '\0')
		return;
	strlcpy(slot->replaced_marker, slot->marker, CALL_MARKER_SIZE);
	strlcpy(slot->marker, slot->next_marker, CALL_MARKER_SIZE);
	slot->sent_session = zklock_session->info.id;
}

/* Notes that a batch has been answered, which may show whether its marker node exists. */
void
worker_marker_answered(CallSlot *slot, CallOutcome outcome)
{
	ZkOperation kind;
	bool		wanted;

	if (slot->next_marker[0] == '\0' || outcome == CALL_UNKNOWN)
		return;
	kind = creation(slot)->kind;
	wanted = kind == ZK_PUBLISH || kind == ZK_PIN ||
			 (outcome != CALL_OK && slot->replaced_marker[0] != '\0');
	SpinLockAcquire(&slot->mutex);
	slot->marker_wanted &= wanted;
	SpinLockRelease(&slot->mutex);
	if (outcome == CALL_NO_NODE && kind == ZK_PUBLISH)
		slot->marker[0] = '\0'; /* the one before it is gone, alone or with its parent */
	else if (outcome != CALL_OK)
		strlcpy(slot->marker, slot->replaced_marker, CALL_MARKER_SIZE);
	slot->replaced_marker[0] = '\0';
}

/* Has a node that may still exist deleted again, but not at once after a refusal. */
static void
on_marker_deleted(void *arg, const ZkReply *reply)
{
	CallSlot *slot = arg;

	deletion_of(slot)->state = DELETION_NONE;
	if (reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE)
	{
		strlcpy(slot->marker, slot->replaced_marker, CALL_MARKER_SIZE);
		slot->replaced_marker[0] = '\0';
	}
	else if (reply->outcome != CALL_UNKNOWN)
	{
		deletion_of(slot)->state = DELETION_REFUSED;
		deletion_of(slot)->code = reply->code;
		delete_again_at = Min(delete_again_at, zklock_now_ms() + DELETE_AGAIN_MS);
	}
	call_slot_mark(slot);
}

/* Returns true if what is asked can be sent before the existing marker node is gone. */
bool
worker_marker_may_stay(CallSlot *slot)
{
	return slot->marker[0] == '\0' || slot->next_marker[0] == '\0' ||
		   (replaces(slot) && deletion_of(slot)->state != DELETION_SENT &&
			slot->replaced_marker[0] == '\0' && slot->sent_session == zklock_session->info.id);
}

/*
 * Returns ZooKeeper's code if we may not delete the slot's marker node, by the last attempt;
 * or 0.
 */
int
worker_marker_forbidden(const CallSlot *slot)
{
	const Deletion *deletion = deletion_of(slot);

	return deletion->state == DELETION_REFUSED && zk_error_is_permission(deletion->code)
			   ? deletion->code
			   : 0;
}

/*
 * Marks the marker node as unwanted, since a batch that was to create another one is not
 * sent.
 */
void
worker_marker_unwanted(CallSlot *slot)
{
	SpinLockAcquire(&slot->mutex);
	slot->marker_wanted = false;
	SpinLockRelease(&slot->mutex);
}

/*
 * Deletes a slot's marker node if it is no longer wanted.  No call of the slot's batch may
 * be under way.
 */
void
worker_marker_attend(CallSlot *slot)
{
	CallState state;
	bool	  wanted;

	if (slot->marker[0] == '\0' || deletion_of(slot)->state == DELETION_SENT)
		return;
	SpinLockAcquire(&slot->mutex);
	state = slot->state;
	wanted = slot->marker_wanted;
	SpinLockRelease(&slot->mutex);
	if (state == CALL_SENT || (wanted && state != CALL_GIVEN_UP &&
							   (state != CALL_ASKED || worker_marker_may_stay(slot))))
		return;
	if (slot->sent_session != zklock_session->info.id && zklock_session->info.id != 0)
	{
		slot->marker[0] = slot->replaced_marker[0] = '\0';
		deletion_of(slot)->state = DELETION_NONE;
	}
	else if (zk_client_connected() && deletion_of(slot)->state != DELETION_REFUSED)
	{
		deletion_of(slot)->state = DELETION_SENT;
		zk_call((ZkCall){.kind = ZK_DELETE,
						 .owner = {slot->pid, slot->role},
						 .path = slot->marker,
						 .patient = true},
				on_marker_deleted, slot);
	}
}

/* Returns true if the session wants the provisional node, or the one that it is to have. */
static bool
provisional_is_wanted(CallSlot *slot)
{
	bool wanted;

	SpinLockAcquire(&slot->mutex);
	wanted = slot->provisional_wanted && !slot->provisional_abandoned;
	SpinLockRelease(&slot->mutex);
	return wanted;
}

/* Forgets the provisional node, which is gone, or stays whatever we do. */
static void
provisional_forget(CallSlot *slot)
{
	SpinLockAcquire(&slot->mutex);
	slot->provisional[0] = '\0';
	slot->provisional_abandoned = false;
	SpinLockRelease(&slot->mutex);
}

/* Returns true if what is asked can be sent before the provisional node is gone. */
bool
worker_marker_provisional_may_stay(CallSlot *slot)
{
	if (slot->provisional[0] == '\0')
		provisional_forget(slot); /* that may have happened as the session asked */
	return !slot->creates_provisional || slot->provisional[0] == '\0' || provisional_is_wanted(slot);
}

/*
 * Notes the answer to a call, which may have created a node.  A container may not stay if nothing
 * is created below it; an earlier one of the slot is above it, or has a node below it now.
 * Whether a sequential node stays is up to the session.
 */
void
worker_marker_created(CallSlot *slot, const ZkCall *asked, const ZkReply *reply)
{
	bool sequential = asked->node_kind == ZK_PERSISTENT_SEQUENTIAL;

	if (reply->outcome != CALL_OK && reply->outcome != CALL_NODE_EXISTS)
		return;
	if (asked->kind == ZK_CREATE && reply->outcome == CALL_OK &&
		(sequential || asked->node_kind == ZK_CONTAINER))
	{
		strlcpy(slot->provisional, sequential ? reply->path : asked->path, sizeof(slot->provisional));
		slot->provisional_czxid = sequential ? reply->stat.czxid : 0;
	}
	else if ((asked->kind == ZK_CREATE || asked->kind == ZK_CREATE_RECORD || asked->kind == ZK_PUBLISH) &&
			 !sequential && provisional_is_wanted(slot))
		slot->provisional[0] = '\0';
}

/* Has a provisional node that may still exist deleted again, when a connection stands. */
static void
on_provisional_deleted(void *arg, const ZkReply *reply)
{
	CallSlot *slot = arg;
	bool	  look_again = slot->provisional_czxid != 0 && reply->code == ZK_BAD_VERSION;

	deletion_of(slot)->of_provisional = false;
	if (reply->outcome != CALL_UNKNOWN && !look_again &&
		strcmp(slot->provisional, reply->asked->path) == 0)
		provisional_forget(slot);
	call_slot_mark(slot);
}

/*
 * Goes on with the deletion of a contender's node that has been read, or written, and leaves
 * another one of its name alone.  A deletion goes by the name, and a new node's data have
 * version 0.  So ours are written again, and the deletion demands their new version.
 */
static void
on_provisional_seen(void *arg, const ZkReply *reply)
{
	CallSlot *slot = arg;
	ZkCall	  next = {.kind = ZK_SET_DATA,
					  .owner = {slot->pid, slot->role},
					  .path = reply->asked->path,
					  .data = reply->data,
					  .data_length = reply->data_length,
					  .version = reply->stat.version};

	if (reply->outcome == CALL_OK && !zk_client_connected())
		on_provisional_deleted(slot, &(ZkReply){.outcome = CALL_UNKNOWN, .asked = reply->asked});
	else if (reply->outcome != CALL_OK || reply->stat.czxid != slot->provisional_czxid)
		on_provisional_deleted(slot, reply);
	else if (reply->asked->kind == ZK_GET_DATA)
		zk_call(next, on_provisional_seen, slot);
	else
	{
		next.kind = ZK_DELETE;
		next.versioned = true;
		zk_call(next, on_provisional_deleted, slot);
	}
}

/*
 * Deletes a slot's provisional node if it is no longer wanted, unless other clients use it.
 * ZooKeeper may refuse that.
 */
void
worker_marker_attend_provisional(CallSlot *slot)
{
	ZkCall delete = {.kind = ZK_DELETE,
					 .owner = {slot->pid, slot->role},
					 .path = slot->provisional,
					 .versioned = true};

	if (slot->provisional[0] == '\0' || deletion_of(slot)->of_provisional ||
		!zk_client_connected() || provisional_is_wanted(slot))
		return;
	deletion_of(slot)->of_provisional = true;
	if (slot->provisional_czxid == 0)
		zk_call(delete, on_provisional_deleted, slot);
	else
		zk_call((ZkCall){.kind = ZK_GET_DATA, .owner = delete.owner, .path = delete.path},
				on_provisional_seen, slot);
}

/* Returns when worker_marker_delete_again() wants to be called, ms. */
int64
worker_marker_next_wakeup(void)
{
	return delete_again_at;
}

/* Has the deletions that ZooKeeper refused sent again, when that is due. */
void
worker_marker_delete_again(void)
{
	if (zklock_now_ms() < delete_again_at)
		return;
	delete_again_at = NEVER;
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		if (deletions[i].state != DELETION_REFUSED)
			continue;
		deletions[i].state = DELETION_NONE;
		call_slot_mark(&call_pool->slots[i]);
	}
}

void
worker_marker_start(void)
{
	deletions = palloc0(zklock_max_processes() * sizeof(Deletion));
}
