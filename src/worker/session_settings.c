/*
 * session_settings.c
 *		The settings that the ZooKeeper session runs with, and how changed ones are
 *		taken up.
 *
 * A changed setting waits until no lock is held, whatever it is, and until the outcome of
 * what sessions' calls have written is known: a typo costs no lock.  zk_session.last_error
 * and the log say that it waits.  Then the worker restarts.  The next one goes on with what
 * is set, and with the session if ZooKeeper continues it; with another chroot, below which
 * there are other nodes, it begins another session.  An administrator who does not want to
 * wait terminates the worker, which has the same effect at once.
 *
 * A session that was once granted a shorter timeout than now gives way to another one: under
 * the same conditions if no lease is possible, else when nobody holds, waits or stands for
 * election in it.
 *
 * Files that settings name are read for each connection.  The client library connects by
 * itself as long as it has a handle: so they are read anew when a connection is lost, and as
 * long as there is none.  If they cannot be used then, the worker goes on with those that
 * were read before.
 *
 * The settings in use may differ from those that are set.  They are in shared memory, for
 * the next worker, which may start at any time.
 *
 * Runs in: the worker.  Only the worker reads and writes SharedSession.settings, which needs
 * no lock.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <sys/prctl.h>
#include <sys/stat.h>

#include "common/hashfn.h"
#include "common/string.h"
#include "shared/common.h"
#include "shared/entry.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "storage/fd.h"
#include "worker/worker_internal.h"
#include "zk/zk_client.h"

#define LOOK_FOR_LOCKS_MS 200 /* how often to look whether one is held */

static SessionSettings *used;			/* in shared memory */
static bool				waiting;		/* changed ones are taken up when no lock is held */
static int64			check_locks_at; /* when to look whether one is held, ms */
static uint64			shown;			/* a hash of the credentials that the handle has */

/* ------------------------------------------------------------------------
 * Using
 * ------------------------------------------------------------------------
 */

static bool
wants_tls(void)
{
	return used->tls.names[TLS_CA][0] != '\0';
}

/*
 * Reads a file with credentials into the configuration, split at the first colon.  Returns
 * NULL, or what is wrong with the file.
 */
static const char *
read_credentials(const char *name, ZkClientConfig *config)
{
	FILE	   *file;
	struct stat st;
	char		buffer[ZK_AUTH_SIZE + 2] = "";
	size_t		len;
	char	   *colon;
	bool		sasl = false;
	const char *fault = NULL;

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
		sasl = strcmp(buffer, "sasl") == 0;
		if (sasl)
			fault = zk_sasl_load(colon + 1, wants_tls());
	}

	/* A configuration without credentials follows one that failed: nothing may remain. */
	if (fault == NULL)
	{
		config->sasl = sasl;
		strlcpy(config->auth_scheme, buffer, sizeof(config->auth_scheme));
		strlcpy(config->auth_credentials, colon + 1, sizeof(config->auth_credentials));
	}
	explicit_bzero(buffer, sizeof(buffer));
	return fault;
}

/*
 * Reads the credentials, if any are set, into the configuration.  Returns NULL, or a sentence
 * without its period that says what is wrong: all roles may see it, so only the log names the
 * file.
 */
static char *
load_credentials(ZkClientConfig *config)
{
	const char *fault = NULL;

	if (used->auth_file[0] != '\0')
		fault = read_credentials(used->auth_file, config);
	if (fault == NULL)
		return NULL;
	ereport(LOG, (errcode(ERRCODE_CONFIG_FILE_ERROR),
				  errmsg("could not use \"zklock.auth_file\": %s", fault),
				  errdetail("The file is \"%s\".", used->auth_file)));
	return psprintf("could not use \"zklock.auth_file\": %s", fault);
}

/*
 * Reads the files for the next connection.  Returns false if they cannot be used, and records
 * why.
 */
static bool
load_files(ZkClientConfig *config, Credentials credentials)
{
	char *fault = NULL;

	/* No core files: the client library keeps a secret in its own memory from now on. */
	if (wants_tls() || used->auth_file[0] != '\0')
		(void) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (wants_tls())
		fault = zk_tls_load(&used->tls);
	if (fault == NULL && credentials == CREDENTIALS_SHOWN)
		fault = load_credentials(config);
	if (fault == NULL)
		return true;
	session_info_set_error(fault);
	pfree(fault);
	return false;
}

static uint64
hash_credentials(const ZkClientConfig *config)
{
	const unsigned char *scheme = (const unsigned char *) config->auth_scheme;
	const unsigned char *credentials = (const unsigned char *) config->auth_credentials;

	return hash_bytes_extended(credentials, strlen(config->auth_credentials),
							   hash_bytes_extended(scheme, strlen(config->auth_scheme), 0));
}

/*
 * Fills in the configuration of a handle, but for the session.  Returns false if it cannot be
 * used, and records why.
 */
bool
session_settings_configure(ZkClientConfig *config, Credentials credentials)
{
	bool usable = load_files(config, credentials);

	config->session_timeout = used->session_timeout;
	config->tls = wants_tls();
	shown = hash_credentials(config);
	return usable;
}

/*
 * Reads the files for the next connection, while there is none.  A handle cannot forget
 * credentials, so other ones need another worker.
 */
void
session_settings_read_files(void)
{
	ZkClientConfig config = {0};
	bool changed = load_files(&config, CREDENTIALS_SHOWN) && hash_credentials(&config) != shown;

	explicit_bzero(&config, sizeof(config));
	if (changed)
		zklock_worker_restart("changed credentials");
}

/* ------------------------------------------------------------------------
 * Taking up
 * ------------------------------------------------------------------------
 */

/* Takes the settings as they are set now into use. */
static void
use_what_is_set(void)
{
	if (strcmp(zklock_servers, used->servers) != 0)
		zklock_session->addresses[0] = '\0';
	strlcpy(used->servers, zklock_servers, sizeof(used->servers));
	strlcpy(used->auth_file, zklock_auth_file, sizeof(used->auth_file));
	strlcpy(used->tls.names[TLS_CA], zklock_tls_ca_file, ZKLOCK_FILE_SIZE);
	strlcpy(used->tls.names[TLS_CERT], zklock_tls_cert_file, ZKLOCK_FILE_SIZE);
	strlcpy(used->tls.names[TLS_KEY], zklock_tls_key_file, ZKLOCK_FILE_SIZE);
	used->session_timeout = zklock_session_timeout;
	used->tick_time = zklock_tick_time;
	used->acl = zklock_acl;
}

/* Returns the names of settings that differ from those in use, palloc'd; NULL if none does. */
char *
session_settings_list_changes(void)
{
	const struct
	{
		const char *name;
		bool		changed;
	} settings[] = {
		{"zklock.servers", strcmp(zklock_servers, used->servers) != 0},
		{"zklock.session_timeout", zklock_session_timeout != used->session_timeout},
		{"zklock.tick_time", zklock_tick_time != used->tick_time},
		{"zklock.auth_file", strcmp(zklock_auth_file, used->auth_file) != 0},
		{"zklock.acl", zklock_acl != used->acl},
		{"zklock.tls_ca_file", strcmp(zklock_tls_ca_file, used->tls.names[TLS_CA]) != 0},
		{"zklock.tls_cert_file", strcmp(zklock_tls_cert_file, used->tls.names[TLS_CERT]) != 0},
		{"zklock.tls_key_file", strcmp(zklock_tls_key_file, used->tls.names[TLS_KEY]) != 0},
	};
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < (int) lengthof(settings); i++)
	{
		if (settings[i].changed)
			appendStringInfo(&list, "%s\"%s\"", list.len > 0 ? ", " : "", settings[i].name);
	}
	if (list.len > 0)
		return list.data;
	pfree(list.data);
	return NULL;
}

/* Returns true if the settings that are set have another chroot. */
bool
session_settings_change_chroot(void)
{
	return strcmp(connect_string_chroot(zklock_servers), connect_string_chroot(used->servers)) != 0;
}

/* Has the next worker go on with what is set. */
void
session_settings_take_up(void)
{
	use_what_is_set();
	zklock_session->settings_work = false;
	zklock_session->failures = 0; /* those were of other settings */
}

static int
count_locks_held(void)
{
	int n = 0;

	for (int i = 0; i < entries_max(); i++)
	{
		/* Leadership can go on elsewhere. */
		if (entry_status(i).state == ENTRY_GRANTED && entry_at(i)->request.pid != ENTRY_SERVER_PID)
			n++;
	}
	return n;
}

/* Reports that changed settings wait for the end of "held" locks. */
static void
report_waiting(const char *changes, int held)
{
	char message[ZKLOCK_ERROR_SIZE];

	snprintf(message, sizeof(message), "changed settings wait until no lock is held: %s", changes);
	session_info_set_error(message);
	ereport(WARNING,
			(errmsg("changed settings of zklock wait until no lock is held: %s", changes),
			 errdetail_plural("Sessions of this server hold %d lock.",
							  "Sessions of this server hold %d locks.", held, held),
			 errhint("To have them taken up now, terminate the zklock worker; the locks are lost if ZooKeeper does not continue the session.")));
}

/*
 * Returns true if another worker can take over, with changed settings, or with another session
 * because this one is spoilt: nothing depends on the session, or the settings in use, which an
 * administrator has had taken up while locks were held, give no way to it.
 */
static bool
can_be_taken_up(void)
{
	const SessionInfo *session = &zklock_session->info;

	if (session->id == 0)
		return true;
	if (!zklock_session->settings_work && session->state != SESSION_CONNECTED)
		return !session_settings_change_chroot();
	if (!waiting && lease_is_possible() && entries_in_use() > 0)
		return false; /* a longer timeout costs nobody a place or a term */
	return count_locks_held() == 0 && entries_all_consumed() && !worker_calls_in_doubt() &&
		   !worker_calls_leave_nodes();
}

/* Compares the settings that are set with those in use, and reports those that wait. */
void
session_settings_reload(void)
{
	char *changes = session_settings_list_changes();
	int	  held = count_locks_held();

	waiting = changes != NULL;
	check_locks_at = zklock_now_ms();
	if (!waiting)
		return;
	if (held > 0 && !can_be_taken_up())
		report_waiting(changes, held);
	pfree(changes);
}

/*
 * Takes the settings into use as a worker starts; if there is a session, it goes on with those
 * of the session.
 */
void
session_settings_start(void)
{
	used = &zklock_session->settings;
	if (zklock_session->info.id == 0)
		use_what_is_set();
	zk_client_set_acl(used->acl);
	session_settings_reload();
}

/*
 * Returns true if the session was once granted a shorter timeout than now.  The lease keeps to
 * the shortest, so only another session helps.
 */
static bool
session_is_spoilt(void)
{
	const SessionInfo *session = &zklock_session->info;

	return session->state == SESSION_CONNECTED &&
		   session->negotiated_timeout > session->shortest_timeout;
}

/* Returns true if another worker is to take over now. */
bool
session_settings_due(void)
{
	if (zklock_now_ms() < session_settings_next_wakeup())
		return false;
	check_locks_at = zklock_now_ms() + LOOK_FOR_LOCKS_MS;
	return can_be_taken_up();
}

/* Returns when session_settings_due() wants to be called, ms. */
int64
session_settings_next_wakeup(void)
{
	return waiting || session_is_spoilt() ? check_locks_at : NEVER;
}
