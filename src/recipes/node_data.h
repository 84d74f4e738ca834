/*-------------------------------------------------------------------------
 *
 * node_data.h
 *	  Who the data of a zklock node says it is.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NODE_DATA_H
#define ZKLOCK_NODE_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODE_DATA_TEXT 256 /* bytes of a text, with its NUL; what is longer is clipped */

/* Texts are empty if the data does not tell, and of any bytes. */
typedef struct NodeData
{
	char	server[NODE_DATA_TEXT];
	int32_t pid;
	char	user[NODE_DATA_TEXT];
	char	application[NODE_DATA_TEXT];
} NodeData;

extern bool node_data_read(const char *data, size_t len, NodeData *read);

#endif /* ZKLOCK_NODE_DATA_H */
