/*
 * calls.c
 *		How the worker makes sessions' calls to ZooKeeper, and what these leave there for a
 *		while.
 *
 * shared/call.h draws the states of a slot, through which a session asks for a batch of calls.
 * attend_slot() is its life here: it does what the slot's state asks for.  It is called when the
 * slot is marked, since its session has changed it, all of its batch has been answered, it waits
 * for room, or a node of it is gone or to be deleted again; and for all slots when a connection
 * stands.  What only this worker needs to know of a slot is in its CallWork.
 *
 * A batch is sent as soon as a connection stands; those that have waited for it go out in
 * the order in which the worker has seen them.  Its calls are sent together, and take turns with
 * all others, by role and session (zk/zk_client.c).  The answers are kept until all have come.
 *
 * Room in shared memory: a role may have a quarter of it, superusers all.  A batch has
 * its room until it is answered, so batches leave enough for an answer.  A batch that
 * was given up counts until it is answered.  The worker's own memory has an answer until it
 * is complete and has room: CALL_MAX_ANSWER for each session at most, as in the session's own.
 *
 * Lost answers: reads are made again when a connection stands.  What became of a write
 * cannot be known here: the answer is CALL_UNKNOWN, and the session looks.  The session must
 * not look too early, since an old connection may still carry the write.  So the answer
 * waits for the next connection of the ZooKeeper session, and there for the answer to a
 * check that is committed (engine/engine.c): from then on ZooKeeper takes nothing from the
 * connection before, and what the session reads is no older.  If the ZooKeeper session has
 * ended meanwhile, the connection is that of the next one.
 *
 * Without a connection, impatient batches wait as long as the lease holds, since the
 * connection may soon be back; then the answer is CALL_UNREACHABLE.
 *
 * Marker nodes: an append or a removal creates a marker node in the same step.  The node's name
 * is written into the slot before the call is sent: the node shows later whether the operation
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
 * Watches: a session that waits for an element of a queue has watches set on the children of the
 * queue, and on the claims of elements that other clients have taken (calls ZK_GET_CHILDREN and
 * ZK_WATCH_DATA).  When one of these watches fires, the first session that waits there is
 * woken (shared/call.c).  A watch is removed when no session waits there any more.
 *
 * ZooKeeper removes all watches of a kind on a path.  So a watch where the engine has one as
 * well is left to the engine, and when the engine removes its own, a session that waits there
 * looks again.
 *
 * All watches together must fit beside the engine's in one packet (traps 3 and 4 in
 * doc/internals.md).  A role has a quarter of that room, and an eighth is for superusers; a
 * watch counts as that of the role which asked for it first.  A path for which there is no
 * room is not watched; the answer says so, and the session looks again from time to time.
 *
 * Runs in: the worker.  All of this is private to it, but for the slots; shared/call.h says
 * what protects them.  Those members of a slot that belong to a batch no process changes once
 * it is sent.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine.h"
#include "lib/ilist.h"
#include "lib/stringinfo.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "worker/worker_internal.h"
#include "zk/zk_client.h"

/* Limits of the room, bytes */
#define MAX_ROOM_OF_ROLE (CALL_AREA_SIZE / 4)
#define MAX_BATCHES (CALL_AREA_SIZE / 2)
#define MAX_BATCHES_OF_ROLE (MAX_ROOM_OF_ROLE - CALL_MAX_ANSWER)

/* When a marker node whose deletion was refused is to be deleted again, ms */
#define DELETE_AGAIN_MS 5000

/* Bytes of the paths that are watched, with what the client library adds */
#define WATCH_BYTES (60 * 1024)
#define PER_WATCH 8
#define BYTES_OF_ROLE (WATCH_BYTES / 4)
#define BYTES_RESERVE (WATCH_BYTES / 8) /* for superusers */

/* A claim's path: the queue's, the element's name, and its own */
#define WATCHED_SIZE (ZKLOCK_MAX_PATH + ELEMENT_NAME_SIZE + sizeof(ELEMENT_CLAIM) + 2)

typedef struct Watched
{
	char   path[WATCHED_SIZE]; /* hash key */
	size_t queue_length;	   /* of its beginning: the queue's path */
	Oid	   role;			   /* that asked for it */
} Watched;

typedef struct CallWork CallWork;

/* A call of a batch that is under way */
typedef struct CallUnderWay
{
	CallWork	 *work;
	const ZkCall *asked; /* by the session, in the slot */
} CallUnderWay;

/* The work for a slot: what only this worker needs to know */
struct CallWork
{
	CallSlot  *slot;
	bool	   seen; /* its batch, which waits or was sent: it is in "batches" */
	dlist_node link;

	/* Its batch that was sent */
	uint64		  connection; /* on which it was sent */
	MemoryContext context; /* has the calls and the answer; NULL: this worker has none under way */
	CallUnderWay  *calls;
	StringInfoData answer;	  /* as the session reads it: CallResults, and their texts */
	bool		   too_long;  /* too long to be delivered; it is not complete */
	int			   pending;	  /* calls that have not been answered */
	int			   sync_code; /* ZooKeeper's, if it has refused the sync before them */
	bool		   lost;	  /* one of them never will be answered */

	/* The deletion of its marker node */
	enum
	{
		DELETION_NONE,
		DELETION_SENT,
		DELETION_REFUSED /* it waits for delete_again_at */
	} deletion;
	int deletion_code; /* REFUSED: ZooKeeper's */

	bool deletes_provisional; /* the deletion of its provisional node has been sent */
};

static CallWork	 *works;								/* by slot */
static dlist_head batches = DLIST_STATIC_INIT(batches); /* works, first come first served */
static uint64	  connection;	/* counts connections on which a server has answered */
static uint64	  synchronized; /* the last of them on which a check was committed */
static bool		  attend_all;	/* all slots, once: one of these has changed */
static int64	  delete_again_at = NEVER; /* ms, if any deletion was refused */
static HTAB		 *watched;				   /* NULL before the first connection */
static int64	  watched_session;		   /* the ZooKeeper session that has the watches */

/* ------------------------------------------------------------------------
 * Room
 * ------------------------------------------------------------------------
 */

/*
 * Allocates room for a slot's batch or for an answer, whichever "room" is, if its role may have
 * that much and there is enough.  If not, the slot is attended again in the next round.
 */
static bool
room_allocate(CallSlot *slot, CallRoom *room, Size size)
{
	Size answers_of_role = 0;
	Size batches_of_role = 0;
	Size batches = 0;
	bool may = true;

	for (int i = 0; i < zklock_max_processes(); i++)
	{
		const CallRoom *batch = &call_pool->slots[i].batch_room;
		const CallRoom *answer = &call_pool->slots[i].answer_room;

		batches += batch->size;
		batches_of_role += batch->role == slot->role ? batch->size : 0;
		answers_of_role += answer->role == slot->role ? answer->size : 0;
	}
	if (room == &slot->batch_room)
		may = batches_of_role + size <= MAX_BATCHES_OF_ROLE && batches + size <= MAX_BATCHES;
	may &= batches_of_role + answers_of_role + size <= MAX_ROOM_OF_ROLE;
	if (may || slot->reserve == RESERVE_OPEN)
		room->at = dsa_allocate_extended(call_area, size, DSA_ALLOC_NO_OOM);
	if (!DsaPointerIsValid(room->at))
	{
		call_slot_mark(slot);
		return false;
	}
	room->size = size;
	room->role = slot->role;
	return true;
}

static void
room_free(CallRoom *room)
{
	if (room->size == 0)
		return;
	dsa_free(call_area, room->at);
	*room = (CallRoom){0};
	zklock_wake_worker(); /* slots that wait for room have been marked: there is another
						   * round */
}

/* ------------------------------------------------------------------------
 * Marker nodes
 * ------------------------------------------------------------------------
 */

/* Returns true if what is asked can be sent before the existing marker node is gone. */
static bool
marker_may_stay(const CallWork *work)
{
	CallSlot	 *slot = work->slot;
	const ZkCall *first = (const ZkCall *) call_slot_text(slot, &slot->batch_room);

	if (slot->marker[0] == '\0' || slot->next_marker[0] == '\0')
		return true;

	/* It is replaced in the same step, if it exists and nothing else is done with it. */
	return (first->kind == ZK_PUBLISH ||
			(first->kind == ZK_REMOVE && first->pin && strcmp(first->pin, slot->marker) == 0)) &&
		   work->deletion != DELETION_SENT && slot->replaced_marker[0] == '\0' &&
		   slot->sent_session == zklock_session->info.id;
}

/*
 * Takes note of what the first call's answer says of the marker node, once nothing keeps the
 * answer from the session any more: if this worker ends before, the session looks for the
 * node.
 */
static void
settle_marker(CallWork *work)
{
	CallSlot   *slot = work->slot;
	CallOutcome outcome = ((CallResult *) work->answer.data)->outcome;
	ZkOperation kind = work->calls[0].asked->kind;
	bool		wanted;

	if (slot->next_marker[0] == '\0' || outcome == CALL_UNKNOWN)
		return;
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
	CallWork *work = arg;
	CallSlot *slot = work->slot;

	work->deletion = DELETION_NONE;
	if (reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE)
	{
		strlcpy(slot->marker, slot->replaced_marker, CALL_MARKER_SIZE);
		slot->replaced_marker[0] = '\0';
	}
	else if (reply->outcome != CALL_UNKNOWN)
	{
		work->deletion = DELETION_REFUSED;
		work->deletion_code = reply->code;
		delete_again_at = Min(delete_again_at, zklock_now_ms() + DELETE_AGAIN_MS);
	}
	call_slot_mark(slot);
}

/* ------------------------------------------------------------------------
 * Provisional nodes
 * ------------------------------------------------------------------------
 */

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

/*
 * Goes on with the deletion of a provisional node.
 *
 * A contender's node has been read, then written, then deleted; another one of its name is left
 * alone.  A deletion goes by the name, and a new node's data have version 0.  So ours are
 * written again, and the deletion demands their new version.  A container is deleted in the
 * version that a new one has.
 *
 * A node that may still exist is deleted again, when a connection stands.
 */
static void
on_provisional_reply(void *arg, const ZkReply *reply)
{
	CallWork *work = arg;
	CallSlot *slot = work->slot;
	bool	  named = slot->provisional_czxid != 0;
	bool	  unknown = reply->outcome == CALL_UNKNOWN;

	if (reply->asked->kind != ZK_DELETE && reply->outcome == CALL_OK &&
		reply->stat.czxid == slot->provisional_czxid && zk_connection >= ZK_CONNECTED)
	{
		bool seen = reply->asked->kind == ZK_GET_DATA;

		zk_call((ZkCall){.kind = seen ? ZK_SET_DATA : ZK_DELETE,
						 .owner = reply->asked->owner,
						 .path = reply->asked->path,
						 .data = reply->data,
						 .data_length = reply->data_length,
						 .version = reply->stat.version,
						 .versioned = !seen},
				on_provisional_reply, work);
		return;
	}
	if (reply->asked->kind != ZK_DELETE && reply->outcome == CALL_OK && zk_connection < ZK_CONNECTED)
		unknown = true;
	work->deletes_provisional = false;

	/* If somebody has written to ours meanwhile, it is looked at again. */
	if (!unknown && !(named && reply->code == ZK_BAD_VERSION) &&
		strcmp(slot->provisional, reply->asked->path) == 0)
		provisional_forget(slot);
	call_slot_mark(slot);
}

/* ------------------------------------------------------------------------
 * Watches
 * ------------------------------------------------------------------------
 */

static Watched *
find_watched(const char *path)
{
	return strlen(path) < WATCHED_SIZE ? hash_search(watched, path, HASH_FIND, NULL) : NULL;
}

/* Takes note of the watch that a call sets: on a queue's children, or on an element's claim. */
static void
add_watched(const CallSlot *slot, const ZkCall *asked)
{
	size_t	 length = strlen(asked->path);
	Watched *each = hash_search(watched, asked->path, HASH_ENTER, NULL);

	for (int levels = asked->kind == ZK_WATCH_DATA ? 2 : 0; levels > 0; levels--)
		length = missing_path_above(asked->path, length);
	each->queue_length = length;
	each->role = slot->role;
}

/* Prepares for the watch that a call is to set.  Returns false if there is no room for it. */
static bool
prepare_watch(const CallSlot *slot, const ZkCall *asked)
{
	HASH_SEQ_STATUS status;
	const Watched  *each;
	size_t			length = strlen(asked->path);
	size_t			all = length + PER_WATCH;
	size_t			of_role = length + PER_WATCH;

	if (find_watched(asked->path))
		return true;
	if (length >= WATCHED_SIZE)
		return false;
	hash_seq_init(&status, watched);
	while ((each = hash_seq_search(&status)) != NULL)
	{
		all += strlen(each->path) + PER_WATCH;
		of_role += each->role == slot->role ? strlen(each->path) + PER_WATCH : 0;
	}
	if (slot->reserve == RESERVE_OPEN ? all > WATCH_BYTES
									  : all > WATCH_BYTES - BYTES_RESERVE || of_role > BYTES_OF_ROLE)
		return false;
	add_watched(slot, asked);
	return true;
}

/* ------------------------------------------------------------------------
 * Batches
 * ------------------------------------------------------------------------
 */

/* Adds to the answer, unless it gets too long to be delivered. */
static void
add_to_answer(CallWork *work, const char *text, Size length)
{
	work->too_long |= work->answer.len + length > CALL_MAX_ANSWER;
	if (!work->too_long)
		appendBinaryStringInfo(&work->answer, text, (int) length);
}

/*
 * Handles a reply to a session's call, which may be that there will be no answer.  Some calls are
 * two for ZooKeeper; then the second one follows here.
 */
static void
on_call_reply(void *arg, const ZkReply *reply)
{
	CallUnderWay *call = arg;
	CallWork	 *work = call->work;
	CallSlot	 *slot = work->slot;
	const ZkCall *asked = call->asked;
	int			  index = call - work->calls;
	bool		  ok = reply->outcome == CALL_OK;
	bool sequential = asked->kind == ZK_CREATE && asked->node_kind == ZK_PERSISTENT_SEQUENTIAL;
	const ZkReply lost = {.asked = reply->asked, .outcome = CALL_UNKNOWN, .code = ZK_CONNECTION_LOSS};
	ZkCall		  next = *reply->asked;
	CallResult *result = &((CallResult *) work->answer.data)[index];
	uint32		begin = work->answer.len;

	/* A refusal keeps the stat of an earlier look, if any. */
	if (ok)
		result->stat = reply->stat;

	/*
	 * Data are asked for when they are known not to be too long: ZooKeeper sends them whole, and
	 * heartbeats come behind.
	 */
	if (asked->kind == ZK_GET_DATA && next.kind == ZK_EXISTS && ok && reply->stat.data_length > 0 &&
		reply->stat.data_length <= asked->most && zk_connection >= ZK_CONNECTED)
	{
		next.kind = ZK_GET_DATA;
		zk_call(next, on_call_reply, call);
		return;
	}

	/* A node is replaced by one with the ACL that has been read. */
	if (asked->kind == ZK_REPLACE_RECORD && next.kind == ZK_GET_ACL && ok)
	{
		if (zk_connection >= ZK_CONNECTED)
		{
			next.kind = ZK_CREATE_RECORD; /* with the new node's data */
			next.acl = reply->data;
			zk_call(next, on_call_reply, call);
			return;
		}
		reply = &lost;
		ok = false;
	}

	/*
	 * The outcome for the session, which does not see ZooKeeper's codes of outcomes that it
	 * handles.
	 *
	 * A server says "expired" of a local session, which may not have the marker node.  Nothing was
	 * done.  The library says so after the event that ends the session, too late for us.
	 *
	 * A write may have been made, even if a server that broke down says something else.
	 */
	if (work->sync_code != 0 || (reply->code == ZK_EXPIRED && slot->next_marker[0] != '\0'))
		result->outcome = CALL_REFUSED;
	else if (reply->outcome != CALL_REFUSED)
		result->outcome = reply->outcome;
	else if (reply->code == ZK_BAD_VERSION)
		result->outcome = CALL_BAD_VERSION;
	else if (reply->code == ZK_NOT_EMPTY)
		result->outcome = CALL_NOT_EMPTY;
	else if (zk_error(reply->code).is_breakdown && !call_is_read(asked->kind))
		result->outcome = CALL_UNKNOWN;
	else
		result->outcome = CALL_REFUSED;

	/* The result, and its text behind those of earlier ones.  That may move the results. */
	result->code = work->sync_code != 0 ? work->sync_code : reply->code;
	result->watching = reply->watching;
	result->nchildren = reply->nchildren;
	work->lost |= reply->outcome == CALL_UNKNOWN && result->outcome == CALL_UNKNOWN;
	for (int i = 0; i < reply->nchildren; i++)
		add_to_answer(work, reply->children[i], strlen(reply->children[i]) + 1);
	if (asked->kind == ZK_GET_DATA && reply->data)
		add_to_answer(work, reply->data, reply->data_length);
	if (ok && (asked->kind == ZK_APPEND || sequential))
	{
		const char *name = strrchr(reply->path, '/') + 1;

		add_to_answer(work, name, strlen(name) + 1);
	}
	result = &((CallResult *) work->answer.data)[index];
	result->text = begin;
	result->text_length = work->answer.len - begin;

	/*
	 * If the answer was lost, the watch may be set.  An earlier watch may have fired since this
	 * one was asked for, and the session may have gone.
	 */
	if (asked->kind == ZK_WATCH_DATA || asked->watch)
	{
		Watched *each = find_watched(asked->path);

		if (!reply->watching && reply->outcome != CALL_UNKNOWN && each)
			hash_search(watched, each->path, HASH_REMOVE, NULL);
		if (reply->watching && each == NULL)
		{
			add_watched(slot, asked);
			pg_atomic_write_u32(&call_pool->queue_waits_left, 1);
		}
	}
	if (asked->kind == ZK_REMOTE_WAITS && ok && call_slot_state(slot) != CALL_GIVEN_UP)
		engine_note_remote_waits();

	/*
	 * A container may not stay if nothing is created below it; an earlier one of the slot is
	 * above it, or has a node below it now.  Whether a sequential node stays is up to the
	 * session.
	 */
	if (ok && asked->kind == ZK_CREATE && (sequential || asked->node_kind == ZK_CONTAINER))
	{
		strlcpy(slot->provisional, sequential ? reply->path : asked->path, sizeof(slot->provisional));
		slot->provisional_czxid = sequential ? reply->stat.czxid : 0;
	}
	else if ((ok || reply->outcome == CALL_NODE_EXISTS) && !sequential &&
			 (asked->kind == ZK_CREATE || asked->kind == ZK_CREATE_RECORD || asked->kind == ZK_PUBLISH) &&
			 provisional_is_wanted(slot))
		slot->provisional[0] = '\0';

	if (--work->pending == 0)
		call_slot_mark(slot);
}

/*
 * Handles the reply to the sync before a batch.  The batch is made again if the sync was
 * repeated, as its reads came first then, or if what became of it is not known; else a refusal
 * is theirs.
 */
static void
on_batch_synced(void *arg, const ZkReply *reply)
{
	CallWork *work = arg;

	work->lost |= reply->outcome == CALL_UNKNOWN || work->pending <= work->slot->ncalls;
	if (reply->outcome == CALL_REFUSED)
		work->sync_code = reply->code;
	if (--work->pending == 0)
		call_slot_mark(work->slot);
}

/*
 * Sends all of a slot's batch, if a connection stands, unless the session has given it up.  When
 * each of its calls has been answered, or will not be, the slot is marked.
 */
static void
send_batch(CallWork *work)
{
	CallSlot	 *slot = work->slot;
	int			  n = slot->ncalls;
	const ZkCall *asked = (const ZkCall *) call_slot_text(slot, &slot->batch_room);
	MemoryContext old;

	if (zk_connection < ZK_CONNECTED || !call_slot_step(slot, CALL_ASKED, CALL_SENT))
		return;
	work->connection = connection;
	work->context = AllocSetContextCreate(CurrentMemoryContext, "zklock call", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(work->context);
	work->calls = palloc(n * sizeof(CallUnderWay));
	work->pending = n;
	work->too_long = false;
	work->sync_code = 0;
	initStringInfo(&work->answer);
	add_to_answer(work, palloc0(n * sizeof(CallResult)), n * sizeof(CallResult));
	MemoryContextSwitchTo(old);

	/* The names of marker nodes are in the slot before anything is sent. */
	if (slot->next_marker[0] != '\0')
	{
		strlcpy(slot->replaced_marker, slot->marker, CALL_MARKER_SIZE);
		strlcpy(slot->marker, slot->next_marker, CALL_MARKER_SIZE);
		slot->sent_session = zklock_session->info.id;
	}
	if (slot->after_sync)
	{
		work->pending++;
		zk_call((ZkCall){.kind = ZK_SYNC, .owner = {slot->pid, slot->role}, .path = "/"},
				on_batch_synced, work);
	}
	for (int i = 0; i < n; i++)
	{
		/* The call of ZooKeeper with which this one begins */
		ZkCall call = asked[i];

		call.owner = (ZkOwner){slot->pid, slot->role};
		switch (asked[i].kind)
		{
			case ZK_GET_DATA:
				call.bulky = call.most == CALL_ANY_LENGTH;
				if (!call.bulky)
					call.kind = ZK_EXISTS;
				break;
			case ZK_GET_CHILDREN:
				call.bulky = true;
				call.watch = call.watch && prepare_watch(slot, &asked[i]);
				break;
			case ZK_WATCH_DATA:
				call.watch = prepare_watch(slot, &asked[i]);
				call.kind = call.watch ? ZK_GET_DATA : ZK_EXISTS;
				break;
			case ZK_REPLACE_RECORD:
				call.kind = ZK_GET_ACL;
				break;
			case ZK_REMOVE:
				call.kind = ZK_REPLACE;
				call.node_kind = ZK_EPHEMERAL;
				call.path = asked[i].marker;
				call.replaced = asked[i].path;
				break;
			case ZK_PUBLISH:
			case ZK_PIN:
				call.kind = ZK_CREATE;
				call.node_kind = ZK_EPHEMERAL;
				call.marker = NULL;
				if (asked[i].kind == ZK_PIN || slot->replaced_marker[0] == '\0')
					break;
				call.kind = ZK_REPLACE;
				call.replaced = slot->replaced_marker;
				call.version = ZK_ANY_VERSION;
				break;
			case ZK_REMOTE_WAITS:
				call.kind = ZK_SYNC;
				break;
			default:
				break;
		}
		work->calls[i] = (CallUnderWay){work, &asked[i]};
		zk_call(call, on_call_reply, &work->calls[i]);
	}
}

/* Ends a batch: none of its calls is under way any more. */
static void
end_batch(CallWork *work)
{
	work->lost = false;
	if (work->context)
		MemoryContextDelete(work->context);
	work->context = NULL;
}

/*
 * Hands the outcome to the session; the answer is in the slot, or there is none.  If the
 * session has given up meanwhile, it has marked the slot, which is attended soon.  If it had
 * given up before ("from"), the slot is free.
 *
 *	code	ZooKeeper's, of a refusal
 */
static void
answer_session(CallWork *work, CallState from, CallOutcome outcome, int code)
{
	CallSlot *slot = work->slot;

	/* A batch that is not sent creates no marker node in place of the one that is there. */
	if (from == CALL_ASKED && !marker_may_stay(work))
	{
		SpinLockAcquire(&slot->mutex);
		slot->marker_wanted = false;
		SpinLockRelease(&slot->mutex);
	}
	end_batch(work);
	if (work->seen)
		dlist_delete(&work->link);
	work->seen = false;
	room_free(&slot->batch_room);
	slot->outcome = outcome;
	slot->code = code;
	slot->session = zklock_session->info.id;
	if (call_slot_step(slot, from, from == CALL_GIVEN_UP ? CALL_FREE : CALL_ANSWERED))
		call_slot_wake(slot);
}

/* ------------------------------------------------------------------------
 * The life of a slot
 * ------------------------------------------------------------------------
 */

/* Does what a slot asks for now. */
static void
attend_slot(int index)
{
	CallWork  *work = &works[index];
	CallSlot  *slot = work->slot;
	CallState  state = call_slot_state(slot);
	StringInfo answer = &work->answer;

	/* The session has copied its last answer, and may have asked again. */
	if (state != CALL_SENT && state != CALL_ANSWERED)
		room_free(&slot->answer_room);
	switch (state)
	{
		case CALL_ROOM_WANTED:
			if (room_allocate(slot, &slot->batch_room, slot->batch_length) &&
				call_slot_step(slot, CALL_ROOM_WANTED, CALL_ROOM_GIVEN))
				call_slot_wake(slot);
			break;
		case CALL_SENT:
			if (work->pending > 0)
				break;
			if (work->lost && !slot->writes)
			{
				end_batch(work);
				if (call_slot_step(slot, CALL_SENT, CALL_ASKED))
					send_batch(work);
			}
			else if (work->lost && work->connection >= synchronized)
				break; /* it may still be done */
			else if (work->context == NULL)
				answer_session(work, CALL_SENT, CALL_UNKNOWN, 0); /* an earlier worker has sent it */
			else if (work->too_long)
			{
				settle_marker(work);
				answer_session(work, CALL_SENT, CALL_TOO_LONG, 0);
			}
			else if (answer->len <= CALL_BUFFER_SIZE ||
					 room_allocate(slot, &slot->answer_room, answer->len))
			{
				settle_marker(work);
				memcpy(call_slot_text(slot, &slot->answer_room), answer->data, answer->len);
				answer_session(work, CALL_SENT, CALL_OK, 0);
			}
			break;
		case CALL_GIVEN_UP:
			if (work->pending > 0)
				break;
			if (work->context)
				settle_marker(work);
			answer_session(work, CALL_GIVEN_UP, CALL_UNKNOWN, 0);
			break;
		case CALL_FREE:
		case CALL_ROOM_GIVEN:
		case CALL_ASKED:
		case CALL_ANSWERED:
			break;
	}

	/* No call of the batch is under way: nodes that are no longer wanted are deleted. */
	if (work->context == NULL)
	{
		bool	  wanted;
		CallState now;

		SpinLockAcquire(&slot->mutex);
		now = slot->state;
		wanted = slot->marker_wanted;
		SpinLockRelease(&slot->mutex);
		if (slot->marker[0] == '\0' || work->deletion == DELETION_SENT || now == CALL_SENT ||
			(wanted && now != CALL_GIVEN_UP && (now != CALL_ASKED || marker_may_stay(work))))
			; /* there is none, or it stays, or is being deleted */
		else if (slot->sent_session != zklock_session->info.id && zklock_session->info.id != 0)
		{
			/* It has gone with its ZooKeeper session. */
			slot->marker[0] = slot->replaced_marker[0] = '\0';
			work->deletion = DELETION_NONE;
		}
		else if (zk_connection >= ZK_CONNECTED && work->deletion != DELETION_REFUSED)
		{
			work->deletion = DELETION_SENT;
			zk_call((ZkCall){.kind = ZK_DELETE,
							 .owner = {slot->pid, slot->role},
							 .path = slot->marker,
							 .patient = true},
					on_marker_deleted, work);
		}

		/* A provisional one stays if other clients use it: then ZooKeeper refuses. */
		if (slot->provisional[0] != '\0' && !work->deletes_provisional &&
			zk_connection >= ZK_CONNECTED && !provisional_is_wanted(slot))
		{
			work->deletes_provisional = true;
			zk_call((ZkCall){.kind = slot->provisional_czxid == 0 ? ZK_DELETE : ZK_GET_DATA,
							 .owner = {slot->pid, slot->role},
							 .path = slot->provisional,
							 .versioned = slot->provisional_czxid == 0},
					on_provisional_reply, work);
		}
	}
	if (state != CALL_ASKED)
		return;
	if (!work->seen)
		dlist_push_tail(&batches, &work->link);
	work->seen = true;
	if (slot->provisional[0] == '\0')
		provisional_forget(slot); /* that may have happened as the session asked */
	else if (slot->creates_provisional && !provisional_is_wanted(slot))
		return;
	if (marker_may_stay(work))
		send_batch(work);
	else if (work->deletion == DELETION_REFUSED && zk_error(work->deletion_code).lacks_permission)
		answer_session(work, CALL_ASKED, CALL_REFUSED, work->deletion_code);
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

/* Takes up what sessions ask.  Returns when it wants to be called next, ms. */
int64
worker_calls_attend(void)
{
	HASH_SEQ_STATUS	   status;
	Watched			  *each;
	bool			   left = false;
	dlist_mutable_iter iter;

	if (synchronized != connection && zk_connection >= ZK_CONNECTED && engine_synced)
	{
		synchronized = connection;
		attend_all = true;
	}

	/* Of all slots, those with batches come first, in the order in which these came. */
	if (attend_all)
	{
		attend_all = false;
		dlist_foreach_modify (iter, &batches)
			attend_slot(dlist_container(CallWork, link, iter.cur) - works);
		for (int i = 0; i < zklock_max_processes(); i++)
			call_slot_mark(works[i].slot);
	}

	/* Deletions that ZooKeeper refused are sent again, when that is due. */
	if (zklock_now_ms() >= delete_again_at)
	{
		delete_again_at = NEVER;
		for (int i = 0; i < zklock_max_processes(); i++)
		{
			if (works[i].deletion != DELETION_REFUSED)
				continue;
			works[i].deletion = DELETION_NONE;
			call_slot_mark(works[i].slot);
		}
	}
	zklock_visit_marked(call_pool->marks, zklock_max_processes(), attend_slot);

	/*
	 * Watches where no session waits any more are removed.  Those that the engine needs are
	 * looked at again: it does not remove what it has not come to set.
	 */
	if (watched && pg_atomic_read_u32(&call_pool->queue_waits_left) != 0)
	{
		pg_atomic_exchange_u32(&call_pool->queue_waits_left, 0);
		hash_seq_init(&status, watched);
		while ((each = hash_seq_search(&status)) != NULL)
		{
			bool   of_claim = each->path[each->queue_length] != '\0';
			ZkCall removal = {.kind = of_claim ? ZK_UNWATCH_DATA : ZK_UNWATCH_CHILDREN,
							  .path = each->path};

			if (queue_wait_first(each->path, each->queue_length))
				continue;
			if (engine_needs_watch(&removal))
			{
				left = true;
				continue;
			}
			zk_call(removal, NULL, NULL);
			hash_search(watched, each->path, HASH_REMOVE, NULL);
		}
		if (left)
			pg_atomic_write_u32(&call_pool->queue_waits_left, 1);
	}

	/* Impatient batches are refused: there is no connection, and the lease has lapsed. */
	if (zk_connection >= ZK_CONNECTED || lease_state() == LEASE_HOLDS)
		return delete_again_at;
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		CallSlot *slot = works[i].slot;

		if (call_slot_state(slot) == CALL_ASKED && slot->patience == CALL_IMPATIENT)
			answer_session(&works[i], CALL_ASKED, CALL_UNREACHABLE, 0);
	}
	return delete_again_at;
}

/*
 * Handles a watch that has fired, on a path with contenders, which is the engine's, or on a queue
 * with elements: wakes the first session that waits there.
 */
void
worker_calls_watch_event(ZkWatchEvent event, const char *path)
{
	Watched *each;

	engine_watch(event, path);
	each = find_watched(path);
	if (each == NULL)
		return;
	(void) queue_wait_wake(path, each->queue_length);
	hash_search(watched, each->path, HASH_REMOVE, NULL);
}

/* Has all slots attended in this round: a connection stands, on which a server has answered. */
void
worker_calls_connected(void)
{
	HASHCTL ctl = {.keysize = WATCHED_SIZE, .entrysize = sizeof(Watched)};

	connection++;

	/* In another ZooKeeper session nothing is watched. */
	if (watched && watched_session != zklock_session->info.id)
		hash_destroy(watched);
	if (watched_session != zklock_session->info.id)
		watched = hash_create("zklock watches of queue waits", 64, &ctl, HASH_ELEM | HASH_STRINGS);
	watched_session = zklock_session->info.id;
	attend_all = true;

	/* Much may have happened at the paths of queues: all that wait there look. */
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		CallSlot *slot = &call_pool->slots[i];

		if (pg_atomic_read_u64(&slot->queue_wait_ticket) == 0)
			continue;
		pg_atomic_write_u32(&slot->queue_wait_changed, 1);
		call_slot_wake(slot);
	}
}

/*
 * Returns true if a session has created a node that may not stay, and that can be deleted when
 * the session gives it up.
 *
 *	what	UNSETTLED_NODES_AND_WRITES: also if something that may change a node has been sent, and
 *			its outcome is not known, whether its session still waits for that or not
 */
bool
worker_calls_unsettled(Unsettled what)
{
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		CallSlot *slot = &call_pool->slots[i];
		CallState state = call_slot_state(slot);

		if (slot->provisional[0] != '\0' && zk_connection >= ZK_CONNECTED)
			return true;
		if (what == UNSETTLED_NODES_AND_WRITES && slot->writes && lease_state() != LEASE_OVER &&
			(state == CALL_SENT || (state == CALL_GIVEN_UP && works[i].pending > 0)))
			return true;
	}
	return false;
}

/* Prepares for calls, and takes over those of an earlier worker. */
void
worker_calls_start(void)
{
	works = palloc0(zklock_max_processes() * sizeof(CallWork));
	for (int i = 0; i < zklock_max_processes(); i++)
	{
		CallWork *work = &works[i];

		work->slot = &call_pool->slots[i];
		work->lost = call_slot_state(work->slot) == CALL_SENT;
		attend_slot(i);
	}
}
