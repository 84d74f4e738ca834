/*
 * server_name.h
 *		What this server is called in ZooKeeper.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SERVER_NAME_H
#define ZKLOCK_SERVER_NAME_H

#include "lib/stringinfo.h"

extern void zklock_append_server_name(StringInfo dst);

#endif /* ZKLOCK_SERVER_NAME_H */
