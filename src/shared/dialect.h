/*
 * dialect.h
 *		In which dialect a path is locked, by zklock.path_dialects and zklock.dialect.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DIALECT_H
#define ZKLOCK_DIALECT_H

#include "recipes/node_name.h"
#include "shared/path_list.h"
#include "utils/guc.h"

extern const struct config_enum_entry dialect_options[];

extern bool		   dialect_of_item(const PathListItem *item, NodeDialect *dialect);
extern NodeDialect dialect_of_path(const char *path);

#endif /* ZKLOCK_DIALECT_H */
