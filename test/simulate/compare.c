/*
 * compare.c
 *		The model of ZooKeeper beside a real server: the same operations, by chance, of
 *		several sessions; all answers and events are compared.
 *
 *		compare HOST PORT SEED OPERATIONS
 *
 * A session is cut off now and then, and kept away for a while: what others do meanwhile,
 * it hears of when it comes back.  After each operation each session that is connected asks for something
 * trivial, so all events up to then have arrived.  Numbers of transactions differ, but
 * stand for each other one to one, and so do sessions.
 *
 * COMPARE_TELLS=1 in the environment writes the operations.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "sim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "model.h"

#define SESSIONS 3
#define TIMEOUT 30000 /* ms, of the sessions */
#define AT_ONCE 3	  /* operations of a session */
#define MULTI 5		  /* operations in a multi */
#define NUMBERS 64	  /* of transactions and sessions, in answers */
#define PAIRS 65536

typedef enum World
{
	REAL,
	MODEL,
	WORLDS
} World;

/* A function of the client library; library.c has other names here. */
#define IN(world, name) ((world) == REAL ? name : sim_##name)

extern typeof(zookeeper_init2)		   sim_zookeeper_init2;
extern typeof(zookeeper_close)		   sim_zookeeper_close;
extern typeof(zoo_acreate2)			   sim_zoo_acreate2;
extern typeof(zoo_adelete)			   sim_zoo_adelete;
extern typeof(zoo_aset)				   sim_zoo_aset;
extern typeof(zoo_aexists)			   sim_zoo_aexists;
extern typeof(zoo_awget)			   sim_zoo_awget;
extern typeof(zoo_awget_children2)	   sim_zoo_awget_children2;
extern typeof(zoo_async)			   sim_zoo_async;
extern typeof(zoo_aremove_all_watches) sim_zoo_aremove_all_watches;
extern typeof(zoo_amulti)			   sim_zoo_amulti;

/* What one session hears in one world */
typedef struct Heard
{
	int		connected;
	int		awaited; /* answers */
	char	answers[8192];
	char	events[4096];
	int64_t numbers[NUMBERS];
	int		nnumbers;
} Heard;

/* A request in one world, until it is answered */
typedef struct Asked
{
	Heard		   *heard;
	int				nops;
	zoo_op_result_t results[MULTI];
	char			paths[MULTI][64];
	struct Stat		stats[MULTI];
} Asked;

typedef struct Session
{
	zhandle_t  *handles[WORLDS];
	Heard		heard[WORLDS];
	int			fd; /* to the real server */
	atomic_bool cut;
} Session;

SimRates sim_rates;
int		 sim_current = FOREIGN;

static Session			  sessions[SESSIONS];
static pthread_mutex_t	  mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t	  news = PTHREAD_COND_INITIALIZER;
static struct sockaddr_in real_server;
static int64_t			  pairs[PAIRS][WORLDS];
static int				  npairs;
static char root[32]; /* of all paths: what another run has left is not to be met */

/* ------------------------------------------------------------------------
 * Answers and events
 * ------------------------------------------------------------------------
 */

/* Adds what belongs to an answer: a code, a text, a node. */
static void
note(Heard *heard, int code, const char *text, const struct Stat *stat)
{
	char *end = heard->answers + strlen(heard->answers);

	end += sprintf(end, "%d %s", code, text ? text : "");
	if (stat)
	{
		int64_t numbers[] = {stat->czxid, stat->mzxid, stat->pzxid, stat->ephemeralOwner};

		sprintf(end, " version %d children %d/%d data %d", stat->version, stat->numChildren,
				stat->cversion, stat->dataLength);
		memcpy(heard->numbers + heard->nnumbers, numbers, sizeof(numbers));
		heard->nnumbers += sizeof(numbers) / sizeof(numbers[0]);
	}
	strcat(heard->answers, "; ");
}

static void
answer(const void *context, int code, const char *text, const struct Stat *stat)
{
	Asked *asked = (Asked *) context;
	Heard *heard = asked->heard;

	pthread_mutex_lock(&mutex);
	note(heard, code, code == ZOK ? text : NULL, code == ZOK ? stat : NULL);
	for (int i = 0; i < asked->nops; i++)
		note(heard, asked->results[i].err, asked->paths[i],
			 asked->stats[i].mzxid != 0 ? &asked->stats[i] : NULL);
	heard->awaited--;
	pthread_cond_broadcast(&news);
	pthread_mutex_unlock(&mutex);
	free(asked);
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

static void
on_children(int code, const struct String_vector *children, const struct Stat *stat, const void *context)
{
	char text[1000] = "";

	if (code == ZOK)
		qsort(children->data, children->count, sizeof(char *), compare_texts);
	for (int i = 0; code == ZOK && i < children->count; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), " %s", children->data[i]);
	answer(context, code, text, stat);
}

static void
on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
	Heard *heard = context;

	pthread_mutex_lock(&mutex);
	if (type == -1)
		heard->connected = state == 3;
	else
		sprintf(heard->events + strlen(heard->events), "%d %s;", type, path);
	pthread_cond_broadcast(&news);
	pthread_mutex_unlock(&mutex);
}

/* ------------------------------------------------------------------------
 * The two worlds move on
 * ------------------------------------------------------------------------
 */

static bool
can_step(const Session *session)
{
	return session->handles[MODEL] && (!session->cut || session->heard[MODEL].connected) &&
		   library_can_step(session->handles[MODEL]);
}

/* In a round whatever is under way gets to the leader, back to the servers, or to its client. */
static void
run_model(void)
{
	for (int round = 0; round < 8; round++)
	{
		for (Session *s = sessions; s < sessions + SESSIONS; s++)
		{
			while (can_step(s))
				library_step(s->handles[MODEL]);
		}
		for (ModelConnection *c = model_connections; c; c = c->next)
		{
			while (model_can_step_connection(c))
				model_step_connection(c);
		}
		for (int i = 0; i < MODEL_SERVERS; i++)
		{
			while (model_can_forward(i))
				model_step_forward(i);
		}
		for (int i = 0; i < MODEL_SERVERS; i++)
		{
			while (model_can_apply(i))
				model_step_apply(i);
		}
		library_attend_connections();
	}
}

/* Waits for the real server; gives up after a minute. */
static void
wait_until(const int *what, int value)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	pthread_mutex_lock(&mutex);
	while (*what != value)
	{
		if (pthread_cond_timedwait(&news, &mutex, &until) != 0)
		{
			printf("the real server does not answer\n");
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
	memset(session->heard, 0, sizeof(session->heard));
	for (World w = REAL; w < WORLDS; w++)
		session->handles[w] =
			IN(w, zookeeper_init2)(address, on_event, TIMEOUT, NULL, &session->heard[w], 0, NULL);
	wait_until(&session->heard[REAL].connected, 1);
	model_advance(model_now + 10 * MS);
	run_model();
}

static void
close_session(Session *session)
{
	for (World w = REAL; w < WORLDS; w++)
	{
		(void) IN(w, zookeeper_close)(session->handles[w]);
		session->handles[w] = NULL;
	}
	run_model();
}

/* ------------------------------------------------------------------------
 * Comparing
 * ------------------------------------------------------------------------
 */

/* Do two numbers stand for each other, as far as has been seen? */
static bool
pair(int64_t real, int64_t model)
{
	if (real == 0 && model == 0)
		return true;
	for (int i = 0; i < npairs; i++)
	{
		if (pairs[i][REAL] == real || pairs[i][MODEL] == model)
			return pairs[i][REAL] == real && pairs[i][MODEL] == model;
	}
	if (npairs < PAIRS)
	{
		pairs[npairs][REAL] = real;
		pairs[npairs++][MODEL] = model;
	}
	return true;
}

static void
complain(const Session *session, const char *what, const char *real, const char *model)
{
	printf("session %d, %s\n  real:  %s\n  model: %s\n", (int) (session - sessions), what, real, model);
	exit(1);
}

/* Waits for all that was asked, and compares it. */
static void
compare_answers(Session *session, const char *what)
{
	Heard *real = &session->heard[REAL];
	Heard *model = &session->heard[MODEL];

	run_model();
	wait_until(&real->awaited, 0);
	if (strcmp(real->answers, model->answers) != 0)
		complain(session, what, real->answers, model->answers);
	for (int i = 0; i < real->nnumbers; i++)
	{
		if (!pair(real->numbers[i], model->numbers[i]))
			complain(session, what, "numbers of transactions or sessions", "differ");
	}
	real->answers[0] = model->answers[0] = '\0';
	real->nnumbers = model->nnumbers = 0;
}

/* The order of what happens at once, such as at the end of a session, does not matter. */
static void
sort_events(char *events)
{
	char *list[64] = {NULL};
	char *copied = strdup(events);
	int	  n = 0;

	for (char *each = strtok(copied, ";"); each && n < 64; each = strtok(NULL, ";"))
		list[n++] = each;
	qsort(list, n, sizeof(char *), compare_texts);
	for (int i = 0; i < n; i++)
		events += sprintf(events, "%s;", list[i]);
	free(copied);
}

/* ------------------------------------------------------------------------
 * Operations
 * ------------------------------------------------------------------------
 */

static ModelOp *
add_some_op(ModelPacket *packet, ModelKind kind)
{
	static const char *const parents[] = {"", "/c", "/d"};
	static const char *const data[] = {NULL, "", "data"};

	const char *chosen = data[sim_below(3)];
	char		path[64];
	ModelOp	   *op;
	int			n = sprintf(path, "%s%s", root, parents[sim_below(3)]);

	if (kind < MODEL_LOOK || !sim_one_in(4)) /* the root remains */
		sprintf(path + n, "/%c", 'c' + (int) sim_below(4));
	op = model_add_op(packet, kind, path);
	op->version = sim_one_in(3) ? (int) sim_below(4) : -1;
	op->mode = sim_below(4);
	op->watch = sim_one_in(2) ? MODEL_WATCH_DATA : MODEL_WATCH_CHILDREN;
	model_op_data(op, chosen, chosen ? strlen(chosen) : 0);
	return op;
}

/* Creates of lock nodes that go out together, with their stamp (send_creates() in zk_library.c) */
static void
add_batch(ModelPacket *packet)
{
	static const ModelKind stamp[] = {MODEL_CREATE, MODEL_SET, MODEL_DELETE};

	for (int n = 2; n > 0; n--)
		add_some_op(packet, MODEL_CREATE)->mode = ZOO_EPHEMERAL_SEQUENTIAL;
	for (int i = 0; i < 3; i++)
		model_add_op(packet, stamp[i], packet->ops[0].path)->mode = ZOO_EPHEMERAL;
}

static ModelPacket *
some_request(void)
{
	static const ModelKind single[] = {MODEL_CREATE, MODEL_CREATE, MODEL_DELETE, MODEL_SET,
									   MODEL_CHECK,	 MODEL_SYNC,   MODEL_LOOK,	 MODEL_READ,
									   MODEL_LIST,	 MODEL_UNWATCH};
	static const ModelKind multi[] = {MODEL_CREATE, MODEL_DELETE, MODEL_SET, MODEL_CHECK};

	ModelPacket *packet = calloc(1, sizeof(ModelPacket));

	if (sim_one_in(5))
	{
		for (int n = 2 + sim_below(MULTI - 1); n > 0; n--)
			(void) add_some_op(packet, multi[sim_below(4)]);
	}
	else if (sim_one_in(20))
		add_batch(packet);
	else if (sim_one_in(10)) /* the client library crashes on one in a multi */
		add_some_op(packet, MODEL_CREATE)->mode = ZOO_CONTAINER;
	else
		(void) add_some_op(packet, single[sim_below(10)]);
	return packet;
}

static int
send_multi(zhandle_t *handle, World world, const ModelPacket *packet, Asked *asked)
{
	zoo_op_t ops[MULTI];

	asked->nops = packet->nops;
	for (int i = 0; i < packet->nops; i++)
	{
		const ModelOp *op = &packet->ops[i];

		if (op->kind == MODEL_CREATE)
			zoo_create_op_init(&ops[i], op->path, op->data, op->data ? op->length : -1,
							   &ZOO_OPEN_ACL_UNSAFE, op->mode, asked->paths[i],
							   sizeof(asked->paths[i]));
		if (op->kind == MODEL_DELETE)
			zoo_delete_op_init(&ops[i], op->path, op->version);
		if (op->kind == MODEL_SET)
			zoo_set_op_init(&ops[i], op->path, op->data, op->data ? op->length : -1,
							op->version, &asked->stats[i]);
		if (op->kind == MODEL_CHECK)
			zoo_check_op_init(&ops[i], op->path, op->version);
	}
	return IN(world, zoo_amulti)(handle, packet->nops, ops, asked->results, on_done, asked);
}

static int
send_request(zhandle_t *handle, World world, const ModelPacket *packet, Asked *asked)
{
	const ModelOp *op = &packet->ops[0];
	watcher_fn	   watcher = op->watch == MODEL_WATCH_DATA ? on_event : NULL;
	int			   length = op->data ? op->length : -1;

	if (packet->nops > 1 || op->kind == MODEL_CHECK)
		return send_multi(handle, world, packet, asked);
	switch (op->kind)
	{
		case MODEL_CREATE:
			return IN(world, zoo_acreate2)(handle, op->path, op->data, length,
										   &ZOO_OPEN_ACL_UNSAFE, op->mode, on_created, asked);
		case MODEL_DELETE:
			return IN(world, zoo_adelete)(handle, op->path, op->version, on_done, asked);
		case MODEL_SET:
			return IN(world, zoo_aset)(handle, op->path, op->data, length, op->version, on_stat, asked);
		case MODEL_LOOK:
			return IN(world, zoo_aexists)(handle, op->path, 0, on_stat, asked);
		case MODEL_READ:
			return IN(world, zoo_awget)(handle, op->path, watcher, asked->heard, on_data, asked);
		case MODEL_LIST:
			return IN(world, zoo_awget_children2)(handle, op->path, watcher, asked->heard,
												  on_children, asked);
		case MODEL_SYNC:
			return IN(world, zoo_async)(handle, op->path, on_synced, asked);
		default:
			return IN(world, zoo_aremove_all_watches)(handle, op->path,
													  op->watch == MODEL_WATCH_DATA ? ZWATCHTYPE_DATA
																					: ZWATCHTYPE_CHILD,
													  0, (void_completion_t *) on_done, asked);
	}
}

/* Asks in both worlds.  What is not even sent is answered with the library's code. */
static void
ask(Session *session, const ModelPacket *packet)
{
	for (World w = REAL; w < WORLDS; w++)
	{
		Asked *asked = calloc(1, sizeof(Asked));
		int	   code;

		asked->heard = &session->heard[w];
		pthread_mutex_lock(&mutex);
		asked->heard->awaited++;
		pthread_mutex_unlock(&mutex);
		code = send_request(session->handles[w], w, packet, asked);
		if (code != ZOK)
			answer(asked, code, NULL, NULL);
	}
}

/* All sessions that are connected hear of what has happened. */
static void
compare_events(const char *what)
{
	for (Session *session = sessions; session < sessions + SESSIONS; session++)
	{
		char		*real = session->heard[REAL].events;
		char		*model = session->heard[MODEL].events;
		ModelPacket *packet = model_packet(MODEL_LOOK, root);

		if (!session->cut)
		{
			ask(session, packet);
			compare_answers(session, what);
			sort_events(real);
			sort_events(model);
			if (strcmp(real, model) != 0)
				complain(session, what, real, model);
			real[0] = model[0] = '\0';
		}
		model_release(packet);
	}
}

/* As a complaint begins */
static void
describe(char *dst, const ModelPacket *packet)
{
	static const char *const names[] =
		{[MODEL_CREATE] = "create", [MODEL_DELETE] = "delete", [MODEL_SET] = "set",
		 [MODEL_CHECK] = "check",	[MODEL_SYNC] = "sync",	   [MODEL_LOOK] = "look at",
		 [MODEL_READ] = "read",		[MODEL_LIST] = "list",	   [MODEL_UNWATCH] = "unwatch"};

	for (int i = 0; i < packet->nops; i++)
	{
		const ModelOp *op = &packet->ops[i];

		dst += sprintf(dst, "%s %s, mode %d, version %d, watch %d; ", names[op->kind],
					   op->path, op->mode, op->version, op->watch);
	}
}

/* One or several requests of a session, each asked ahead of the answers to those before */
static void
do_something(Session *session)
{
	char what[2048] = "";

	for (int n = 1 + sim_below(AT_ONCE); n > 0; n--)
	{
		ModelPacket *packet = some_request();

		describe(what + strlen(what), packet);
		ask(session, packet);
		model_release(packet);
	}
	if (getenv("COMPARE_TELLS"))
		printf("session %d: %s\n", (int) (session - sessions), what);
	compare_answers(session, what);
	compare_events(what);
}

/* Cuts a session off, or lets it come back. */
static void
cut_or_mend(Session *session)
{
	if (session->cut)
	{
		session->cut = false;
		wait_until(&session->heard[REAL].connected, 1);
		model_advance(model_now + 300 * MS);
		run_model();
		compare_events("coming back");
		return;
	}
	session->cut = true;
	(void) shutdown(session->fd, SHUT_RDWR);
	for (ModelConnection *c = model_connections; c; c = c->next)
	{
		if (c->client == session->handles[MODEL])
			model_break(c);
	}
	run_model();
	wait_until(&session->heard[REAL].connected, 0);
}

/* Creates what all paths are below. */
static void
create_root(void)
{
	ModelPacket *packet;

	sprintf(root, "/model%d", (int) getpid());
	packet = model_packet(MODEL_CREATE, root);
	ask(&sessions[0], packet);
	compare_answers(&sessions[0], "create");
	model_release(packet);
}

static void
ignore_created(const ModelNode *node, const ModelSession *by)
{
}

static void
ignore_deleted(const ModelNode *node, const ModelSession *by, bool expired)
{
}

static void
ignore_session(const ModelSession *session, bool expired)
{
}

int
main(int argc, char **argv)
{
	static const ModelHooks hooks = {ignore_deleted, ignore_created, ignore_session};

	int n = atoi(argv[4]);

	setvbuf(stdout, NULL, _IOLBF, 0);
	zoo_set_debug_level(0);
	sim_seed(strtoull(argv[3], NULL, 10));
	real_server = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
	inet_pton(AF_INET, argv[1], &real_server.sin_addr);
	model_start(&hooks, 2000 * MS);
	for (int s = 0; s < SESSIONS; s++)
		open_session(&sessions[s]);
	create_root();
	for (int i = 0; i < n; i++)
	{
		Session *session = &sessions[sim_below(SESSIONS)];

		if (session->cut ? sim_one_in(8) : sim_one_in(80))
			cut_or_mend(session);
		else if (!session->cut && sim_one_in(60))
		{
			close_session(session);
			open_session(session);
			compare_events("a new session");
		}
		else if (!session->cut)
			do_something(session);
	}
	printf("%d operations: all answers and events agree\n", n);
	_exit(0);
}
