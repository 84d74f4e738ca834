/*
 * sql_load.c
 *		Sessions of PostgreSQL that lock and unlock, as many as one likes.
 *
 * One thread drives all of them through libpq's asynchronous functions.  See
 * load.h for the form of requests and paths.  Statements have one parameter, a path.
 *
 *		open		name, count, conninfo, sql: a group of sessions; each runs sql
 *		close		name
 *		run			groups=a:8,b:8, acquire, release, path, think, begin, from, end: each
 *					session acquires, thinks for so many microseconds, releases,
 *					again and again.  Result: how long each acquisition took
 *		enqueue		name, index, acquire, release, path: one session of a group
 *					begins to acquire, and keeps what it gets
 *		drain		groups: whoever has been enqueued releases when it has what it
 *					waits for.  Result: when each of them got it
 *		time		name, index, sql: one session runs one statement.  Result: how
 *					long it took
 *
 * Copyright (c) 2026, zklock contributors
 */
#define _GNU_SOURCE
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "load.h"

#define MAX_GROUPS 128
#define PATH_SIZE 65536 /* of an array of 1,000 paths */
#define BATCH 64

/*
 *	 IDLE -> ACQUIRING -> HOLDING -> RELEASING -> ACQUIRING ...
 *					and, once time is over, RELEASING -> IDLE
 */
typedef enum SessionState
{
	IDLE,
	ACQUIRING,
	HOLDING,
	RELEASING
} SessionState;

/* Statements are prepared when they are first used, and again when they change. */
typedef struct Statement
{
	const char *name;
	char	   *sql;
} Statement;

typedef struct Session
{
	PGconn		*conn;
	Statement	 acquire;
	Statement	 release;
	const char	*pattern; /* of paths; in the request */
	int			 number;
	char		*path;
	SessionState state;
	int64_t		 since; /* when this state began */
} Session;

typedef struct Group
{
	char	*name;
	int		 count;
	Session *sessions;
} Group;

/* What the sessions do at the moment. */
typedef struct Job
{
	int64_t think; /* us */
	int64_t from;  /* who acquires before is not counted */
	int64_t end;   /* who acquires later neither, and nobody begins to */
	bool	again; /* acquire again after a release? */
	Samples durations;
	Samples grants; /* times */
	int64_t others; /* acquisitions that are not counted */
} Job;

static Group groups[MAX_GROUPS];
static int	 ngroups;
static int	 poll_fd;
static int	 timer_fd;

static void
check(PGconn *conn, bool good)
{
	if (!good)
		load_fail("%s", PQerrorMessage(conn));
}

static Group *
find_group(const char *name, size_t length)
{
	for (int i = 0; i < ngroups; i++)
	{
		if (strlen(groups[i].name) == length && strncmp(groups[i].name, name, length) == 0)
			return &groups[i];
	}
	load_fail("there is no group %.*s", (int) length, name);
}

static void
open_group(void)
{
	Group *group = &groups[ngroups];

	if (ngroups == MAX_GROUPS)
		load_fail("too many groups");
	ngroups++;
	group->name = strdup(load_word("name"));
	group->count = (int) load_number("count");
	group->sessions = calloc(group->count, sizeof(Session));
	for (int i = 0; i < group->count; i++)
	{
		Session			  *session = &group->sessions[i];
		struct epoll_event interest = {.events = EPOLLIN, .data.ptr = session};
		PGresult		  *result;

		session->conn = PQconnectdb(load_word("conninfo"));
		check(session->conn, PQstatus(session->conn) == CONNECTION_OK);
		result = PQexec(session->conn, load_word("sql"));
		check(session->conn, PQresultStatus(result) == PGRES_COMMAND_OK ||
								 PQresultStatus(result) == PGRES_TUPLES_OK ||
								 PQresultStatus(result) == PGRES_EMPTY_QUERY);
		PQclear(result);
		session->acquire.name = "acquire";
		session->release.name = "release";
		if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, PQsocket(session->conn), &interest) < 0)
			load_fail("epoll_ctl: %m");
	}
	load_answer_number(group->count);
}

static void
close_group(void)
{
	Group *group = find_group(load_word("name"), strlen(load_word("name")));

	for (int i = 0; i < group->count; i++)
	{
		Session *session = &group->sessions[i];

		PQfinish(session->conn);
		free(session->acquire.sql);
		free(session->release.sql);
		free(session->path);
	}
	free(group->sessions);
	free(group->name);
	*group = groups[--ngroups];
	load_answer_number(0);
}

/* The sessions that a request names, "a:8,b:8"; without a number, all of a group. */
static int
choose_sessions(Session ***chosen)
{
	const char *list = load_word("groups");
	int			n = 0;

	*chosen = NULL;
	while (*list)
	{
		size_t length = strcspn(list, ",:");
		Group *group = find_group(list, length);
		int	   count = group->count;

		list += length;
		if (*list == ':')
			count = (int) strtol(list + 1, (char **) &list, 10);
		if (count > group->count)
			load_fail("group %s has %d sessions", group->name, group->count);
		*chosen = load_memory(*chosen, (n + count) * sizeof(Session *));
		for (int i = 0; i < count; i++)
			(*chosen)[n++] = &group->sessions[i];
		list += *list == ',';
	}
	return n;
}

static void
set_pattern(Session *session, int number)
{
	if (session->path == NULL)
		session->path = load_memory(NULL, PATH_SIZE);
	session->pattern = load_word("path");
	session->number = number;
}

static void
prepare(Session *session, Statement *statement, const char *sql)
{
	PGresult *result;
	char	  deallocate[64];

	if (statement->sql && strcmp(statement->sql, sql) == 0)
		return;
	if (statement->sql)
	{
		snprintf(deallocate, sizeof(deallocate), "DEALLOCATE %s", statement->name);
		PQclear(PQexec(session->conn, deallocate));
	}
	free(statement->sql);
	statement->sql = strdup(sql);
	result = PQprepare(session->conn, statement->name, sql, 0, NULL);
	check(session->conn, PQresultStatus(result) == PGRES_COMMAND_OK);
	PQclear(result);
}

static void
begin(Session *session, SessionState state)
{
	const Statement *statement = state == ACQUIRING ? &session->acquire : &session->release;
	const char		*path = session->path;

	if (state == ACQUIRING)
		load_expand_path(session->path, PATH_SIZE, session->pattern, session->number);
	session->state = state;
	session->since = load_now_us();
	check(session->conn,
		  PQsendQueryPrepared(session->conn, statement->name, 1, &path, NULL, NULL, 0) == 1 &&
			  PQflush(session->conn) == 0);
}

/* Takes what has arrived.  Returns true once the statement is complete, and has succeeded. */
static bool
completed(Session *session)
{
	PGresult *result;

	check(session->conn, PQconsumeInput(session->conn) == 1);
	while (!PQisBusy(session->conn))
	{
		result = PQgetResult(session->conn);
		if (result == NULL)
			return true;
		check(session->conn, PQresultStatus(result) == PGRES_TUPLES_OK ||
								 PQresultStatus(result) == PGRES_COMMAND_OK);
		if (PQntuples(result) > 0 && strcmp(PQgetvalue(result, 0, 0), "f") == 0)
			load_fail("a session got nothing");
		PQclear(result);
	}
	return false;
}

/* A session's statement is complete: what does it do next? */
static void
proceed(Session *session, Job *job)
{
	int64_t now = load_now_us();

	if (session->state == ACQUIRING)
	{
		if (now >= job->from && now <= job->end)
		{
			load_sample(&job->durations, now - session->since);
			load_sample(&job->grants, now);
		}
		else
			job->others++;
		session->state = HOLDING;
		session->since = now;
		if (job->think == 0 || now >= job->end)
			begin(session, RELEASING);
	}
	else if (session->state == RELEASING)
	{
		session->state = IDLE;
		if (job->again && now < job->end)
			begin(session, ACQUIRING);
	}
}

/* Releases what has been held for long enough, and sets the timer for the next. */
static void
end_thinking(Session **sessions, int n, const Job *job)
{
	struct itimerspec timer = {.it_value.tv_sec = 0};
	int64_t			  now = load_now_us();
	int64_t			  next = INT64_MAX;

	for (int i = 0; i < n; i++)
	{
		int64_t due = sessions[i]->since + job->think;

		if (sessions[i]->state != HOLDING)
			continue;
		if (due <= now || now >= job->end)
			begin(sessions[i], RELEASING);
		else if (due < next)
			next = due;
	}
	if (next != INT64_MAX)
	{
		timer.it_value.tv_sec = next / 1000000;
		timer.it_value.tv_nsec = next % 1000000 * 1000;
	}
	timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

static bool
all_idle(Session **sessions, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (sessions[i]->state != IDLE)
			return false;
	}
	return true;
}

/* Lets the sessions work until the job is done. */
static void
work(Session **sessions, int n, Job *job)
{
	struct epoll_event ready[BATCH];

	while (load_now_us() < job->end || !all_idle(sessions, n))
	{
		int nready;

		if (job->think > 0)
			end_thinking(sessions, n, job);
		if (!job->again && all_idle(sessions, n))
			break;
		nready = epoll_wait(poll_fd, ready, BATCH, 100);
		for (int i = 0; i < nready; i++)
		{
			Session *session = ready[i].data.ptr;

			if (session == NULL)
			{
				uint64_t count;

				(void) !read(timer_fd, &count, sizeof(count));
			}
			else if (completed(session))
				proceed(session, job);
		}
	}
}

static void
sleep_until(int64_t time)
{
	int64_t left = time - load_now_us();

	if (left > 0)
		usleep(left);
}

static void
run(void)
{
	Session **sessions;
	int		  n = choose_sessions(&sessions);
	Job		  job = {.think = load_number("think"),
					 .from = load_number("from"),
					 .end = load_number("end"),
					 .again = true};

	for (int i = 0; i < n; i++)
	{
		set_pattern(sessions[i], i + 1);
		prepare(sessions[i], &sessions[i]->acquire, load_word("acquire"));
		prepare(sessions[i], &sessions[i]->release, load_word("release"));
	}
	sleep_until(load_number("begin"));
	for (int i = 0; i < n; i++)
		begin(sessions[i], ACQUIRING);
	work(sessions, n, &job);
	load_answer("durations", &job.durations, job.others);
	free(job.durations.values);
	free(job.grants.values);
	free(sessions);
}

static Session *
one_session(void)
{
	const char *name = load_word("name");
	Group	   *group = find_group(name, strlen(name));
	int			index = (int) load_number("index");

	if (index < 0 || index >= group->count)
		load_fail("group %s has %d sessions", name, group->count);
	return &group->sessions[index];
}

static void
enqueue(void)
{
	Session *session = one_session();

	set_pattern(session, 0);
	prepare(session, &session->acquire, load_word("acquire"));
	prepare(session, &session->release, load_word("release"));
	begin(session, ACQUIRING);
	load_answer_number(1);
}

static void
drain(void)
{
	Session **sessions;
	int		  n = choose_sessions(&sessions);
	Job		  job = {.end = INT64_MAX};

	/* The first has it already: its answer is there to be read. */
	work(sessions, n, &job);
	load_answer("grants", &job.grants, job.others);
	free(job.durations.values);
	free(job.grants.values);
	free(sessions);
}

static void
time_one(void)
{
	Session	 *session = one_session();
	PGresult *result;
	int64_t	  before = load_now_us();

	result = PQexec(session->conn, load_word("sql"));
	if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK)
		load_fail("%s", PQerrorMessage(session->conn));
	before = load_now_us() - before;
	PQclear(result);
	load_answer_number(before);
}

int
main(void)
{
	static const Command commands[] = {{"open", open_group}, {"close", close_group},
									   {"run", run},		 {"enqueue", enqueue},
									   {"drain", drain},	 {"time", time_one}};
	struct epoll_event	 interest = {.events = EPOLLIN};

	poll_fd = epoll_create1(EPOLL_CLOEXEC);
	timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (poll_fd < 0 || timer_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, timer_fd, &interest) < 0)
		load_fail("cannot wait for events: %m");
	load_serve(commands, sizeof(commands) / sizeof(commands[0]));
	return 0;
}
