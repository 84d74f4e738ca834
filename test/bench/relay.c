/*
 * relay.c
 *		A way that takes its time, for kernels that have no netem.
 *
 *		relay PORT TARGET DELAY
 *
 * Connects whoever connects to the port to the target port.  What is sent, in
 * either direction, arrives so many microseconds after it was sent.
 *
 * Copyright (c) 2026, zklock contributors
 */
#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_SIDES 256
#define BUFFER_SIZE 65536

typedef struct Chunk
{
	struct Chunk *next;
	int64_t		  due;
	ssize_t		  size;
	char		  data[];
} Chunk;

/* One end of a connection; that at the index with the last bit flipped is the other. */
typedef struct Side
{
	Chunk  *first; /* what is to be sent to it */
	Chunk **last;
} Side;

static struct pollfd polled[1 + MAX_SIDES]; /* the listening socket, and each side's */
static Side			 sides[MAX_SIDES];
static int			 nsides;

static int
new_socket(void)
{
	int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ||
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
		load_fail("socket: %m");
	return fd;
}

static struct sockaddr_in
local_port(const char *port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
								.sin_port = htons(atoi(port)),
								.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void
add_side(int fd)
{
	polled[1 + nsides] = (struct pollfd){.fd = fd, .events = POLLIN};
	sides[nsides].first = NULL;
	sides[nsides].last = &sides[nsides].first;
	nsides++;
}

static void
accept_connection(const char *target)
{
	struct sockaddr_in address = local_port(target);
	int				   on = 1;
	int				   client = accept4(polled[0].fd, NULL, NULL, SOCK_CLOEXEC);
	int				   server = new_socket();

	if (client < 0 || nsides == MAX_SIDES)
		load_fail("cannot accept a connection");
	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(server, (struct sockaddr *) &address, sizeof(address)) < 0)
	{
		close(client);
		close(server);
		return;
	}
	add_side(client);
	add_side(server);
}

/* Takes what a side has sent.  Returns false if that was its last. */
static bool
take(int side, int64_t delay)
{
	static char buffer[BUFFER_SIZE];
	ssize_t		size = recv(polled[1 + side].fd, buffer, sizeof(buffer), 0);
	Chunk	   *chunk;

	if (size <= 0)
		return false;
	chunk = load_memory(NULL, sizeof(Chunk) + size);
	chunk->next = NULL;
	chunk->due = load_now_us() + delay;
	chunk->size = size;
	memcpy(chunk->data, buffer, size);
	*sides[side ^ 1].last = chunk;
	sides[side ^ 1].last = &chunk->next;
	return true;
}

/* Sends a side what is due, or all.  A side that does not read would hold up the others. */
static void
deliver(int side, int64_t until)
{
	Chunk *chunk;

	while ((chunk = sides[side].first) != NULL && chunk->due <= until)
	{
		if (send(polled[1 + side].fd, chunk->data, chunk->size, MSG_NOSIGNAL) < chunk->size)
			shutdown(polled[1 + side].fd, SHUT_RDWR);
		sides[side].first = chunk->next;
		if (chunk->next == NULL)
			sides[side].last = &sides[side].first;
		free(chunk);
	}
}

/* Ends the connection of which this is a side; the last one takes its place. */
static void
end_connection(int side)
{
	for (int i = side | 1; i >= (side & ~1); i--)
	{
		Side *last = &sides[--nsides];

		deliver(i, INT64_MAX);
		close(polled[1 + i].fd);
		polled[1 + i] = polled[1 + nsides];
		sides[i].first = last->first;
		sides[i].last = last->first ? last->last : &sides[i].first;
	}
}

/* When the next chunk is due, at the latest in a tenth of a second */
static int64_t
next_due(void)
{
	int64_t due = load_now_us() + 100000;

	for (int i = 0; i < nsides; i++)
	{
		if (sides[i].first && sides[i].first->due < due)
			due = sides[i].first->due;
	}
	return due;
}

int
main(int argc, char **argv)
{
	struct sockaddr_in address;
	int64_t			   delay;

	if (argc != 4)
		load_fail("usage: relay PORT TARGET DELAY");
	address = local_port(argv[1]);
	delay = strtoll(argv[3], NULL, 10);
	polled[0] = (struct pollfd){.fd = new_socket(), .events = POLLIN};
	if (bind(polled[0].fd, (struct sockaddr *) &address, sizeof(address)) < 0 ||
		listen(polled[0].fd, 128) < 0)
		load_fail("cannot listen on port %s: %m", argv[1]);
	/* Otherwise the kernel would wake us 50 us late, so as to wake others at the same time. */
	prctl(PR_SET_TIMERSLACK, 1);
	while (true)
	{
		int64_t			left = next_due() - load_now_us();
		struct timespec timeout = {.tv_nsec = left > 0 ? left * 1000 : 0};

		if (ppoll(polled, 1 + nsides, &timeout, NULL) < 0)
			load_fail("ppoll: %m");
		for (int i = nsides - 1; i >= 0; i--)
		{
			short events = polled[1 + i].revents;

			/* One that moves to another place has been read. */
			polled[1 + i].revents = 0;
			if (i < nsides && events && !take(i, delay))
				end_connection(i);
		}
		for (int i = 0; i < nsides; i++)
			deliver(i, load_now_us());
		if (polled[0].revents)
			accept_connection(argv[2]);
	}
}
