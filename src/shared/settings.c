/*
 * settings.c
 *		The settings of zklock, as every process reads them.
 *
 * zklock.c defines them; PostgreSQL alone writes the variables.
 *
 * Runs in: any process; each has its own variables.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <unistd.h>

#include "fault.h"
#include "postmaster/postmaster.h"
#include "shared/entry.h"
#include "shared/settings.h"
#include "utils/guc.h"

int	  zklock_acl = ZKLOCK_ACL_OPEN;
char *zklock_advisory_path = NULL;
char *zklock_allowed_paths = NULL;
char *zklock_auth_file = NULL;
int	  zklock_commit_guard = COMMIT_GUARD_LEASE;
char *zklock_elections = NULL;
int	  zklock_keep_idle = 100;
int	  zklock_max_hold_time = 0;
int	  zklock_max_locks = -1;
int	  zklock_max_locks_per_session = -1;
int	  zklock_on_lock_loss = LOSS_ABORT;
int	  zklock_parent_nodes = PARENTS_CONTAINER;
char *zklock_path_dialects = NULL;
char *zklock_server_name = NULL;
char *zklock_servers = NULL;
bool  zklock_session_locks = true;
int	  zklock_session_timeout = 10000;
int	  zklock_tick_time = 2000;
char *zklock_tls_ca_file = NULL;
char *zklock_tls_cert_file = NULL;
char *zklock_tls_key_file = NULL;

#ifdef ZKLOCK_FAULTS
char *zklock_faults = NULL;
#endif

#define HOST_SIZE 100 /* this length always fits into the data of a node */

/* Returns the name of this host, "" if it has none; each process asks the system for it once. */
const char *
zklock_host_name(void)
{
	static char host[HOST_SIZE];

	if (host[0] == '\0' && gethostname(host, sizeof(host) - 1) != 0)
		host[0] = '\0';
	return host;
}

/*
 * Returns the name of this server: zklock.server_name, or else cluster_name, or else host
 * and port; in the encoding of the settings, palloc'd, and empty if there is none of these.
 */
char *
zklock_own_name(void)
{
	const char *host;

	if (zklock_server_name[0] != '\0')
		return pstrdup(zklock_server_name);
	if (cluster_name[0] != '\0')
		return pstrdup(cluster_name);
	host = zklock_host_name();
	return host[0] == '\0' ? pstrdup("") : psprintf("%s:%d", host, PostPortNumber);
}
