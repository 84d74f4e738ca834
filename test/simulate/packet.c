/*
 * packet.c
 *		Packets in the model of ZooKeeper, the queues that they wait in, and watches, as a
 *		client and its server keep them.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "model.h"

ModelPacket *
model_packet(ModelKind kind, const char *path)
{
	ModelPacket *packet = calloc(1, sizeof(ModelPacket));

	model_add_op(packet, (ModelOp){kind, path, .version = -1});
	return packet;
}

/* The operation's texts are copied; there is a 0 behind the data. */
void
model_add_op(ModelPacket *packet, ModelOp op)
{
	op.path = strdup(op.path);
	op.length = op.data ? op.length : 0;
	if (op.data)
		op.data = memcpy(calloc(1, op.length + 1), op.data, op.length);
	packet->ops = realloc(packet->ops, (packet->nops + 1) * sizeof(ModelOp));
	packet->ops[packet->nops++] = op;
}

/* ------------------------------------------------------------------------
 * Queues
 * ------------------------------------------------------------------------
 */

void
queue_push(ModelQueue *queue, ModelPacket *packet)
{
	if (queue->begin == queue->end)
		queue->begin = queue->end = 0;
	if (queue->end == queue->room)
	{
		queue->room += queue->room + 8;
		queue->items = realloc(queue->items, queue->room * sizeof(ModelPacket *));
	}
	queue->items[queue->end++] = packet;
}

ModelPacket *
queue_pop(ModelQueue *queue)
{
	ModelPacket *packet = queue_first(queue);

	queue->begin += packet != NULL;
	return packet;
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
		*op = watches->ops[--watches->nops];
		found = true;
	}
	return found;
}

void
model_watch_set(ModelPacket *watches, const char *path, ModelWatchKind kind)
{
	(void) model_watch_take(watches, path, kind);
	model_add_op(watches, (ModelOp){MODEL_SET_WATCHES, path, .watch = kind});
}
