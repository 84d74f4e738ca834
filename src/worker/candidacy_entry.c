/*
 * candidacy_entry.c
 *		The contender of a candidacy: what is asked for, and what its entry tells.
 *
 * Nothing here changes a candidacy; candidacy.c alone does.
 *
 * Runs in: the worker.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "shared/path_settings.h"
#include "shared/server_name.h"
#include "shared/settings.h"
#include "utils/timestamp.h"
#include "worker/candidacy_entry.h"

/* What is written into a candidate's node: the server's name alone, as text of any peer is. */
static void
compose_data(char *dst, size_t size)
{
	StringInfoData name;

	initStringInfo(&name);
	zklock_append_server_name(&name);
	strlcpy(dst, name.data, size);
	if (!pg_verify_mbstr(PG_UTF8, dst, strlen(dst), true))
	{
		for (char *c = dst; *c != '\0'; c++)
		{
			if (IS_HIGHBIT_SET(*c))
				*c = '?';
		}
	}
	pfree(name.data);
}

/* LeaderElectionSupport finds no path that ZooKeeper removes while it is empty. */
static ParentNodes
parent_nodes(ElectionFamily family)
{
	if (family == ELECTION_SUPPORT && zklock_parent_nodes == PARENTS_CONTAINER)
		return PARENTS_PERSISTENT;
	return zklock_parent_nodes;
}

/*
 * Fills in an entry for a new contender; to ask for it is left to the caller.
 *
 *	replaces	an entry of the same election that is given up at the same time, or
 *				ENTRY_NONE
 *	generation	gets the generation of the entry
 *
 * Returns the index of the entry, which is negative if none is free.
 */
int
candidacy_entry_claim(const Election *election, int replaces, uint32 *generation)
{
	int				index = entry_claim(0, generation);
	ContenderEntry *entry;
	EntryRequest   *request;

	if (index < 0)
		return index;
	entry = entry_at(index);
	request = &entry->request;
	memset(request, 0, sizeof(*request));
	request->proc_number = ENTRY_NO_LATCH;
	request->pid = ENTRY_SERVER_PID;
	request->kind = CONTENDER_CANDIDACY;
	request->recipe = RECIPE_ELECTION;
	request->terms.mode = LOCK_MODE_EXCLUSIVE;
	request->terms.family = election->family;
	request->terms.dialect = dialect_of_path(election->path);
	request->parent_nodes = parent_nodes(election->family);
	request->share = entries_max();
	request->reserve = RESERVE_OPEN;
	request->replaces = replaces;
	request->requested_at = GetCurrentTimestamp();
	strcpy(request->path, election->path);
	compose_data(entry->data, sizeof(entry->data));
	memset(&entry->status, 0, sizeof(entry->status)); /* the state is FREE, and stays so */
	entry->status.on_loss = LOSS_ABORT;
	return index;
}

/* What the entry tells now; "blocker" points into it. */
Standing
candidacy_entry_look(const Candidacy *candidacy)
{
	ContenderEntry *entry = entry_at(candidacy->entry);
	Standing		standing;

	SpinLockAcquire(&entry->mutex);
	standing.state = entry->status.state;
	standing.failure = entry->status.failure;
	standing.code = entry->status.error_code;
	standing.loss = entry->status.loss;
	standing.token = entry->status.token;
	standing.check_done = entry->status.check_done;
	SpinLockRelease(&entry->mutex);
	standing.position = entry->node.position;
	standing.blocker = entry->node.blocked_by_node;
	return standing;
}
