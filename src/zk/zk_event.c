/*
 * zk_event.c
 *		The queue of events, from threads to the main loop.
 *
 * The threads of the client library, and our own, pass nothing to the main loop but
 * events.  They copy what they have into an Event (malloc) and append it to a queue under
 * a mutex.  The worker's main loop takes the whole queue at once.
 *
 * A wake-up costs more than the handling of most events, so threads wake the main loop,
 * by an eventfd that it waits for, only when it sleeps:
 *
 *	- Before it sleeps, the main loop asks zk_event_may_sleep(), which sets
 *	  "asleep" if the queue is empty.
 *	- A thread that appends an event and finds "asleep" clears it and writes to the
 *	  eventfd.
 *	- The main loop clears it when it takes the queue.
 *
 * No wake-up can be lost, because the mutex makes each of these one step.  If an event is
 * appended before the main loop asks, the main loop finds it and does not sleep.  If it is
 * appended later, its thread finds "asleep" set, and wakes the main loop.  If it is not
 * set any more, either another thread has cleared it since, and has written or is about
 * to write, or the main loop has taken the queue since, and will ask again.  A write that
 * comes when the main loop is awake for another reason makes it look once more, for
 * nothing.
 *
 * Some events can wait for another one that is known to follow at once: the answer to a
 * create, which is followed by that to its listing, and the watch events of our own
 * deletions (below), which are followed by the answer to the deletion.  They do not wake
 * the main loop, which finds them when it looks next.  If nothing follows, it looks when
 * the call has waited for too long (zk_flow_next_wakeup()).  With 16 sessions on a path each,
 * the main loop wakes up 1.25 times for a lock; 1.5 times if the events of our own deletions
 * wake it.  All processes together take 11 to 13 us for each switch between threads.
 *
 * Runs in: the worker, in the threads that the functions name.  Threads call nothing of
 * PostgreSQL.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fault.h"
#include "zk/zk_internal.h"

static pthread_mutex_t queue_mutex = PTHREAD_MUTEX_INITIALIZER;
static Event		  *queue_head;	  /* under queue_mutex */
static Event		  *queue_tail;	  /* under queue_mutex */
static bool			   queue_broken;  /* under queue_mutex: out of memory */
static bool			   asleep;		  /* under queue_mutex: the main loop must be woken */
static int			   queue_fd = -1; /* eventfd; constant once threads run */

/*
 * When we delete a node, the watches on it and on its parent fire, ours as well.  Such an
 * event, an echo, comes ahead of the answer to the deletion and contains nothing that the
 * answer does not contain.
 *
 * Deletions under way are counted by a hash of the two paths.  The event of another path
 * with the same hash is handled when the deletion is answered: a little later, but never
 * lost, because each call is answered exactly once (zk_flow.c).
 */
#define ECHO_SLOTS 4096

static uint16 echoes[ECHO_SLOTS]; /* under queue_mutex; zk_flow.c bounds the calls */

/* Any thread, under queue_mutex: returns the counter of a path of "len" bytes, by FNV-1a. */
static uint16 *
echoes_of(const char *path, size_t len)
{
	uint32 hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char) path[i]) * 16777619u;
	return &echoes[(hash ^ hash >> 16) % ECHO_SLOTS];
}

/*
 * Main thread, once: returns a descriptor that becomes readable when the main loop sleeps
 * and must look; see zk_event_woken().
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
 * Any thread: appends a copy of the event.  The receiver owns what it points to.  Never
 * fails: zk_event_take_all() reports a lack of memory.
 */
void
zk_event_push(const Event *event)
{
	Event *copy = malloc(sizeof(Event));
	uint64 one = 1;
	bool   can_wait;
	bool   wake;

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
	can_wait = event->can_wait || (event->kind == EVENT_WATCH && event->text &&
								   *echoes_of(event->text, strlen(event->text)) > 0);
	wake = asleep && (!can_wait || copy == NULL);
	if (wake)
		asleep = false;
	pthread_mutex_unlock(&queue_mutex);

	/* If the eventfd is full, the write fails, but then it is readable already. */
	if (wake && write(queue_fd, &one, sizeof(one)) < 0)
		return;
}

/* Main thread: counts a deletion of a node that is under way (1), or no more (-1). */
void
zk_event_expect_echo(const char *deleted, int change)
{
	pthread_mutex_lock(&queue_mutex);
	*echoes_of(deleted, strlen(deleted)) += change;
	*echoes_of(deleted, strrchr(deleted, '/') - deleted) += change;
	pthread_mutex_unlock(&queue_mutex);
}

/*
 * Main thread: returns true if it may sleep.  The descriptor then becomes readable when
 * there is an event to take.
 */
bool
zk_event_may_sleep(void)
{
	bool may;

	pthread_mutex_lock(&queue_mutex);
	may = asleep = queue_head == NULL && !queue_broken;
	pthread_mutex_unlock(&queue_mutex);
	return may;
}

/* Main thread: makes the descriptor, which is readable, unreadable again. */
void
zk_event_woken(void)
{
	uint64 count;

	if (read(queue_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not read from eventfd: %m")));
}

/* Main thread: takes all events, and returns them as a list in their order, or NULL. */
Event *
zk_event_take_all(void)
{
	Event *events;
	bool   broken;

	pthread_mutex_lock(&queue_mutex);
	asleep = false;
	events = queue_head;
	queue_head = queue_tail = NULL;
	broken = queue_broken;
	pthread_mutex_unlock(&queue_mutex);
	if (broken || (events && ZKLOCK_FAULT("no-memory")))
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	return events;
}

/* Main thread: frees an event that was taken, and what it points to. */
void
zk_event_free(Event *event)
{
	free(event->text);
	free(event->reply.children);
	free(event);
}
