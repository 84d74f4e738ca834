/*
 * zk_answer.c
 *		What the answers of a ZooKeeper server mean: its error codes, and whether an answer is
 *		well-formed.
 *
 * The client library does not check the results of its own decoding (trap 13): if a list
 * announces five children and ends there, the library passes on five null pointers.  So
 * this file checks each field that we use before other code relies on it.  A check accepts
 * whatever a server of any release can send, and returns NULL then, else the fault as a
 * sentence.  What it does not accept comes from a server with a defect, from a machine in
 * between that changes what it should forward, or from something that is not a ZooKeeper
 * server.
 *
 * The checks cannot recognize a well-formed lie, and the library does not survive every
 * malformed answer: see "malformed answers" in doc/internals.md.
 *
 * The numbers of the error codes are part of ZooKeeper's protocol.  Not every release of the
 * client library has all of them.
 *
 * Pure C: allocates nothing, keeps no state, holds no lock.
 *
 * Runs in: any process, any thread.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "zk/zk_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/common.h"

/* ------------------------------------------------------------------------
 * Error codes
 * ------------------------------------------------------------------------
 */

static const struct
{
	int			code;
	const char *name;
	CallOutcome outcome;
} error_codes[] = {
	{0, "ZOK", CALL_OK},
	{-1, "ZSYSTEMERROR", CALL_REFUSED},
	{-2, "ZRUNTIMEINCONSISTENCY", CALL_UNKNOWN}, /* the library has given up the connection */
	{-3, "ZDATAINCONSISTENCY", CALL_REFUSED},
	{ZK_CONNECTION_LOSS, "ZCONNECTIONLOSS", CALL_UNKNOWN},
	{-5, "ZMARSHALLINGERROR", CALL_REFUSED},
	{ZK_UNIMPLEMENTED, "ZUNIMPLEMENTED", CALL_REFUSED},
	{-7, "ZOPERATIONTIMEOUT", CALL_UNKNOWN},
	{-8, "ZBADARGUMENTS", CALL_REFUSED},
	{-9, "ZINVALIDSTATE", CALL_UNKNOWN},
	{ZK_API_ERROR, "ZAPIERROR", CALL_REFUSED},
	{-101, "ZNONODE", CALL_NO_NODE},
	{ZK_NO_AUTH, "ZNOAUTH", CALL_REFUSED},
	{ZK_BAD_VERSION, "ZBADVERSION", CALL_REFUSED},
	{-108, "ZNOCHILDRENFOREPHEMERALS", CALL_NO_CHILDREN},
	{-110, "ZNODEEXISTS", CALL_NODE_EXISTS},
	{ZK_NOT_EMPTY, "ZNOTEMPTY", CALL_REFUSED},
	{ZK_EXPIRED, "ZSESSIONEXPIRED", CALL_UNKNOWN},
	{-113, "ZINVALIDCALLBACK", CALL_REFUSED},
	{ZK_INVALID_ACL, "ZINVALIDACL", CALL_REFUSED},
	{ZK_AUTH_FAILED, "ZAUTHFAILED", CALL_REFUSED},
	{ZK_CLOSING, "ZCLOSING", CALL_UNKNOWN},
	{-117, "ZNOTHING", CALL_REFUSED},
	{-118, "ZSESSIONMOVED", CALL_UNKNOWN},
	{-119, "ZNOTREADONLY", CALL_REFUSED},
	{ZK_LOCAL_SESSION, "ZEPHEMERALONLOCALSESSION", CALL_REFUSED},
	{ZK_NO_WATCHER, "ZNOWATCHER", CALL_REFUSED},
	{ZK_REQUIRES_AUTH, "ZSESSIONCLOSEDREQUIRESASLAUTH", CALL_REFUSED},
	{ZK_QUOTA_EXCEEDED, "ZQUOTAEXCEEDED", CALL_REFUSED},
	{ZK_THROTTLED, "ZTHROTTLEDOP", CALL_REFUSED},
};

/* Returns what a code means. */
ZkError
zk_error(int code)
{
	static char unknown[32];

	ZkError error = {.name = unknown, .outcome = CALL_REFUSED};
	int		i = 0;

	while (i < (int) (sizeof(error_codes) / sizeof(error_codes[0])) && error_codes[i].code != code)
		i++;
	if (i < (int) (sizeof(error_codes) / sizeof(error_codes[0])))
	{
		error.name = error_codes[i].name;
		error.outcome = error_codes[i].outcome;
	}
	else
		snprintf(unknown, sizeof(unknown), "error %d", code);
	error.lacks_permission = code == ZK_NO_AUTH || code == ZK_AUTH_FAILED ||
							 code == ZK_INVALID_ACL || code == ZK_REQUIRES_AUTH;

	/* The codes below ZK_API_ERROR are refusals. */
	error.is_breakdown = code > ZK_API_ERROR && code != ZK_UNIMPLEMENTED;
	return error;
}

/* ------------------------------------------------------------------------
 * Well-formed answers
 * ------------------------------------------------------------------------
 */

/* The error codes of all releases are from this one to 0. */
#define LOWEST_CODE (-999)

/*
 * A server may impose a longer session timeout than we ask for, but hardly one as long
 * as this, ms.  With a timeout of weeks the library's arithmetic overflows, and it never
 * connects again.
 */
#define LONGEST_TIMEOUT (24 * 60 * 60 * 1000)

/* Checks the answer to a call that was made in a session. */
const char *
zk_answer_fault(const ZkCall *asked, const ZkReply *answer, int64_t session)
{
	const NodeStat *stat = &answer->stat;
	bool sequential = asked->kind == ZK_APPEND || asked->node_kind == ZK_EPHEMERAL_SEQUENTIAL ||
					  asked->node_kind == ZK_PERSISTENT_SEQUENTIAL;
	bool ephemeral = asked->node_kind == ZK_EPHEMERAL || asked->node_kind == ZK_EPHEMERAL_SEQUENTIAL;
	size_t		len = strlen(asked->path);
	const char *behind = NULL; /* the path that was asked for, in the new node's */
	char		written[32] = "";
	long long	number = 0;

	/* The nodes that every server has begin with transaction 0. */
	bool impossible = stat->czxid < 0 || stat->czxid >= CZXID_END || stat->mzxid < stat->czxid;

	if (answer->code > 0 || answer->code < LOWEST_CODE)
		return "Its error code is not one of ZooKeeper's.";
	if (answer->code != 0)
		return NULL;
	switch (asked->kind)
	{
		case ZK_CREATE:
		case ZK_APPEND:
			if (answer->path == NULL)
				return "It lacks the path of the new node.";
			if (strncmp(answer->path, asked->path, len) == 0)
				behind = answer->path + len;
			if (sequential && behind)
			{
				/* What a server appends to the name of a sequential node. */
				number = strtoll(behind, NULL, 10);
				snprintf(written, sizeof(written), "%010lld", number);
			}
			if (behind == NULL || number < INT32_MIN || number > INT32_MAX ||
				strcmp(behind, written) != 0)
				return "The path of the new node is not the one that was asked for.";
			if (asked->kind == ZK_APPEND)
				return NULL;
			if (impossible || stat->czxid == 0 || stat->mzxid != stat->czxid)
				return "The transaction numbers of the new node are impossible.";
			if (ephemeral && stat->ephemeral_owner != session)
				return "The new node belongs to another session.";
			return NULL;
		case ZK_SET_DATA:
		case ZK_EXISTS:
		case ZK_GET_DATA:
		case ZK_GET_CHILDREN: /* the children were checked before they were copied */
			return impossible ? "The transaction numbers of the node are impossible." : NULL;
		case ZK_GET_ACL: /* on_acl() has checked each entry */
		case ZK_REPLACE:
		case ZK_DELETE:
		case ZK_CREATE_RECORD:
		case ZK_CHECK:
		case ZK_SYNC:
		case ZK_UNWATCH_DATA:
		case ZK_UNWATCH_CHILDREN:
		case ZK_REPLACE_RECORD:
		case ZK_REMOVE:
		case ZK_PUBLISH:
		case ZK_PIN:
		case ZK_WATCH_DATA:
		case ZK_REMOTE_WAITS:
			break; /* such an answer consists of its code */
	}
	return NULL;
}

/* Checks the children of a node.  Entries may be NULL. */
const char *
zk_answer_children_fault(char *const *children, int n)
{
	if (n < 0)
		return "The number of children is negative.";
	if (n > 0 && children == NULL)
		return "The children are missing.";
	for (int i = 0; i < n; i++)
	{
		if (children[i] == NULL)
			return "There are fewer children than announced.";
		if (!node_name_is_possible(children[i]))
			return "The name of a child is impossible.";
	}
	return NULL;
}

/* Checks the path of a watch event, which may be NULL. */
const char *
zk_answer_event_fault(const char *path)
{
	return path && path[0] == '/' ? NULL : "A watch event has no path.";
}

/*
 * Checks a session, and that it is the one that was wanted, if any.  A server repeats the
 * password of a session that continues, and the library would show whatever was repeated
 * at its next connection (trap 17).
 */
const char *
zk_answer_session_fault(const ZkSession *offered, const ZkClientConfig *wanted)
{
	if (offered->id == 0)
		return "The session has no id.";
	if (offered->negotiated_timeout <= 0)
		return "The session timeout is not positive.";
	if (offered->negotiated_timeout > LONGEST_TIMEOUT)
		return "The session timeout is longer than a day.";
	if (wanted->session_id != 0 &&
		memcmp(offered->password, wanted->session_password, ZKLOCK_PASSWORD_SIZE) != 0)
		return "The password of the session has changed.";
	return NULL;
}
