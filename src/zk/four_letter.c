/*
 * four_letter.c
 *		ZooKeeper's four-letter commands.
 *
 * A session cannot be asked whether another one lives, but a server can: it
 * answers "srvr" (what are you?) and "dump" (which sessions do you know?) on
 * its client port, in text that ends with the connection.  The leader, or a server
 * that is alone, decides which sessions live; its list of them looks like
 *
 *		SessionTracker dump:
 *		Session Sets (3)/(2):
 *		0 expire at ...:
 *		1 expire at ...:
 *			0x10000a2b3c40000
 *		...
 *		ephemeral nodes dump:
 *
 * with a line "Global Session Sets ..." in between if there are local sessions.
 * The second number is that of the sessions.  A session that says something
 * while the list is being written moves from one set to the next and may be
 * missed, so the list counts only if it has as many.
 *
 * The sockets are not blocking, and waits for them can be interrupted.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "compat.h"
#include "lib/stringinfo.h"
#include "shared/clock.h"
#include "zk/four_letter.h"

#define CONNECT_MS 3000 /* to be connected */
#define SILENCE_MS 5000 /* without a word of an answer */
#define END_OF_SESSIONS "ephemeral nodes dump:"

/* Waits until a socket is ready; returns false if it takes too long. */
static bool
wait_for_socket(pgsocket sock, int event, int64 ms)
{
	int64 until = zklock_now_ms() + ms;

	for (;;)
	{
		int64 left = until - zklock_now_ms();
		int	  occurred;

		CHECK_FOR_INTERRUPTS();
		if (left <= 0)
			return false;
		occurred = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH | event,
									 sock, (long) left, PG_WAIT_EXTENSION);
		if (occurred & event)
			return true;
		if (occurred & WL_LATCH_SET)
			ResetLatch(MyLatch);
	}
}

/* Opens a socket and begins to connect; PGINVALID_SOCKET if that fails. */
static pgsocket
begin_to_connect(const char *address)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *found;
	const char		*colon = strrchr(address, ':');
	char			*host = pnstrdup(address, colon - address);
	pgsocket		 sock;

	if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
		return PGINVALID_SOCKET;
	sock = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (sock != PGINVALID_SOCKET && connect(sock, found->ai_addr, found->ai_addrlen) != 0 &&
		errno != EINPROGRESS)
	{
		close(sock);
		sock = PGINVALID_SOCKET;
	}
	freeaddrinfo(found);
	return sock;
}

/* Sends a command and reads the answer, at least as far as the text "enough". */
static void
converse(pgsocket sock, const char *command, const char *enough, StringInfo text)
{
	char buffer[8192];

	if (!wait_for_socket(sock, WL_SOCKET_WRITEABLE, CONNECT_MS) ||
		send(sock, command, strlen(command), MSG_NOSIGNAL) != (ssize_t) strlen(command))
		return;
	while (wait_for_socket(sock, WL_SOCKET_READABLE, SILENCE_MS))
	{
		ssize_t n = recv(sock, buffer, sizeof(buffer), 0);
		int		overlap = Max(text->len - (int) strlen(enough), 0);

		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			break;
		appendBinaryStringInfo(text, buffer, n);
		if (strstr(text->data + overlap, enough) != NULL)
			break;
	}
}

/* A server's answer to a command; "" if there is none. */
static char *
ask(const char *address, const char *command, const char *enough)
{
	StringInfoData	  text;
	volatile pgsocket sock = begin_to_connect(address);

	initStringInfo(&text);
	if (sock == PGINVALID_SOCKET)
		return text.data;
	PG_TRY();
	{
		converse(sock, command, enough, &text);
	}
	PG_FINALLY();
	{
		close(sock);
	}
	PG_END_TRY();
	return text.data;
}

/* Orders session ids. */
static int
compare_ids(const void *a, const void *b)
{
	int64 id_a = *(const int64 *) a;
	int64 id_b = *(const int64 *) b;

	return id_a < id_b ? -1 : id_a > id_b ? 1 : 0;
}

/*
 * Takes from a list of sessions whether it has the session, and is complete:
 * one that moves while the list is made may be missing, or be in it twice.
 */
static void
read_sessions(const char *text, int64 session, ServerView *view)
{
	const char *end = strstr(text, END_OF_SESSIONS);
	const char *next;
	int64	   *ids = palloc((strlen(text) / 4 + 1) * sizeof(int64));
	int			expected = 0;
	int			found = 0;
	int			distinct = 0;

	for (const char *line = text; end != NULL && line < end; line = next)
	{
		const char *sets = strstr(line, " Sets (");
		int			nsessions;

		next = line + strcspn(line, "\n") + 1;
		if (strncmp(line, "\t0x", 3) == 0)
			ids[found++] = (int64) strtoull(line + 1, NULL, 16);
		else if (sets != NULL && sets < next && sscanf(sets, " Sets (%*d)/(%d)", &nsessions) == 1)
			expected += nsessions;
	}

	qsort(ids, found, sizeof(int64), compare_ids);
	for (int i = 0; i < found; i++)
	{
		distinct += i == 0 || ids[i] != ids[i - 1];
		view->has_session |= ids[i] == session;
	}
	view->complete = end != NULL && distinct >= expected;
	pfree(ids);
}

/* Asks a server, "address:port" in numbers, about itself and a session. */
void
four_letter_view(const char *address, int64 session, ServerView *view)
{
	char	   *text = ask(address, "srvr", "\nMode: ");
	const char *zxid = strstr(text, "\nZxid: 0x");

	memset(view, 0, sizeof(*view));
	view->answers = zxid != NULL;
	view->decides =
		zxid != NULL && (strstr(text, "\nMode: leader") || strstr(text, "\nMode: standalone"));
	if (!view->decides)
		return;
	view->zxid = (int64) strtoull(zxid + strlen("\nZxid: "), NULL, 16);
	text = ask(address, "dump", END_OF_SESSIONS);
	view->may_dump = strstr(text, "not in the whitelist") == NULL;
	read_sessions(text, session, view);
}
