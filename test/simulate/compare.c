/*
 * compare.c
 *		Operations by chance, of several sessions, and all that these hear: answers and events.
 *
 *		compare-real HOST PORT SEED OPERATIONS		of a real server
 *		compare-model HOST PORT SEED OPERATIONS		of the model (compare_model.c)
 *
 * Both must write the same.  Numbers of transactions and sessions differ, so they are counted
 * as they come.
 *
 * A session is cut off now and then, and kept away for a while: what others do meanwhile,
 * it hears of when it comes back.  After each operation each session that is connected asks for
 * something trivial, so all events up to then have arrived.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "sim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SESSIONS 3
#define TIMEOUT 30000 /* ms, of the sessions */
#define AT_ONCE 3	  /* operations of a session */
#define MULTI 5		  /* operations in a multi */
#define MAX_NUMBERS 65536

typedef struct Session
{
	zhandle_t  *handle;
	int			fd; /* to the real server */
	atomic_bool cut;
	int			connected;
	int			awaited; /* answers */
	char		answers[16384];
	char		events[4096];
} Session;

/* A request until it is answered; what is behind "nops" is a multi's. */
typedef struct Asked
{
	Session		   *session;
	int				nops;
	zoo_op_result_t results[MULTI];
	char			paths[MULTI][64];
	struct Stat		stats[MULTI];
} Asked;

static Session			  sessions[SESSIONS];
static pthread_mutex_t	  mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t	  news = PTHREAD_COND_INITIALIZER;
static struct sockaddr_in real_server;
static char root[32]; /* of all paths: what another run has left is not to be met */

/* ------------------------------------------------------------------------
 * Answers and events
 * ------------------------------------------------------------------------
 */

/* Numbers of transactions and sessions are counted as they come; 0 stays. */
static int
count_of(int64_t number)
{
	static int64_t numbers[MAX_NUMBERS];
	static int	   last;
	int			   i = 0;

	while (i < last && numbers[i] != number)
		i++;
	if (number != 0 && i == last && last < MAX_NUMBERS)
		numbers[last++] = number;
	return number != 0 ? i + 1 : 0;
}

/* Adds what belongs to an answer: a code, a text, a node. */
static void
note(Session *session, int code, const char *text, const struct Stat *stat)
{
	char *end = session->answers + strlen(session->answers);

	end += sprintf(end, "%d %s", code, text ? text : "");
	if (stat)
		end += sprintf(end, " version %d children %d/%d data %d czxid #%d mzxid #%d pzxid #%d owner #%d",
					   stat->version, stat->numChildren, stat->cversion, stat->dataLength,
					   count_of(stat->czxid), count_of(stat->mzxid), count_of(stat->pzxid),
					   count_of(stat->ephemeralOwner));
	strcpy(end, "; ");
}

static void
answer(const void *context, int code, const char *text, const struct Stat *stat)
{
	const Asked *asked = context;

	pthread_mutex_lock(&mutex);
	note(asked->session, code, code == ZOK ? text : NULL, code == ZOK ? stat : NULL);
	for (int i = 0; i < asked->nops; i++)
		note(asked->session, asked->results[i].err, asked->paths[i],
			 asked->stats[i].mzxid != 0 ? &asked->stats[i] : NULL);
	asked->session->awaited--;
	pthread_cond_broadcast(&news);
	pthread_mutex_unlock(&mutex);
}

static void
on_done(int code, const void *context)
{
	answer(context, code, NULL, NULL);
}

static void
on_stat(int code, const struct Stat *stat, const void *context)
{
	answer(context, code, NULL, stat);
}

static void
on_created(int code, const char *path, const struct Stat *stat, const void *context)
{
	answer(context, code, path, stat);
}

static void
on_synced(int code, const char *path, const void *context)
{
	answer(context, code, path, NULL);
}

static void
on_data(int code, const char *data, int length, const struct Stat *stat, const void *context)
{
	char text[64];

	snprintf(text, sizeof(text), "%d %.*s", length, length > 0 ? length : 0, data ? data : "");
	answer(context, code, text, stat);
}

static int
compare_texts(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/* Lists texts in an order that both worlds have. */
static void
list_texts(char *dst, size_t size, char **texts, int n)
{
	qsort(texts, n, sizeof(char *), compare_texts);
	for (int i = 0; i < n; i++)
		snprintf(dst + strlen(dst), size - strlen(dst), " %s", texts[i]);
}

static void
on_children(int code, const struct String_vector *children, const struct Stat *stat, const void *context)
{
	char text[4000] = "";

	if (code == ZOK)
		list_texts(text, sizeof(text), children->data, children->count);
	answer(context, code, text, stat);
}

static void
on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
	Session *session = context;

	pthread_mutex_lock(&mutex);
	if (type == ZOO_SESSION_EVENT)
		session->connected = state == ZOO_CONNECTED_STATE;
	else
		sprintf(session->events + strlen(session->events), "%d %s;", type, path);
	pthread_cond_broadcast(&news);
	pthread_mutex_unlock(&mutex);
}

/* ------------------------------------------------------------------------
 * The world moves on
 * ------------------------------------------------------------------------
 */

/* The real server does what is under way by itself. */
__attribute__((weak)) void
world_run(void)
{
}

/* The connection breaks. */
__attribute__((weak)) void
world_break(zhandle_t *handle, int fd)
{
	(void) shutdown(fd, SHUT_RDWR);
}

/* Now it can be made again. */
__attribute__((weak)) void
world_connect(zhandle_t *handle)
{
}

/* Gives up after a minute. */
static void
wait_until(const int *what, int value)
{
	struct timespec until;

	world_run();
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	pthread_mutex_lock(&mutex);
	while (*what != value)
	{
		if (pthread_cond_timedwait(&news, &mutex, &until) != 0)
		{
			printf("there is no answer\n");
			exit(2);
		}
	}
	pthread_mutex_unlock(&mutex);
}

/* The client library connects: a session's port is its number.  None while it is cut. */
__attribute__((visibility("default"))) int
connect(int fd, const struct sockaddr *address, socklen_t length)
{
	Session *session = &sessions[ntohs(((const struct sockaddr_in *) address)->sin_port) - 1];

	if (session->cut)
	{
		errno = ECONNREFUSED;
		return -1;
	}
	session->fd = fd;
	return syscall(SYS_connect, fd, &real_server, sizeof(real_server));
}

static void
open_session(Session *session)
{
	char address[64];

	snprintf(address, sizeof(address), "127.0.0.1:%d", (int) (session - sessions) + 1);
	memset(session, 0, sizeof(Session));
	session->handle = zookeeper_init2(address, on_event, TIMEOUT, NULL, session, 0, NULL);
	world_connect(session->handle);
	wait_until(&session->connected, 1);
}

/* Cuts a session off, or lets it come back. */
static void
cut_or_mend(Session *session)
{
	session->cut = !session->cut;
	if (session->cut)
		world_break(session->handle, session->fd);
	else
		world_connect(session->handle);
	wait_until(&session->connected, !session->cut);
	printf(session->cut ? "is cut off" : "comes back");
}

/* ------------------------------------------------------------------------
 * Operations
 * ------------------------------------------------------------------------
 */

/* An operation by chance, which is told; "path" is room for its path. */
static ModelOp
some_op(ModelKind kind, char *path)
{
	static const char *const parents[] = {"", "/c", "/d"};
	static const char *const data[] = {NULL, "", "data"};
	static const char *const names[] =
		{[MODEL_CREATE] = "create", [MODEL_DELETE] = "delete", [MODEL_SET] = "set",
		 [MODEL_CHECK] = "check",	[MODEL_SYNC] = "sync",	   [MODEL_LOOK] = "look at",
		 [MODEL_READ] = "read",		[MODEL_LIST] = "list",	   [MODEL_UNWATCH] = "unwatch"};

	int		n = sprintf(path, "%s%s", root, parents[sim_below(3)]);
	ModelOp op = {kind, path, .data = data[sim_below(3)]};

	if (kind < MODEL_LOOK || !sim_one_in(4)) /* the root remains */
		sprintf(path + n, "/%c", 'c' + (int) sim_below(4));
	op.length = op.data ? (int) strlen(op.data) : -1;
	op.version = sim_one_in(3) ? (int) sim_below(4) : -1;
	op.mode = sim_below(4);
	op.watch = sim_one_in(2) ? MODEL_WATCH_DATA : MODEL_WATCH_CHILDREN;
	printf("%s %s, mode %d, version %d, watch %d; ", names[kind], path, op.mode, op.version, op.watch);
	return op;
}

static int
send_multi(int n, const ModelOp *ops, Asked *asked)
{
	zoo_op_t to[MULTI];

	asked->nops = n;
	for (int i = 0; i < n; i++)
	{
		const ModelOp *op = &ops[i];

		if (op->kind == MODEL_CREATE)
			zoo_create_op_init(&to[i], op->path, op->data, op->length, &ZOO_OPEN_ACL_UNSAFE,
							   op->mode, asked->paths[i], sizeof(asked->paths[i]));
		if (op->kind == MODEL_DELETE)
			zoo_delete_op_init(&to[i], op->path, op->version);
		if (op->kind == MODEL_SET)
			zoo_set_op_init(&to[i], op->path, op->data, op->length, op->version, &asked->stats[i]);
		if (op->kind == MODEL_CHECK)
			zoo_check_op_init(&to[i], op->path, op->version);
	}
	return zoo_amulti(asked->session->handle, n, to, asked->results, on_done, asked);
}

static int
send_op(const ModelOp *op, const Asked *asked)
{
	zhandle_t	  *handle = asked->session->handle;
	bool		   data = op->watch == MODEL_WATCH_DATA;
	watcher_fn	   watcher = data ? on_event : NULL;
	ZooWatcherType type = data ? ZWATCHTYPE_DATA : ZWATCHTYPE_CHILD;

	switch (op->kind)
	{
		case MODEL_CREATE:
			return zoo_acreate2(handle, op->path, op->data, op->length, &ZOO_OPEN_ACL_UNSAFE,
								op->mode, on_created, asked);
		case MODEL_DELETE:
			return zoo_adelete(handle, op->path, op->version, on_done, asked);
		case MODEL_SET:
			return zoo_aset(handle, op->path, op->data, op->length, op->version, on_stat, asked);
		case MODEL_LOOK:
			return zoo_aexists(handle, op->path, 0, on_stat, asked);
		case MODEL_READ:
			return zoo_awget(handle, op->path, watcher, asked->session, on_data, asked);
		case MODEL_LIST:
			return zoo_awget_children2(handle, op->path, watcher, asked->session, on_children, asked);
		case MODEL_SYNC:
			return zoo_async(handle, op->path, on_synced, asked);
		default:
			return zoo_aremove_all_watches(handle, op->path, type, 0,
										   (void_completion_t *) on_done, asked);
	}
}

/* What is not even sent is answered with the library's code. */
static void
ask(Session *session, int n, const ModelOp *ops)
{
	Asked *asked = calloc(1, sizeof(Asked));
	int	   code;

	asked->session = session;
	pthread_mutex_lock(&mutex);
	session->awaited++;
	pthread_mutex_unlock(&mutex);
	code = n > 1 || ops[0].kind == MODEL_CHECK ? send_multi(n, ops, asked) : send_op(ops, asked);
	if (code != ZOK)
		answer(asked, code, NULL, NULL);
}

/* Creates of lock nodes that go out together, with their stamp (zk_library_send()) */
static void
ask_batch(Session *session)
{
	char	paths[2][64];
	ModelOp ops[MULTI];

	for (int i = 0; i < 2; i++)
	{
		ops[i] = some_op(MODEL_CREATE, paths[i]);
		ops[i].mode = ZOO_EPHEMERAL_SEQUENTIAL;
	}
	ops[2] = (ModelOp){MODEL_CREATE, paths[0], .length = -1, .mode = ZOO_EPHEMERAL};
	ops[3] = (ModelOp){MODEL_SET, paths[0], .length = -1, .version = -1};
	ops[4] = (ModelOp){MODEL_DELETE, paths[0], .version = -1};
	printf("in order, together and with a stamp; ");
	ask(session, MULTI, ops);
}

static void
ask_something(Session *session)
{
	static const ModelKind kinds[] = {/* in a multi, too */
									  MODEL_CREATE, MODEL_DELETE, MODEL_SET, MODEL_CHECK,
									  /* alone */
									  MODEL_CREATE, MODEL_SYNC, MODEL_LOOK, MODEL_READ,
									  MODEL_LIST, MODEL_UNWATCH};

	ModelOp ops[MULTI];
	char	paths[MULTI][64];
	int		n = sim_one_in(5) ? 2 + sim_below(MULTI - 1) : 1;

	for (int i = 0; i < n; i++)
		ops[i] = some_op(kinds[sim_below(n > 1 ? 4 : 10)], paths[i]);

	/* The client library crashes on one in a multi. */
	if (n == 1 && ops[0].kind == MODEL_CREATE && sim_one_in(3))
		ops[0].mode = ZOO_CONTAINER;
	ask(session, n, ops);
}

/*
 * Writes what a session has heard.  The order of what happens at once, such as at the end of
 * another one, does not matter.
 */
static void
report(Session *session)
{
	char *events[64];
	char  text[sizeof(session->events)] = "";
	int	  n = 0;

	ask(session, 1, &(ModelOp){MODEL_LOOK, root});
	wait_until(&session->awaited, 0);
	for (char *each = strtok(session->events, ";"); each && n < 64; each = strtok(NULL, ";"))
		events[n++] = each;
	list_texts(text, sizeof(text), events, n);
	printf("  session %d: %s events:%s\n", (int) (session - sessions), session->answers, text);
	session->answers[0] = session->events[0] = '\0';
}

int
main(int argc, char **argv)
{
	uint64_t seed = strtoull(argv[3], NULL, 10);
	int		 n = atoi(argv[4]);

	zoo_set_debug_level(0);
	real_server = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
	inet_pton(AF_INET, argv[1], &real_server.sin_addr);
	sprintf(root, "/model%d", (int) seed);
	for (Session *s = sessions; s < sessions + SESSIONS; s++)
		open_session(s);
	ask(&sessions[0], 1, &(ModelOp){MODEL_CREATE, root, .length = -1});
	report(&sessions[0]);
	for (int i = 0; i < n; i++)
	{
		Session *session;

		sim_seed((seed << 32) + i); /* the model's library has drawn numbers, too */
		session = &sessions[sim_below(SESSIONS)];
		printf("%d, session %d: ", i, (int) (session - sessions));
		if (session->cut ? sim_one_in(8) : sim_one_in(80))
			cut_or_mend(session);
		else if (!session->cut && sim_one_in(60))
		{
			printf("is a new one");
			(void) zookeeper_close(session->handle);
			open_session(session);
		}
		else if (!session->cut)
		{
			/* Each is asked ahead of the answers to those before. */
			for (int more = 1 + sim_below(AT_ONCE); more > 0; more--)
			{
				if (sim_one_in(25))
					ask_batch(session);
				else
					ask_something(session);
			}
			wait_until(&session->awaited, 0);
		}
		printf("\n");
		for (Session *s = sessions; s < sessions + SESSIONS; s++)
		{
			if (!s->cut)
				report(s);
		}
	}
	fflush(stdout);
	_exit(0);
}
