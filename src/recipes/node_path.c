/*-------------------------------------------------------------------------
 *
 * node_path.c
 *	  Which paths a lock can have.
 *
 * The rules are those of ZooKeeper's PathUtils.validatePath(), made strict where a server
 * would misread the bytes or accept what no lock should use: the text must be well-formed
 * UTF-8, and the root and ZooKeeper's own tree are refused.  No server finds a path
 * malformed that passes here.
 *
 * Pure C: runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/node_name.h"

#include <string.h>

#define RESERVED_COMPONENT "zookeeper"
#define OWN_WAITS "zklock-waits"	   /* WAIT_RECORD_ROOT */
#define OWN_RECEIPTS "zklock-receipts" /* ELEMENT_RECEIPTS */

_Static_assert(ZKLOCK_MAX_PATH == 1023, "PATH_TOO_LONG names the limit");

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

/* Returns true if the text is a component to which file systems give a meaning. */
static bool
is_dot_component(const char *component, size_t len)
{
	return (len == 1 && component[0] == '.') ||
		   (len == 2 && component[0] == '.' && component[1] == '.');
}

/*
 * Returns true if a component of the path is recognised as a lock node.  Nodes created for
 * such a path would be contenders for a lock on its parent, and block it for ever.
 */
static bool
has_lock_node(const char *path, size_t len)
{
	size_t start = 1;

	while (start < len)
	{
		const char *slash = memchr(path + start, '/', len - start);
		size_t		end = slash ? (size_t) (slash - path) : len;
		char		name[ZKLOCK_MAX_PATH + 1] = "";
		NodeName	parsed;

		memcpy(name, path + start, end - start);
		if (node_name_parse(name, &parsed))
			return true;
		start = end + 1;
	}
	return false;
}

/* Returns true if the path is that of the given component of the root, or below it. */
static bool
is_below(const char *path, size_t len, const char *component)
{
	size_t component_len = strlen(component);

	return len >= component_len + 1 && memcmp(path + 1, component, component_len) == 0 &&
		   (len == component_len + 1 || path[component_len + 1] == '/');
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
	static const char dots[] = "A path must not have \".\" or \"..\" as a component.";

	const unsigned char *bytes = (const unsigned char *) path;
	size_t				 start = 1; /* where the current component begins */
	size_t				 pos = 1;

	if (len == 0)
		return "A path must not be empty.";
	if (path[0] != '/')
		return "A path must start with \"/\".";
	if (len == 1)
		return "The root \"/\" cannot be locked.";
	if (len > ZKLOCK_MAX_PATH)
		return PATH_TOO_LONG;

	while (pos < len)
	{
		uint32_t code;
		size_t	 used = utf8_decode(bytes + pos, len - pos, &code);

		if (used == 0)
			return "A path must be well-formed UTF-8.";
		if (code <= 0x1F || (code >= 0x7F && code <= 0x9F))
			return "A path must not contain control characters.";
		if ((code >= 0xD800 && code <= 0xF8FF) || code >= 0xFFF0)
			return "A path must not contain characters in the ranges U+D800 to U+F8FF and U+FFF0 to U+FFFF or beyond U+FFFF.";
		if (code == '/')
		{
			if (pos == start)
				return "A path must not contain \"//\".";
			if (is_dot_component(path + start, pos - start))
				return dots;
			start = pos + 1;
		}
		pos += used;
	}

	if (start == len)
		return "A path must not end with \"/\".";
	if (is_dot_component(path + start, len - start))
		return dots;

	if (is_below(path, len, RESERVED_COMPONENT))
		return "The path \"/zookeeper\" and all paths below it are reserved for ZooKeeper.";
	if (is_below(path, len, OWN_WAITS) || is_below(path, len, OWN_RECEIPTS))
		return "The paths \"/zklock-waits\" and \"/zklock-receipts\", and all paths below them, are reserved for zklock.";

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

	if (fault == NULL && has_lock_node(path, len))
		fault = "A path must not have a component that looks like a node of a lock, such as \"lock-0000000001\".";
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

	if (len == 0 || is_dot_component(name, len) || memchr(name, '/', len))
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
