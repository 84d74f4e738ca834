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

/* The settings that a worker begins with */
typedef enum SettingsOrigin
{
	SETTINGS_OWN,	   /* those that are set: it is the server's first worker */
	SETTINGS_INHERITED /* those of the worker before it */
} SettingsOrigin;

extern SettingsOrigin session_settings_start(void);
extern void			  session_settings_read(SessionSettings *settings);
extern void			  session_settings_take_up(const SessionSettings *settings);
extern void			  session_settings_take_up_acl(int acl);
extern void			  session_settings_take_up_tick_time(int tick_time_ms);

extern const SessionSettings *session_settings_used(void);
extern const char			 *session_settings_chroot(void);
extern bool					  session_settings_have_credentials(void);
extern bool session_settings_configure(ZkClientConfig *config, Credentials credentials);
extern bool session_settings_configure_tls(ZkClientConfig *config);

extern const char *session_settings_read_credentials(const char *name, ZkClientConfig *config);
extern char *session_settings_load_tls(const SessionSettings *settings, ZkTls set, const char **culprit);

#endif /* ZKLOCK_SESSION_SETTINGS_H */
