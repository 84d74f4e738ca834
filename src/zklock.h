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
extern int	 zklock_max_locks;
extern char *zklock_server_name;
extern char *zklock_servers;
extern int	 zklock_session_timeout;

extern void zklock_require_preload(void);

#endif /* ZKLOCK_ZKLOCK_H */
