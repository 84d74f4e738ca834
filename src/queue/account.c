/*
 * account.c
 *		What each session has of the bytes that all of them share.
 *
 * The paths of all nodes of ours must fit in one packet, and those of all
 * watches in another (share.h).  A node is charged to the session for which it
 * is created, until it is gone, even if other sessions wait behind it by then.
 * Watches are not charged: there are at most two for a node that has a lock,
 * and three for one that waits.
 *
 * Runs in: the worker.  The accounts are private to it; they are made again
 * with the nodes when a new worker takes over.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "queue/account.h"
#include "shared/share.h"

typedef struct Account
{
	int	   pid; /* hash key */
	size_t bytes;
} Account;

static HTAB *accounts = NULL;

/* Prepares the accounts. */
void
account_start(void)
{
	HASHCTL ctl = {.keysize = sizeof(int), .entrysize = sizeof(Account)};

	accounts = hash_create("zklock accounts", 64, &ctl, HASH_ELEM | HASH_BLOBS);
}

/* A node of the session exists from now on, or may. */
void
account_charge(int pid, size_t bytes)
{
	bool	 found;
	Account *account = hash_search(accounts, &pid, HASH_ENTER, &found);

	account->bytes = bytes + (found ? account->bytes : 0);
}

/* It does not exist any more. */
void
account_refund(int pid, size_t bytes)
{
	Account *account = hash_search(accounts, &pid, HASH_FIND, NULL);

	account->bytes -= bytes;
	if (account->bytes == 0)
		hash_search(accounts, &pid, HASH_REMOVE, NULL);
}

/* The bytes that nodes, or watches, may have after a request of this one. */
size_t
account_budget(const ContenderEntry *entry)
{
	return entry->request.reserve == RESERVE_OPEN ? PACKET_BUDGET : PACKET_BUDGET - PACKET_RESERVE;
}

/* Is there room for a node, and its watches?  FAILURE_NONE if so. */
ContenderFailure
account_check(const ContenderEntry *entry, size_t bytes)
{
	const Account *account = hash_search(accounts, &entry->request.pid, HASH_FIND, NULL);

	if (bytes + (account ? account->bytes : 0) > share_of_bytes(entry->request.share, entries_max()))
		return FAILURE_SHARE_FULL;
	if (engine.node_bytes + bytes > account_budget(entry) ||
		engine.watch_bytes + 3 * bytes > account_budget(entry))
		return FAILURE_SESSION_FULL;
	return FAILURE_NONE;
}
