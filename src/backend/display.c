/*
 * display.c
 *		Paths, node data and states of ZooKeeper as text for messages and views.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "shared/session_info.h"
#include "utils/timestamp.h"

/* Number of bytes of a foreign node's data that are shown */
#define NODE_DATA_MAX 256

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
 * Returns the id of a ZooKeeper session as ZooKeeper's tools show it, or NULL if there is
 * none.
 */
char *
display_session(int64 id)
{
	return id != 0 ? psprintf("0x%llx", (unsigned long long) id) : NULL;
}

/*
 * Returns why ZooKeeper cannot grant anything at the moment, without a full stop, or NULL if
 * it can.  Does not raise errors.
 */
const char *
display_outage(void)
{
	SessionInfo session;

	if (zklock_worker_pid() == 0)
		return "ZooKeeper cannot be reached, since the zklock worker is not running";
	session_info_read(&session);
	if (session.state == SESSION_CONNECTED && lease_state() == LEASE_HOLDS)
		return NULL;
	if (session.state == SESSION_CONNECTED)
		return psprintf("ZooKeeper server %s is connected, but the session is not proved to be alive",
						session.server);
	if (session.last_error[0] == '\0')
		return "ZooKeeper cannot be reached";
	return psprintf("ZooKeeper cannot be reached; the last error, at %s, was: %s",
					timestamptz_to_str(session.last_error_at), display_utf8(session.last_error));
}

/*
 * Returns the same as the end of an error's context, after a colon; "" if there is no reason.
 */
const char *
display_outage_suffix(void)
{
	const char *outage = display_outage();

	return outage ? psprintf(": %s", outage) : "";
}
