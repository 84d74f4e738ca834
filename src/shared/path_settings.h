/*
 * path_settings.h
 *		What settings say of paths: which may be locked, in which dialect, and at
 *		which of them this server stands for election.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_PATH_SETTINGS_H
#define ZKLOCK_PATH_SETTINGS_H

#include "recipes/recipe.h"
#include "shared/path_list.h"
#include "utils/guc.h"

#define ELECTIONS_LIMIT 64 /* at which one server stands */

typedef struct ElectionItem
{
	char		   path[ZKLOCK_MAX_PATH + 1]; /* UTF-8 */
	ElectionFamily family;
} ElectionItem;

/* Check hooks */
extern bool path_settings_check_allowed(char **newval, void **extra, GucSource source);
extern bool path_settings_check_dialects(char **newval, void **extra, GucSource source);
extern bool path_settings_check_elections(char **newval, void **extra, GucSource source);

extern bool		   path_is_allowed(const char *path);
extern NodeDialect dialect_of_path(const char *path);
extern void		   election_list_begin(PathListReader *reader);
extern bool		   election_list_next(PathListReader *reader, ElectionItem *item);

#endif /* ZKLOCK_PATH_SETTINGS_H */
