/*-------------------------------------------------------------------------
 *
 * node_name.c
 *	  What names and data of nodes mean: names of lock nodes, paths and their missing levels,
 *	  names of elements, and who the data of a node say it is.
 *
 * A lock node is called <prefix><sequence>, where the server appends the sequence.  The
 * prefix either ends in a marker that shows the mode, or has one of a few fixed forms.  The
 * marker must stand right before the sequence: anywhere else, it means nothing.
 *
 * The rules for paths are those of ZooKeeper's PathUtils.validatePath(), made strict where a
 * server would misread the bytes or accept what no lock should use: the text must be
 * well-formed UTF-8, and the root and ZooKeeper's own tree are refused.  No server finds a
 * path malformed that passes here.
 *
 * Any client can create any node, and write anything into it.  So everything here takes any
 * bytes, cannot fail, and says what they are taken for.
 *
 * Pure C: depends on libc alone, allocates nothing, keeps no state, runs in any process or
 * thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/recipe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------
 * Names of lock nodes
 * ------------------------------------------------------------------------
 */

/*
 * A server writes sequences with "%010d".  That makes ten digits of all but
 * the negative numbers above -1000000000, which a counter that runs over would
 * only come to after more than three thousand million children.
 */
#define SEQUENCE_DIGITS 10

/* Size of the longest form of a UUID, with the terminating NUL. */
#define UUID_TEXT_SIZE 37

/* The hexadecimal digits that the forms have */
static const size_t uuid_digits[] = {[UUID_NONE] = 0, [UUID_DASHES] = 32, [UUID_HEX] = 32, [UUID_HALF] = 16};

/* Decimal digits of the largest session id, 2^63. */
#define SESSION_ID_DIGITS 19

/* Hexadecimal digits of a session id, always padded to the full width. */
#define SESSION_ID_HEX_DIGITS 16

typedef struct Marker
{
	const char *text;  /* what stands right before the sequence */
	bool		whole; /* must be the whole prefix, not only its end */
	LockMode	mode;
	NodeDialect dialect;
} Marker;

/*
 * A marker must match the exact end of the prefix, so that none can be taken for another one
 * that contains it: "__rlock__" does not end in "__lock__", and "LOCK-SHARED-" does not end in
 * "lock-".
 *
 * Hive's own shared and exclusive requests overlook a semi-shared lock, which an insert holds;
 * it is a lock nevertheless.
 */
static const Marker markers[] = {{"lock-", false, LOCK_MODE_EXCLUSIVE, DIALECT_CURATOR},
								 {"__lock__", false, LOCK_MODE_EXCLUSIVE, DIALECT_KAZOO},
								 {"__WRIT__", false, LOCK_MODE_EXCLUSIVE, DIALECT_CURATOR_RW},
								 {"-write-", false, LOCK_MODE_EXCLUSIVE, DIALECT_ZOOKEEPER},
								 {"LOCK-EXCLUSIVE-", true, LOCK_MODE_EXCLUSIVE, DIALECT_HIVE},
								 {"__READ__", false, LOCK_MODE_SHARED, DIALECT_CURATOR_RW},
								 {"__rlock__", false, LOCK_MODE_SHARED, DIALECT_KAZOO},
								 {"-read-", false, LOCK_MODE_SHARED, DIALECT_ZOOKEEPER},
								 {"LOCK-SHARED-", true, LOCK_MODE_SHARED, DIALECT_HIVE},
								 {"LOCK-SEMI_SHARED-", true, LOCK_MODE_SHARED, DIALECT_HIVE}};

/* The name that a dialect gives to a node, but for the sequence */
typedef struct DialectName
{
	const char *before; /* the UUID */
	UuidForm	uuid;
	const char *after;
} DialectName;

/*
 * The names are those which the clients themselves write, with these two exceptions.
 * ZooKeeper's recipes put their session id where this puts half of the UUID: only their own
 * next attempt looks for it, and a name must not outlive the attempt it was made for.  They
 * also have no shared locks; the name is that of the documented recipe, which they take for an
 * exclusive one.
 *
 * Hive's names hold no UUID; only its owner and its data distinguish such a node from others.
 */
static const DialectName dialects[][2] = /* by LockMode */
	{[DIALECT_CURATOR] = {{"_c_", UUID_DASHES, "-lock-"}, {"_c_", UUID_DASHES, "-__READ__"}},
	 [DIALECT_CURATOR_RW] = {{"_c_", UUID_DASHES, "-__WRIT__"}, {"_c_", UUID_DASHES, "-__READ__"}},
	 [DIALECT_KAZOO] = {{"", UUID_HEX, "__lock__"}, {"", UUID_HEX, "__rlock__"}},
	 [DIALECT_ZOOKEEPER] = {{"x-", UUID_HALF, "-"}, {"_c_", UUID_DASHES, "-read-"}},
	 [DIALECT_HIVE] = {{"LOCK-EXCLUSIVE-", UUID_NONE, ""}, {"LOCK-SHARED-", UUID_NONE, ""}}};

const char *const node_dialect_names[] =
	{[DIALECT_CURATOR] = "curator", [DIALECT_CURATOR_RW] = "curator_rw",
	 [DIALECT_KAZOO] = "kazoo",		[DIALECT_ZOOKEEPER] = "zookeeper",
	 [DIALECT_HIVE] = "hive",		NULL};

/* Character classes in ASCII, whatever the locale of the process is */
#define DIGITS "0123456789"
#define ALPHANUMERIC DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

static const char hex_digits[] = DIGITS "abcdefABCDEF";

/*
 * Reads the number that a server makes of a counter of 32 bits: ten digits at first, a sign
 * and perhaps fewer digits when it has run over.  Returns false if the text, of len bytes, is
 * no such number.
 */
bool
node_name_read_number(const char *text, size_t len, int64_t *number)
{
	size_t	sign = len > 0 && text[0] == '-' ? 1 : 0;
	int64_t value = 0;

	if (len == sign || len - sign > SEQUENCE_DIGITS)
		return false;
	for (size_t i = sign; i < len; i++)
	{
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (text[i] - '0');
	}
	if (sign == 1)
		value = -value;
	if (value < INT32_MIN || value > INT32_MAX)
		return false;
	*number = value;
	return true;
}

/*
 * Splits a name into prefix and sequence.
 *
 * The sequence is what a server makes of a 32-bit signed integer: the last ten digits and
 * perhaps a sign.  A hyphen before the digits is a sign only if no letter or digit stands
 * before it; otherwise it belongs to the prefix, as in "lock-0000000005" against
 * "lock--2147483648".
 *
 * Returns false if there is no such sequence.
 */
static bool
split_sequence(const char *name, size_t *prefix_len, int64_t *sequence)
{
	size_t len = strlen(name);
	size_t digits = len - SEQUENCE_DIGITS;

	if (len < SEQUENCE_DIGITS || name[digits] == '-')
		return false;
	if (digits > 0 && name[digits - 1] == '-' &&
		(digits == 1 || !strchr(ALPHANUMERIC, name[digits - 2])))
		digits--;
	*prefix_len = digits;
	return node_name_read_number(name + digits, len - digits, sequence);
}

/*
 * Returns true if this is the prefix "x-<session id>-" of ZooKeeper's own recipes.
 *
 * The Java recipe writes the id as a signed decimal number, so that a negative one makes
 * "x--..."; the C recipe writes 16 hexadecimal digits.
 */
static bool
is_recipe_prefix(const char *prefix, size_t len)
{
	const char *id = prefix + 2;
	size_t		id_len;

	if (len < 4 || memcmp(prefix, "x-", 2) != 0 || prefix[len - 1] != '-')
		return false;
	id_len = len - 3;

	/* The hyphen behind the id ends the digits. */
	if (id_len == SESSION_ID_HEX_DIGITS && strspn(id, hex_digits) == id_len)
		return true;
	if (id[0] == '-')
	{
		id++;
		id_len--;
	}
	return id_len > 0 && id_len <= SESSION_ID_DIGITS && strspn(id, DIGITS) == id_len;
}

/*
 * Reads the UUID of a name that we give to an exclusive node in a dialect, as far as the name
 * has it.  Returns false if there is none.
 */
static bool
read_uuid(const char *name, size_t prefix_len, NodeDialect dialect, uint8_t uuid[ZKLOCK_UUID_BYTES])
{
	const DialectName *exclusive = &dialects[dialect][LOCK_MODE_EXCLUSIVE];
	const size_t	   digits = uuid_digits[exclusive->uuid];
	size_t			   found = 0;

	memset(uuid, 0, ZKLOCK_UUID_BYTES);
	for (size_t i = strlen(exclusive->before); i < prefix_len && found < digits; i++)
	{
		const char *digit = strchr(hex_digits, name[i]);
		long		value = digit ? digit - hex_digits : 0;

		if (name[i] == '-')
			continue;
		if (digit == NULL)
			return false;
		if (value > 15)
			value -= 6; /* a capital letter */
		uuid[found / 2] |= (uint8_t) (value << (found % 2 == 0 ? 4 : 0));
		found++;
	}
	return found == digits;
}

/*
 * Reads the name of a child of a lock path.
 *
 * Returns true and fills *parsed if the node contends for the lock in any dialect, whichever
 * is written; else returns false and leaves *parsed alone.
 *
 * Where a client of the dialect in question would accept more than it writes, so does this
 * function: to wait for a node that is no contender costs time, to overlook one that is costs
 * exclusion.
 */
bool
node_name_parse(const char *name, RecipePeer *parsed)
{
	RecipePeer read = {.numbered = true, .mode = LOCK_MODE_EXCLUSIVE, .dialect = DIALECT_ZOOKEEPER};
	const Marker *found = NULL;
	size_t		  prefix_len;
	uint8_t		  uuid[ZKLOCK_UUID_BYTES];
	char		  ours[ZKLOCK_MAX_NODE_NAME + 1];

	if (!split_sequence(name, &prefix_len, &read.sequence))
		return false;
	for (size_t i = 0; i < sizeof(markers) / sizeof(markers[0]) && found == NULL; i++)
	{
		const Marker *marker = &markers[i];
		size_t		  marker_len = strlen(marker->text);

		if (prefix_len < marker_len || (marker->whole && prefix_len != marker_len))
			continue;
		if (memcmp(name + prefix_len - marker_len, marker->text, marker_len) == 0)
			found = marker;
	}
	if (found)
	{
		read.mode = found->mode;
		read.dialect = found->dialect;
	}
	else if (!is_recipe_prefix(name, prefix_len))
		return false;

	/* A node that may be kept is exclusive, and has exactly the name that we give to it. */
	if (read_uuid(name, prefix_len, read.dialect, uuid) && uuid[6] >> 4 == UUID_VERSION_KEPT)
	{
		node_name_prefix(ours, sizeof(ours),
						 &(RecipeRequest){.mode = LOCK_MODE_EXCLUSIVE, .dialect = read.dialect},
						 uuid);
		read.may_be_kept = strlen(ours) == prefix_len && memcmp(name, ours, prefix_len) == 0;
	}
	*parsed = read;
	return true;
}

/*
 * Returns true if the name ends in what may be a sequence.  The owner of such a name that is
 * not recognised may have meant a lock; the owner of any other certainly did not.
 */
bool
node_name_has_sequence(const char *name)
{
	size_t	prefix_len;
	int64_t sequence;

	return split_sequence(name, &prefix_len, &sequence);
}

/*
 * Writes the name to give to a sequential create into dst, which has room for size bytes: all
 * of the node's name but the sequence.
 *
 * ZKLOCK_MAX_NODE_NAME + 1 bytes are always enough, with the sequence too.  If there are fewer
 * than needed, the name is cut off (and no use), but always terminated.
 */
void
node_name_prefix(char *dst, size_t size, const RecipeRequest *request,
				 const uint8_t uuid[ZKLOCK_UUID_BYTES])
{
	const DialectName *name = &dialects[request->dialect][request->mode];
	char			   text[UUID_TEXT_SIZE];

	uuid_format(text, sizeof(text), uuid, name->uuid);
	snprintf(dst, size, "%s%s%s", name->before, text, name->after);
}

/*
 * Writes the name of the shared node that replaces an exclusive one of ours into dst, which
 * has room for size bytes.  It has the same sequence and, as far as the dialect allows, the
 * same UUID; so the one name follows from the other.
 *
 * Returns false if name is not one that we give to an exclusive node, or no shared one is asked
 * for.
 */
bool
node_name_downgraded(char *dst, size_t size, const char *name, const RecipeRequest *request)
{
	uint8_t uuid[ZKLOCK_UUID_BYTES];
	char	prefix[ZKLOCK_MAX_NODE_NAME + 1];
	size_t	prefix_len;
	int64_t sequence;
	int		written;

	if (request->mode != LOCK_MODE_SHARED || !split_sequence(name, &prefix_len, &sequence) ||
		!read_uuid(name, prefix_len, request->dialect, uuid))
		return false;
	node_name_prefix(prefix, sizeof(prefix), request, uuid);
	written = snprintf(dst, size, "%s%s", prefix, name + prefix_len);
	return written > 0 && (size_t) written < size;
}

/*
 * Writes a UUID in lower-case hexadecimal digits into dst, which has room for size bytes, with
 * a terminating NUL.  The dashes are those of RFC 9562.  If there is less room, the text is
 * cut off.
 */
void
uuid_format(char *dst, size_t size, const uint8_t uuid[ZKLOCK_UUID_BYTES], UuidForm form)
{
	static const char digits[] = "0123456789abcdef";
	char			  text[UUID_TEXT_SIZE];
	size_t			  used = 0;

	for (size_t i = 0; i < uuid_digits[form] / 2; i++)
	{
		if (form == UUID_DASHES && (i == 4 || i == 6 || i == 8 || i == 10))
			text[used++] = '-';
		text[used++] = digits[uuid[i] >> 4];
		text[used++] = digits[uuid[i] & 0x0F];
	}
	text[used] = '\0';

	snprintf(dst, size, "%s", text);
}

/* ------------------------------------------------------------------------
 * Paths
 * ------------------------------------------------------------------------
 */

#define OWN_PATHS_RESERVED \
	"The paths \"/zklock-waits\" and \"/zklock-receipts\", and all paths below them, are reserved for zklock."

_Static_assert(ZKLOCK_MAX_PATH == 1023, "PATH_TOO_LONG names the limit");

/* Trees that are not for locks, with the rule about each */
static const struct
{
	const char *path;
	const char *rule;
} reserved[] = {{"/zookeeper",
				 "The path \"/zookeeper\" and all paths below it are reserved for ZooKeeper."},
				{"/zklock-waits", OWN_PATHS_RESERVED}, /* WAIT_RECORD_ROOT */
				{ELEMENT_RECEIPTS, OWN_PATHS_RESERVED}};

/*
 * Decodes the UTF-8 sequence at the start of text, which has len > 0 bytes.
 *
 * Returns the number of bytes used and sets *code, or returns 0 if the bytes are ill-formed: a
 * stray or missing continuation byte, an overlong form, or a value beyond U+10FFFF.  Encoded
 * surrogates are decoded like any other character; path_check() refuses them by their code.
 */
static size_t
utf8_decode(const unsigned char *text, size_t len, uint32_t *code)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000}; /* by bytes */

	size_t used = text[0] < 0x80   ? 1
				  : text[0] < 0xC0 ? 0
				  : text[0] < 0xE0 ? 2
				  : text[0] < 0xF0 ? 3
								   : 4;

	if (used == 0 || used > len || text[0] >= 0xF8)
		return 0;
	*code = used == 1 ? text[0] : text[0] & (0x7F >> used);
	for (size_t i = 1; i < used; i++)
	{
		if ((text[i] & 0xC0) != 0x80)
			return 0;
		*code = (*code << 6) | (text[i] & 0x3F);
	}
	return *code >= smallest[used] && *code <= 0x10FFFF ? used : 0;
}

/*
 * Checks whether a node can have this path, which must be neither ZooKeeper's nor one that
 * zklock needs itself.
 *
 * path has len bytes, which may be anything, NUL included; no terminating NUL is needed.  It
 * is taken as the client sees it: below the chroot, if the connect string has one.
 *
 * Returns NULL, or the rule that the path breaks: a sentence, which is constant.  A rule about
 * the path as a whole comes first, then the leftmost fault within it; whether a name is
 * reserved only matters if the path is otherwise right.
 *
 * The rules are those of org.apache.zookeeper.common.PathUtils, which look at UTF-16 code
 * units: a character outside the Basic Multilingual Plane is a pair of surrogates there and
 * hence forbidden.
 */
const char *
path_check_node(const char *path, size_t len)
{
	size_t start = 1; /* where the current component begins */
	size_t used;

	if (len == 0)
		return "A path must not be empty.";
	if (path[0] != '/')
		return "A path must start with \"/\".";
	if (len == 1)
		return "The root \"/\" cannot be locked.";
	if (len > ZKLOCK_MAX_PATH)
		return PATH_TOO_LONG;

	for (size_t pos = 1; pos <= len; pos += used)
	{
		uint32_t code = '/'; /* the end of the path ends a component, too */

		used = 1;
		if (pos < len)
			used = utf8_decode((const unsigned char *) path + pos, len - pos, &code);
		if (used == 0)
			return "A path must be well-formed UTF-8.";
		if (code <= 0x1F || (code >= 0x7F && code <= 0x9F))
			return "A path must not contain control characters.";
		if ((code >= 0xD800 && code <= 0xF8FF) || code >= 0xFFF0)
			return "A path must not contain characters in the ranges U+D800 to U+F8FF and U+FFF0 to U+FFFF or beyond U+FFFF.";
		if (code != '/')
			continue;
		if (pos == start)
			return pos < len ? "A path must not contain \"//\"." : "A path must not end with \"/\".";
		if (pos - start <= 2 && memcmp(path + start, "..", pos - start) == 0)
			return "A path must not have \".\" or \"..\" as a component.";
		start = pos + 1;
	}

	for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
	{
		size_t tree_len = strlen(reserved[i].path);

		if (len >= tree_len && memcmp(path, reserved[i].path, tree_len) == 0 &&
			(len == tree_len || path[tree_len] == '/'))
			return reserved[i].rule;
	}
	return NULL;
}

/*
 * Checks whether a lock can have this path.  Returns NULL, or the rule that it breaks as a
 * sentence.
 */
const char *
path_check(const char *path, size_t len)
{
	const char *fault = path_check_node(path, len);

	/*
	 * Nodes created for a path with a component that is recognised as a lock node would be
	 * contenders for a lock on its parent, and block it for ever.
	 */
	for (size_t start = 1, end; fault == NULL && start < len; start = end + 1)
	{
		const char *slash = memchr(path + start, '/', len - start);
		char		name[ZKLOCK_MAX_PATH + 1] = "";

		end = slash ? (size_t) (slash - path) : len;
		memcpy(name, path + start, end - start);
		if (node_name_parse(name, &(RecipePeer){.sequence = 0}))
			fault = "A path must not have a component that looks like a node of a lock, such as \"lock-0000000001\".";
	}
	return fault;
}

/*
 * Returns true if a server can have a node of this name, of whatever kind.  This accepts what
 * any release does; path_check() is for paths of our own.
 */
bool
node_name_is_possible(const char *name)
{
	const unsigned char *bytes = (const unsigned char *) name;
	size_t				 len = strlen(name);
	size_t				 pos = 0;

	if (len == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strchr(name, '/'))
		return false;
	while (pos < len)
	{
		uint32_t code;
		size_t	 used = utf8_decode(bytes + pos, len - pos, &code);

		if (used == 0)
			return false;
		pos += used;
	}
	return true;
}

/* ------------------------------------------------------------------------
 * The missing levels of a path
 *
 * The engine creates the paths of locks (engine/parents.c), and sessions those of what they
 * have created by calls (backend/call.c).  Both walk as missing_path_next() says:
 *
 *	up		The lowest missing level is tried first: if it can be created, or exists by
 *			now, all is well.  If its parent is missing as well, that is tried next, and
 *			so on.  So no request touches what has always been there, and above which we
 *			may have no rights.
 *	down	From the first level that exists now, the others are created below it.
 *
 * The reply that a node exists is as good as a new one.  If something has been deleted
 * meanwhile, as empty containers are, all is done again, MISSING_PATH_ATTEMPTS times at most.
 * ------------------------------------------------------------------------
 */

/* Returns the length of the path above the one that is the first "length" bytes. */
size_t
missing_path_above(const char *path, size_t length)
{
	while (path[--length] != '/')
		;
	return length;
}

/*
 * Moves the walk on.
 *
 *	path	of the node to be created; the walk ends at its first walk->end bytes
 *	exists	the node that was tried exists now; false: its parent does not
 */
MissingStep
missing_path_next(MissingPath *walk, const char *path, bool exists)
{
	int levels = 1; /* that are missing */

	if (exists)
	{
		walk->descending = true;
		if (walk->length == walk->end)
			return MISSING_END;
		walk->length += 1 + strcspn(path + walk->length + 1, "/");
		return MISSING_CREATE;
	}
	if (walk->descending)
		return MISSING_END; /* what was there is gone */
	for (const char *c = path + walk->length; *c != '\0'; c++)
		levels += *c == '/';
	walk->length = missing_path_above(path, walk->length);
	if (walk->length == 0)
		return MISSING_NO_CHROOT;
	return levels >= ZKLOCK_MAX_LEVELS ? MISSING_TOO_DEEP : MISSING_LOOK;
}

/* ------------------------------------------------------------------------
 * Elements of queues: ZooKeeper's recipe
 *
 * An element is a persistent sequential child "qn-0000000123" of the queue's path, and the
 * lowest comes first.  ZooKeeper's DistributedQueue orders them by the number that Java's
 * Long.parseLong() reads behind "qn-"; a child without such a number is not an element.
 * Curator's SimpleDistributedQueue orders them as texts, which is the same for all names
 * that ZooKeeper makes before its counter ends.
 *
 * Java sees one element in two names for one number, such as qn-7 and qn-0000000007; here
 * they are two, the longer one first.
 * ------------------------------------------------------------------------
 */

/*
 * Reads the name of a queue's child.  Returns false if it is not an element.
 *
 *	number	set to its place in the queue
 */
bool
element_name_read(const char *child, int64_t *number)
{
	const char *digits = child + strlen(ELEMENT_PREFIX);
	size_t		len = strlen(child);
	char	   *end;
	long long	value;

	if (strncmp(child, ELEMENT_PREFIX, strlen(ELEMENT_PREFIX)) != 0 || len >= ELEMENT_NAME_SIZE)
		return false;
	if (*digits == '-' || *digits == '+')
		digits++;

	/* strtoll() would skip blanks, and take a second sign. */
	if (*digits < '0' || *digits > '9')
		return false;
	errno = 0;
	value = strtoll(child + strlen(ELEMENT_PREFIX), &end, 10);
	if (errno != 0 || *end != '\0')
		return false;
	*number = value;
	return true;
}

static int
compare_elements(const void *a, const void *b)
{
	const ElementName *x = a;
	const ElementName *y = b;

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return strcmp(x->name, y->name);
}

/*
 * Picks the elements out of the n children of a queue's path and puts them in their order, the
 * one to be taken next first.
 *
 *	elements	has room for n; gets pointers into "children"
 *
 * Returns how many there are.
 */
int
element_name_sort(char *const *children, int n, ElementName *elements)
{
	int count = 0;

	for (int i = 0; i < n; i++)
	{
		elements[count].name = children[i];
		if (element_name_read(children[i], &elements[count].number))
			count++;
	}
	qsort(elements, (size_t) count, sizeof(ElementName), compare_elements);
	return count;
}

/* ------------------------------------------------------------------------
 * Contenders in the data of nodes
 *
 * The data is what backend/display.c writes: a JSON object whose first member is the
 * version, with strings and numbers and no space between them; or, for Hive's names,
 * fields separated by colons.  In such an object a quotation mark within a string has a
 * backslash before it, so no string looks like the beginning of a member.
 *
 * Any client can write anything into a node.  Nothing relies on it, so data that only begin
 * and end like ours are taken for ours.  They are read here, in a few lines that cannot
 * fail, and not by PostgreSQL's JSON functions, which raise errors: a session that waits
 * for a node must not end because of its data.
 * ------------------------------------------------------------------------
 */

#define HIVE_PREFIX "zklock-"
#define HIVE_USER " user "
#define HIVE_APPLICATION " application "

/* How a member's value of the JSON object begins */
#define STRING_MEMBER(name) ",\"" name "\":\""
#define NUMBER_MEMBER(name) ",\"" name "\":"

static void
copy_text(char dst[NODE_CONTENDER_TEXT], const char *from, const char *to)
{
	size_t len = (size_t) (to - from);

	if (len > NODE_CONTENDER_TEXT - 1)
	{
		/* No half characters */
		len = NODE_CONTENDER_TEXT - 1;
		while (len > 0 && ((unsigned char) from[len] & 0xC0) == 0x80)
			len--;
	}
	memcpy(dst, from, len);
	dst[len] = '\0';
}

/*
 * Reads a string, which is empty if there is no such member.  The only escapes are \" and \\
 * and those of control characters, which are all read as line feeds.
 */
static void
read_string(char dst[NODE_CONTENDER_TEXT], const char *data, const char *member)
{
	const char *found = strstr(data, member);
	const char *c = found ? found + strlen(member) : "";
	char		text[NODE_CONTENDER_TEXT + 1];
	size_t		len = 0;

	while (*c != '\0' && *c != '"' && len < sizeof(text) - 1)
	{
		bool escaped = *c == '\\' && c[1] != '\0';

		c += escaped;
		text[len++] = escaped && *c != '"' && *c != '\\' ? '\n' : *c;
		c++;
	}
	text[len] = '\0';
	copy_text(dst, text, text + len);
}

/* Reads a positive number; 0 if there is no such member. */
static int32_t
read_positive(const char *data, const char *member)
{
	const char *found = strstr(data, member);
	long long	value = found ? strtoll(found + strlen(member), NULL, 10) : 0;

	return value > 0 && value <= INT32_MAX ? (int32_t) value : 0;
}

/* zklock-<pid>:<time>:<how>:database <name> user <name> application <name>:<server> */
static bool
read_hive(const char *data, NodeContender *read)
{
	int			pid;
	int			query = 0;
	const char *end;
	const char *user;
	const char *application;

	if (sscanf(data, HIVE_PREFIX "%9d:%*[0-9]:%*[A-Z]:%n", &pid, &query) != 1 || query == 0 || pid <= 0)
		return false;
	end = strchr(data + query, ':');
	if (end == NULL || strchr(end + 1, ':') != NULL)
		return false;
	read->pid = pid;
	copy_text(read->server, end + 1, end + strlen(end));
	user = strstr(data + query, HIVE_USER);
	application = user ? strstr(user, HIVE_APPLICATION) : NULL;
	if (application && application + strlen(HIVE_APPLICATION) <= end)
	{
		copy_text(read->user, user + strlen(HIVE_USER), application);
		copy_text(read->application, application + strlen(HIVE_APPLICATION), end);
	}
	return true;
}

/*
 * Reads a node's data, which may be any, up to a NUL.  Returns false if it is not of the form
 * that zklock writes; then *read is all zero.
 */
bool
node_contender_read(const char *data, NodeContender *read)
{
	int32_t pid = read_positive(data, NUMBER_MEMBER("pid"));
	int32_t port = read_positive(data, NUMBER_MEMBER("port"));
	char	host[NODE_CONTENDER_TEXT];

	*read = (NodeContender){.pid = 0};
	if (!node_contender_has_version(data, strlen(data)))
		return read_hive(data, read);
	if (pid == 0 || port == 0 || data[strlen(data) - 1] != '}')
		return false;
	read->pid = pid;
	read_string(host, data, STRING_MEMBER("host"));
	read_string(read->server, data, STRING_MEMBER("server"));
	read_string(read->user, data, STRING_MEMBER("user"));
	read_string(read->application, data, STRING_MEMBER("application_name"));
	read->reservation = strstr(data, STRING_MEMBER("scope") "reservation\"") != NULL;
	if (read->server[0] == '\0' && host[0] != '\0')
		snprintf(read->server, NODE_CONTENDER_TEXT, "%.240s:%d", host, (int) port);
	return true;
}

/* Returns true if data of len bytes, which may be any, or NULL, begin like that, and go on. */
static bool
begins_with(const char *data, size_t len, const char *beginning)
{
	return data && len > strlen(beginning) && memcmp(data, beginning, strlen(beginning)) == 0;
}

/*
 * Returns true if zklock wrote the data of a node, which has len bytes, which may be any, or
 * is NULL.  No text of a user can stand where the version does.
 */
bool
node_contender_has_version(const char *data, size_t len)
{
	static const char beginning[] = "{\"" NODE_CONTENDER_MEMBER "\":\"";

	return begins_with(data, len, beginning) && data[strlen(beginning)] >= '1' &&
		   data[strlen(beginning)] <= '9';
}

/* How data written by zklock begins, and that of a node that is about to be deleted */
static const char own_beginning[] = "{\"" NODE_CONTENDER_MEMBER "\":\"" NODE_CONTENDER_VERSION "\",";
static const char broken_beginning[] = "{\"" NODE_CONTENDER_MEMBER "\":\"" NODE_CONTENDER_VERSION
									   "\",\"" NODE_CONTENDER_BROKEN "\":";

/*
 * Returns true if the data of a node says that zk_break_lock() deletes the node.  It has len
 * bytes, which may be any, or is NULL.
 */
bool
node_contender_is_broken(const char *data, size_t len)
{
	return begins_with(data, len, broken_beginning);
}

/*
 * Copies "data" into dst, with a member that says that zk_break_lock() deletes the node.  dst
 * has room for "data", "by" and NODE_CONTENDER_BROKEN_SIZE bytes.
 *
 *	by	who deletes it, as a JSON string
 *
 * Returns false if the data is not the JSON that zklock writes, or says so already.
 */
bool
node_contender_write_broken(char *dst, const char *data, const char *by)
{
	if (!begins_with(data, strlen(data), own_beginning) ||
		node_contender_is_broken(data, strlen(data)))
		return false;
	sprintf(dst, "%s%s,%s", broken_beginning, by, data + strlen(own_beginning));
	return true;
}
