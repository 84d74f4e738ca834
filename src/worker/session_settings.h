/*
 * session_settings.h
 *		The settings that the ZooKeeper session runs with.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SESSION_SETTINGS_H
#define ZKLOCK_SESSION_SETTINGS_H

#include "shared/session_info.h"
#include "zk/zk_session.h"

/* Are the credentials shown to ZooKeeper, if any are set? */
typedef enum Credentials
{
	CREDENTIALS_SHOWN,
	CREDENTIALS_WITHHELD
} Credentials;

/* The step that changed settings ask of the worker */
typedef enum SettingsStep
{
	SETTINGS_STEP_NONE,
	SETTINGS_STEP_RESTART, /* go on with the session in another process */
	SETTINGS_STEP_MOVE	   /* end the session, and begin another one */
} SettingsStep;

extern const SessionSettings *session_settings_used(void);
extern const char			 *session_settings_chroot(void);
extern bool					  session_settings_have_credentials(void);
extern bool session_settings_configure(ZkClientConfig *config, Credentials credentials);

/* Taking up changed ones */
extern void			session_settings_start(void);
extern void			session_settings_reload(void);
extern SettingsStep session_settings_attend(void);
extern int64		session_settings_next_wakeup(void);
extern bool			session_settings_insist(void);

#endif /* ZKLOCK_SESSION_SETTINGS_H */
