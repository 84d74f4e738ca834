/*
 * parts.h
 *		What the files of the model of ZooKeeper offer each other.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef SIMULATE_PARTS_H
#define SIMULATE_PARTS_H

#include "model.h"

/* tree.c: a tree is its root, and belongs to all who have it; it is released as often as retained */
extern ModelNode *tree_new(void);
extern ModelNode *tree_retain(ModelNode *tree);
extern void		  tree_release(ModelNode *tree);
extern ModelNode *tree_find(ModelNode *tree, const char *path);
extern int		  tree_check(ModelNode *tree, ModelOp *op);
extern ModelNode *tree_after(ModelNode *tree, const ModelPacket *packet, ModelOp *op);

/* packet.c: packets, and the queues that they wait in */
extern char		   *bytes_copy(const char *data, int length); /* with a 0 behind them */
extern void			queue_push(ModelQueue *queue, ModelPacket *packet);
extern ModelPacket *queue_pop(ModelQueue *queue); /* to be released; NULL if it is empty */
extern void			queue_clear(ModelQueue *queue);

/* NULL if it is empty */
static inline ModelPacket *
queue_first(const ModelQueue *queue)
{
	return queue->begin < queue->end ? queue->items[queue->begin] : NULL;
}

#endif /* SIMULATE_PARTS_H */
