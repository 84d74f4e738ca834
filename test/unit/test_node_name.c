/*-------------------------------------------------------------------------
 *
 * test_node_name.c
 *	  Unit tests of node_name.c: paths, names, dialects.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/recipe.h"
#include "unit.h"

#include <stdlib.h>

#define UUID36 "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
#define HEX32 "3f2504e04f8911d39a0c0305e82c3301"

/* One in that mode, and in the names of that dialect */
#define REQUEST(asked_mode, names) (&(RecipeRequest){.mode = (asked_mode), .dialect = (names)})

/* Array length, for string literals that may hold a NUL. */
#define LITERAL(text) text, sizeof(text) - 1

/* The rules that a path can break */
#define PATH_OK NULL
#define PATH_EMPTY "A path must not be empty."
#define PATH_RELATIVE "A path must start with \"/\"."
#define PATH_ROOT "The root \"/\" cannot be locked."
#define PATH_EMPTY_COMPONENT "A path must not contain \"//\"."
#define PATH_TRAILING_SLASH "A path must not end with \"/\"."
#define PATH_DOT_COMPONENT "A path must not have \".\" or \"..\" as a component."
#define PATH_CONTROL_CHARACTER "A path must not contain control characters."
#define PATH_FORBIDDEN_CHARACTER \
	"A path must not contain characters in the ranges U+D800 to U+F8FF and U+FFF0 to U+FFFF or beyond U+FFFF."
#define PATH_INVALID_UTF8 "A path must be well-formed UTF-8."
#define PATH_RESERVED \
	"The path \"/zookeeper\" and all paths below it are reserved for ZooKeeper."
#define PATH_OWN \
	"The paths \"/zklock-waits\" and \"/zklock-receipts\", and all paths below them, are reserved for zklock."
#define PATH_LOCK_NODE \
	"A path must not have a component that looks like a node of a lock, such as \"lock-0000000001\"."

typedef struct PathCase
{
	const char *path;
	size_t		len;
	const char *fault;
	const char *name;
} PathCase;

static const PathCase path_cases[] = {
	/* the path as a whole */
	{LITERAL(""), PATH_EMPTY, "empty"},
	{LITERAL("jobs"), PATH_RELATIVE, "no leading slash"},
	{LITERAL("jobs/"), PATH_RELATIVE, "relative wins over trailing slash"},
	{LITERAL("\0/a"), PATH_RELATIVE, "leading NUL"},
	{LITERAL(" /a"), PATH_RELATIVE, "leading blank"},
	{LITERAL("/"), PATH_ROOT, "root"},
	{LITERAL("/a"), PATH_OK, "one component"},
	{LITERAL("/a/b/c"), PATH_OK, "three components"},

	/* slashes */
	{LITERAL("//"), PATH_EMPTY_COMPONENT, "two slashes"},
	{LITERAL("//a"), PATH_EMPTY_COMPONENT, "empty first component"},
	{LITERAL("/a//b"), PATH_EMPTY_COMPONENT, "empty inner component"},
	{LITERAL("/a//"), PATH_EMPTY_COMPONENT, "empty component at the end"},
	{LITERAL("/a/"), PATH_TRAILING_SLASH, "trailing slash"},
	{LITERAL("/a/b/"), PATH_TRAILING_SLASH, "trailing slash, two components"},
	{LITERAL("/a\\b"), PATH_OK, "backslash is an ordinary character"},

	/* dots */
	{LITERAL("/."), PATH_DOT_COMPONENT, "dot alone"},
	{LITERAL("/.."), PATH_DOT_COMPONENT, "two dots alone"},
	{LITERAL("/./a"), PATH_DOT_COMPONENT, "dot first"},
	{LITERAL("/../a"), PATH_DOT_COMPONENT, "two dots first"},
	{LITERAL("/a/."), PATH_DOT_COMPONENT, "dot last"},
	{LITERAL("/a/.."), PATH_DOT_COMPONENT, "two dots last"},
	{LITERAL("/a/./b"), PATH_DOT_COMPONENT, "dot inside"},
	{LITERAL("/a/../b"), PATH_DOT_COMPONENT, "two dots inside"},
	{LITERAL("/a/./"), PATH_DOT_COMPONENT, "dot before a trailing slash"},
	{LITERAL("/..."), PATH_OK, "three dots"},
	{LITERAL("/.a"), PATH_OK, "leading dot"},
	{LITERAL("/a."), PATH_OK, "ending dot"},
	{LITERAL("/..a/b.."), PATH_OK, "two dots within components"},
	{LITERAL("/a.b/c..d"), PATH_OK, "dots within components"},

	/* characters */
	{LITERAL("/a\0b"), PATH_CONTROL_CHARACTER, "NUL inside"},
	{LITERAL("/a\0"), PATH_CONTROL_CHARACTER, "NUL at the end"},
	{LITERAL("/\x01"), PATH_CONTROL_CHARACTER, "U+0001"},
	{LITERAL("/a\tb"), PATH_CONTROL_CHARACTER, "tab"},
	{LITERAL("/a\n"), PATH_CONTROL_CHARACTER, "newline"},
	{LITERAL("/\x1f"), PATH_CONTROL_CHARACTER, "U+001F"},
	{LITERAL("/ "), PATH_OK, "U+0020"},
	{LITERAL("/~"), PATH_OK, "U+007E"},
	{LITERAL("/\x7f"), PATH_CONTROL_CHARACTER, "U+007F"},
	{LITERAL("/\xc2\x80"), PATH_CONTROL_CHARACTER, "U+0080"},
	{LITERAL("/\xc2\x9f"), PATH_CONTROL_CHARACTER, "U+009F"},
	{LITERAL("/\xc2\xa0"), PATH_OK, "U+00A0"},
	{LITERAL("/gr\xc3\xbc\xc3\x9f"
			 "e"),
	 PATH_OK, "two-byte characters"},
	{LITERAL("/\xdf\xbf"), PATH_OK, "U+07FF"},
	{LITERAL("/\xe0\xa0\x80"), PATH_OK, "U+0800"},
	{LITERAL("/\xe9\x8e\x96"), PATH_OK, "three-byte character"},
	{LITERAL("/\xed\x9f\xbf"), PATH_OK, "U+D7FF"},
	{LITERAL("/\xed\xa0\x80"), PATH_FORBIDDEN_CHARACTER, "U+D800, a surrogate"},
	{LITERAL("/\xed\xbf\xbf"), PATH_FORBIDDEN_CHARACTER, "U+DFFF, a surrogate"},
	{LITERAL("/\xee\x80\x80"), PATH_FORBIDDEN_CHARACTER, "U+E000, private use"},
	{LITERAL("/\xef\xa3\xbf"), PATH_FORBIDDEN_CHARACTER, "U+F8FF, private use"},
	{LITERAL("/\xef\xa4\x80"), PATH_OK, "U+F900"},
	{LITERAL("/\xef\xbb\xbf"), PATH_OK, "U+FEFF"},
	{LITERAL("/\xef\xbf\xaf"), PATH_OK, "U+FFEF"},
	{LITERAL("/\xef\xbf\xb0"), PATH_FORBIDDEN_CHARACTER, "U+FFF0"},
	{LITERAL("/\xef\xbf\xbd"), PATH_FORBIDDEN_CHARACTER, "U+FFFD"},
	{LITERAL("/\xef\xbf\xbf"), PATH_FORBIDDEN_CHARACTER, "U+FFFF"},
	{LITERAL("/\xf0\x90\x80\x80"), PATH_FORBIDDEN_CHARACTER, "U+10000"},
	{LITERAL("/\xf0\x9f\x94\x92"), PATH_FORBIDDEN_CHARACTER, "U+1F512"},
	{LITERAL("/\xf4\x8f\xbf\xbf"), PATH_FORBIDDEN_CHARACTER, "U+10FFFF"},

	/* ill-formed UTF-8 */
	{LITERAL("/\xf4\x90\x80\x80"), PATH_INVALID_UTF8, "beyond U+10FFFF"},
	{LITERAL("/\xf5\x80\x80\x80"), PATH_INVALID_UTF8, "lead byte F5"},
	{LITERAL("/\xf8\x88\x80\x80\x80"), PATH_INVALID_UTF8, "five-byte form"},
	{LITERAL("/\xff"), PATH_INVALID_UTF8, "byte FF"},
	{LITERAL("/\x80"), PATH_INVALID_UTF8, "continuation byte alone"},
	{LITERAL("/a\xbf/b"), PATH_INVALID_UTF8, "continuation byte inside"},
	{LITERAL("/\xc0\xaf"), PATH_INVALID_UTF8, "overlong slash"},
	{LITERAL("/\xc0\x80"), PATH_INVALID_UTF8, "overlong NUL"},
	{LITERAL("/\xc1\xbf"), PATH_INVALID_UTF8, "overlong U+007F"},
	{LITERAL("/\xe0\x9f\xbf"), PATH_INVALID_UTF8, "overlong U+07FF"},
	{LITERAL("/\xf0\x8f\xbf\xbf"), PATH_INVALID_UTF8, "overlong U+FFFF"},
	{LITERAL("/\xc3"), PATH_INVALID_UTF8, "cut off after one of two"},
	{LITERAL("/\xe9\x8e"), PATH_INVALID_UTF8, "cut off after two of three"},
	{LITERAL("/\xf0\x9f\x94"), PATH_INVALID_UTF8, "cut off after three of four"},
	{LITERAL("/\xc3/"), PATH_INVALID_UTF8, "slash in place of a continuation"},
	{LITERAL("/\xe9\x8e"
			 "a"),
	 PATH_INVALID_UTF8, "letter in place of a continuation"},
	{LITERAL("/\xe9\xc3\xbc"), PATH_INVALID_UTF8, "lead byte in place of a continuation"},

	/* the leftmost fault is reported */
	{LITERAL("/a\n//"), PATH_CONTROL_CHARACTER, "control character before an empty component"},
	{LITERAL("/a//\n"), PATH_EMPTY_COMPONENT, "empty component before a control character"},
	{LITERAL("/../\xff"), PATH_DOT_COMPONENT, "dots before ill-formed bytes"},

	/* ZooKeeper's own tree */
	{LITERAL("/zookeeper"), PATH_RESERVED, "/zookeeper"},
	{LITERAL("/zookeeper/quota"), PATH_RESERVED, "/zookeeper/quota"},
	{LITERAL("/zklock-waits"), PATH_OWN, "/zklock-waits"},
	{LITERAL("/zklock-waits/a"), PATH_OWN, "below /zklock-waits"},
	{LITERAL("/zklock-waits2"), PATH_OK, "a path that begins like /zklock-waits"},
	{LITERAL("/zklock-receipts"), PATH_OWN, "/zklock-receipts"},
	{LITERAL("/zklock-receipts/a"), PATH_OWN, "below /zklock-receipts"},
	{LITERAL("/zookeeper/quota/a/b"), PATH_RESERVED, "below /zookeeper/quota"},
	{LITERAL("/zookeeper/"), PATH_TRAILING_SLASH, "trailing slash wins over reserved"},
	{LITERAL("/zookeeper/.."), PATH_DOT_COMPONENT, "dots win over reserved"},
	{LITERAL("/zookeepers"), PATH_OK, "/zookeepers"},
	{LITERAL("/zookeepe"), PATH_OK, "/zookeepe"},
	{LITERAL("/ZooKeeper"), PATH_OK, "/ZooKeeper"},
	{LITERAL("/a/zookeeper"), PATH_OK, "/a/zookeeper"},

	/* names of lock nodes */
	{LITERAL("/a/lock-0000000001"), PATH_LOCK_NODE, "a lock node last"},
	{LITERAL("/lock-0000000001/a"), PATH_LOCK_NODE, "a lock node first"},
	{LITERAL("/a/LOCK-SHARED-0000000001/b"), PATH_LOCK_NODE, "a lock node inside"},
	{LITERAL("/a/x-5--2147483648"), PATH_LOCK_NODE, "a lock node with a negative sequence"},
	{LITERAL("/lock-0000000001//"), PATH_EMPTY_COMPONENT, "other faults win over lock nodes"},
	{LITERAL("/zookeeper/lock-0000000001"), PATH_RESERVED, "reserved wins over lock nodes"},
	{LITERAL("/a/lock-000000001"), PATH_OK, "nine digits"},
	{LITERAL("/a/lock-/0000000001"), PATH_OK, "a marker and digits in two components"},
	{LITERAL("/a/lock-0000000001b"), PATH_OK, "more than a lock node"},
	{LITERAL("/a/task-0000000001"), PATH_OK, "a sequence behind something else"},
	{LITERAL("/lock-"), PATH_OK, "a marker"},
	{LITERAL("/0000000001"), PATH_OK, "a sequence"}};

typedef struct NameCase
{
	const char *node;
	bool		recognised;
	LockMode	mode;
	long long	sequence;
} NameCase;

#define EXCLUSIVE(n) true, LOCK_MODE_EXCLUSIVE, (n)
#define SHARED(n) true, LOCK_MODE_SHARED, (n)
#define IGNORED false, LOCK_MODE_EXCLUSIVE, 0

static const NameCase name_cases[] = {
	/* what the clients write */
	{"_c_" UUID36 "-lock-0000000000", EXCLUSIVE(0)},
	{"_c_" UUID36 "-lock-0000000042", EXCLUSIVE(42)},
	{"_c_" HEX32 "-lock-0000000007", EXCLUSIVE(7)},
	{UUID36 "-lock-0000000007", EXCLUSIVE(7)},
	{"lock-0000000007", EXCLUSIVE(7)},
	{HEX32 "__lock__0000000003", EXCLUSIVE(3)},
	{"__lock__0000000003", EXCLUSIVE(3)},
	{"_c_" UUID36 "-__WRIT__0000000009", EXCLUSIVE(9)},
	{"_c_" UUID36 "-__READ__0000000009", SHARED(9)},
	{HEX32 "__rlock__0000000003", SHARED(3)},
	{"x-72057594037927936-0000000005", EXCLUSIVE(5)},
	{"x--72057594037927936-0000000005", EXCLUSIVE(5)},
	{"x-9223372036854775807-0000000005", EXCLUSIVE(5)},
	{"x--9223372036854775808-0000000005", EXCLUSIVE(5)},
	{"x-0-0000000005", EXCLUSIVE(5)},
	{"x-0100000000000abc-0000000005", EXCLUSIVE(5)},
	{"x-fedcba9876543210-0000000005", EXCLUSIVE(5)},
	{"x-FEDCBA9876543210-0000000005", EXCLUSIVE(5)},
	{"LOCK-EXCLUSIVE-0000000001", EXCLUSIVE(1)},
	{"LOCK-SHARED-0000000001", SHARED(1)},
	{"LOCK-SEMI_SHARED-0000000001", SHARED(1)},
	{"_c_" UUID36 "-read-0000000009", SHARED(9)},
	{UUID36 "-write-0000000009", EXCLUSIVE(9)},
	{"-read-0000000009", SHARED(9)},
	{"-write-0000000009", EXCLUSIVE(9)},
	{"x-y-0000000009", IGNORED},

	/* the range of sequences */
	{"lock-2147483647", EXCLUSIVE(2147483647)},
	{"lock-2147483648", IGNORED},
	{"lock-9999999999", IGNORED},
	{"lock--2147483648", EXCLUSIVE(-2147483648LL)},
	{"lock--2147483649", IGNORED},
	{"lock--9999999999", IGNORED},

	/* sign or separator */
	{"_c_" UUID36 "-lock--2147483648", EXCLUSIVE(-2147483648LL)},
	{HEX32 "__lock__-2147483647", EXCLUSIVE(-2147483647)},
	{"_c_" UUID36 "-__WRIT__-2147483646", EXCLUSIVE(-2147483646)},
	{"_c_" UUID36 "-__READ__-2147483646", SHARED(-2147483646)},
	{HEX32 "__rlock__-2147483647", SHARED(-2147483647)},
	{"x-5--2147483648", EXCLUSIVE(-2147483648LL)},
	{"x--5--2147483648", EXCLUSIVE(-2147483648LL)},
	{"x-0100000000000abc--2147483648", EXCLUSIVE(-2147483648LL)},
	{"LOCK-EXCLUSIVE--2147483648", EXCLUSIVE(-2147483648LL)},
	{"LOCK-SHARED--2147483648", SHARED(-2147483648LL)},
	{"x-5-1147483648", EXCLUSIVE(1147483648)},
	{"x--5-1147483648", EXCLUSIVE(1147483648)},
	{"lock---0000000001", IGNORED},
	{"__lock__--0000000001", IGNORED},
	{"lock-+0000000001", IGNORED},

	/* ten digits, no more, no less, and nothing after them */
	{"lock-000000001", IGNORED},
	{"lock-00000000001", IGNORED},
	{"lock-12345678901", IGNORED},
	{"__lock__000000001", IGNORED},
	{"__lock__00000000001", IGNORED},
	{"x-5-000000001", IGNORED},
	{"x-5-00000000001", IGNORED},
	{"lock--000000001", IGNORED},
	{"lock--00000000001", IGNORED},
	{"lock-", IGNORED},
	{"lock-0000000001 ", IGNORED},
	{"lock-0000000001x", IGNORED},
	{"lock-0000000001-", IGNORED},
	{"lock-000000000a", IGNORED},
	{"lock-\xd9\xa0\xd9\xa0\xd9\xa0\xd9\xa0\xd9\xa0", IGNORED},

	/* the marker stands right before the sequence */
	{"lock-a0000000001", IGNORED},
	{"lock-0000000001-0000000002", IGNORED},
	{"lock0000000001", IGNORED},
	{"lock_0000000001", IGNORED},
	{"__lock__a0000000001", IGNORED},
	{"__lock_0000000001", IGNORED},
	{"_lock__0000000001", IGNORED},
	{"__LOCK__0000000001", IGNORED},
	{"LOCK-0000000001", IGNORED},
	{"Lock-0000000001", IGNORED},
	{"__read__0000000001", IGNORED},
	{"__READ_0000000001", IGNORED},
	{"_READ__0000000001", IGNORED},
	{"thread-0000000001", IGNORED},
	{"read-0000000001", IGNORED},
	{"overwrite-0000000001", IGNORED},

	/* the last marker decides */
	{"lock-__READ__0000000001", SHARED(1)},
	{"__READ__lock-0000000001", EXCLUSIVE(1)},
	{"__WRIT____READ__0000000001", SHARED(1)},
	{"__READ____WRIT__0000000001", EXCLUSIVE(1)},
	{"__lock____rlock__0000000001", SHARED(1)},
	{"__rlock____lock__0000000001", EXCLUSIVE(1)},
	{"x-5-lock-0000000001", EXCLUSIVE(1)},
	{"x-5-__READ__0000000001", SHARED(1)},
	{"LOCK-SHARED-lock-0000000001", EXCLUSIVE(1)},

	/* "lock-" at the end of a longer word counts, as it does for Curator */
	{"block-0000000001", EXCLUSIVE(1)},
	{"rlock-0000000001", EXCLUSIVE(1)},
	{"a__lock-0000000001", EXCLUSIVE(1)},
	{"__rrlock__0000000001", IGNORED},
	{"rlock__0000000001", IGNORED},

	/* fixed forms are the whole prefix */
	{"a-LOCK-EXCLUSIVE-0000000001", IGNORED},
	{"a-LOCK-SHARED-0000000001", IGNORED},
	{"a-LOCK-SEMI_SHARED-0000000001", IGNORED},
	{"LOCK-SEMI-SHARED-0000000001", IGNORED},
	{"LOCK-EXCLUSIVE0000000001", IGNORED},
	{"lock-exclusive-0000000001", IGNORED},
	{"lock-shared-0000000001", IGNORED},
	{"ax-5-0000000001", IGNORED},
	{"X-5-0000000001", IGNORED},
	{"x-0000000001", IGNORED},
	{"x--0000000001", IGNORED},
	{"x---0000000001", IGNORED},
	{"x----0000000001", IGNORED},
	{"x---5-0000000001", IGNORED},
	{"x-5_0000000001", IGNORED},
	{"x-5a0000000001", IGNORED},
	{"x-5-5-0000000001", IGNORED},
	{"x-5a-0000000001", IGNORED},
	{"x-+5-0000000001", IGNORED},
	{"x-50000000001", IGNORED},
	{"x-0100000000000ab-0000000005", IGNORED},
	{"x-0100000000000abcd-0000000005", IGNORED},
	{"x-0100000000000abg-0000000005", IGNORED},
	{"x--100000000000abc-0000000005", IGNORED},
	{"x--0100000000000abc-0000000005", IGNORED},
	{"x-12345678901234567890-0000000005", IGNORED},

	/* children that are no lock contenders */
	{"", IGNORED},
	{"-", IGNORED},
	{"0", IGNORED},
	{"0000000001", IGNORED},
	{"-0000000001", IGNORED},
	{"--0000000001", IGNORED},
	{"_c_" UUID36 "-latch-0000000001", IGNORED},
	{"_c_" UUID36 "-lease-0000000001", IGNORED},
	{"latch-7", IGNORED},
	{"latch", IGNORED},
	{"n_0000000001", IGNORED},
	{"n_x", IGNORED},
	{"region_0000000001", IGNORED},
	{"qn-0000000001", IGNORED},
	{"queue-0000000001", IGNORED},
	{"ex0000000001", IGNORED},
	{"locks", IGNORED},
	{"leases", IGNORED},
	{"lease_holder", IGNORED},
	{HEX32, IGNORED}};

typedef struct PrefixCase
{
	NodeDialect dialect;
	LockMode	mode;
	const char *prefix;
} PrefixCase;

static const PrefixCase prefix_cases[] =
	{{DIALECT_CURATOR, LOCK_MODE_EXCLUSIVE, "_c_" UUID36 "-lock-"},
	 {DIALECT_CURATOR, LOCK_MODE_SHARED, "_c_" UUID36 "-__READ__"},
	 {DIALECT_CURATOR_RW, LOCK_MODE_EXCLUSIVE, "_c_" UUID36 "-__WRIT__"},
	 {DIALECT_CURATOR_RW, LOCK_MODE_SHARED, "_c_" UUID36 "-__READ__"},
	 {DIALECT_KAZOO, LOCK_MODE_EXCLUSIVE, HEX32 "__lock__"},
	 {DIALECT_KAZOO, LOCK_MODE_SHARED, HEX32 "__rlock__"},
	 {DIALECT_ZOOKEEPER, LOCK_MODE_EXCLUSIVE, "x-3f2504e04f8911d3-"},
	 {DIALECT_ZOOKEEPER, LOCK_MODE_SHARED, "_c_" UUID36 "-read-"},
	 {DIALECT_HIVE, LOCK_MODE_EXCLUSIVE, "LOCK-EXCLUSIVE-"},
	 {DIALECT_HIVE, LOCK_MODE_SHARED, "LOCK-SHARED-"}};

static const uint8_t sample_uuid[ZKLOCK_UUID_BYTES] = {0x3f, 0x25, 0x04, 0xe0, 0x4f, 0x89,
													   0x11, 0xd3, 0x9a, 0x0c, 0x03, 0x05,
													   0xe8, 0x2c, 0x33, 0x01};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/*
 * Check a copy that ends where the path does, so that a memory checker sees
 * any read beyond it.
 */
static void
check_exact(const char *path, size_t len, const char *expected, const char *name)
{
	char	   *copy = malloc(len > 0 ? len : 1);
	const char *fault;

	if (copy == NULL)
		abort();
	memcpy(copy, path, len);
	fault = path_check(copy, len);
	ok(fault == expected || (fault && expected && strcmp(fault, expected) == 0), "%s: %s",
	   name, fault ? fault : "no fault");

	/* What looks like a node of a lock may be one. */
	if (expected && strcmp(expected, PATH_LOCK_NODE) == 0)
		expected = PATH_OK;
	fault = path_check_node(copy, len);
	ok(fault == expected || (fault && expected && strcmp(fault, expected) == 0),
	   "%s, as a node: %s", name, fault ? fault : "no fault");
	free(copy);
}

static void
test_paths(void)
{
	char   path[ZKLOCK_MAX_PATH + 3];
	size_t i;

	for (i = 0; i < LENGTH(path_cases); i++)
		check_exact(path_cases[i].path, path_cases[i].len, path_cases[i].fault, path_cases[i].name);

	memset(path, 'a', sizeof(path));
	path[0] = '/';
	check_exact(path, ZKLOCK_MAX_PATH - 1, PATH_OK, "one byte below the longest path");
	check_exact(path, ZKLOCK_MAX_PATH, PATH_OK, "longest path");
	check_exact(path, ZKLOCK_MAX_PATH + 1, PATH_TOO_LONG, "one byte above the longest path");
	path[1] = '/';
	check_exact(path, ZKLOCK_MAX_PATH + 1, PATH_TOO_LONG, "too long wins over faults inside");
	path[0] = 'a';
	check_exact(path, ZKLOCK_MAX_PATH + 1, PATH_RELATIVE, "relative wins over too long");

	/* The limit counts bytes, not characters. */
	path[0] = '/';
	for (i = 1; i + 1 < ZKLOCK_MAX_PATH + 2; i += 2)
		memcpy(path + i, "\xc3\xbc", 2);
	check_exact(path, ZKLOCK_MAX_PATH, PATH_OK, "longest path in two-byte characters");
	check_exact(path, ZKLOCK_MAX_PATH + 2, PATH_TOO_LONG, "one two-byte character more");
}

static void
test_names(void)
{
	size_t i;

	for (i = 0; i < LENGTH(name_cases); i++)
	{
		const NameCase *c = &name_cases[i];
		RecipePeer		parsed = {.mode = LOCK_MODE_SHARED, .sequence = 77};
		bool			recognised = node_name_parse(c->node, &parsed);

		if (!c->recognised)
			ok(!recognised && parsed.mode == LOCK_MODE_SHARED && parsed.sequence == 77,
			   "ignored: \"%s\"", c->node);
		else
			ok(recognised && parsed.mode == c->mode && parsed.sequence == c->sequence,
			   "%s, sequence %lld: \"%s\"",
			   c->mode == LOCK_MODE_SHARED ? "shared" : "exclusive", c->sequence, c->node);
	}
}

/* A UUID of version 8, in a name as we give it, shows that the node may be kept. */
static void
test_may_be_kept(void)
{
	static const struct
	{
		const char *node;
		bool		may_be_kept;
	} cases[] = {{"_c_3f2504e0-4f89-8123-9a0c-0305e82c3301-lock-0000000001", true},
				 {"_c_3f2504e0-4f89-8123-9a0c-0305e82c3301-__WRIT__0000000001", true},
				 {"3f2504e04f8981239a0c0305e82c3301__lock__0000000001", true},
				 {"x-3f2504e04f898123-0000000001", true},
				 {"_c_3f2504e0-4f89-4123-9a0c-0305e82c3301-lock-0000000001", false},
				 {"_c_3f2504e0-4f89-8123-9a0c-0305e82c3301-__READ__0000000001", false},
				 {"_c_3f2504e04f8981239a0c0305e82c3301-lock-0000000001", false}, /* go-zk's */
				 {"_c_3F2504E0-4f89-8123-9a0c-0305e82c3301-lock-0000000001", false},
				 {"3f2504e0-4f89-8123-9a0c-0305e82c3301-lock-0000000001", false},
				 {"_c_3f2504e0-4f89-8123-9a0c-0305e82c3301x-lock-0000000001", false},
				 {"_c_3f2504e0-4f89-8123-9a0c-lock-0000000001", false},
				 {"3f2504e04f8981239a0c0305e82c3301-write-0000000001", false},
				 {"LOCK-EXCLUSIVE-0000000001", false},
				 {"lock-0000000001", false}};
	size_t i;

	for (i = 0; i < LENGTH(cases); i++)
	{
		RecipePeer parsed = {.may_be_kept = !cases[i].may_be_kept};

		ok(node_name_parse(cases[i].node, &parsed) && parsed.may_be_kept == cases[i].may_be_kept,
		   "%s kept: %s", cases[i].may_be_kept ? "may be" : "is not", cases[i].node);
	}
}

/* What ends in a sequence may have been meant as a lock. */
static void
test_sequences(void)
{
	ok(node_name_has_sequence("n_0000000001"), "a sequence behind an unknown prefix");
	ok(node_name_has_sequence("0000000001"), "a sequence alone");
	ok(node_name_has_sequence("a--2147483648"), "a negative sequence");
	ok(!node_name_has_sequence("a2147483648"), "more than a sequence can be");
	ok(!node_name_has_sequence("ds=2026-01-01"), "a date is no sequence");
	ok(!node_name_has_sequence("a000000001"), "nine digits are no sequence");
	ok(!node_name_has_sequence("0000000001a"), "digits inside are no sequence");
	ok(!node_name_has_sequence(""), "nothing is no sequence");
}

/* A foreign name may be as long as it likes. */
static void
test_long_name(void)
{
	static char name[5000];
	RecipePeer	parsed;

	memset(name, 'a', sizeof(name));
	strcpy(name + sizeof(name) - sizeof("lock-0000000012"), "lock-0000000012");
	ok(node_name_parse(name, &parsed) && parsed.mode == LOCK_MODE_EXCLUSIVE && parsed.sequence == 12,
	   "name of 5000 bytes");
}

static void
test_prefixes(void)
{
	char   name[ZKLOCK_MAX_NODE_NAME + 1];
	size_t i;

	for (i = 0; i < LENGTH(prefix_cases); i++)
	{
		node_name_prefix(name, sizeof(name),
						 REQUEST(prefix_cases[i].mode, prefix_cases[i].dialect), sample_uuid);
		is_str(name, prefix_cases[i].prefix, prefix_cases[i].prefix);
	}

	memset(name, '#', sizeof(name));
	node_name_prefix(name, 8, REQUEST(LOCK_MODE_EXCLUSIVE, DIALECT_CURATOR), sample_uuid);
	is_str(name, "_c_3f25", "a prefix is cut off where the room ends");
	ok(name[8] == '#', "nothing is written beyond it");
}

/* Whatever is written is read back, with each sequence a server may append. */
static void
test_round_trip(void)
{
	static const int32_t sequences[] = {0,			1,		   1234567890,
										INT32_MAX,	INT32_MIN, INT32_MIN + 1,
										-1000000000};
	static const uint8_t fills[] = {0x00, 0x11, 0x99, 0xaa, 0xff};
	size_t				 f;
	size_t				 i;
	size_t				 s;

	for (f = 0; f < LENGTH(fills); f++)
	{
		uint8_t uuid[ZKLOCK_UUID_BYTES];

		memset(uuid, fills[f], sizeof(uuid));
		for (i = 0; i < LENGTH(prefix_cases); i++)
		{
			LockMode mode = prefix_cases[i].mode;
			bool	 all = true;

			for (s = 0; s < LENGTH(sequences); s++)
			{
				char	   name[2 * ZKLOCK_MAX_NODE_NAME];
				size_t	   len;
				RecipePeer parsed;

				node_name_prefix(name, sizeof(name), REQUEST(mode, prefix_cases[i].dialect), uuid);
				len = strlen(name);
				snprintf(name + len, sizeof(name) - len, "%010d", (int) sequences[s]);
				if (strlen(name) > ZKLOCK_MAX_NODE_NAME || !node_name_parse(name, &parsed) ||
					parsed.mode != mode || parsed.sequence != sequences[s])
				{
					all = false;
					printf("#   \"%s\"\n", name);
				}
			}
			ok(all, "dialect %d, mode %d, uuid of %02x: read back",
			   (int) prefix_cases[i].dialect, (int) mode, fills[f]);
		}
	}
}

/* The shared node in place of an exclusive one: same sequence, same UUID. */
static void
test_downgraded(void)
{
	static const NodeDialect dialects[] = {DIALECT_CURATOR, DIALECT_CURATOR_RW, DIALECT_KAZOO,
										   DIALECT_ZOOKEEPER, DIALECT_HIVE};
	static const char *const sequences[] = {"0000000000", "0000000042", "2147483647", "-2147483648"};
	char					 name[ZKLOCK_MAX_NODE_NAME + 1];
	char					 downgraded_name[ZKLOCK_MAX_NODE_NAME + 1];
	char					 expected[ZKLOCK_MAX_NODE_NAME + 1];
	RecipePeer				 parsed;
	size_t					 i;
	size_t					 s;

	for (i = 0; i < LENGTH(dialects); i++)
	{
		for (s = 0; s < LENGTH(sequences); s++)
		{
			uint8_t uuid[ZKLOCK_UUID_BYTES];

			memcpy(uuid, sample_uuid, sizeof(uuid));
			/* These names have room for half of it. */
			if (dialects[i] == DIALECT_ZOOKEEPER)
				memset(uuid + sizeof(uuid) / 2, 0, sizeof(uuid) / 2);
			node_name_prefix(name, sizeof(name), REQUEST(LOCK_MODE_EXCLUSIVE, dialects[i]), uuid);
			strcat(name, sequences[s]);
			node_name_prefix(expected, sizeof(expected), REQUEST(LOCK_MODE_SHARED, dialects[i]), uuid);
			strcat(expected, sequences[s]);
			ok(node_name_downgraded(downgraded_name, sizeof(downgraded_name), name,
									REQUEST(LOCK_MODE_SHARED, dialects[i])),
			   "%s downgraded", name);
			is_str(downgraded_name, expected, expected);
			ok(node_name_parse(downgraded_name, &parsed) && parsed.mode == LOCK_MODE_SHARED &&
				   parsed.sequence == strtol(sequences[s], NULL, 10),
			   "it is a shared one of the same sequence");
			ok(!node_name_downgraded(downgraded_name, strlen(expected), name,
									 REQUEST(LOCK_MODE_SHARED, dialects[i])),
			   "if there is room");
		}
	}
	ok(!node_name_downgraded(downgraded_name, sizeof(downgraded_name), "",
							 REQUEST(LOCK_MODE_SHARED, DIALECT_CURATOR)),
	   "no name");
	ok(!node_name_downgraded(downgraded_name, sizeof(downgraded_name), "_c_lock-0000000001",
							 REQUEST(LOCK_MODE_SHARED, DIALECT_CURATOR)),
	   "no uuid");
	ok(!node_name_downgraded(downgraded_name, sizeof(downgraded_name), "_c_g" UUID36 "-lock-0000000001",
							 REQUEST(LOCK_MODE_SHARED, DIALECT_CURATOR)),
	   "no hexadecimal digit");
	ok(!node_name_downgraded(downgraded_name, sizeof(downgraded_name), HEX32 "__lock__",
							 REQUEST(LOCK_MODE_SHARED, DIALECT_KAZOO)),
	   "no sequence");
	ok(!node_name_downgraded(downgraded_name, sizeof(downgraded_name), "x-3f2504e0-0000000001",
							 REQUEST(LOCK_MODE_SHARED, DIALECT_ZOOKEEPER)),
	   "too short a uuid");
}

static void
test_uuid(void)
{
	char text[40];

	uuid_format(text, sizeof(text), sample_uuid, UUID_DASHES);
	is_str(text, UUID36, "uuid with dashes");
	uuid_format(text, sizeof(text), sample_uuid, UUID_HEX);
	is_str(text, HEX32, "uuid without dashes");
	uuid_format(text, 37, sample_uuid, UUID_DASHES);
	is_str(text, UUID36, "uuid with dashes in just enough room");
	uuid_format(text, 33, sample_uuid, UUID_HEX);
	is_str(text, HEX32, "uuid without dashes in just enough room");

	memset(text, '#', sizeof(text));
	uuid_format(text, 10, sample_uuid, UUID_DASHES);
	is_str(text, "3f2504e0-", "uuid cut off where the room ends");
	ok(text[10] == '#', "nothing is written beyond it");
	uuid_format(text, 0, sample_uuid, UUID_DASHES);
	is_str(text, "3f2504e0-", "nothing is written into no room");
}

int
main(void)
{
	test_paths();
	test_names();
	test_may_be_kept();
	test_sequences();
	test_long_name();
	test_prefixes();
	test_round_trip();
	test_downgraded();
	test_uuid();
	return done_testing();
}
