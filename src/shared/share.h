/*
 * share.h
 *		How much of what all sessions share one of them may have.
 *
 * Two things are limited, and used by all sessions of this server: entries in
 * shared memory, of which zklock.max_locks exist, and the bytes of paths that
 * the ZooKeeper session may have in nodes, and in watches.  Of both, a session
 * gets a share, and superusers have a reserve.
 *
 * Pure C: keeps no state, runs in any process, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SHARE_H
#define ZKLOCK_SHARE_H

#include <stddef.h>

#include "recipes/node_name.h"

/*
 * Bytes of paths that the ZooKeeper session may have in watches, and in
 * ephemeral nodes: each must fit in one packet of less than 1 MB (traps 3 and
 * 4).
 */
#define PACKET_BUDGET (900 * 1024)

/* What a node takes of them besides its path and the chroot. */
#define SHARE_NODE_BYTES (ZKLOCK_MAX_NODE_NAME + 5)

/* Of these, superusers alone may have the last ones. */
#define PACKET_RESERVE (PACKET_BUDGET / 16)

/* May a request use what is reserved for superusers? */
typedef enum ShareReserve
{
	RESERVE_CLOSED,
	RESERVE_OPEN
} ShareReserve;

extern int	  share_of_entries(int setting, int max_entries);
extern int	  share_entries_reserved(int max_entries);
extern size_t share_of_bytes(int entries, int max_entries);

#endif /* ZKLOCK_SHARE_H */
