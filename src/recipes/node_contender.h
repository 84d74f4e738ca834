/*-------------------------------------------------------------------------
 *
 * node_contender.h
 *	  Who the data of a zklock node says it is.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NODE_CONTENDER_H
#define ZKLOCK_NODE_CONTENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODE_CONTENDER_TEXT 256 /* bytes of a text, with its NUL; what is longer is clipped */

/* Texts are empty if the data does not tell, and of any bytes. */
typedef struct NodeContender
{
	char	server[NODE_CONTENDER_TEXT];
	int32_t pid;
	char	user[NODE_CONTENDER_TEXT];
	char	application[NODE_CONTENDER_TEXT];
} NodeContender;

/* The first member of a zklock node's JSON: the version */
#define NODE_CONTENDER_MEMBER "zklock"
#define NODE_CONTENDER_VERSION "1.0"

/* The second member, if zk_break_lock() is about to delete the node: who called it */
#define NODE_CONTENDER_BROKEN "broken_by"
#define NODE_CONTENDER_BROKEN_SIZE 16 /* bytes that the member has besides its value */

extern bool node_contender_tells_version(const char *data, size_t len);
extern bool node_contender_tells_broken(const char *data, size_t len);
extern bool node_contender_write_broken(char *dst, const char *data, const char *by);
extern bool node_contender_read(const char *data, NodeContender *read);

#endif /* ZKLOCK_NODE_CONTENDER_H */
