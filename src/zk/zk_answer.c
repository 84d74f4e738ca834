/*
 * zk_answer.c
 *		Checks that the answers of a ZooKeeper server are well-formed.
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

/* The error codes of all releases are from this one to 0. */
#define LOWEST_CODE (-999)

/*
 * A server may impose a longer session timeout than we ask for, but hardly one as long
 * as this, ms.  With a timeout of weeks the library's arithmetic overflows, and it never
 * connects again.
 */
#define LONGEST_TIMEOUT (24 * 60 * 60 * 1000)

/* Returns true if a server could have appended the text to the name of a sequential node. */
static bool
is_sequence(const char *text)
{
	long long value = strtoll(text, NULL, 10);
	char	  written[32];

	snprintf(written, sizeof(written), "%010lld", value);
	return value >= INT32_MIN && value <= INT32_MAX && strcmp(written, text) == 0;
}

/* Checks that the path, which may be NULL, is that of the node that was to be created. */
static const char *
created_path_fault(const char *path, const ZkCall *asked)
{
	bool numbered = asked->kind == ZK_APPEND || asked->node_kind == ZK_EPHEMERAL_SEQUENTIAL ||
					asked->node_kind == ZK_PERSISTENT_SEQUENTIAL;
	size_t len = strlen(asked->path);

	if (path == NULL)
		return "It lacks the path of the new node.";
	if (strncmp(path, asked->path, len) != 0 ||
		!(numbered ? is_sequence(path + len) : path[len] == '\0'))
		return "The path of the new node is not the one that was asked for.";
	return NULL;
}

/* Checks a node's transaction numbers.  The nodes that every server has begin with 0. */
static const char *
stat_fault(const NodeStat *stat)
{
	if (stat->czxid < 0 || stat->czxid >= CZXID_END || stat->mzxid < stat->czxid)
		return "The transaction numbers of the node are impossible.";
	return NULL;
}

/* Checks the Stat of a node that was created a moment ago, in the given session. */
static const char *
new_stat_fault(const NodeStat *stat, ZkNodeKind kind, int64_t session)
{
	bool ephemeral = kind == ZK_EPHEMERAL || kind == ZK_EPHEMERAL_SEQUENTIAL;

	if (stat_fault(stat) || stat->czxid == 0 || stat->mzxid != stat->czxid)
		return "The transaction numbers of the new node are impossible.";
	return ephemeral && stat->ephemeral_owner != session ? "The new node belongs to another session."
														 : NULL;
}

/* Checks the answer to a call that was made in a session. */
const char *
zk_answer_fault(const ZkCall *asked, const ZkReply *answer, int64_t session)
{
	const char *fault = NULL;

	if (answer->code > 0 || answer->code < LOWEST_CODE)
		return "Its error code is not one of ZooKeeper's.";
	if (answer->code != 0)
		return NULL;
	switch (asked->kind)
	{
		case ZK_CREATE:
			fault = created_path_fault(answer->path, asked);
			return fault ? fault : new_stat_fault(&answer->stat, asked->node_kind, session);
		case ZK_APPEND:
			return created_path_fault(answer->path, asked);
		case ZK_SET_DATA:
		case ZK_EXISTS:
		case ZK_GET_DATA:
		case ZK_GET_CHILDREN: /* the children were checked before they were copied */
			return stat_fault(&answer->stat);
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
			break; /* these answers consist of the code */
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
