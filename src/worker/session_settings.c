/*
 * session_settings.c
 *		The settings that the ZooKeeper session runs with.
 *
 * They may differ from those that are set: settings that do not work are not taken
 * up (reload.c).  They are in shared memory, for the next worker, which may start at
 * any time: it must not lose the session by settings that have been refused.
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
#include "shared/settings.h"
#include "storage/fd.h"
#include "worker/lease.h"
#include "worker/session_settings.h"
#include "worker/session_status.h"
#include "zk/zk_client.h"
#include "zk/zk_tls.h"

static SessionSettings *used;	 /* in shared memory */
static ConnectString	servers; /* used->servers, parsed */

/* ------------------------------------------------------------------------
 * Taking up
 * ------------------------------------------------------------------------
 */

static ZkAcl
zk_acl(int acl)
{
	return acl == ZKLOCK_ACL_CREATOR ? ZK_ACL_CREATOR : ZK_ACL_OPEN;
}

/* Copies the settings as they are set now. */
void
session_settings_read(SessionSettings *settings)
{
	memset(settings, 0, sizeof(*settings));
	settings->known = true;
	strlcpy(settings->servers, zklock_servers, sizeof(settings->servers));
	strlcpy(settings->auth_file, zklock_auth_file, sizeof(settings->auth_file));
	settings->tls = zklock_tls;
	strlcpy(settings->tls_ca_file, zklock_tls_ca_file, sizeof(settings->tls_ca_file));
	strlcpy(settings->tls_cert_file, zklock_tls_cert_file, sizeof(settings->tls_cert_file));
	strlcpy(settings->tls_key_file, zklock_tls_key_file, sizeof(settings->tls_key_file));
	if (settings->tls)
		settings->tls_fingerprint = zk_tls_fingerprint(
			&(ZkTlsNames){settings->tls_ca_file, settings->tls_cert_file, settings->tls_key_file});
	settings->session_timeout = zklock_session_timeout;
	settings->tick_time = zklock_tick_time;
	settings->acl = zklock_acl;
}

/* Takes settings up, for this worker and the next. */
void
session_settings_take_up(const SessionSettings *settings)
{
	*used = *settings;
	(void) connect_string_parse(used->servers, &servers); /* checked when set */
	lease_set_tick_time(used->tick_time);
}

/* Takes up a value of zklock.acl; nodes that exist stay as they are. */
void
session_settings_take_up_acl(int acl)
{
	used->acl = acl;
	zk_client_set_acl(zk_acl(acl));
}

void
session_settings_take_up_tick_time(int tick_time_ms)
{
	used->tick_time = tick_time_ms;
	lease_set_tick_time(tick_time_ms);
}

/*
 * A worker starts: it goes on with the settings of the one before it.  The first
 * worker takes up what is set.
 */
SettingsOrigin
session_settings_start(void)
{
	SessionSettings settings;
	SettingsOrigin	origin;

	used = &zklock_session->settings;
	origin = used->known ? SETTINGS_INHERITED : SETTINGS_OWN;
	if (origin == SETTINGS_INHERITED)
		settings = *used;
	else
		session_settings_read(&settings);
	session_settings_take_up(&settings);
	return origin;
}

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
const char *
session_settings_read_credentials(const char *name, ZkClientConfig *config)
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
 * Reads and checks the files that settings name for TLS; see zk_tls_load().
 */
char *
session_settings_load_tls(const SessionSettings *settings, ZkTls set, const char **culprit)
{
	ZkTlsNames names = {settings->tls_ca_file, settings->tls_cert_file, settings->tls_key_file};

	leave_no_core();
	return zk_tls_load(set, &names, culprit);
}

/*
 * Fills in whether TLS is to be used.  Returns false, having recorded why, if it
 * is and cannot.
 */
bool
session_settings_configure_tls(ZkClientConfig *config)
{
	const char *culprit;
	char	   *fault;

	if (!used->tls)
		return true;
	config->tls = ZK_TLS_USED;
	fault = session_settings_load_tls(used, ZK_TLS_USED, &culprit);
	if (fault == NULL)
		return true;
	ereport(LOG, (errcode(ERRCODE_CONFIG_FILE_ERROR), errmsg("%s", fault),
				  culprit ? errdetail("The file is \"%s\".", culprit) : 0));
	session_status_set_error(fault);
	pfree(fault);
	return false;
}

/*
 * Fills in the configuration of a handle, but for the session and TLS.  Returns false,
 * having recorded why, if the credentials cannot be used.
 */
bool
session_settings_configure(ZkClientConfig *config, Credentials credentials)
{
	const char *fault = NULL;

	config->servers = servers;
	config->session_timeout = used->session_timeout;
	config->acl = zk_acl(used->acl);
	if (credentials == CREDENTIALS_SHOWN && session_settings_have_credentials())
		fault = session_settings_read_credentials(used->auth_file, config);
	if (fault)
	{
		char *message = psprintf("could not use \"zklock.auth_file\": %s", fault);

		ereport(LOG, (errcode(ERRCODE_CONFIG_FILE_ERROR),
					  errmsg("could not use \"zklock.auth_file\" \"%s\": %s", used->auth_file, fault)));

		/* All roles may see this; the name of the file is for the log alone. */
		session_status_set_error(message);
		pfree(message);
	}
	return fault == NULL;
}
