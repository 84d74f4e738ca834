/*
 * zk_lookup.h
 *		Looking up the names of servers.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_LOOKUP_H
#define ZKLOCK_ZK_LOOKUP_H

#include "zk/connect_string.h"

typedef enum ZkLookup
{
	ZK_LOOKUP_DONE,	 /* there was nothing to look up */
	ZK_LOOKUP_BEGUN, /* EVENT_LOOKED_UP will tell */
	ZK_LOOKUP_FAILED /* no thread could be started */
} ZkLookup;

extern ZkLookup zk_lookup(const ConnectString *servers, uintptr_t number, char *addresses, size_t size);

#endif /* ZKLOCK_ZK_LOOKUP_H */
