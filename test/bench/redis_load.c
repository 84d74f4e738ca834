/*
 * redis_load.c
 *		Threads that lock and unlock in Redis, as its documentation has it for one
 *		server: SET NX PX, and a deletion that compares; and threads whose transactions
 *		such a lock guards, each on a database connection of its own.
 *
 * See load.h for the form of requests and paths.
 *
 *		connect		hosts, timeout (ms): one server.  What is not released expires
 *					after the timeout
 *		run			sessions, path, think, begin, from, end: each of so many threads, on
 *					a connection of its own, acquires, thinks for so many
 *					microseconds, releases, again and again.  Result: how long each
 *					acquisition took
 *		run			..., conninfo: each thread acquires, updates a row of the database,
 *					commits, releases.  Result: how long all of that took, each time
 *
 * Nobody is told that a lock is free: who does not get one asks again in a
 * millisecond.
 *
 * Copyright (c) 2026, zklock contributors
 */
#define _GNU_SOURCE
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"

#define MAX_SESSIONS 256
#define PATH_SIZE 256
#define CONNECT_SECONDS 30
#define POLL_US 1000

static const char script[] = "if redis.call('get', KEYS[1]) == ARGV[1] then "
							 "return redis.call('del', KEYS[1]) else return 0 end";

typedef struct Session
{
	redisContext *redis;
	PGconn		 *database; /* of transactions */
	int			  number;
	pthread_t	  thread;
	Samples		  durations;
	int64_t		  others;
} Session;

static Session	   sessions[MAX_SESSIONS];
static char		   hosts[64];
static int64_t	   timeout;
static char		   script_hash[64];
static const char *path; /* these are of the run */
static bool		   guards;
static int64_t	   think, begin, from, end;

/* Connects a session; the server may still be starting. */
static void
connect_session(Session *session)
{
	char host[64];
	int	 port;

	if (sscanf(hosts, "%63[^:]:%d", host, &port) != 2)
		load_fail("%s is no address", hosts);
	for (int tries = 0; session->redis == NULL || session->redis->err; tries++)
	{
		if (tries > CONNECT_SECONDS * 100)
			load_fail("cannot connect to %s", hosts);
		if (session->redis)
		{
			redisFree(session->redis);
			usleep(10000);
		}
		session->redis = redisConnect(host, port);
	}
}

static redisReply *
checked(Session *session, void *reply)
{
	redisReply *answer = reply;

	if (answer == NULL || answer->type == REDIS_REPLY_ERROR)
		load_fail("Redis: %s", answer ? answer->str : session->redis->errstr);
	return answer;
}

static bool
acquire(Session *session, const char *key, const char *token)
{
	redisReply *reply = checked(session, redisCommand(session->redis, "SET %s %s NX PX %" PRId64,
													  key, token, timeout));
	bool		acquired = reply->type == REDIS_REPLY_STATUS;

	freeReplyObject(reply);
	return acquired;
}

static void
release(Session *session, const char *key, const char *token)
{
	redisReply *reply = checked(session, redisCommand(session->redis, "EVALSHA %s 1 %s %s",
													  script_hash, key, token));

	if (reply->integer != 1)
		load_fail("a lock has expired");
	freeReplyObject(reply);
}

static void
connect_database(Session *session, const char *conninfo)
{
	if (session->database)
		return;
	session->database = PQconnectdb(conninfo);
	if (PQstatus(session->database) != CONNECTION_OK)
		load_fail("PostgreSQL: %s", PQerrorMessage(session->database));
}

static void
execute(Session *session, const char *sql)
{
	PGresult *result = PQexec(session->database, sql);

	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		load_fail("PostgreSQL: %s", PQerrorMessage(session->database));
	PQclear(result);
}

/* A transaction, in as many messages as by JDBC.  What is guarded by one lock is one row. */
static void
update(Session *session)
{
	char sql[100];

	snprintf(sql, sizeof(sql), "BEGIN; UPDATE guarded SET n = n + 1 WHERE id = %d",
			 strchr(path, '%') ? session->number : 1);
	execute(session, sql);
	execute(session, "COMMIT");
}

static void
sleep_until(int64_t time)
{
	int64_t left = time - load_now_us();

	if (left > 0)
		usleep(left);
}

static void *
work(void *arg)
{
	Session *session = arg;
	char	 key[PATH_SIZE];
	char	 token[32];

	sleep_until(begin);
	for (int64_t before; (before = load_now_us()) < end;)
	{
		int64_t acquired; /* or all is done */

		load_expand_path(key, sizeof(key), path, session->number);
		load_expand_path(token, sizeof(token), "%n", session->number);
		while (!acquire(session, key, token))
			usleep(POLL_US);
		if (guards)
		{
			update(session);
			release(session, key, token);
		}
		acquired = load_now_us();
		if (acquired >= from && acquired <= end)
			load_sample(&session->durations, acquired - before);
		else
			session->others++;
		if (think > 0)
			sleep_until(acquired + think < end ? acquired + think : end);
		if (!guards)
			release(session, key, token);
	}
	return NULL;
}

static void
run(void)
{
	Samples durations = {NULL};
	int64_t others = 0;
	int		n = (int) load_number("sessions");

	if (n < 1 || n > MAX_SESSIONS)
		load_fail("from 1 to %d sessions, please", MAX_SESSIONS);
	path = load_word("path");
	guards = load_has("conninfo");
	think = load_number("think");
	begin = load_number("begin");
	from = load_number("from");
	end = load_number("end");
	for (int i = 0; i < n; i++)
	{
		sessions[i].number = i + 1;
		connect_session(&sessions[i]);
		if (guards)
			connect_database(&sessions[i], load_word("conninfo"));
		if (pthread_create(&sessions[i].thread, NULL, work, &sessions[i]) != 0)
			load_fail("cannot start a thread");
	}
	for (int i = 0; i < n; i++)
	{
		Session *session = &sessions[i];

		pthread_join(session->thread, NULL);
		for (size_t j = 0; j < session->durations.count; j++)
			load_sample(&durations, session->durations.values[j]);
		others += session->others;
		session->durations.count = 0;
		session->others = 0;
	}
	load_answer("durations", &durations, others);
	free(durations.values);
}

static void
connect_redis(void)
{
	redisReply *reply;

	snprintf(hosts, sizeof(hosts), "%s", load_word("hosts"));
	timeout = load_number("timeout");
	connect_session(&sessions[0]);
	reply = checked(&sessions[0], redisCommand(sessions[0].redis, "SCRIPT LOAD %s", script));
	snprintf(script_hash, sizeof(script_hash), "%s", reply->str);
	freeReplyObject(reply);
	load_answer_number(1);
}

int
main(void)
{
	static const Command commands[] = {{"connect", connect_redis}, {"run", run}};

	load_serve(commands, sizeof(commands) / sizeof(commands[0]));
	return 0;
}
