/*
 * session_former.c
 *		The ZooKeeper session that a server left behind, and its end.
 *
 * A server that crashed, or was shut down at once, left its session behind.
 * Shared memory is empty then, but a file tells of it (session_file.c).  The
 * worker ends this former session before it begins one of its own, so that
 * others need not wait for the locks in it until it times out:
 *
 *		connected			close it, and connect again to see
 *		expired, refused	begin a session of our own
 *		unreachable			go on trying, as with our own
 *
 * The request to close a session may be lost with the connection, and the client
 * library does not tell of an answer.  So the session is known to be over only
 * when ZooKeeper says so to the next connection.
 *
 * The former session never gets into shared memory.  No process of the former
 * server can be left that relies on it: the postmaster does not initialise shared
 * memory before all are gone.
 *
 * Runs in: the worker.  All of this is private to it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/shmem.h"
#include "worker/session_file.h"
#include "worker/session_former.h"
#include "zk/zk_client.h"

#define MAX_CLOSES 4

/*
 * The former session; each arrow is one function here:
 *
 *                found            closed
 *        NONE ----------> KNOWN ----------> CLOSED ---.
 *         ^                 |                |  ^     | closed
 *         |   forgotten     |    forgotten   |  '-----'
 *         '-----------------+----------------'
 */
typedef enum Former
{
	FORMER_NONE,  /* there is none, or none any more */
	FORMER_KNOWN, /* it may live */
	FORMER_CLOSED /* it has been closed, and may live all the same */
} Former;

static Former	  former = FORMER_NONE;
static SessionKey key;
static int		  closes; /* how often it has been closed so far */

/* ------------------------------------------------------------------------
 * The arrows
 * ------------------------------------------------------------------------
 */

static void
found(void)
{
	Assert(former == FORMER_NONE);
	former = FORMER_KNOWN;
	closes = 0;
}

static void
closed(void)
{
	Assert(former == FORMER_KNOWN || former == FORMER_CLOSED);
	former = FORMER_CLOSED;
	closes++;
}

static void
forgotten(void)
{
	Assert(former == FORMER_KNOWN || former == FORMER_CLOSED);
	former = FORMER_NONE;
	explicit_bzero(&key, sizeof(key));
	session_file_remove();
}

/* ------------------------------------------------------------------------
 * The session's life
 * ------------------------------------------------------------------------
 */

/* A worker starts that has no session: looks whether one was left behind. */
void
session_former_find(void)
{
	session_file_read(&key);
	if (key.id != 0)
		found();
}

/* Is there one that has not been ended yet? */
bool
session_former_exists(void)
{
	return former != FORMER_NONE;
}

/*
 * Fills in the configuration of a handle that is to close it.  Returns whether
 * credentials are to be shown: with wrong ones a session cannot even be closed,
 * so every other time that is tried without any.
 */
Credentials
session_former_configure(ZkClientConfig *config)
{
	config->purpose = ZK_PURPOSE_END;
	config->session_id = key.id;
	memcpy(config->session_password, key.password, sizeof(config->session_password));
	return closes % 2 == 0 ? CREDENTIALS_SHOWN : CREDENTIALS_WITHHELD;
}

/* Gives up what could not be ended. */
static void
give_up(void)
{
	ereport(LOG, (errmsg("could not end ZooKeeper session 0x%llx, which had been left behind",
						 (unsigned long long) key.id),
				  errdetail("ZooKeeper frees its locks when it times out.")));
	forgotten();
}

/* It is connected: closes it.  Returns how to go on. */
FormerStep
session_former_close(void)
{
	bool answered = zk_client_close();

	closed();
	if (closes < MAX_CLOSES)
		return answered ? FORMER_LOOK_NOW : FORMER_LOOK_LATER;
	give_up();
	return FORMER_FORGOTTEN;
}

/* ZooKeeper says that it is over. */
void
session_former_is_over(void)
{
	unsigned long long id = (unsigned long long) key.id;

	if (former == FORMER_CLOSED)
		ereport(LOG, (errmsg("ended ZooKeeper session 0x%llx, which had been left behind", id)));
	else
		ereport(DEBUG1,
				(errmsg("ZooKeeper session 0x%llx, which had been left behind, is over", id)));
	session_info_ended(key.id);
	forgotten();
}

/* ZooKeeper refuses our credentials, and so to end it. */
void
session_former_refused(void)
{
	give_up();
}
