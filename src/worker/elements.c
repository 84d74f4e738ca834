/*
 * elements.c
 *		How the worker claims elements of queues, and lets them go.
 *
 * A claim is the ephemeral child "claim" of an element.  Its create proves that
 * the element is there and nobody else has it, and no client can delete an
 * element that has a child.  Its data are an id, which tells it from others' when
 * the reply to the create was lost.
 *
 *	ASKED		create the claim; watch it, which makes it HELD
 *	COMMITTED	multi{delete claim, delete element}
 *	GIVEN_UP	delete the claim
 *
 * What is about to be made, or deleted, is noted first (TRACE_UNSURE), and settled
 * before anything else: on a later connection the claim is there, and ours by its
 * id, so it is done again; or it is not, so it was done.  It does not matter at
 * which point a connection, a worker, or a backend was lost.
 *
 * When the ZooKeeper session ends its claims are gone.  What is held is lost then.
 * What was committed and not yet removed will be taken again, by whomever: the log
 * says so.
 *
 * Claims are charged to their session.  What all of them have must fit beside the
 * engine's nodes and watches in one packet (share.h, traps 3 and 4).
 *
 * Runs in: the worker.  shared/element.h says how elements are read and written.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/engine.h"
#include "shared/clock.h"
#include "shared/element.h"
#include "shared/stats.h"
#include "worker/elements.h"
#include "zk/zk_call.h"

#define TRY_AGAIN_MS 1000 /* until something that failed is tried again */

/* Bytes of paths: of all claims, of one session's */
#define CLAIM_BYTES (100 * 1024)
#define SESSION_BYTES (CLAIM_BYTES / 8)

/* The private part of an element, in an array with the same index */
typedef struct Work
{
	uint64 number;	 /* of the element's request; else it is not taken up */
	bool   calling;	 /* a call is not answered */
	bool   logged;	 /* that it cannot be removed */
	int64  retry_at; /* nothing is tried before, ms */
	size_t bytes;	 /* with which its session is charged */
	uint32 check;	 /* number of the check under way */
} Work;

static Work works[ELEMENTS];
static bool look_at_all; /* something has changed for more than those that are marked */

static Work *
work_of(const TakenElement *element)
{
	return &works[element_index(element)];
}

static bool
is_taken_up(const TakenElement *element)
{
	return work_of(element)->number == element->number && element->number != 0;
}

static char *
element_path(const TakenElement *element)
{
	return psprintf("%s/%s", element->path, element->name);
}

static char *
claim_path(const TakenElement *element)
{
	return psprintf("%s/%s/" ELEMENT_CLAIM, element->path, element->name);
}

/* The claim's data */
static void
format_id(char id[64], const TakenElement *element)
{
	uuid_format(id, 64, element->uuid, UUID_DIGITS_ONLY);
}

/* ------------------------------------------------------------------------
 * Replies
 * ------------------------------------------------------------------------
 */

/* A reply has come: the element is looked at again. */
static TakenElement *
reply_to(void *arg)
{
	TakenElement *element = arg;

	work_of(element)->calling = false;
	look_at_all = true;
	return element;
}

static void
try_later(TakenElement *element)
{
	work_of(element)->retry_at = zklock_now_ms() + TRY_AGAIN_MS;
	element_is_stuck(element);
}

/* Does a reply leave open what has been done?  A server that broke down may have done it. */
static bool
leaves_open(TakenElement *element, const ZkReply *reply)
{
	bool broke_down = reply->outcome == ZK_REFUSED && zk_error_is_breakdown(reply->code);

	if (broke_down)
		try_later(element);
	return broke_down || reply->outcome == ZK_UNKNOWN;
}

static bool
lose(TakenElement *element)
{
	bool lost = element_step(element, ELEMENT_HELD, ELEMENT_LOST);

	if (lost)
		stats_lost(STATS_QUEUE);
	return lost;
}

/* The claim is gone, or was never made. */
static void
claim_is_gone(TakenElement *element)
{
	element->claim = TRACE_NONE;
	if (lose(element))
		ereport(WARNING, (errmsg("process %d has lost element \"%s\" of ZooKeeper queue \"%s\": somebody deleted its claim",
								 element->pid, element->name, element->path)));
}

/* ------------------------------------------------------------------------
 * Calls
 * ------------------------------------------------------------------------
 */

/* The claim has been read: is it ours? */
static void
on_read(void *arg, const ZkReply *reply)
{
	TakenElement *element = reply_to(arg);
	char		  id[64];
	char		 *path;

	if (reply->outcome == ZK_UNKNOWN)
		return;
	if (reply->outcome != ZK_OK && reply->outcome != ZK_NO_NODE)
	{
		if (!element_fail(element, ELEMENT_FAILURE_REFUSED, reply->code))
			try_later(element);
		return;
	}
	format_id(id, element);
	if (reply->outcome == ZK_OK && reply->ephemeral_owner == element->session &&
		reply->data_length == (int) strlen(id) && memcmp(reply->data, id, reply->data_length) == 0)
	{
		element->claim = TRACE_THERE;
		(void) element_step(element, ELEMENT_ASKED, ELEMENT_HELD);
		return;
	}
	claim_is_gone(element);
	if (reply->outcome == ZK_OK)
	{
		(void) element_fail(element, ELEMENT_FAILURE_TAKEN, 0);
		path = claim_path(element);
		zk_unwatch_data(path);
		pfree(path);
	}
}

/* Reads the claim, if it exists, and has it watched, which tells if somebody deletes it. */
static void
read_claim(TakenElement *element)
{
	char *path = claim_path(element);

	work_of(element)->calling = true;
	zk_get(element->pid, path, ZK_WATCHED, on_read, element);
	pfree(path);
}

static void
on_created(void *arg, const ZkReply *reply)
{
	TakenElement *element = reply_to(arg);

	if (leaves_open(element, reply))
		return;
	element->claim = reply->outcome == ZK_OK ? TRACE_THERE : TRACE_NONE;
	if (reply->outcome == ZK_OK)
		return;
	if (reply->outcome == ZK_NO_NODE)
		(void) element_fail(element, ELEMENT_FAILURE_GONE, 0);
	else if (reply->outcome == ZK_NODE_EXISTS)
		(void) element_fail(element, ELEMENT_FAILURE_TAKEN, 0);
	else
		(void) element_fail(element, ELEMENT_FAILURE_REFUSED, reply->code);
}

static void
create_claim(TakenElement *element)
{
	char *path = claim_path(element);
	char  id[64];

	format_id(id, element);
	element->session = engine.session_id;
	element->claim = TRACE_UNSURE;
	work_of(element)->calling = true;
	zk_create(element->pid, path, id, ZK_EPHEMERAL, on_created, element);
	pfree(path);
}

static void
on_checked(void *arg, const ZkReply *reply)
{
	TakenElement *element = reply_to(arg);

	if (reply->outcome == ZK_OK)
		element_check_done(element, work_of(element)->check);
	else if (reply->outcome == ZK_NO_NODE)
		claim_is_gone(element);
}

/* Has a quorum commit that the claim is there, if its backend wants that. */
static void
check_claim(TakenElement *element)
{
	char *path;
	bool  wanted;

	SpinLockAcquire(&element->mutex);
	wanted = element->check_wanted != element->check_done;
	work_of(element)->check = element->check_wanted;
	SpinLockRelease(&element->mutex);
	if (!wanted)
		return;
	path = claim_path(element);
	work_of(element)->calling = true;
	zk_check(element->pid, path, on_checked, element);
	pfree(path);
}

/* Claim and element are gone, or not. */
static void
on_removed(void *arg, const ZkReply *reply)
{
	TakenElement *element = reply_to(arg);
	Work		 *work = work_of(element);

	if (leaves_open(element, reply))
		return;
	element->claim = TRACE_THERE;
	if (reply->outcome == ZK_OK || reply->outcome == ZK_NO_NODE)
		element->claim = TRACE_NONE;
	else
	{
		try_later(element);
		if (!work->logged)
			ereport(LOG, (errmsg("could not remove element \"%s\" of ZooKeeper queue \"%s\", which a committed transaction has taken: %s",
								 element->name, element->path, zk_error_name(reply->code)),
						  errdetail("It is tried again; until then the element stays taken.")));
		work->logged = true;
	}
}

static void
remove_element(TakenElement *element)
{
	char *claim = claim_path(element);
	char *path = element_path(element);

	element->claim = TRACE_UNSURE;
	work_of(element)->calling = true;
	zk_delete_both(element->pid, claim, path, on_removed, element);
	pfree(claim);
	pfree(path);
}

static void
on_returned(void *arg, const ZkReply *reply)
{
	TakenElement *element = reply_to(arg);

	if (leaves_open(element, reply))
		return;
	element->claim = TRACE_NONE;
	if (reply->outcome != ZK_OK && reply->outcome != ZK_NO_NODE)
	{
		element->claim = TRACE_THERE;
		try_later(element);
	}
}

static void
return_element(TakenElement *element)
{
	char *claim = claim_path(element);

	element->claim = TRACE_UNSURE;
	work_of(element)->calling = true;
	zk_delete(element->pid, claim, on_returned, element);
	pfree(claim);
}

/* ------------------------------------------------------------------------
 * What comes next
 * ------------------------------------------------------------------------
 */

/* Takes the next step for an element, if there is one. */
static void
attend(TakenElement *element)
{
	Work		*work = work_of(element);
	ElementState state = element_state(element);
	bool		 ends = state == ELEMENT_COMMITTED || state == ELEMENT_GIVEN_UP;

	if (!is_taken_up(element) || work->calling || work->retry_at > zklock_now_ms())
		return;
	work->retry_at = 0;
	if (ends && element->claim == TRACE_NONE)
	{
		work->bytes = 0;
		element_free(element);
	}
	else if (!zk_client_connected())
		return;
	else if (element->claim == TRACE_UNSURE || (state == ELEMENT_ASKED && element->claim == TRACE_THERE))
		read_claim(element);
	else if (state == ELEMENT_ASKED)
		create_claim(element);
	else if (state == ELEMENT_HELD)
		check_claim(element);
	else if (state == ELEMENT_COMMITTED)
		remove_element(element);
	else if (element->claim == TRACE_THERE)
		return_element(element);
}

/* Charges a session with a claim; refuses it if that is too much. */
static void
take_up(TakenElement *element)
{
	size_t bytes =
		engine.chroot_len + strlen(element->path) + ELEMENT_NAME_SIZE + sizeof(ELEMENT_CLAIM) + 8;
	size_t all = 0;
	size_t own = 0;

	for (int i = 0; i < ELEMENTS; i++)
	{
		all += works[i].bytes;
		if (element_pool->elements[i].pid == element->pid)
			own += works[i].bytes;
	}
	*work_of(element) = (Work){.number = element->number};
	if (all + bytes > CLAIM_BYTES || own + bytes > SESSION_BYTES)
		(void) element_fail(element, ELEMENT_FAILURE_SESSION_FULL, 0);
	else
		work_of(element)->bytes = bytes;
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

static TakenElement *arrived[ELEMENTS];
static int			 narrived;

/* A backend has marked an element. */
static void
visit(TakenElement *element)
{
	ElementState state = element_state(element);

	if (!is_taken_up(element) && state != ELEMENT_FREE && state != ELEMENT_RESERVED)
		arrived[narrived++] = element;
	else
		attend(element);
}

static int
compare_numbers(const void *a, const void *b)
{
	uint64 x = (*(TakenElement *const *) a)->number;
	uint64 y = (*(TakenElement *const *) b)->number;

	return x < y ? -1 : x > y ? 1 : 0;
}

/* Takes up what has come, in the order of asking. */
static void
take_up_arrived(void)
{
	qsort(arrived, narrived, sizeof(arrived[0]), compare_numbers);
	for (int i = 0; i < narrived; i++)
	{
		take_up(arrived[i]);
		attend(arrived[i]);
	}
	narrived = 0;
}

/* When something is to be tried again, ms; or -1. */
int64
worker_elements_next_wakeup(void)
{
	int64 next = -1;

	for (int i = 0; i < ELEMENTS; i++)
	{
		if (works[i].retry_at > 0)
			next = next < 0 ? works[i].retry_at : Min(next, works[i].retry_at);
	}
	return next;
}

/* Does what comes next for all elements to which something has happened. */
void
worker_elements_attend(void)
{
	int64 retry_at = worker_elements_next_wakeup();

	/* What is read must be no older than the connection. */
	if (zk_client_connected() && !engine.synced)
		return;
	element_visit_dirty(visit);
	take_up_arrived();
	if (!look_at_all && (retry_at < 0 || zklock_now_ms() < retry_at))
		return;

	look_at_all = false;
	for (int i = 0; i < ELEMENTS; i++)
		attend(&element_pool->elements[i]);
}

/* ------------------------------------------------------------------------
 * The session
 * ------------------------------------------------------------------------
 */

/* A watch has fired: is it that of a claim of ours? */
void
worker_elements_watch(ZkWatchEvent event, const char *path)
{
	const char *name = strrchr(path, '/') + 1;

	if (strcmp(name, ELEMENT_CLAIM) != 0)
		return;
	for (int i = 0; i < ELEMENTS; i++)
	{
		TakenElement *element = &element_pool->elements[i];
		char		 *claim;

		if (!is_taken_up(element) || element->claim != TRACE_THERE)
			continue;
		claim = claim_path(element);
		if (strcmp(claim, path) == 0 && event == ZK_WATCH_DELETED)
			claim_is_gone(element);
		else if (strcmp(claim, path) == 0 && event == ZK_WATCH_CHANGED)
			element->claim = TRACE_UNSURE;
		pfree(claim);
		look_at_all = true;
	}
}

/* The ZooKeeper session in which the claim was made is over. */
static void
end_session_of(TakenElement *element)
{
	if (element->claim == TRACE_NONE)
		return;
	if (element_state(element) == ELEMENT_COMMITTED)
		ereport(WARNING,
				(errmsg("element \"%s\" of ZooKeeper queue \"%s\" was taken by a transaction that committed, and may not have been removed",
						element->name, element->path),
				 errdetail("The ZooKeeper session ended first. If the element is still there it is taken again, with the same token.")));
	element->claim = TRACE_NONE;
	(void) lose(element);
}

/* A connection stands, of the session before or of a new one. */
void
worker_elements_connected(void)
{
	for (int i = 0; i < ELEMENTS; i++)
	{
		TakenElement *element = &element_pool->elements[i];

		if (is_taken_up(element) && element->session != engine.session_id)
			end_session_of(element);
	}
	look_at_all = true;
}

/* The session is over, and all its nodes with it. */
void
worker_elements_session_ended(void)
{
	for (int i = 0; i < ELEMENTS; i++)
	{
		if (is_taken_up(&element_pool->elements[i]))
			end_session_of(&element_pool->elements[i]);
	}
	look_at_all = true;
}

/* ZooKeeper refuses our credentials: so are all for whom nothing is decided. */
void
worker_elements_refused(int code)
{
	for (int i = 0; i < ELEMENTS; i++)
		(void) element_fail(&element_pool->elements[i], ELEMENT_FAILURE_REFUSED, code);
}

/* Takes over what an earlier worker has left. */
void
worker_elements_start(void)
{
	for (int i = 0; i < ELEMENTS; i++)
	{
		TakenElement *element = &element_pool->elements[i];

		/* What is noted as there may be gone by now, and this worker has no watches. */
		if (element->claim == TRACE_THERE)
			element->claim = TRACE_UNSURE;
		visit(element);
	}
	take_up_arrived();
}

/* ------------------------------------------------------------------------
 * The end
 * ------------------------------------------------------------------------
 */

/* Has every backend given its elements back? */
bool
worker_elements_released(void)
{
	for (int i = 0; i < ELEMENTS; i++)
	{
		ElementState state = element_state(&element_pool->elements[i]);

		if (state != ELEMENT_FREE && state != ELEMENT_COMMITTED && state != ELEMENT_GIVEN_UP)
			return false;
	}
	return true;
}

/* Are all elements gone that committed transactions have taken? */
bool
worker_elements_settled(void)
{
	for (int i = 0; i < ELEMENTS; i++)
	{
		if (element_state(&element_pool->elements[i]) == ELEMENT_COMMITTED)
			return false;
	}
	return true;
}
