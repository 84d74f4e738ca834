/*
 * zk_ask.c
 *		Questions to ZooKeeper servers, beside the client library.
 *
 * Does a session live?  The library takes the first 41 bytes that arrive for
 * the answer to its handshake, whatever they are: a web server's error page
 * reads as a session with another id, and that as the end of ours.  So we shake
 * hands ourselves, and look: ZooKeeper's answer has a fixed length and form,
 * with session 0 for one that is over.  If the session lives, the handshake is
 * a connection like any other of its client; it ends when we hang up.
 *
 * What is a server's tickTime?  "conf" tells, one of the four-letter commands,
 * where the administrator has allowed it.
 *
 * Why does TLS fail?  The library says only that it does.  So we shake hands
 * beside it.  A server that refuses our certificate may say so after that, hence
 * the question to it, a four-letter command that it may well refuse.
 *
 * Each question is asked in a thread of its own, which may wait, and ends with
 * EVENT_ASKED.
 *
 * Runs in: the worker; the main thread and threads of its own, as the functions
 * say.  Threads call nothing of PostgreSQL.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "port/pg_bswap.h"
#include "shared/clock.h"
#include "zk/zk_ask.h"
#include "zk/zk_event.h"
#include "zk/zk_thread.h"
#include "zk/zk_tls_stream.h"

#define ANSWER_MS 3000 /* for each server, in all */
#define CONF_SIZE 8192

/* ZooKeeper's handshake: both messages, with their lengths in front. */
#define REQUEST_SIZE 49
#define ANSWER_SIZE 40 /* without the last byte, which old servers leave out */

typedef enum AskingKind
{
	ASKING_SESSION,	  /* does it live? */
	ASKING_TICK_TIME, /* of "server" */
	ASKING_TLS		  /* why does it fail? */
} AskingKind;

typedef struct Asking
{
	AskingKind		  kind;
	uintptr_t		  number;
	char			  server[ZK_SERVER_SIZE];
	ZkSessionQuestion session; /* of TLS, servers and files only */
} Asking;

/* A connection, with TLS or without */
typedef struct Line
{
	int		  sock;
	ZkTls	  tls;
	TlsStream stream;
	int64	  until; /* ms */
} Line;

/* ------------------------------------------------------------------------
 * Threads of our own
 * ------------------------------------------------------------------------
 */

/* Waits for a socket until a time, ms; false if that passes. */
static bool
wait_until_ready(int sock, short events, int64 until)
{
	struct pollfd fd = {.fd = sock, .events = events};
	int64		  left = until - zklock_now_ms();

	return left > 0 && poll(&fd, 1, (int) left) == 1;
}

/* Connects to "address:port"; -1 if that fails. */
static int
connect_to(const char *server, int64 until)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *found;
	const char		*colon = strrchr(server, ':');
	bool			 bracket = server[0] == '[';
	char			 host[ZK_SERVER_SIZE];
	int				 error = 0;
	socklen_t		 len = sizeof(error);
	int				 sock;

	if (colon == NULL)
		return -1;
	strlcpy(host, server + bracket, Min(sizeof(host), (size_t) (colon - server + 1 - 2 * bracket)));
	if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
		return -1;
	sock = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (sock >= 0 && ((connect(sock, found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) ||
					  !wait_until_ready(sock, POLLOUT, until) ||
					  getsockopt(sock, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0))
	{
		close(sock);
		sock = -1;
	}
	freeaddrinfo(found);
	return sock;
}

static bool
line_open(Line *line, const char *server, ZkTls tls)
{
	*line = (Line){.tls = tls, .until = zklock_now_ms() + ANSWER_MS};
	line->sock = connect_to(server, line->until);
	return line->sock >= 0 &&
		   (tls == ZK_TLS_OFF || zk_tls_stream_open(&line->stream, tls, line->sock, line->until));
}

static bool
line_send(Line *line, const char *message, size_t len)
{
	if (line->tls != ZK_TLS_OFF)
		return zk_tls_stream_send(&line->stream, message, len);
	return send(line->sock, message, len, MSG_NOSIGNAL) == (ssize_t) len;
}

static ssize_t
line_receive(Line *line, char *buffer, size_t size)
{
	if (line->tls != ZK_TLS_OFF)
		return zk_tls_stream_receive(&line->stream, buffer, size);
	if (!wait_until_ready(line->sock, POLLIN, line->until))
		return -1;
	return recv(line->sock, buffer, size, 0);
}

static void
line_close(Line *line)
{
	if (line->sock < 0)
		return;
	if (line->tls != ZK_TLS_OFF)
		zk_tls_stream_close(&line->stream);
	close(line->sock);
}

/* Sends a message, and reads until the buffer is full or the server hangs up. */
static size_t
converse(const char *server, ZkTls tls, const char *message, size_t len, char *answer, size_t size)
{
	Line   line;
	size_t got = 0;

	if (line_open(&line, server, tls) && line_send(&line, message, len))
	{
		while (got < size)
		{
			ssize_t n = line_receive(&line, answer + got, size - got);

			if (n <= 0)
				break;
			got += n;
		}
	}
	line_close(&line);
	return got;
}

static char *
put_int32(char *p, int32 value)
{
	uint32 big = pg_hton32((uint32) value);

	memcpy(p, &big, sizeof(big));
	return p + sizeof(big);
}

static char *
put_int64(char *p, int64 value)
{
	uint64 big = pg_hton64((uint64) value);

	memcpy(p, &big, sizeof(big));
	return p + sizeof(big);
}

static int32
get_int32(const char *p)
{
	uint32 big;

	memcpy(&big, p, sizeof(big));
	return (int32) pg_ntoh32(big);
}

static int64
get_int64(const char *p)
{
	uint64 big;

	memcpy(&big, p, sizeof(big));
	return (int64) pg_ntoh64(big);
}

/* What one server says of the session. */
static ZkSessionVerdict
shake_hands(const char *server, const ZkSessionQuestion *question)
{
	char  request[REQUEST_SIZE] = {0};
	char  answer[ANSWER_SIZE];
	char *p = put_int32(request, REQUEST_SIZE - 4);
	int32 len;
	int64 id;

	p = put_int32(p, 0); /* version of the protocol */
	p = put_int64(p, 0); /* last zxid seen */
	p = put_int32(p, question->timeout);
	p = put_int64(p, question->id);
	p = put_int32(p, ZKLOCK_PASSWORD_SIZE);
	memcpy(p, question->password, ZKLOCK_PASSWORD_SIZE);
	if (converse(server, question->tls, request, sizeof(request), answer, sizeof(answer)) !=
		sizeof(answer))
		return ZK_VERDICT_NONE;

	/* Length, version, timeout, session, length of the password, password. */
	len = get_int32(answer);
	id = get_int64(answer + 12);
	if ((len != ANSWER_SIZE - 4 && len != ANSWER_SIZE - 3) || get_int32(answer + 4) != 0 ||
		get_int32(answer + 20) != ZKLOCK_PASSWORD_SIZE)
		return ZK_VERDICT_NONE;
	if (id == 0)
		return ZK_VERDICT_OVER;
	return id == question->id ? ZK_VERDICT_LIVES : ZK_VERDICT_NONE;
}

/* Takes the next server from a list, which may end with a chroot.  False: there is none. */
static bool
next_server(const char **list, char *server, size_t size)
{
	size_t len = strcspn(*list, ",/");

	if (len == 0)
		return false;
	strlcpy(server, *list, Min(size, len + 1));
	*list += len + ((*list)[len] == ',');
	return true;
}

/* Asks one server after the other until one knows. */
static ZkSessionVerdict
ask_about_session(const ZkSessionQuestion *question)
{
	const char		*list = question->servers;
	char			 server[ZK_SERVER_SIZE];
	ZkSessionVerdict verdict = ZK_VERDICT_NONE;

	while (verdict == ZK_VERDICT_NONE && next_server(&list, server, sizeof(server)))
		verdict = shake_hands(server, question);
	return verdict;
}

/*
 * Why does TLS fail?  Returns a sentence about the first server, malloc'd, or NULL
 * if it is not TLS that fails, or not with all of them.
 */
static char *
ask_about_tls(const ZkSessionQuestion *question)
{
	const char *list = question->servers;
	char		server[ZK_SERVER_SIZE];
	char		text[512] = "";

	while (next_server(&list, server, sizeof(server)))
	{
		Line line;
		char answer[64];
		bool works = line_open(&line, server, question->tls) && line_send(&line, "srvr", 4) &&
					 line_receive(&line, answer, sizeof(answer)) > 0;

		/* A server that only hangs up may not like four-letter commands. */
		if (text[0] == '\0' && line.sock >= 0)
			snprintf(text, sizeof(text), "TLS with ZooKeeper server %s fails: %s", server,
					 line.stream.fault);
		line_close(&line);
		if (works)
			return NULL;
	}
	return text[0] != '\0' ? strdup(text) : NULL;
}

/* A server's tickTime, ms; 0 if it does not tell, or not what can be. */
static int
ask_about_tick_time(const char *server, ZkTls tls)
{
	static const char key[] = "tickTime=";

	char		answer[CONF_SIZE];
	const char *found;
	long		tick_time;

	answer[converse(server, tls, "conf", 4, answer, sizeof(answer) - 1)] = '\0';
	found = strstr(answer, key);
	if (found == NULL || (found != answer && found[-1] != '\n'))
		return 0;
	tick_time = strtol(found + strlen(key), NULL, 10);
	return zk_answer_tick_time_fault(tick_time) ? 0 : (int) tick_time;
}

/* A thread of its own, which ends with it */
static void *
asker_main(void *arg)
{
	Asking *asking = arg;
	Event	event = {.kind = EVENT_ASKED, .number = asking->number};

	switch (asking->kind)
	{
		case ASKING_SESSION:
			event.code = ask_about_session(&asking->session);
			break;
		case ASKING_TICK_TIME:
			event.code = ask_about_tick_time(asking->server, asking->session.tls);
			break;
		case ASKING_TLS:
			event.text = ask_about_tls(&asking->session);
			break;
	}
	explicit_bzero(asking, sizeof(*asking));
	free(asking);
	zk_event_push(&event, EVENT_AT_ONCE);
	return NULL;
}

/* ------------------------------------------------------------------------
 * Main thread
 * ------------------------------------------------------------------------
 */

static bool
start_asking(const Asking *asking)
{
	Asking *copy = malloc(sizeof(Asking));

	if (copy == NULL)
		return false;
	*copy = *asking;
	if (zk_thread_start(asker_main, copy))
		return true;
	explicit_bzero(copy, sizeof(*copy));
	free(copy);
	return false;
}

/*
 * Asks whether a session lives.  EVENT_ASKED with this number, and a
 * ZkSessionVerdict for its code, follows; false if that could not even begin.
 */
bool
zk_ask_session(const ZkSessionQuestion *question, uintptr_t number)
{
	Asking asking = {.kind = ASKING_SESSION, .number = number, .session = *question};
	bool   started = start_asking(&asking);

	explicit_bzero(&asking, sizeof(asking));
	return started;
}

/*
 * Asks a server, "address:port" in numbers, for its tickTime.  EVENT_ASKED with
 * this number follows, whose code is that in ms, or 0 if it did not tell.
 */
bool
zk_ask_tick_time(const char *server, ZkTls tls, uintptr_t number)
{
	Asking asking = {.kind = ASKING_TICK_TIME, .number = number, .session.tls = tls};

	strlcpy(asking.server, server, sizeof(asking.server));
	return asking.server[0] != '\0' && start_asking(&asking);
}

/*
 * Asks why TLS fails with servers, "address:port,..." in numbers.  EVENT_ASKED with
 * this number follows, whose text says it, or is NULL if something else is wrong.
 */
bool
zk_ask_about_tls(const char *servers, ZkTls tls, uintptr_t number)
{
	Asking asking = {.kind = ASKING_TLS, .number = number, .session.tls = tls};

	strlcpy(asking.session.servers, servers, sizeof(asking.session.servers));
	return start_asking(&asking);
}
