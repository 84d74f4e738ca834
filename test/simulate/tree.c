/*
 * tree.c
 *		Nodes in the model of ZooKeeper, and what an operation does to them.
 *
 * A tree never changes.  An operation makes another one, which shares with the former all
 * that is not on the way to the node concerned.  So the leader drops what a multi has done
 * if it fails, and a server that applies an entry of the log takes the tree that the leader
 * has made.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ModelNode *
tree_new(void)
{
	ModelNode *root = calloc(1, sizeof(ModelNode));

	root->refs = 1;
	root->path = strdup("/");
	return root;
}

ModelNode *
tree_retain(ModelNode *node)
{
	node->refs++;
	return node;
}

void
tree_release(ModelNode *node)
{
	if (node == NULL || --node->refs > 0)
		return;
	for (int i = 0; i < node->stat.numChildren; i++)
		tree_release(node->children[i]);
	free(node->children);
	free(node->path);
	free(node->data);
	free(node);
}

/* A node that nobody shares yet, with room for one more child */
static ModelNode *
copy_node(const ModelNode *node)
{
	ModelNode *copied = malloc(sizeof(ModelNode));
	int		   n = node->stat.numChildren;

	*copied = *node;
	copied->refs = 1;
	copied->path = strdup(node->path);
	copied->data = node->data ? bytes_copy(node->data, node->stat.dataLength) : NULL;
	copied->children = malloc((n + 1) * sizeof(ModelNode *));
	for (int i = 0; i < n; i++)
		copied->children[i] = tree_retain(node->children[i]);
	return copied;
}

/* ------------------------------------------------------------------------
 * Finding nodes
 * ------------------------------------------------------------------------
 */

/* Where the name behind a slash ends */
static size_t
name_end(const char *path, size_t slash)
{
	return slash + 1 + strcspn(path + slash + 1, "/");
}

/* Returns the number of the child of which the path has this length, or how many there are. */
static int
place_of(const ModelNode *parent, const char *path, size_t length)
{
	int place = 0;

	while (place < parent->stat.numChildren &&
		   (strncmp(parent->children[place]->path, path, length) != 0 ||
			parent->children[place]->path[length] != '\0'))
		place++;
	return place;
}

/* Returns the node of which the path has this length, or NULL. */
static ModelNode *
find(ModelNode *tree, const char *path, size_t length)
{
	for (size_t end = 0; length > 1 && end < length && tree;)
	{
		int place;

		end = name_end(path, end);
		place = place_of(tree, path, end);
		tree = place < tree->stat.numChildren ? tree->children[place] : NULL;
	}
	return tree;
}

ModelNode *
tree_find(ModelNode *tree, const char *path)
{
	return find(tree, path, strlen(path));
}

/* ------------------------------------------------------------------------
 * Operations
 * ------------------------------------------------------------------------
 */

static bool
is_ephemeral(const ModelOp *op)
{
	return op->mode == ZOO_EPHEMERAL || op->mode == ZOO_EPHEMERAL_SEQUENTIAL;
}

/* How many children it has had: creations and deletions count in its version. */
static int
creations(const ModelNode *node)
{
	return (node->stat.cversion + node->stat.numChildren) / 2;
}

static int
check_create(ModelNode *tree, ModelOp *op)
{
	const ModelNode *parent = find(tree, op->path, strrchr(op->path, '/') - op->path);

	if (parent == NULL)
		return ZNONODE;
	if (op->mode == ZOO_PERSISTENT_SEQUENTIAL || op->mode == ZOO_EPHEMERAL_SEQUENTIAL)
	{
		op->path = realloc(op->path, strlen(op->path) + sizeof("0123456789"));
		sprintf(op->path + strlen(op->path), "%010d", creations(parent));
	}
	if (tree_find(tree, op->path))
		return ZNODEEXISTS;
	return parent->owner != 0 ? ZNOCHILDRENFOREPHEMERALS : ZOK;
}

/* Returns why an operation cannot be done, or ZOK; completes the path of a sequential node. */
int
tree_check(ModelNode *tree, ModelOp *op)
{
	const ModelNode *node = tree_find(tree, op->path);

	if (op->kind == MODEL_CREATE)
		return check_create(tree, op);
	if (op->kind != MODEL_DELETE && op->kind != MODEL_SET && op->kind != MODEL_CHECK)
		return ZOK;
	if (node == NULL)
		return ZNONODE;
	if (op->version != -1 && op->version != node->stat.version)
		return ZBADVERSION;
	return op->kind == MODEL_DELETE && node->stat.numChildren > 0 ? ZNOTEMPTY : ZOK;
}

static ModelNode *
new_node(const ModelPacket *packet, const ModelOp *op)
{
	ModelNode *node = tree_new();

	node->container = op->mode == ZOO_CONTAINER;
	node->owner = is_ephemeral(op) ? packet->session->id : 0;
	node->stat = (struct Stat){.czxid = packet->zxid,
							   .pzxid = packet->zxid,
							   .ctime = packet->decided_at / 1000,
							   .version = -1,
							   .ephemeralOwner = node->owner};
	free(node->path);
	node->path = strdup(op->path);
	return node;
}

static void
set_data(ModelNode *node, const ModelPacket *packet, const ModelOp *op)
{
	free(node->data);
	node->data = op->data ? bytes_copy(op->data, op->length) : NULL;
	node->stat.dataLength = op->length;
	node->stat.mzxid = packet->zxid;
	node->stat.mtime = packet->decided_at / 1000;
	node->stat.version++;
}

/* Puts a child, or none if that is NULL, in the place of the one with this path. */
static void
put_child(ModelNode *parent, const char *path, ModelNode *child, int64_t zxid)
{
	int n = parent->stat.numChildren;
	int place = place_of(parent, path, strlen(path));

	if (place < n)
		tree_release(parent->children[place]);
	if (child)
		parent->children[place] = child;
	else
		parent->children[place] = parent->children[--parent->stat.numChildren];
	if (place == n)
		parent->stat.numChildren++;
	if (parent->stat.numChildren != n)
	{
		parent->stat.cversion++;
		parent->stat.pzxid = zxid;
	}
}

/* The tree with such a child, below the node of which the path ends with this slash */
static ModelNode *
tree_with(const ModelNode *tree, const char *path, size_t slash, ModelNode *child, int64_t zxid)
{
	ModelNode *copied = copy_node(tree);
	size_t	   end = name_end(path, slash);
	int		   place;

	if (path[end] == '\0')
		put_child(copied, path, child, zxid);
	else
	{
		place = place_of(tree, path, end);
		copied->children[place] = tree_with(tree->children[place], path, end, child, zxid);
		tree_release(tree->children[place]);
	}
	return copied;
}

/* Returns the tree after an operation that can be done, in the place of the former one. */
ModelNode *
tree_after(ModelNode *tree, const ModelPacket *packet, ModelOp *op)
{
	ModelNode *node = NULL;
	ModelNode *after;

	if (op->kind != MODEL_CREATE && op->kind != MODEL_SET && op->kind != MODEL_DELETE)
		return tree;
	if (op->kind == MODEL_CREATE)
		node = new_node(packet, op);
	if (op->kind == MODEL_SET)
		node = copy_node(tree_find(tree, op->path));
	if (node)
	{
		set_data(node, packet, op);
		op->node = tree_retain(node);
	}
	after = tree_with(tree, op->path, 0, node, packet->zxid);
	tree_release(tree);
	return after;
}
