/*
 * zklock.h
 *		Settings, and what else all files share.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZKLOCK_H
#define ZKLOCK_ZKLOCK_H

typedef enum ZklockAcl
{
	ZKLOCK_ACL_OPEN,   /* anyone may do anything with our nodes */
	ZKLOCK_ACL_CREATOR /* only who has the same credentials */
} ZklockAcl;

/* Settings; zklock.c describes them. */
extern int	 zklock_acl;
extern char *zklock_allowed_paths;
extern char *zklock_auth_file;
extern int	 zklock_commit_guard;
extern int	 zklock_dialect;
extern int	 zklock_max_locks;
extern int	 zklock_max_locks_per_session;
extern int	 zklock_on_lock_loss;
extern int	 zklock_parent_nodes;
extern char *zklock_path_dialects;
extern char *zklock_server_name;
extern char *zklock_servers;
extern int	 zklock_session_timeout;
extern int	 zklock_tick_time;

extern void zklock_require_preload(void);

#endif /* ZKLOCK_ZKLOCK_H */
