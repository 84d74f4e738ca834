/*
 * cppcheck.h
 *		What cppcheck must know of PostgreSQL's macros, instead of its headers.
 *
 * Copyright (c) 2026, zklock contributors
 */
#define ERROR 21
#define LOG 15
#define WARNING 19
#define DEBUG1 14
#define DEBUG2 13
#define INT64_FORMAT "%ld"
#define ereport(level, ...) \
	do \
	{ \
		if ((level) >= ERROR) \
			abort(); \
	} while (0)
#define elog(level, ...) ereport(level, 0)
#define PG_RE_THROW() abort()
#define dlist_foreach(iter, head) for (dlist_init(&iter, head); dlist_more(&iter);)
#define dlist_foreach_modify(iter, head) for (dlist_init(&iter, head); dlist_more(&iter);)
#define PG_FUNCTION_INFO_V1(name) Datum name(FunctionCallInfo fcinfo)
#define PG_FUNCTION_ARGS FunctionCallInfo fcinfo
#define FLEXIBLE_ARRAY_MEMBER
#define PGDLLEXPORT
#define PG_USED_FOR_ASSERTS_ONLY
#define pg_attribute_aligned(bytes)
#define StaticAssertDecl(condition, message) struct unused
#define COMPAT_MODULE_MAGIC(name, version) struct unused
#define ZOO_NO_LOG_CLIENTENV 2
