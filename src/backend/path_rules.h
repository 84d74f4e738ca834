/*
 * path_rules.h
 *		What settings say of a path: may it be locked, and in which dialect.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_PATH_RULES_H
#define ZKLOCK_PATH_RULES_H

#include "utils/guc.h"

extern bool path_rules_check_allowed(char **newval, void **extra, GucSource source);
extern bool path_rules_check_dialects(char **newval, void **extra, GucSource source);
extern bool path_rules_allow(const char *path);

#endif /* ZKLOCK_PATH_RULES_H */
