/*-------------------------------------------------------------------------
 *
 * test_zk_answer.c
 *	  Unit tests of zk_answer.c: which answers of a server make sense.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "unit.h"
#include "zk/zk_client.h"

#define SESSION (-7)

/* The last transaction of leader epoch 524,287 */
#define LAST_CZXID ((524287LL << 32) + 0xffffffffLL)

/* An answer with such a code to whatever call */
static const char *
code_fault(int code)
{
	return zk_answer_fault(&(ZkCall){.kind = ZK_SYNC, .path = "/"}, &(ZkReply){.code = code}, SESSION);
}

static void
test_code(void)
{
	ok(!code_fault(0), "success");
	ok(!code_fault(-4), "an error of the library");
	ok(!code_fault(-127), "an error of a server");
	ok(!code_fault(-140), "an error of a release to come");
	ok(code_fault(1), "a positive code");
	ok(code_fault(INT32_MIN), "a code that is out of range");
}

/* An answer with that path to the create of a node */
static const char *
path_fault(const char *path, const char *asked, ZkNodeKind kind)
{
	return zk_answer_fault(&(ZkCall){.kind = ZK_CREATE, .path = asked, .node_kind = kind},
						   &(ZkReply){.path = path, .stat = {5, 5, .ephemeral_owner = SESSION}},
						   SESSION);
}

/* ... or to a call that appends an element */
static const char *
append_fault(const char *path, const char *asked)
{
	return zk_answer_fault(&(ZkCall){.kind = ZK_APPEND, .path = asked},
						   &(ZkReply){.path = path}, SESSION);
}

static void
test_path(void)
{
	ok(!path_fault("/a/b", "/a/b", ZK_CONTAINER), "a node");
	ok(path_fault(NULL, "/a/b", ZK_CONTAINER), "no path");
	ok(path_fault("", "/a/b", ZK_CONTAINER), "an empty path");
	ok(path_fault("/a/b0", "/a/b", ZK_CONTAINER), "a longer path");
	ok(path_fault("/a/", "/a/b", ZK_CONTAINER), "a shorter path");
	ok(path_fault("/a/c", "/a/b", ZK_CONTAINER), "another path");
	ok(!path_fault("/a/x-0000000000", "/a/x-", ZK_EPHEMERAL_SEQUENTIAL), "a numbered node");
	ok(!path_fault("/a/x-2147483647", "/a/x-", ZK_EPHEMERAL_SEQUENTIAL), "the last number");
	ok(!path_fault("/a/x--2147483648", "/a/x-", ZK_EPHEMERAL_SEQUENTIAL), "the first negative number");
	ok(!path_fault("/a/x--000000001", "/a/x-", ZK_EPHEMERAL_SEQUENTIAL), "the last negative number");
	ok(path_fault(NULL, "/a/x-", ZK_EPHEMERAL_SEQUENTIAL), "numbered, without a path");
	ok(path_fault("/a/x-", "/a/x-", ZK_EPHEMERAL_SEQUENTIAL), "without a number");
	ok(path_fault("/a/x-000000001", "/a/x-", ZK_EPHEMERAL_SEQUENTIAL), "nine digits");
	ok(path_fault("/a/x-00000000001", "/a/x-", ZK_EPHEMERAL_SEQUENTIAL), "eleven digits");
	ok(path_fault("/a/x-9999999999", "/a/x-", ZK_EPHEMERAL_SEQUENTIAL), "a number of more than 32 bits");
	ok(path_fault("/a/x-000000000/", "/a/x-", ZK_EPHEMERAL_SEQUENTIAL), "a slash among the digits");
	ok(path_fault("/a/x-----------", "/a/x-", ZK_EPHEMERAL_SEQUENTIAL), "signs alone");
	ok(path_fault("/a/y-0000000000", "/a/x-", ZK_EPHEMERAL_SEQUENTIAL), "another name, numbered");
	ok(!path_fault("/a/b", "/a/b", ZK_EPHEMERAL), "an ephemeral node");
	ok(path_fault("/a/b0000000000", "/a/b", ZK_EPHEMERAL), "an ephemeral node, numbered");
	ok(!append_fault("/a/qn-0000000000", "/a/qn-"), "an element");
	ok(append_fault("/a/qn-", "/a/qn-"), "an element without a number");
}

/* An answer with such a history to a call of a kind */
static const char *
stat_fault(ZkOperation kind, int64_t czxid, int64_t mzxid)
{
	return zk_answer_fault(&(ZkCall){.kind = kind, .path = "/a", .node_kind = ZK_CONTAINER},
						   &(ZkReply){.path = "/a", .stat = {.czxid = czxid, .mzxid = mzxid}},
						   SESSION);
}

/* The answer to the create of a node, which belongs to such a session */
static const char *
owner_fault(ZkNodeKind kind, int64_t owner)
{
	return zk_answer_fault(&(ZkCall){.kind = ZK_CREATE, .path = "/a", .node_kind = kind},
						   &(ZkReply){.path = kind == ZK_EPHEMERAL_SEQUENTIAL ? "/a0000000001" : "/a",
									  .stat = {5, 5, .ephemeral_owner = owner}},
						   SESSION);
}

/* A session like this for a client that knows none */
static const char *
session_fault(int64_t id, int timeout)
{
	return zk_answer_session_fault(&(ZkSession){.id = id, .negotiated_timeout = timeout},
								   &(ZkClientConfig){.session_id = 0});
}

/* One that has a password for a client that knows the session by another */
static const char *
password_fault(const char *offered, const char *known)
{
	ZkSession	   session = {.id = SESSION, .negotiated_timeout = 4000};
	ZkClientConfig config = {.session_id = SESSION};

	memcpy(session.password, offered, sizeof(session.password));
	memcpy(config.session_password, known, sizeof(config.session_password));
	return zk_answer_session_fault(&session, &config);
}

static void
test_stat(void)
{
	const ZkOperation kinds[] = {ZK_SET_DATA, ZK_EXISTS, ZK_GET_DATA, ZK_GET_CHILDREN};

	for (int i = 0; i < 4; i++)
	{
		ok(!stat_fault(kinds[i], 5, 5), "a node as created");
		ok(!stat_fault(kinds[i], 5, 9), "a node changed since");
		ok(!stat_fault(kinds[i], 0, 0), "a node that every server has");
		ok(stat_fault(kinds[i], -1, 9), "created before all");
		ok(stat_fault(kinds[i], 9, 5), "changed before created");
		ok(!stat_fault(kinds[i], LAST_CZXID, LAST_CZXID + 1), "the last that a token can have");
		ok(stat_fault(kinds[i], LAST_CZXID + 1, LAST_CZXID + 1),
		   "one of which the token would be negative");
		ok(stat_fault(kinds[i], INT64_MAX, INT64_MAX), "the last of all");
	}
	ok(!stat_fault(ZK_CREATE, 5, 5), "a new node");
	ok(stat_fault(ZK_CREATE, 5, 9), "new and changed");
	ok(stat_fault(ZK_CREATE, 0, 0), "new and without a number");
	ok(!stat_fault(ZK_CREATE, LAST_CZXID, LAST_CZXID), "new, the last that a token can have");
	ok(stat_fault(ZK_CREATE, LAST_CZXID + 1, LAST_CZXID + 1), "new, and its token would be negative");
	ok(!owner_fault(ZK_EPHEMERAL, SESSION), "our node");
	ok(!owner_fault(ZK_EPHEMERAL_SEQUENTIAL, SESSION), "our node, numbered");
	ok(owner_fault(ZK_EPHEMERAL, 7), "another's node");
	ok(owner_fault(ZK_EPHEMERAL_SEQUENTIAL, 7), "another's node, numbered");
	ok(!owner_fault(ZK_CONTAINER, 0), "nobody's node");
	ok(!session_fault(-7, 4000), "a session");
	ok(session_fault(0, 4000), "a session without an id");
	ok(session_fault(7, 0), "a session without a timeout");
	ok(!session_fault(7, 3600 * 1000), "a session of an hour");
	ok(session_fault(7, INT32_MAX), "a session of weeks");
	ok(!password_fault("0123456789\0abcde", "0123456789\0abcde"), "the session's password");
	ok(password_fault("0123456789\0abcdX", "0123456789\0abcde"), "another password");
}

static void
test_children(void)
{
	char *good[] = {"lock-0000000001", "..a", "\xc3\xa4", "sub"};

	ok(!zk_answer_children_fault(NULL, 0), "no children");
	ok(!zk_answer_children_fault(good, 4), "children");
	ok(zk_answer_children_fault(NULL, 5), "announced and not there");
	ok(zk_answer_children_fault(good, -1), "a negative number of children");
	ok(zk_answer_children_fault((char *[]){"a", NULL}, 2), "one too few");
	ok(zk_answer_children_fault((char *[]){""}, 1), "an empty name");
	ok(zk_answer_children_fault((char *[]){"a/b"}, 1), "a name with a slash");
	ok(zk_answer_children_fault((char *[]){"."}, 1), "a dot");
	ok(zk_answer_children_fault((char *[]){".."}, 1), "two dots");
	ok(zk_answer_children_fault((char *[]){"a\xff"}, 1), "a name that is not UTF-8");
}

static void
test_event(void)
{
	ok(!zk_answer_event_fault("/"), "the root");
	ok(!zk_answer_event_fault("/a/b"), "a path");
	ok(zk_answer_event_fault(NULL), "an event without a path");
	ok(zk_answer_event_fault(""), "an event with an empty path");
	ok(zk_answer_event_fault("a/b"), "an event with half a path");
}

int
main(void)
{
	test_code();
	test_path();
	test_stat();
	test_children();
	test_event();
	return done_testing();
}
