/*
 * election_list.h
 *		The elections at which this server stands: zklock.elections.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELECTION_LIST_H
#define ZKLOCK_ELECTION_LIST_H

#include "recipes/recipe.h"
#include "shared/path_list.h"
#include "utils/guc.h"

#define ELECTIONS_LIMIT 64 /* at which one server stands */

typedef struct ElectionItem
{
	char		   path[ZKLOCK_MAX_PATH + 1]; /* UTF-8 */
	ElectionFamily family;
} ElectionItem;

extern const char *election_family_name(ElectionFamily family);

extern bool election_list_check(char **newval, void **extra, GucSource source);
extern void election_list_begin(PathListReader *reader);
extern bool election_list_next(PathListReader *reader, ElectionItem *item);

#endif /* ZKLOCK_ELECTION_LIST_H */
