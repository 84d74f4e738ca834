/*-------------------------------------------------------------------------
 *
 * element_name.c
 *	  ZooKeeper's recipe for queues: names of elements, and their order.
 *
 * An element is a persistent sequential child "qn-0000000123" of the queue's path, and the
 * lowest comes first.  ZooKeeper's DistributedQueue orders them by the number that Java's
 * Long.parseLong() reads behind "qn-"; a child without such a number is not an element.
 * Curator's SimpleDistributedQueue orders them as texts, which is the same for all names
 * that ZooKeeper makes before its counter ends.
 *
 * Java sees one element in two names for one number, such as qn-7 and qn-0000000007; here
 * they are two, the longer one first.
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/node_name.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/recipe.h"

/*
 * Reads the name of a queue's child.  Returns false if it is not an element.
 *
 *	number	set to its place in the queue
 */
bool
element_name_read(const char *child, int64_t *number)
{
	const char *digits = child + strlen(ELEMENT_PREFIX);
	size_t		len = strlen(child);
	char	   *end;
	long long	value;

	if (strncmp(child, ELEMENT_PREFIX, strlen(ELEMENT_PREFIX)) != 0 || len >= ELEMENT_NAME_SIZE)
		return false;
	if (*digits == '-' || *digits == '+')
		digits++;

	/* strtoll() would skip blanks, and take a second sign. */
	if (*digits < '0' || *digits > '9')
		return false;
	errno = 0;
	value = strtoll(child + strlen(ELEMENT_PREFIX), &end, 10);
	if (errno != 0 || *end != '\0')
		return false;
	*number = value;
	return true;
}

/*
 * Returns a sentence if the child shows that its parent is not a queue but a lock, a
 * semaphore, or an election; else NULL.  Any other child that is not an element is left alone.
 */
const char *
element_name_other_use(const char *child)
{
	NodeName lock;

	if (node_name_parse(child, &lock) || strcmp(child, &PERMIT_LEASES[1]) == 0 ||
		strcmp(child, &PERMIT_TURNS[1]) == 0)
		return "It has nodes of a lock or semaphore.";
	if (recipe_shows_election(child))
		return "It has candidates of an election.";
	return NULL;
}

/* Compares two ElementNames, for qsort() and bsearch(). */
int
element_name_compare(const void *a, const void *b)
{
	const ElementName *x = a;
	const ElementName *y = b;

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return strcmp(x->name, y->name);
}

/*
 * Picks the elements out of the n children of a queue's path and puts them in their order, the
 * one to be taken next first.
 *
 *	elements	has room for n; gets pointers into "children"
 *
 * Returns how many there are.
 */
int
element_name_sort(char *const *children, int n, ElementName *elements)
{
	int count = 0;

	for (int i = 0; i < n; i++)
	{
		elements[count].name = children[i];
		if (element_name_read(children[i], &elements[count].number))
			count++;
	}
	qsort(elements, (size_t) count, sizeof(ElementName), element_name_compare);
	return count;
}

/* ------------------------------------------------------------------------
 * The recipe by which a transaction takes an element
 *
 * Its path is the element, below which stands one node: the ephemeral claim.  The create
 * of that node proves that the element exists and no other client has it, and no client can
 * delete an element that has a child.  The claim's name is always the same, so a claim is
 * the session's own only if the session owns the node.
 * ------------------------------------------------------------------------
 */

static bool
claim_read(const char *child, RecipePeer *peer)
{
	*peer = (RecipePeer){.numbered = true, .mode = LOCK_MODE_EXCLUSIVE};
	return strcmp(child, ELEMENT_CLAIM) == 0;
}

static void
claim_write(char *dst, size_t size, const RecipeRequest *request, const uint8_t uuid[ZKLOCK_UUID_BYTES])
{
	(void) request;
	(void) uuid;
	snprintf(dst, size, ELEMENT_CLAIM);
}

static bool
claim_excludes(const RecipePeer *peer, const RecipeRequest *request)
{
	(void) peer;
	(void) request;
	return true;
}

const Recipe element_recipe = {.name = "element",
							   .fixed_name = true,
							   .read = claim_read,
							   .write = claim_write,
							   .excludes = claim_excludes};
