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
 *		session timeout		one with which a lease is possible; the worker restarts
 *		credentials			those of scheme "digest", which ZooKeeper never refuses, in a file
 *							that can be used, if our nodes are accessible without any, as
 *							zklock.acl is "open"; the worker restarts
 *		files for TLS		files that can be used, from the next connection on
 *		tick time			one with which a lease is possible
 *		ACL					nodes that exist stay as they are
 *
 * Anything else waits until no lock is held, and what sessions' calls have written is
 * known; then the session ends, and with it the worker; the next one begins a session
 * with all that is set.  zk_session.last_error and the log say that it waits for locks,
 * and why.  An administrator who wants to wait no longer terminates the worker, which
 * takes the settings up and loses the locks.
 *
 * In the same way a session ends that was once granted too short a timeout for any
 * lease, when ZooKeeper grants more.
 *
 * The settings in use may so differ from those that are set.  They are in shared
 * memory, for the next worker, which may start at any time.
 *
 * Runs in: the worker.  SharedSession.settings is read and written by the worker
 * alone and needs no lock.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <sys/prctl.h>
#include <sys/stat.h>

#include "common/string.h"
#include "shared/common.h"
#include "shared/entry.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "storage/fd.h"
#include "worker/worker_internal.h"
#include "zk/zk_client.h"

#define LOOK_FOR_LOCKS_MS 200 /* is any still held? */

static SessionSettings *used;	/* in shared memory */
static SessionSettings	wanted; /* what is set */
static uintptr_t question;		/* which servers are named?  0: that is not being looked up */
static bool		 waiting;		/* "wanted" is taken up when no lock is held */
static int64	 look_at;		/* whether one still is, ms */

/* ------------------------------------------------------------------------
 * Using
 * ------------------------------------------------------------------------
 */

static bool
has_tls(const SessionSettings *settings)
{
	return settings->tls.names[TLS_CA][0] != '\0';
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
 * Takes the credentials of settings into the configuration.  Returns NULL, or a
 * sentence without its period that says what is wrong: all roles may see it, the log
 * alone names the file.
 */
static char *
load_credentials(const SessionSettings *settings, ZkClientConfig *config)
{
	const char *fault = NULL;

	if (settings->auth_file[0] != '\0')
		fault = read_credentials(settings->auth_file, config);
	if (fault == NULL)
		return NULL;
	ereport(LOG, (errcode(ERRCODE_CONFIG_FILE_ERROR),
				  errmsg("could not use \"zklock.auth_file\": %s", fault),
				  errdetail("The file is \"%s\".", settings->auth_file)));
	return psprintf("could not use \"zklock.auth_file\": %s", fault);
}

/* Takes the files for TLS for the next connection; as load_credentials(). */
static char *
load_tls(const SessionSettings *settings)
{
	if (!has_tls(settings))
		return NULL;
	leave_no_core();
	return zk_tls_load(&settings->tls);
}

/*
 * Fills in the configuration of a handle, but for the session.  Returns false,
 * having recorded why, if it cannot be used.
 */
bool
session_settings_configure(ZkClientConfig *config, Credentials credentials)
{
	char *fault = load_tls(used);

	config->session_timeout = used->session_timeout;
	config->tls = has_tls(used);
	if (fault == NULL && credentials == CREDENTIALS_SHOWN)
		fault = load_credentials(used, config);
	if (fault == NULL)
		return true;
	session_info_set_error(fault);
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
	strlcpy(settings->tls.names[TLS_CA], zklock_tls_ca_file, ZKLOCK_FILE_SIZE);
	strlcpy(settings->tls.names[TLS_CERT], zklock_tls_cert_file, ZKLOCK_FILE_SIZE);
	strlcpy(settings->tls.names[TLS_KEY], zklock_tls_key_file, ZKLOCK_FILE_SIZE);
	if (has_tls(settings))
		settings->tls.fingerprint = zk_tls_fingerprint(&settings->tls);
	settings->session_timeout = zklock_session_timeout;
	settings->tick_time = zklock_tick_time;
	settings->acl = zklock_acl;
}

/* This worker goes by the settings in use. */
static void
apply(void)
{
	lease_check_timeout();
	zk_client_set_acl(used->acl);
}

/* Takes up what is set, for this worker and the next. */
void
session_settings_take_up(void)
{
	memcpy(used, &wanted, sizeof(wanted)); /* with its padding: it is compared by memcmp() */
	apply();
	waiting = false;
	zklock_session->failures = 0; /* of other settings */
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

/* Is the server that we are connected to, or were last, among these addresses? */
static bool
has_server_in_use(const char *addresses)
{
	char *list = psprintf(",%.*s,", (int) strcspn(addresses, "/"), addresses);
	char  server[sizeof(zklock_session->info.server) + 2] = ",";
	char *end = server + 1;

	/* The list has no brackets around addresses of IPv6. */
	for (const char *p = zklock_session->info.server; *p != '\0'; p++)
	{
		if (*p != '[' && *p != ']')
			*end++ = *p;
	}
	strlcpy(end, ",", server + sizeof(server) - end);
	return strstr(list, server) != NULL;
}

/*
 * Could it cost the session to take the settings up?  Returns part of a sentence, or
 * NULL if it cannot.
 *
 *	addresses	of the servers that are set, if they have changed; NULL if none could
 *				be looked up
 */
static char *
find_danger(const char *addresses)
{
	int	 timeout = Min(zklock_session->info.shortest_timeout, wanted.session_timeout);
	bool same_servers = strcmp(wanted.servers, used->servers) == 0;
	bool same_auth = strcmp(wanted.auth_file, used->auth_file) == 0;
	ZkClientConfig config = {0};
	char		  *fault;

	if (strcmp(connect_string_chroot(used->servers), connect_string_chroot(wanted.servers)) != 0)
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
	fault = same_auth ? NULL : load_credentials(&wanted, &config);
	if (fault == NULL && config.auth_scheme[0] != '\0' && strcmp(config.auth_scheme, "digest") != 0)
		fault = pstrdup("ZooKeeper may refuse credentials of another scheme than \"digest\"");
	explicit_bzero(&config, sizeof(config));
	if (fault == NULL && memcmp(&wanted.tls, &used->tls, sizeof(wanted.tls)) != 0)
		fault = load_tls(&wanted);
	return fault;
}

/* The settings are taken up when no lock is held. */
static void
put_off(const char *why)
{
	char *message = psprintf("changed settings wait until no lock is held: %s", why);

	waiting = true;
	look_at = zklock_now_ms();
	if (any_lock_is_held())
	{
		ereport(WARNING,
				(errmsg("changed settings of zklock wait until no lock is held: %s", why),
				 errdetail("The ZooKeeper session goes on with the settings it has, until this server holds no lock."),
				 errhint("Correct the settings and reload the configuration; or terminate the zklock worker to lose the locks.")));
		session_info_set_error(message);
	}
	pfree(message);
}

/* The servers that are set have these addresses, if it matters; see find_danger(). */
static void
decide(const char *addresses)
{
	bool same_handle = strcmp(wanted.servers, used->servers) == 0 &&
					   strcmp(wanted.auth_file, used->auth_file) == 0 &&
					   wanted.session_timeout == used->session_timeout;
	char *danger = find_danger(addresses);

	if (danger)
	{
		put_off(danger);
		pfree(danger);
		return;
	}
	session_settings_take_up();
	if (!same_handle)
		zklock_worker_restart("changed settings");
	ereport(LOG, (errmsg("zklock has taken up changed settings")));
}

/* The servers of a question have these addresses. */
void
session_settings_looked_up(uintptr_t question_, const char *addresses)
{
	if (question_ != question)
		return;
	question = 0;
	decide(addresses);
}

/*
 * A worker starts: it goes on with the settings of the one before it.  The first
 * worker takes up what is set.
 */
void
session_settings_start(void)
{
	used = &zklock_session->settings;
	if (!used->known)
		read_settings(used);
	apply();
	session_settings_reload();
}

/* Compares the settings that are set with those in use, and begins to take them up. */
void
session_settings_reload(void)
{
	question = 0;
	waiting = false;
	read_settings(&wanted);
	if (memcmp(&wanted, used, sizeof(wanted)) == 0)
		return;
	if (zklock_session->info.id == 0) /* nothing can be lost */
	{
		session_settings_take_up();
		zklock_worker_restart("changed settings");
	}
	if (strcmp(wanted.servers, used->servers) == 0)
		decide(NULL);
	else
		question = zk_client_look_up(wanted.servers);
}

/* Do changed settings wait? */
bool
session_settings_wait(void)
{
	return waiting;
}

/*
 * Was the session once granted too short a timeout for any lease, and is it granted
 * more now?  The lease keeps to the shortest, so only another session helps.
 */
static bool
session_is_spoilt(void)
{
	const SessionInfo *session = &zklock_session->info;

	return session->state == SESSION_CONNECTED && !lease_is_possible() &&
		   lease_is_possible_with(session->negotiated_timeout, used->tick_time);
}

/*
 * Why another session is to begin, as part of a sentence, if this one is not needed any
 * more; or else NULL.
 */
const char *
session_settings_due(void)
{
	if (zklock_now_ms() < session_settings_next_wakeup())
		return NULL;
	look_at = zklock_now_ms() + LOOK_FOR_LOCKS_MS;
	if (any_lock_is_held() || !entries_all_consumed() || worker_calls_in_doubt())
		return NULL;
	return waiting ? "it moves to where changed settings lead"
				   : "ZooKeeper had granted it too short a timeout for any lock";
}

/* When session_settings_due() wants to be called, ms. */
int64
session_settings_next_wakeup(void)
{
	return waiting || session_is_spoilt() ? look_at : NEVER;
}
