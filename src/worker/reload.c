/*
 * reload.c
 *		How changed settings are taken up.
 *
 * A typo in a setting must not cost a healthy session, and its locks.  So changed
 * settings are not taken up before it is known that they work:
 *
 *	in force	the files with credentials, and those for TLS, can be used, and if servers,
 *				credentials or TLS differ, a trial (zk_trial.c) stands beside the session
 *				that goes on: a server answers, and takes the credentials
 *	ours		in the trial a node of ours is found, by its path and the session
 *				that owns it, and may be read: ensemble and chroot are the same,
 *				and the credentials give the rights that our locks need
 *
 * Reading a node of ours tells this without a write, and without the use of the
 * session's id, which would take the session over.  The node is chosen when the
 * trial stands, as locks may come and go fast; if it is gone, another one is read.
 *
 *		not in force		not taken up, until the next reload
 *		in force, ours		taken up: the worker restarts and resumes the session
 *		in force, not ours	taken up as soon as no lock is held here: the session
 *							ends and another one begins; contenders that wait
 *							queue there
 *		no node of ours		likewise, and that is now
 *
 * If settings are not taken up, the log and zk_session.last_error say why.  A
 * changed session timeout is taken up like settings that are ours, an ACL at once,
 * and zklock.tick_time at once unless no lease would be possible with it.
 *
 * Without a session, nothing can be lost: all settings are taken up.
 *
 * Runs in: the worker.  It reads the part of entries that it writes itself, so
 * under no lock; everything else here is private to the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/clock.h"
#include "shared/entry.h"
#include "shared/errand.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "worker/lease.h"
#include "worker/reload.h"
#include "worker/session_settings.h"
#include "worker/session_status.h"
#include "zk/zk_trial.h"

#define TRIAL_MS 15000
#define TRIAL_SESSION_MS 6000
#define LOOK_AGAIN_MS 20	  /* a node may just have been created, or deleted */
#define LOOK_FOR_LOCKS_MS 200 /* is any still held? */
#define MAX_MISSES 3

/*
 * The way of changed settings; each arrow is one function here:
 *
 *      IDLE ---------------------- resume ----------------.
 *       | try                                             |
 *       v                                                 v
 *      TRYING ------ read -------> READING -- resume -> RESUMING -- done --> IDLE
 *       | | ^                       | |  ^
 *       | | |            look_again | |  | read
 *       | | |                       v |  |
 *       | | '----- try -----.     PAUSING ---- move ----.
 *       | |                 |         |                 |
 *       | '--- move ----> MOVING <----|-----------------'
 *       |                   |         | put_off
 *       |                   | done    |
 *       |                   v         v
 *       |                 IDLE     PUT_OFF -- done --> IDLE
 *       |                             ^
 *       '--------- put_off -----------'
 *
 * From all of them, "drop" leads to IDLE: the settings are refused, or have
 * changed once more.
 */
typedef enum Reload
{
	RELOAD_IDLE,	 /* nothing has changed */
	RELOAD_TRYING,	 /* a trial: are the settings in force? */
	RELOAD_READING,	 /* a node of ours is being read in it: are they ours? */
	RELOAD_PAUSING,	 /* the node was not there: another one is read in a moment */
	RELOAD_RESUMING, /* the trial is being closed; then they are taken up */
	RELOAD_MOVING,	 /* likewise, with another session unless nodes appear */
	RELOAD_PUT_OFF	 /* they are taken up when no lock is held */
} Reload;

static SessionSettings wanted;
static ConnectString   wanted_servers;
static Reload		   reload = RELOAD_IDLE;
static int64		   give_up_at;	  /* TRYING, READING, PAUSING: ms */
static int64		   look_at;		  /* PAUSING, PUT_OFF: when to look again, ms */
static int			   witness;		  /* READING: the entry whose node is read */
static int64		   witness_czxid; /* that node's */
static int			   misses;		  /* nodes of ours that were not there */

/* ------------------------------------------------------------------------
 * Locks that may be lost
 * ------------------------------------------------------------------------
 */

static bool
any_lock_is_held(void)
{
	for (int i = 0; i < entries_max(); i++)
	{
		ContenderState state = entry_get_state(i);

		/* Leadership can go on elsewhere. */
		if (state == CONTENDER_GRANTED && entry_at(i)->request.pid != ENTRY_SERVER_PID)
			return true;
	}
	return false;
}

/*
 * The path of the node of an entry that holds a lock, or waits for it in a place
 * that could be lost.  Returns false if it has none.
 */
static bool
own_node(int index, char *path, size_t size, int64 *czxid)
{
	const ContenderEntry *entry = entry_at(index);
	ContenderState		  state = entry_get_state(index);

	if ((state != CONTENDER_GRANTED && state != CONTENDER_QUEUED) || entry->node.czxid == 0)
		return false;
	*czxid = entry->node.czxid;
	snprintf(path, size, "%s/%s", entry->request.path, entry->node.name);
	return true;
}

/* Goes to the next entry with a node of ours, if there is any. */
static bool
next_own_node(char *path, size_t size)
{
	for (int n = 0; n < entries_max(); n++)
	{
		witness = (witness + 1) % entries_max();
		if (own_node(witness, path, size, &witness_czxid))
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------------
 * The arrows
 * ------------------------------------------------------------------------
 */

/* Forgets what has been found out so far. */
static void
drop(void)
{
	zk_trial_end();
	reload = RELOAD_IDLE;
}

/* A trial begins. */
static void
try(const ZkClientConfig *config)
{
	Assert(reload == RELOAD_IDLE || reload == RELOAD_MOVING);
	reload = RELOAD_TRYING;
	zk_trial_begin(config, TRIAL_MS);
	misses = 0;
	give_up_at = zklock_now_ms() + 2 * TRIAL_MS;
}

static void on_witness(void *arg, const ZkReply *reply);

/* The trial stands: a node is read in it. */
static void
read_witness(const char *path)
{
	Assert(reload == RELOAD_TRYING || reload == RELOAD_PAUSING);
	reload = RELOAD_READING;
	zk_trial_get(path, on_witness);
}

/* The node says nothing. */
static void
look_again(void)
{
	Assert(reload == RELOAD_READING);
	reload = RELOAD_PAUSING;
	look_at = zklock_now_ms() + LOOK_AGAIN_MS;
}

/* The settings work for the session that we have, or there is none. */
static void
resume(void)
{
	Assert(reload == RELOAD_IDLE || reload == RELOAD_READING);
	reload = RELOAD_RESUMING;
	zk_trial_end();
}

/* The settings work, and there is nothing in the session that we have. */
static void
move(void)
{
	Assert(reload == RELOAD_TRYING || reload == RELOAD_PAUSING);
	reload = RELOAD_MOVING;
	zk_trial_end();
}

/* The settings work, but not for the session that we have. */
static void
put_off(const char *why)
{
	char *message = psprintf("changed settings are not taken up while locks are held: %s", why);

	Assert(reload == RELOAD_TRYING || reload == RELOAD_READING);
	reload = RELOAD_PUT_OFF;
	zk_trial_end();
	look_at = zklock_now_ms();
	if (any_lock_is_held())
	{
		ereport(WARNING,
				(errmsg("changed settings of zklock are not taken up while locks are held: %s", why),
				 errdetail("They are taken up, with another ZooKeeper session, as soon as this server holds no lock.")));
		session_status_set_error(message);
	}
	pfree(message);
}

/* The settings are taken up. */
static ReloadStep
done(ReloadStep step)
{
	Assert(reload == RELOAD_RESUMING || reload == RELOAD_MOVING || reload == RELOAD_PUT_OFF);
	reload = RELOAD_IDLE;
	session_settings_take_up(&wanted);
	return step;
}

/* ------------------------------------------------------------------------
 * On trial
 * ------------------------------------------------------------------------
 */

/*
 * The settings do not work.
 *
 *	secret	the name of a file, for the log alone; or NULL
 */
static void
refuse(const char *fault, const char *secret)
{
	char *message = psprintf("changed settings are not taken up: %s", fault);

	drop();
	ereport(WARNING,
			(errmsg("changed settings of zklock are not taken up: %s", fault),
			 secret ? errdetail("The file is \"%s\". The ZooKeeper session goes on with the settings it has.", secret)
					: errdetail("The ZooKeeper session goes on with the settings it has."),
			 errhint("Correct them and reload the configuration.")));
	session_status_set_error(message);
	pfree(message);
}

/* Tries the settings that are wanted, if credentials and the files for TLS can be used. */
static void
begin_trial(void)
{
	ZkClientConfig config = {.servers = wanted_servers};
	const char	  *fault = NULL;
	char		  *tls_fault = NULL;
	const char	  *culprit = NULL;

	if (wanted.tls)
	{
		config.tls = ZK_TLS_TRIED;
		tls_fault = session_settings_load_tls(&wanted, ZK_TLS_TRIED, &culprit);
	}
	if (wanted.auth_file[0] != '\0')
		fault = session_settings_read_credentials(wanted.auth_file, &config);
	if (tls_fault)
	{
		refuse(tls_fault, culprit);
		pfree(tls_fault);
	}
	else if (fault)
	{
		char *message = psprintf("could not use \"zklock.auth_file\": %s", fault);

		refuse(message, wanted.auth_file);
		pfree(message);
	}
	else
	{
		config.session_timeout = Min(wanted.session_timeout, TRIAL_SESSION_MS);
		try(&config);
	}
	explicit_bzero(&config, sizeof(config));
}

/* The reply to read_witness() */
static void
on_witness(void *arg, const ZkReply *reply)
{
	char  path[ERRAND_PATH_SIZE];
	int64 czxid;

	if (reply->outcome == ZK_OK && reply->ephemeral_owner == session_status_id() &&
		reply->czxid == witness_czxid)
		resume();
	else if (reply->outcome == ZK_UNKNOWN || !own_node(witness, path, sizeof(path), &czxid) ||
			 czxid != witness_czxid || ++misses < MAX_MISSES)
		look_again();
	else if (reply->outcome == ZK_REFUSED)
		put_off("the new credentials do not allow access to the nodes of these locks");
	else
		put_off("\"zklock.servers\" names another ensemble, which does not have the nodes of these locks");
}

/* The trial stands: looks whether the settings are ours. */
static void
examine(void)
{
	const SessionSettings *used = session_settings_used();
	char				   path[ERRAND_PATH_SIZE];

	if (!lease_is_possible_with(zk_trial_timeout(), wanted.tick_time) &&
		lease_is_possible_with(session_status_shortest_timeout(), used->tick_time))
	{
		char *fault =
			psprintf("ZooKeeper grants a session timeout of %d ms, but \"zklock.tick_time\" needs %d ms",
					 zk_trial_timeout(), 2 * wanted.tick_time);

		refuse(fault, NULL);
		pfree(fault);
	}
	else if (strcmp(session_settings_chroot(), wanted_servers.chroot) == 0)
	{
		if (next_own_node(path, sizeof(path)))
			read_witness(path);
		else
			move();
	}
	else if (!zk_trial_chroot_exists())
		refuse("the chroot in \"zklock.servers\" does not exist", NULL);
	else
		put_off("\"zklock.servers\" names another chroot");
}

static void
attend_trial(void)
{
	switch (zk_trial_state())
	{
		case ZK_TRIAL_STANDS:
			examine();
			break;
		case ZK_TRIAL_FAILED:
			refuse(zk_trial_fault(), NULL);
			break;
		case ZK_TRIAL_RUNNING:
		case ZK_TRIAL_NONE:
			break;
	}
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

/* Takes up zklock.tick_time, unless the session can have no lease with it. */
static void
take_up_tick_time(void)
{
	int timeout = session_status_shortest_timeout();

	if (session_status_id() != 0 && wanted.tick_time > session_settings_used()->tick_time &&
		!lease_is_possible_with(timeout, wanted.tick_time))
	{
		char *fault =
			psprintf("with a \"zklock.tick_time\" of %d ms, a session timeout of %d ms is too short",
					 wanted.tick_time, timeout);

		refuse(fault, NULL);
		pfree(fault);
		wanted.tick_time = session_settings_used()->tick_time;
	}
	session_settings_take_up_tick_time(wanted.tick_time);
}

static bool
same_tls(const SessionSettings *a, const SessionSettings *b)
{
	return a->tls == b->tls && (!a->tls || (strcmp(a->tls_ca_file, b->tls_ca_file) == 0 &&
											strcmp(a->tls_cert_file, b->tls_cert_file) == 0 &&
											strcmp(a->tls_key_file, b->tls_key_file) == 0 &&
											a->tls_fingerprint == b->tls_fingerprint));
}

/* Compares the settings that are set with those in use, and begins to take them up. */
void
worker_reload_begin(void)
{
	const SessionSettings *used = session_settings_used();
	bool				   same_server;

	drop();
	session_settings_read(&wanted);
	(void) connect_string_parse(wanted.servers, &wanted_servers); /* checked when set */
	take_up_tick_time();

	same_server = strcmp(wanted.servers, used->servers) == 0 &&
				  strcmp(wanted.auth_file, used->auth_file) == 0 && same_tls(&wanted, used);
	if (same_server && wanted.session_timeout == used->session_timeout)
		session_settings_take_up_acl(wanted.acl);
	else if (session_status_id() == 0 ||
			 (same_server && lease_is_possible_with(wanted.session_timeout, wanted.tick_time)))
		resume();
	else
		begin_trial();
}

/* Goes on with taking up changed settings.  Returns the step that the worker is to make. */
ReloadStep
worker_reload_attend(void)
{
	int64 now = zklock_now_ms();
	char  path[ERRAND_PATH_SIZE];

	switch (reload)
	{
		case RELOAD_TRYING:
		case RELOAD_READING:
		case RELOAD_PAUSING:
			if (now >= give_up_at)
				refuse("it could not be found out whether these servers know the ZooKeeper session",
					   NULL);
			else if (reload == RELOAD_TRYING || (reload == RELOAD_PAUSING && now >= look_at))
				attend_trial();
			break;
		case RELOAD_IDLE:
		case RELOAD_RESUMING:
		case RELOAD_MOVING:
		case RELOAD_PUT_OFF:
			break;
	}

	/* A trial that is over may be closed already. */
	switch (reload)
	{
		case RELOAD_RESUMING:
			if (!zk_trial_closing())
				return done(RELOAD_STEP_RESTART);
			break;
		case RELOAD_MOVING:
			if (zk_trial_closing())
				break;
			if (!next_own_node(path, sizeof(path)))
				return done(RELOAD_STEP_MOVE);
			begin_trial(); /* a lock that was asked for meanwhile is not lost either */
			break;
		case RELOAD_PUT_OFF:
			if (now < look_at)
				break;
			look_at = now + LOOK_FOR_LOCKS_MS;
			if (!any_lock_is_held())
				return done(RELOAD_STEP_MOVE);
			break;
		case RELOAD_IDLE:
		case RELOAD_TRYING:
		case RELOAD_READING:
		case RELOAD_PAUSING:
			break;
	}
	return RELOAD_STEP_NONE;
}

/* When worker_reload_attend() wants to be called, ms; or -1. */
int64
worker_reload_next_wakeup(void)
{
	switch (reload)
	{
		case RELOAD_TRYING:
			return zk_trial_state() == ZK_TRIAL_RUNNING ? zk_trial_next_wakeup() : 0;
		case RELOAD_READING:
			return give_up_at;
		case RELOAD_PAUSING:
		case RELOAD_PUT_OFF:
			return look_at;
		case RELOAD_IDLE:
		case RELOAD_RESUMING:
		case RELOAD_MOVING:
			break;
	}
	return -1;
}
