/*
 * zk_load.c
 *		What ZooKeeper's C client can do at best.
 *
 * See load.h for the form of requests and paths.
 *
 *		connect		hosts, timeout (ms)
 *		prepare		path, count: creates the nodes of which lock nodes are children, for
 *					%d in the path from 1 to count
 *		think		kind, path, think, begin, from, end: one session acquires, thinks for
 *					so many microseconds, releases, again and again; each call waits
 *					for its answer.  Result: how long each acquisition took
 *		run			kind, path, sessions, begin, from, end: so many chains of calls,
 *					all on one connection at once.  Result: likewise
 *		batch		path, count: creates so many lock nodes at once, each on a path of
 *					its own, and deletes them.  Result: how long the creation took
 *		foreigners	path, count: so many lock nodes more, which nobody removes
 *		disperse	deletes those
 *		count		path: how many children it has
 *
 * Kinds are
 *
 *		create		acquired means that the node exists: the floor, since no lock can do
 *					with less than one committed write
 *		textbook	... and that a list of the children, asked for thereafter, has
 *					arrived, as the recipe says
 *
 * The addresses are numeric, and the library is told not to resolve them again and
 * again: it would spend half of its time on that.
 *
 * Copyright (c) 2026, zklock contributors
 */
#define _GNU_SOURCE
#define THREADED
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#include "load.h"

#define PATH_SIZE 256
#define MAX_CHAINS 4096
#define CONNECT_SECONDS 30

/* A name and data as long as those of a session of zklock */
#define NODE_NAME "_c_00000000-0000-4000-8000-000000000000-lock-"
static const char node_data[] =
	"{\"server\":\"127.0.0.1:5432\",\"pid\":1234567,\"database\":\"postgres\","
	"\"user\":\"postgres\",\"application_name\":\"\",\"started\":\"2026-01-01T00:00:00.000000Z\"}";

/* What one session of a closed loop does; the library's completion thread drives it. */
typedef struct Chain
{
	char	path[PATH_SIZE];
	char	node[PATH_SIZE];
	int64_t since;
} Chain;

static zhandle_t *zk;
static sem_t	  connected;
static Chain	  chains[MAX_CHAINS];
static sem_t	  chain_done;

/* Of the run; constant while it goes on, but for the samples, which the completion thread adds to. */
static bool	   textbook;
static bool	   again;	  /* create again after a deletion? */
static int64_t from, end; /* who acquires before or after is not counted */
static Samples durations;
static int64_t others; /* acquisitions that are not counted */

static char **foreigners; /* their nodes */
static int	  nforeigners;

static void
check(int code, const char *what)
{
	if (code != ZOK)
		load_fail("%s: %s", what, zerror(code));
}

static void
on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
	if (type != ZOO_SESSION_EVENT)
		return;
	if (state == ZOO_CONNECTED_STATE)
		sem_post(&connected);
	else if (state == ZOO_EXPIRED_SESSION_STATE)
		load_fail("the session has expired");
}

static void
connect_zookeeper(void)
{
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	zk = zookeeper_init(load_word("hosts"), on_event, (int) load_number("timeout"), NULL, NULL, 0);
	if (zk == NULL)
		load_fail("cannot connect to %s", load_word("hosts"));
	zoo_set_servers_resolution_delay(zk, -1);
	for (int waited = 0; sem_trywait(&connected) < 0; waited++)
	{
		if (waited > CONNECT_SECONDS * 1000)
			load_fail("cannot connect to %s", load_word("hosts"));
		usleep(1000);
	}
	load_answer_number((int64_t) zoo_client_id(zk)->client_id);
}

static void
on_parent(int code, const char *path, const void *context)
{
	if (code != ZNODEEXISTS)
		check(code, "parent");
	sem_post(&chain_done);
}

static void
create_parent(const char *path)
{
	check(zoo_acreate(zk, path, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, 0, on_parent, NULL), path);
}

/* All at once: a server does in order what it is asked for. */
static void
create_parents(void)
{
	char path[PATH_SIZE];
	int	 count = (int) load_number("count");
	int	 created = count;

	load_expand_path(path, sizeof(path), load_word("path"), 1);
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/'))
	{
		*slash = '\0';
		create_parent(path);
		*slash = '/';
		created++;
	}
	for (int i = 1; i <= count; i++)
	{
		load_expand_path(path, sizeof(path), load_word("path"), i);
		create_parent(path);
	}
	for (int i = 0; i < created; i++)
		sem_wait(&chain_done);
	load_answer_number(count);
}

static void
lock_node_below(char *dst, const char *path)
{
	snprintf(dst, PATH_SIZE, "%.200s/" NODE_NAME, path);
}

/* What was asked for at that time has just been acquired. */
static void
acquired(int64_t since)
{
	int64_t now = load_now_us();

	if (now >= from && now <= end)
		load_sample(&durations, now - since);
	else
		others++;
}

/* ------------------------------------------------------------------------
 * One session, which waits for each answer
 * ------------------------------------------------------------------------
 */

static void
think(void)
{
	char	path[PATH_SIZE];
	char	name[PATH_SIZE];
	char	node[PATH_SIZE];
	int64_t pause = load_number("think");
	int64_t begin = load_number("begin") - load_now_us();

	textbook = strcmp(load_word("kind"), "textbook") == 0;
	from = load_number("from");
	end = load_number("end");
	load_expand_path(path, sizeof(path), load_word("path"), 1);
	lock_node_below(name, path);
	usleep(begin > 0 ? begin : 0);
	while (load_now_us() < end)
	{
		struct String_vector children;
		struct Stat			 stat;
		int64_t				 before = load_now_us();

		check(zoo_create2(zk, name, node_data, sizeof(node_data) - 1, &ZOO_OPEN_ACL_UNSAFE,
						  ZOO_EPHEMERAL | ZOO_SEQUENCE, node, sizeof(node), &stat),
			  name);
		if (textbook)
		{
			check(zoo_get_children(zk, path, 0, &children), path);
			deallocate_String_vector(&children);
		}
		acquired(before);
		usleep(pause);
		check(zoo_delete(zk, node, -1), node);
	}
	load_answer("durations", &durations, others);
	durations.count = 0;
	others = 0;
}

/* ------------------------------------------------------------------------
 * Chains of calls, many at once
 *
 *	create -> (list ->) delete -> create ...
 * ------------------------------------------------------------------------
 */

static void chain_begins(Chain *chain);

static void
on_deleted(int code, const void *context)
{
	Chain *chain = (Chain *) context;

	check(code, chain->node);
	if (again && load_now_us() < end)
		chain_begins(chain);
	else
		sem_post(&chain_done);
}

static void
chain_acquired(Chain *chain)
{
	acquired(chain->since);
	check(zoo_adelete(zk, chain->node, -1, on_deleted, chain), chain->node);
}

static void
on_listed(int code, const struct String_vector *children, const void *context)
{
	check(code, "list");
	chain_acquired((Chain *) context);
}

static void
on_created(int code, const char *node, const struct Stat *stat, const void *context)
{
	Chain *chain = (Chain *) context;

	check(code, chain->path);
	snprintf(chain->node, sizeof(chain->node), "%s", node);
	if (textbook)
		check(zoo_aget_children(zk, chain->path, 0, on_listed, chain), chain->path);
	else
		chain_acquired(chain);
}

static void
chain_begins(Chain *chain)
{
	char name[PATH_SIZE];

	lock_node_below(name, chain->path);
	chain->since = load_now_us();
	check(zoo_acreate2(zk, name, node_data, sizeof(node_data) - 1, &ZOO_OPEN_ACL_UNSAFE,
					   ZOO_EPHEMERAL | ZOO_SEQUENCE, on_created, chain),
		  name);
}

static int
number_of_chains(const char *key)
{
	int64_t n = load_number(key);

	if (n < 1 || n > MAX_CHAINS)
		load_fail("from 1 to %d chains, please", MAX_CHAINS);
	return (int) n;
}

static void
run(void)
{
	int		n = number_of_chains("sessions");
	int64_t begin = load_number("begin") - load_now_us();

	textbook = strcmp(load_word("kind"), "textbook") == 0;
	again = true;
	from = load_number("from");
	end = load_number("end");
	usleep(begin > 0 ? begin : 0);
	for (int i = 0; i < n; i++)
	{
		load_expand_path(chains[i].path, PATH_SIZE, load_word("path"), i + 1);
		chain_begins(&chains[i]);
	}
	for (int i = 0; i < n; i++)
		sem_wait(&chain_done);
	load_answer("durations", &durations, others);
	durations.count = 0;
	others = 0;
}

/* ------------------------------------------------------------------------
 * Many nodes at once
 * ------------------------------------------------------------------------
 */

static void
on_one_created(int code, const char *node, const struct Stat *stat, const void *context)
{
	Chain *chain = (Chain *) context;

	check(code, chain->path);
	snprintf(chain->node, sizeof(chain->node), "%s", node);
	sem_post(&chain_done);
}

static void
batch(void)
{
	int		n = number_of_chains("count");
	int64_t before = load_now_us();
	char	name[PATH_SIZE];

	again = false;
	for (int i = 0; i < n; i++)
	{
		load_expand_path(chains[i].path, PATH_SIZE, load_word("path"), i + 1);
		lock_node_below(name, chains[i].path);
		check(zoo_acreate2(zk, name, node_data, sizeof(node_data) - 1, &ZOO_OPEN_ACL_UNSAFE,
						   ZOO_EPHEMERAL | ZOO_SEQUENCE, on_one_created, &chains[i]),
			  name);
	}
	for (int i = 0; i < n; i++)
		sem_wait(&chain_done);
	before = load_now_us() - before;
	for (int i = 0; i < n; i++)
		check(zoo_adelete(zk, chains[i].node, -1, on_deleted, &chains[i]), chains[i].node);
	for (int i = 0; i < n; i++)
		sem_wait(&chain_done);
	load_answer_number(before);
}

static void
on_foreigner(int code, const char *node, const struct Stat *stat, const void *context)
{
	check(code, "foreigner");
	foreigners[nforeigners++] = strdup(node);
	sem_post(&chain_done);
}

static void
add_foreigners(void)
{
	int	 n = (int) load_number("count");
	char name[PATH_SIZE];

	foreigners = load_memory(foreigners, (nforeigners + n) * sizeof(char *));
	lock_node_below(name, load_word("path"));
	for (int i = 0; i < n; i++)
		check(zoo_acreate2(zk, name, node_data, sizeof(node_data) - 1, &ZOO_OPEN_ACL_UNSAFE,
						   ZOO_EPHEMERAL | ZOO_SEQUENCE, on_foreigner, NULL),
			  name);
	for (int i = 0; i < n; i++)
		sem_wait(&chain_done);
	load_answer_number(nforeigners);
}

static void
disperse(void)
{
	again = false;
	for (int i = 0; i < nforeigners; i++)
		check(zoo_adelete(zk, foreigners[i], -1, on_deleted, &chains[0]), foreigners[i]);
	for (int i = 0; i < nforeigners; i++)
		sem_wait(&chain_done);
	for (int i = 0; i < nforeigners; i++)
		free(foreigners[i]);
	nforeigners = 0;
	load_answer_number(0);
}

static void
count_children(void)
{
	struct String_vector children;
	int					 code = zoo_get_children(zk, load_word("path"), 0, &children);

	if (code == ZNONODE)
	{
		load_answer_number(0);
		return;
	}
	check(code, load_word("path"));
	load_answer_number(children.count);
	deallocate_String_vector(&children);
}

int
main(void)
{
	static const Command commands[] = {{"connect", connect_zookeeper},
									   {"prepare", create_parents},
									   {"think", think},
									   {"run", run},
									   {"batch", batch},
									   {"foreigners", add_foreigners},
									   {"disperse", disperse},
									   {"count", count_children}};

	sem_init(&connected, 0, 0);
	sem_init(&chain_done, 0, 0);
	load_serve(commands, sizeof(commands) / sizeof(commands[0]));
	if (zk)
		zookeeper_close(zk);
	return 0;
}
