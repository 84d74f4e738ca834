/*
 * path_list.h
 *		Lists of paths in settings.
 *
 * A list consists of items with commas between them.  An item is a path, or "/prefix/" and
 * an asterisk for all paths below /prefix, or a slash and an asterisk for all paths.  In
 * some lists an equals sign and a value follow, and in that of elections a priority.  Blanks
 * around items, paths and values mean nothing.
 *
 * Pure C: depends on recipe.h alone, allocates nothing, keeps no state, runs in any
 * process, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_PATH_LIST_H
#define ZKLOCK_PATH_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef enum PathListSyntax
{
	PATH_LIST_PATHS,	/* an equals sign is part of a path */
	PATH_LIST_VALUES,	/* the last one separates path and value */
	PATH_LIST_ELECTIONS /* the same, and "priority" and a number may follow all that */
} PathListSyntax;

/* All pointers point into the list, and none of the texts ends with a NUL. */
typedef struct PathListItem
{
	int			index; /* number of items before it */
	const char *text;  /* the whole item, for messages */
	size_t		text_len;
	const char *fault; /* the rule that it breaks, as a sentence; NULL if none */
	bool		below; /* it stands for all paths below its own, at any depth */
	const char *path;  /* empty for the root, with "below" */
	size_t		path_len;
	const char *value; /* NULL if there is none */
	size_t		value_len;
	int			priority; /* 0 if there is none */
} PathListItem;

/* Begins with a syntax and the whole list, which must exist as long as it is read */
typedef struct PathListReader
{
	PathListSyntax syntax;
	const char	  *rest;  /* what is left of the list, NULL at its end */
	int			   nread; /* items */
} PathListReader;

extern bool path_list_next(PathListReader *reader, PathListItem *item);
extern bool path_list_covers(const PathListItem *item, const char *path);
extern bool path_list_repeats(const char *list, PathListSyntax syntax, const PathListItem *item);

#endif /* ZKLOCK_PATH_LIST_H */
