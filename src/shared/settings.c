/*
 * settings.c
 *		The settings of zklock, as every process reads them.
 *
 * zklock.c defines them; PostgreSQL alone writes the variables.
 *
 * Some are lists of paths, with a word for each item or without: which paths may be locked,
 * in which dialect, and at which of them this server stands for election.  They are checked
 * when they are set, and parsed anew each time: they are short, and cannot get out of step
 * with what SHOW shows.
 *
 * Runs in: any process; each has its own variables.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/parallel.h"
#include "fault.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "shared/entry.h"
#include "shared/settings.h"

#define HOST_SIZE 100 /* this length always fits into the data of a node */
#define SHOWN_MAX 128 /* bytes of a text that messages show */

int	  zklock_acl = ZKLOCK_ACL_OPEN;
char *zklock_advisory_path = NULL;
char *zklock_allowed_paths = NULL;
char *zklock_auth_file = NULL;
int	  zklock_commit_guard = COMMIT_GUARD_LEASE;
char *zklock_elections = NULL;
int	  zklock_keep_idle = 100;
int	  zklock_max_hold_time = 0;
int	  zklock_max_kept_locks = 1024;
int	  zklock_max_locks = -1;
int	  zklock_max_locks_per_session = -1;
int	  zklock_on_lock_loss = LOSS_ABORT;
int	  zklock_parent_nodes = PARENTS_CONTAINER;
char *zklock_path_dialects = NULL;
char *zklock_server_name = NULL;
char *zklock_servers = NULL;
bool  zklock_session_locks = true;
int	  zklock_session_timeout = 10000;
int	  zklock_tick_time = 2000;
char *zklock_tls_ca_file = NULL;
char *zklock_tls_cert_file = NULL;
char *zklock_tls_key_file = NULL;

#ifdef ZKLOCK_FAULTS
char *zklock_faults = NULL;
#endif

/* Returns the name of this host, "" if it has none; each process asks the system for it once. */
const char *
zklock_host_name(void)
{
	static char host[HOST_SIZE];

	if (host[0] == '\0' && gethostname(host, sizeof(host) - 1) != 0)
		host[0] = '\0';
	return host;
}

/*
 * Returns the name of this server: zklock.server_name, or else cluster_name, or else host
 * and port; in the encoding of the settings, palloc'd, and empty if there is none of these.
 */
char *
zklock_own_name(void)
{
	const char *host;

	if (zklock_server_name[0] != '\0')
		return pstrdup(zklock_server_name);
	if (cluster_name[0] != '\0')
		return pstrdup(cluster_name);
	host = zklock_host_name();
	return host[0] == '\0' ? pstrdup("") : psprintf("%s:%d", host, PostPortNumber);
}

/* ------------------------------------------------------------------------
 * Lists of paths
 * ------------------------------------------------------------------------
 */

/* Returns the rule of a particular list that an item breaks, or NULL. */
typedef const char *(*ItemRule)(const char *list, const PathListItem *item);

/*
 * Finds the word behind an item's path among some words, which end with a NULL; without a word
 * it is the first of these.  Returns false if it is none of them.
 */
static bool
item_word(const PathListItem *item, const char *const *words, int *which)
{
	*which = 0;
	if (item->value == NULL)
		return true;
	for (; words[*which]; (*which)++)
	{
		if (strlen(words[*which]) == item->value_len &&
			pg_strncasecmp(words[*which], item->value, item->value_len) == 0)
			return true;
	}
	return false;
}

/*
 * Returns a text as messages show it, clipped if it is long.  It is in the server's
 * encoding.
 */
char *
zklock_shown(const char *text, size_t len)
{
	int shown = pg_mbcliplen(text, len, SHOWN_MAX);

	return psprintf("%.*s%s", shown, text, shown < (int) len ? "..." : "");
}

/*
 * Returns true if each item of a list is valid; otherwise sets the detail and hint of the
 * error.
 */
static bool
check_items(const char *list, PathListSyntax syntax, ItemRule rule, const char *hint)
{
	PathListReader reader = {.syntax = syntax, .rest = list};
	PathListItem   item;

	while (path_list_next(&reader, &item))
	{
		const char *fault = item.fault;

		if (fault == NULL && rule)
			fault = rule(list, &item);
		if (fault == NULL)
			continue;
		GUC_check_errdetail("Item \"%s\" is not valid. %s",
							zklock_shown(item.text, item.text_len), fault);
		GUC_check_errhint("%s", hint);
		return false;
	}
	return true;
}

/* ------------------------------------------------------------------------
 * zklock.allowed_paths
 * ------------------------------------------------------------------------
 */

#define ALLOWED_HINT \
	"Items are paths, or \"/prefix/*\" for all paths below /prefix, with commas between them."

/*
 * Refuses a list that is not valid, but not while the library is loaded or a session
 * begins: PostgreSQL would ignore the value then, and so all paths would be allowed.  It
 * may have been stored while the library was not loaded, or for an older version.  So it is
 * accepted, and its items that are not valid allow nothing.
 */
bool
path_settings_check_allowed(char **newval, void **extra, GucSource source)
{
	PathListReader reader = {.syntax = PATH_LIST_PATHS, .rest = *newval};
	PathListItem   item;
	bool stored = process_shared_preload_libraries_in_progress || source == PGC_S_GLOBAL ||
				  source == PGC_S_DATABASE || source == PGC_S_USER || source == PGC_S_DATABASE_USER;

	if (!stored)
		return check_items(*newval, PATH_LIST_PATHS, NULL, ALLOWED_HINT);
	while (!IsParallelWorker() && path_list_next(&reader, &item))
	{
		if (item.fault)
			ereport(WARNING, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							  errmsg("item \"%s\" of \"zklock.allowed_paths\" is not valid and allows no path",
									 zklock_shown(item.text, item.text_len)),
							  errdetail_internal("%s", item.fault), errhint(ALLOWED_HINT)));
	}
	return true;
}

/* ------------------------------------------------------------------------
 * zklock.path_dialects
 * ------------------------------------------------------------------------
 */

static const char *
dialect_fault(const char *list, const PathListItem *item)
{
	int dialect;

	if (item->value == NULL)
		return "A dialect is missing.";
	if (!item_word(item, node_dialect_names, &dialect))
		return "The dialects are curator, curator_rw, kazoo, zookeeper and hive.";
	if (path_list_repeats(list, PATH_LIST_VALUES, item))
		return "Another item is for the same paths.";
	return NULL;
}

bool
path_settings_check_dialects(char **newval, void **extra, GucSource source)
{
	return check_items(*newval, PATH_LIST_VALUES, dialect_fault,
					   "Items are \"path=dialect\" or \"/prefix/*=dialect\", with commas between them.");
}

/*
 * Returns the dialect of a lock's node: that of the most specific item for its path, or
 * Curator's.  Path and setting are in UTF-8.
 */
NodeDialect
dialect_of_path(const char *path)
{
	PathListReader reader = {.syntax = PATH_LIST_VALUES, .rest = zklock_path_dialects};
	PathListItem   item;
	PathListItem   best = {.value = NULL}; /* until an item for the path is found */
	int			   dialect = DIALECT_CURATOR;

	while (path_list_next(&reader, &item))
	{
		/* The path itself is longer than any above it. */
		if (path_list_covers(&item, path) && (best.value == NULL || item.path_len > best.path_len))
			best = item;
	}
	if (best.value)
		(void) item_word(&best, node_dialect_names, &dialect);
	return dialect;
}

/* ------------------------------------------------------------------------
 * zklock.elections
 * ------------------------------------------------------------------------
 */

static const char *
election_fault(const char *list, const PathListItem *item)
{
	PathListReader reader = {.syntax = PATH_LIST_ELECTIONS, .rest = list};
	PathListItem   other;
	int			   family;

	if (item->below)
		return "An election has one path.";
	if (!item_word(item, election_family_names, &family))
		return "What follows the equals sign must be curator_latch, zookeeper or lock.";
	if (path_list_repeats(list, PATH_LIST_ELECTIONS, item))
		return "Another item is for the same path.";
	while (path_list_next(&reader, &other))
	{
		if (item_word(&other, election_family_names, &family) && family == ELECTION_SUPPORT &&
			other.path_len < item->path_len && item->path[other.path_len] == '/' &&
			memcmp(item->path, other.path, other.path_len) == 0)
			return "It lies below an election with names of \"zookeeper\", whose clients bear no other node there.";
	}
	if (item->index >= ELECTIONS_LIMIT)
		return psprintf("A server can stand at %d elections.", ELECTIONS_LIMIT);
	return NULL;
}

bool
path_settings_check_elections(char **newval, void **extra, GucSource source)
{
	return check_items(*newval, PATH_LIST_ELECTIONS, election_fault,
					   "Items are \"path\" or \"path=names\", with \"priority\" and a number behind that or not, and commas between them.");
}

/* Reads the next item of zklock.elections.  Returns false at the end. */
bool
election_list_next(PathListReader *reader, ElectionItem *item)
{
	PathListItem next;
	int			 family;

	if (!path_list_next(reader, &next))
		return false;
	(void) item_word(&next, election_family_names, &family);
	item->family = family;
	item->priority = next.priority;
	snprintf(item->path, sizeof(item->path), "%.*s", (int) next.path_len, next.path);
	return true;
}
