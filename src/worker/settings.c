/*
 * settings.c
 *		The settings that the session runs with, and how others are taken up.
 *
 * A reload must not cost a healthy session, and its locks, for a typo.  So
 * settings that change are not taken up before it is known that they work:
 *
 *	in force	the file with the credentials can be used, and if servers or
 *				credentials differ, a trial (zk_trial.c) stands beside the session
 *				that goes on: a server answers, and takes the credentials
 *	ours		in the trial a node of ours is found, by its path and the session
 *				that owns it, and may be read: this is the ensemble, the chroot
 *				and somebody with the rights that our locks need
 *
 * A node of ours tells without a write, and without the session's id, whose use
 * would take the session over.  It is chosen and read when the trial stands, as
 * locks may come and go fast; if the one read is gone, it is another one's turn.
 *
 *		not in force		not taken up, until the next reload
 *		in force, ours		taken up: the worker restarts and resumes the session
 *		in force, not ours	taken up as soon as no lock is held here: the session
 *							ends and another one begins; those who wait queue there
 *		no node of ours		likewise, and that is now
 *
 * What is not taken up is logged, and zk_session.last_error has it.  A session
 * timeout is taken up like what is ours, an ACL at once, and zklock.tick_time
 * at once unless no lease would be possible with it.
 *
 * Without a session, nothing can be lost: whatever is set is taken up.
 *
 * What is taken up is in shared memory, for the next worker, which may come at
 * any time: it must not lose the session by settings that have been refused.
 *
 * Runs in: the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <sys/stat.h>

#include "common/string.h"
#include "shared/settings.h"
#include "storage/fd.h"
#include "worker/lease.h"
#include "worker/settings.h"
#include "worker/status.h"
#include "zk/zk_trial.h"

#define TRIAL_MS 15000
#define TRIAL_SESSION_MS 6000
#define LOOK_AGAIN_MS 20	  /* a node may just have been created, or deleted */
#define LOOK_FOR_LOCKS_MS 200 /* is any still held? */
#define MAX_MISSES 3

typedef enum Phase
{
	PHASE_NONE,
	PHASE_TRIAL,   /* is it in force? */
	PHASE_LOOKING, /* a node of ours is being read in the trial */
	PHASE_CLOSING, /* the trial's session is, then the settings are taken up */
	PHASE_BUSY	   /* to be taken up when no lock is held */
} Phase;

static SessionSettings *used;	 /* in shared memory */
static ConnectString	servers; /* used->servers, parsed */
static SessionSettings	wanted;
static ConnectString	wanted_servers;
static Phase			phase = PHASE_NONE;
static int64			look_at;	   /* PHASE_TRIAL, PHASE_BUSY: not before, ms */
static int				witness;	   /* PHASE_LOOKING: entry whose node is read */
static int64			witness_czxid; /* its node */
static int				misses;		   /* nodes of ours that were not there */
static SettingsStep		next_step;	   /* PHASE_CLOSING: how they are taken up */
static int64			give_up_at;	   /* PHASE_TRIAL, PHASE_LOOKING: ms */

/* ------------------------------------------------------------------------
 * Settings as they are
 * ------------------------------------------------------------------------
 */

static void
copy_settings(SessionSettings *settings)
{
	memset(settings, 0, sizeof(*settings));
	settings->known = true;
	strlcpy(settings->servers, zklock_servers, sizeof(settings->servers));
	strlcpy(settings->auth_file, zklock_auth_file, sizeof(settings->auth_file));
	settings->session_timeout = zklock_session_timeout;
	settings->tick_time = zklock_tick_time;
	settings->acl = zklock_acl;
}

/* Takes up what is wanted, for this worker and the next. */
static void
take_up(void)
{
	*used = wanted;
	(void) connect_string_parse(used->servers, &servers); /* checked when set */
	lease_set_tick_time(used->tick_time);
}

/* The session timeout to ask for, ms. */
int
settings_session_timeout(void)
{
	return used->session_timeout;
}

/* The chroot, or "". */
const char *
settings_chroot(void)
{
	return servers.chroot;
}

/* Are there credentials to be shown? */
bool
settings_have_credentials(void)
{
	return used->auth_file[0] != '\0';
}

/*
 * Reads a file with credentials into the configuration, split at the first
 * colon.  Returns NULL, or what is wrong with the file.
 */
static const char *
read_credentials(const char *name, ZkClientConfig *config)
{
	FILE	   *file;
	struct stat st;
	char		buffer[ZK_AUTH_SIZE + 2] = "";
	size_t		len;
	char	   *colon;
	const char *fault = NULL;

	/* Looked at first: opening something else than a file might block. */
	if (stat(name, &st) != 0)
		return strerror(errno);
	if (!S_ISREG(st.st_mode))
		return "it is not a regular file";
	if (st.st_mode & (S_IRWXG | S_IRWXO))
		return "others than its owner may access it";
	file = AllocateFile(name, "r");
	if (file == NULL)
		return strerror(errno);
	len = fread(buffer, 1, sizeof(buffer) - 1, file);
	FreeFile(file);
	buffer[len] = '\0';
	colon = strchr(buffer, ':');

	/* One newline at the end belongs to the line. */
	if (len == 0)
		fault = "it is empty";
	else if (strlen(buffer) != len)
		fault = "it contains a zero byte";
	else if (strchr(buffer, '\n') != NULL && strchr(buffer, '\n')[1] != '\0')
		fault = "it has more than one line";
	else if (pg_strip_crlf(buffer) >= ZK_AUTH_SIZE)
		fault = "its line is too long";
	else if (colon == NULL || colon == buffer)
		fault = "it does not have the form scheme:credentials";
	else
	{
		*colon = '\0';
		strlcpy(config->auth_scheme, buffer, sizeof(config->auth_scheme));
		strlcpy(config->auth_credentials, colon + 1, sizeof(config->auth_credentials));
	}
	explicit_bzero(buffer, sizeof(buffer));
	return fault;
}

/*
 * Fills in the configuration of a handle, but for the session.  Returns false,
 * having recorded why, if the credentials cannot be used.
 */
bool
settings_configure(ZkClientConfig *config, bool show_credentials)
{
	const char *fault = NULL;

	config->servers = servers;
	config->session_timeout = used->session_timeout;
	config->creator_acl = used->acl == ZKLOCK_ACL_CREATOR;
	if (show_credentials)
		fault = read_credentials(used->auth_file, config);
	if (fault)
	{
		char *message = psprintf("could not use \"zklock.auth_file\": %s", fault);

		ereport(LOG, (errcode(ERRCODE_CONFIG_FILE_ERROR),
					  errmsg("could not use \"zklock.auth_file\" \"%s\": %s", used->auth_file, fault)));
		/* Which file that is, not everybody may know who gets an error. */
		status_set_error(message);
		pfree(message);
	}
	return fault == NULL;
}

/* ------------------------------------------------------------------------
 * Locks that may be lost
 * ------------------------------------------------------------------------
 */

static bool
any_lock_is_held(void)
{
	for (int i = 0; i < zklock_shared->max_entries; i++)
	{
		if (entry_get_state(i) == CONTENDER_GRANTED)
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
	ContenderEntry *entry = entry_at(index);
	bool			found;

	SpinLockAcquire(&entry->mutex);
	found = (entry->state == CONTENDER_GRANTED || entry->state == CONTENDER_QUEUED) &&
			entry->czxid != 0;
	*czxid = entry->czxid;
	if (found)
	{
		strlcpy(path, entry->path, size);
		strlcat(path, "/", size);
		strlcat(path, entry->node, size);
	}
	SpinLockRelease(&entry->mutex);
	return found;
}

/* ------------------------------------------------------------------------
 * Taking up others
 * ------------------------------------------------------------------------
 */

static void
stop_trying(void)
{
	zk_trial_end();
	phase = PHASE_NONE;
}

/*
 * Settings do not work.
 *
 *	secret	what the log may tell in addition: the name of a file; or NULL
 */
static void
refuse(const char *fault, const char *secret)
{
	char *message = psprintf("changed settings are not taken up: %s", fault);

	stop_trying();
	ereport(WARNING,
			(errmsg("changed settings of zklock are not taken up: %s", fault),
			 secret ? errdetail("The file is \"%s\". The ZooKeeper session goes on with the settings it has.", secret)
					: errdetail("The ZooKeeper session goes on with the settings it has."),
			 errhint("Correct them and reload the configuration.")));
	status_set_error(message);
	pfree(message);
}

/* Settings work, but not for the session that we have. */
static void
put_off(const char *why)
{
	char *message = psprintf("changed settings are not taken up while locks are held: %s", why);

	stop_trying();
	phase = PHASE_BUSY;
	look_at = zklock_now_ms();
	if (any_lock_is_held())
	{
		ereport(WARNING,
				(errmsg("changed settings of zklock are not taken up while locks are held: %s", why),
				 errdetail("They are taken up, with another ZooKeeper session, as soon as this server holds no lock.")));
		status_set_error(message);
	}
	pfree(message);
}

/* Settings work: for the session that we have, or there is nothing in it. */
static void
take_up_next(SettingsStep step)
{
	zk_trial_end();
	next_step = step;
	phase = PHASE_CLOSING;
}

/* The reply to look_for_node() */
static void
on_witness(void *arg, const ZkReply *reply)
{
	char  path[ERRAND_PATH_SIZE];
	int64 czxid;

	(void) arg;
	phase = PHASE_TRIAL;
	look_at = zklock_now_ms() + LOOK_AGAIN_MS;
	if (reply->outcome == ZK_UNKNOWN)
		return;
	if (reply->outcome == ZK_OK && reply->ephemeral_owner == zklock_shared->session.id &&
		reply->czxid == witness_czxid)
		take_up_next(SETTINGS_RESUME);
	else if (!own_node(witness, path, sizeof(path), &czxid) || czxid != witness_czxid)
		return;
	else if (++misses < MAX_MISSES)
		return;
	else if (reply->outcome == ZK_REFUSED)
		put_off("the new credentials do not allow access to the nodes of these locks");
	else
		put_off("\"zklock.servers\" names another ensemble, which does not have the nodes of these locks");
}

/* Goes to the next entry with a node of ours, if there is any. */
static bool
next_own_node(char *path, size_t size)
{
	for (int n = 0; n < zklock_shared->max_entries; n++)
	{
		witness = (witness + 1) % zklock_shared->max_entries;
		if (own_node(witness, path, size, &witness_czxid))
			return true;
	}
	return false;
}

/* Reads a node of ours in the trial, where it should be if we belong there. */
static void
look_for_node(void)
{
	char path[ERRAND_PATH_SIZE];

	if (next_own_node(path, sizeof(path)))
	{
		phase = PHASE_LOOKING;
		zk_trial_get(path, on_witness);
	}
	else
		take_up_next(SETTINGS_MOVE);
}

/* The trial stands: what is it that we have found? */
static void
examine(void)
{
	const SessionInfo *session = &zklock_shared->session;

	if (!lease_is_possible_with(zk_trial_timeout(), wanted.tick_time) &&
		lease_is_possible_with(session->shortest_timeout, used->tick_time))
	{
		char *fault =
			psprintf("ZooKeeper grants a session timeout of %d ms, but \"zklock.tick_time\" needs %d ms",
					 zk_trial_timeout(), 2 * wanted.tick_time);

		refuse(fault, NULL);
		pfree(fault);
	}
	else if (strcmp(servers.chroot, wanted_servers.chroot) == 0)
		look_for_node();
	else if (!zk_trial_chroot_exists())
		refuse("the chroot in \"zklock.servers\" does not exist", NULL);
	else
		put_off("\"zklock.servers\" names another chroot");
}

static void
begin_trial(void)
{
	ZkClientConfig config = {.servers = wanted_servers};
	const char	  *fault = NULL;

	if (wanted.auth_file[0] != '\0')
		fault = read_credentials(wanted.auth_file, &config);
	if (fault)
	{
		char *message = psprintf("could not use \"zklock.auth_file\": %s", fault);

		refuse(message, wanted.auth_file);
		pfree(message);
	}
	else
	{
		config.session_timeout = Min(wanted.session_timeout, TRIAL_SESSION_MS);
		zk_trial_begin(&config, TRIAL_MS);
		phase = PHASE_TRIAL;
		look_at = 0;
		misses = 0;
		give_up_at = zklock_now_ms() + 2 * TRIAL_MS;
	}
	explicit_bzero(&config, sizeof(config));
}

/* Compares what is set with what is in use, and does what that takes. */
void
settings_changed(void)
{
	const SessionInfo *session = &zklock_shared->session;
	bool			   same_server;

	stop_trying();
	copy_settings(&wanted);
	(void) connect_string_parse(wanted.servers, &wanted_servers); /* checked when set */
	if (session->id != 0 && wanted.tick_time > used->tick_time &&
		!lease_is_possible_with(session->shortest_timeout, wanted.tick_time))
	{
		char *fault =
			psprintf("with a \"zklock.tick_time\" of %d ms, a session timeout of %d ms is too short",
					 wanted.tick_time, session->shortest_timeout);

		refuse(fault, NULL);
		pfree(fault);
		wanted.tick_time = used->tick_time;
	}
	used->tick_time = wanted.tick_time;
	lease_set_tick_time(used->tick_time);

	same_server = strcmp(wanted.servers, used->servers) == 0 &&
				  strcmp(wanted.auth_file, used->auth_file) == 0;
	if (same_server && wanted.session_timeout == used->session_timeout)
	{
		used->acl = wanted.acl;
		zk_client_set_acl(used->acl == ZKLOCK_ACL_CREATOR);
	}
	else if (session->id == 0 ||
			 (same_server && lease_is_possible_with(wanted.session_timeout, wanted.tick_time)))
		take_up_next(SETTINGS_RESUME);
	else
		begin_trial();
}

/* A worker starts, with the settings of the one before it if there was one. */
void
settings_start(void)
{
	used = &zklock_shared->settings;
	if (!used->known)
	{
		copy_settings(&wanted);
		take_up();
		return;
	}
	wanted = *used;
	take_up();
	settings_changed();
}

/* Goes on with a trial. */
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

/* Goes on with taking up what has changed.  Tells what the worker is to do. */
SettingsStep
settings_attend(void)
{
	int64 now = zklock_now_ms();
	char  path[ERRAND_PATH_SIZE];

	if ((phase == PHASE_TRIAL || phase == PHASE_LOOKING) && now >= give_up_at)
		refuse("it could not be found out whether these servers know the ZooKeeper session", NULL);
	if (phase == PHASE_TRIAL && now >= look_at)
		attend_trial();
	if (phase == PHASE_CLOSING && !zk_trial_closing())
	{
		if (next_step == SETTINGS_MOVE && next_own_node(path, sizeof(path)))
		{
			begin_trial(); /* what came meanwhile is not lost either */
			return SETTINGS_GO_ON;
		}
		phase = PHASE_NONE;
		take_up();
		return next_step;
	}
	if (phase == PHASE_BUSY && now >= look_at)
	{
		look_at = now + LOOK_FOR_LOCKS_MS;
		if (!any_lock_is_held())
		{
			phase = PHASE_NONE;
			take_up();
			return SETTINGS_MOVE;
		}
	}
	return SETTINGS_GO_ON;
}

/* When settings_attend() wants to be called, ms; or -1. */
int64
settings_next_wakeup(void)
{
	switch (phase)
	{
		case PHASE_TRIAL:
			return zk_trial_state() == ZK_TRIAL_RUNNING ? zk_trial_next_wakeup() : look_at;
		case PHASE_LOOKING:
			return give_up_at;
		case PHASE_BUSY:
			return look_at;
		case PHASE_NONE:
		case PHASE_CLOSING:
			break;
	}
	return -1;
}
