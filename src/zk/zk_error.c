/*
 * zk_error.c
 *		Names and meanings of ZooKeeper's error codes.
 *
 * The numbers are part of ZooKeeper's protocol.  Not every release of the client library
 * has all of them.
 *
 * Runs in: any process.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "zk/zk_internal.h"

typedef struct ErrorCode
{
	int			code;
	const char *name;
	CallOutcome outcome;
} ErrorCode;

static const ErrorCode error_codes[] = {
	{0, "ZOK", CALL_OK},
	{-1, "ZSYSTEMERROR", CALL_REFUSED},
	{-2, "ZRUNTIMEINCONSISTENCY", CALL_UNKNOWN}, /* the library has given up the connection */
	{-3, "ZDATAINCONSISTENCY", CALL_REFUSED},
	{ZK_CONNECTION_LOSS, "ZCONNECTIONLOSS", CALL_UNKNOWN},
	{-5, "ZMARSHALLINGERROR", CALL_REFUSED},
	{ZUNIMPLEMENTED, "ZUNIMPLEMENTED", CALL_REFUSED},
	{-7, "ZOPERATIONTIMEOUT", CALL_UNKNOWN},
	{-8, "ZBADARGUMENTS", CALL_REFUSED},
	{-9, "ZINVALIDSTATE", CALL_UNKNOWN},
	{ZAPIERROR, "ZAPIERROR", CALL_REFUSED},
	{-101, "ZNONODE", CALL_NO_NODE},
	{ZK_NO_AUTH, "ZNOAUTH", CALL_REFUSED},
	{ZK_BAD_VERSION, "ZBADVERSION", CALL_REFUSED},
	{-108, "ZNOCHILDRENFOREPHEMERALS", CALL_NO_CHILDREN},
	{-110, "ZNODEEXISTS", CALL_NODE_EXISTS},
	{ZK_NOT_EMPTY, "ZNOTEMPTY", CALL_REFUSED},
	{ZK_EXPIRED, "ZSESSIONEXPIRED", CALL_UNKNOWN},
	{-113, "ZINVALIDCALLBACK", CALL_REFUSED},
	{ZINVALIDACL, "ZINVALIDACL", CALL_REFUSED},
	{ZK_AUTH_FAILED, "ZAUTHFAILED", CALL_REFUSED},
	{ZK_CLOSING, "ZCLOSING", CALL_UNKNOWN},
	{-117, "ZNOTHING", CALL_REFUSED},
	{-118, "ZSESSIONMOVED", CALL_UNKNOWN},
	{-119, "ZNOTREADONLY", CALL_REFUSED},
	{ZK_LOCAL_SESSION, "ZEPHEMERALONLOCALSESSION", CALL_REFUSED},
	{ZK_NO_WATCHER, "ZNOWATCHER", CALL_REFUSED},
	{ZK_REQUIRES_AUTH, "ZSESSIONCLOSEDREQUIRESASLAUTH", CALL_REFUSED},
	{ZK_QUOTA_EXCEEDED, "ZQUOTAEXCEEDED", CALL_REFUSED},
	{ZK_THROTTLED, "ZTHROTTLEDOP", CALL_REFUSED},
};

/* Returns the entry of a code, or NULL. */
static const ErrorCode *
find_code(int code)
{
	for (int i = 0; i < (int) lengthof(error_codes); i++)
	{
		if (error_codes[i].code == code)
			return &error_codes[i];
	}
	return NULL;
}

/* Returns the name of a code. */
const char *
zk_error_name(int code)
{
	const ErrorCode *known = find_code(code);

	return known ? known->name : psprintf("error %d", code);
}

/* Returns what became of a call that was answered with the code. */
CallOutcome
zk_error_outcome(int code)
{
	const ErrorCode *known = find_code(code);

	return known ? known->outcome : CALL_REFUSED;
}

/* Returns true if the code means that we lack a permission. */
bool
zk_error_is_permission(int code)
{
	return code == ZK_NO_AUTH || code == ZK_AUTH_FAILED || code == ZINVALIDACL ||
		   code == ZK_REQUIRES_AUTH;
}

/*
 * Returns true if the code means that something broke, so that it is not known what was
 * done.  The codes below ZAPIERROR are refusals.
 */
bool
zk_error_is_breakdown(int code)
{
	return code > ZAPIERROR && code != ZUNIMPLEMENTED;
}

/*
 * Returns a complaint of the client library about a server,
 * "Socket address:port zk retcode=..., errno=...(...): ...", as a sentence without its
 * period, palloc'd.  Returns a copy of any other complaint.
 *
 *	use		of the connection that the complaint is about
 */
char *
zk_error_sentence(const char *complaint, ConnectionUse use)
{
	char server[128];
	int	 code;
	int	 error;
	bool closed;

	/* Cyrus SASL's complaint about the empty answer of a server that cannot go on with it */
	if (strstr(complaint, "SASL negotiation: invalid parameter"))
		return pstrdup("SASL with ZooKeeper fails: its servers may not have it");
	if (sscanf(complaint, "Socket %127s zk retcode=%d, errno=%d(", server, &code, &error) != 3)
		return pstrdup(complaint);

	/* The library's word for the end of a connection is EHOSTDOWN. */
	closed = error == EHOSTDOWN || error == ECONNRESET || error == EPIPE;
	if (use == CONNECTION_SILENT || error == ETIMEDOUT)
		return psprintf("ZooKeeper server %s does not answer", server);
	if (code == ZSSLCONNECTIONERROR)
		return psprintf("TLS with ZooKeeper server %s fails", server);
	if (closed && use == CONNECTION_IN_USE)
		return psprintf("ZooKeeper server %s closed the connection", server);
	if (closed)
		return psprintf("ZooKeeper server %s closes new connections at once; it may have no quorum, lack data that we have seen (wiped or restored), demand TLS or refuse the certificate, or have reached its limit of connections per client (maxClientCnxns)",
						server);
	if (code == ZSESSIONEXPIRED)
		return psprintf("server %s says that the session is over", server);
	if (use == CONNECTION_IN_USE)
		return psprintf("lost the connection to ZooKeeper server %s: %s", server, strerror(error));
	return psprintf("could not connect to ZooKeeper server %s: %s", server, strerror(error));
}
