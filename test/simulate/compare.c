/*
 * compare.c
 *		The model of ZooKeeper beside a real server: the same operations, by chance, of
 *		several sessions; all answers and events are compared.
 *
 *		compare HOST PORT SEED OPERATIONS
 *
 * Each session reaches the real server through a relay (a thread), which cuts its
 * connection and keeps it away for a while: what others do meanwhile, it hears of when it
 * comes back.  After each operation each session that is connected asks for something
 * trivial, so all events up to then have arrived.  Numbers of transactions differ, but
 * stand for each other one to one.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "sim.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "model.h"

#define SESSIONS 3
#define TIMEOUT 30000 /* ms, of the sessions */
#define PAIRS 65536

/* library.c, under other names */
#define OTHER(name) extern typeof(name) sim_##name
OTHER(zookeeper_init2);
OTHER(zookeeper_close);
OTHER(zoo_client_id);
OTHER(zoo_acreate2);
OTHER(zoo_adelete);
OTHER(zoo_aset);
OTHER(zoo_aexists);
OTHER(zoo_awget);
OTHER(zoo_awget_children2);
OTHER(zoo_amulti);
OTHER(zoo_aremove_all_watches);
OTHER(zoo_create_op_init);
OTHER(zoo_delete_op_init);
OTHER(zoo_set_op_init);
OTHER(zoo_check_op_init);

typedef enum World
{
	REAL,
	MODEL,
	WORLDS
} World;

/* What one session is told in one world */
typedef struct Told
{
	bool	connected;
	bool	answered;
	char	answer[4096];
	char	events[4096];
	int64_t zxids[2]; /* of the answer's node: created, changed */
	int64_t owner;
} Told;

typedef struct Session
{
	zhandle_t *handles[WORLDS];
	Told	   told[WORLDS];
	int		   listener;
	int		   port;
	bool	   cut;
} Session;

SimRates sim_rates;
bool	 sim_tells;
bool	 sim_changed;
int		 sim_current = FOREIGN;

static uint64_t			  random_state;
static Session			  sessions[SESSIONS];
static pthread_mutex_t	  mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t	  news = PTHREAD_COND_INITIALIZER;
static struct sockaddr_in real_server;
static int64_t			  pairs[PAIRS][2];
static int				  npairs;
static char				  chroot_[32]; /* so that what another run has left is not to be met */

uint64_t
sim_random(void)
{
	uint64_t z = (random_state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

uint64_t
sim_below(uint64_t n)
{
	return sim_random() % n;
}

bool
sim_one_in(uint64_t n)
{
	return n > 0 && sim_random() % n == 0;
}

/* ------------------------------------------------------------------------
 * Answers and events
 * ------------------------------------------------------------------------
 */

/* The context of a call tells the session and the world. */
static Told *
told_of(const void *context)
{
	int number = (int) (intptr_t) context;

	return &sessions[number / WORLDS].told[number % WORLDS];
}

static void
answer(const void *context, int code, const struct Stat *stat, const char *text)
{
	Told *told = told_of(context);

	pthread_mutex_lock(&mutex);
	told->zxids[0] = told->zxids[1] = told->owner = 0;
	if (code == ZOK && stat)
	{
		snprintf(told->answer, sizeof(told->answer), "%d version %d children %d/%d data %d %s",
				 code, stat->version, stat->numChildren, stat->cversion, stat->dataLength,
				 text ? text : "");
		told->zxids[0] = stat->czxid;
		told->zxids[1] = stat->mzxid;
		told->owner = stat->ephemeralOwner;
	}
	else
		snprintf(told->answer, sizeof(told->answer), "%d", code);
	told->answered = true;
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
	answer(context, code, stat, NULL);
}

static void
on_created(int code, const char *path, const struct Stat *stat, const void *context)
{
	answer(context, code, stat, path);
}

static void
on_data(int code, const char *data, int length, const struct Stat *stat, const void *context)
{
	char text[256];

	snprintf(text, sizeof(text), "%.*s", length > 0 ? length : 0, data ? data : "");
	answer(context, code, stat, text);
}

static int
compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

static void
on_children(int code, const struct String_vector *children, const struct Stat *stat, const void *context)
{
	char text[3000] = "";

	if (code == ZOK)
		qsort(children->data, children->count, sizeof(char *), compare_names);
	for (int i = 0; code == ZOK && i < children->count; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), " %s", children->data[i]);
	answer(context, code, stat, text);
}

static void
on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
	Told *told = told_of(context);

	pthread_mutex_lock(&mutex);
	if (type == -1)
		told->connected = state == 3;
	else
		snprintf(told->events + strlen(told->events),
				 sizeof(told->events) - strlen(told->events), "%d %s;", type, path);
	pthread_cond_broadcast(&news);
	pthread_mutex_unlock(&mutex);
}

/* ------------------------------------------------------------------------
 * The two worlds move on
 * ------------------------------------------------------------------------
 */

static bool
is_cut(const zhandle_t *handle)
{
	for (int s = 0; s < SESSIONS; s++)
	{
		if (sessions[s].handles[MODEL] == handle)
			return sessions[s].cut && !sessions[s].told[MODEL].connected;
	}
	return false;
}

static void
run_model(void)
{
	bool moved = true;

	while (moved)
	{
		zhandle_t *handles[16];
		int		   n = library_handles(handles, 16);

		moved = false;
		for (int i = 0; i < n; i++)
		{
			if (!library_can_step(handles[i]) || is_cut(handles[i]))
				continue;
			library_step(handles[i]);
			moved = true;
		}
		for (ModelConnection *c = model_connections; c; c = c->next)
			moved |= model_step_connection(c);
		for (int i = 0; i < MODEL_SERVERS; i++)
		{
			moved |= model_step_forward(i);
			moved |= model_step_apply(i);
		}
		library_attend_connections();
	}
}

/* Waits for the real server; gives up after a minute. */
static void
wait_for(const bool *what)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	pthread_mutex_lock(&mutex);
	while (!*what)
	{
		if (pthread_cond_timedwait(&news, &mutex, &until) != 0)
		{
			printf("the real server does not answer\n");
			exit(2);
		}
	}
	pthread_mutex_unlock(&mutex);
}

/* The relay of a session: one connection at a time, and none while it is cut. */
static void *
relay_main(void *arg)
{
	Session *session = arg;
	char	 data[65536];

	for (;;)
	{
		int			  inner = accept(session->listener, NULL, NULL);
		int			  outer = socket(AF_INET, SOCK_STREAM, 0);
		struct pollfd fds[2] = {{inner, POLLIN, 0}, {outer, POLLIN, 0}};
		int			  one = 1;
		bool alive = connect(outer, (struct sockaddr *) &real_server, sizeof(real_server)) == 0;

		(void) setsockopt(inner, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		(void) setsockopt(outer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		while (alive && !__atomic_load_n(&session->cut, __ATOMIC_SEQ_CST))
		{
			(void) poll(fds, 2, 20);
			for (int i = 0; i < 2 && alive; i++)
			{
				ssize_t n = fds[i].revents ? recv(fds[i].fd, data, sizeof(data), 0) : 1;

				alive = n > 0 &&
						(fds[i].revents == 0 || send(fds[1 - i].fd, data, n, MSG_NOSIGNAL) == n);
			}
		}
		close(inner);
		close(outer);
		while (__atomic_load_n(&session->cut, __ATOMIC_SEQ_CST))
			usleep(1000);
	}
	return NULL;
}

static void
open_session(int s)
{
	Session *session = &sessions[s];
	char	 address[64];

	snprintf(address, sizeof(address), "127.0.0.1:%d%s", session->port, chroot_);
	memset(session->told, 0, sizeof(session->told));
	session->handles[REAL] = zookeeper_init2(address, on_event, TIMEOUT, NULL,
											 (void *) (intptr_t) (s * WORLDS + REAL), 0, NULL);
	session->handles[MODEL] = sim_zookeeper_init2(address, on_event, TIMEOUT, NULL,
												  (void *) (intptr_t) (s * WORLDS + MODEL), 0, NULL);
	wait_for(&session->told[REAL].connected);
	model_advance(model_now + 10 * MS);
	run_model();
}

static void
reopen_session(int s)
{
	(void) zookeeper_close(sessions[s].handles[REAL]);
	(void) sim_zookeeper_close(sessions[s].handles[MODEL]);
	run_model();
	open_session(s);
}

/* ------------------------------------------------------------------------
 * Comparing
 * ------------------------------------------------------------------------
 */

/* Do two numbers stand for each other, as far as has been seen? */
static bool
pair(int64_t real, int64_t model)
{
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
complain(int s, const char *what, const char *real, const char *model)
{
	printf("session %d, %s\n  real:  %s\n  model: %s\n", s, what, real, model);
	exit(1);
}

static void
compare_answers(int s, const char *what)
{
	Told *told = sessions[s].told;

	wait_for(&told[REAL].answered);
	run_model();
	if (!told[MODEL].answered)
		complain(s, what, told[REAL].answer, "no answer");
	if (strcmp(told[REAL].answer, told[MODEL].answer) != 0)
		complain(s, what, told[REAL].answer, told[MODEL].answer);
	if (!pair(told[REAL].zxids[0], told[MODEL].zxids[0]) ||
		!pair(told[REAL].zxids[1], told[MODEL].zxids[1]))
		complain(s, what, "numbers of transactions", "differ");
	if ((told[REAL].owner == 0) != (told[MODEL].owner == 0))
		complain(s, what, "owners", "differ");
}

/* The order of what happens at once, such as at the end of a session, does not matter. */
static void
sort_events(char *events)
{
	char *list[64] = {NULL};
	char  sorted[4096] = "";
	char *copied = strdup(events);
	int	  n = 0;

	for (char *each = strtok(copied, ";"); each && n < 64; each = strtok(NULL, ";"))
		list[n++] = each;
	qsort(list, n, sizeof(char *), compare_names);
	for (int i = 0; i < n; i++)
		sprintf(sorted + strlen(sorted), "%s;", list[i]);
	strcpy(events, sorted);
	free(copied);
}

/* All sessions that are connected hear of what has happened. */
static void
compare_events(const char *what)
{
	for (int s = 0; s < SESSIONS; s++)
	{
		Session *session = &sessions[s];
		Told	*told = session->told;

		if (session->cut)
			continue;
		told[REAL].answered = told[MODEL].answered = false;
		(void) zoo_aexists(session->handles[REAL], "/", 0, on_stat,
						   (void *) (intptr_t) (s * WORLDS + REAL));
		(void) sim_zoo_aexists(session->handles[MODEL], "/", 0, on_stat,
							   (void *) (intptr_t) (s * WORLDS + MODEL));
		wait_for(&told[REAL].answered);
		run_model();
		sort_events(told[REAL].events);
		sort_events(told[MODEL].events);
		if (strcmp(told[REAL].events, told[MODEL].events) != 0)
			complain(s, what, told[REAL].events, told[MODEL].events);
		told[REAL].events[0] = told[MODEL].events[0] = '\0';
	}
}

/* ------------------------------------------------------------------------
 * Operations
 * ------------------------------------------------------------------------
 */

#define BOTH(call, ...)                                                                          \
	do                                                                                           \
	{                                                                                            \
		int codes[WORLDS] = {call(session->handles[REAL], __VA_ARGS__, contexts[REAL]),          \
							 sim_##call(session->handles[MODEL], __VA_ARGS__, contexts[MODEL])}; \
		if (codes[REAL] != codes[MODEL])                                                         \
			complain(s, what, zerror(codes[REAL]), zerror(codes[MODEL]));                        \
		if (codes[REAL] == ZOK)                                                                  \
			compare_answers(s, what);                                                            \
	} while (0)

static void
some_path(char *dst)
{
	static const char *const roots[] = {"", "/a", "/b"};

	dst += sprintf(dst, "/model%s", roots[sim_below(3)]);
	if (!sim_one_in(4))
		sprintf(dst, "/%c", 'c' + (int) sim_below(4));
}

static void
do_multi(int s, const char *what, void *const contexts[])
{
	static zoo_op_result_t results[4];
	static struct Stat	   stat;

	Session *session = &sessions[s];
	zoo_op_t real[4];
	zoo_op_t model[4];
	char	 paths[4][64];
	int		 n = 1 + sim_below(4);
	int		 codes[WORLDS];

	for (int i = 0; i < n; i++)
	{
		int version = sim_one_in(3) ? (int) sim_below(3) : -1;
		int mode = sim_below(4);

		some_path(paths[i]);
		switch (sim_below(4))
		{
			case 0:
				zoo_create_op_init(&real[i], paths[i], "m", 1, &ZOO_OPEN_ACL_UNSAFE, mode, NULL, 0);
				sim_zoo_create_op_init(&model[i], paths[i], "m", 1, NULL, mode, NULL, 0);
				break;
			case 1:
				zoo_delete_op_init(&real[i], paths[i], version);
				sim_zoo_delete_op_init(&model[i], paths[i], version);
				break;
			case 2:
				zoo_set_op_init(&real[i], paths[i], "mm", 2, -1, &stat);
				sim_zoo_set_op_init(&model[i], paths[i], "mm", 2, -1, &stat);
				break;
			default:
				zoo_check_op_init(&real[i], paths[i], -1);
				sim_zoo_check_op_init(&model[i], paths[i], -1);
		}
	}
	codes[REAL] = zoo_amulti(session->handles[REAL], n, real, results, on_done, contexts[REAL]);
	codes[MODEL] =
		sim_zoo_amulti(session->handles[MODEL], n, model, results, on_done, contexts[MODEL]);
	if (codes[REAL] != codes[MODEL])
		complain(s, what, zerror(codes[REAL]), zerror(codes[MODEL]));
	compare_answers(s, what);
}

/* Cuts a session off, or lets it come back. */
static void
cut_or_mend(int s)
{
	Session *session = &sessions[s];

	if (!session->cut)
	{
		__atomic_store_n(&session->cut, true, __ATOMIC_SEQ_CST);
		for (ModelConnection *c = model_connections; c; c = c->next)
		{
			if (c->client == session->handles[MODEL])
				model_break(c);
		}
		run_model();
		while (__atomic_load_n(&session->told[REAL].connected, __ATOMIC_SEQ_CST))
			usleep(1000);
		return;
	}
	__atomic_store_n(&session->cut, false, __ATOMIC_SEQ_CST);
	wait_for(&session->told[REAL].connected);
	model_advance(model_now + 300 * MS);
	run_model();
	compare_events("coming back");
}

static void
do_something(int s)
{
	static const char *const names[] = {"create", "delete",	 "set",	  "exists", "read",
										"list",	  "unwatch", "multi", "end"};
	static const int		 modes[] = {0, 1, 2, 3, 4};

	Session		  *session = &sessions[s];
	void *const	   contexts[] = {(void *) (intptr_t) (s * WORLDS + REAL),
								 (void *) (intptr_t) (s * WORLDS + MODEL)};
	char		   path[64];
	char		   what[256];
	int			   kind = sim_one_in(60) ? 8 : sim_below(8);
	int			   mode = modes[sim_below(5)];
	int			   version = sim_one_in(3) ? (int) sim_below(4) : -1;
	watcher_fn	   watcher = sim_one_in(2) ? on_event : NULL;
	ZooWatcherType type = sim_one_in(2) ? ZWATCHTYPE_DATA : ZWATCHTYPE_CHILD;
	void		  *watching[] = {contexts[REAL], contexts[MODEL]};

	some_path(path);
	snprintf(what, sizeof(what), "%s %s, mode %d, version %d%s", names[kind], path, mode,
			 version, watcher ? ", watch" : "");
	if (getenv("COMPARE_TELLS"))
		printf("session %d: %s\n", s, what);
	session->told[REAL].answered = session->told[MODEL].answered = false;
	switch (kind)
	{
		case 0:
			BOTH(zoo_acreate2, path, "data", 4, &ZOO_OPEN_ACL_UNSAFE, mode, on_created);
			break;
		case 1:
			BOTH(zoo_adelete, path, version, on_done);
			break;
		case 2:
			BOTH(zoo_aset, path, "changed", 7, version, on_stat);
			break;
		case 3:
			BOTH(zoo_aexists, path, 0, on_stat);
			break;
		case 4:
			if (zoo_awget(session->handles[REAL], path, watcher, watching[REAL], on_data,
						  contexts[REAL]) != ZOK)
				complain(s, what, "not even sent", "");
			(void) sim_zoo_awget(session->handles[MODEL], path, watcher, watching[MODEL],
								 on_data, contexts[MODEL]);
			compare_answers(s, what);
			break;
		case 5:
			if (zoo_awget_children2(session->handles[REAL], path, watcher, watching[REAL],
									on_children, contexts[REAL]) != ZOK)
				complain(s, what, "not even sent", "");
			(void) sim_zoo_awget_children2(session->handles[MODEL], path, watcher,
										   watching[MODEL], on_children, contexts[MODEL]);
			compare_answers(s, what);
			break;
		case 6:
			BOTH(zoo_aremove_all_watches, path, type, 0, (void_completion_t *) on_done);
			break;
		case 7:
			do_multi(s, what, contexts);
			break;
		default:
			reopen_session(s);
	}
	compare_events(what);
}

/* In the real world alone; sessions begin anew, below it. */
static void
make_chroot(void)
{
	char path[32];

	snprintf(path, sizeof(path), "/model%d", (int) getpid());
	(void) zoo_acreate2(sessions[0].handles[REAL], path, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, 0,
						on_created, (void *) REAL);
	wait_for(&sessions[0].told[REAL].answered);
	strcpy(chroot_, path);
	for (int s = 0; s < SESSIONS; s++)
		reopen_session(s);
}

static void
ignore_node(const ModelNode *node, const ModelSession *by, bool expired)
{
}

static void
ignore_created(const ModelNode *node, const ModelSession *by)
{
}

static void
ignore_session(const ModelSession *session, bool expired)
{
}

int
main(int argc, char **argv)
{
	static const ModelHooks hooks = {ignore_node, ignore_created, ignore_session, sim_random};
	int						n = atoi(argv[4]);

	setvbuf(stdout, NULL, _IOLBF, 0);
	zoo_set_debug_level(0);
	random_state = strtoull(argv[3], NULL, 10);
	real_server = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
	inet_pton(AF_INET, argv[1], &real_server.sin_addr);
	model_start(&hooks, 2000 * MS);
	for (int s = 0; s < SESSIONS; s++)
	{
		struct sockaddr_in address = {.sin_family = AF_INET,
									  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		socklen_t		   length = sizeof(address);
		pthread_t		   thread;

		sessions[s].listener = socket(AF_INET, SOCK_STREAM, 0);
		(void) bind(sessions[s].listener, (struct sockaddr *) &address, length);
		(void) listen(sessions[s].listener, 8);
		(void) getsockname(sessions[s].listener, (struct sockaddr *) &address, &length);
		sessions[s].port = ntohs(address.sin_port);
		pthread_create(&thread, NULL, relay_main, &sessions[s]);
		open_session(s);
	}
	make_chroot();
	for (int i = 0; i < n; i++)
	{
		int s = sim_below(SESSIONS);

		if (sessions[s].cut ? sim_one_in(8) : sim_one_in(80))
			cut_or_mend(s);
		else if (!sessions[s].cut)
			do_something(s);
	}
	printf("%d operations: all answers and events agree\n", n);
	_exit(0);
}
