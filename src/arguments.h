/*
 * arguments.h
 *		What SQL functions check in their arguments.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ARGUMENTS_H
#define ZKLOCK_ARGUMENTS_H

extern char *check_path(text *arg, bool to_lock);

#endif /* ZKLOCK_ARGUMENTS_H */
