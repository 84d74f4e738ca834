/*
 * zk_answer.c
 *		Does an answer of a ZooKeeper server make sense?
 *
 * The client library decodes answers without looking at what it gets: of a list
 * that announces five children and ends there, it passes on five null pointers.
 * So each field of each answer that we use is checked here before anybody
 * relies on it.  A check accepts whatever a server of any release can send.
 * Anything else comes from a server with a defect, from a machine between that
 * changes what it should forward, or from something that is no ZooKeeper server.
 *
 * A lie in good order cannot be told from the truth.  Nor does the library
 * survive everything: see "malformed answers" in doc/internals.md.
 *
 * Pure C: depends on libc and node_name.h alone, allocates nothing, keeps no
 * state, holds no lock.
 *
 * Runs in: any process, any thread.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "zk/zk_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/node_name.h"
#include "shared/common.h"

/* Error codes of all releases are between these. */
#define LOWEST_CODE (-999)

/*
 * A server may impose a longer session timeout than we ask for, but hardly one
 * like this, ms.  With one of weeks the library's arithmetic overflows, and it
 * never connects again.
 */
#define LONGEST_TIMEOUT (24 * 60 * 60 * 1000)

/* Is it a result, or an error that a server or the library may report? */
const char *
zk_answer_code_fault(int code)
{
	return code <= 0 && code >= LOWEST_CODE ? NULL : "Its error code is not one of ZooKeeper's.";
}

/* Is the text what a server appends to the name of a sequential node? */
static bool
is_sequence(const char *text)
{
	long long value = strtoll(text, NULL, 10);
	char	  written[32];

	snprintf(written, sizeof(written), "%010lld", value);
	return value >= INT32_MIN && value <= INT32_MAX && strcmp(written, text) == 0;
}

/* Is it the path of a node that was asked for?  path may be NULL. */
const char *
zk_answer_path_fault(const char *path, const char *asked, AnswerPathKind kind)
{
	size_t len = strlen(asked);

	if (path == NULL)
		return "It lacks the path of the new node.";
	if (strncmp(path, asked, len) != 0 ||
		!(kind == ANSWER_PATH_NUMBERED ? is_sequence(path + len) : path[len] == '\0'))
		return "The path of the new node is not the one that was asked for.";
	return NULL;
}

/* Can a node have such a history?  Those that every server has begin with 0. */
const char *
zk_answer_stat_fault(int64_t czxid, int64_t mzxid)
{
	if (czxid < 0 || mzxid < czxid)
		return "The transaction numbers of the node are impossible.";
	return NULL;
}

/* Can a node have it that has just been created? */
const char *
zk_answer_new_stat_fault(int64_t czxid, int64_t mzxid)
{
	if (czxid <= 0 || mzxid != czxid)
		return "The transaction numbers of the new node are impossible.";
	return NULL;
}

/* Is an ephemeral node that was created in a session this session's? */
const char *
zk_answer_owner_fault(int64_t ephemeral_owner, int64_t session)
{
	return ephemeral_owner == session ? NULL : "The new node belongs to another session.";
}

/* Can a node have these children?  Entries may be NULL. */
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

/* Is it a path at all?  It may be NULL. */
const char *
zk_answer_event_fault(const char *path)
{
	return path && path[0] == '/' ? NULL : "A watch event has no path.";
}

/* Can a session be like this?  The timeout is in ms. */
const char *
zk_answer_session_fault(int64_t session, int timeout)
{
	if (session == 0)
		return "The session has no id.";
	if (timeout <= 0)
		return "The session timeout is not positive.";
	return timeout <= LONGEST_TIMEOUT ? NULL : "The session timeout is longer than a day.";
}

/*
 * A server repeats the password of a session that is continued.  The library
 * shows next time whatever was repeated.
 */
const char *
zk_answer_password_fault(const char *password, const char *known)
{
	return memcmp(password, known, ZKLOCK_PASSWORD_SIZE) == 0
			   ? NULL
			   : "The password of the session has changed.";
}
