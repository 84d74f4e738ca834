/*
 * inquiry.c
 *		Is a lock merely kept, elsewhere, for which a call does not want to wait?
 *
 * A call that does not wait for other holders finds nodes of other clients.
 * Another server of ours may have one that it merely keeps (keep.c).  That can be
 * so only if the node's name says that it is of that kind, and then if its data
 * say so, which are read.  If all those in the way say so, the contender gets a
 * node, which makes their servers let go of theirs, or take the words back; it
 * waits for that at one after the other, in its place in the queue, and fails when
 * one of them is held (on_blocker_watched() in run_calls.c).
 *
 * So a lock that is held costs a call that does not wait one reading more at most,
 * and still no node, unless its holder has kept it before.
 *
 * If the other server is stopped, or cut off, its answer comes with the end of
 * its session.  The call waits for a session timeout, no longer.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/contender.h"
#include "queue/inquiry.h"
#include "shared/session_info.h"
#include "zk/zk_client.h"

/* Where more nodes are in the way, the lock counts as taken. */
#define MAX_INQUIRIES 64

typedef struct InquiryCall
{
	Path *path;
	int	  list; /* the last listing that had told when it was made */
	char *name; /* of the node */
} InquiryCall;

static Foreigner *
find_foreigner(Path *path, const char *name)
{
	for (int i = 0; i < path->nforeign; i++)
	{
		if (path->foreign[i].name && strcmp(path->foreign[i].name, name) == 0)
			return &path->foreign[i];
	}
	return NULL;
}

/* The reply to inquire().  It is no answer for contenders that came since. */
static void
on_inquired(void *arg, const ZkReply *reply)
{
	InquiryCall *call = arg;
	Path		*path = call->path;
	Foreigner *foreigner = call->list == path->lists_told ? find_foreigner(path, call->name) : NULL;

	path_mark(path);
	path->calls--;
	path->inquiring = false;
	if (reply->outcome == ZK_NO_NODE)
		path_foreign_remove(path, call->name, DEPARTURE_UNSEEN);
	else if (foreigner && reply->outcome != ZK_UNKNOWN)
		foreigner->kept = reply->outcome == ZK_OK &&
								  node_contender_tells_kept(reply->data, reply->data_length)
							  ? KEPT_PERHAPS
							  : KEPT_NOT;
	pfree(call->name);
	pfree(call);
}

/* Reads what the data of a node say. */
static void
inquire(const Contender *c, const char *name)
{
	Path		*path = c->path;
	InquiryCall *call = palloc(sizeof(InquiryCall));
	char		*node = path_node(path, name);

	*call = (InquiryCall){.path = path, .list = path->lists_told, .name = pstrdup(name)};
	path->calls++;
	path->inquiring = true;
	zk_get(entry_of(c)->request.pid, node, ZK_UNWATCHED, on_inquired, call);
	pfree(node);
}

/*
 * Is all that keeps out a contender, which has no run yet, merely kept?  What is not
 * known is asked.
 */
Inquiry
contender_inquire(const Contender *c)
{
	Path		 *path = c->path;
	RecipeRequest request = contender_request(c);
	const char	 *unknown = NULL;
	int			  n = 0;

	if (path->inquiring)
		return INQUIRY_UNDER_WAY;
	for (int i = 0; i < path->nforeign; i++)
	{
		const Foreigner *foreigner = &path->foreign[i];

		if (path->recipe->excludes && !path->recipe->excludes(&foreigner->peer, &request))
			continue;
		if (foreigner->kept == KEPT_NOT || !contender_may_ask(c, foreigner) || ++n > MAX_INQUIRIES)
			return INQUIRY_TAKEN;
		if (foreigner->kept == KEPT_UNKNOWN)
			unknown = foreigner->name;
	}
	if (n == 0)
		return INQUIRY_TAKEN; /* by this server's own */
	if (unknown == NULL)
		return INQUIRY_PERHAPS_KEPT;
	inquire(c, unknown);
	return INQUIRY_UNDER_WAY;
}

/*
 * Has a run with a contender that does not wait been without an answer for a session
 * timeout?  Until then the other's session should be over.  Whoever has written those
 * data may not be one of us.
 */
static bool
has_asked_for_long(Run *run)
{
	SessionInfo session;

	if (run->ask_until == 0)
	{
		session_info_read(&session);
		run->ask_until = zklock_now_ms() + session.negotiated_timeout;
	}
	return engine_retry_is_due(run->ask_until);
}

/* Might it be worth while for a contender that does not wait to ask what keeps it out? */
bool
contender_may_ask(const Contender *c, const Foreigner *blocker)
{
	const Recipe *recipe = c->path->recipe;

	return !entry_of(c)->request.eager && recipe->may_be_kept && blocker->name &&
		   recipe->may_be_kept(blocker->name) && !(c->run && has_asked_for_long(c->run));
}
