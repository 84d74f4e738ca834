/*-------------------------------------------------------------------------
 *
 * test_zk_answer.c
 *	  Unit tests of zk_answer.c: which answers of a server make sense.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"
#include "zk/zk_answer.h"

#define SAME ANSWER_PATH_SAME
#define NUMBERED ANSWER_PATH_NUMBERED

static void
test_code(void)
{
	ok(!zk_answer_code_fault(0), "success");
	ok(!zk_answer_code_fault(-4), "an error of the library");
	ok(!zk_answer_code_fault(-127), "an error of a server");
	ok(!zk_answer_code_fault(-140), "an error of a release to come");
	ok(zk_answer_code_fault(1), "a positive code");
	ok(zk_answer_code_fault(INT32_MIN), "a code that is out of range");
}

static void
test_path(void)
{
	ok(!zk_answer_path_fault("/a/b", "/a/b", SAME), "a node");
	ok(zk_answer_path_fault(NULL, "/a/b", SAME), "no path");
	ok(zk_answer_path_fault("", "/a/b", SAME), "an empty path");
	ok(zk_answer_path_fault("/a/b0", "/a/b", SAME), "a longer path");
	ok(zk_answer_path_fault("/a/", "/a/b", SAME), "a shorter path");
	ok(zk_answer_path_fault("/a/c", "/a/b", SAME), "another path");
	ok(!zk_answer_path_fault("/a/x-0000000000", "/a/x-", NUMBERED), "a numbered node");
	ok(!zk_answer_path_fault("/a/x-2147483647", "/a/x-", NUMBERED), "the last number");
	ok(!zk_answer_path_fault("/a/x--2147483648", "/a/x-", NUMBERED), "the first negative number");
	ok(!zk_answer_path_fault("/a/x--000000001", "/a/x-", NUMBERED), "the last negative number");
	ok(zk_answer_path_fault(NULL, "/a/x-", NUMBERED), "numbered, without a path");
	ok(zk_answer_path_fault("/a/x-", "/a/x-", NUMBERED), "without a number");
	ok(zk_answer_path_fault("/a/x-000000001", "/a/x-", NUMBERED), "nine digits");
	ok(zk_answer_path_fault("/a/x-00000000001", "/a/x-", NUMBERED), "eleven digits");
	ok(zk_answer_path_fault("/a/x-9999999999", "/a/x-", NUMBERED), "a number of more than 32 bits");
	ok(zk_answer_path_fault("/a/x-000000000/", "/a/x-", NUMBERED), "a slash among the digits");
	ok(zk_answer_path_fault("/a/x-----------", "/a/x-", NUMBERED), "signs alone");
	ok(zk_answer_path_fault("/a/y-0000000000", "/a/x-", NUMBERED), "another name, numbered");
}

static void
test_stat(void)
{
	ok(!zk_answer_stat_fault(5, 5), "a node as created");
	ok(!zk_answer_stat_fault(5, 9), "a node changed since");
	ok(!zk_answer_stat_fault(0, 0), "a node that every server has");
	ok(zk_answer_stat_fault(-1, 9), "created before all");
	ok(zk_answer_stat_fault(9, 5), "changed before created");
	ok(!zk_answer_new_stat_fault(5, 5), "a new node");
	ok(zk_answer_new_stat_fault(5, 9), "new and changed");
	ok(zk_answer_new_stat_fault(0, 0), "new and without a number");
	ok(!zk_answer_owner_fault(-7, -7), "our node");
	ok(zk_answer_owner_fault(7, -7), "another's node");
	ok(!zk_answer_session_fault(-7, 4000), "a session");
	ok(zk_answer_session_fault(0, 4000), "a session without an id");
	ok(zk_answer_session_fault(7, 0), "a session without a timeout");
	ok(!zk_answer_session_fault(7, 3600 * 1000), "a session of an hour");
	ok(zk_answer_session_fault(7, INT32_MAX), "a session of weeks");
	ok(!zk_answer_password_fault("0123456789\0abcde", "0123456789\0abcde"), "the session's password");
	ok(zk_answer_password_fault("0123456789\0abcdX", "0123456789\0abcde"), "another password");
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
