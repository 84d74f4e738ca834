/*
 * node.c
 *		The life of a node of ours: who stands behind it, for whom it waits, who is granted.
 *
 * A path has a queue of cohorts, oldest first, which is also the order of their nodes'
 * sequences.  A cohort is one ephemeral sequential node of ours and the contenders of this
 * server for which it stands, in order of arrival; the recipe says whether it grants them one
 * after the other or all together.
 *
 * cohort_advance() is the life of a cohort, from top to bottom.  Handlers of answers, watch
 * events and requests store what they learn, in the cohort and its path, and mark the path.
 * path_pump_marked() looks at the marked paths in each round of the main loop, until none is
 * left, and has cohort_advance() make the next step of each cohort: it alone grants, keeps
 * nodes, and has those of cohorts created, replaced and deleted.  Besides,
 *
 *	path_pump_marked()	lists for arrivals and holders, places arrivals, and refuses who waits
 *	watch.c				looks at nodes and watches them, and deletes those that no cohort has
 *	parents.c			creates the path, and refuses who does not want that
 *	handlers			ask on where an answer is not enough, and delete a downgraded node that
 *						nobody needs
 *	engine.c			refuses who does not wait, when ZooKeeper cannot be reached, and takes away
 *						what was held for too long or cannot be proved
 *
 * Who is granted
 * --------------
 *
 * A contender is granted if it is its turn in a cohort whose node exists, is of our ZooKeeper
 * session, and has no older contender before it that keeps it out; contender_grant() has the
 * whole list.  The lease proves that the ZooKeeper session, and so the node, exists.  A watch
 * that ZooKeeper refuses keeps nobody from a grant: it is asked for again and again.  Nothing
 * is granted or sent without a connection, or before a sync on a new one was answered.
 *
 * So only one is granted of two contenders that exclude each other, on whatever servers: a
 * listing that is made after a node was created shows all that are older, and the younger one
 * waits until the older is gone.  A cohort of ours is when its queue is empty: the one behind
 * it is granted the moment that is so, and the deletion of the node follows.  This can delay
 * other clients, but never admits one too early.
 *
 * The engine knows other clients' contenders from the last listing, less those seen to go.
 * None of those older than a cohort is missing, since newcomers get higher sequences; so a
 * cohort can be granted without another listing.  There is one exception: an exclusive
 * contender that goes may leave a shared node in its place, its downgraded node.  A cohort
 * that would wait for that looks again, unless it is clear that there is none ("Downgrades").
 *
 * The child watch on the path reports newcomers.  It fires once, and is set again only when a
 * contender arrives, which then waits for a listing, or when a lock is held for longer, since
 * the newcomer may be a client that does not wait for our node.  So a path that is busy
 * elsewhere costs nothing here.
 *
 * A shared holder that asks for the exclusive lock is a contender like any other, behind
 * those that came before; only what its own session holds is not in its way.  It does not pass
 * an older writer that waits for that session, though this is a deadlock: tokens would not
 * increase, and a client that does not know shared locks may even hold the lock.
 *
 * Who joins a cohort
 * ------------------
 *
 * A new contender joins the last cohort while no other client is known behind it.  If the child
 * watch has fired since the last listing, a contender that might join waits in the path's
 * arrivals for a listing, and those that came after it wait with it.  If the listing shows
 * somebody who stands behind the last cohort, the contender begins a cohort of its own.
 *
 * Some are refused as they arrive, and never have a node: those that do not wait for other
 * holders, if the lock is taken or ZooKeeper is away; those that would use the path for
 * something else than others do, or harm others by a node; and those for whose node there is no
 * room.
 *
 * Lost replies
 * ------------
 *
 * A reply may be lost with the connection after ZooKeeper has created the node; its outcome is
 * CALL_UNKNOWN.  The cohort stays CREATING.  When a quorum has committed a check on the next
 * connection (engine.c), the create has been executed or never will be.  A listing then shows
 * whether a node exists that may be it, and the node's owner whether it is.  If there is none,
 * those that wait go on in a new cohort, which sends a create of its own.  A name with a UUID
 * fits one node at most.  Each node of the name is looked at if it has no UUID: our session
 * creates one node of a path at a time, so the one that it owns and that is no other cohort's
 * is the one.
 *
 * One node in place of another
 * ----------------------------
 *
 * A contender that goes to the end of the queue, as a leader that resigns, must not be out of it
 * for a moment, nor seem to be in it twice.  So one multi creates the new node and deletes the
 * old one, both or none.  The old cohort waits in COHORT_DELETING (cohort->replaced_by) for the
 * reply:
 *
 *		done			the old cohort is over; the reply does not contain the new node's
 *						sequence, so a listing finds the node
 *		not answered	the same, but the old cohort stays until the new node is found; if
 *						it is not, the multi is sent again
 *		no node			the old node is gone: the new cohort goes on without it
 *		refused			those in the new cohort get an error, and the old node is deleted
 *						like any other
 *
 * A worker that takes over finds both entries, one of which names the other, and both cohorts,
 * and ties them together again.  A node of our session other than the old one is the new one, if
 * names have no UUID.
 *
 * The worker may exit at any moment
 * ---------------------------------
 *
 * So shared memory records what exists in ZooKeeper: the name is in the entries of the cohort's
 * contenders before a create is sent, and the last of these entries is not freed
 * (cohort->last_owner) before the node is known to be gone.  The next worker resumes the
 * ZooKeeper session, whose password is in shared memory, and builds paths, cohorts and
 * contenders again from the entries, each in the state that its entry shows: the id of a cohort
 * gives its place in the path's queue, a contender's ticket its place in the cohort's.  It finds
 * out the state of ZooKeeper when a connection stands.  Holders hold until then; backends wait,
 * and get an error if no worker starts.
 *
 * Runs in: the worker.  shared/entry.h says how entries are read and written; everything
 * else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "engine/engine.h"
#include "engine/engine_internal.h"
#include "fault.h"
#include "mb/pg_wchar.h"
#include "shared/session_info.h"
#include "utils/memutils.h"
#include "zk/zk_client.h"

/* ------------------------------------------------------------------------
 * Limits, and what the sections share
 * ------------------------------------------------------------------------
 */

/*
 * Sequences end at 2^31 - 1.  Releases of ZooKeeper differ in what comes then, and clients in
 * the order that they see in it.  So the log warns the administrator at half of that, and
 * nothing is granted near its end.
 */
#define SEQUENCE_WARNING (1 << 30)
#define SEQUENCE_LIMIT (PG_INT32_MAX - 1000000)

/* Time that a new worker may take to connect before that counts as an outage */
#define RESUME_MS 5000

/* Pause before we find out what a server has done that broke down */
#define BREAKDOWN_MS 1000

/* Other creates may be refused, too, for so long after one whose path does not exist. */
#define MISSING_MS 1000

/* A path is listed again if a lock is still held one to two of these after a change */
#define LOOK_PAUSE_MS 5000

/* The peers that the recipe gets */
typedef enum PeerSet
{
	PEERS_OWN, /* cohorts of ours */
	PEERS_FOREIGN,
	PEERS_ALL
} PeerSet;

/* For whom a contender waits: a cohort of ours, another client's contender, or nobody */
typedef struct Blocker
{
	const Cohort		   *cohort;
	const ForeignContender *foreign;
	int position; /* among the peers that the recipe was given; 0: not known */
} Blocker;

static int64 missing_until; /* ms */

static int *batch; /* indexes of entries to look at */
static int	nbatch;

PG_USED_FOR_ASSERTS_ONLY static const bool cohort_steps[COHORT_GONE + 1][COHORT_GONE + 1] = {
	[COHORT_PLANNED] = {[COHORT_CREATING] = true, [COHORT_GONE] = true},
	[COHORT_CREATING] = {[COHORT_PLANNED] = true, [COHORT_CREATED] = true, [COHORT_GONE] = true},
	[COHORT_CREATED] = {[COHORT_GRANTED] = true, [COHORT_DELETING] = true, [COHORT_GONE] = true},
	[COHORT_GRANTED] = {[COHORT_DOWNGRADING] = true, [COHORT_DELETING] = true, [COHORT_GONE] = true},
	[COHORT_DOWNGRADING] = {[COHORT_GRANTED] = true, [COHORT_DELETING] = true, [COHORT_GONE] = true},
	[COHORT_DELETING] = {[COHORT_GONE] = true},
};

/* ------------------------------------------------------------------------
 * Cohorts and their queues
 * ------------------------------------------------------------------------
 */

/*
 * Creates a cohort.  Ids give a later worker the order of a path's cohorts: 0 makes a new one,
 * behind all others.
 */
static Cohort *
cohort_new(Path *path, uint64 id, const RecipeRequest *request)
{
	const Recipe *recipe = path->recipe;
	Cohort		 *cohort = palloc0(sizeof(Cohort));

	cohort->path = path;
	cohort->state = COHORT_PLANNED;
	cohort->request = *request;
	cohort->peer.mode = request->mode;
	cohort->reusable =
		recipe->fixed_name || (recipe->name_is_reusable && recipe->name_is_reusable(request));
	cohort->payer = PAYER_NONE;
	dlist_init(&cohort->queue);
	cohort->id = id != 0 ? id : entry_pool->next_cohort_id++;
	return cohort;
}

static void
cohort_step(Cohort *cohort, CohortState to)
{
	Assert(cohort_steps[cohort->state][to]);
	cohort->state = to;
	cohort->refused = cohort->refusal_logged = false;
}

/* Puts a contender, which is in no list and has no node, into the arrivals of a path. */
static void
contender_arrive(Contender *c, Path *path)
{
	Entry *entry = entry_of(c);

	c->place = PLACE_ARRIVED;
	c->path = path;
	c->cohort = NULL;
	c->next_list = path->lists_sent + 1;
	c->came_at = zklock_now_ms();
	c->gives_up = 0;
	dlist_push_tail(&path->arrivals, &c->link);
	SpinLockAcquire(&entry->mutex);
	entry->status.deletion = LOSS_DELETED;
	entry->node = (EntryNode){0};
	SpinLockRelease(&entry->mutex);
	path_mark(path);
}

/* Puts a contender, which is in no list, at the end of a cohort's queue. */
static void
cohort_join(Cohort *cohort, Contender *c)
{
	c->place = PLACE_WAITING;
	c->cohort = cohort;
	cohort->joined++;
	dlist_push_tail(&cohort->queue, &c->link);
	contender_publish(c);
}

/*
 * Returns true if anybody holds or wants what the cohort stands for, other than that
 * contender's own session if one is given.
 */
static bool
cohort_is_wanted(const Cohort *cohort, const Contender *by_others_than)
{
	for (Contender *c = cohort_head(cohort); c; c = contender_behind(c))
	{
		if (entry_status(entry_index(c)).state != ENTRY_RELEASING &&
			(by_others_than == NULL ||
			 !entry_same_session(&entry_of(c)->request, &entry_of(by_others_than)->request)))
			return true;
	}
	return false;
}

/* Returns true if what the cohort stands for is to be deleted with its node. */
static bool
cohort_consumes(const Cohort *cohort)
{
	const Contender *c = cohort_head_or_last_owner(cohort);
	EntryStatus		 status;

	if (c == NULL)
		return false;
	status = entry_status(entry_index(c));
	return status.state == ENTRY_RELEASING && status.consumed;
}

/*
 * Returns true if the node that has the cohort's name is known to be the cohort's, although
 * that may be reusable: it has been read on this connection (watch.c).
 */
static bool
cohort_is_identified(const Cohort *cohort)
{
	return !cohort->reusable || cohort->own_watch == WATCH_SET || cohort->own_watch == WATCH_REFUSED;
}

/* Records in the entries of all its contenders what is known of a cohort's node. */
static void
cohort_publish(Cohort *cohort)
{
	for (Contender *c = cohort_head(cohort); c; c = contender_behind(c))
		contender_publish(c);
	if (cohort->last_owner)
		contender_publish(cohort->last_owner);
}

/*
 * Stores what the first contender of a waiting cohort waits for, which zk_locks shows, and its
 * place in the path's queue.
 */
static void
contender_blocked_by(Contender *c, Blocker blocker)
{
	Entry	   *entry = entry_of(c);
	const char *node = blocker.foreign ? blocker.foreign->name : "";

	/* Another client's name may be longer than the entry has room for. */
	int len = pg_encoding_mbcliplen(PG_UTF8, node, strlen(node), ZKLOCK_NODE_SIZE - 1);

	SpinLockAcquire(&entry->mutex);
	entry->node.position = blocker.position;
	entry->node.blocked_by_cohort = blocker.cohort ? blocker.cohort->id : 0;
	memcpy(entry->node.blocked_by_node, node, len);
	entry->node.blocked_by_node[len] = '\0';
	SpinLockRelease(&entry->mutex);
}

/*
 * Returns the cohort whose node a contender's node is to replace, as things are now, or NULL:
 * one is created and the other deleted in the same step.
 */
static Cohort *
cohort_replaced_for(const Contender *c)
{
	int		index = entry_of(c)->request.replaces;
	Cohort *old = index == ENTRY_NONE ? NULL : engine.contenders[index].cohort;

	return old && old != c->cohort && old->path == c->path && !old->replaced_by &&
				   cohort_has_node(old)
			   ? old
			   : NULL;
}

static void
tie_replacement(Cohort *cohort, Cohort *old)
{
	cohort->replaces = old;
	old->replaced_by = cohort;
}

/*
 * Makes a cohort GONE whose node does not exist, or not any more, and whose queue is empty.
 * The cohort may be freed.
 */
static void
cohort_gone(Cohort *cohort)
{
	Assert(cohort_head(cohort) == NULL);
	path_mark(cohort->path);
	if (cohort->last_owner)
		contender_forget(cohort->last_owner);
	cohort->last_owner = NULL;
	kept_end(cohort, STATS_KEPT_OTHERWISE);

	/* A replacement is done, or will not be done any more. */
	if (cohort->replaces)
		cohort->replaces->replaced_by = NULL;
	if (cohort->replaced_by)
		cohort->replaced_by->replaces = NULL;
	cohort->replaces = cohort->replaced_by = NULL;

	watch_own_set(cohort, WATCH_NONE);
	if (cohort->blocker_watch == WATCH_SET)
		watch_blocker_give_up(cohort, WATCH_NONE);
	cohort_charge(cohort, PAYER_NONE);
	dlist_delete(&cohort->link);
	cohort_step(cohort, COHORT_GONE);
	if (cohort->calls == 0)
		pfree(cohort);
}

/*
 * Ends a cohort that has no node, or none any more.  Holders have lost what it stood for, and
 * those who wait queue again in a new one, in its place, or behind all others if these may have
 * passed them.  They arrive anew if they must look before they have a node.
 */
static void
cohort_end(Cohort *cohort, CohortEnd how)
{
	Path			  *path = cohort->path;
	bool			   passed = how != END_NOT_CREATED && how != END_EXPIRED;
	bool			   arrive = path->recipe->cannot_coexist && !cohort->replaces;
	dlist_mutable_iter iter;
	Cohort			  *replacement = NULL;

	Assert(how != END_NOT_CREATED || cohort->state <= COHORT_CREATING);
	if (passed && cohort_head(cohort) != NULL)
	{
		Losses losses = {0};

		for (const Contender *c = cohort_head(cohort); c; c = contender_behind(c))
			report_losses_add(&losses, c);
		ereport(losses.count > 0 ? WARNING : LOG,
				(errmsg("node \"%s/%s\" of %s \"%s\" was deleted by someone else", path->path,
						cohort->name, path->recipe->name, path->path),
				 losses.count > 0 ? errdetail("Its holder has lost the %s; waiting sessions queue again.%s",
											  path->recipe->name, report_losses_take(&losses))
								  : errdetail("Waiting sessions queue again.")));
	}

	dlist_foreach_modify (iter, &cohort->queue)
	{
		Contender *c = dlist_container(Contender, link, iter.cur);

		if (c->place == PLACE_GRANTED)
		{
			contender_lose(c, how == END_EXPIRED ? LOSS_EXPIRED : LOSS_DELETED);
			continue;
		}
		dlist_delete(&c->link);
		if (arrive)
		{
			contender_arrive(c, path);
			continue;
		}
		if (replacement == NULL)
		{
			replacement = cohort_new(path, passed ? 0 : cohort->id, &cohort->request);
			if (cohort->replaces)
				tie_replacement(replacement, cohort->replaces);
			cohort->replaces = NULL;
			if (passed)
				dlist_push_tail(&path->cohorts, &replacement->link);
			else
				dlist_insert_after(&cohort->link, &replacement->link);
		}
		cohort_join(replacement, c);
		contender_blocked_by(c, (Blocker){0});
	}
	cohort_gone(cohort);
}

/* ------------------------------------------------------------------------
 * For whom a contender waits, as the recipe says
 * ------------------------------------------------------------------------
 */

/*
 * Returns true if a contender of another session is in the cohort's queue, ahead of "c" if
 * that is in it, too.
 */
static bool
cohort_has_others(const Cohort *cohort, const Contender *c)
{
	for (Contender *other = cohort_head(cohort); other; other = contender_behind(other))
	{
		if (other == c)
			return false;
		if (!entry_same_session(&entry_of(other)->request, &entry_of(c)->request))
			return true;
	}
	return false;
}

/*
 * Asks the recipe, for a contender that has a node or would come last.  The recipe gets other
 * clients' nodes, as the last listing shows them, and our own cohorts, which we know without
 * one.
 */
static Blocker
find_blocker(Contender *c, PeerSet set)
{
	const Path	  *path = c->path;
	RecipeRequest  request = c->cohort ? c->cohort->request : contender_request(c);
	const Cohort **cohorts;
	RecipePeer	  *peers;
	Blocker		   blocker = {.position = 1};
	int			   ncohorts = 0;
	int			   n = 0;
	int			   found;
	int32_t		   others_permits;

	for (const Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
		ncohorts++;
	cohorts = palloc(Max(ncohorts, 1) * sizeof(Cohort *));
	peers = palloc(Max(ncohorts + path->nforeign, 1) * sizeof(RecipePeer));
	for (const Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (set == PEERS_FOREIGN || cohort == c->cohort || !cohort_has_node(cohort))
			continue;

		/*
		 * Nodes of its own session are not in the way of a contender, unless the recipe judges
		 * all at once.  But a node that is not known to be the cohort's may be another client's,
		 * and counts no matter who is behind the cohort.
		 */
		if (!path->recipe->blocker && !cohort_has_others(cohort, c) && cohort_is_identified(cohort))
			continue;
		cohorts[n] = cohort;
		peers[n++] = cohort->peer;
	}
	ncohorts = n;
	for (int i = 0; set != PEERS_OWN && i < path->nforeign; i++)
		peers[n++] = path->foreign[i].peer;
	for (int i = 0; c->cohort && i < n; i++)
		blocker.position += peers[i].sequence < c->cohort->peer.sequence;

	found = recipe_blocker(path->recipe, peers, n, c->cohort ? &c->cohort->peer : NULL,
						   &request, &others_permits);
	if (others_permits != 0 && set == PEERS_ALL)
	{
		Entry *entry = entry_of(c);

		/* How many permits the others' owners count, for the contender's user */
		SpinLockAcquire(&entry->mutex);
		entry->status.others_permits = others_permits;
		SpinLockRelease(&entry->mutex);
	}
	if (found >= ncohorts)
		blocker.foreign = &path->foreign[found - ncohorts];
	else if (found != RECIPE_NOBODY)
		blocker.cohort = cohorts[found];
	pfree(cohorts);
	pfree(peers);
	return blocker;
}

/* Returns true if it must not even have a node, by what the last listing showed. */
static bool
contender_cannot_coexist(const Contender *c)
{
	const Path	 *path = c->path;
	RecipeRequest request = contender_request(c);

	for (int i = 0; path->recipe->cannot_coexist && i < path->nforeign; i++)
	{
		if (path->recipe->cannot_coexist(&path->foreign[i].peer, &request))
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------------
 * Answers
 *
 * The handlers store what an answer says, for cohort_advance().
 * ------------------------------------------------------------------------
 */

/*
 * Makes a call about the cohort's node, which must not wait for calls that watch.  The handlers
 * count it out.
 */
static void
node_call(Cohort *cohort, ZkCall call, ZkReplyHandler handler)
{
	cohort->node_calls++;
	cohort_call(cohort, call, handler);
}

/*
 * Takes note that the cohort's node exists, by its full name.  The step to CREATED is made at
 * once, since the reply to a listing may follow right behind.
 */
static void
cohort_created(Cohort *cohort, const char *name, int64 czxid)
{
	Path   *path = cohort->path;
	Cohort *former = cohort_by_name(path, name);

	cohort_step(cohort, COHORT_CREATED);
	strlcpy(cohort->name, name, sizeof(cohort->name));
	if (!path->recipe->read(name, &cohort->peer) || !cohort->peer.numbered)
		elog(ERROR, "unexpected node name \"%s\"", name);
	cohort->czxid = czxid;
	cohort_publish(cohort);

	/* So all levels of the path exist, and none is to be deleted again. */
	path->parents_attempts = 0;
	path->parents_refusal.failure = FAILURE_NONE;
	path->created_to = 0;

	/* A path that is created again numbers anew. */
	if (former)
		cohort_note_end(former, END_DELETED);
	if (cohort->replaces)
		cohort_note_end(cohort->replaces, END_DELETED);

	if (cohort->peer.sequence >= SEQUENCE_WARNING && report_once(WARNING, path, "sequence"))
		ereport(WARNING,
				(errmsg("half of the sequence numbers of ZooKeeper path \"%s\" are used up", path->path),
				 errdetail("The last one was " INT64_FORMAT ". From " INT64_FORMAT
						   " on, zklock refuses to lock the path.",
						   cohort->peer.sequence, (int64) SEQUENCE_LIMIT),
				 errhint("When nobody uses the path, delete its node. It is created again with the next lock, and the numbers begin anew.")));

	/* Nobody is served under a node that is near the last one, or beyond it. */
	if (cohort->peer.sequence < 0 || cohort->peer.sequence >= SEQUENCE_LIMIT)
		cohort->refusal = (Refusal){FAILURE_WORN_OUT, 0};
}

/*
 * Handles the reply to the create of the cohort's node, or to the multi that creates it in
 * place of another one.
 */
static void
on_node_created(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;
	bool	fixed_name = cohort->path->recipe->fixed_name;
	bool	replaces = reply->asked->kind == ZK_REPLACE;

	cohort->node_calls--;
	if (!cohort_call_end(cohort))
		return;
	if (replaces && cohort->replaces && (reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE))
		cohort_note_end(cohort->replaces, END_DELETED);
	switch (reply->outcome)
	{
		case CALL_OK:
			if (replaces)
				break; /* a listing finds the node */
			if (reply->stat.ephemeral_owner != engine.session_id)
				elog(ERROR, "node \"%s\" was created by another session", reply->path);
			cohort_created(cohort, strrchr(reply->path, '/') + 1, reply->stat.czxid);
			break;
		case CALL_UNKNOWN: /* it is looked for */
			cohort->sought = !replaces && ZKLOCK_FAULT("orphan");
			break;
		case CALL_NO_NODE:
			cohort_step(cohort, COHORT_PLANNED);
			if (!replaces)
			{
				missing_until = zklock_now_ms() + MISSING_MS;
				cohort->no_path_code = reply->code;
			}
			break;
		default:

			/*
			 * It is refused: nothing was created, as far as is known, and those who wait for
			 * the node get an error.  But a server that broke down may have created it all the
			 * same, so the cohort stays CREATING until that is found out.  The claim of an
			 * element is refused only then.
			 */
			if (!zk_error(reply->code).is_breakdown)
				cohort_step(cohort, COHORT_PLANNED);
			else
			{
				cohort->retry_at = zklock_now_ms() + BREAKDOWN_MS;
				if (fixed_name)
					break;
			}

			/* A node whose name has a sequence exists if the counter has stopped at its end. */
			cohort->refusal = (Refusal){FAILURE_REFUSED, reply->code};
			if (reply->outcome == CALL_NODE_EXISTS)
				cohort->refusal.failure = fixed_name ? FAILURE_BUSY : FAILURE_WORN_OUT;
			else if (reply->outcome == CALL_NO_CHILDREN)
				cohort->refusal.failure = FAILURE_NO_CHILDREN;
			break;
	}
}

/*
 * Handles the replies of a search for a node whose create was not answered: the listing, and
 * then those about the nodes that may be it.  It is the one that is this session's and no other
 * cohort's.
 */
static void
on_node_sought(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;
	Path   *path = cohort->path;

	cohort->node_calls--;
	if (!cohort_call_end(cohort) || cohort->state != COHORT_CREATING)
		return;
	if (reply->asked->kind == ZK_GET_CHILDREN)
	{
		cohort->list_error =
			reply->outcome == CALL_OK || reply->outcome == CALL_NO_NODE ? 0 : reply->code;
		for (int i = 0; reply->outcome == CALL_OK && i < reply->nchildren; i++)
		{
			const char *child = reply->children[i];
			RecipePeer	peer;

			/* A name with a UUID is only this cohort's; the owner shows whose another one is. */
			if (strlen(child) < sizeof(cohort->name) && path->recipe->read(child, &peer) &&
				peer.numbered && strncmp(child, cohort->name, strlen(cohort->name)) == 0 &&
				(cohort->reusable || cohort_by_name(path, child) == NULL))
				node_call(cohort, (ZkCall){.kind = ZK_EXISTS, .path = path_node(path, child)},
						  on_node_sought);
		}
	}
	else if (reply->outcome == CALL_OK && reply->stat.ephemeral_owner == engine.session_id)
	{
		const char	 *child = strrchr(reply->asked->path, '/') + 1;
		const Cohort *other = cohort_by_name(path, child);

		if (!other ||
			(strcmp(other->downgraded_name, child) != 0 && !cohort_owns(other, &reply->stat)))
		{
			cohort_created(cohort, child, reply->stat.czxid);
			return;
		}
	}
	else if (reply->outcome != CALL_OK && reply->outcome != CALL_NO_NODE)
		cohort->list_error = reply->code;
	cohort->sought = cohort->node_calls == 0;
}

/*
 * Plans the repetition of a call that must succeed, but was refused.  Returns true if the
 * caller is to log that: once in a state, if need be at a later attempt.
 */
static bool
cohort_note_refusal(Cohort *cohort)
{
	static int64 log_at; /* no message before, ms */

	int64			 now = zklock_now_ms();
	const Contender *owner = cohort_head_or_last_owner(cohort);
	bool			 is_due = !cohort->refusal_logged && now >= log_at;

	cohort->refused = true;
	cohort->retry_at = now + RETRY_MS;
	if (owner)
	{
		Entry *entry = entry_of(owner);

		/* Its backend does not wait for that. */
		SpinLockAcquire(&entry->mutex);
		entry->status.refused = true;
		SpinLockRelease(&entry->mutex);
		entry_set_owner_latch(entry);
	}
	if (is_due)
	{
		cohort->refusal_logged = true;
		log_at = now + MESSAGE_PAUSE_MS;
	}
	return is_due;
}

/*
 * Reports that a claim is gone which was to be deleted with its element, after a commit, and
 * that the element may still be there.
 */
static void
report_unremoved(const Path *path, LossReason reason)
{
	ereport(WARNING,
			(errmsg("%s \"%s\" was taken by a transaction that committed, and may not have been removed",
					path->recipe->name, path->path),
			 reason == LOSS_EXPIRED
				 ? errdetail("The ZooKeeper session ended first. If it is still there it is taken again, with the same token.")
				 : errdetail("Its claim was deleted by someone else first. If it is still there it is taken again, with the same token.")));
}

/*
 * Handles the reply to what is asked about a node that exists, by its kind: to look whether it
 * is the cohort's, to write its data again, to replace it by its downgraded node, to delete it.
 */
static void
on_node_answered(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;
	Path   *path = cohort->path;
	bool	gone = reply->outcome == CALL_NO_NODE;

	cohort->node_calls--;
	if (!cohort_call_end(cohort) || (reply->asked->kind == ZK_REPLACE && cohort->ended > END_MISSING))
	{
		/* Nobody needs the downgraded node: another client's node has got the cohort's name. */
		if (reply->asked->kind == ZK_REPLACE && reply->outcome == CALL_OK)
			zk_call((ZkCall){.kind = ZK_DELETE, .path = reply->asked->path, .version = ZK_ANY_VERSION},
					NULL, NULL);
		return;
	}
	switch (reply->asked->kind)
	{
		case ZK_EXISTS:
			if (strcmp(reply->asked->path, path->path) == 0)
			{
				/* The element that was to be deleted with its claim, which is gone */
				if (reply->outcome == CALL_OK)
					report_unremoved(path, LOSS_DELETED);
				if (reply->outcome == CALL_OK || gone)
					cohort_note_end(cohort, END_DELETED);
				else if (reply->outcome != CALL_UNKNOWN)
					cohort->retry_at = zklock_now_ms() + RETRY_MS;
			}
			else if (cohort_consumes(cohort) &&
					 (gone || (reply->outcome == CALL_OK && !cohort_owns(cohort, &reply->stat))))
				cohort->claim_gone = true;
			else if (cohort_confirm(cohort, reply))
				cohort->identified = true;
			else if (reply->outcome == CALL_REFUSED && cohort_note_refusal(cohort))
				ereport(LOG, (errmsg("could not look at ZooKeeper node \"%s/%s\": %s",
									 path->path, cohort->name, zk_error(reply->code).name),
							  errdetail("Nobody can get this %s until that succeeds; it is repeated.",
										path->recipe->name)));
			break;

		case ZK_SET_DATA:
			if (reply->outcome == CALL_REFUSED)
				cohort->retry_at = zklock_now_ms() + RETRY_MS;
			else if (cohort_confirm(cohort, reply))
				cohort->version = reply->stat.version;
			break;

		case ZK_REPLACE:
			if (reply->outcome == CALL_OK)
				cohort->listed = cohort->downgraded = true;
			else if (reply->outcome == CALL_REFUSED && reply->code != ZK_BAD_VERSION &&
					 !zk_error(reply->code).is_breakdown)
			{
				if (cohort_note_refusal(cohort))
					ereport(LOG,
							(errmsg("could not replace ZooKeeper node \"%s/%s\" by a shared one: %s",
									path->path, cohort->name, zk_error(reply->code).name),
							 errdetail("Nobody can share this lock until that is done; the attempt is repeated.")));
			}
			else
			{
				/* A listing will show which of the two nodes exists. */
				cohort->listed = false;
				if (reply->outcome != CALL_UNKNOWN && !gone)
					cohort->retry_at = zklock_now_ms() + RETRY_MS;
			}
			break;

		case ZK_DELETE:
			cohort->listed = false;
			if (gone && cohort_consumes(cohort))
				cohort->claim_gone = true;
			else if (reply->outcome == CALL_OK || gone)
				cohort_note_end(cohort, END_DELETED);
			else if (reply->outcome != CALL_UNKNOWN && cohort_note_refusal(cohort))
				ereport(LOG, (errmsg("could not delete ZooKeeper node \"%s/%s\": %s",
									 path->path, cohort->name, zk_error(reply->code).name),
							  errdetail("Nobody can get this %s until the node is gone; the deletion is repeated.",
										path->recipe->name)));
			break;

		default:
			elog(ERROR, "unexpected answer about node \"%s\"", cohort->name);
	}
}

/* ------------------------------------------------------------------------
 * Downgrades: from exclusive to shared without letting go
 *
 * A session that holds a lock in both modes and gives up the exclusive one remains a shared
 * holder: sessions that wait to share the lock come in, those that want it for themselves
 * stay out.  All of them queue behind the session's node, so a new node at the end of the
 * queue would be too late.  The shared node that replaces the exclusive one, the downgraded
 * node, gets the sequence of the exclusive one, as in Curator since 5.5.
 *
 * The backend records the downgrade in the entry, whose mode becomes shared in the state
 * GRANTED.  The worker does the rest:
 *
 *	- While others of this server wait in the same cohort, it does nothing.  They are next and
 *	  must wait until the shared holder has gone, and contenders that came after them must
 *	  wait for them; the cohort's exclusive node stands for that.
 *	- When the holder is alone in its cohort, the cohort is DOWNGRADING and has a downgraded
 *	  node, whose name follows from that of the exclusive node.  One multi creates the
 *	  downgraded node and deletes the other, both or none, so one of them always exists.
 *	  Nobody joins the cohort any more.
 *	- When that is done, the cohort is shared and goes by the name of the downgraded node.
 *
 * If the reply is lost, or the worker is restarted, a listing shows which of the two nodes
 * exists.  If it is the downgraded node, the multi was executed; if it is neither, someone
 * else deleted the node and the lock is lost.  Since creation and deletion are one, the multi
 * can never be executed after someone else's deletion.  For a later worker, the entries name
 * the exclusive node until it is known to be gone; the worker finds a node of one mode with a
 * holder of the other.
 *
 * If the holder leaves before the outcome is known, the cohort stays DOWNGRADING until then,
 * and the node that exists is deleted.  A later worker does the same, even if all that it
 * finds is the entry of a holder that has lost the lock and keeps the node's name.
 *
 * The multi goes by the node's name.  Where names are reusable, another client's node may have
 * it by then, with data of version 0, like a new one of ours.  So our node's data are written
 * again before, by an answer which shows that the node is ours, and the multi demands the
 * version which that has given them.
 *
 * Fencing tokens go on as before: the cohort keeps the czxid of its exclusive node and its
 * number of grants.  The reply does not contain the downgraded node's czxid.  The cohort need
 * not know it:  it is later than that of the exclusive node (cohort_owns()).
 *
 * Downgrades by other clients
 * ---------------------------
 *
 * An exclusive contender of another client that goes may leave a downgraded node.  A cohort
 * that would wait for the downgraded node looks again, unless one of these shows that there is
 * none:
 *
 *	- The child watch stands.  It would have fired for the downgraded node's creation.
 *	- The watch on the contender reports its deletion, and the contender's client is a
 *	  zklock that announces downgrades, as the version in the node's data shows.  Its multi
 *	  changes the exclusive node before it deletes it.  Nobody can read that change, but a
 *	  watch fires once, for what comes first, so it would have reported a change instead of
 *	  a deletion.  To all other clients the one is as good as the other: they look in any
 *	  case.
 *
 * The second holds on the connection on which the watch was set.  On a later one, a server
 * reports what has been deleted meanwhile and not how; but it does so before its first
 * answer, and cohorts look again after that.
 * ------------------------------------------------------------------------
 */

/*
 * Returns true if a shared holder is alone in an exclusive cohort, or was it, and keeps its
 * node.
 */
static bool
cohort_wants_downgrade(const Cohort *cohort)
{
	const Contender *holder = cohort_head_or_last_owner(cohort);

	return cohort->path->recipe->downgraded_name && cohort->state == COHORT_GRANTED &&
		   cohort->request.mode == LOCK_MODE_EXCLUSIVE && holder &&
		   (cohort_head(cohort) == NULL || contender_behind(holder) == NULL) &&
		   contender_request(holder).mode == LOCK_MODE_SHARED;
}

/*
 * Makes a cohort DOWNGRADING: from now on its node may have been replaced by its downgraded
 * node.
 */
static void
cohort_downgrading(Cohort *cohort)
{
	RecipeRequest request = contender_request(cohort_head_or_last_owner(cohort));

	if (!cohort->path->recipe->downgraded_name(cohort->downgraded_name,
											   sizeof(cohort->downgraded_name), cohort->name, &request))
		elog(ERROR, "unexpected node name \"%s\"", cohort->name);
	cohort_step(cohort, COHORT_DOWNGRADING);
	cohort->closed = true;
	cohort->version = ZK_ANY_VERSION;
}

/* Ends a downgrade: others can share the lock, or no session waits for that. */
static void
contender_downgraded(Contender *c)
{
	Entry *entry = entry_of(c);

	SpinLockAcquire(&entry->mutex);
	entry->status.downgrading = false;
	SpinLockRelease(&entry->mutex);
	entry_set_owner_latch(entry);
}

/* ------------------------------------------------------------------------
 * What a node's life consists of
 * ------------------------------------------------------------------------
 */

/*
 * Creates the cohort's node, whose name has never been used if it has a UUID.  A listing
 * follows right behind; its watch reports all that comes later.
 */
static void
cohort_create(Cohort *cohort)
{
	static uint8 drawn[64][ZKLOCK_UUID_BYTES];
	static int	 left = 0;

	Path  *path = cohort->path;
	uint8 *uuid;
	ZkCall create = {.kind = ZK_CREATE,
					 .data = entry_of(cohort_head(cohort))->data,
					 .node_kind = path->recipe->fixed_name ? ZK_EPHEMERAL : ZK_EPHEMERAL_SEQUENTIAL};

	/* A random UUID; its version shows whether the node may be kept.  Many at once are cheaper. */
	if (left == 0)
	{
		if (!pg_strong_random(drawn, sizeof(drawn)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
		left = lengthof(drawn);
	}
	uuid = drawn[--left];
	cohort->may_keep = kept_later(cohort);
	uuid[6] = (uuid[6] & 0x0f) | (cohort->may_keep ? UUID_VERSION_KEPT : UUID_VERSION_RANDOM) << 4;
	uuid[8] = (uuid[8] & 0x3f) | 0x80; /* variant 1 */
	path->recipe->write(cohort->name, sizeof(cohort->name), &cohort->request, uuid);

	/* The node counts against its session's share, and the entries have its name, from now on. */
	cohort_step(cohort, COHORT_CREATING);
	cohort->listed = cohort->sought = false;
	cohort->list_error = 0;
	if (cohort->payer == PAYER_NONE)
		cohort_charge(cohort, entry_payer(entry_of(cohort_head(cohort))));
	cohort_publish(cohort);

	create.path = path_node(path, cohort->name);
	if (cohort->replaces)
	{
		create.kind = ZK_REPLACE;
		create.replaced = path_node(path, cohort->replaces->name);
		create.version = ZK_ANY_VERSION;
		node_call(cohort, create, on_node_created);
	}
	else
	{
		bool exists = parents_create_ahead(cohort) || path->parents_attempts > 0;

		/*
		 * The create may go out together with those of other paths, unless the name is
		 * reusable, since a lost reply is settled by the name.  One that is refused for want of
		 * its path ends that for a while, except where the path has just been created.
		 */
		create.followed = true;
		create.patient = !cohort->reusable && (exists || zklock_now_ms() >= missing_until);
		node_call(cohort, create, on_node_created);
		path_list(path, cohort_owner(cohort), LIST_AND_WATCH);
	}
}

/*
 * Returns true if ZooKeeper refuses to show whether the node of a cohort was created.  Nobody
 * knows how long it does, so those behind it do not wait.
 */
static bool
cohort_is_hidden(const Cohort *cohort)
{
	return cohort->state == COHORT_CREATING && cohort->list_error != 0 &&
		   zk_error(cohort->list_error).outcome != CALL_UNKNOWN;
}

/* Makes a cohort DELETING that nobody needs any more.  Its one node has the cohort's name. */
static void
cohort_deleting(Cohort *cohort)
{
	Assert(cohort_head(cohort) == NULL);
	cohort_step(cohort, COHORT_DELETING);
	cohort->downgraded_name[0] = '\0';
	cohort->retry_at = 0;
}

/*
 * Returns true if something may be done with the cohort's node.  After a lost reply or a
 * restart of the worker, a request may be one too many, so a node whose name may be somebody
 * else's by now is looked at first, unless a watch would have reported that.  ZooKeeper before
 * 3.9.3 shows whose the node is to those who may not read it, too.
 */
static bool
cohort_identify(Cohort *cohort)
{
	bool may = !cohort->reusable || cohort->own_watch == WATCH_SET || cohort->identified;

	cohort->identified = false;
	if (!may)
		node_call(cohort, (ZkCall){.kind = ZK_EXISTS, .path = path_node(cohort->path, cohort->name)},
				  on_node_answered);
	return may;
}

/* ------------------------------------------------------------------------
 * The life of a node
 * ------------------------------------------------------------------------
 */

/*
 * Grants the lock, unless its backend has given up meanwhile.  All of this holds then, and is
 * looked at in
 *
 *	path_place_arrivals()	what it asks for is what its cohort's node stands for, no other client
 *							is known between that node and it, and tokens under it are left
 *	path_pump_marked()		the path is not in use for claims or a queue; our credentials hold
 *	cohort_advance()		the node has not ended, nor is its sequence near the last one; a
 *							connection stands, and a sync was answered on it
 *	COHORT_CREATED			a listing on this connection has shown the node; the path's data, if
 *							there are any, have been read; by the recipe, nobody older keeps it out
 *	COHORT_GRANTED			the node is not about to be downgraded; a listing on this connection has
 *							shown it, unless it is held already; the lease holds; we would hear of
 *							the node's end, unless ZooKeeper refuses a watch, and it is ours if the
 *							name is reusable; it is this contender's turn among those of this server
 *	entry_grant()			the entry is QUEUED, under its mutex
 */
static void
contender_grant(Contender *c)
{
	Cohort *cohort = c->cohort;
	int64	expires_us;

	ZKLOCK_SLOW("slow-grants", 400, 150);
	if (!entry_grant(entry_index(c), token_of_grant(cohort->czxid, cohort->grants + 1)))
	{
		contender_detach(c);
		return;
	}
	cohort->grants++;
	c->place = PLACE_GRANTED;
	expires_us = entry_status(entry_index(c)).expires_us;
	engine.overrun_us = Min(engine.overrun_us, expires_us);
}

/*
 * The life of a cohort.  It stands for one attempt and one node name.
 *
 *		PLANNED -> CREATING -> CREATED -> GRANTED -> DELETING -> GONE
 *		CREATING -> PLANNED					nothing was created
 *		GRANTED -> DOWNGRADING -> GRANTED
 *		CREATED, DOWNGRADING -> DELETING	nobody needs the node any more
 *		PLANNED, CREATING, CREATED, GRANTED, DOWNGRADING -> GONE
 *
 *	PLANNED			no node; the create is sent once the cohort before has its node
 *	CREATING		the create is sent, and right behind it a listing of the path; if
 *					the reply is lost, another listing shows whether the node exists
 *	CREATED			the node exists; the recipe says for whom the cohort waits
 *	GRANTED			it waits for nobody; contenders are granted from its queue
 *	DOWNGRADING		its node is being replaced by its downgraded node, a shared one
 *	DELETING		nobody needs it; the delete is repeated until the node is gone
 *	GONE			taken off its path; freed when its last call is answered
 *
 * This makes the next step, by what is known now, or sends what that waits for.  Answers make
 * two: that the node was created (CREATED), or was not (PLANNED).  cohort_gone() makes the one to
 * GONE.  Returns true if the cohort may go on from the state that it has now; if not, it may be
 * freed.
 */
static bool
cohort_next_step(Cohort *cohort)
{
	Path			  *path = cohort->path;
	const Recipe	  *recipe = path->recipe;
	dlist_mutable_iter iter;

	switch (cohort->state)
	{
		case COHORT_PLANNED:
		{
			Cohort	  *before = cohort == cohort_first(path)
									? NULL
									: dlist_container(Cohort, link, cohort->link.prev);
			Contender *head = cohort_head(cohort);

			if (cohort->no_path_code != 0)
			{
				parents_missing(cohort);
				return false;
			}

			/* A session waits for an element being given back, unless ZooKeeper refuses that. */
			if (before && recipe->fixed_name && before->retry_at > 0)
				cohort_fail(cohort, FAILURE_BUSY, 0);
			else if (before && before->node_calls == 0 && cohort_is_hidden(before))
				cohort_fail(cohort, FAILURE_REFUSED, before->list_error);

			/*
			 * Those that must look before they have a node arrive anew; also those that were to
			 * take the place of another cohort, if that is gone already.
			 */
			else if (recipe->cannot_coexist && !cohort->replaces &&
					 (head->next_list > path->lists_shown || contender_cannot_coexist(head)))
				cohort_end(cohort, END_NOT_CREATED);

			/* The node to be replaced is read first: it may be another client's by now. */
			else if (cohort->replaces && !cohort_is_identified(cohort->replaces))
				watch_own(cohort->replaces);

			/* The deletion of the node before would use up the child watch: kept.c. */
			else if (before && before->state == COHORT_DELETING && !before->refused &&
					 kept_later(cohort))
				return false;
			else if (!path->parents_pending &&
					 (before == NULL || (cohort_has_node(before) && !recipe->fixed_name)))
				cohort_create(cohort);
			return false;
		}

		case COHORT_CREATING:
			if (cohort->node_calls > 0)
				return false;

			/*
			 * If ZooKeeper refuses to show the node, contenders that wait for it get an
			 * error; but it may exist, so the search is repeated, so as not to leave it
			 * behind.
			 */
			if (cohort->sought && cohort->list_error == 0)
			{
				cohort_end(cohort, END_NOT_CREATED);
				return false;
			}
			if (cohort->sought && cohort_is_hidden(cohort))
			{
				cohort_fail(cohort, FAILURE_REFUSED, cohort->list_error);
				cohort->retry_at = zklock_now_ms() + RETRY_MS;
			}
			cohort->sought = false;
			if (engine_await(cohort->retry_at))
				node_call(cohort,
						  (ZkCall){.kind = ZK_GET_CHILDREN, .path = path->path, .bulky = true},
						  on_node_sought);
			return false;

		case COHORT_CREATED:
		{
			Blocker blocker;
			bool	one = recipe->excludes != NULL; /* waits for one, not for any */

			if (cohort_head(cohort) == NULL)
			{
				cohort_deleting(cohort);
				return true;
			}

			/* A listing on this connection has to show the node. */
			if (!cohort->listed)
			{
				if (path->lists_sent == path->lists_done)
					path_list(path, cohort_owner(cohort), cohort->closed ? LIST_ONLY : LIST_AND_WATCH);
				return false;
			}
			if (path->use == PATH_USE_ASKED)
			{
				watch_own(cohort);
				return false;
			}

			blocker = find_blocker(cohort_head(cohort), PEERS_ALL);
			if (blocker.cohort == NULL && (blocker.foreign == NULL || ZKLOCK_FAULT("grant-early")))
			{
				/* A blocker's event comes ahead of what shows it gone; if not, see cohort_gone(). */
				cohort_step(cohort, COHORT_GRANTED);
				return true;
			}
			dlist_foreach_modify (iter, &cohort->queue)
			{
				Contender *c = dlist_container(Contender, link, iter.cur);

				if (entry_of(c)->request.manner != ASK_AND_WAIT &&
					!(blocker.foreign && kept_wait_for(c)))
					contender_fail(c, FAILURE_BUSY, 0);
			}
			if (cohort_head(cohort) == NULL)
				return true;
			contender_blocked_by(cohort_head(cohort), blocker);

			/*
			 * The cohort looks again after a watch: on its blocker, or on the children if we
			 * may not read the blocker, or if anybody may give back what the cohort waits for.
			 * The end of a cohort of ours needs no watch.
			 */
			if (one && blocker.foreign && cohort->blocker_watch != WATCH_REFUSED)
			{
				if (!watch_blocker(cohort, blocker.foreign->name))
					cohort_fail(cohort, FAILURE_SESSION_FULL, 0);
			}
			else if ((!one || blocker.foreign) && path->child_watch == WATCH_NONE)
				path_list(path, cohort_owner(cohort), LIST_AND_WATCH);
			if (blocker.foreign && (!one || path->orphans_at != 0))
				watch_for_orphans(cohort);
			if (cohort_head(cohort) == NULL)
				return true;
			watch_own(cohort);
			return false;
		}

		case COHORT_GRANTED:
			if (cohort_head(cohort) == NULL)
			{
				if (kept_settle(cohort))
					return false;
				cohort_deleting(cohort);
				return true;
			}
			if (cohort_wants_downgrade(cohort) && cohort_is_wanted(cohort, NULL))
			{
				cohort_downgrading(cohort);
				return true;
			}
			if (!cohort->listed && cohort_head(cohort)->place != PLACE_GRANTED)
			{
				if (path->lists_sent == path->lists_done)
					path_list(path, cohort_owner(cohort), cohort->closed ? LIST_ONLY : LIST_AND_WATCH);
				return false;
			}
			watch_own(cohort);

			/*
			 * Nobody is granted without the lease, nor unless we would hear, or have heard, of a
			 * deletion of the node by someone else.  A watch that ZooKeeper refuses is no reason
			 * to wait for it.
			 */
			if (lease_state() != LEASE_HOLDS ||
				!(cohort->own_watch == WATCH_SET || cohort->own_watch == WATCH_REFUSED ||
				  (path->child_watch == WATCH_SET && !cohort->reusable) ||
				  ZKLOCK_FAULT("watched-early")))
				return false;

			/*
			 * Those whose turn it is are granted: all together, or each when nobody of another
			 * session is ahead of it in this cohort, nor in an older one of ours that did not
			 * stand in the way of those before it.
			 */
			dlist_foreach_modify (iter, &cohort->queue)
			{
				Contender	 *c = dlist_container(Contender, link, iter.cur);
				const Cohort *own = NULL;

				if (c->place == PLACE_GRANTED)
					continue;
				if (recipe->excludes == NULL || recipe->excludes(&cohort->peer, &cohort->request))
					own = cohort_has_others(cohort, c) ? cohort : find_blocker(c, PEERS_OWN).cohort;
				if (own)
				{
					contender_blocked_by(c, (Blocker){.cohort = own});
					break;
				}
				contender_grant(c);
			}
			return cohort_head(cohort) == NULL; /* they have given up meanwhile */

		case COHORT_DOWNGRADING:
			if (cohort->downgraded)
			{
				cohort_step(cohort, COHORT_GRANTED);
				watch_own_set(cohort, WATCH_NONE);
				strlcpy(cohort->name, cohort->downgraded_name, sizeof(cohort->name));
				cohort->downgraded_name[0] = '\0';
				(void) recipe->read(cohort->name, &cohort->peer);
				cohort->request.mode = cohort->peer.mode;
				cohort_publish(cohort);
				for (Contender *c = cohort_head(cohort); c; c = contender_behind(c))
					contender_downgraded(c);
				return true;
			}
			if (cohort->node_calls > 0)
				return false;
			if (!cohort->listed)
			{
				/* It is not known which of the two nodes exists. */
				cohort->version = ZK_ANY_VERSION;
				if (path->lists_sent == path->lists_done && engine_await(cohort->retry_at))
					path_list(path, cohort_owner(cohort), LIST_ONLY);
				return false;
			}
			if (cohort_head(cohort) == NULL)
			{
				cohort_deleting(cohort);
				return true;
			}
			if (!engine_await(cohort->retry_at))
			{
				watch_own(cohort);
				return false;
			}

			/* Under a reusable name, first the version of our node's data is made known. */
			if (cohort->reusable && cohort->version == ZK_ANY_VERSION)
			{
				if (cohort_identify(cohort))
					node_call(cohort,
							  (ZkCall){.kind = ZK_SET_DATA,
									   .path = path_node(path, cohort->name),
									   .data = entry_of(cohort_head(cohort))->data,
									   .version = ZK_ANY_VERSION},
							  on_node_answered);
				return false;
			}
			node_call(cohort,
					  (ZkCall){.kind = ZK_REPLACE,
							   .path = path_node(path, cohort->downgraded_name),
							   .replaced = path_node(path, cohort->name),
							   .data = entry_of(cohort_head(cohort))->data,
							   .node_kind = ZK_EPHEMERAL,
							   .version = cohort->version,
							   .notice = true},
					  on_node_answered);
			cohort->version = ZK_ANY_VERSION;
			return false;

		case COHORT_DELETING:
			/*
			 * A node that another is to replace is deleted when that is created.  An arrival with
			 * such a node joins a cohort of its own in this round, or when it has looked.
			 */
			if (cohort->replaced_by)
				return false;
			dlist_foreach_modify (iter, &path->arrivals)
			{
				if (cohort_replaced_for(dlist_container(Contender, link, iter.cur)) == cohort)
					return false;
			}
			if (cohort->node_calls == 0 && engine_await(cohort->retry_at))
			{
				if (cohort->claim_gone)
				{
					/* Does the element still exist that was to be deleted with its claim? */
					cohort->claim_gone = false;
					node_call(cohort, (ZkCall){.kind = ZK_EXISTS, .path = path->path}, on_node_answered);
				}
				else if (cohort_identify(cohort))
				{
					ZkCall delete = {.kind = ZK_DELETE, .path = path_node(path, cohort->name)};

					/*
					 * It may wait for others, and be sent with them, unless another client may
					 * wait for it, as far as is known, the name may become another client's
					 * meanwhile, or the deletion has been refused.
					 */
					if (cohort_consumes(cohort))
						delete.also_deleted = path->path;
					else
						delete.patient = path->nforeign == 0 && path->child_watch == WATCH_SET &&
										 !cohort->reusable && !cohort->refused;
					node_call(cohort, delete, on_node_answered);
				}
			}

			/*
			 * ZooKeeper refuses the deletion whether the node exists or not, so a watch has
			 * to show when it is gone.
			 */
			if (cohort->refused)
				watch_own(cohort);
			return false;

		case COHORT_GONE:
			return false;
	}
	return false;
}

/*
 * Does what comes next for a cohort, by what answers and events have said meanwhile.  The
 * cohort may be freed.
 */
static void
cohort_advance(Cohort *cohort)
{
	Path *path = cohort->path;

	if (cohort->ended != END_NONE)
	{
		CohortEnd how = cohort->ended;
		bool	  consumes = cohort_consumes(cohort);
		Cohort	 *misled = how == END_NAME_REUSED ? cohort_first(path) : NULL;

		/* Another node has the name by now: listings that show it do not count. */
		for (; misled; misled = cohort_after(misled))
			misled->listed = false;
		if (!(how == END_MISSING && (cohort->state == COHORT_DOWNGRADING || consumes)) &&
			!(how == END_NAME_REUSED && consumes))
		{
			if (how == END_EXPIRED && consumes)
				report_unremoved(path, LOSS_EXPIRED);
			cohort_end(cohort, how);
			return;
		}

		/*
		 * We may have deleted the node ourselves, so the cohort goes on: a listing will show
		 * whether the downgraded node has replaced it, if we do not know that already, or the
		 * reply to the deletion whether what it stood for was deleted with it.
		 */
		cohort->ended = END_NONE;
		if (!cohort->downgraded)
			cohort->listed = false;
		cohort->retry_at = 0;
	}
	if (cohort->refusal.failure != FAILURE_NONE)
	{
		cohort_fail(cohort, cohort->refusal.failure, cohort->refusal.code);
		cohort->refusal.failure = FAILURE_NONE;
	}
	if (cohort->state == COHORT_PLANNED && cohort_head(cohort) == NULL)
	{
		cohort_gone(cohort);
		return;
	}

	/*
	 * Without a connection that is up to date nothing is sent or granted.  What is kept stays:
	 * the library sets the watch again, which reports what has happened meanwhile, and a listing
	 * on the next connection has to show the node before anybody is granted under it.  But it
	 * does not stay without the lease, since the session may be over.
	 */
	if (zk_connection < ZK_CONNECTED || !engine_synced)
	{
		if (lease_state() != LEASE_HOLDS)
			kept_end(cohort, STATS_KEPT_OTHERWISE);
		return;
	}

	while (cohort_next_step(cohort))
		;
}

/* ------------------------------------------------------------------------
 * Who joins a cohort
 * ------------------------------------------------------------------------
 */

/*
 * Places the arrivals, but for those that must wait for a listing, and those behind them.
 * Returns true if cohorts have changed by that.
 */
static bool
path_place_arrivals(Path *path)
{
	dlist_mutable_iter iter;
	bool			   waits = path->use == PATH_USE_ASKED;
	bool			   changed = false;

	dlist_foreach_modify (iter, &path->arrivals)
	{
		Contender		   *c = dlist_container(Contender, link, iter.cur);
		const EntryRequest *asked = &entry_of(c)->request;
		const Recipe	   *recipe = engine_recipes[asked->kind];
		RecipeRequest		request = contender_request(c);
		Failure				failure = FAILURE_NONE;
		Cohort			   *old = cohort_replaced_for(c);
		Cohort			   *last = dlist_is_empty(&path->cohorts)
									   ? NULL
									   : dlist_tail_element(Cohort, link, &path->cohorts);
		bool				may_wait;
		bool				open;
		bool				looked;
		bool				must_look;

		if (recipe != path->recipe)
		{
			const Cohort *user = cohort_first(path);

			/* Somebody uses the path, or ZooKeeper refuses to have a node of ours go. */
			while (user && cohort_head(user) == NULL && user->retry_at <= 0)
				user = cohort_after(user);
			if (user)
				failure = path->recipe == &permit_recipe	 ? FAILURE_IS_SEMAPHORE
						  : path->recipe == &election_recipe ? FAILURE_IS_ELECTION
						  : path->recipe == &element_recipe	 ? FAILURE_IS_QUEUE
															 : FAILURE_IS_LOCK;
		}

		/* One that is not to wait does not wait for ZooKeeper, either. */
		if (failure == FAILURE_NONE && asked->manner != ASK_AND_WAIT &&
			((zk_connection < ZK_CONNECTED && engine.resume_until == NEVER) || lease_state() != LEASE_HOLDS))
			failure = FAILURE_UNREACHABLE;

		/*
		 * It would have to wait for sessions of this server, whatever they have so far; where there
		 * is only one to get, for its own session as well, even if it may wait.
		 */
		may_wait = asked->manner == ASK_AND_WAIT && !path->recipe->fixed_name;
		for (const Cohort *cohort = may_wait || !path->recipe->excludes ? NULL : cohort_first(path);
			 cohort && failure == FAILURE_NONE; cohort = cohort_after(cohort))
		{
			if (path->recipe->excludes(&cohort->peer, &request) &&
				cohort_is_wanted(cohort, path->recipe->fixed_name ? NULL : c))
				failure = FAILURE_BUSY;
		}
		if (failure != FAILURE_NONE)
		{
			contender_fail(c, failure, 0);
			continue;
		}

		/*
		 * The path is used for something else if no node of ours is left; what listings have
		 * shown was read by the other recipe.  A node that is left is kept no longer.
		 */
		if (recipe != path->recipe && !waits)
		{
			if (last)
			{
				changed |= last->kept_since != 0;
				kept_end(last, STATS_KEPT_OTHERWISE);
				waits = true;
			}
			else
			{
				path->recipe = recipe;
				path_foreign_clear(path);
				path->lists_shown = 0;
			}
		}

		/*
		 * It may join the last cohort, as far as is known now.  A reservation has a node of its
		 * own, which its role pays for.
		 */
		open = last && asked->scope != LOCK_SCOPE_RESERVATION && !last->closed &&
			   path->recipe->may_join && path->recipe->may_join(&last->request, &request) &&
			   last->joined < MAX_GRANTS && (cohort_head(last) != NULL || last->kept_since != 0);

		/*
		 * It must wait for a listing if it is to look, if others may have come behind the cohort
		 * that it might join, or if its node might harm others.  One that takes the place of
		 * another node cannot harm others as long as that node exists.  A contender that joins a
		 * kept cohort needs no listing, since nobody else is known there.
		 */
		looked = c->next_list <= path->lists_shown;
		must_look =
			asked->manner == ASK_AND_LOOK || (path->recipe->cannot_coexist && old == NULL) ||
			(open && last->state != COHORT_PLANNED && last->state != COHORT_CREATING &&
			 path->child_watch != WATCH_SET &&
			 (last->state != COHORT_CREATED || last->listed || path->child_watch != WATCH_ASKED));
		waits = waits || (!looked && must_look && !(open && last->kept_since != 0));
		if (waits)
			continue;

		if (looked && asked->manner != ASK_AND_WAIT)
		{
			PeerSet set = path->recipe->blocker ? PEERS_ALL : PEERS_FOREIGN;
			Blocker blocker = find_blocker(c, set);

			if ((blocker.cohort || blocker.foreign) && !kept_wait_for(c))
				failure = FAILURE_BUSY;
		}
		if (failure == FAILURE_NONE && looked && contender_cannot_coexist(c))
			failure = FAILURE_CANNOT_COEXIST;

		/* Nobody has paid for a node that is kept. */
		if (failure == FAILURE_NONE && (!open || last->kept_since != 0))
			failure = path_has_room(path, entry_of(c));
		if (failure != FAILURE_NONE)
		{
			contender_fail(c, failure, 0);
			continue;
		}
		if (!open)
		{
			last = cohort_new(path, 0, &request);
			dlist_push_tail(&path->cohorts, &last->link);
			if (old)
				tie_replacement(last, old);
		}
		dlist_delete(&c->link);
		cohort_join(last, c);
		if (last->kept_since != 0)
		{
			Contender *last_owner = last->last_owner;

			/* It is kept no longer: the new contender's entry has the node's name by now. */
			kept_end(last, STATS_KEPT_JOINED);
			last->last_owner = NULL;
			contender_forget(last_owner);
			cohort_charge(last, entry_payer(entry_of(c)));
		}
		changed = true;
	}
	return changed;
}

/* ------------------------------------------------------------------------
 * Paths
 * ------------------------------------------------------------------------
 */

/* Does what comes next for the marked paths, as they are now. */
void
path_pump_marked(void)
{
	dlist_mutable_iter iter;

	while (!dlist_is_empty(&engine.marked))
	{
		Path *path = dlist_container(Path, marked_link, dlist_pop_head_node(&engine.marked));
		const Cohort *holder = NULL;
		Contender	 *arrival;
		bool		  may_list;
		bool		  looks;

		path->marked = false;
		engine_attended = path->path;
		if (engine.refused_code != 0)
			path->refusal = (Refusal){FAILURE_REFUSED, engine.refused_code};
		if (path->refusal.failure != FAILURE_NONE)
		{
			dlist_foreach_modify (iter, &path->arrivals)
				contender_fail(dlist_container(Contender, link, iter.cur),
							   path->refusal.failure, path->refusal.code);
			dlist_foreach_modify (iter, &path->cohorts)
			{
				Cohort *cohort = dlist_container(Cohort, link, iter.cur);
				bool	closed = cohort->closed;

				/* Refused credentials say nothing of the node: it may be joined, and kept. */
				cohort_fail(cohort, path->refusal.failure, path->refusal.code);
				cohort->closed = closed || engine.refused_code == 0;
			}
			path->refusal.failure = FAILURE_NONE;
		}

		/* Nobody joins a cohort that has ended: so first the cohorts, and again if somebody has joined. */
		do
		{
			dlist_foreach_modify (iter, &path->cohorts)
				cohort_advance(dlist_container(Cohort, link, iter.cur));
		} while (path_place_arrivals(path));

		/* A listing for those arrivals that must look */
		may_list = zk_connection >= ZK_CONNECTED && engine_synced &&
				   path->lists_sent == path->lists_done;
		arrival = dlist_is_empty(&path->arrivals)
					  ? NULL
					  : dlist_head_element(Contender, link, &path->arrivals);
		if (arrival && may_list && path->use != PATH_USE_ASKED &&
			engine_recipes[entry_of(arrival)->request.kind] == path->recipe)
		{
			bool joinable = !dlist_is_empty(&path->cohorts) &&
							!dlist_tail_element(Cohort, link, &path->cohorts)->closed;

			path_list(path, entry_owner(entry_of(arrival)), joinable ? LIST_AND_WATCH : LIST_ONLY);
			may_list = false;
		}

		/*
		 * Look who has come while a lock is held, as it may be a client that does not wait for
		 * our node.  All paths are looked at in the same moments.  Most locks have been released
		 * by then, and cost no listing.  A leader always wants to know who stands behind it.
		 */
		looks = path->recipe == &election_recipe ? path->child_watch == WATCH_NONE
												 : path->unseen && path->recipe->heedless;
		for (const Cohort *cohort = cohort_first(path);
			 (looks || path->recipe == &election_recipe) && cohort && holder == NULL;
			 cohort = cohort_after(cohort))
		{
			if (cohort->state == COHORT_GRANTED && cohort_head(cohort) != NULL)
				holder = cohort;
		}
		if (holder && path->recipe == &election_recipe && zk_connection >= ZK_CONNECTED && engine_synced)
			watch_candidates(path);
		if (holder == NULL || !looks)
			path->list_at = 0;
		else if (path->list_at == 0 && ZKLOCK_FAULT("prefer-at-once"))
			path->list_at = zklock_now_ms();
		else if (path->list_at == 0)
			path->list_at = (zklock_now_ms() / LOOK_PAUSE_MS + 2) * LOOK_PAUSE_MS;
		if (path->list_at != 0 && engine_await(path->list_at) && may_list)
		{
			path_list(path, cohort_owner(holder), LIST_AND_WATCH);
			path->list_at = 0;
		}

		/* Forget the path if nobody needs it any more, and nothing is outstanding. */
		if (path->calls == 0 && !path->marked && dlist_is_empty(&path->cohorts) &&
			dlist_is_empty(&path->arrivals) && !parents_delete(path))
		{
			watch_child_give_up(path);
			path_foreign_clear(path);
			hash_search(engine.paths, path->path, HASH_REMOVE, NULL);
		}
		engine_attended = NULL;
	}
	MemoryContextReset(engine.scratch);
}

/* ------------------------------------------------------------------------
 * Requests
 * ------------------------------------------------------------------------
 */

/* Returns the path that a request is about, and creates it if it is new. */
static Path *
path_get(const EntryRequest *request)
{
	bool  found;
	Path *path = hash_search(engine.paths, request->path, HASH_ENTER, &found);

	if (!found)
	{
		memset((char *) path + sizeof(path->path), 0, sizeof(Path) - sizeof(path->path));
		path->recipe = engine_recipes[request->kind];
		dlist_init(&path->cohorts);
		dlist_init(&path->arrivals);
	}
	return path;
}

static void
batch_add(int index)
{
	batch[nbatch++] = index;
	engine.contenders[index].ticket = entry_status(index).ticket;
}

/* Orders entries by when they asked: the marks of backends have no order. */
static int
compare_tickets(const void *a, const void *b)
{
	uint64 ticket_a = engine.contenders[*(const int *) a].ticket;
	uint64 ticket_b = engine.contenders[*(const int *) b].ticket;

	return ticket_a < ticket_b ? -1 : ticket_a > ticket_b ? 1 : 0;
}

/* Takes up what backends have asked for since the last call. */
void
engine_attend(void)
{
	nbatch = 0;
	zklock_visit_marked(entry_pool->dirty, entry_pool->max_entries, batch_add);
	qsort(batch, nbatch, sizeof(int), compare_tickets);
	if (nbatch > 0 && ZKLOCK_FAULT("fail-requests"))
		elog(ERROR, "fault: fail-requests");
	for (int i = 0; i < nbatch; i++)
	{
		Contender  *c = &engine.contenders[batch[i]];
		EntryStatus status = entry_status(batch[i]);

		switch (status.state)
		{
			case ENTRY_REQUESTED:
				ZKLOCK_SLOW("slow-requests", 400, 150);
				if (entry_take_up(batch[i]))
					contender_arrive(c, path_get(&entry_of(c)->request));
				else
					contender_forget(c);
				break;

			case ENTRY_GRANTED:
				contender_check(c);

				/* Its backend may have changed when its time is over. */
				engine.overrun_us = Min(engine.overrun_us, status.expires_us);
				if (c->place != PLACE_GRANTED || status.mode != LOCK_MODE_SHARED)
					break;

				/*
				 * It has given up the exclusive part of what it holds.  Others of this server that
				 * are next keep the cohort as it is; those to come do not.
				 */
				if (cohort_wants_downgrade(c->cohort))
					c->cohort->closed = true;
				else if (c->cohort->state != COHORT_DOWNGRADING)
					contender_downgraded(c);
				path_mark(c->path);
				break;

			case ENTRY_RELEASING:

				/* Cancelled, released, or its backend has taken note of its end */
				if (c->place == PLACE_NONE)
					contender_forget(c);
				else if (c->place != PLACE_KEEPS_NODE)
					contender_detach(c);
				break;

			default:
				break;
		}
	}
}

/* ------------------------------------------------------------------------
 * Taking over from an earlier worker
 *
 * The entries in use are read without a lock as far as they are constant or only a worker
 * writes them.
 * ------------------------------------------------------------------------
 */

/*
 * Prepares the engine, and takes over the entries in use from an earlier worker.  Their cohorts
 * are created again, each in its place, and begin where the entries say that they were.
 */
void
engine_start(void)
{
	HASHCTL paths = {.keysize = ZKLOCK_MAX_PATH + 1, .entrysize = sizeof(Path)};
	HASHCTL payers = {.keysize = sizeof(int64), .entrysize = sizeof(Account)};

	engine.scratch =
		AllocSetContextCreate(CurrentMemoryContext, "zklock round", ALLOCSET_DEFAULT_SIZES);
	engine.paths = hash_create("zklock paths", 128, &paths, HASH_ELEM | HASH_STRINGS);
	engine.accounts = hash_create("zklock accounts", 64, &payers, HASH_ELEM | HASH_BLOBS);
	engine.contenders = palloc0(entry_pool->max_entries * sizeof(Contender));
	dlist_init(&engine.marked);
	engine.chroot_len = strlen(zklock_session->info.chroot);

	batch = palloc(entry_pool->max_entries * sizeof(int));
	for (int i = 0; i < entry_pool->max_entries; i++)
	{
		if (entry_status(i).state != ENTRY_FREE)
			batch_add(i);
	}
	qsort(batch, nbatch, sizeof(int), compare_tickets);

	for (int i = 0; i < nbatch; i++)
	{
		Contender	 *c = &engine.contenders[batch[i]];
		Entry		 *entry = entry_of(c);
		EntryStatus	  status = entry_status(batch[i]);
		RecipeRequest request = contender_request(c);
		Cohort		 *cohort = NULL;
		Path		 *path;
		dlist_node	 *after;

		if (entry->node.cohort_id == 0 && status.state != ENTRY_QUEUED)
		{
			entry_mark_dirty(batch[i]);
			continue;
		}

		path = path_get(&entry->request);
		if (entry->node.cohort_id == 0)
		{
			contender_arrive(c, path);
			continue;
		}
		if (path->recipe != engine_recipes[entry->request.kind])
		{
			/* No worker leaves that behind; but an error would end each next one, too. */
			ereport(WARNING, (errmsg_internal("path \"%s\" is in use with two recipes",
											  entry->request.path)));
			(void) entry_lose(batch[i], LOSS_UNPROVED);
			entry_fail(batch[i], FAILURE_REFUSED, 0);
			contender_forget(c);
			continue;
		}
		c->path = path;
		c->next_list = path->lists_sent + 1;

		after = &path->cohorts.head;
		for (Cohort *other = cohort_first(path); other && cohort == NULL; other = cohort_after(other))
		{
			if (other->id == entry->node.cohort_id)
				cohort = other;
			else if (other->id < entry->node.cohort_id)
				after = &other->link;
		}
		if (cohort == NULL)
		{
			cohort = cohort_new(path, entry->node.cohort_id, &request);
			dlist_insert_after(after, &cohort->link);
			if (entry->node.name[0] != '\0')
			{
				/* A create was sent under this name, which has its sequence if the reply has come. */
				cohort_step(cohort, COHORT_CREATING);
				strlcpy(cohort->name, entry->node.name, sizeof(cohort->name));
				cohort->czxid = entry->node.czxid;
				cohort_charge(cohort, status.kept ? PAYER_NOBODY : entry_payer(entry));
				if (path->recipe->read(cohort->name, &cohort->peer) && cohort->peer.numbered &&
					cohort->czxid != 0)
				{
					/*
					 * Its contender may have downgraded, and the node may have been, too: the
					 * entry alone shows that.
					 */
					cohort->request.mode = cohort->peer.mode;
					cohort->downgraded = cohort->closed =
						path->recipe->downgraded_name && cohort->peer.mode == LOCK_MODE_SHARED &&
						entry->request.terms.mode == LOCK_MODE_EXCLUSIVE;
					cohort_step(cohort, COHORT_CREATED);
				}
			}
		}
		c->cohort = cohort;
		cohort->joined += Max(entry->node.grants - cohort->grants, 0);
		cohort->grants = Max(cohort->grants, entry->node.grants);

		/* Any entry with a token shows that its cohort was granted, even that of one who leaves. */
		if (status.token != 0 && cohort->state == COHORT_CREATED)
			cohort_step(cohort, COHORT_GRANTED);
		if (status.state == ENTRY_FAILED || status.state == ENTRY_LOST)
		{
			Assert(cohort->last_owner == NULL);
			cohort->last_owner = c;
			c->place = PLACE_KEEPS_NODE;
		}
		else
		{
			c->place = status.state == ENTRY_GRANTED ? PLACE_GRANTED : PLACE_WAITING;
			cohort->joined += c->place == PLACE_WAITING;
			dlist_push_tail(&cohort->queue, &c->link);
		}
		if (status.state == ENTRY_RELEASING || status.downgrading)
			entry_mark_dirty(batch[i]);
	}

	/* When all cohorts are there */
	for (int i = 0; i < nbatch; i++)
	{
		Contender *c = &engine.contenders[batch[i]];
		Cohort	  *cohort = c->cohort;
		Cohort	  *old = cohort ? cohort_replaced_for(c) : NULL;

		if (cohort == NULL)
			continue;
		if (old && !cohort->replaces && cohort->state != COHORT_CREATED && cohort->state != COHORT_GRANTED)
			tie_replacement(cohort, old);

		/* A listing will show how far the earlier worker came. */
		if (cohort_wants_downgrade(cohort))
			cohort_downgrading(cohort);
	}

	/*
	 * A worker that follows another is soon connected; calls that do not wait for others wait
	 * for that.
	 */
	engine.resume_until = zklock_now_ms() + (lease_state() == LEASE_HOLDS ? RESUME_MS : 0);
	engine.retry_at = engine.resume_until;
}
