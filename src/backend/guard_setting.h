/*
 * guard_setting.h
 *		Who may set zklock.commit_guard.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_GUARD_SETTING_H
#define ZKLOCK_GUARD_SETTING_H

#include "utils/guc.h"

#define GUARD_SETTING "zklock.commit_guard"

extern const struct config_enum_entry guard_setting_options[];

extern bool guard_setting_check(int *newval, void **extra, GucSource source);
extern void guard_setting_install_hooks(void);

#endif /* ZKLOCK_GUARD_SETTING_H */
