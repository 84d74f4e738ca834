/*
 * claims.c
 *		An errand: to claim a slot, once for all servers.
 *
 * A path's node has the record of its last claim (claim_record.c).  To claim a
 * later slot is to replace the record, by one write that succeeds only if the
 * record is the one that was read:
 *
 *	LOOK	what is the node?  Nothing of that may be older than what anybody
 *			knows by now, so a sync goes ahead.
 *	READ	its record, if it has one
 *	LIST	its children, if it has any: no contenders may be among them
 *	WRITE	the new record, in place of that version; or the node with it
 *	UP, DOWN
 *			what is missing of the path above, from the lowest on
 *
 *		 .------------------------------------------------.
 *		 v												   |
 *		LOOK --> READ --> LIST --> decide --> WRITE -------+
 *		 ^ |						 ^ |		 |		   | others were first
 *		 | '-- no node, no data -----' '-> done	 '-> done  |
 *		 |											 |	   |
 *		 |		 connected			no connection	 v	   |
 *		 '------------------- AWAIT <--------------- any   |
 *									  no parent: UP, DOWN -'
 *
 * Each claim has an id of its own, which the record keeps for some claims more.
 * A write whose answer was lost is in doubt.  What is in doubt is noted in the
 * errand before the write is sent, so that the next worker knows it as well, and
 * is settled when the node is read again on another connection: by then the
 * write has been made or never will be, since ZooKeeper no longer takes anything
 * from the connection before.
 *
 *	own id in the record		made
 *	created, but no node		not made
 *	the same node, and no more writes since than ids are remembered
 *								not made
 *	another node or none, or data that is no record, or more writes
 *								nobody knows: the answer says so
 *
 * The node is never deleted, which would reset its version: a write from before
 * could then replace a record that it has not seen.  So claims are reset by a
 * record without a slot.  If somebody else deletes the node and it is created
 * again, a write that went to the new one is told by its czxid.
 *
 * The node must not be removed by ZooKeeper either.  It is persistent if it was
 * created here.  One that is there already, without data, is taken if it never
 * had children: only a container has that had some, and is removed when they are
 * gone; ZooKeeper does not tell which nodes are containers.
 *
 * A claim and a lock on one path: the claim is refused if there are contenders,
 * the lock if there is a record (listing.c).  If both begin at the same moment
 * both may succeed, which harms neither; the next of either is refused.
 *
 * A backend that gives up may leave a claim behind that it has not heard of:
 * nothing runs then, and the record shows who has made it.
 *
 * Runs in: the worker.  A slot that it has taken is written by it alone; errand.h
 * says what protects the rest.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "lib/ilist.h"
#include "recipes/claim_record.h"
#include "recipes/neighbour.h"
#include "recipes/permit_recipe.h"
#include "shared/lease_state.h"
#include "worker/answer.h"
#include "worker/claims.h"
#include "worker/segment.h"
#include "zk/zk_call.h"
#include "zk/zk_client.h"

/* Nodes created for one claim: its own and those above it */
#define MAX_LEVELS 16

/* An errand under way */
typedef struct ClaimWork
{
	dlist_node	link; /* in "waiting", for a connection */
	Errand	   *errand;
	ClaimRecord wanted;						 /* not for ERRAND_LAST_CLAIM */
	ClaimRecord seen;						 /* what the node had when it was read last */
	int64		czxid;						 /* of the node, likewise */
	int32		version;					 /* of its data */
	char   replaced[CLAIM_RECORD_SLOT_SIZE]; /* by a reset: the last slot, "" if not known */
	size_t missing_len;						 /* bytes of the path that are being created */
	int	   levels; /* how often what was to be created had no parent */
} ClaimWork;

static dlist_head waiting = DLIST_STATIC_INIT(waiting);

static void look(ClaimWork *work);
static void create(ClaimWork *work);

/* ------------------------------------------------------------------------
 * Ends, and connections that end
 * ------------------------------------------------------------------------
 */

static void
finish(ClaimWork *work, ErrandOutcome outcome, int code)
{
	errand_answer(work->errand, outcome, code);
	pfree(work);
}

/* Ends with something that makes it impossible to go on. */
static void
give_up(ClaimWork *work, ErrandOutcome outcome, int code)
{
	finish(work, work->errand->doubt == DOUBT_NONE ? outcome : ERRAND_UNDECIDED, code);
}

/* Goes on when a connection stands. */
static void
await(ClaimWork *work)
{
	dlist_push_tail(&waiting, &work->link);
}

/* May the next call be made?  If not, the work waits or has ended. */
static bool
may_go_on(ClaimWork *work)
{
	if (errand_state(work->errand) != ERRAND_TAKEN)
		give_up(work, ERRAND_UNREACHABLE, 0);
	else if (!zk_client_connected())
		await(work);
	else
		return true;
	return false;
}

/* A call has not been answered as it should: what was it that came? */
static void
take_failure(ClaimWork *work, const ZkReply *reply)
{
	if (reply->outcome == ZK_UNKNOWN)
		await(work);
	else
		give_up(work, ERRAND_REFUSED, reply->code);
}

/*
 * Goes on with what waits for a connection.  As long as the lease holds that may
 * soon be back.  What is in doubt can only be settled then, so it waits for as
 * long as its backend does.
 */
void
worker_claims_attend(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &waiting)
	{
		ClaimWork *work = dlist_container(ClaimWork, link, iter.cur);
		bool	   wanted = errand_state(work->errand) == ERRAND_TAKEN;

		if (wanted && !zk_client_connected() &&
			(lease_state() == LEASE_HOLDS || work->errand->doubt != DOUBT_NONE))
			continue;
		dlist_delete(&work->link);
		if (wanted && zk_client_connected())
			look(work);
		else
			give_up(work, ERRAND_UNREACHABLE, 0);
	}
}

/* ------------------------------------------------------------------------
 * Writing
 * ------------------------------------------------------------------------
 */

/* Tells the log what only a superuser does. */
static void
log_reset(const ClaimWork *work)
{
	bool known = work->replaced[0] != '\0';

	ereport(LOG, (errmsg("claims on ZooKeeper path \"%s\" were reset", work->errand->path),
				  errdetail("The last slot was %s. It was reset by %s.",
							known ? work->replaced : "one that is not known any more",
							work->wanted.claimant)));
}

static void
written(ClaimWork *work)
{
	if (!work->wanted.claimed)
		log_reset(work);
	finish(work, ERRAND_OK, 0);
}

static void
on_set(void *arg, const ZkReply *reply)
{
	ClaimWork *work = arg;

	/* It may have been made, even if a server that broke down says something else. */
	if (reply->outcome == ZK_UNKNOWN ||
		(reply->outcome == ZK_REFUSED && zk_error_is_breakdown(reply->code)))
	{
		await(work);
		return;
	}
	if (reply->outcome == ZK_OK && reply->czxid != work->czxid)
	{
		give_up(work, ERRAND_UNDECIDED, 0);
		return;
	}
	work->errand->doubt = DOUBT_NONE;
	if (reply->outcome == ZK_OK)
		written(work);
	else if (reply->outcome == ZK_NO_NODE || reply->code == ZK_BAD_VERSION)
		look(work);
	else
		give_up(work, ERRAND_REFUSED, reply->code);
}

/* Writes the record that is wanted, in place of the one that was seen. */
static void
set(ClaimWork *work)
{
	Errand *errand = work->errand;
	char	data[CLAIM_RECORD_SIZE];

	if (!work->wanted.claimed)
		claim_record_write_slot(work->replaced, work->seen.slot);
	claim_record_succeed(&work->wanted, &work->seen);
	(void) claim_record_write(data, &work->wanted);
	errand->doubt = DOUBT_SET;
	errand->doubt_czxid = work->czxid;
	errand->doubt_version = work->version;
	zk_set(errand->pid, errand->path, data,
		   ZKLOCK_FAULT("claim-unversioned") ? ZK_ANY_VERSION : work->version, on_set, work);
}

/* Is the claim's own node what is being created, not one above it? */
static bool
creates_claim(const ClaimWork *work)
{
	return work->errand->path[work->missing_len] == '\0';
}

/* What was to be created has no parent, which is tried next. */
static void
go_up(ClaimWork *work)
{
	size_t len = work->missing_len;

	while (work->errand->path[len - 1] != '/')
		len--;
	if (len == 1)
		give_up(work, ERRAND_NO_CHROOT, 0);
	else if (++work->levels >= MAX_LEVELS)
		give_up(work, ERRAND_TOO_DEEP, 0);
	else
	{
		work->missing_len = len - 1;
		create(work);
	}
}

/* A node above the claim's is there: the one below it is next. */
static void
go_down(ClaimWork *work)
{
	const char *path = work->errand->path;

	work->missing_len += 1 + strcspn(path + work->missing_len + 1, "/");
	create(work);
}

static void
on_created(void *arg, const ZkReply *reply)
{
	ClaimWork *work = arg;

	if (reply->outcome == ZK_UNKNOWN ||
		(reply->outcome == ZK_REFUSED && zk_error_is_breakdown(reply->code)))
	{
		await(work);
		return;
	}
	if (creates_claim(work))
		work->errand->doubt = DOUBT_NONE;
	if (reply->outcome == ZK_NO_NODE)
		go_up(work);
	else if (reply->outcome != ZK_OK && reply->outcome != ZK_NODE_EXISTS)
		give_up(work, ERRAND_REFUSED, reply->code);
	else if (!creates_claim(work))
		go_down(work);
	else if (reply->outcome == ZK_OK)
		written(work);
	else
		look(work);
}

static void
send_create(ClaimWork *work)
{
	Errand *errand = work->errand;
	char	data[CLAIM_RECORD_SIZE];
	char   *node;

	if (creates_claim(work))
	{
		work->wanted.nids = 1;
		(void) claim_record_write(data, &work->wanted);
		errand->doubt = DOUBT_CREATE;
		zk_create(errand->pid, errand->path, data, ZK_PERSISTENT, on_created, work);
		return;
	}
	node = pnstrdup(errand->path, work->missing_len);
	zk_create(errand->pid, node, NULL,
			  errand->parent_nodes == PARENTS_PERSISTENT ? ZK_PERSISTENT : ZK_CONTAINER,
			  on_created, work);
	pfree(node);
}

/* The parent of what is to be created: would that harm somebody there? */
static void
on_neighbours(void *arg, const ZkReply *reply)
{
	ClaimWork *work = arg;
	bool	   harmful = false;

	if (!may_go_on(work))
		return;
	if (reply->outcome == ZK_NO_NODE)
		go_up(work);
	else if (reply->outcome == ZK_UNKNOWN)
		await(work);
	else
	{
		/* What we may not see is no reason to refuse. */
		for (int i = 0; reply->outcome == ZK_OK && i < reply->nchildren; i++)
			harmful |= neighbour_is_disturbed_lock(reply->children[i]) ||
					   neighbour_is_disturbed_semaphore(reply->children[i]);
		if (harmful)
			give_up(work, ERRAND_HARMFUL, 0);
		else
			send_create(work);
	}
}

/* Creates the part of the path that is missing, but looks for neighbours if it might harm them. */
static void
create(ClaimWork *work)
{
	Errand *errand = work->errand;
	char   *node;
	char   *name;

	if (!may_go_on(work))
		return;
	node = pnstrdup(errand->path, work->missing_len);
	name = strrchr(node, '/') + 1;
	if (name == node + 1)
		send_create(work);
	else
	{
		bool may_harm_lock = neighbour_disturbs_lock(name);

		name[-1] = '\0';
		if (may_harm_lock || neighbour_disturbs_semaphore(node))
			zk_list(errand->pid, node, ZK_UNWATCHED, on_neighbours, work);
		else
			send_create(work);
	}
	pfree(node);
}

/* ------------------------------------------------------------------------
 * Deciding
 * ------------------------------------------------------------------------
 */

static bool
is_mine(const ClaimWork *work)
{
	return claim_record_fate(&work->seen, work->wanted.ids[0], 0) == CLAIM_FATE_MADE;
}

/* What became of the write that is in doubt, if any, by what the node has now? */
static ClaimFate
fate(const ClaimWork *work)
{
	const Errand *errand = work->errand;
	int64		  writes = 0;

	if (errand->doubt == DOUBT_CREATE)
		writes = INT64CONST(1) + work->version;
	else if (errand->doubt == DOUBT_SET)
		writes = work->czxid == errand->doubt_czxid ? (int64) work->version - errand->doubt_version
													: -1;
	return claim_record_fate(&work->seen, work->wanted.ids[0], writes);
}

/* The record is known: what is to be done? */
static void
decide(ClaimWork *work)
{
	Errand *errand = work->errand;

	if (errand->kind == ERRAND_LAST_CLAIM)
	{
		char   data[CLAIM_RECORD_SIZE];
		size_t len = claim_record_write(data, &work->seen);

		worker_answer_long(errand, data, len);
		pfree(work);
		return;
	}
	if (is_mine(work))
	{
		written(work);
		return;
	}
	if (fate(work) == CLAIM_FATE_UNDECIDABLE)
	{
		finish(work, ERRAND_UNDECIDED, 0);
		return;
	}
	errand->doubt = DOUBT_NONE;
	if (work->wanted.claimed && !claim_record_admits(&work->seen, work->wanted.slot))
		finish(work, ERRAND_CHANGED, 0);
	else if (!work->wanted.claimed && !work->seen.claimed)
		finish(work, ERRAND_NO_NODE, 0);
	else if (may_go_on(work))
		set(work);
}

/* There is no node. */
static void
no_node(ClaimWork *work)
{
	Errand *errand = work->errand;

	if (errand->doubt == DOUBT_SET)
	{
		finish(work, ERRAND_UNDECIDED, 0);
		return;
	}
	errand->doubt = DOUBT_NONE;
	if (errand->kind == ERRAND_LAST_CLAIM || !work->wanted.claimed)
		finish(work, ERRAND_NO_NODE, 0);
	else if (errand->parent_nodes == PARENTS_EXISTING)
		finish(work, ERRAND_NO_PATH, 0);
	else
	{
		work->missing_len = strlen(errand->path);
		work->levels = 0;
		create(work);
	}
}

/* ------------------------------------------------------------------------
 * Reading
 * ------------------------------------------------------------------------
 */

static void
on_listed(void *arg, const ZkReply *reply)
{
	ClaimWork *work = arg;

	if (reply->outcome != ZK_OK && reply->outcome != ZK_NO_NODE)
	{
		take_failure(work, reply);
		return;
	}
	for (int i = 0; i < reply->nchildren; i++)
	{
		if (node_name_has_sequence(reply->children[i]) ||
			strcmp(reply->children[i], &PERMIT_LEASES[1]) == 0)
		{
			give_up(work, ERRAND_OTHER_USE, OTHER_USE_CONTENDERS);
			return;
		}
	}
	decide(work);
}

static void
on_read(void *arg, const ZkReply *reply)
{
	ClaimWork *work = arg;

	if (reply->outcome == ZK_NO_NODE)
	{
		if (may_go_on(work))
			no_node(work);
		return;
	}
	if (reply->outcome != ZK_OK)
	{
		take_failure(work, reply);
		return;
	}
	work->czxid = reply->czxid;
	work->version = reply->version;
	work->errand->written_at = reply->mtime;
	if (!claim_record_read(reply->data ? reply->data : "", reply->data_length, &work->seen))
		give_up(work, ERRAND_OTHER_USE, OTHER_USE_DATA);
	else if (reply->child_count == 0)
		decide(work);
	else if (may_go_on(work))
		zk_list(work->errand->pid, work->errand->path, ZK_UNWATCHED, on_listed, work);
}

static void
on_looked(void *arg, const ZkReply *reply)
{
	ClaimWork *work = arg;

	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
	{
		if (!may_go_on(work))
			return;
	}
	else
	{
		take_failure(work, reply);
		return;
	}

	if (reply->outcome == ZK_NO_NODE)
		no_node(work);
	else if (reply->ephemeral_owner != 0)
		give_up(work, ERRAND_OTHER_USE, OTHER_USE_EPHEMERAL);
	else if (reply->data_length >= CLAIM_RECORD_SIZE)
		give_up(work, ERRAND_OTHER_USE, OTHER_USE_DATA);
	else if (reply->data_length > 0)
		zk_read(work->errand->pid, work->errand->path, on_read, work);
	else if (work->errand->kind == ERRAND_LAST_CLAIM)
		finish(work, ERRAND_NO_NODE, 0);
	else if (reply->child_changes > 0)
		give_up(work, ERRAND_OTHER_USE, OTHER_USE_PARENT);
	else
	{
		memset(&work->seen, 0, sizeof(work->seen));
		work->czxid = reply->czxid;
		work->version = reply->version;
		decide(work);
	}
}

/* Begins, or begins again: what is the node now? */
static void
look(ClaimWork *work)
{
	if (!may_go_on(work))
		return;
	zk_sync(NULL, NULL);
	zk_look(work->errand->pid, work->errand->path, on_looked, work);
}

/* ERRAND_CLAIM and ERRAND_LAST_CLAIM */
void
worker_claims_run(Errand *errand)
{
	ClaimWork *work = palloc0(sizeof(ClaimWork));

	work->errand = errand;
	if (errand->kind == ERRAND_CLAIM)
	{
		char *payload = worker_segment_payload(errand);
		bool good = payload && claim_record_read(payload, errand->payload_length, &work->wanted);

		if (payload)
			pfree(payload);
		if (!good)
		{
			finish(work, ERRAND_UNDELIVERED, 0);
			return;
		}
	}
	look(work);
}
