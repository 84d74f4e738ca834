/*
 * node_data.c
 *		The data of a node, which describe the session that it stands for.
 *
 * People who look for the holder of a lock read them, and, in Hive's format, Hive's SHOW
 * LOCKS does.  Anybody may read them, so they have no secrets.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/request.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "mb/pg_wchar.h"
#include "postmaster/postmaster.h"
#include "shared/settings.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

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
 * Describes this session in the format that Hive reads and shows to its users: query id, time
 * in ms, whether somebody asked for the lock or it came with a query, the query, and the
 * client, separated by colons.
 */
static char *
hive_data(const char *server, LockScope scope, const char *attempt)
{
	int64 now = GetCurrentTimestamp() / 1000 +
				(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * INT64CONST(86400000);
	char *named = attempt ? psprintf(" attempt %s", attempt) : "";
	char *data = psprintf("zklock-%d:" INT64_FORMAT ":%s:database %s%s user %s application %s:%s",
						  MyProcPid, now, scope == LOCK_SCOPE_TRANSACTION ? "IMPLICIT" : "EXPLICIT",
						  hive_words(get_database_name(MyDatabaseId)), named,
						  hive_words(GetUserNameFromId(GetUserId(), true)),
						  hive_words(application_name), hive_words(server));

	if (strlen(data) < ZKLOCK_NODE_DATA_SIZE)
		return data;
	return psprintf("zklock-%d:" INT64_FORMAT ":EXPLICIT:zklock%s:", MyProcPid, now, named);
}

/*
 * Writes what a node says in any case: which process this is, and where.  The members that
 * other servers rely on come first: see node_contender.c.
 *
 *	server	its name, or NULL
 *	attempt	see node_data_compose()
 */
static void
begin_object(StringInfo json, const char *server, const char *attempt)
{
	appendStringInfoChar(json, '{');
	append_member(json, NODE_CONTENDER_MEMBER, NODE_CONTENDER_VERSION);
	append_member(json, "server", server);
	append_member(json, "host", zklock_host_name());
	appendStringInfo(json, ",\"port\":%d,\"pid\":%d", PostPortNumber, MyProcPid);
	append_member(json, "attempt", attempt);
}

/*
 * Describes this session as JSON, or, for Hive, as fields separated by colons.  Host and port
 * distinguish servers of the same name, like a standby made of a copy of its primary.
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
	char		   started[MAXDATELEN + 1];

	if (dialect == DIALECT_HIVE)
		return hive_data(server, scope, attempt);

	JsonEncodeDateTime(started, TimestampTzGetDatum(GetCurrentTimestamp()), TIMESTAMPTZOID, NULL);

	initStringInfo(&json);
	begin_object(&json, server, attempt);
	append_member(&json, "scope", scope == LOCK_SCOPE_RESERVATION ? "reservation" : NULL);
	append_member(&json, "started", started);
	append_member(&json, "database", get_database_name(MyDatabaseId));
	append_member(&json, "user", GetUserNameFromId(GetUserId(), true));
	append_member(&json, "application_name", application_name);
	appendStringInfoChar(&json, '}');

	if (json.len >= ZKLOCK_NODE_DATA_SIZE)
	{
		resetStringInfo(&json);
		begin_object(&json, NULL, attempt);
		appendStringInfoChar(&json, '}');
	}
	return json.data;
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
