/*
 * zk_event.c
 *		News from threads for the main loop.
 *
 * Threads, the client library's and our own, end here.  They copy their
 * news into an Event (malloc) and append it to a queue under a mutex.  The
 * worker's main loop takes the whole queue at once.
 *
 * A wake-up costs more than most of what it is for, so the main loop is woken,
 * by an eventfd that it waits for, when it sleeps and not otherwise:
 *
 *	- Before it sleeps, the main loop asks zk_event_may_sleep(), which sets
 *	  "asleep" if the queue is empty.
 *	- A thread that appends an event and finds "asleep" clears it and writes to the
 *	  eventfd.
 *	- The main loop clears it when it takes the queue.
 *
 * No wake-up can be lost, as the mutex makes each of these one step.  An event
 * that is appended before the main loop asks is found by it, which then does
 * not sleep.  One that is appended later finds "asleep", and wakes; or somebody
 * else has found it before, after the main loop had asked, and has written or is
 * about to write; or the main loop was awake meanwhile, and has taken the queue
 * or is going to ask again.  A write that comes when the main loop is awake for
 * another reason makes it look once more, for nothing.
 *
 * Some news can wait for what is known to follow at once: the answer to a
 * create, behind which its listing was sent, and the events of what we delete
 * ourselves (below), behind which that is answered.  They wake nobody, but are
 * found by whoever looks.  Should nothing follow, the main loop looks when it
 * becomes impatient with the call (zk_flow_next_wakeup()).
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
#include "zk/zk_internal.h"

static pthread_mutex_t queue_mutex = PTHREAD_MUTEX_INITIALIZER;
static Event		  *queue_head;	  /* under queue_mutex */
static Event		  *queue_tail;	  /* under queue_mutex */
static bool			   queue_broken;  /* under queue_mutex: out of memory */
static bool			   asleep;		  /* under queue_mutex: the main loop is to be woken */
static int			   queue_fd = -1; /* eventfd; constant once threads run */

/*
 * The deletion of a node of ours makes the watches on it and on its parent fire,
 * ours as well.  These events come ahead of the answer to the deletion and tell
 * nothing that the answer does not tell.
 *
 * Deletions under way are counted by a hash of what they change.  Should another
 * path have the same hash, its event is looked at when the deletion is answered: a
 * little later, never not at all, as each call is answered once (zk_flow.c).
 */
#define ECHO_SLOTS 4096

static uint16 echoes[ECHO_SLOTS]; /* under queue_mutex; zk_turn.c bounds the calls */

/* Any thread, under queue_mutex: those of a path of so many bytes, by FNV-1a */
static uint16 *
echoes_of(const char *path, size_t len)
{
	uint32 hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char) path[i]) * 16777619u;
	return &echoes[(hash ^ hash >> 16) % ECHO_SLOTS];
}

/*
 * Main thread, once.  Returns a descriptor that is readable when the main loop,
 * asleep, is to look; see zk_event_woken().
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

	/* A full eventfd is readable as it is. */
	if (wake && write(queue_fd, &one, sizeof(one)) < 0)
		return;
}

/* Main thread: so many more deletions of a node are under way, or less by one (-1). */
void
zk_event_expect_echo(const char *deleted, int change)
{
	pthread_mutex_lock(&queue_mutex);
	*echoes_of(deleted, strlen(deleted)) += change;
	*echoes_of(deleted, strrchr(deleted, '/') - deleted) += change;
	pthread_mutex_unlock(&queue_mutex);
}

/*
 * Main thread: may it sleep?  If so, the descriptor becomes readable when there
 * is something to be taken.
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

/* Main thread: the descriptor is readable. */
void
zk_event_woken(void)
{
	uint64 count;

	if (read(queue_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not read from eventfd: %m")));
}

/* Main thread: all events in their order, the first of a list, or NULL. */
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

/* Main thread */
void
zk_event_free(Event *event)
{
	free(event->text);
	free(event->reply.children);
	free(event);
}
