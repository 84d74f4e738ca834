/*
 * settings.h
 *		The settings of zklock, as every process reads them.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SETTINGS_H
#define ZKLOCK_SETTINGS_H

#include "recipes/recipe.h"
#include "shared/common.h"
#include "shared/path_list.h"
#include "utils/guc.h"

/*
 * What is checked of a held lock before a transaction commits, the laxest first;
 * zklock.commit_guard
 */
typedef enum CommitGuard
{
	COMMIT_GUARD_OFF,	/* nothing */
	COMMIT_GUARD_LEASE, /* it is not lost, and the lease holds */
	COMMIT_GUARD_QUORUM /* and a quorum of ZooKeeper has just confirmed its node */
} CommitGuard;

/* zklock.c describes them. */
extern int	 zklock_acl;
extern char *zklock_advisory_path;
extern char *zklock_allowed_paths;
extern char *zklock_auth_file;
extern int	 zklock_commit_guard;
extern char *zklock_elections;
extern int	 zklock_keep_idle;
extern int	 zklock_max_hold_time;
extern int	 zklock_max_kept_locks;
extern int	 zklock_max_locks;
extern int	 zklock_max_locks_per_session;
extern int	 zklock_on_lock_loss;
extern int	 zklock_parent_nodes;
extern char *zklock_path_dialects;
extern char *zklock_server_name;
extern char *zklock_servers;
extern bool	 zklock_session_locks;
extern int	 zklock_session_timeout;
extern int	 zklock_tick_time;
extern char *zklock_tls_ca_file;
extern char *zklock_tls_cert_file;
extern char *zklock_tls_key_file;

/* How long a call that does not wait for others waits for a node that may be kept, ms */
#define KEPT_PATIENCE_MS 20

extern const char *zklock_host_name(void);
extern char		  *zklock_own_name(void);

/* ------------------------------------------------------------------------
 * Lists of paths: which may be locked, in which dialect, and at which of them this server
 * stands for election
 * ------------------------------------------------------------------------
 */

#define ELECTIONS_LIMIT 64 /* at which one server stands */

typedef struct ElectionItem
{
	char		   path[ZKLOCK_MAX_PATH + 1]; /* UTF-8 */
	ElectionFamily family;
	int			   priority; /* 0 unless there is one */
} ElectionItem;

/* Check hooks */
extern bool path_settings_check_allowed(char **newval, void **extra, GucSource source);
extern bool path_settings_check_dialects(char **newval, void **extra, GucSource source);
extern bool path_settings_check_elections(char **newval, void **extra, GucSource source);

extern char		  *zklock_shown(const char *text, size_t len);
extern NodeDialect dialect_of_path(const char *path);
extern bool		   election_list_next(PathListReader *reader, ElectionItem *item);

#endif /* ZKLOCK_SETTINGS_H */
