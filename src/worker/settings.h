/*
 * settings.h
 *		The settings that the session runs with, and how others are taken up.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WORKER_SETTINGS_H
#define ZKLOCK_WORKER_SETTINGS_H

#include "zk/zk_client.h"

/* What changed settings ask of the worker. */
typedef enum SettingsStep
{
	SETTINGS_GO_ON,
	SETTINGS_RESUME, /* go on with the session in another handle */
	SETTINGS_MOVE	 /* end the session, and begin another one */
} SettingsStep;

extern void			settings_start(void);
extern void			settings_changed(void);
extern SettingsStep settings_attend(void);
extern int64		settings_next_wakeup(void);
extern int			settings_session_timeout(void);
extern const char  *settings_chroot(void);
extern bool			settings_have_credentials(void);
extern bool			settings_configure(ZkClientConfig *config, bool show_credentials);

#endif /* ZKLOCK_WORKER_SETTINGS_H */
