/*
 * zklock-run.c
 *		Runs a command while a session holds a lock, as flock(1) does with a file.
 *
 * Three processes take part:
 *
 *		zklock-run	has the connection to the database.  It takes the lock, asks every
 *					POLL_MS for how long the session is proved to hold it, and passes that
 *					on as a deadline.
 *		keeper		starts the command in a process group of its own, and ends that group
 *					at the deadline.  It knows nothing of databases.
 *		command		what the user wants to run.
 *
 * So the command depends on a proof that has to come again and again, rather than on the news
 * of a loss.  Whatever keeps the proof away ends the command: the lock is lost, the server or
 * the network is silent, zklock-run is stopped, killed, or stuck.  The deadline is counted from
 * the moment at which the question was sent, on a clock that goes on while the machine sleeps.
 *
 * Each process watches the next one.  The keeper ends the command when its socket to zklock-run
 * closes.  The kernel kills the command when the keeper dies, and zklock-run its children.
 * A keeper that does not act at the deadline is killed with the whole group.
 *
 * The keeper adopts what the command leaves behind (PR_SET_CHILD_SUBREAPER), so it sees when the
 * group is empty.  A process that leaves the group is out of reach.
 *
 * Signals are blocked in zklock-run and the keeper, and read from a file descriptor in the loops
 * that wait for everything else.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres_fe.h"

#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/logging.h"
#include "libpq-fe.h"

/* Exit statuses of its own; that of the command is passed on */
#define EXIT_CONFLICT 1		  /* the lock was not to be had; --conflict-exit-code */
#define EXIT_LOST 70		  /* the lock was lost while the command ran */
#define EXIT_UNAVAILABLE 75	  /* the database or ZooKeeper could not be asked */
#define EXIT_TROUBLE 125	  /* anything else that keeps the command from running */
#define EXIT_NOT_EXECUTED 126 /* the command was found, and could not be executed */
#define EXIT_NOT_FOUND 127

/* Between an answer and the next question.  A loss is noticed within a second. */
#define POLL_MS 500

/* A wait that lasts for longer is reported */
#define REPORT_WAIT_MS 1000

/* How long zklock-run waits for the keeper beyond the time that this has itself */
#define KEEPER_GRACE_MS 2000

/* How long it waits for an answer to the release, when the command has ended */
#define RELEASE_MS 10000

/* A time without end, ms */
#define NEVER PG_INT64_MAX

typedef enum Wanted
{
	WANT_LOCK,
	WANT_SHARED_LOCK,
	WANT_PERMIT,
	WANT_LEADERSHIP,
	WANT_NOTHING /* but the claim */
} Wanted;

/* The command line */
static struct
{
	const char *dbname;
	const char *host;
	const char *port;
	const char *user;
	Wanted		wanted;
	const char *permits;
	const char *claim;	 /* a unit of date_trunc(), or an interval; or NULL */
	int64		wait;	 /* ms; 0: does not wait; NEVER */
	int64		silence; /* ms without proof that end the command; NEVER: as the lease says */
	int64		kill_after; /* ms between SIGTERM and SIGKILL */
	bool		no_kill;
	bool		verbose;
	int			conflict_exit_code;
	const char *path;	   /* as given */
	char	   *lock_path; /* what is locked for it */
	char	  **command;
} options = {.wait = NEVER, .silence = NEVER, .kill_after = 10000, .conflict_exit_code = EXIT_CONFLICT};

/* From zklock-run to the keeper, and back */
typedef enum MessageKind
{
	TO_DEADLINE,	  /* the command may run until then: zklock_run_now(), ms */
	TO_SIGNAL,		  /* a signal for the command */
	FROM_STARTED,	  /* its process, and its group */
	FROM_NOT_STARTED, /* errno of execvp() */
	FROM_ENDED		  /* its status, as of waitpid() */
} MessageKind;

typedef struct Message
{
	MessageKind kind;
	int64		value;
} Message;

static const char *progname;
static PGconn	  *connection;
static char		  *schema;	/* of the extension, quoted */
static sigset_t	   watched; /* signals that are read from signal_fd */
static int		   signal_fd = -1;
static bool		   has_terminal; /* the command gets the terminal that this process has */

/* ms, of a clock that counts the time for which the machine sleeps */
static int64
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Ends the program for an error of the system, whose number is in errno. */
static void
fail_for_system(const char *what)
{
	pg_log_error("%s: %m", what);
	exit(EXIT_TROUBLE);
}

/* Waits for events, until a time at most. */
static void
wait_for_events(struct pollfd *fds, int n, int64 until)
{
	int64 left = until == NEVER ? -1 : Max(until - now_ms(), 0);

	if (poll(fds, n, (int) Min(left, INT_MAX)) < 0)
	{
		if (errno != EINTR)
			fail_for_system("could not wait for events");
		for (int i = 0; i < n; i++)
			fds[i].revents = 0;
	}
}

/* Returns the next signal that has come, or 0. */
static int
next_signal(void)
{
	struct signalfd_siginfo info;

	return read(signal_fd, &info, sizeof(info)) == sizeof(info) ? (int) info.ssi_signo : 0;
}

/* ------------------------------------------------------------------------
 * The keeper
 * ------------------------------------------------------------------------
 */

static void
send_message(int fd, MessageKind kind, int64 value)
{
	Message message = {.kind = kind, .value = value};

	/* If nobody reads it any more, that shows when something is read. */
	(void) send(fd, &message, sizeof(message), MSG_NOSIGNAL);
}

/*
 * Runs the command until it ends, or must end, and reports that through the socket.
 *
 * The command must end when the deadline passes, unless --no-kill is given, and when
 * zklock-run has gone.  Its group then gets SIGTERM, and what is left of it SIGKILL
 * when --kill-after has passed.
 */
static void
run_keeper(int fd, int64 deadline)
{
	int64 kill_at = NEVER; /* the group is being ended; SIGKILL comes then */
	bool  ended = false;
	int	  status = 0;
	pid_t keeper = getpid();
	pid_t command;

	(void) prctl(PR_SET_CHILD_SUBREAPER, 1);
	command = fork();
	if (command < 0)
	{
		send_message(fd, FROM_NOT_STARTED, errno);
		_exit(EXIT_TROUBLE);
	}
	if (command == 0)
	{
		sigset_t none;

		/* Dies with the keeper, which may have died before this is in force. */
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != keeper)
			_exit(EXIT_TROUBLE);
		(void) setpgid(0, 0);
		if (has_terminal)
			(void) tcsetpgrp(STDIN_FILENO, getpid()); /* SIGTTOU is blocked */
		sigemptyset(&none);
		(void) signal(SIGPIPE, SIG_DFL);
		(void) sigprocmask(SIG_SETMASK, &none, NULL);

		/* The socket closes here, or tells why not. */
		execvp(options.command[0], options.command);
		send_message(fd, FROM_NOT_STARTED, errno);
		_exit(EXIT_TROUBLE);
	}
	(void) setpgid(command, command); /* whoever comes first */
	send_message(fd, FROM_STARTED, command);

	for (;;)
	{
		struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};
		bool		  must_end = false;
		int			  child_status;
		pid_t		  child;

		int64 wake_at = options.no_kill ? NEVER : deadline;

		/*
		 * A deadline that has passed wakes nobody again.  The end of the group's last process is
		 * an event only if it is a child of this one.
		 */
		if (kill_at != NEVER)
			wake_at = ended || now_ms() >= kill_at ? now_ms() + 100 : kill_at;
		wait_for_events(fds, lengthof(fds), wake_at);
		while (next_signal() != 0)
			;

		if (fds[0].revents != 0)
		{
			Message message;

			if (recv(fd, &message, sizeof(message), 0) != sizeof(message))
			{
				must_end = true;
				fd = -1; /* nothing comes any more */
			}
			else if (message.kind == TO_DEADLINE)
				deadline = message.value;
			else if (!ended)
				(void) kill(-command, (int) message.value);
		}

		while ((child = waitpid(-1, &child_status, WNOHANG | WUNTRACED)) > 0)
		{
			if (child != command)
				continue;

			/* Whoever stops it at the terminal would keep the lock from everybody else. */
			if (WIFSTOPPED(child_status))
			{
				if (WSTOPSIG(child_status) == SIGTSTP)
					(void) kill(-command, SIGCONT);
				continue;
			}
			ended = true;
			status = child_status;
		}

		must_end |= !options.no_kill && now_ms() >= deadline;
		if (must_end && kill_at == NEVER)
		{
			kill_at = now_ms() + options.kill_after;
			(void) kill(-command, SIGTERM);
			(void) kill(-command, SIGCONT);
		}
		if (now_ms() >= kill_at)
			(void) kill(-command, SIGKILL);

		/* A command that has ended by itself may have left others running. */
		if (ended && (kill_at == NEVER || kill(-command, 0) < 0))
			break;
	}
	send_message(fd, FROM_ENDED, status);
	_exit(0);
}

/*
 * Starts the keeper, which starts the command, with a deadline from the beginning.  Returns the
 * socket to it.
 */
static int
start_keeper(pid_t *keeper, int64 deadline)
{
	int	  fds[2];
	pid_t parent = getpid();

	has_terminal = isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		fail_for_system("could not create a socket");
	*keeper = fork();
	if (*keeper < 0)
		fail_for_system("could not start a process");
	if (*keeper > 0)
	{
		close(fds[1]);
		return fds[0];
	}

	/*
	 * The server notices the end of zklock-run by that of the connection, which must not stay
	 * open here.  Signals from the terminal do not stop this process, which is in a group
	 * of its own.
	 */
	close(fds[0]);
	close(PQsocket(connection));
	(void) setpgid(0, 0);
	if (getppid() != parent)
		_exit(EXIT_TROUBLE);
	run_keeper(fds[1], deadline);
	return -1; /* not reached */
}

/* ------------------------------------------------------------------------
 * The database
 * ------------------------------------------------------------------------
 */

/* Writes a message of the server, such as that ZooKeeper is away, with the program's name. */
static void
report_notice(void *arg, const char *message)
{
	(void) arg;
	pg_log_info("%.*s", (int) strcspn(message, "\n"), message);
}

/* Reports an error of the server, or, without a result that has it, of the connection. */
static void
report_error(const char *what, const PGresult *result)
{
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
	const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);

	if (text == NULL)
		text = PQerrorMessage(connection);
	pg_log_error("%s: %.*s", what, (int) strcspn(text, "\n"), text);
	if (detail)
		pg_log_error_detail("%s", detail);
	if (hint)
		pg_log_error_hint("%s", hint);
}

/*
 * Ends the program for an error of the server, or of the connection, with the status that says
 * whether a later try may succeed.
 */
static void
fail(const char *what, const PGresult *result)
{
	const char				*state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	static const char *const passing[] = {"08", "53", "57P", "58030", "40001", "40P01"};
	bool					 passes = state == NULL;

	for (size_t i = 0; state && i < lengthof(passing); i++)
		passes |= strncmp(state, passing[i], strlen(passing[i])) == 0;
	report_error(what, result);
	exit(passes ? EXIT_UNAVAILABLE : EXIT_TROUBLE);
}

/* Connects as the options say; what the user gives otherwise comes before the defaults. */
static PGconn *
connect_database(void)
{
	const char *const keywords[] = {"connect_timeout",
									"keepalives_idle",
									"keepalives_interval",
									"keepalives_count",
									"fallback_application_name",
									"host",
									"port",
									"user",
									"dbname",
									NULL};
	const char *const values[] = {getenv("PGCONNECT_TIMEOUT") ? NULL : "10",
								  "10",
								  "5",
								  "3",
								  progname,
								  options.host,
								  options.port,
								  options.user,
								  options.dbname,
								  NULL};
	PGconn *conn = PQconnectdbParams(keywords, values, 1);

	if (conn == NULL)
		fail_for_system("could not connect");
	(void) PQsetNoticeProcessor(conn, report_notice, NULL);
	return conn;
}

/*
 * Reports who has what is waited for, if the role may know that, from a connection of its own.
 */
static void
report_holders(void)
{
	PGconn *conn = connect_database();
	char   *query =
		psprintf("SELECT coalesce(nullif(pg_catalog.concat(' process ' || pid || ' of', ' server ' || server,"
				 " ' (user \"' || usename || '\", application \"' || application_name || '\")'), ''),"
				 " ' ' || owner, ' another client'), created FROM %s.zk_contenders($1)"
				 " WHERE granted OR granted IS NULL AND kind OPERATOR(pg_catalog.=) 'lock'",
				 schema);
	const char *values[] = {options.lock_path};
	PGresult   *result;

	/*
	 * A command that waits is to get the lock as soon as it is free.  If none does, only another
	 * server knows whether it keeps a node, or a session holds it.
	 */
	PQclear(PQexec(conn, "SET statement_timeout = '2s'"));
	result = PQexecParams(conn, query, 1, NULL, values, NULL, NULL, 0);
	for (int i = 0; i < PQntuples(result); i++)
		pg_log_info("\"%s\" is held by%s since %s", options.lock_path,
					PQgetvalue(result, i, 0), PQgetvalue(result, i, 1));
	PQclear(result);
	PQfinish(conn);
	pg_free(query);
}

/*
 * Runs a query, and returns its result, which has rows.  If the server refuses it, the program
 * fails, with a text that says what the query was for.  A query that is for nothing, which is
 * NULL, only returns NULL then, or when "until" passes.  Ends the program at a signal.  Without a
 * query it waits for the answer to the one that was sent last, if that is still to come.
 */
static PGresult *
run_query(const char *what, const char *query, int nvalues, const char *const *values, int64 until)
{
	int64	  report_at = now_ms() + REPORT_WAIT_MS;
	PGresult *result;
	PGresult *next;

	if (query && !PQsendQueryParams(connection, query, nvalues, NULL, values, NULL, NULL, 0) && what)
		fail(what, NULL);
	while (PQisBusy(connection))
	{
		struct pollfd fds[] = {{.fd = PQsocket(connection), .events = POLLIN},
							   {.fd = signal_fd, .events = POLLIN}};
		int			  signal_number;

		wait_for_events(fds, lengthof(fds), Min(until, report_at));
		while ((signal_number = next_signal()) != 0)
		{
			PGcancel *cancel;
			char	  error[256];

			if (signal_number == SIGCHLD)
				continue;

			/* The end of the connection would end the wait as well, but not at once. */
			cancel = PQgetCancel(connection);
			if (cancel)
				(void) PQcancel(cancel, error, sizeof(error));
			exit(128 + signal_number);
		}
		if (fds[0].revents != 0 && !PQconsumeInput(connection))
		{
			if (what)
				fail(what, NULL);
			return NULL;
		}
		if (now_ms() >= until)
			return NULL;
		if (now_ms() >= report_at)
		{
			report_at = NEVER;
			pg_log_info("waiting for \"%s\"", options.lock_path);
			report_holders();
		}
	}

	result = PQgetResult(connection);
	while ((next = PQgetResult(connection)) != NULL)
		PQclear(next);
	if (PQresultStatus(result) != PGRES_TUPLES_OK && what)
		fail(what, result);
	return result;
}

/* Returns whether the first column of a result's only row is true; frees the result. */
static bool
result_is_true(PGresult *result)
{
	bool is_true = PQntuples(result) == 1 && strcmp(PQgetvalue(result, 0, 0), "t") == 0;

	PQclear(result);
	return is_true;
}

/* Connects, and prepares the session for one that only holds a lock. */
static void
open_session(void)
{
	PGresult *result;

	connection = connect_database();
	if (PQstatus(connection) != CONNECTION_OK)
		fail("could not connect", NULL);

	/* Signals end the program until here: there is nothing to end but it. */
	if (sigprocmask(SIG_BLOCK, &watched, NULL) < 0 ||
		(signal_fd = signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC)) < 0)
		fail_for_system("could not watch signals");

	/*
	 * The limits of the user's other sessions are not meant for this one.  The server ends it as
	 * soon as the lock is lost.
	 */
	result = run_query("could not prepare the session",
					   "SELECT pg_catalog.quote_ident(n.nspname),"
					   " pg_catalog.set_config('search_path', '', false),"
					   " pg_catalog.set_config('statement_timeout', '0', false),"
					   " pg_catalog.set_config('lock_timeout', '0', false),"
					   " pg_catalog.set_config('idle_session_timeout', '0', false),"
					   " pg_catalog.set_config('zklock.on_lock_loss', 'terminate', false)"
					   " FROM pg_catalog.pg_extension e"
					   " JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace"
					   " WHERE e.extname OPERATOR(pg_catalog.=) 'zklock'",
					   0, NULL, NEVER);
	if (PQntuples(result) != 1)
	{
		pg_log_error("extension \"zklock\" is not installed in database \"%s\"", PQdb(connection));
		pg_log_error_hint("Create it there, or name another database with --dbname.");
		exit(EXIT_TROUBLE);
	}
	schema = pg_strdup(PQgetvalue(result, 0, 0));
	PQclear(result);
}

/*
 * Takes what the options ask for, and the claim.  Ends the program with --conflict-exit-code
 * if that is not to be had.
 */
static void
acquire(void)
{
	static const char *const functions[] =
		{[WANT_LOCK] = "zk_lock($1, $2::pg_catalog.interval)",
		 [WANT_SHARED_LOCK] = "zk_lock_shared($1, $2::pg_catalog.interval)",
		 [WANT_PERMIT] = "zk_semaphore_acquire($1, $3::pg_catalog.int4, $2::pg_catalog.interval)",
		 [WANT_LEADERSHIP] = "zk_await_leadership($1, $2::pg_catalog.interval)"};
	char *timeout = options.wait == NEVER ? NULL : psprintf("%lld ms", (long long) options.wait);
	const char *values[] = {options.lock_path, timeout, options.permits};
	char	   *query;

	if (options.wanted != WANT_NOTHING)
	{
		query = psprintf("SELECT %s.%s", schema, functions[options.wanted]);
		if (!result_is_true(run_query("could not lock", query,
									  options.wanted == WANT_PERMIT ? 3 : 2, values, NEVER)))
		{
			if (options.verbose)
			{
				pg_log_info("\"%s\" is taken", options.lock_path);
				report_holders();
			}
			exit(options.conflict_exit_code);
		}
		pg_free(query);
	}
	if (options.claim)
	{
		/* A unit of date_trunc() is a word; an interval begins with its number. */
		const char *slot = isdigit((unsigned char) options.claim[0])
							   ? "pg_catalog.date_bin($2::pg_catalog.interval, pg_catalog.now(), '2000-01-01 00:00:00+00')"
							   : "pg_catalog.date_trunc($2, pg_catalog.now(), 'UTC')";
		const char *claim_values[] = {options.path, options.claim};

		query = psprintf("SELECT %s.zk_claim($1, %s)", schema, slot);
		if (!result_is_true(run_query("could not claim", query, 2, claim_values, NEVER)))
		{
			if (options.verbose)
				pg_log_info("this %s has been claimed at \"%s\" before", options.claim, options.path);
			exit(options.conflict_exit_code);
		}
		pg_free(query);
	}
}

/* ------------------------------------------------------------------------
 * The command
 * ------------------------------------------------------------------------
 */

/* What is known of the hold while the command runs */
typedef struct Proof
{
	char *query;	/* asks for how long the hold is proved, in ms, and its token */
	char *token;	/* NULL: it has none */
	int64 deadline; /* the command may run until then */
	bool  lost;		/* and is to end now */
} Proof;

/*
 * Takes in the answer to a question that was sent at that time.  Another token means that the
 * server leads anew, and others may have led in between.
 */
static void
take_proof(Proof *proof, int64 asked_at, const PGresult *result)
{
	int64		proved_ms;
	const char *token;

	if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
	{
		report_error(psprintf("\"%s\" is lost", options.lock_path), result);
		proof->lost = true;
		return;
	}
	token = PQgetisnull(result, 0, 1) ? NULL : PQgetvalue(result, 0, 1);
	if (proof->token && (token == NULL || strcmp(proof->token, token) != 0))
	{
		pg_log_error("\"%s\" is lost: its token has changed from %s to %s", options.lock_path,
					 proof->token, token ? token : "none");
		proof->lost = true;
		return;
	}
	if (proof->token == NULL && token)
		proof->token = pg_strdup(token);
	proved_ms = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	if (proved_ms > 0)
		proof->deadline = asked_at + (options.silence == NEVER ? proved_ms : options.silence);
}

/*
 * Runs the command, and ends it when the proof that it has the lock is not renewed in time.  Returns
 * the exit status.
 */
static int
run_command(void)
{
	static const char *const releases[] =
		{[WANT_LOCK] = "zk_unlock", [WANT_SHARED_LOCK] = "zk_unlock_shared", [WANT_PERMIT] = "zk_semaphore_release", [WANT_LEADERSHIP] = "zk_is_leader"};
	const char *values[] = {options.lock_path};
	Proof		proof = {0};
	int64		asked_at = now_ms();
	int64		ask_at;			 /* NEVER: an answer is on its way */
	int64		kill_at = NEVER; /* the keeper has not ended the command by then */
	PGresult   *result;
	pid_t		keeper;
	pid_t		command = 0;
	int			keeper_fd;
	int			not_started = 0; /* errno */
	int			status = 0;
	bool		ended = false;

	proof.query =
		psprintf("SELECT (extract(epoch FROM %s.zk_lease_remaining($1)) * 1000)::pg_catalog.int8, %s%s",
				 schema, options.wanted == WANT_PERMIT ? "NULL" : schema,
				 options.wanted == WANT_PERMIT ? "" : ".zk_fencing_token($1)");
	result = run_query("could not prove that the lock is held", proof.query, 1, values, NEVER);
	take_proof(&proof, asked_at, result);
	PQclear(result);
	if (proof.lost)
		return EXIT_LOST;
	setenv("ZKLOCK_PATH", options.lock_path, 1);
	if (proof.token)
		setenv("ZKLOCK_TOKEN", proof.token, 1);

	keeper_fd = start_keeper(&keeper, proof.deadline);
	ask_at = now_ms() + POLL_MS;
	while (!ended)
	{
		struct pollfd fds[] = {{.fd = keeper_fd, .events = POLLIN},
							   {.fd = signal_fd, .events = POLLIN},
							   {.fd = proof.lost ? -1 : PQsocket(connection), .events = POLLIN}};
		int			  signal_number;

		wait_for_events(fds, lengthof(fds),
						Min(kill_at, proof.lost ? NEVER : Min(ask_at, proof.deadline)));

		while ((signal_number = next_signal()) != 0)
		{
			if (signal_number != SIGCHLD)
				send_message(keeper_fd, TO_SIGNAL, signal_number);
		}

		if (fds[0].revents != 0)
		{
			Message message;

			if (recv(keeper_fd, &message, sizeof(message), 0) != sizeof(message))
			{
				pg_log_error("the process that keeps the command has ended");
				if (command != 0)
					(void) kill(-command, SIGKILL);
				return EXIT_TROUBLE;
			}
			switch (message.kind)
			{
				case FROM_STARTED:
					command = (pid_t) message.value;
					break;
				case FROM_NOT_STARTED:
					not_started = (int) message.value;
					break;
				case FROM_ENDED:
					status = (int) message.value;
					ended = true;
					break;
				case TO_DEADLINE:
				case TO_SIGNAL:
					break;
			}
		}

		if (fds[2].revents != 0)
		{
			if (!PQconsumeInput(connection))
				take_proof(&proof, asked_at, NULL);
			else if (!PQisBusy(connection) && (result = PQgetResult(connection)) != NULL)
			{
				take_proof(&proof, asked_at, result);
				PQclear(result);
				while ((result = PQgetResult(connection)) != NULL)
					PQclear(result);
				ask_at = now_ms() + POLL_MS;
				if (!options.no_kill)
					send_message(keeper_fd, TO_DEADLINE, proof.deadline);
			}
		}

		if (!proof.lost && now_ms() >= ask_at)
		{
			asked_at = now_ms();
			ask_at = NEVER;
			if (!PQsendQueryParams(connection, proof.query, 1, NULL, values, NULL, NULL, 0))
				take_proof(&proof, asked_at, NULL);
		}
		if (!proof.lost && now_ms() >= proof.deadline)
		{
			pg_log_error("nothing proves any more that \"%s\" is held", options.lock_path);
			proof.lost = true;
		}

		if (proof.lost && !ended && kill_at == NEVER && !options.no_kill)
		{
			pg_log_info("ending the command");
			send_message(keeper_fd, TO_DEADLINE, 0);
			kill_at = now_ms() + options.kill_after + KEEPER_GRACE_MS;
		}
		if (now_ms() >= kill_at)
		{
			pg_log_error("the process that keeps the command does not answer");
			if (command != 0)
				(void) kill(-command, SIGKILL);
			(void) kill(keeper, SIGKILL);
			break;
		}
	}

	(void) waitpid(keeper, NULL, 0);
	if (has_terminal)
		(void) tcsetpgrp(STDIN_FILENO, getpgrp()); /* SIGTTOU is blocked */
	if (not_started != 0)
	{
		errno = not_started;
		pg_log_error("could not execute \"%s\": %m", options.command[0]);
		return not_started == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTED;
	}

	/*
	 * Release what was taken.  Only if the server says that it was held until now, all is well.  The
	 * command may have ended while a question was under way: it goes first.
	 */
	if (!proof.lost)
	{
		char *query = psprintf("SELECT %s.%s($1)", schema, releases[options.wanted]);
		int64 until = now_ms() + RELEASE_MS;

		PQclear(run_query(NULL, NULL, 0, NULL, until));
		proof.lost = !result_is_true(run_query(NULL, query, 1, values, until));
		if (proof.lost)
			pg_log_error("\"%s\" was lost before the command ended, or the server does not answer",
						 options.lock_path);
	}
	if (proof.lost)
		return EXIT_LOST;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ------------------------------------------------------------------------
 * The command line
 * ------------------------------------------------------------------------
 */

static void
print_help(void)
{
	printf("%s runs a command while it holds a lock of the whole fleet.\n\n", progname);
	printf("Usage:\n  %s [OPTION]... PATH -- COMMAND [ARGUMENT]...\n", progname);
	printf("\nWhat is taken at the ZooKeeper path:\n");
	printf("                             an exclusive lock, without one of these\n");
	printf("  -s, --shared               a shared lock\n");
	printf("  -m, --permits=NUMBER       one of so many permits of a semaphore\n");
	printf("  -l, --leader               nothing; this database server must lead there\n");
	printf("  -c, --claim=PERIOD         the present day, hour, week, or 15min; the command runs once\n");
	printf("                             in it. With --try or --wait, not while PATH.running is locked,\n");
	printf("                             which it holds meanwhile\n");
	printf("\nOptions:\n");
	printf("  -n, --try                  do not wait\n");
	printf("  -w, --wait=TIME            wait for so long; for ever without one of the two, or, with\n");
	printf("                             --leader, not at all\n");
	printf("  -E, --conflict-exit-code=NUMBER\n");
	printf("                             exit status if it cannot be had (default: %d)\n",
		   EXIT_CONFLICT);
	printf("  -k, --kill-after=TIME      time from SIGTERM to SIGKILL for a command that has lost the\n");
	printf("                             lock (default: 10s)\n");
	printf("      --silence=TIME         end the command if nothing proves for so long that the lock is\n");
	printf("                             held (default: at the end of the server's lease)\n");
	printf("      --no-kill              do not end a command that has lost the lock\n");
	printf("  -v, --verbose              say who has the lock\n");
	printf("  -V, --version              output version information, then exit\n");
	printf("  -?, --help                 show this help, then exit\n");
	printf("\nConnection options:\n");
	printf("  -d, --dbname=CONNSTR       database to connect to, or a connection string\n");
	printf("  -h, --host=HOSTNAME        database server host or socket directory\n");
	printf("  -p, --port=PORT            database server port\n");
	printf("  -U, --username=USERNAME    user name to connect as\n");
	printf("\nTimes are numbers of seconds, or have a unit: ms, s, min, h or d.\n");
	printf("The exit status is that of the command; %d if the lock was lost, %d if the database or\n"
		   "ZooKeeper could not be asked, 125 to 127 as of env.\n",
		   EXIT_LOST, EXIT_UNAVAILABLE);
}

static void bad_usage(const char *format, ...) pg_attribute_printf(1, 2);

/* Ends the program for a command line that it does not understand. */
static void
bad_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	pg_log_generic_v(PG_LOG_ERROR, PG_LOG_PRIMARY, format, args);
	va_end(args);
	pg_log_error_hint("Try \"%s --help\" for more information.", progname);
	exit(EXIT_TROUBLE);
}

/* Returns an option's time in ms: a number, and a unit. */
static int64
read_time(const char *option, const char *text)
{
	static const struct
	{
		const char *name;
		double		ms;
	} units[] = {{"", 1000},	 {"ms", 1},		 {"s", 1000},
				 {"min", 60000}, {"h", 3600000}, {"d", 86400000}};
	char  *unit;
	double number = strtod(text, &unit);

	while (*unit == ' ')
		unit++;
	for (size_t i = 0; i < lengthof(units); i++)
	{
		/* 24 days are the most that PostgreSQL's own settings allow. */
		if (strcmp(unit, units[i].name) == 0 && unit != text && number >= 0 &&
			number * units[i].ms <= INT_MAX)
			return (int64) (number * units[i].ms);
	}
	bad_usage("invalid time \"%s\" for option --%s", text, option);
	return 0; /* not reached */
}

/* Returns an option's number, as text, if it is between these. */
static const char *
read_number(const char *option, const char *text, int min, int max)
{
	char *end;
	long  number = strtol(text, &end, 10);

	if (end == text || *end != '\0' || number < min || number > max)
		bad_usage("invalid number \"%s\" for option --%s: it must be between %d and %d", text,
				  option, min, max);
	return text;
}

/* Sets what is wanted; two such options contradict each other. */
static void
set_wanted(Wanted wanted)
{
	if (options.wanted != WANT_LOCK)
		bad_usage("--shared, --permits and --leader cannot be used together");
	options.wanted = wanted;
}

static void
read_options(int argc, char **argv)
{
	enum
	{
		OPTION_SILENCE = 256,
		OPTION_NO_KILL
	};
	static const struct option long_options[] = {{"shared", no_argument, NULL, 's'},
												 {"permits", required_argument, NULL, 'm'},
												 {"leader", no_argument, NULL, 'l'},
												 {"claim", required_argument, NULL, 'c'},
												 {"try", no_argument, NULL, 'n'},
												 {"wait", required_argument, NULL, 'w'},
												 {"conflict-exit-code", required_argument, NULL, 'E'},
												 {"kill-after", required_argument, NULL, 'k'},
												 {"silence", required_argument, NULL, OPTION_SILENCE},
												 {"no-kill", no_argument, NULL, OPTION_NO_KILL},
												 {"verbose", no_argument, NULL, 'v'},
												 {"dbname", required_argument, NULL, 'd'},
												 {"host", required_argument, NULL, 'h'},
												 {"port", required_argument, NULL, 'p'},
												 {"username", required_argument, NULL, 'U'},
												 {NULL, 0, NULL, 0}};
	bool					   waits = false; /* --try or --wait is given */
	int						   option;

	/* As PostgreSQL's programs have it */
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0))
	{
		print_help();
		exit(0);
	}
	if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0))
	{
		printf("%s %s\n", progname, ZKLOCK_VERSION);
		exit(0);
	}

	/* Behind the path, what looks like an option is the command's. */
	while ((option = getopt_long(argc, argv, "+:sm:lc:nw:E:k:vd:h:p:U:", long_options, NULL)) != -1)
	{
		switch (option)
		{
			case 's':
				set_wanted(WANT_SHARED_LOCK);
				break;
			case 'm':
				set_wanted(WANT_PERMIT);
				options.permits = read_number("permits", optarg, 1, INT_MAX);
				break;
			case 'l':
				set_wanted(WANT_LEADERSHIP);
				break;
			case 'c':
				options.claim = optarg;
				break;
			case 'n':
				options.wait = 0;
				waits = true;
				break;
			case 'w':
				options.wait = read_time("wait", optarg);
				waits = true;
				break;
			case 'E':
				options.conflict_exit_code = atoi(read_number("conflict-exit-code", optarg, 0, 255));
				break;
			case 'k':
				options.kill_after = read_time("kill-after", optarg);
				break;
			case OPTION_SILENCE:
				options.silence = read_time("silence", optarg);
				if (options.silence < 2 * POLL_MS)
					bad_usage("invalid time \"%s\" for option --silence: it must be at least 1 s",
							  optarg);
				break;
			case OPTION_NO_KILL:
				options.no_kill = true;
				break;
			case 'v':
				options.verbose = true;
				break;
			case 'd':
				options.dbname = optarg;
				break;
			case 'h':
				options.host = optarg;
				break;
			case 'p':
				options.port = optarg;
				break;
			case 'U':
				options.user = optarg;
				break;
			case '?':
				bad_usage("unknown option \"%s\"", argv[optind - 1]);
				break;
			default:
				bad_usage("option \"%s\" needs a value", argv[optind - 1]);
		}
	}

	if (optind < argc)
		options.path = argv[optind++];
	if (optind < argc && strcmp(argv[optind], "--") == 0)
		optind++;
	else if (optind < argc && argv[optind][0] == '-')
		bad_usage("option \"%s\" must stand before the path", argv[optind]);
	if (optind >= argc)
		bad_usage(options.path ? "no command is given" : "no path is given");
	options.command = &argv[optind];

	if (options.claim && options.wanted != WANT_LOCK)
		bad_usage("--claim cannot be used with --shared, --permits or --leader");
	options.lock_path = pg_strdup(options.path);
	if (options.claim && !waits)
		options.wanted = WANT_NOTHING;
	else if (options.claim)
		options.lock_path = psprintf("%s.running", options.path);
	if (options.wanted == WANT_LEADERSHIP && !waits)
		options.wait = 0;
}

int
main(int argc, char **argv)
{
	static const int signals[] = {SIGHUP,  SIGINT,	SIGQUIT, SIGTERM,
								  SIGUSR1, SIGUSR2, SIGCHLD, SIGTTOU};

	pg_logging_init(argv[0]);
	progname = get_progname(argv[0]);
	read_options(argc, argv);

	sigemptyset(&watched);
	for (size_t i = 0; i < lengthof(signals); i++)
		sigaddset(&watched, signals[i]);
	(void) signal(SIGPIPE, SIG_IGN);

	open_session();
	acquire();
	if (options.wanted != WANT_NOTHING)
		return run_command();

	/* A claim is made once and for all, so nothing is to be watched. */
	PQfinish(connection);
	(void) sigprocmask(SIG_UNBLOCK, &watched, NULL);
	(void) signal(SIGPIPE, SIG_DFL);
	execvp(options.command[0], options.command);
	pg_log_error("could not execute \"%s\": %m", options.command[0]);
	return errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTED;
}
