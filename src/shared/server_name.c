/*
 * server_name.c
 *		What this server is called in ZooKeeper.
 *
 * Runs in: any process.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <unistd.h>

#include "postmaster/postmaster.h"
#include "shared/server_name.h"
#include "shared/settings.h"
#include "utils/guc.h"

#define HOST_SIZE 100

/*
 * Appends zklock.server_name, or else cluster_name, or else host and port; in the
 * encoding of the settings, and nothing if there is none of all that.
 */
void
zklock_append_server_name(StringInfo dst)
{
	char host[HOST_SIZE];

	if (zklock_server_name[0] != '\0')
		appendStringInfoString(dst, zklock_server_name);
	else if (cluster_name[0] != '\0')
		appendStringInfoString(dst, cluster_name);
	else if (gethostname(host, sizeof(host)) == 0)
	{
		host[sizeof(host) - 1] = '\0';
		appendStringInfo(dst, "%s:%d", host, PostPortNumber);
	}
}
