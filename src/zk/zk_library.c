/*
 * zk_library.c
 *		The client library of ZooKeeper: its handles, threads and events, and calls and
 *		answers in its terms.
 *
 * A handle runs two threads of the library, which must not call PostgreSQL.  They, and two of
 * our own, which look names up and close handles, pass nothing to the main loop but events: they
 * copy what they have into an Event (malloc) and append it to a queue under a mutex.  The main
 * loop takes the whole queue at once.  Only the main loop calls the library.
 *
 * PostgreSQL's signal handlers must run in the main thread only.  A thread inherits the
 * signal mask of its creator, so all signals are blocked while we or the client library
 * create one (trap 9).
 *
 * Runs in: the worker; the main thread unless a function says otherwise.  Other
 * threads call nothing of PostgreSQL.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "compat.h"
#include "fault.h"
#include "shared/common.h"
#include "zk/zk_internal.h"

#ifndef ZOO_NO_LOG_CLIENTENV /* as in 3.4, which Ubuntu 22.04 has */
#error "zklock needs the C client library of ZooKeeper 3.7 or later"
#endif

#define CLOSE_WAIT_MS 1500 /* the library's, for the answer to a close */
#define STAMP_OPS 3		   /* see zk_library_send() */

StaticAssertDecl(ZKLOCK_PASSWORD_SIZE == sizeof(((clientid_t *) 0)->passwd),
				 "size of a ZooKeeper session's password");

/*
 * Where the library stores the answer to creates of sequential nodes in one multi.  It may
 * write late, or never, so the completion function frees this, and not the caller.
 */
typedef struct ZkCreates
{
	const void	   *context; /* of the request */
	zoo_op_result_t results[ZK_MULTI_MAX + STAMP_OPS];
	struct Stat		stat; /* of the stamp, if there is one */
	int				npaths;
	char paths[FLEXIBLE_ARRAY_MEMBER][ZKLOCK_MAX_PATH + 256]; /* of the new nodes, with NULs */
} ZkCreates;

ZkClientCallbacks zk_callbacks;
zhandle_t		 *zk_handle;
uintptr_t		  zk_handle_number;

static const struct ACL_vector *new_nodes_acl; /* the handle's */

/* ------------------------------------------------------------------------
 * Events, from threads to the main loop
 * ------------------------------------------------------------------------
 */

/*
 * A wake-up costs more than the handling of most events, so threads wake the main loop,
 * by an eventfd that it waits for, only when it sleeps:
 *
 *	- Before it sleeps, the main loop asks zk_event_may_sleep(), which sets
 *	  "asleep" if the queue is empty.
 *	- A thread that appends an event and finds "asleep" clears it and writes to the
 *	  eventfd.
 *	- The main loop clears it when it takes the queue.
 *
 * No wake-up can be lost, because the mutex makes each of these one step.  If an event is
 * appended before the main loop asks, the main loop finds it and does not sleep.  If it is
 * appended later, its thread finds "asleep" set, and wakes the main loop.  If it is not
 * set any more, either another thread has cleared it since, and has written or is about
 * to write, or the main loop has taken the queue since, and will ask again.  A write that
 * comes when the main loop is awake for another reason makes it look once more, for
 * nothing.
 *
 * Some events can wait for another one that is known to follow at once: the answer to a
 * create, which is followed by that to its listing, and the watch events of our own
 * deletions (below), which are followed by the answer to the deletion.  They do not wake
 * the main loop, which finds them when it looks next.  If nothing follows, it looks when
 * the call has waited for too long (zk_client_send()).  With 16 sessions on a path each,
 * the main loop wakes up 1.25 times for a lock; 1.5 times if the events of our own deletions
 * wake it.  All processes together take 11 to 13 us for each switch between threads.
 */
static pthread_mutex_t queue_mutex = PTHREAD_MUTEX_INITIALIZER;
static Event		  *queue_head;	  /* under queue_mutex */
static Event		  *queue_tail;	  /* under queue_mutex */
static bool			   queue_broken;  /* under queue_mutex: out of memory */
static bool			   asleep;		  /* under queue_mutex: the main loop must be woken */
static int			   queue_fd = -1; /* eventfd; constant once threads run */

/*
 * When we delete a node, the watches on it and on its parent fire, ours as well.  Such an
 * event, an echo, comes ahead of the answer to the deletion and contains nothing that the
 * answer does not contain.
 *
 * Deletions under way are counted by a hash of the two paths.  The event of another path
 * with the same hash is handled when the deletion is answered: a little later, but never
 * lost, because each call is answered exactly once (zk_client.c).
 */
#define ECHO_SLOTS 4096

static uint16 echoes[ECHO_SLOTS]; /* under queue_mutex; zk_client.c bounds the calls */

/* Any thread, under queue_mutex: returns the counter of a path of "len" bytes, by FNV-1a. */
static uint16 *
echoes_of(const char *path, size_t len)
{
	uint32 hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char) path[i]) * 16777619u;
	return &echoes[(hash ^ hash >> 16) % ECHO_SLOTS];
}

/*
 * Prepares the client; called once per process.
 *
 * Returns a descriptor that wakes the main loop when it sleeps; see zk_event_may_sleep().
 */
int
zk_client_start(const ZkClientCallbacks *callbacks)
{
	zk_callbacks = *callbacks;

	/* Hides the system's authorities from TLS (zk_security.c), before there are threads. */
	(void) setenv("SSL_CERT_FILE", "/dev/null", 1);
	(void) setenv("SSL_CERT_DIR", "/dev/null", 1);

	queue_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (queue_fd < 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not create eventfd: %m")));
	return queue_fd;
}

/*
 * Any thread: appends a copy of the event.  The receiver owns what it points to.  Never
 * fails: zk_event_take_all() reports a lack of memory.
 */
static void
push_event(const Event *event)
{
	Event *copy = malloc(sizeof(Event));
	uint64 one = 1;
	bool   can_wait;
	bool   wake;

	pthread_mutex_lock(&queue_mutex);
	if (copy == NULL)
		queue_broken = true;
	else
	{
		*copy = *event;
		copy->next = NULL;
		if (queue_tail)
			queue_tail->next = copy;
		else
			queue_head = copy;
		queue_tail = copy;
	}
	can_wait = event->can_wait || (event->kind == EVENT_WATCH && event->text &&
								   *echoes_of(event->text, strlen(event->text)) > 0);
	wake = asleep && (!can_wait || copy == NULL);
	if (wake)
		asleep = false;
	pthread_mutex_unlock(&queue_mutex);

	/* If the eventfd is full, the write fails, but then it is readable already. */
	if (wake && write(queue_fd, &one, sizeof(one)) < 0)
		return;
}

/* Main thread: counts a deletion of a node that is under way (1), or no more (-1). */
void
zk_event_expect_echo(const char *deleted, int change)
{
	pthread_mutex_lock(&queue_mutex);
	*echoes_of(deleted, strlen(deleted)) += change;
	*echoes_of(deleted, strrchr(deleted, '/') - deleted) += change;
	pthread_mutex_unlock(&queue_mutex);
}

/*
 * Main thread: returns true if it may sleep.  The descriptor, which the last wake-up may have left
 * readable, then becomes so when there is an event to take.
 */
bool
zk_event_may_sleep(void)
{
	bool   may;
	bool   failed;
	uint64 count;

	pthread_mutex_lock(&queue_mutex);
	may = asleep = queue_head == NULL && !queue_broken;
	failed = may && read(queue_fd, &count, sizeof(count)) < 0 && errno != EAGAIN;
	pthread_mutex_unlock(&queue_mutex);
	if (failed)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not read from eventfd: %m")));
	return may;
}

/*
 * Main thread: takes all events, and returns them as a list in their order, or NULL.  The caller
 * frees them, and what they point to.
 */
Event *
zk_event_take_all(void)
{
	Event *events;
	bool   broken;

	pthread_mutex_lock(&queue_mutex);
	asleep = false;
	events = queue_head;
	queue_head = queue_tail = NULL;
	broken = queue_broken;
	pthread_mutex_unlock(&queue_mutex);
	if (broken || (events && ZKLOCK_FAULT("no-memory")))
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	return events;
}

/* ------------------------------------------------------------------------
 * Threads of our own
 * ------------------------------------------------------------------------
 */

/* Blocks all signals but one, or all if that is 0.  Stores the former mask. */
static void
block_signals(int spared, sigset_t *former)
{
	sigset_t blocked;

	sigfillset(&blocked);
	if (spared != 0)
		sigdelset(&blocked, spared);
	pthread_sigmask(SIG_SETMASK, &blocked, former);
}

/*
 * Starts a detached thread, which then owns "arg".  Returns false if that fails; the
 * caller still owns "arg" then.
 */
static bool
start_thread(void *(*body)(void *arg), void *arg)
{
	pthread_t thread;
	sigset_t  former;
	bool	  started;

	block_signals(0, &former);
	started = pthread_create(&thread, NULL, body, arg) == 0;
	pthread_sigmask(SIG_SETMASK, &former, NULL);
	if (started)
		pthread_detach(thread);
	return started;
}

/* The argument of the thread that looks up names */
typedef struct Lookup
{
	uintptr_t number;
	char	  servers[ZKLOCK_SERVERS_SIZE];
} Lookup;

/* The main function of the thread that looks up names */
static void *
lookup_main(void *arg)
{
	Lookup *lookup = arg;
	Event	event = {.kind = EVENT_LOOKED_UP, .number = lookup->number};
	char	addresses[ZKLOCK_ADDRESSES_SIZE];

	if (connect_string_resolve(lookup->servers, addresses, sizeof(addresses)))
		event.text = strdup(addresses);
	push_event(&event);
	free(lookup);
	return NULL;
}

/*
 * Looks up the addresses of servers, for zk_client_open().  Returns the number of this
 * look-up.  The callback gets that number, and the addresses, or NULL if no name could be
 * resolved.
 */
uintptr_t
zk_client_look_up(const char *servers)
{
	static uintptr_t last_lookup;

	Event	unknown = {.kind = EVENT_LOOKED_UP, .number = ++last_lookup};
	Lookup *lookup = malloc(sizeof(Lookup));

	if (lookup == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	lookup->number = last_lookup;
	strlcpy(lookup->servers, servers, sizeof(lookup->servers));
	if (!start_thread(lookup_main, lookup))
	{
		push_event(&unknown);
		free(lookup);
	}
	return last_lookup;
}

/* ------------------------------------------------------------------------
 * Answers and watches, in the library's thread
 * ------------------------------------------------------------------------
 */

/* The parts of an answer, except its code; each pointer may be NULL. */
typedef struct Answer
{
	const char				   *path;
	const struct Stat		   *stat;
	const struct String_vector *children;
	const struct String_vector *created; /* paths of new nodes */
	const char				   *data;
	int							data_length; /* a server may say that there are -1 */
} Answer;

/*
 * Pushes an answer.  It checks no more than it must to copy without a crash; the main loop, which
 * knows what was asked for, checks the rest.
 *
 *	context		of the request: its number, and whether the answer to another one follows
 */
static void
push_reply(int code, const Answer *answer, const void *context)
{
	Event						event = {.kind = EVENT_REPLY,
										 .can_wait = ((uintptr_t) context & 1) != 0,
										 .reply.code = code,
										 .number = (uintptr_t) context >> 1};
	const struct String_vector *strings = answer->children ? answer->children : answer->created;
	size_t						size = 0;
	char					   *string;
	bool						copied = true;

	if (code == ZOK && answer->path)
		copied = (event.reply.path = event.text = strdup(answer->path)) != NULL;
	if (code == ZOK && answer->stat)
		event.reply.stat = (NodeStat){.czxid = answer->stat->czxid,
									  .mzxid = answer->stat->mzxid,
									  .ephemeral_owner = answer->stat->ephemeralOwner,
									  .ctime = answer->stat->ctime,
									  .mtime = answer->stat->mtime,
									  .version = answer->stat->version,
									  .data_length = answer->stat->dataLength,
									  .child_count = answer->stat->numChildren,
									  .child_changes = answer->stat->cversion};
	if (code == ZOK && answer->children)
		event.fault = zk_answer_children_fault(answer->children->data, answer->children->count);
	if (code == ZOK && strings && event.fault == NULL && strings->count > 0)
	{
		/* They are one block: pointers, and the strings behind these. */
		for (int i = 0; i < strings->count; i++)
			size += sizeof(char *) + strlen(strings->data[i]) + 1;
		event.reply.children = malloc(size);
		copied = event.reply.children != NULL;
		event.reply.nchildren = copied ? strings->count : 0;
		string = copied ? (char *) (event.reply.children + strings->count) : NULL;
		for (int i = 0; i < event.reply.nchildren; i++)
		{
			event.reply.children[i] = strcpy(string, strings->data[i]);
			string += strlen(string) + 1;
		}
	}
	if (code == ZOK && answer->data && answer->data_length > 0)
	{
		event.text = malloc(answer->data_length);
		copied = event.text != NULL;
		if (copied)
			event.reply.data = memcpy(event.text, answer->data, answer->data_length);
		event.reply.data_length = answer->data_length;
	}

	/* A reply that could not be copied is answered as a failure of the library. */
	if (!copied)
		event.reply.code = ZSYSTEMERROR;
	push_event(&event);
}

static void
on_created(int code, const char *path, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Answer){.path = path, .stat = stat}, context);
}

static void
on_all_created(int code, const void *creates)
{
	ZkCreates			*done = unconstify(ZkCreates *, (const ZkCreates *) creates);
	char				*paths[ZK_MULTI_MAX];
	struct String_vector created = {.count = done->npaths, .data = paths};

	for (int i = 0; i < done->npaths; i++)
	{
		paths[i] = done->paths[i];
		paths[i][sizeof(done->paths[i]) - 1] = '\0';
	}
	push_reply(code, &(Answer){.created = &created, .stat = &done->stat}, done->context);
	free(done);
}

static void
on_data(int code, const char *value, int len, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Answer){.data = value, .data_length = len, .stat = stat}, context);
}

static void
on_stat(int code, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Answer){.stat = stat}, context);
}

static void
on_children(int code, const struct String_vector *children, const struct Stat *stat, const void *context)
{
	push_reply(code, &(Answer){.children = children, .stat = stat}, context);
}

/*
 * Pushes an ACL as text, with one line for each entry: "permissions scheme id".  If no other node
 * can get it, that is an error.
 */
static void
on_acl(int code, struct ACL_vector *acl, struct Stat *stat, const void *context)
{
	size_t size = 1;
	size_t length = 0;
	char  *text = NULL;

	for (int i = 0; code == ZOK && i < acl->count; i++)
	{
		const char *scheme = acl->data ? acl->data[i].id.scheme : NULL;
		const char *id = acl->data ? acl->data[i].id.id : NULL;
		const char *hash = id ? strrchr(id, ':') : NULL;

		/* ZooKeeper hides hashes of passwords from those who may not change the ACL. */
		if (scheme == NULL || id == NULL || strpbrk(scheme, " \n") || strchr(id, '\n'))
			code = ZINVALIDACL;
		else if (strcmp(scheme, "digest") == 0 && hash && strcmp(hash, ":x") == 0)
			code = ZNOAUTH;
		else
			size += sizeof("-2147483648  ") + strlen(scheme) + strlen(id);
	}
	if (code == ZOK && (text = calloc(1, size)) == NULL)
		code = ZSYSTEMERROR;
	for (int i = 0; code == ZOK && i < acl->count; i++)
		length += snprintf(text + length, size - length, "%d %s %s\n", acl->data[i].perms,
						   acl->data[i].id.scheme, acl->data[i].id.id);
	push_reply(code, &(Answer){.data = text, .data_length = (int) length + 1}, context);
	free(text);
}

static void
on_done(int code, const void *context)
{
	push_reply(code, &(Answer){0}, context);
}

static void
on_synced(int code, const char *path, const void *context)
{
	push_reply(code, &(Answer){0}, context);
}

/*
 * The watcher of handles.  All watches of a handle share it, and one context, the number of the
 * handle (trap 10).
 */
static void
on_event(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	Event event = {.kind = EVENT_WATCH, .code = type, .number = (uintptr_t) context};

	if (type == ZOO_SESSION_EVENT)
	{
		/* The handle does not know of this end: a server sent it as a watch event. */
		if (state < 0 && zoo_state(zh) != state)
			return;
		event.kind = EVENT_SESSION;
		event.code = state;
	}
	else
	{
		event.fault = zk_answer_event_fault(path);
		if (event.fault == NULL)
			event.text = strdup(path);
	}
	push_event(&event);
}

/* ------------------------------------------------------------------------
 * Handles
 * ------------------------------------------------------------------------
 */

/*
 * The library's threads: makes an event of a line of the library's log.  The line contains
 * its level between the process and the function: "...:ZOO_WARN@function@line: message".
 */
static void
on_log(const char *message)
{
	Event		event = {.kind = EVENT_LOG};
	const char *level = strstr(message, ":ZOO_");
	const char *text = level ? strstr(level, ": ") : NULL;

	event.code = level && strncmp(level, ":ZOO_ERROR@", strlen(":ZOO_ERROR@")) == 0;
	event.text = strdup(text ? text + 2 : message);
	if (event.text)
		push_event(&event);
}

/*
 * Creates a handle, which begins to connect, for the session of the configuration or a new
 * one: it is zk_handle then.  Returns false, with errno set, if it cannot.
 *
 * The library gets numeric addresses and never resolves names (trap 1).  It tries the addresses
 * in random order, so that clients are spread over the servers.
 *
 *	addresses	as connect_string_resolve() makes them
 */
bool
zk_handle_open(const char *addresses, const ZkClientConfig *config)
{
	char	   hosts[ZKLOCK_ADDRESSES_SIZE + sizeof(CONNECT_STRING_NOWHERE)];
	clientid_t id = {.client_id = config->session_id};
	sigset_t   former;

	memcpy(id.passwd, config->session_password, sizeof(id.passwd));
	new_nodes_acl = config->acl == ZKLOCK_ACL_CREATOR ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
	zoo_set_debug_level(ZOO_LOG_LEVEL_INFO);
	connect_string_for_library(addresses, hosts, sizeof(hosts));
	block_signals(0, &former);
	zk_handle = zk_security_open(config, hosts, on_event, config->session_id != 0 ? &id : NULL,
								 (void *) ++zk_handle_number, on_log);
	pthread_sigmask(SIG_SETMASK, &former, NULL);
	explicit_bzero(&id, sizeof(id));
	if (zk_handle)
		zoo_set_servers_resolution_delay(zk_handle, -1);
	return zk_handle != NULL;
}

/* The main function of the thread that closes a handle */
static void *
closer_main(void *arg)
{
	(void) zookeeper_close(arg);
	return NULL;
}

/*
 * Closes the handle, and ends its session if it is connected, which takes up to a few seconds
 * with a server that hangs.  If the main loop cannot wait for that, a thread of our own does it;
 * also if the handle is not connected: TLS's handshake may last for ever.
 *
 * Returns true if the session was ended, as far as we can know.  The library does not
 * report that, but it waits until the server has closed the connection, unless a signal,
 * or the answer to an earlier call, arrives.
 */
bool
zk_handle_close(bool can_wait)
{
	zhandle_t *handle = zk_handle;
	int64	   start = zklock_now_ms();
	sigset_t   former;
	bool	   closed;

	zk_handle = NULL;
	if (!can_wait || zoo_state(handle) != ZOO_CONNECTED_STATE)
	{
		/* Waiting is better than leaving a session behind. */
		if (!start_thread(closer_main, handle))
			(void) zookeeper_close(handle);
		return false;
	}
	block_signals(SIGQUIT, &former); /* an immediate shutdown need not wait for it */
	closed = zookeeper_close(handle) == ZOK && zklock_now_ms() - start < CLOSE_WAIT_MS;
	pthread_sigmask(SIG_SETMASK, &former, NULL);
	return closed;
}

/* ------------------------------------------------------------------------
 * Calls, in the main loop
 * ------------------------------------------------------------------------
 */

/*
 * A multi consists of checks of nodes, changes, deletions, and creates of persistent and
 * ephemeral nodes; a container in one would abort the process, and the library does not
 * send a create2 in one (trap 6).  Only ZK_GET_DATA and ZK_GET_CHILDREN set watches, because
 * "exists" would leave watches on missing nodes (trap 11).
 */

/*
 * Passes a request to the library, which was made from this call and those behind it.  There
 * must be a handle.  The answer comes as an event with the call's number, also if the request
 * cannot be sent: it is answered in its turn then.
 */
void
zk_library_send(const Call *call)
{
	/* The library writes these when the answer comes, if it does; nobody reads them. */
	static zoo_op_result_t results[ZK_MULTI_MAX];
	static struct Stat	   stat;

	const int modes[] = {
		[ZK_CONTAINER] = ZOO_CONTAINER,
		[ZK_PERSISTENT] = ZOO_PERSISTENT,
		[ZK_PERSISTENT_SEQUENTIAL] = ZOO_PERSISTENT_SEQUENTIAL,
		[ZK_EPHEMERAL] = ZOO_EPHEMERAL,
		[ZK_EPHEMERAL_SEQUENTIAL] = ZOO_EPHEMERAL_SEQUENTIAL,
	};

	const struct ACL_vector *acl = new_nodes_acl;
	const ZkCall			*asked = &call->asked;
	const void *context = (const void *) (call->number << 1 | (call->follower != NULL));
	watcher_fn	watcher = asked->watch ? on_event : NULL;
	zoo_op_t	ops[ZK_MULTI_MAX + STAMP_OPS]; /* of a multi */
	int			nops = 0;
	int			code = ZOK;
	ZkCreates  *creates = NULL;

	/* The ACL of a node that is replaced: its entries, and the text in which these are */
	struct ACL_vector copied = {.data = NULL};
	char			 *text = NULL;
	char			 *line;

	switch (asked->kind)
	{
		case ZK_CREATE:
			if (call->next == NULL)
			{
				code = zoo_acreate2(zk_handle, asked->path, asked->data, asked->data_length,
									acl, modes[asked->node_kind], on_created, context);
				break;
			}
			pg_fallthrough;
		case ZK_APPEND:

			/*
			 * Creates of sequential nodes in one request: of a node with its marker, or of lock
			 * nodes that go out together.
			 */
			for (const Call *each = call; each; each = each->next)
				nops++;
			creates = calloc(1, offsetof(ZkCreates, paths) + nops * sizeof(creates->paths[0]));
			if (creates == NULL)
			{
				nops = 0;
				code = ZSYSTEMERROR;
				break;
			}
			creates->context = context;
			for (const Call *each = call; each; each = each->next)
			{
				int i = creates->npaths++;

				zoo_create_op_init(&ops[i], each->asked.path, each->asked.data,
								   each->asked.data_length, acl,
								   asked->kind == ZK_APPEND ? ZOO_PERSISTENT_SEQUENTIAL
															: ZOO_EPHEMERAL_SEQUENTIAL,
								   creates->paths[i], sizeof(creates->paths[i]));
			}
			if (asked->kind == ZK_APPEND)
			{
				zoo_create_op_init(&ops[nops++], asked->marker, NULL, -1, acl, ZOO_EPHEMERAL, NULL, 0);
				break;
			}

			/*
			 * The answer to a multi contains the paths of new nodes, but not their czxid, the
			 * number of the transaction, which all of them have in common.  So the multi creates,
			 * writes and deletes one more node, the stamp, which nobody ever sees; the answer to
			 * the write has its Stat, with that czxid.  Its path is that of the first node
			 * without the sequence.  So no other node has it, and what limits the nodes there
			 * concerns the first one as well.
			 */
			zoo_create_op_init(&ops[nops++], asked->path, NULL, -1, acl, ZOO_EPHEMERAL, NULL, 0);
			zoo_set_op_init(&ops[nops++], asked->path, NULL, -1, ZK_ANY_VERSION, &creates->stat);
			zoo_delete_op_init(&ops[nops++], asked->path, ZK_ANY_VERSION);
			break;
		case ZK_CREATE_RECORD:

			/*
			 * One write of the data follows the create.  If the ACL of another node is given, as
			 * on_acl() has written it, that node goes first, in the same step.
			 */
			if (asked->acl)
			{
				char *rest = text = pstrdup(asked->acl);

				copied.data = palloc0((strlen(text) + 1) * sizeof(struct ACL));
				while ((line = strsep(&rest, "\n")) != NULL && line[0] != '\0')
				{
					struct ACL *entry = &copied.data[copied.count++];

					entry->perms = atoi(strsep(&line, " "));
					entry->id.scheme = strsep(&line, " ");
					entry->id.id = line;
				}
				acl = &copied;
				zoo_delete_op_init(&ops[nops++], asked->path, 0);
			}
			zoo_create_op_init(&ops[nops++], asked->path, asked->data, asked->data_length, acl,
							   ZOO_PERSISTENT, NULL, 0);
			zoo_set_op_init(&ops[nops++], asked->path, asked->data, asked->data_length, 0, &stat);
			break;
		case ZK_SET_DATA:
			code = zoo_aset(zk_handle, asked->path, asked->data, asked->data_length,
							asked->version, on_stat, context);
			break;
		case ZK_EXISTS:
			code = zoo_aexists(zk_handle, asked->path, 0, on_stat, context);
			break;
		case ZK_GET_DATA:
			code = zoo_awget(zk_handle, asked->path, watcher, (void *) zk_handle_number,
							 on_data, context);
			break;
		case ZK_GET_CHILDREN:
			code = zoo_awget_children2(zk_handle, asked->path, watcher,
									   (void *) zk_handle_number, on_children, context);
			break;
		case ZK_GET_ACL:
			code = zoo_aget_acl(zk_handle, asked->path, on_acl, context);
			break;
		case ZK_SYNC:
			code = zoo_async(zk_handle, asked->path, on_synced, context);
			break;
		case ZK_UNWATCH_DATA:
		case ZK_UNWATCH_CHILDREN:
			code = zoo_aremove_all_watches(zk_handle, asked->path,
										   asked->kind == ZK_UNWATCH_DATA ? ZWATCHTYPE_DATA
																		  : ZWATCHTYPE_CHILD,
										   0, (void_completion_t *) on_done, context);
			break;
		case ZK_DELETE:
			if (call->next == NULL && asked->also_deleted == NULL)
			{
				code = zoo_adelete(zk_handle, asked->path,
								   asked->versioned ? asked->version : -1, on_done, context);
				break;
			}
			for (const Call *each = call; each; each = each->next)
				zoo_delete_op_init(&ops[nops++], each->asked.path, -1);
			if (asked->also_deleted)
				zoo_delete_op_init(&ops[nops++], asked->also_deleted, -1);
			break;
		case ZK_REPLACE:
			zoo_create_op_init(&ops[nops++], asked->path, asked->data, asked->data_length, acl,
							   modes[asked->node_kind], NULL, 0);
			if (asked->notice)
				zoo_set_op_init(&ops[nops++], asked->replaced, asked->data, asked->data_length,
								asked->version, &stat);
			zoo_delete_op_init(&ops[nops++], asked->replaced,
							   asked->notice ? ZK_ANY_VERSION : asked->version);
			if (asked->pin)
				zoo_delete_op_init(&ops[nops++], asked->pin, -1);
			break;
		case ZK_CHECK:
			zoo_check_op_init(&ops[nops++], asked->path, -1);
			break;
		case ZK_REPLACE_RECORD:
		case ZK_REMOVE:
		case ZK_PUBLISH:
		case ZK_PIN:
		case ZK_WATCH_DATA:
		case ZK_REMOTE_WAITS:
			break; /* the worker has made others of them */
	}

	/*
	 * zoo_amulti() frees memory that it does not own if it finds that the session is over while
	 * it composes the request (trap 21).  The library's I/O thread may know that before the main
	 * loop does, but while it is connected it would have to reconnect first, between our check
	 * and the request.
	 */
	if (nops > 0 && zoo_state(zk_handle) != ZOO_CONNECTED_STATE)
		code = ZCONNECTIONLOSS;
	else if (nops > 0 && creates)
		code = zoo_amulti(zk_handle, nops, ops, creates->results, on_all_created, creates);
	else if (nops > 0)
		code = zoo_amulti(zk_handle, nops, ops, results, on_done, context);
	if (code != ZOK)
		free(creates);
	if (text)
	{
		pfree(copied.data);
		pfree(text);
	}
	if (zk_error(code).outcome != CALL_OK)
	{
		Event event = {.kind = EVENT_REPLY, .number = call->number, .reply.code = code};

		push_event(&event);
	}
}
