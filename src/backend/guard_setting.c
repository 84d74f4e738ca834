/*
 * guard_setting.c
 *		Who may set zklock.commit_guard.
 *
 * The setting protects a session's work from its own loss of locks, and others
 * from that work.  So anyone may make it stricter, but only superusers, and
 * roles with the privilege to set it, may make it laxer than what they gave.
 * PostgreSQL has no such kind of setting.  To PostgreSQL, anyone may set this
 * one; the rest is here:
 *
 *	in a session		a value must not be laxer than the one that RESET brings
 *						back, which is what the administrator gave
 *	connection options	come before what was given for the role and database, so
 *						only the strictest value is sure not to be laxer
 *	for roles and databases
 *						ALTER ROLE and ALTER DATABASE treat the setting as one
 *						for superusers
 *
 * Runs in: all processes.  Changes only what is private to them.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "backend/guard_setting.h"
#include "compat.h"
#include "shared/settings.h"
#include "tcop/utility.h"
#include "utils/acl.h"

const struct config_enum_entry guard_setting_options[] = {{"lease", COMMIT_GUARD_LEASE, false},
														  {"quorum", COMMIT_GUARD_QUORUM, false},
														  {"off", COMMIT_GUARD_OFF, false},
														  {NULL, 0, false}};

static ProcessUtility_hook_type prev_ProcessUtility_hook = NULL;

/* The laxest value that anyone may set. */
static CommitGuard
floor_for_anyone(GucSource source, const char *given)
{
	if (source == PGC_S_CLIENT)
		return COMMIT_GUARD_QUORUM;
	for (const struct config_enum_entry *option = guard_setting_options; option->name; option++)
	{
		if (strcmp(option->name, given) == 0)
			return option->val;
	}
	return COMMIT_GUARD_QUORUM;
}

/*
 * The check of a new value.  What comes from files, roles and databases is the
 * administrator's; a parallel worker takes over what its leader has.
 */
bool
guard_setting_check(int *newval, void **extra, GucSource source)
{
	const char *given;

	if ((source != PGC_S_CLIENT && source != PGC_S_TEST && source != PGC_S_SESSION) ||
		IsParallelWorker())
		return true;
	given = GetConfigOptionResetString(GUARD_SETTING);
	if (*newval >= (int) floor_for_anyone(source, given) ||
		(IsTransactionState() && pg_parameter_aclcheck(GUARD_SETTING, GetUserId(), ACL_SET) == ACLCHECK_OK))
		return true;
	GUC_check_errcode(ERRCODE_INSUFFICIENT_PRIVILEGE);
	GUC_check_errmsg("permission denied to set parameter \"%s\" to a laxer value", GUARD_SETTING);
	if (source == PGC_S_CLIENT)
		GUC_check_errdetail(
			"In connection options only superusers can set it to another value than \"quorum\".");
	else
		GUC_check_errdetail("Only superusers can make it laxer than the session's default, \"%s\".",
							given);
	return false;
}

/* What runs a statement but for us. */
static void
process_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	if (prev_ProcessUtility_hook)
		prev_ProcessUtility_hook(pstmt, queryString, readOnlyTree, context, params, queryEnv,
								 dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
}

/*
 * Has ALTER ROLE and ALTER DATABASE treat the setting as one that only superusers
 * set, by saying so in the setting's own record while they run.
 *
 * A check of values would not do: none is made for RESET and RESET ALL, with
 * which a role could remove what it was given.  To look for these in the
 * statement would mean to do again what PostgreSQL does: find out whether the
 * role has the setting, keep it in a RESET ALL which removes others, and know of
 * privileges that are granted for parameters.  PostgreSQL does all that right for
 * a setting with this context.  The record is private to the process, nothing
 * else is set meanwhile, and if something were, the context is stricter than the
 * usual one.
 */
static void
utility_hook(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			 ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv,
			 DestReceiver *dest, QueryCompletion *qc)
{
	struct config_generic *setting;
	GucContext			   usual;

	if (!IsA(pstmt->utilityStmt, AlterRoleSetStmt) && !IsA(pstmt->utilityStmt, AlterDatabaseSetStmt))
	{
		process_utility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
		return;
	}
	setting = compat_find_setting(GUARD_SETTING);
	usual = setting->context;
	setting->context = PGC_SUSET;
	PG_TRY();
	{
		process_utility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	}
	PG_FINALLY();
	{
		setting->context = usual;
	}
	PG_END_TRY();
}

/* Called in the postmaster while it loads libraries. */
void
guard_setting_install_hooks(void)
{
	prev_ProcessUtility_hook = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
}
