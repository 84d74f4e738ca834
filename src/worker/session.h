/*
 * session.h
 *		The ZooKeeper session.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_WORKER_SESSION_H
#define ZKLOCK_WORKER_SESSION_H

#include "shared/session_info.h"
#include "zk/zk_client.h"

/* ------------------------------------------------------------------------
 * session_status.c: its state, for all processes to see
 * ------------------------------------------------------------------------
 */

/* Does the chroot in zklock.servers exist?  If there is none, it does. */
typedef enum ChrootState
{
	CHROOT_EXISTS,
	CHROOT_MISSING
} ChrootState;

extern void session_status_set_state(SessionState state);
extern void session_status_set_error(const char *message);
extern void session_status_set_obstacle(const char *text);
extern void session_status_set_chroot(ChrootState state);
extern void session_status_connected(const SessionInfo *session);
extern void session_status_expired(void);
extern void session_status_forget(void);

extern SessionState session_status_state(void);
extern int64		session_status_id(void);
extern int			session_status_shortest_timeout(void);
extern ChrootState	session_status_chroot(void);
extern uint64		session_status_errors(void);

/* ------------------------------------------------------------------------
 * session_settings.c: what it runs with, and how changed settings are taken up
 * ------------------------------------------------------------------------
 */

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

/* ------------------------------------------------------------------------
 * session_former.c: the one that a server left behind
 * ------------------------------------------------------------------------
 */

/* What is to be done when the former session has been closed. */
typedef enum FormerStep
{
	FORMER_LOOK_NOW,   /* connect to it again, to see whether it is over */
	FORMER_LOOK_LATER, /* likewise, but not at once: it may not have been closed */
	FORMER_FORGOTTEN   /* nothing: it has been tried often enough */
} FormerStep;

/* The file that tells the next server */
extern void session_file_write(int64 id, const char *password);
extern void session_file_remove(void);

/* The end of what it tells of */
extern void		   session_former_find(void);
extern bool		   session_former_exists(void);
extern Credentials session_former_configure(ZkClientConfig *config);
extern FormerStep  session_former_close(void);
extern void		   session_former_is_over(void);
extern void		   session_former_refused(void);

/* ------------------------------------------------------------------------
 * session_life.c: its life
 * ------------------------------------------------------------------------
 */

extern void	 session_life_start(void);
extern void	 session_life_event(ZkSessionEvent event);
extern void	 session_life_move(void);
extern void	 session_life_end(void);
extern void	 session_life_attend(void);
extern int64 session_life_next_wakeup(void);

#endif /* ZKLOCK_WORKER_SESSION_H */
