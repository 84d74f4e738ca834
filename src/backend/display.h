/*
 * display.h
 *		Text for people: what messages and views say of ZooKeeper, and what nodes say of this
 *		session.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DISPLAY_H
#define ZKLOCK_DISPLAY_H

#include "shared/entry.h"

/* What messages and views say */
extern char		  *display_path(const char *path);
extern char		  *display_utf8(const char *utf8);
extern char		  *display_foreign(const char *text);
extern char		  *display_node_data(const char *data, int len);
extern const char *display_outage(const char *before, const char *after);

/* What the data of a node say of the session for which it stands */
extern char *node_data_compose(NodeDialect dialect, LockScope scope, const char *attempt);
extern char *node_data_unique(uint8 *uuid);

#endif /* ZKLOCK_DISPLAY_H */
