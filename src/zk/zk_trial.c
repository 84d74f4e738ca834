/*
 * zk_trial.c
 *		Trying other servers and credentials beside the session that runs.
 *
 * A trial is a second handle of the client library with a session of its own,
 * which disturbs nothing and in which nothing is written.  It stands when a
 * server has answered a read under the new credentials.  Then the worker may
 * read nodes in it, to see whether this is the ensemble it knows.
 *
 *        NONE ---------> RUNNING ---------> STANDS
 *             begun         |    answered     |
 *                    failed |                 | failed
 *                           '----> FAILED <---'
 *
 *        each of these: ended -> NONE
 *
 *	RUNNING	names are looked up, a handle connects, an answer is waited for; for
 *			a bounded time in all
 *	STANDS	a server has answered; nodes may be read
 *	FAILED	no answer came in time, or a refusal, or one that makes no sense
 *
 * An answer that makes no sense costs the trial alone: nothing that depends on
 * its connection could be lost.
 *
 * A trial that has ended leaves a handle behind, which a thread closes.  (If a
 * server does not go on with TLS's handshake, that takes until it hangs up.)
 *
 * Runs in: the worker's main loop, but for the log function, which the library's
 * threads call and which pushes events only.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/clock.h"
#include "zk/zk_ask.h"
#include "zk/zk_callback.h"
#include "zk/zk_handle.h"
#include "zk/zk_log.h"
#include "zk/zk_lookup.h"
#include "zk/zk_trial.h"

static ZkTrialState	  state = ZK_TRIAL_NONE;
static zhandle_t	 *handle;
static uintptr_t	  last_number = ZK_OF_TRIAL; /* given to a handle, a read or a question */
static uintptr_t	  handle_number;			 /* of this trial, and of its lookup */
static uintptr_t	  first_read;
static uintptr_t	  node_read;
static uintptr_t	  tls_question; /* why TLS fails; or 0 */
static char			  servers[CONNECT_STRING_RESOLVED_SIZE];
static ZkReplyHandler node_handler; /* for the answer to node_read */
static ZkClientConfig config;
static int64		  deadline; /* ms */
static int			  patience; /* ms */
static bool			  chroot_exists;
static int			  closing; /* handles of earlier trials */
static char			  fault[ZKLOCK_ERROR_SIZE];

/* The library's threads */
static void
on_log(const char *message)
{
	zk_log_push(message, ZK_OF_TRIAL);
}

/* ------------------------------------------------------------------------
 * The arrows
 * ------------------------------------------------------------------------
 */

static void
begun(const ZkClientConfig *config_, int patience_ms)
{
	Assert(state == ZK_TRIAL_NONE);
	state = ZK_TRIAL_RUNNING;
	config = *config_;
	patience = patience_ms;
	deadline = zklock_now_ms() + patience_ms;
	chroot_exists = false;
	fault[0] = '\0';
	tls_question = 0;
}

/* "code" is that of the first read, which was of the chroot. */
static void
answered(int code)
{
	Assert(state == ZK_TRIAL_RUNNING);
	state = ZK_TRIAL_STANDS;
	chroot_exists = code != ZNONODE;
}

/* "why" is part of a sentence. */
static void
failed(const char *why)
{
	Assert(state == ZK_TRIAL_RUNNING || state == ZK_TRIAL_STANDS);
	state = ZK_TRIAL_FAILED;
	strlcpy(fault, why, sizeof(fault));
}

static void
ended(void)
{
	if (handle)
	{
		closing++;
		zk_handle_close_apart(handle, handle_number);
		handle = NULL;
	}
	explicit_bzero(&config, sizeof(config));
	node_handler = NULL;
	state = ZK_TRIAL_NONE;
}

/* An answer makes no sense; "why" says so as a sentence. */
static void
failed_malformed(const char *why)
{
	char text[ZKLOCK_ERROR_SIZE];

	snprintf(text, sizeof(text), "a server in \"zklock.servers\" gives a malformed answer: %s", why);
	failed(text);
}

/* ------------------------------------------------------------------------
 * For the worker
 * ------------------------------------------------------------------------
 */

static void
open_handle(const char *addresses)
{
	ZkHandleOptions options = {.servers = addresses, .config = &config, .number = handle_number, .log = on_log};

	strlcpy(servers, addresses, sizeof(servers));
	handle = zk_handle_open(&options);
	if (handle == NULL)
		failed("the client library does not take \"zklock.servers\"");
}

/*
 * Begins a trial; there must be none.  Only servers, session_timeout and
 * credentials of the configuration matter.  It fails if nothing has answered
 * after "patience_ms".
 */
void
zk_trial_begin(const ZkClientConfig *config_, int patience_ms)
{
	char addresses[CONNECT_STRING_RESOLVED_SIZE];

	begun(config_, patience_ms);
	handle_number = ++last_number;
	switch (zk_lookup(&config.servers, handle_number, addresses, sizeof(addresses)))
	{
		case ZK_LOOKUP_DONE:
			open_handle(addresses);
			break;
		case ZK_LOOKUP_BEGUN:
			break;
		case ZK_LOOKUP_FAILED:
			failed("no thread could be started to resolve server names");
			break;
	}
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
		failed(why);
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
 * handler is called once, unless the trial ends before; with ZK_UNKNOWN if the
 * trial has failed.  One node at a time.
 */
void
zk_trial_get(const char *path, ZkReplyHandler handler)
{
	Assert(state == ZK_TRIAL_STANDS && node_handler == NULL);
	node_handler = handler;
	node_read = ++last_number;

	/* The library needs a completion even where nobody waits for the answer. */
	if (zoo_async(handle, "/", zk_callback_synced, zk_callback_context(++last_number)) != ZOK ||
		zoo_awget(handle, path, NULL, NULL, zk_callback_data, zk_callback_context(node_read)) != ZOK)
	{
		Event event = {.kind = EVENT_REPLY, .number = node_read, .code = ZCONNECTIONLOSS};

		zk_event_push(&event, EVENT_AT_ONCE);
	}
}

/* Ends the trial, if there is one, and its session. */
void
zk_trial_end(void)
{
	ended();
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

/* ------------------------------------------------------------------------
 * Events
 * ------------------------------------------------------------------------
 */

/* The library says that it is connected: asks for an answer. */
static void
handle_connected(void)
{
	const char *wrong =
		zk_answer_session_fault(zoo_client_id(handle)->client_id, zoo_recv_timeout(handle));

	if (wrong)
	{
		failed_malformed(wrong);
		return;
	}
	(void) zk_handle_show_credentials(handle, &config);
	if (state != ZK_TRIAL_RUNNING)
		return;
	first_read = ++last_number;
	(void) zoo_aexists(handle, "/", 0, zk_callback_stat, zk_callback_context(first_read));
}

static void
handle_session(int library_state)
{
	if (library_state == ZOO_CONNECTED_STATE)
		handle_connected();
	else if (library_state == ZOO_AUTH_FAILED_STATE)
		failed("ZooKeeper refuses the credentials in \"zklock.auth_file\"");
	else if (library_state == ZOO_EXPIRED_SESSION_STATE)
		failed("what answers at \"zklock.servers\" is not ZooKeeper");
}

static void
handle_first_answer(int code)
{
	const char *wrong = zk_answer_code_fault(code);

	if (state != ZK_TRIAL_RUNNING)
		return;
	if (wrong)
		failed_malformed(wrong);
	else if (code == ZK_REQUIRES_AUTH)
		failed("ZooKeeper demands other credentials than those in \"zklock.auth_file\"");
	else if (zk_error_outcome(code) != ZK_UNKNOWN)
		answered(code);
}

/* The answer to zk_trial_get() */
static void
handle_node(const Event *event)
{
	ZkReplyHandler handler = node_handler;
	ZkReply		   reply = {.outcome = zk_error_outcome(event->code), .code = event->code};
	const char	  *wrong = zk_answer_code_fault(event->code);

	if (wrong == NULL && reply.outcome == ZK_OK)
		wrong = zk_answer_stat_fault(&event->stat);
	if (wrong && state == ZK_TRIAL_STANDS)
		failed_malformed(wrong);
	if (state != ZK_TRIAL_STANDS)
		reply.outcome = ZK_UNKNOWN;
	reply.czxid = event->stat.czxid;
	reply.ephemeral_owner = event->stat.ephemeral_owner;
	node_handler = NULL;
	handler(NULL, &reply);
}

static void
handle_log(const Event *event)
{
	char *sentence;

	if (!zk_log_is_complaint(event) || state != ZK_TRIAL_RUNNING)
		return;
	sentence = zk_error_sentence(event->text, ZK_CONNECTION_NEW);
	strlcpy(fault, sentence, sizeof(fault));
	pfree(sentence);
	if (config.tls != ZK_TLS_OFF && tls_question == 0)
	{
		tls_question = ++last_number;
		(void) zk_ask_about_tls(servers, config.tls, tls_question);
	}
}

/* The answer to why TLS fails: NULL if something else is wrong. */
static void
handle_asked(const Event *event)
{
	tls_question = 0;
	if (event->text && state == ZK_TRIAL_RUNNING)
		failed(event->text);
}

static void
handle_looked_up(const char *addresses)
{
	if (addresses)
		open_handle(addresses);
	else
		failed("no server name in \"zklock.servers\" could be resolved");
}

/* Something has happened to a handle of this or an earlier trial. */
void
zk_trial_event(const Event *event)
{
	bool is_open = state == ZK_TRIAL_RUNNING || state == ZK_TRIAL_STANDS;

	switch (event->kind)
	{
		case EVENT_LOG:
			handle_log(event);
			break;
		case EVENT_CLOSED:
			closing--;
			break;
		case EVENT_LOOKED_UP:
			if (is_open && event->number == handle_number)
				handle_looked_up(event->text);
			break;
		case EVENT_SESSION:
			if (is_open && event->number == handle_number)
				handle_session(event->code);
			break;
		case EVENT_REPLY:
			if (is_open && event->number == first_read)
				handle_first_answer(event->code);
			else if (node_handler && event->number == node_read)
				handle_node(event);
			break;
		case EVENT_ASKED:
			if (event->number == tls_question)
				handle_asked(event);
			break;
		case EVENT_WATCH: /* none is set */
			break;
	}
}
