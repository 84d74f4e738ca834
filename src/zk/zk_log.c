/*
 * zk_log.c
 *		The lines that the client library logs, and sentences made of them.
 *
 * The library says in its log alone why it does not connect.  So its threads'
 * log function makes events of the lines.  All of them go to PostgreSQL's log at
 * levels for developers; those that complain of a server become a sentence for
 * administrators, one for each outage.
 *
 * Runs in: the worker; the main thread unless a function says otherwise.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "zk/zk_log.h"

/* The library writes a level in front of each message. */
#define LEVEL "ZOO_"
#define LEVEL_ERROR "ZOO_ERROR@"

/* Event.code */
enum
{
	LINE_OF_INTEREST,
	LINE_OF_COMPLAINT
};

static ZkComplaintHandler tell;
static ZkComplaint		  next_complaint = ZK_COMPLAINT_FIRST;

/* Once, before any line comes. */
void
zk_log_start(ZkComplaintHandler handler)
{
	tell = handler;
}

/*
 * Any thread: makes an event of a line, with this number.  The library puts the
 * level into it, between the process and the function:
 * "...:ZOO_WARN@function@line: message".
 */
void
zk_log_push(const char *message, uintptr_t number)
{
	Event		event = {.kind = EVENT_LOG, .number = number, .code = LINE_OF_INTEREST};
	const char *level = strstr(message, ":" LEVEL);
	const char *text = level ? strstr(level, ": ") : NULL;

	if (level && strncmp(level + 1, LEVEL_ERROR, strlen(LEVEL_ERROR)) == 0)
		event.code = LINE_OF_COMPLAINT;
	event.text = strdup(text ? text + 2 : message);
	if (event.text)
		zk_event_push(&event, EVENT_AT_ONCE);
}

/* Does a line complain of a server?  Logs it. */
bool
zk_log_is_complaint(const Event *event)
{
	bool complaint = event->code == LINE_OF_COMPLAINT;

	ereport(complaint ? DEBUG1 : DEBUG2,
			(errmsg_internal("ZooKeeper client%s: %s",
							 (event->number & ZK_OF_TRIAL) != 0 ? " on trial" : "", event->text)));
	return complaint;
}

/* Passes on a complaint: a sentence without its period. */
void
zk_log_complain(const char *message)
{
	ZkComplaint complaint = next_complaint;

	next_complaint = ZK_COMPLAINT_REPEATED;
	tell(message, complaint);
}

/* A server has answered: the next complaint is one of another outage. */
void
zk_log_outage_over(void)
{
	next_complaint = ZK_COMPLAINT_FIRST;
}
