/*-------------------------------------------------------------------------
 *
 * node_name.c
 *	  The names of lock nodes.
 *
 * A lock node is called <prefix><sequence>, where the server appends the sequence.  The
 * prefix either ends in a marker that shows the mode, or has one of a few fixed forms.  The
 * marker must stand right before the sequence: anywhere else, it means nothing.
 *
 * Pure C: runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/node_name.h"

#include <stdio.h>
#include <string.h>

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

/* Character classes in ASCII, whatever the locale of the process is. */
static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
is_alphanumeric(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Returns the part of a name behind the last marker, or NULL. */
const char *
node_name_after_last(const char *name, const char *marker)
{
	const char *part = NULL;

	while ((name = strstr(name, marker)) != NULL)
	{
		part = name + strlen(marker);
		name++;
	}
	return part;
}

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
		if (!is_digit(text[i]))
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
 * Splits a name of len bytes into prefix and sequence.
 *
 * The sequence is what a server makes of a 32-bit signed integer: the last ten digits and
 * perhaps a sign.  A hyphen before the digits is a sign only if no letter or digit stands
 * before it; otherwise it belongs to the prefix, as in "lock-0000000005" against
 * "lock--2147483648".
 *
 * Returns false if there is no such sequence.
 */
static bool
split_sequence(const char *name, size_t len, size_t *prefix_len, int64_t *sequence)
{
	size_t digits = len - SEQUENCE_DIGITS;

	if (len < SEQUENCE_DIGITS || name[digits] == '-')
		return false;
	if (digits > 0 && name[digits - 1] == '-' && (digits == 1 || !is_alphanumeric(name[digits - 2])))
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
	if (id_len == SESSION_ID_HEX_DIGITS && strspn(id, "0123456789abcdefABCDEF") == id_len)
		return true;
	if (id[0] == '-')
	{
		id++;
		id_len--;
	}
	return id_len > 0 && id_len <= SESSION_ID_DIGITS && strspn(id, "0123456789") == id_len;
}

/* Returns the value of a hexadecimal digit, or -1. */
static int
hex_value(char c)
{
	if (is_digit(c))
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
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
		if (name[i] == '-')
			continue;
		if (hex_value(name[i]) < 0)
			return false;
		uuid[found / 2] |= hex_value(name[i]) << (found % 2 == 0 ? 4 : 0);
		found++;
	}
	return found == digits;
}

/* Returns true if the prefix is one that we give to an exclusive node that may be kept. */
static bool
may_be_kept(const char *name, size_t prefix_len, NodeDialect dialect)
{
	uint8_t uuid[ZKLOCK_UUID_BYTES];
	char	prefix[ZKLOCK_MAX_NODE_NAME + 1];

	if (!read_uuid(name, prefix_len, dialect, uuid) || uuid[6] >> 4 != UUID_VERSION_KEPT)
		return false;
	node_name_prefix(prefix, sizeof(prefix), dialect, LOCK_MODE_EXCLUSIVE, uuid);
	return strlen(prefix) == prefix_len && memcmp(name, prefix, prefix_len) == 0;
}

/*
 * Reads the name of a child of a lock path.
 *
 * Returns true and fills *parsed if the node contends for the lock in any dialect; else
 * returns false and leaves *parsed alone.
 *
 * Where a client of the dialect in question would accept more than it writes, so does this
 * function: to wait for a node that is no contender costs time, to overlook one that is costs
 * exclusion.
 */
bool
node_name_parse(const char *name, NodeName *parsed)
{
	size_t	prefix_len;
	int64_t sequence;
	size_t	i;

	if (!split_sequence(name, strlen(name), &prefix_len, &sequence))
		return false;

	for (i = 0; i < sizeof(markers) / sizeof(markers[0]); i++)
	{
		const Marker *marker = &markers[i];
		size_t		  marker_len = strlen(marker->text);

		if (prefix_len < marker_len || (marker->whole && prefix_len != marker_len))
			continue;
		if (memcmp(name + prefix_len - marker_len, marker->text, marker_len) == 0)
		{
			*parsed = (NodeName){.mode = marker->mode,
								 .sequence = sequence,
								 .dialect = marker->dialect,
								 .kept = may_be_kept(name, prefix_len, marker->dialect)};
			return true;
		}
	}

	if (!is_recipe_prefix(name, prefix_len))
		return false;
	*parsed = (NodeName){.mode = LOCK_MODE_EXCLUSIVE,
						 .sequence = sequence,
						 .dialect = DIALECT_ZOOKEEPER,
						 .kept = may_be_kept(name, prefix_len, DIALECT_ZOOKEEPER)};
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

	return split_sequence(name, strlen(name), &prefix_len, &sequence);
}

/*
 * Writes the name to give to a sequential create into dst, which has room for size bytes: all
 * of the node's name but the sequence.
 *
 * ZKLOCK_MAX_NODE_NAME + 1 bytes are always enough, with the sequence too.  If there are fewer
 * than needed, the name is cut off (and no use), but always terminated.
 */
void
node_name_prefix(char *dst, size_t size, NodeDialect dialect, LockMode mode,
				 const uint8_t uuid[ZKLOCK_UUID_BYTES])
{
	const DialectName *name = &dialects[dialect][mode];
	char			   text[UUID_TEXT_SIZE];

	uuid_format(text, sizeof(text), uuid, name->uuid);
	snprintf(dst, size, "%s%s%s", name->before, text, name->after);
}

/*
 * Returns true if a name that we give to a node in this dialect can become another node's.
 * Then a node must be looked at before it is taken for the one that was meant.
 */
bool
node_name_is_reusable(NodeDialect dialect)
{
	return dialects[dialect][LOCK_MODE_EXCLUSIVE].uuid == UUID_NONE;
}

/*
 * Writes the name of the shared node that replaces an exclusive one of ours into dst, which
 * has room for size bytes.  It has the same sequence and, as far as the dialect allows, the
 * same UUID; so the one name follows from the other.
 *
 * Returns false if name is not one that we give to an exclusive node.
 */
bool
node_name_downgraded(char *dst, size_t size, NodeDialect dialect, const char *name)
{
	uint8_t uuid[ZKLOCK_UUID_BYTES];
	char	prefix[ZKLOCK_MAX_NODE_NAME + 1];
	size_t	prefix_len;
	int64_t sequence;
	int		written;

	if (!split_sequence(name, strlen(name), &prefix_len, &sequence) ||
		!read_uuid(name, prefix_len, dialect, uuid))
		return false;
	node_name_prefix(prefix, sizeof(prefix), dialect, LOCK_MODE_SHARED, uuid);
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
