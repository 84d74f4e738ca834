/*
 * session_settings.c
 *		The settings that the ZooKeeper session runs with, and how changed ones are
 *		taken up.
 *
 * A typo in a setting must not cost the session, and so locks.  So while a lock is
 * held, only what cannot is taken up at once:
 *
 *		servers				a list that still has the one that we are connected to, with
 *							the same chroot; the worker restarts and resumes the session
 *		session timeout		one with which a lease is possible; likewise
 *		credentials			those of scheme "digest", which ZooKeeper never refuses, in a file
 *							that can be used, if our nodes are accessible without any, as
 *							zklock.acl is "open"; likewise
 *		files for TLS		files that can be used, from the next connection on
 *		tick time			one with which a lease is possible
 *		ACL					nodes that exist stay as they are
 *
 * Anything else waits until no lock is held; then the session ends, and another one
 * begins with all that is set.  zk_session.last_error and the log say that it waits,
 * and why.  An administrator who wants to wait no longer terminates the worker, which
 * takes the settings up and loses the locks.
 *
 * The settings in use may so differ from those that are set.  They are in shared
 * memory, for the next worker, which may start at any time.
 *
 * Runs in: the worker.  ZklockShared.settings is read and written by the worker
 * alone and needs no lock.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <sys/prctl.h>
#include <sys/stat.h>

#include "common/string.h"
#include "shared/clock.h"
#include "shared/entry.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "storage/fd.h"
#include "worker/lease.h"
#include "worker/session.h"
#include "zk/zk_client.h"
#include "zk/zk_tls.h"

#define LOOK_FOR_LOCKS_MS 200 /* is any still held? */

/*
 * The way of changed settings:
 *
 *      IDLE ----> LOOKING_UP ----> WAITING
 *       ^ |          |               |
 *       | '----------+---------------' taken up
 *       '-----------------------------
 *
 * From all of them a reload leads to IDLE, from where it all begins anew.
 */
typedef enum Reload
{
	RELOAD_IDLE,	   /* nothing has changed, or all is taken up */
	RELOAD_LOOKING_UP, /* which servers are named? */
	RELOAD_WAITING	   /* until no lock is held */
} Reload;

static SessionSettings *used;	 /* in shared memory */
static ConnectString	servers; /* used->servers, parsed */
static SessionSettings	wanted;
static ConnectString	wanted_servers;
static Reload			reload = RELOAD_IDLE;
static SettingsStep		step = SETTINGS_STEP_NONE; /* to be made by the worker */
static int64			look_at;				   /* WAITING: when to look again, ms */

/* ------------------------------------------------------------------------
 * Using
 * ------------------------------------------------------------------------
 */

/* The settings that have been taken up. */
const SessionSettings *
session_settings_used(void)
{
	return used;
}

/* The chroot, or "". */
const char *
session_settings_chroot(void)
{
	return servers.chroot;
}

/* Is a file with credentials set? */
bool
session_settings_have_credentials(void)
{
	return used->auth_file[0] != '\0';
}

static ZkAcl
zk_acl(int acl)
{
	return acl == ZKLOCK_ACL_CREATOR ? ZK_ACL_CREATOR : ZK_ACL_OPEN;
}

static bool
has_tls(const SessionSettings *settings)
{
	return settings->tls_ca_file[0] != '\0';
}

/*
 * The worker is about to have a secret, which the client library keeps in its own
 * memory for as long as it needs it: there is to be no core file with that.
 */
static void
leave_no_core(void)
{
	(void) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
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

	leave_no_core();

	/* To open anything but a regular file might block. */
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
 * Takes the credentials of settings into the configuration, and their files for TLS
 * for the next connection.  Returns NULL, or a sentence without its period and
 * without the name of the file, which *culprit gets if one is at fault.
 */
static char *
load_credentials(const SessionSettings *settings, ZkClientConfig *config, const char **culprit)
{
	const char *fault = NULL;

	if (settings->auth_file[0] != '\0')
		fault = read_credentials(settings->auth_file, config);
	*culprit = fault ? settings->auth_file : NULL;
	return fault ? psprintf("could not use \"zklock.auth_file\": %s", fault) : NULL;
}

static char *
load_tls(const SessionSettings *settings, const char **culprit)
{
	*culprit = NULL;
	if (!has_tls(settings))
		return NULL;
	leave_no_core();
	return zk_tls_load(&(ZkTlsNames){settings->tls_ca_file, settings->tls_cert_file,
									 settings->tls_key_file},
					   culprit);
}

/* Something that is set cannot be used.  All roles see the sentence, the log names the file. */
static void
complain(const char *fault, const char *culprit)
{
	ereport(LOG, (errcode(ERRCODE_CONFIG_FILE_ERROR), errmsg_internal("%s", fault),
				  culprit ? errdetail("The file is \"%s\".", culprit) : 0));
	session_status_set_error(fault);
}

/*
 * Fills in the configuration of a handle, but for the session.  Returns false,
 * having recorded why, if it cannot be used.
 */
bool
session_settings_configure(ZkClientConfig *config, Credentials credentials)
{
	const char *culprit;
	char	   *fault;

	config->servers = servers;
	config->session_timeout = used->session_timeout;
	config->acl = zk_acl(used->acl);
	config->tls = has_tls(used);
	fault = load_tls(used, &culprit);
	if (fault == NULL && credentials == CREDENTIALS_SHOWN)
		fault = load_credentials(used, config, &culprit);
	if (fault == NULL)
		return true;
	complain(fault, culprit);
	pfree(fault);
	return false;
}

/* ------------------------------------------------------------------------
 * Taking up
 * ------------------------------------------------------------------------
 */

/* Copies the settings as they are set now. */
static void
read_settings(SessionSettings *settings)
{
	memset(settings, 0, sizeof(*settings));
	settings->known = true;
	strlcpy(settings->servers, zklock_servers, sizeof(settings->servers));
	strlcpy(settings->auth_file, zklock_auth_file, sizeof(settings->auth_file));
	strlcpy(settings->tls_ca_file, zklock_tls_ca_file, sizeof(settings->tls_ca_file));
	strlcpy(settings->tls_cert_file, zklock_tls_cert_file, sizeof(settings->tls_cert_file));
	strlcpy(settings->tls_key_file, zklock_tls_key_file, sizeof(settings->tls_key_file));
	if (has_tls(settings))
		settings->tls_fingerprint = zk_tls_fingerprint(
			&(ZkTlsNames){settings->tls_ca_file, settings->tls_cert_file, settings->tls_key_file});
	settings->session_timeout = zklock_session_timeout;
	settings->tick_time = zklock_tick_time;
	settings->acl = zklock_acl;
}

/* Takes settings up, for this worker and the next; the worker is to make a step then. */
static void
take_up(const SessionSettings *settings, SettingsStep step_)
{
	*used = *settings;
	(void) connect_string_parse(used->servers, &servers); /* checked when set */
	lease_set_tick_time(used->tick_time);
	zk_client_set_acl(zk_acl(used->acl));
	reload = RELOAD_IDLE;
	step = step_;
}

static bool
any_lock_is_held(void)
{
	for (int i = 0; i < entries_max(); i++)
	{
		ContenderState state = entry_status(i).state;

		/* Leadership can go on elsewhere. */
		if (state == CONTENDER_GRANTED && entry_at(i)->request.pid != ENTRY_SERVER_PID)
			return true;
	}
	return false;
}

static bool
same_tls(void)
{
	return strcmp(wanted.tls_ca_file, used->tls_ca_file) == 0 &&
		   strcmp(wanted.tls_cert_file, used->tls_cert_file) == 0 &&
		   strcmp(wanted.tls_key_file, used->tls_key_file) == 0 &&
		   wanted.tls_fingerprint == used->tls_fingerprint;
}

/* Is the server that we are connected to, or were last, among these addresses? */
static bool
has_server_in_use(const char *addresses)
{
	const char *server = zklock_session->info.server;
	char		plain[sizeof(zklock_session->info.server)];
	size_t		len = 0;

	/* The list has no brackets around addresses of IPv6. */
	for (const char *p = server; *p != '\0'; p++)
	{
		if (*p != '[' && *p != ']')
			plain[len++] = *p;
	}
	for (const char *p = addresses; len > 0; p += strcspn(p, ",") + 1)
	{
		if (strncmp(p, plain, len) == 0 && (p[len] == ',' || p[len] == '/' || p[len] == '\0'))
			return true;
		if (p[strcspn(p, ",")] == '\0')
			break;
	}
	return false;
}

/*
 * Could it cost the session to take the settings up?  Returns part of a sentence, or
 * NULL if it cannot.
 *
 *	addresses	of the servers that are set, if they have changed; NULL if none could
 *				be looked up
 */
static char *
find_danger(const char *addresses, const char **culprit)
{
	int			   timeout = Min(session_status_shortest_timeout(), wanted.session_timeout);
	bool		   same_servers = strcmp(wanted.servers, used->servers) == 0;
	bool		   same_auth = strcmp(wanted.auth_file, used->auth_file) == 0;
	ZkClientConfig config = {0};
	char		  *fault;

	*culprit = NULL;
	if (strcmp(servers.chroot, wanted_servers.chroot) != 0)
		return pstrdup("\"zklock.servers\" names another chroot");
	if (has_tls(&wanted) != has_tls(used))
		return pstrdup("\"zklock.tls_ca_file\" switches TLS on or off");
	if (!same_servers && addresses == NULL)
		return pstrdup("no server name in \"zklock.servers\" could be resolved");
	if (!same_servers && !has_server_in_use(addresses))
		return psprintf("\"zklock.servers\" does not have the server in use, %s",
						zklock_session->info.server);
	if ((wanted.tick_time > used->tick_time || wanted.session_timeout < used->session_timeout) &&
		!lease_is_possible_with(timeout, wanted.tick_time))
		return psprintf("with a \"zklock.tick_time\" of %d ms, a session timeout of %d ms is too short",
						wanted.tick_time, timeout);
	if (!same_auth && used->acl == ZKLOCK_ACL_CREATOR)
		return pstrdup("other credentials may not allow access to the nodes of these locks");
	fault = same_auth ? NULL : load_credentials(&wanted, &config, culprit);
	if (fault == NULL && config.auth_scheme[0] != '\0' && strcmp(config.auth_scheme, "digest") != 0)
		fault = pstrdup("ZooKeeper may refuse credentials of another scheme than \"digest\"");
	explicit_bzero(&config, sizeof(config));
	if (fault == NULL && !same_tls())
		fault = load_tls(&wanted, culprit);
	return fault;
}

/* The settings are taken up when no lock is held. */
static void
put_off(const char *why, const char *culprit)
{
	char *message = psprintf("changed settings wait until no lock is held: %s", why);

	reload = RELOAD_WAITING;
	look_at = zklock_now_ms() + LOOK_FOR_LOCKS_MS;
	ereport(WARNING,
			(errmsg("changed settings of zklock wait until no lock is held: %s", why),
			 culprit ? errdetail("The file is \"%s\". The ZooKeeper session goes on with the settings it has, until this server holds no lock.",
								 culprit)
					 : errdetail("The ZooKeeper session goes on with the settings it has, until this server holds no lock."),
			 errhint("Correct the settings and reload the configuration; or terminate the zklock worker to lose the locks.")));
	session_status_set_error(message);
	pfree(message);
}

/* The servers that are set have these addresses, if it matters; see find_danger(). */
static void
decide(const char *addresses)
{
	bool same_handle = strcmp(wanted.servers, used->servers) == 0 &&
					   strcmp(wanted.auth_file, used->auth_file) == 0 &&
					   wanted.session_timeout == used->session_timeout;
	const char *culprit;
	char	   *danger = find_danger(addresses, &culprit);

	if (danger == NULL && same_handle)
	{
		take_up(&wanted, SETTINGS_STEP_NONE);
		ereport(LOG, (errmsg("zklock has taken up changed settings")));
	}
	else if (danger == NULL)
		take_up(&wanted, SETTINGS_STEP_RESTART);
	else if (any_lock_is_held())
		put_off(danger, culprit);
	else
		take_up(&wanted, SETTINGS_STEP_MOVE);
	if (danger)
		pfree(danger);
}

static void
on_looked_up(const char *addresses)
{
	if (reload == RELOAD_LOOKING_UP)
		decide(addresses);
}

/*
 * A worker starts: it goes on with the settings of the one before it.  The first
 * worker takes up what is set.
 */
void
session_settings_start(void)
{
	SessionSettings settings;

	used = &zklock_session->settings;
	if (used->known)
	{
		settings = *used;
		take_up(&settings, SETTINGS_STEP_NONE);
		session_settings_reload();
	}
	else
	{
		read_settings(&settings);
		take_up(&settings, SETTINGS_STEP_NONE);
	}
}

/* Compares the settings that are set with those in use, and begins to take them up. */
void
session_settings_reload(void)
{
	reload = RELOAD_IDLE;
	read_settings(&wanted);
	(void) connect_string_parse(wanted.servers, &wanted_servers); /* checked when set */
	if (memcmp(&wanted, used, sizeof(wanted)) == 0)
		return;
	if (session_status_id() == 0)
		take_up(&wanted, SETTINGS_STEP_MOVE); /* nothing can be lost */
	else if (strcmp(wanted.servers, used->servers) == 0)
		decide(NULL);
	else
	{
		reload = RELOAD_LOOKING_UP;
		zk_client_look_up(&wanted_servers, on_looked_up);
	}
}

/* Goes on with taking up changed settings.  Returns the step that the worker is to make. */
SettingsStep
session_settings_attend(void)
{
	SettingsStep next;

	if (reload == RELOAD_WAITING && zklock_now_ms() >= look_at)
	{
		look_at = zklock_now_ms() + LOOK_FOR_LOCKS_MS;
		if (!any_lock_is_held())
			take_up(&wanted, SETTINGS_STEP_MOVE);
	}
	next = step;
	step = SETTINGS_STEP_NONE;
	return next;
}

/* When session_settings_attend() wants to be called, ms; or -1. */
int64
session_settings_next_wakeup(void)
{
	return reload == RELOAD_WAITING ? look_at : -1;
}

/*
 * The worker is terminated: settings that wait are taken up.  Returns true if there
 * are any; then the session is to end, with all locks in it.
 */
bool
session_settings_insist(void)
{
	if (reload != RELOAD_WAITING)
		return false;
	ereport(LOG, (errmsg("zklock takes up changed settings, and loses all locks, as the worker is terminated")));
	take_up(&wanted, SETTINGS_STEP_NONE);
	return true;
}
