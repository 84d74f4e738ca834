/*
 * common.c
 *		Names of wait events, and what errors and the log say if something could not be had
 *		from ZooKeeper, or was lost.
 *
 * The worker finds the reason of a failure.  Sessions raise the error; for its own
 * candidacies the worker writes to the log.
 *
 * Runs in: any process.  The static variables are private to the process.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <signal.h>

#include "shared/call.h"
#include "shared/common.h"
#include "storage/lock.h"
#include "storage/lwlock.h"

/*
 * Returns the info for WaitLatch() and the like.  May fail on its first call.
 *
 * Since release 17 an extension's wait events have names.  Each process makes them on first
 * use, as that takes a lock, and keeps them.  Before, PostgreSQL's own are used: a session
 * that waits for a lock appears as waiting for a user lock, and all others as
 * PG_WAIT_EXTENSION.
 */
uint32
zklock_wait_event(ZklockWaitEvent event)
{
	static const char *const names[] =
		{[ZKLOCK_WAIT_LOCK] = "ZkLock",		  [ZKLOCK_WAIT_COMMIT_GUARD] = "ZkCommitGuard",
		 [ZKLOCK_WAIT_UNLOCK] = "ZkUnlock",	  [ZKLOCK_WAIT_CALL] = "ZkCall",
		 [ZKLOCK_WAIT_ELEMENT] = "ZkElement", [ZKLOCK_WAIT_WORKER] = "ZkWorkerMain"};
	static uint32 infos[lengthof(names)]; /* 0: not made yet */

	if (infos[event] == 0)
		infos[event] = compat_wait_event(names[event], event == ZKLOCK_WAIT_LOCK
														   ? PG_WAIT_LOCK | LOCKTAG_USERLOCK
														   : PG_WAIT_EXTENSION);
	return infos[event];
}

/* ------------------------------------------------------------------------
 * Failures and losses
 * ------------------------------------------------------------------------
 */

/* A path has one use only; a sentence says which. */
#define OTHER_USE(sentence)                                                                  \
	{                                                                                        \
		.sqlerrcode = ERRCODE_OBJECT_IN_USE,                                                 \
		.message = "ZooKeeper path \"%s\" is in use for something else", .detail = sentence, \
		.hint = "Use another path.",                                                         \
	}

/* By failure */
const FailureText failure_texts[] =
	{[FAILURE_BUSY] = {.sqlerrcode = ERRCODE_LOCK_NOT_AVAILABLE,
					   .message = "cannot use ZooKeeper path \"%s\": it is taken"},
	 [FAILURE_UNREACHABLE] = {.sqlerrcode = ERRCODE_IO_ERROR,
							  .message = "cannot use ZooKeeper path \"%s\": ZooKeeper cannot be reached"},
	 [FAILURE_REFUSED] = {.sqlerrcode = ERRCODE_SYSTEM_ERROR,
						  .message = "cannot use ZooKeeper path \"%s\""},
	 [FAILURE_DENIED] = {.sqlerrcode = ERRCODE_INSUFFICIENT_PRIVILEGE,
						 .message = "cannot use ZooKeeper path \"%s\"",
						 .hint = "Check the ACL of the path and the settings \"zklock.auth_file\" and \"zklock.acl\"."},
	 [FAILURE_NO_MARKER] = {.sqlerrcode = ERRCODE_INSUFFICIENT_PRIVILEGE,
							.message = "cannot use ZooKeeper queue \"%s\"",
							.hint = "Check the ACLs of the queue, of \"/zklock-receipts\" and of \"/zklock-waits\", and the settings \"zklock.auth_file\" and \"zklock.acl\"."},
	 [FAILURE_QUOTA] = {.sqlerrcode = ERRCODE_SYSTEM_ERROR,
						.message = "ZooKeeper path \"%s\" has reached its quota",
						.hint = "Wait until nodes below the path have been deleted, or ask an administrator of ZooKeeper to raise the quota, which may be that of a path above."},
	 [FAILURE_LOCAL_SESSION] = {.sqlerrcode = ERRCODE_SYSTEM_ERROR,
								.message = "cannot use ZooKeeper path \"%s\"",
								.hint = "The ZooKeeper servers may have local sessions: set \"localSessionsUpgradingEnabled\" to true there, or \"localSessionsEnabled\" to false."},
	 [FAILURE_NO_CHILDREN] = {.sqlerrcode = ERRCODE_WRONG_OBJECT_TYPE,
							  .message = "cannot use ZooKeeper path \"%s\": it cannot have children",
							  .detail = "ZooKeeper refused: ZNOCHILDRENFOREPHEMERALS. The path, or one above it, is an ephemeral node."},
	 [FAILURE_NO_CHROOT] = {.sqlerrcode = ERRCODE_SYSTEM_ERROR,
							.message = "cannot use ZooKeeper path \"%s\": the chroot is missing",
							.detail = "ZooKeeper refused: ZNONODE. The chroot in \"zklock.servers\" does not exist.",
							.hint = "Create the chroot node."},
	 [FAILURE_NO_PATH] = {.sqlerrcode = ERRCODE_UNDEFINED_OBJECT,
						  .message = "cannot use ZooKeeper path \"%s\": it does not exist",
						  .detail = "ZooKeeper refused: ZNONODE. Missing nodes are not created, since \"zklock.parent_nodes\" is \"existing\".",
						  .hint = "Ask an administrator to create the path in ZooKeeper."},
	 [FAILURE_TOO_DEEP] = {.sqlerrcode = ERRCODE_PROGRAM_LIMIT_EXCEEDED,
						   .message = "cannot use ZooKeeper path \"%s\": too many levels of it are missing",
						   .detail = "No more than %d nodes are created for a path: its own and those above it.",
						   .limit = ZKLOCK_MAX_LEVELS,
						   .hint = "Use a shorter path, or create the upper levels first."},
	 [FAILURE_HARMFUL] = {.sqlerrcode = ERRCODE_OBJECT_IN_USE,
						  .message = "cannot use ZooKeeper path \"%s\": it lies below a lock or semaphore in use",
						  .detail = "Clients of that lock or semaphore would take the new node for a contender or a permit, for as long as it exists.",
						  .hint = "Use a path that is not below another one."},
	 [FAILURE_SESSION_FULL] = {.sqlerrcode = ERRCODE_OUT_OF_MEMORY,
							   .message = "cannot use ZooKeeper path \"%s\": too many paths are locked",
							   .hint = "Lock fewer paths at a time, or use shorter ones."},
	 [FAILURE_SHARE_FULL] = {.sqlerrcode = ERRCODE_OUT_OF_MEMORY,
							 .message = "cannot use ZooKeeper path \"%s\": too many paths are locked in this session",
							 .hint = "Lock fewer paths at a time, use shorter ones, or ask an administrator to increase \"zklock.max_locks_per_session\"."},
	 [FAILURE_WORN_OUT] =
		 {.sqlerrcode = ERRCODE_PROGRAM_LIMIT_EXCEEDED,
		  .message = "cannot use ZooKeeper path \"%s\": its sequence numbers are used up",
		  .detail = "ZooKeeper numbers the nodes below a path up to 2147483647; beyond that there is no order.",
		  .hint = "When nobody uses the path, delete its node. It is created again when it is used next, and the numbers begin anew."},
	 [FAILURE_IS_LOCK] = OTHER_USE("It, or a node of its semaphore, is used as a lock."),
	 [FAILURE_IS_SEMAPHORE] = OTHER_USE("It is a part of a semaphore."),
	 [FAILURE_IS_ELECTION] = OTHER_USE("It has candidates of an election."),
	 [FAILURE_IS_CLAIMS] = OTHER_USE("It has claims, made with zk_claim()."),
	 [FAILURE_IS_QUEUE] = OTHER_USE("It is a queue, or an element of one."),
	 [FAILURE_CANNOT_COEXIST] = {.sqlerrcode = ERRCODE_OBJECT_IN_USE,
								 .message = "cannot use ZooKeeper path \"%s\": clients of another kind use it",
								 .detail = "The path has nodes of clients which a candidate of this kind would disturb.",
								 .hint = "Check the names that \"zklock.elections\" gives for the path."},
	 [FAILURE_TOO_LONG] = {.sqlerrcode = ERRCODE_PROGRAM_LIMIT_EXCEEDED,
						   .message = "what ZooKeeper tells of \"%s\" is too long",
						   .detail = "An answer can have at most %d bytes.",
						   .limit = CALL_MAX_ANSWER}};

const char *const failure_loss_texts[] =
	{[LOSS_UNPROVED] = "The ZooKeeper session was not proved to be alive for a session timeout.",
	 [LOSS_EXPIRED] = "The ZooKeeper session ended.",
	 [LOSS_DELETED] = "Its node was deleted by someone else.",
	 [LOSS_BROKEN] = "Its node was deleted by zk_break_lock().",
	 [LOSS_OVERRUN] = "It was held for longer than the %d ms that \"zklock.max_hold_time\" allowed."};

/*
 * Adds DETAIL and HINT of a failure, within ereport().
 *
 *	refusal		the name of ZooKeeper's error, or NULL
 */
int
failure_describe(Failure failure, const char *refusal)
{
	const FailureText *text = &failure_texts[failure];

	if (text->detail)
		errdetail(text->detail, text->limit);
	else if (refusal)
		errdetail("ZooKeeper refused: %s.", refusal);
	if (text->hint)
		errhint("%s", text->hint);
	return 0;
}

/*
 * Interrupts the session of a process slot because of a loss, as its policy says.
 *
 * The caller holds ProcArrayLock, and has seen under it that the session has what was lost.
 * A session gives that up before it leaves ProcArray, for which it needs the lock.  So it
 * is still there, and the pid is its own.
 */
void
failure_interrupt(int proc_number, LossPolicy policy)
{
	Assert(LWLockHeldByMe(ProcArrayLock));
	if (policy != LOSS_ABORT)
		(void) kill(GetPGProcByNumber(proc_number)->pid, policy == LOSS_TERMINATE ? SIGTERM : SIGINT);
}
