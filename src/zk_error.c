/*
 * zk_error.c
 *		ZooKeeper's error codes, for messages.
 *
 * The numbers are part of its protocol.  Some are not in every release of the
 * client library.
 *
 * Runs in: any process.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "zk_client.h"

#define API_ERROR (-100) /* above it, something broke; below, something is refused */
#define UNIMPLEMENTED (-6)
#define INVALID_ACL (-114)

/* The name of an error code. */
const char *
zk_error_name(int code)
{
	static const struct
	{
		int			code;
		const char *name;
	} names[] = {
		{-1, "ZSYSTEMERROR"},
		{-2, "ZRUNTIMEINCONSISTENCY"},
		{-3, "ZDATAINCONSISTENCY"},
		{-4, "ZCONNECTIONLOSS"},
		{-5, "ZMARSHALLINGERROR"},
		{-6, "ZUNIMPLEMENTED"},
		{-7, "ZOPERATIONTIMEOUT"},
		{-8, "ZBADARGUMENTS"},
		{-9, "ZINVALIDSTATE"},
		{-100, "ZAPIERROR"},
		{-101, "ZNONODE"},
		{-102, "ZNOAUTH"},
		{-103, "ZBADVERSION"},
		{-108, "ZNOCHILDRENFOREPHEMERALS"},
		{-110, "ZNODEEXISTS"},
		{-111, "ZNOTEMPTY"},
		{-112, "ZSESSIONEXPIRED"},
		{-113, "ZINVALIDCALLBACK"},
		{-114, "ZINVALIDACL"},
		{-115, "ZAUTHFAILED"},
		{-116, "ZCLOSING"},
		{-117, "ZNOTHING"},
		{-118, "ZSESSIONMOVED"},
		{-119, "ZNOTREADONLY"},
		{-120, "ZEPHEMERALONLOCALSESSION"},
		{-121, "ZNOWATCHER"},
		{-124, "ZSESSIONCLOSEDREQUIRESASLAUTH"},
		{-125, "ZQUOTAEXCEEDED"},
		{-127, "ZTHROTTLEDOP"},
	};

	for (int i = 0; i < (int) lengthof(names); i++)
	{
		if (names[i].code == code)
			return names[i].name;
	}
	return psprintf("error %d", code);
}

/* Does the code mean that we lack a right? */
bool
zk_error_is_permission(int code)
{
	return code == ZK_NO_AUTH || code == ZK_AUTH_FAILED || code == INVALID_ACL ||
		   code == ZK_REQUIRES_AUTH;
}

/* Did something break, so that nobody knows what was done? */
bool
zk_error_is_breakdown(int code)
{
	return code > API_ERROR && code != UNIMPLEMENTED;
}
