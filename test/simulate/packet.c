/*
 * packet.c
 *		Packets in the model of ZooKeeper, the queues that they wait in, and watches, as a
 *		client and its server keep them.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "parts.h"

#include <stdlib.h>
#include <string.h>

char *
bytes_copy(const char *data, int length)
{
	char *copied = malloc(length + 1);

	memcpy(copied, data, length);
	copied[length] = '\0';
	return copied;
}

/* ------------------------------------------------------------------------
 * Packets
 * ------------------------------------------------------------------------
 */

ModelPacket *
model_packet(ModelKind kind, const char *path)
{
	ModelPacket *packet = calloc(1, sizeof(ModelPacket));

	(void) model_add_op(packet, kind, path);
	return packet;
}

ModelOp *
model_add_op(ModelPacket *packet, ModelKind kind, const char *path)
{
	ModelOp *op;

	packet->ops = realloc(packet->ops, (packet->nops + 1) * sizeof(ModelOp));
	op = &packet->ops[packet->nops++];
	*op = (ModelOp){.kind = kind, .path = strdup(path), .version = -1};
	return op;
}

void
model_op_data(ModelOp *op, const char *data, int length)
{
	op->data = data ? bytes_copy(data, length) : NULL;
	op->length = data ? length : 0;
}

/* It has no operations any more. */
void
model_packet_clear(ModelPacket *packet)
{
	for (int i = 0; i < packet->nops; i++)
	{
		free(packet->ops[i].path);
		free(packet->ops[i].data);
		tree_release(packet->ops[i].node);
	}
	free(packet->ops);
	packet->ops = NULL;
	packet->nops = 0;
}

void
model_release(ModelPacket *packet)
{
	if (--packet->nqueues > 0)
		return;
	model_packet_clear(packet);
	tree_release(packet->tree);
	free(packet);
}

/* ------------------------------------------------------------------------
 * Queues
 * ------------------------------------------------------------------------
 */

void
queue_push(ModelQueue *queue, ModelPacket *packet)
{
	if (queue->end == queue->room)
	{
		queue->room = queue->room > 0 ? 2 * queue->room : 8;
		queue->items = realloc(queue->items, queue->room * sizeof(ModelPacket *));
	}
	queue->items[queue->end++] = packet;
	packet->nqueues++;
}

/* The room of what has been popped is used again when the queue is empty, or half of it is free. */
ModelPacket *
queue_pop(ModelQueue *queue)
{
	ModelPacket *packet = queue_first(queue);

	if (packet == NULL)
		return NULL;
	queue->begin++;
	if (queue->begin == queue->end || queue->begin > queue->room / 2)
	{
		queue->end -= queue->begin;
		memmove(queue->items, queue->items + queue->begin, queue->end * sizeof(ModelPacket *));
		queue->begin = 0;
	}
	return packet;
}

void
queue_clear(ModelQueue *queue)
{
	ModelPacket *packet;

	while ((packet = queue_pop(queue)) != NULL)
		model_release(packet);
	free(queue->items);
	*queue = (ModelQueue){0};
}

/* ------------------------------------------------------------------------
 * Watches
 * ------------------------------------------------------------------------
 */

/* Which kinds of watches an event fires */
ModelWatchKind
model_event_fires(int event)
{
	if (event == ZOO_DELETED_EVENT)
		return MODEL_WATCH_DATA | MODEL_WATCH_CHILDREN;
	return event == ZOO_CHILD_EVENT ? MODEL_WATCH_CHILDREN : MODEL_WATCH_DATA;
}

bool
model_watch_has(const ModelPacket *watches, const char *path, ModelWatchKind kinds)
{
	for (int i = 0; i < watches->nops; i++)
	{
		if ((watches->ops[i].watch & kinds) != 0 && strcmp(watches->ops[i].path, path) == 0)
			return true;
	}
	return false;
}

/* Removes watches of a path, of these kinds; returns whether there was any. */
bool
model_watch_take(ModelPacket *watches, const char *path, ModelWatchKind kinds)
{
	bool found = false;

	for (int i = watches->nops - 1; i >= 0; i--)
	{
		ModelOp *op = &watches->ops[i];

		if ((op->watch & kinds) == 0 || strcmp(op->path, path) != 0)
			continue;
		free(op->path);
		*op = watches->ops[--watches->nops];
		found = true;
	}
	return found;
}

void
model_watch_set(ModelPacket *watches, const char *path, ModelWatchKind kind)
{
	(void) model_watch_take(watches, path, kind);
	model_add_op(watches, MODEL_SET_WATCHES, path)->watch = kind;
}
