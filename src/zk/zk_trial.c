/*
 * zk_trial.c
 *		Trying other servers and credentials beside the session that runs.
 *
 * A trial is a second handle of the client library with a session of its own,
 * which disturbs nothing and in which nothing is written.  It stands when a
 * server has answered a read under the new credentials.  Then the worker may
 * read nodes in it, to see whether this is the ensemble it knows.
 *
 *		NONE -> RUNNING			zk_trial_begin()
 *		RUNNING -> STANDS		an answer
 *		RUNNING -> FAILED		no answer in time, or a refusal
 *		any -> NONE				zk_trial_end(), which closes the session in a
 *								thread of its own
 *
 * Runs in: the worker's main loop, but for the callbacks of the library's
 * threads, which push events only.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "zk/zk_handle.h"
#include "zk/zk_trial.h"

/* What an EVENT_TRIAL tells of, in Event.call. */
enum
{
	TRIAL_SESSION,
	TRIAL_ANSWER, /* to the first read */
	TRIAL_NODE	  /* to zk_trial_get() */
};

static ZkTrialState	  state = ZK_TRIAL_NONE;
static zhandle_t	 *handle;
static uintptr_t	  epoch = ZK_TRIAL_EPOCH; /* of the last trial */
static ZkClientConfig config;
static int64		  deadline; /* ms */
static int			  patience; /* ms */
static bool			  chroot_exists;
static int			  closing; /* handles of earlier trials */
static char			  fault[ZKLOCK_ERROR_SIZE];
static ZkReplyHandler get_handler; /* NULL: nothing is being read */

/* ------------------------------------------------------------------------
 * The library's threads
 * ------------------------------------------------------------------------
 */

static void
push(int what, int code, const struct Stat *stat, uintptr_t of)
{
	Event event = {.kind = EVENT_TRIAL, .call = what, .code = code, .epoch = of};

	if (stat)
	{
		event.stat.czxid = stat->czxid;
		event.stat.ephemeral_owner = stat->ephemeralOwner;
	}
	zk_event_push(&event);
}

static void
on_event(zhandle_t *zh, int type, int session_state, const char *path, void *context)
{
	(void) zh;
	(void) path;
	if (type == ZOO_SESSION_EVENT)
		push(TRIAL_SESSION, session_state, NULL, (uintptr_t) context);
}

static void
on_answer(int code, const struct Stat *stat, const void *context)
{
	(void) stat;
	push(TRIAL_ANSWER, code, NULL, (uintptr_t) context);
}

static void
on_node(int code, const char *value, int len, const struct Stat *stat, const void *context)
{
	(void) value;
	(void) len;
	push(TRIAL_NODE, code, code == ZOK ? stat : NULL, (uintptr_t) context);
}

/* The library needs one. */
static void
on_synced(int code, const char *path, const void *context)
{
	(void) code;
	(void) path;
	(void) context;
}

static void
on_log(const char *message)
{
	zk_handle_push_log(message, ZK_TRIAL_EPOCH);
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

static void
fail(const char *why)
{
	state = ZK_TRIAL_FAILED;
	strlcpy(fault, why, sizeof(fault));
}

static void
open_handle(const char *servers)
{
	ZkHandleOptions options = {.servers = servers,
							   .session_timeout = config.session_timeout,
							   .epoch = epoch,
							   .watcher = on_event,
							   .log = on_log};

	handle = zk_handle_open(&options);
	if (handle == NULL)
		fail("the client library does not take \"zklock.servers\"");
}

/*
 * Begins a trial; there must be none.  Only servers, session_timeout and
 * credentials of the configuration matter.  It fails if nothing has answered
 * after "patience_ms".
 */
void
zk_trial_begin(const ZkClientConfig *config_, int patience_ms)
{
	char resolved[ZKLOCK_SERVERS_SIZE * 4];

	Assert(state == ZK_TRIAL_NONE);
	config = *config_;
	epoch++;
	patience = patience_ms;
	deadline = zklock_now_ms() + patience_ms;
	chroot_exists = false;
	fault[0] = '\0';
	get_handler = NULL;
	state = ZK_TRIAL_RUNNING;
	if (connect_string_resolve(&config.servers, true, resolved, sizeof(resolved)))
		open_handle(resolved);
	else if (!zk_event_resolve(&config.servers, epoch))
		fail("no thread could be started to resolve server names");
}

/* How the trial goes. */
ZkTrialState
zk_trial_state(void)
{
	if (state == ZK_TRIAL_RUNNING && zklock_now_ms() >= deadline)
	{
		char why[ZKLOCK_ERROR_SIZE];

		snprintf(why, sizeof(why), "no server in \"zklock.servers\" has answered in %d s%s%s",
				 patience / 1000, fault[0] != '\0' ? ": " : "", fault);
		fail(why);
	}
	return state;
}

/* Why a trial has failed: part of a sentence. */
const char *
zk_trial_fault(void)
{
	return fault;
}

/* Once it stands: does the chroot exist, if there is one? */
bool
zk_trial_chroot_exists(void)
{
	return chroot_exists;
}

/* Once it stands: the session timeout that ZooKeeper has granted, ms. */
int
zk_trial_timeout(void)
{
	return zoo_recv_timeout(handle);
}

/*
 * Once it stands: reads a node, after all that has been committed before.  The
 * handler is called once, unless the trial ends before.  One node at a time.
 */
void
zk_trial_get(const char *path, ZkReplyHandler handler)
{
	Assert(get_handler == NULL);
	get_handler = handler;
	if (zoo_async(handle, "/", on_synced, NULL) != ZOK ||
		zoo_awget(handle, path, NULL, NULL, on_node, (const void *) epoch) != ZOK)
		push(TRIAL_NODE, ZCONNECTIONLOSS, NULL, epoch);
}

/* Ends the trial, if there is one, and its session. */
void
zk_trial_end(void)
{
	if (handle)
	{
		closing++;
		zk_handle_close_apart(handle, epoch);
		handle = NULL;
	}
	explicit_bzero(&config, sizeof(config));
	state = ZK_TRIAL_NONE;
}

/* Are handles of trials being closed? */
bool
zk_trial_closing(void)
{
	return closing > 0;
}

/* When the trial wants to be looked at, ms; or -1. */
int64
zk_trial_next_wakeup(void)
{
	return state == ZK_TRIAL_RUNNING ? deadline : -1;
}

static void
on_session(int session_state)
{
	if (session_state == ZOO_CONNECTED_STATE)
	{
		if (config.auth_scheme[0] != '\0')
		{
			(void) zoo_add_auth(handle, config.auth_scheme, config.auth_credentials,
								strlen(config.auth_credentials), NULL, NULL);
			explicit_bzero(config.auth_scheme, sizeof(config.auth_scheme));
			explicit_bzero(config.auth_credentials, sizeof(config.auth_credentials));
		}
		if (state == ZK_TRIAL_RUNNING)
			(void) zoo_aexists(handle, "/", 0, on_answer, (const void *) epoch);
	}
	else if (session_state == ZOO_AUTH_FAILED_STATE)
		fail("ZooKeeper refuses the credentials in \"zklock.auth_file\"");
	else if (session_state == ZOO_EXPIRED_SESSION_STATE)
		fail("what answers at \"zklock.servers\" is not ZooKeeper");
}

static void
on_first_answer(int code)
{
	if (state != ZK_TRIAL_RUNNING)
		return;
	if (code == ZK_REQUIRES_AUTH)
		fail("ZooKeeper demands other credentials than those in \"zklock.auth_file\"");
	else if (zk_error_outcome(code) != ZK_UNKNOWN)
	{
		state = ZK_TRIAL_STANDS;
		chroot_exists = code != ZNONODE;
	}
}

/* Something has happened to a handle of this or an earlier trial. */
void
zk_trial_event(const Event *event)
{
	if (event->kind == EVENT_LOG)
	{
		char *sentence;

		ereport(DEBUG1, (errmsg_internal("ZooKeeper client on trial: %s", event->text)));
		if (state != ZK_TRIAL_RUNNING || event->code != ZOO_LOG_LEVEL_ERROR)
			return;
		sentence = zk_error_sentence(event->text, false);
		strlcpy(fault, sentence, sizeof(fault));
		pfree(sentence);
		return;
	}
	if (event->kind == EVENT_CLOSED)
	{
		closing--;
		return;
	}
	if (event->epoch != epoch || state == ZK_TRIAL_NONE)
		return;
	if (event->kind == EVENT_RESOLVED)
	{
		if (event->code)
			open_handle(event->text);
		else
			fail("no server name in \"zklock.servers\" could be resolved");
	}
	else if (event->call == TRIAL_SESSION)
		on_session(event->code);
	else if (event->call == TRIAL_ANSWER)
		on_first_answer(event->code);
	else if (get_handler)
	{
		ZkReplyHandler handler = get_handler;
		ZkReply		   reply = {.outcome = zk_error_outcome(event->code), .code = event->code};

		reply.czxid = event->stat.czxid;
		reply.ephemeral_owner = event->stat.ephemeral_owner;
		get_handler = NULL;
		handler(NULL, &reply);
	}
}
