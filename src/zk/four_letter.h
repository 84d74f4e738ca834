/*
 * four_letter.h
 *		ZooKeeper's four-letter commands.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_FOUR_LETTER_H
#define ZKLOCK_FOUR_LETTER_H

/* What a server says of itself and, if it decides on sessions, of one. */
typedef struct ServerView
{
	bool  answers;	   /* to srvr */
	bool  decides;	   /* it is a leader, or alone */
	bool  may_dump;	   /* dump is allowed */
	bool  complete;	   /* its list of sessions */
	bool  has_session; /* the session is in it */
	int64 zxid;		   /* its last transaction, from before the list was made */
} ServerView;

extern void four_letter_view(const char *address, int64 session, ServerView *view);

#endif /* ZKLOCK_FOUR_LETTER_H */
