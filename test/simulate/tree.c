/*
 * tree.c
 *		Nodes in the model of ZooKeeper, and what an operation does to them.
 *
 * A tree never changes.  An operation makes another one, which shares its nodes with the former
 * but for the node concerned and its parent.  So the leader drops what a multi has done
 * if it fails, and a server that applies an entry of the log takes the tree that the leader
 * has made.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "model.h"

static char *
parent_of(const char *path)
{
	size_t length = strrchr(path, '/') - path;

	return strndup(path, length > 0 ? length : 1);
}

ModelNode *
tree_find(const ModelTree *tree, const char *path)
{
	for (int i = 0; i < tree->n; i++)
	{
		if (strcmp(tree->nodes[i]->path, path) == 0)
			return tree->nodes[i];
	}
	return NULL;
}

/* ------------------------------------------------------------------------
 * Whether an operation can be done
 * ------------------------------------------------------------------------
 */

static int
check_create(const ModelTree *tree, ModelOp *op)
{
	const ModelNode *parent = tree_find(tree, parent_of(op->path));
	char			*path;

	if (parent == NULL)
		return ZNONODE;
	if (op->mode == ZOO_PERSISTENT_SEQUENTIAL || op->mode == ZOO_EPHEMERAL_SEQUENTIAL)
	{
		/* How many children it has had: creations and deletions count in its version. */
		asprintf(&path, "%s%010d", op->path, (parent->stat.cversion + parent->stat.numChildren) / 2);
		op->path = path;
	}
	if (tree_find(tree, op->path))
		return ZNODEEXISTS;
	return parent->stat.ephemeralOwner != 0 ? ZNOCHILDRENFOREPHEMERALS : ZOK;
}

/* Returns why an operation cannot be done, or ZOK; completes the path of a sequential node. */
int
tree_check(const ModelTree *tree, ModelOp *op)
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

/* ------------------------------------------------------------------------
 * What it does
 * ------------------------------------------------------------------------
 */

/* The tree with a node in the place of the former one; NULL as that: as well, as the node: without. */
static ModelTree *
tree_with(const ModelTree *tree, const ModelNode *former, ModelNode *node)
{
	ModelTree *after = malloc(sizeof(ModelTree) + (tree->n + 1) * sizeof(ModelNode *));

	after->n = 0;
	for (int i = 0; i < tree->n; i++)
	{
		ModelNode *kept = tree->nodes[i] == former ? node : tree->nodes[i];

		if (kept)
			after->nodes[after->n++] = kept;
	}
	if (former == NULL)
		after->nodes[after->n++] = node;
	return after;
}

static ModelNode *
copy_node(const ModelNode *node)
{
	return memcpy(malloc(sizeof(ModelNode)), node, sizeof(ModelNode));
}

static ModelNode *
new_node(const ModelPacket *packet, const ModelOp *op)
{
	bool			owned = op->mode == ZOO_EPHEMERAL || op->mode == ZOO_EPHEMERAL_SEQUENTIAL;
	const ModelNode node = {.path = op->path,
							.name = strrchr(op->path, '/') + 1,
							.parent = parent_of(op->path),
							.container = op->mode == ZOO_CONTAINER,
							.stat.czxid = packet->zxid,
							.stat.pzxid = packet->zxid,
							.stat.ctime = packet->decided_at / 1000,
							.stat.version = -1,
							.stat.ephemeralOwner = owned ? packet->session->id : 0};

	return copy_node(&node);
}

static void
set_data(ModelNode *node, const ModelPacket *packet, const ModelOp *op)
{
	node->data = op->data;
	node->stat.dataLength = op->length;
	node->stat.mzxid = packet->zxid;
	node->stat.mtime = packet->decided_at / 1000;
	node->stat.version++;
}

/* The tree with a node that has one more child, or one less */
static ModelTree *
tree_with_children(const ModelTree *tree, const char *path, int more, int64_t zxid)
{
	const ModelNode *former = tree_find(tree, path);
	ModelNode		*node = copy_node(former);

	node->stat.numChildren += more;
	node->stat.cversion++;
	node->stat.pzxid = zxid;
	return tree_with(tree, former, node);
}

/* A tree with nothing but its root */
ModelTree *
tree_new(void)
{
	static const ModelTree empty;
	static ModelNode	   root = {.path = "/", .name = "", .parent = ""};

	return tree_with(&empty, NULL, &root);
}

/* Returns the tree after an operation that can be done. */
ModelTree *
tree_after(ModelTree *tree, const ModelPacket *packet, ModelOp *op)
{
	ModelNode *former = tree_find(tree, op->path);

	switch (op->kind)
	{
		case MODEL_CREATE:
			op->node = new_node(packet, op);
			set_data(op->node, packet, op);
			tree = tree_with(tree, NULL, op->node);
			return tree_with_children(tree, op->node->parent, 1, packet->zxid);
		case MODEL_SET:
			op->node = copy_node(former);
			set_data(op->node, packet, op);
			return tree_with(tree, former, op->node);
		case MODEL_DELETE:
			op->node = former;
			tree = tree_with(tree, former, NULL);
			return tree_with_children(tree, op->node->parent, -1, packet->zxid);
		default:
			return tree;
	}
}
