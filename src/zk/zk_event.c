/*
 * zk_event.c
 *		News from threads for the main loop.
 *
 * Threads, the client library's and our own, end here.  They copy their
 * news into an Event (malloc), append it to a queue under a mutex and write to an
 * eventfd, which the worker's main loop waits for.  The main loop takes the
 * whole queue at once.
 *
 * Runs in: the worker, in the threads that the functions name.  Threads call
 * nothing of PostgreSQL.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fault.h"
#include "zk/zk_event.h"

static pthread_mutex_t queue_mutex = PTHREAD_MUTEX_INITIALIZER;
static Event		  *queue_head;	  /* under queue_mutex */
static Event		  *queue_tail;	  /* under queue_mutex */
static bool			   queue_broken;  /* under queue_mutex: out of memory */
static int			   queue_fd = -1; /* eventfd; constant once threads run */

/*
 * Main thread, once.  Returns a descriptor that is readable when events have
 * come since zk_event_take_all().
 */
int
zk_event_queue_open(void)
{
	queue_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (queue_fd < 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not create eventfd: %m")));
	return queue_fd;
}

/*
 * Any thread.  The event is copied, and what it points to is the receiver's.
 * Never fails: a lack of memory is left for the main loop.
 */
void
zk_event_push(const Event *event)
{
	Event *copy = malloc(sizeof(Event));
	uint64 one = 1;

	pthread_mutex_lock(&queue_mutex);
	if (copy == NULL)
		queue_broken = true;
	else
	{
		*copy = *event;
		copy->next = NULL;
		if (queue_tail)
			queue_tail->next = copy;
		else
			queue_head = copy;
		queue_tail = copy;
	}
	pthread_mutex_unlock(&queue_mutex);

	/* A full eventfd is readable as it is. */
	if (write(queue_fd, &one, sizeof(one)) < 0)
		return;
}

/* Main thread: all events in their order, the first of a list, or NULL. */
Event *
zk_event_take_all(void)
{
	uint64 count;
	Event *events;
	bool   broken;

	if (read(queue_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not read from eventfd: %m")));

	pthread_mutex_lock(&queue_mutex);
	events = queue_head;
	queue_head = queue_tail = NULL;
	broken = queue_broken;
	pthread_mutex_unlock(&queue_mutex);
	if (broken || (events && ZKLOCK_FAULT("no-memory")))
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	return events;
}

/* Main thread */
void
zk_event_free(Event *event)
{
	free(event->text);
	free(event->children);
	free(event);
}
