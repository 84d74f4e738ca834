/*
 * display.c
 *		Text for people: what messages and views say of ZooKeeper, and what nodes say of this
 *		session.
 *
 * A node's data describe the session that it stands for.  People who look for the holder of a
 * lock read them, and, in Hive's format, Hive's SHOW LOCKS does.  Anybody may read them, so
 * they have no secrets.  Anybody may write such data, too, and names of nodes: they are shown
 * if they are text.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "postmaster/postmaster.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* Number of bytes of a foreign node's data that are shown */
#define NODE_DATA_MAX 256

/* ------------------------------------------------------------------------
 * Messages and views
 * ------------------------------------------------------------------------
 */

/*
 * Returns a path in the server's encoding, from which it came.  The conversion needs a
 * transaction and may fail.
 */
char *
display_path(const char *path)
{
	return pg_any_to_server(path, strlen(path), PG_UTF8);
}

/*
 * Returns UTF-8 of any origin in the database's encoding.  A path locked from a database of
 * another encoding, or a foreign node's name, may have no form in ours.  Its bytes are
 * escaped then, so that it does not make a view or a wait fail.
 */
char *
display_utf8(const char *utf8)
{
	StringInfoData escaped;

	if (GetDatabaseEncoding() == PG_UTF8 && pg_verify_mbstr(PG_UTF8, utf8, strlen(utf8), true))
		return pstrdup(utf8);

	initStringInfo(&escaped);
	for (const char *c = utf8; *c != '\0'; c++)
	{
		if (IS_HIGHBIT_SET(*c))
			appendStringInfo(&escaped, "\\x%02x", (unsigned char) *c);
		else
			appendStringInfoChar(&escaped, *c);
	}
	return escaped.data;
}

/*
 * Returns text that anybody may have written, of any bytes, or NULL if it cannot be shown: it
 * is not valid UTF-8, or has control characters, those from U+0080 on included.
 */
char *
display_foreign(const char *text)
{
	if (text[0] == '\0' || !pg_verify_mbstr(PG_UTF8, text, strlen(text), true))
		return NULL;
	for (const unsigned char *c = (const unsigned char *) text; *c != '\0'; c++)
	{
		if (c[0] < 0x20 || c[0] == 0x7F || (c[0] == 0xC2 && c[1] < 0xA0))
			return NULL;
	}
	return display_utf8(text);
}

/*
 * Returns the beginning of a node's data, or NULL if it cannot be shown; a NUL is a control
 * character, too.
 */
char *
display_node_data(const char *data, int len)
{
	if (len > NODE_DATA_MAX)
		len = pg_encoding_mbcliplen(PG_UTF8, data, len, NODE_DATA_MAX);
	return memchr(data, '\0', len) ? NULL : display_foreign(pnstrdup(data, len));
}

/*
 * Returns why ZooKeeper cannot grant anything at the moment, between two texts, or "" if it can.
 * Does not raise errors.
 */
const char *
display_outage(const char *before, const char *after)
{
	SessionInfo session;
	const char *outage = "ZooKeeper cannot be reached";

	if (zklock_worker_pid() == 0)
		return psprintf("%s%s, since the zklock worker is not running%s", before, outage, after);
	session_info_read(&session);
	if (session.state == SESSION_CONNECTED && lease_state() == LEASE_HOLDS)
		return "";
	if (session.state == SESSION_CONNECTED)
		outage = psprintf("ZooKeeper server %s is connected, but the session is not proved to be alive",
						  session.server);
	else if (session.last_error[0] != '\0')
		outage = psprintf("%s; the last error, at %s, was: %s", outage,
						  timestamptz_to_str(session.last_error_at),
						  display_utf8(session.last_error));
	return psprintf("%s%s%s", before, outage, after);
}

/* ------------------------------------------------------------------------
 * The data of a node
 * ------------------------------------------------------------------------
 */

/*
 * Converts a string in the server's encoding to UTF-8.  If that might fail, non-ASCII
 * characters become question marks: this is for humans, and no reason to refuse a lock.
 */
static char *
to_utf8(const char *value)
{
	int	  encoding = GetDatabaseEncoding();
	char *utf8;

	if (encoding == PG_LATIN1 ||
		(encoding == PG_UTF8 && pg_verify_mbstr(PG_UTF8, value, strlen(value), true)))
		return pg_server_to_any(value, strlen(value), PG_UTF8);
	utf8 = pstrdup(value);
	for (char *c = utf8; *c != '\0'; c++)
	{
		if (IS_HIGHBIT_SET(*c))
			*c = '?';
	}
	return utf8;
}

static void
append_member(StringInfo json, const char *name, const char *value)
{
	if (value == NULL || value[0] == '\0')
		return;
	appendStringInfo(json, "%s\"%s\":", json->len > 1 ? "," : "", name);
	escape_json(json, to_utf8(value));
}

/* Returns text for one of Hive's fields, which must not contain colons. */
static char *
hive_words(const char *text)
{
	char *words = text ? pstrdup(to_utf8(text)) : pstrdup("");
	char *end = words;

	for (const char *c = words; *c != '\0'; c++)
	{
		if (*c != ':')
			*end++ = *c;
	}
	*end = '\0';
	return words;
}

/*
 * Describes this session as JSON, or, for Hive, as fields separated by colons.
 *
 *	attempt	names the attempt to create the node, which tells the node from others of its
 *			name; or NULL
 *
 * Returns a string of less than ZKLOCK_NODE_DATA_SIZE bytes, in the current memory context.
 */
char *
node_data_compose(NodeDialect dialect, LockScope scope, const char *attempt)
{
	StringInfoData json;
	char		  *server = zklock_own_name();
	TimestampTz	   now = GetCurrentTimestamp();
	char		   started[MAXDATELEN + 1];

	/*
	 * Hive shows its users: query id, time in ms, whether somebody asked for the lock or it
	 * came with a query, the query, and the client.
	 */
	if (dialect == DIALECT_HIVE)
	{
		int64 ms = now / 1000 + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * INT64CONST(86400000);
		char *named = attempt ? psprintf(" attempt %s", attempt) : "";
		char *data =
			psprintf("zklock-%d:" INT64_FORMAT ":%s:database %s%s user %s application %s:%s",
					 MyProcPid, ms, scope == LOCK_SCOPE_TRANSACTION ? "IMPLICIT" : "EXPLICIT",
					 hive_words(get_database_name(MyDatabaseId)), named,
					 hive_words(GetUserNameFromId(GetUserId(), true)),
					 hive_words(application_name), hive_words(server));

		if (strlen(data) < ZKLOCK_NODE_DATA_SIZE)
			return data;
		return psprintf("zklock-%d:" INT64_FORMAT ":EXPLICIT:zklock%s:", MyProcPid, ms, named);
	}

	JsonEncodeDateTime(started, TimestampTzGetDatum(now), TIMESTAMPTZOID, NULL);
	initStringInfo(&json);
	for (bool brief = false;; brief = true)
	{
		/*
		 * What a node says in any case: which process this is, and where.  The members that
		 * other servers rely on come first: see node_contender_read().  Host and port distinguish
		 * servers of the same name, like a standby made of a copy of its primary.
		 */
		appendStringInfoChar(&json, '{');
		append_member(&json, NODE_CONTENDER_MEMBER, NODE_CONTENDER_VERSION);
		append_member(&json, "server", brief ? NULL : server);
		append_member(&json, "host", zklock_host_name());
		appendStringInfo(&json, ",\"port\":%d,\"pid\":%d", PostPortNumber, MyProcPid);
		append_member(&json, "attempt", attempt);
		if (!brief)
		{
			append_member(&json, "scope", scope == LOCK_SCOPE_RESERVATION ? "reservation" : NULL);
			append_member(&json, "started", started);
			append_member(&json, "database", get_database_name(MyDatabaseId));
			append_member(&json, "user", GetUserNameFromId(GetUserId(), true));
			append_member(&json, "application_name", application_name);
		}
		appendStringInfoChar(&json, '}');
		if (brief || json.len < ZKLOCK_NODE_DATA_SIZE)
			return json.data;
		resetStringInfo(&json);
	}
}

/*
 * Returns text that nobody else has, to recognise a node or an attempt by: a new UUID, in
 * hexadecimal.
 *
 *	uuid	is set to its bytes, unless it is NULL
 */
char *
node_data_unique(uint8 *uuid)
{
	const pg_uuid_t *made = DatumGetUUIDP(DirectFunctionCall1(gen_random_uuid, (Datum) 0));
	char			 text[2 * ZKLOCK_UUID_BYTES + 1];

	if (uuid)
		memcpy(uuid, made->data, ZKLOCK_UUID_BYTES);
	uuid_format(text, sizeof(text), made->data, UUID_HEX);
	return pstrdup(text);
}
