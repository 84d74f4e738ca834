/*
 * watch.c
 *		What the engine learns of a path: listings of its children, and watches that report
 *		the end of a node.
 *
 * The handlers in this file store what they learn, in the path and its cohorts, and mark the
 * path; path_pump_marked() has it acted upon.
 *
 * Listings
 * --------
 *
 * A listing shows the contenders of other clients, and whether our own nodes are there.
 * Replies come in the order of the requests, so a cohort whose node is known when a listing
 * comes in was created before the listing was made; if the listing does not show the node,
 * someone else has deleted it.  A reusable name is taken for our node's until that has
 * been read.
 *
 * A path belongs to one kind of thing.  A claim is in the data of the path's own node, where
 * contenders have nothing.  Each listing contains the length of the data, at no cost.  The
 * data are read only if there are any, and nothing is granted before the reply.  If they are
 * a claim's, all who wait on the path are refused, and their nodes go.  Other data do not
 * matter, and are not read again while somebody uses the path.
 *
 * Watches
 * -------
 *
 * Someone else might delete a node of ours, and its holder must hear of it.  While the child
 * watch stands, it reports any change below the path; when that has fired, the node gets a
 * watch of its own.  So an uncontended lock needs no request for one.  A cohort that waits for
 * another client's contender watches that contender's node.  A holder about to commit may
 * also have a quorum asked for its node.
 *
 * Reusable names
 * ----------------
 *
 * Hive's names, those of elections with names "zookeeper", and the one name of an element's
 * claim are given again when a path, or node, has been deleted and created again.  What goes
 * by such a name proves nothing: a listing, a child watch, whose event is used up by anything
 * else, or an event of an earlier connection, which reports a change where one node has taken
 * the place of another.  The node is the cohort's if it has been read on this connection, is
 * our session's, and has the cohort's czxid (cohort_owns()): no two nodes of a name have the
 * same.  The read sets a watch on the node, so from its reply on we hear of the node's end
 * before anything that follows.  A new connection makes that void.  Until then
 *
 *	- nobody is granted under the node (cohort_next_step());
 *	- those behind it wait, as it may be another client's, even if nobody is in its cohort's
 *	  queue any more (find_blocker());
 *	- it is not deleted or replaced (cohort_identify()).
 *
 * It does not matter whose it was when the path was listed: if it is ours now it was ours
 * then, as our nodes are listed after their creation.
 *
 * ZooKeeper's check goes by the name, too, and a new node has the version 0 like the one
 * before.  So when a check was committed, the node is looked at once more.  The reply is of
 * a state that includes the check: a session's requests are executed in their order, and a
 * server with an older state does not accept our connection.  If it shows our node, with the
 * czxid with which it was created, then the node was there when the check was committed, too,
 * as an old czxid never comes back.
 *
 * engine_internal.h draws a watch's life.  path.c says what its bytes are counted for.
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
#include "shared/call.h"
#include "shared/session_info.h"
#include "zk/zk_client.h"

/* A path whose last listing showed so many children has long ones; the first counts as short. */
#define LONG_LISTING 1000

/* Between messages about orphans whose deletion is refused */
#define REFUSED_PAUSE_MS 60000

PG_USED_FOR_ASSERTS_ONLY static const bool watch_steps[][WATCH_REFUSED + 1] = {
	[WATCH_NONE] = {[WATCH_ASKED] = true, [WATCH_SET] = true, [WATCH_REFUSED] = true},
	[WATCH_ASKED] = {[WATCH_NONE] = true, [WATCH_SET] = true, [WATCH_REFUSED] = true},
	[WATCH_SET] = {[WATCH_NONE] = true},
	[WATCH_REFUSED] = {[WATCH_NONE] = true, [WATCH_ASKED] = true},
};

/* ------------------------------------------------------------------------
 * Room for nodes and watches
 * ------------------------------------------------------------------------
 */

/*
 * Returns true if there is room for so many bytes of nodes, or 0, and of watches beside those of
 * kept nodes, to serve this request; without one, the reserve may be used, too.
 */
static bool
packet_has_room(size_t nodes, size_t watches, const Entry *entry)
{
	bool   open = entry == NULL || entry->request.reserve == RESERVE_OPEN;
	size_t budget = open ? PACKET_BUDGET : PACKET_BUDGET - PACKET_RESERVE;
	size_t kept = kept_share_of_watches(entry_pool->nspare) - KEPT_WATCH_BYTES_LEFT;

	if (nodes > 0 ? engine.node_bytes + nodes > budget : ZKLOCK_FAULT("watches-full"))
		return false;
	return engine.watch_bytes + watches + kept <= budget + engine.kept_watch_bytes;
}

/* Returns FAILURE_NONE if there is room for a node on the path, and its watches. */
Failure
path_has_room(const Path *path, const Entry *entry)
{
	size_t		   bytes = path_cost(path, NULL) + ZKLOCK_NODE_SIZE;
	int64		   payer = entry_payer(entry);
	const Account *account = hash_search(engine.accounts, &payer, HASH_FIND, NULL);

	if (bytes + (account ? account->bytes : 0) >
		share_of_bytes(entry->request.share, entry_pool->limit))
		return FAILURE_SHARE_FULL;
	return packet_has_room(bytes, 3 * bytes, entry) ? FAILURE_NONE : FAILURE_SESSION_FULL;
}

static bool
watch_exists(WatchState state)
{
	return state == WATCH_ASKED || state == WATCH_SET;
}

/* Moves a watch to a state, unless it is in that, and counts its bytes. */
static void
watch_set(WatchState *watch, WatchState state, size_t bytes)
{
	if (*watch == state)
		return;
	Assert(watch_steps[*watch][state]);
	if (!watch_exists(*watch) && watch_exists(state))
		engine.watch_bytes += bytes;
	else if (watch_exists(*watch) && !watch_exists(state))
		engine.watch_bytes -= bytes;
	*watch = state;
}

static void
watch_child_set(Path *path, WatchState state)
{
	watch_set(&path->child_watch, state, path_cost(path, NULL));
}

void
watch_own_set(Cohort *cohort, WatchState state)
{
	watch_set(&cohort->own_watch, state, path_cost(cohort->path, cohort->name));
}

/* Sets the state of the watch on the blocker, whose name is forgotten with the watch. */
static void
watch_blocker_set(Cohort *cohort, WatchState state)
{
	watch_set(&cohort->blocker_watch, state, path_cost(cohort->path, cohort->blocker));
	if (!watch_exists(state))
	{
		pfree(cohort->blocker);
		cohort->blocker = NULL;
	}
}

/* ------------------------------------------------------------------------
 * Watches that are not needed any more
 * ------------------------------------------------------------------------
 */

/* Gives the child watch up, and has it removed if it is set. */
void
watch_child_give_up(Path *path)
{
	if (path->child_watch == WATCH_SET)
	{
		/* Queue waits there lose the watch, too. */
		zk_call((ZkCall){.kind = ZK_UNWATCH_CHILDREN, .path = path->path}, NULL, NULL);
		queue_wait_wake(path->path, strlen(path->path));
	}
	watch_child_set(path, WATCH_NONE);
}

/* Returns true if a cohort of the path watches that child: its own node, or its blocker. */
static bool
watch_is_needed(const Path *path, const char *child)
{
	for (const Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if ((watch_exists(cohort->own_watch) && strcmp(cohort->name, child) == 0) ||
			(cohort->blocker && strcmp(cohort->blocker, child) == 0))
			return true;
	}
	return false;
}

/*
 * Has the watch on a child of the path removed, unless a cohort needs it.  Queue waits, which
 * may watch a claim, lose it, too.
 */
static void
watch_remove(const Path *path, const char *child)
{
	if (watch_is_needed(path, child))
		return;
	zk_call((ZkCall){.kind = ZK_UNWATCH_DATA, .path = path_node(path, child)}, NULL, NULL);
	if (path->recipe->fixed_name)
		queue_wait_wake(path->path, strrchr(path->path, '/') - path->path);
}

/* Gives the watch on the blocker up, and has it removed if it is set. */
void
watch_blocker_give_up(Cohort *cohort, WatchState state)
{
	char *blocker = MemoryContextStrdup(engine.scratch, cohort->blocker);
	bool  is_set = cohort->blocker_watch == WATCH_SET;

	watch_blocker_set(cohort, state);
	if (is_set)
		watch_remove(cohort->path, blocker);
}

/* ------------------------------------------------------------------------
 * Other clients' contenders
 * ------------------------------------------------------------------------
 */

static void
foreign_free(ForeignContender *foreign)
{
	pfree(foreign->name);
	if (foreign->data)
		pfree(foreign->data);
}

/* Forgets what is known of other clients' contenders. */
void
path_foreign_clear(Path *path)
{
	for (int i = 0; i < path->nforeign; i++)
		foreign_free(&path->foreign[i]);
	if (path->foreign)
		pfree(path->foreign);
	path->foreign = NULL;
	path->nforeign = 0;
}

/*
 * Removes another client's contender, which is gone.  A cohort looks again that would wait for
 * the downgraded node of an exclusive one, the shared node that may have replaced it.  While
 * the child watch stands, nothing but this deletion has happened, so there is none (node.c).
 */
static void
path_foreign_remove(Path *path, const char *name, bool may_be_downgraded)
{
	const Recipe *recipe = path->recipe;

	for (int i = 0; i < path->nforeign; i++)
	{
		ForeignContender *gone = &path->foreign[i];
		RecipePeer		  downgraded = gone->peer;

		if (strcmp(gone->name, name) != 0)
			continue;
		downgraded.mode = LOCK_MODE_SHARED;
		if (may_be_downgraded && path->child_watch != WATCH_SET && recipe->downgraded_name &&
			gone->peer.mode == LOCK_MODE_EXCLUSIVE)
		{
			for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
			{
				if (cohort->state == COHORT_CREATED && recipe->excludes(&downgraded, &cohort->request))
					cohort->listed = false;
			}
		}
		foreign_free(gone);
		*gone = path->foreign[--path->nforeign];
		return;
	}
}

/*
 * Reports another client's node if that client does not wait for what a session of ours
 * writes.  It does not matter which of them came first.  One line is written for each path and
 * kind of client.
 */
static void
report_if_heedless(const Path *path, const char *name, const RecipeRequest *request)
{
	RecipeHeedless why;

	if (!path->recipe->heedless(name, request, &why) || !report_once(WARNING, path, why.theirs))
		return;
	ereport(WARNING,
			(errmsg("clients that do not wait for each other lock ZooKeeper path \"%s\"", path->path),
			 errdetail("Sessions of this server write names of dialect \"%s\". Node \"%s\" has one of dialect \"%s\", whose clients, other than zklock, do not wait for those: both may hold the lock at once.",
					   why.ours, name, why.theirs),
			 errhint("Set \"zklock.path_dialects\" to '%s=%s' on all servers%s", path->path,
					 why.theirs, why.remedy ? why.remedy : ".")));
}

/* ------------------------------------------------------------------------
 * Listings
 * ------------------------------------------------------------------------
 */

/* Handles the data of a path, which may be a claim's. */
static void
on_data_read(void *arg, const ZkReply *reply)
{
	Path *path = arg;

	path_mark(path);
	path->calls--;

	/* Data that we may not read are no reason to refuse. */
	path->use = reply->outcome == CALL_UNKNOWN || reply->outcome == CALL_NO_NODE ? PATH_USE_OPEN
																				 : PATH_USE_OTHER;
	if (reply->outcome == CALL_OK && claim_record_recognised(reply->data, reply->data_length))
	{
		path->use = PATH_USE_OPEN;
		path->refusal = (Refusal){FAILURE_IS_CLAIMS, 0};
	}
}

/*
 * Marks a node of ours among the names of a listing, which are in order.  Returns true if it
 * is there.
 */
static bool
listing_tick_off(const char *node, char **names, bool *ours, int n)
{
	char **found = n > 0 ? bsearch(&node, names, n, sizeof(char *), pg_qsort_strcmp) : NULL;

	if (found)
		ours[found - names] = true;
	return found != NULL;
}

/* Handles the reply to path_list(). */
static void
on_listed(void *arg, const ZkReply *reply)
{
	Path			 *path = arg;
	const Recipe	 *recipe = path->recipe;
	ForeignContender *before = path->foreign;
	int				  nbefore = path->nforeign;
	int				  n = reply->nchildren;
	char			**names = reply->children;
	bool			 *ours;
	dlist_iter		  iter;

	path->calls--;
	path->lists_done++;
	path->unseen &= reply->outcome == CALL_UNKNOWN;
	path_mark(path);
	if (reply->asked->watch && path->child_watch != WATCH_SET)
	{
		watch_child_set(path, reply->watching ? WATCH_SET : WATCH_NONE);
		if (reply->outcome != CALL_OK)
			watch_child_give_up(path);
	}
	if (reply->outcome == CALL_UNKNOWN)
		return;
	if (reply->outcome != CALL_OK && reply->outcome != CALL_NO_NODE)
	{
		path->refusal = (Refusal){FAILURE_REFUSED, reply->code};
		for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
		{
			if (cohort->state == COHORT_DOWNGRADING)
				cohort->retry_at = zklock_now_ms() + RETRY_MS;
		}
		return;
	}
	path->lists_shown = path->lists_done;
	path->nchildren = reply->nchildren;

	/* The data of the path, if there are any, may be a claim's. */
	if (!path->recipe->fixed_name && path->use == PATH_USE_OPEN && reply->outcome == CALL_OK &&
		reply->stat.data_length > 0 && reply->stat.data_length < CLAIM_RECORD_SIZE &&
		zk_connection >= ZK_CONNECTED)
	{
		path->use = PATH_USE_ASKED;
		path->calls++;
		zk_call((ZkCall){.kind = ZK_GET_DATA, .owner = reply->asked->owner, .path = path->path},
				on_data_read, path);
	}

	/* Which nodes of ours are there, and other clients' contenders */
	ours = palloc0(Max(n, 1) * sizeof(bool));
	qsort(names, n, sizeof(char *), pg_qsort_strcmp);
	for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (!cohort_has_node(cohort))
			continue;
		cohort->listed = listing_tick_off(cohort->name, names, ours, n);

		/* If its downgraded node is there instead, that has taken its place. */
		if (cohort->state == COHORT_DOWNGRADING &&
			listing_tick_off(cohort->downgraded_name, names, ours, n) && !cohort->listed)
			cohort->listed = cohort->downgraded = true;
		if (!cohort->listed && cohort->state != COHORT_DELETING)
			cohort_note_end(cohort, END_DELETED);
	}

	path->nforeign = 0;
	path->foreign = n > 0 ? palloc0(n * sizeof(ForeignContender)) : NULL;
	for (int i = 0; i < n; i++)
	{
		ForeignContender *foreign = &path->foreign[path->nforeign];
		int64_t			  number;

		if (ours[i])
			continue;
		if (recipe->read(names[i], &foreign->peer))
		{
			foreign->name = pstrdup(names[i]);
			foreign->seen_at = zklock_now_ms();
			path->nforeign++;
			continue;
		}

		/*
		 * The recipe does not know the name.  One that ends in a sequence may be meant as a
		 * contender; others, such as paths below this one, are not.
		 */
		if (node_name_has_sequence(names[i]) && report_once(LOG, path, "unrecognised"))
			ereport(LOG,
					(errmsg("ignoring child \"%s\" of %s path \"%s\"", names[i], recipe->name, path->path),
					 errdetail("Its name is not one that a known %s recipe writes.", recipe->name)));

		/* Where elements of a queue are, nothing is locked. */
		if (!recipe->fixed_name && element_name_read(names[i], &number))
			path->refusal = (Refusal){FAILURE_IS_QUEUE, 0};
	}
	pfree(ours);

	/* Since when a candidate has stood, and its data, stay known; the new ones are in order. */
	for (int i = 0; i < nbefore; i++)
	{
		ForeignContender *still = NULL;

		if (recipe == &election_recipe && path->nforeign > 0)
			still = bsearch(&before[i].name, path->foreign, path->nforeign,
							sizeof(ForeignContender), pg_qsort_strcmp);
		if (still)
		{
			still->seen_at = before[i].seen_at;
			still->asked = before[i].asked;
			still->data = before[i].data;
			before[i].data = NULL;
		}
		foreign_free(&before[i]);
	}
	if (before)
		pfree(before);

	/* Newcomers must not join a cohort behind which another client waits. */
	for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (!cohort_has_node(cohort) || cohort->state == COHORT_DELETING)
			continue;
		for (int i = 0; recipe->excludes && i < path->nforeign; i++)
			cohort->closed |= path->foreign[i].peer.sequence > cohort->peer.sequence &&
							  recipe->excludes(&path->foreign[i].peer, &cohort->request);
	}
	if (path->nforeign > 0)
		kept_visited(path);

	/* Clients that do not wait for those that this server has on the path are reported. */
	for (int i = 0; path->recipe->heedless && i < path->nforeign; i++)
	{
		for (const Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
		{
			if (cohort_head(cohort) != NULL)
				report_if_heedless(path, path->foreign[i].name, &cohort->request);
		}
		dlist_foreach (iter, &path->arrivals)
		{
			RecipeRequest request = contender_request(dlist_container(Contender, link, iter.cur));

			report_if_heedless(path, path->foreign[i].name, &request);
		}
	}
}

/* Lists the path's children, on behalf of a session. */
void
path_list(Path *path, ZkOwner owner, ListWatch watch)
{
	path->calls++;
	path->lists_sent++;
	if (watch == LIST_AND_WATCH)
		path->lists_watching = path->lists_sent;
	if (watch == LIST_AND_WATCH && path->child_watch == WATCH_NONE)
		watch_child_set(path, WATCH_ASKED);
	zk_call((ZkCall){.kind = ZK_GET_CHILDREN,
					 .owner = owner,
					 .path = path->path,
					 .watch = watch == LIST_AND_WATCH,
					 .bulky = path->nchildren >= LONG_LISTING},
			on_listed, path);
}

/* ------------------------------------------------------------------------
 * The watch on our own node
 * ------------------------------------------------------------------------
 */

/*
 * Returns true if the node that was read by the cohort's name exists and is the cohort's.  If
 * it is not, the cohort's is gone.
 */
bool
cohort_confirm(Cohort *cohort, const ZkReply *reply)
{
	if (reply->outcome == CALL_OK && cohort_owns(cohort, &reply->stat))
		return true;
	if (reply->outcome == CALL_OK)
		cohort_note_end(cohort, END_NAME_REUSED);
	else if (reply->outcome == CALL_NO_NODE)
		cohort_note_end(cohort, END_MISSING);
	return false;
}

/*
 * Handles the reply about our own node, which is read to set a watch on it, or looked at
 * because it cannot be watched.
 */
static void
on_own_read(void *arg, const ZkReply *reply)
{
	Cohort	   *cohort = arg;
	const Path *path = cohort->path;
	bool		watch = reply->asked->watch;
	bool		ours = cohort_call_end(cohort) &&
				strcmp(path_node(path, cohort->name), reply->asked->path) == 0;

	/* If a downgraded node has taken its place meanwhile, this is about the node before. */
	if (ours && watch && reply->outcome == CALL_REFUSED)
	{
		/*
		 * For the time being no watch can report the node's end.  ZooKeeper before 3.9.3 shows
		 * all the same whose the node is; a reusable name is of no use without that.
		 */
		cohort->own_watch_at = zklock_now_ms() + RETRY_MS;
		watch_own_set(cohort, cohort->reusable ? WATCH_ASKED : WATCH_REFUSED);
		if (cohort->reusable)
			cohort_call(cohort, (ZkCall){.kind = ZK_EXISTS, .path = path_node(path, cohort->name)},
						on_own_read);
		return;
	}
	if (ours)
	{
		ours = cohort_confirm(cohort, reply);
		watch_own_set(cohort, !ours ? WATCH_NONE : watch ? WATCH_SET : WATCH_REFUSED);
	}
	if (ours && watch && node_contender_is_broken(reply->data, reply->data_length))
		entries_expect_deletion(cohort->id, LOSS_BROKEN);

	/* If the name is another client's by now, so is the watch that was set. */
	if (!ours && watch && reply->outcome == CALL_OK)
		watch_remove(path, strrchr(reply->asked->path, '/') + 1);
}

/*
 * Makes sure that we hear of it if someone deletes the cohort's node.  The child watch does
 * while it stands, unless the name is reusable.  But it fires when the contender goes for
 * which the cohort waits, and nothing is to be asked then, so a cohort that waits for another
 * client has a watch of its own, when it is known that the other one has not gone already: if
 * it has, a listing follows.  A session that may not delete its node does not see from the
 * reply whether the node still exists, and needs the watch in any case.
 */
void
watch_own(Cohort *cohort)
{
	Path *path = cohort->path;
	bool  covered =
		!(cohort->state == COHORT_DELETING && cohort->refused) && !cohort->reusable &&
		(cohort->blocker ? cohort->blocker_watch == WATCH_ASKED : watch_exists(path->child_watch));

	if (watch_exists(cohort->own_watch) || covered || !engine_await(cohort->own_watch_at))
		return;
	if (!packet_has_room(0, path_cost(path, cohort->name), NULL))
	{
		/* Who holds something keeps it.  Nobody else is granted under the node meanwhile. */
		cohort->own_watch_at = zklock_now_ms() + RETRY_MS;
		(void) engine_await(cohort->own_watch_at);
		return;
	}
	watch_own_set(cohort, WATCH_ASKED);
	cohort_call(cohort,
				(ZkCall){.kind = ZK_GET_DATA, .path = path_node(path, cohort->name), .watch = true},
				on_own_read);
}

/* ------------------------------------------------------------------------
 * Nodes that our session has left behind
 * ------------------------------------------------------------------------
 */

/* Handles the reply to the deletion of an orphan. */
static void
on_orphan_deleted(void *arg, const ZkReply *reply)
{
	static int64 log_at; /* no message before, ms */

	const char *node = reply->asked->path;

	if (reply->outcome == CALL_OK)
		ereport(LOG, (errmsg("deleted ZooKeeper node \"%s\", which this server left behind", node)));
	else if (reply->outcome != CALL_NO_NODE && reply->outcome != CALL_UNKNOWN && zklock_now_ms() >= log_at)
	{
		log_at = zklock_now_ms() + REFUSED_PAUSE_MS;
		ereport(LOG, (errmsg("could not delete ZooKeeper node \"%s\": %s", node,
							 zk_error(reply->code).name),
					  errdetail("This server left it behind; it blocks others, and the deletion is repeated.")));
	}
}

/*
 * Deletes a node that is in the way of others and our session's, unless a cohort has it, or may
 * yet find that it has.  It was left behind by mistake and would block us for ever, so it is
 * looked at again as long as it is there.
 */
static void
orphan_delete(Path *path, const char *name)
{
	if (ZKLOCK_FAULT("orphan") || zk_connection < ZK_CONNECTED)
		return;
	if (path->orphans_at == 0)
		path->orphans_at = zklock_now_ms() + RETRY_MS;
	for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (cohort->state == COHORT_CREATING || strcmp(cohort->name, name) == 0 ||
			strcmp(cohort->downgraded_name, name) == 0)
			return;
	}
	zk_call((ZkCall){.kind = ZK_DELETE, .path = path_node(path, name)}, on_orphan_deleted, NULL);
}

static void on_owner_read(void *arg, const ZkReply *reply);

/* Looks whose the next of other clients' contenders is. */
static void
orphan_look_at_next(Path *path, ZkOwner owner)
{
	const char *name = path->foreign[path->orphans_next++].name;

	path->calls++;
	zk_call((ZkCall){.kind = ZK_EXISTS, .owner = owner, .path = path_node(path, name)},
			on_owner_read, path);
}

/*
 * Handles the reply to orphan_look_at_next(), and goes on with the one behind it.  The round ends
 * early if nobody is left who could wait.  A listing that comes meanwhile may have a few left
 * out; the next round finds them.
 */
static void
on_owner_read(void *arg, const ZkReply *reply)
{
	Path *path = arg;

	path->calls--;
	if (reply->outcome == CALL_OK && reply->stat.ephemeral_owner == engine.session_id)
		orphan_delete(path, strrchr(reply->asked->path, '/') + 1);
	if (path->orphans_next < path->nforeign && cohort_first(path) && zk_connection >= ZK_CONNECTED)
	{
		orphan_look_at_next(path, reply->asked->owner);
		return;
	}
	path->orphans_at = zklock_now_ms() + RETRY_MS;
	path->orphans_next = 0;
	path_mark(path);
}

/*
 * Looks for orphans of ours among other clients' contenders, on behalf of a cohort that has
 * waited for long: one that watches none of them by itself, or has found one.  Others decide
 * how many there are, so they are looked at one after the other, for all cohorts of the path,
 * and each reply leads to the next look without a look at the path.
 */
void
watch_for_orphans(const Cohort *cohort)
{
	Path *path = cohort->path;

	if (path->orphans_at == 0)
		path->orphans_at = zklock_now_ms() + RETRY_MS;
	if (!engine_await(path->orphans_at))
		return;
	path->orphans_at = NEVER;
	orphan_look_at_next(path, cohort_owner(cohort));
}

/* ------------------------------------------------------------------------
 * Candidates behind a leader
 * ------------------------------------------------------------------------
 */

/* Handles the reply to watch_candidates(). */
static void
on_candidate_read(void *arg, const ZkReply *reply)
{
	Path	   *path = arg;
	const char *name = strrchr(reply->asked->path, '/') + 1;

	path->calls--;
	path_mark(path);
	if (reply->outcome == CALL_NO_NODE)
		path_foreign_remove(path, name, false);
	for (int i = 0; i < path->nforeign; i++)
	{
		ForeignContender *candidate = &path->foreign[i];

		if (strcmp(candidate->name, name) != 0)
			continue;
		candidate->asked = reply->outcome != CALL_UNKNOWN;

		/* Data that we may not read, and such as zklock does not write, tell no priority. */
		if (candidate->asked && candidate->data == NULL)
			candidate->data = reply->outcome == CALL_OK && reply->data_length > 0 &&
									  reply->data_length < ZKLOCK_NODE_DATA_SIZE
								  ? pnstrdup(reply->data, reply->data_length)
								  : pstrdup("");
	}
}

/*
 * Has the data of the candidates behind a leader read, which tell their priorities: once for
 * each, and one after the other, since others decide how many there are.
 */
void
watch_candidates(Path *path)
{
	ForeignContender *next = NULL;

	for (int i = 0; i < path->nforeign; i++)
	{
		if (path->foreign[i].asked && path->foreign[i].data == NULL)
			return;
		if (!path->foreign[i].asked)
			next = &path->foreign[i];
	}
	if (next == NULL)
		return;
	next->asked = true;
	path->calls++;
	zk_call((ZkCall){.kind = ZK_GET_DATA, .path = path_node(path, next->name)},
			on_candidate_read, path);
}

/* ------------------------------------------------------------------------
 * The watch on another client's contender
 * ------------------------------------------------------------------------
 */

/* Handles the reply about the predecessor, which is read to set a watch on it. */
static void
on_blocker_watched(void *arg, const ZkReply *reply)
{
	Cohort *cohort = arg;
	Path   *path = cohort->path;

	if (cohort->state != COHORT_GONE && reply->outcome == CALL_OK)
	{
		int64 owner = reply->stat.ephemeral_owner;
		bool  ended = false; /* it is a session of ours that has */

		for (int i = 0; i < ZKLOCK_ENDED_SESSIONS; i++)
			ended |= owner != 0 && zklock_session->ended[i] == owner;
		watch_blocker_set(cohort, WATCH_SET);
		cohort->blocker_announces = node_contender_has_version(reply->data, reply->data_length);
		if (owner == engine.session_id)
			orphan_delete(path, cohort->blocker);
		else if (ended)
		{
			char subject[32];

			/*
			 * It has outlived its session, which was one of ours.  Right after the end of a
			 * session that may be so for a moment.
			 */
			snprintf(subject, sizeof(subject), "stale " INT64_FORMAT, reply->stat.czxid);
			if (report_once(LOG, path, subject))
				ereport(LOG,
						(errmsg("node \"%s\" of lock \"%s\" belongs to ZooKeeper session 0x%llx of this server, which has ended",
								cohort->blocker, path->path, (unsigned long long) owner),
						 errhint("If it does not go away by itself, zk_break_lock() removes it.")));
		}
	}
	else
	{
		if (reply->outcome == CALL_NO_NODE)
			path_foreign_remove(path, cohort->blocker, true);
		if (reply->watching)
			watch_blocker_set(cohort, WATCH_SET);
		watch_blocker_give_up(cohort, reply->outcome == CALL_REFUSED ? WATCH_REFUSED : WATCH_NONE);
	}
	(void) cohort_call_end(cohort);
}

/*
 * Watches another client's contender, for which a cohort waits.  Returns false if there is no
 * room for the watch.
 */
bool
watch_blocker(Cohort *cohort, const char *name)
{
	if (cohort->blocker)
	{
		/* If it is another one, the reply or event will bring us back. */
		if (strcmp(cohort->blocker, name) == 0 || cohort->blocker_watch == WATCH_ASKED)
			return true;
		watch_blocker_set(cohort, WATCH_NONE);
	}
	if (!packet_has_room(0, path_cost(cohort->path, name), entry_of(cohort_head(cohort))))
		return false;
	cohort->blocker = pstrdup(name);
	watch_blocker_set(cohort, WATCH_ASKED);
	cohort_call(cohort,
				(ZkCall){.kind = ZK_GET_DATA, .path = path_node(cohort->path, name), .watch = true},
				on_blocker_watched);
	return true;
}

/* ------------------------------------------------------------------------
 * Watch events
 * ------------------------------------------------------------------------
 */

/* Returns the path of which a node is a child, or NULL. */
static Path *
path_of_child(const char *node, const char *child)
{
	char *parent = pnstrdup(node, child - 1 - node);
	Path *path = path_find(parent);

	pfree(parent);
	return path;
}

/* Handles a watch that has fired on a path, or on a child of one. */
void
engine_watch(ZkWatchEvent event, const char *name)
{
	Path	   *path = path_find(name);
	const char *child = strrchr(name, '/') + 1;
	bool		may_be_downgraded = true;

	ZKLOCK_SLOW("slow-writes", 120, 150);

	/* The path itself has changed: its children, or it is gone. */
	if (path && event != ZK_WATCH_CHANGED)
	{
		bool ours = false;

		/* Calls that were refused may work now, or no longer be needed. */
		for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
		{
			ours |= cohort->node_calls > 0;
			cohort->retry_at = 0;
		}
		if (path->child_watch == WATCH_SET)
		{
			watch_child_set(path, WATCH_NONE);
			path->unseen = true;

			/*
			 * Somebody has come or gone, unless that was a node of ours: the event precedes the
			 * answer to the call.
			 */
			if (!ours)
				kept_visited(path);
		}
		path_mark(path);
	}
	path = event == ZK_WATCH_CHILDREN ? NULL : path_of_child(name, child);
	if (path == NULL)
		return;

	/* A child of the path, ours or another client's, has changed or is gone. */
	engine_attended = path->path;
	for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
	{
		if (cohort->blocker && strcmp(cohort->blocker, child) == 0 && cohort->blocker_watch == WATCH_SET)
		{
			if (cohort->blocker_announces && event == ZK_WATCH_DELETED)
				may_be_downgraded = false;
			else if (cohort->blocker_announces)
				cohort->listed = false; /* look who has taken its place */
			watch_blocker_set(cohort, WATCH_NONE);
		}
		if (cohort_has_node(cohort) && strcmp(cohort->name, child) == 0)
		{
			watch_own_set(cohort, WATCH_NONE);
			if (event == ZK_WATCH_DELETED)
				cohort_note_end(cohort, END_MISSING);
		}
	}
	if (event == ZK_WATCH_DELETED)
		path_foreign_remove(path, child, may_be_downgraded);
	path_mark(path);
	engine_attended = NULL;
}

/* Returns true if the engine needs the watch that such a call would remove. */
bool
engine_needs_watch(const ZkCall *removal)
{
	const char *child = strrchr(removal->path, '/') + 1;
	const Path *path = path_find(removal->path);

	if (removal->kind == ZK_UNWATCH_CHILDREN)
		return path && (watch_exists(path->child_watch) || path->lists_watching > path->lists_done);
	path = path_of_child(removal->path, child);
	return path && watch_is_needed(path, child);
}

/*
 * Forgets what listings showed: the cohorts' nodes must be seen again before anything is
 * granted, and those whose names are reusable be read again.  With a new handle, watches are
 * gone as well.
 */
void
watch_forget(Forget what)
{
	HASH_SEQ_STATUS status;
	Path		   *path;

	hash_seq_init(&status, engine.paths);
	while ((path = hash_seq_search(&status)) != NULL)
	{
		path->lists_shown = 0;
		if (what == FORGET_WATCHES)
			watch_child_set(path, WATCH_NONE);
		for (Cohort *cohort = cohort_first(path); cohort; cohort = cohort_after(cohort))
		{
			cohort->listed = cohort->identified = false;
			if (what == FORGET_WATCHES || cohort->reusable)
			{
				watch_own_set(cohort, WATCH_NONE);
				cohort->own_watch_at = 0;
			}
			if (what == FORGET_WATCHES && cohort->blocker)
				watch_blocker_set(cohort, WATCH_NONE);
		}
	}
}

/* ------------------------------------------------------------------------
 * Proof for a commit
 * ------------------------------------------------------------------------
 */

static void on_checked(void *arg, const ZkReply *reply);

/* Asks about the node of the cohort that is checked, which goes by its name as it is now. */
static void
ask_for_proof(Contender *c, ZkOperation kind)
{
	Cohort *cohort = c->checked;

	cohort->calls++;
	cohort->path->calls++;
	zk_call((ZkCall){.kind = kind,
					 .owner = entry_owner(entry_of(c)),
					 .path = path_node(cohort->path, cohort->name)},
			on_checked, c);
}

/*
 * Handles the reply to a check, and to the look at a node of a reusable name that follows it.
 * If the node has passed, reports that to the session that asked.  If a downgraded node has
 * taken its place, the session asks again.
 */
static void
on_checked(void *arg, const ZkReply *reply)
{
	Contender *c = arg;
	Cohort	  *cohort = c->checked;
	Entry	  *entry = entry_of(c);
	bool	   reusable = cohort->reusable;
	bool	   is_node = cohort_call_end(cohort) &&
				   strcmp(path_node(cohort->path, cohort->name), reply->asked->path) == 0;
	bool is_asker = entry_generation(entry_index(c)) == c->check_generation;
	bool passed;

	if (reply->asked->kind == ZK_EXISTS)
		passed = is_node && cohort_confirm(cohort, reply);
	else if (reply->outcome == CALL_OK && is_node && reusable)
	{
		ask_for_proof(c, ZK_EXISTS);
		return;
	}
	else
	{
		passed = reply->outcome == CALL_OK && !reusable;
		if (reply->outcome == CALL_NO_NODE && is_node)
			cohort_note_end(cohort, END_MISSING);
	}

	if (passed && is_asker)
	{
		SpinLockAcquire(&entry->mutex);
		entry->status.check_done = c->check_number;
		SpinLockRelease(&entry->mutex);
		entry_set_owner_latch(entry);
	}

	/* Another number may have been asked for meanwhile, perhaps by another session. */
	c->checked = NULL;
	if (!is_asker || entry_status(entry_index(c)).check_wanted != c->check_number)
		contender_check(c);
}

/*
 * Asks a quorum whether the node of a holder about to commit exists, if its session wants to
 * know.  A session may ask again as often as it likes, so one check for an entry is under way
 * at a time.  If the reply is lost, this is called again for the new connection.
 */
void
contender_check(Contender *c)
{
	EntryStatus status;

	if (c->place != PLACE_GRANTED || c->checked || zk_connection < ZK_CONNECTED)
		return;
	status = entry_status(entry_index(c));
	if (status.check_wanted == status.check_done)
		return;

	c->checked = c->cohort;
	c->check_generation = entry_generation(entry_index(c));
	c->check_number = status.check_wanted;
	ask_for_proof(c, ZK_CHECK);
}
