/*
 * streak.c
 *		Nodes of ours on a path, one after the other, with nobody in between.
 *
 * A contender that is alone need not list the path if the number of its node
 * tells that it is.  ZooKeeper numbers a node by the children that its path has
 * had created so far: each counts, numbered or not, and deletions do not
 * (PrepRequestProcessor; test/t/750_numbers.pl).  So if our node follows upon our
 * last one by number, nobody has created anything in between.  And if the other
 * contenders that were older than that one are known, then so they are for the
 * new one: those that go make them fewer, and who comes has a higher number.
 *
 * A streak begins with a listing, is carried on by each such node, and ends with
 * whatever might make the numbers tell less:
 *
 *	- A gap: somebody has created a node, perhaps one that is not numbered, such
 *	  as a shared one in place of an exclusive one.  The path is listed.
 *	- The path's own node was deleted.  Its successor numbers from 0 on, and may
 *	  come to the very number.  So the node has a watch while the streak lasts:
 *	  events and answers come in the order in which things happened, so if there
 *	  was no event before the answer to a create, this is the node that it was
 *	  when the watch was set.  A node counts only if its create was answered
 *	  while the watch stood.
 *	- The path's data have changed (path_use.c), of which the watch tells too.
 *	- Another connection stands, or another session begins.
 *	- Nobody here needs the path any more while another client's contender is on
 *	  it: what is known of that is forgotten then.
 *
 * The watch costs a request, and is for paths that are locked again and again:
 * it is set for the second node of a path that is remembered (path.c), and
 * removed when that is forgotten.  Such watches have bytes of their own in the
 * packet that registers watches anew (share.h), so nobody's lock is refused for
 * the sake of a streak.
 *
 * Where other clients lock the path as well, a listing that was left out is
 * missed and costs a round trip.  So after a gap the listing is sent along with
 * the next nodes, until PATIENCE of them have come without a gap.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "fault.h"
#include "queue/streak.h"
#include "queue/watch.h"
#include "shared/share.h"
#include "zk/zk_client.h"

#define PATIENCE 4

/* What its data are, a listing is to say once more. */
static void
doubt_use(Path *path)
{
	if (path->use == PATH_USE_OTHER)
		path->use = PATH_USE_OPEN;
}

/* Nothing is known without a listing. */
void
streak_end(Path *path)
{
	path->streak.last = STREAK_NONE;
	path->streak.known = false;
}

static void
on_watched(void *arg, const ZkReply *reply)
{
	Path *path = arg;

	path->calls--;
	path_mark(path);
	doubt_use(path);
	if (reply->outcome == ZK_OK)
		watch_path_set(path, WATCH_SET);
	else
		watch_path_give_up(path, reply->watching ? WATCH_MAY_EXIST : WATCH_IS_GONE);
}

/* A node of ours is being created on the path: has the watch set if that may pay. */
void
streak_prepare(Path *path, int owner)
{
	if (path->streak.nodes == 0 || path->path_watch != WATCH_NONE ||
		path->recipe->entrance == RECIPE_LOOK_FIRST ||
		engine.path_watch_bytes + path_bytes(path, NULL) > STREAK_BUDGET)
		return;
	watch_path_set(path, WATCH_ASKED);
	path->calls++;
	zk_get(owner, path->path, ZK_WATCHED, on_watched, path);
}

/* The watch has fired. */
void
streak_watch_fired(Path *path)
{
	if (path->path_watch == WATCH_SET)
		watch_path_set(path, WATCH_NONE);
	if (!ZKLOCK_FAULT("streak-path"))
		streak_end(path);
	doubt_use(path);
}

/*
 * May a node be created without a listing behind it?  If it does not carry the
 * streak on, the listing follows.
 */
bool
streak_tells(const Path *path)
{
	return path->streak.known && path->streak.doubts == 0 && path->nforeign == 0;
}

/* A node of ours was created under that number. */
StreakStep
streak_created(Path *path, int64 sequence)
{
	Streak *streak = &path->streak;
	bool next = streak->known && (sequence == streak->last + 1 || ZKLOCK_FAULT("streak-gap"));

	if (streak->known && !next)
		streak->doubts = PATIENCE;
	else if (next && streak->doubts > 0)
		streak->doubts--;
	streak->nodes++;
	streak->known = next;
	streak->last = path->path_watch == WATCH_SET ? sequence : STREAK_NONE;
	return next ? STREAK_UNBROKEN : STREAK_BROKEN;
}

/* The path was listed, after our last node had been created. */
void
streak_listed(Path *path)
{
	path->streak.known = path->streak.last != STREAK_NONE;
}

/* Nobody here needs the path at the moment; other clients' contenders are about to be forgotten. */
void
streak_paused(Path *path)
{
	if (path->nforeign > 0 && !ZKLOCK_FAULT("streak-pause"))
		streak_end(path);
	if (path->path_watch != WATCH_SET)
		doubt_use(path);
}
