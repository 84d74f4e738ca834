/*
 * errand_list.c
 *		The answer to ERRAND_CONTENDERS: nodes, in the order of their queue.
 *
 * The list is a sequence of bytes without padding, since of most nodes there is
 * nothing but the name.  Both ends of its way are here.
 *
 * Runs in: the worker, which writes it, and backends, which read it.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "shared/errand_list.h"

/* Appends a node to a list. */
void
errand_list_put(StringInfo list, const ErrandNode *node)
{
	appendBinaryStringInfo(list, (const char *) &node->name_length, sizeof(node->name_length));
	appendBinaryStringInfo(list, node->name, node->name_length);
	appendStringInfoChar(list, node->was_read);
	if (!node->was_read)
		return;
	appendBinaryStringInfo(list, (const char *) &node->czxid, sizeof(node->czxid));
	appendBinaryStringInfo(list, (const char *) &node->ctime, sizeof(node->ctime));
	appendBinaryStringInfo(list, (const char *) &node->owner, sizeof(node->owner));
	appendBinaryStringInfo(list, (const char *) &node->data_length, sizeof(node->data_length));
	if (node->data_length > 0)
		appendBinaryStringInfo(list, node->data, node->data_length);
}

static const char *
take(const char **at, Size size)
{
	const char *taken = *at;

	*at += size;
	return taken;
}

/*
 * Reads the node at "*at" and goes on to the next.  Returns false at the end.
 * The texts stay in the list.
 */
bool
errand_list_next(const char **at, const char *end, ErrandNode *node)
{
	if (*at >= end)
		return false;
	memset(node, 0, sizeof(*node));
	memcpy(&node->name_length, take(at, sizeof(node->name_length)), sizeof(node->name_length));
	node->name = take(at, node->name_length);
	node->was_read = *take(at, 1) != 0;
	if (!node->was_read)
		return true;
	memcpy(&node->czxid, take(at, sizeof(node->czxid)), sizeof(node->czxid));
	memcpy(&node->ctime, take(at, sizeof(node->ctime)), sizeof(node->ctime));
	memcpy(&node->owner, take(at, sizeof(node->owner)), sizeof(node->owner));
	memcpy(&node->data_length, take(at, sizeof(node->data_length)), sizeof(node->data_length));
	node->data = take(at, node->data_length);
	return true;
}
