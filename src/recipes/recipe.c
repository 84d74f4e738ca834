/*-------------------------------------------------------------------------
 *
 * recipe.c
 *	  The recipes: how their nodes are named, what a child's name means, and for whom a
 *	  contender waits; the queue of the contenders on a path; and whom a new node would harm.
 *
 * recipe.h says what the engine asks of a recipe.  Each has a section here, with the argument
 * why its rule is safe beside other clients, and its Recipe at the end of the section.
 *
 * Pure C: depends on libc and node_name.h alone, allocates nothing, keeps no state, runs in
 * any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"

/* Returns the part of a name behind the last marker, or NULL. */
static const char *
after_last(const char *name, const char *marker)
{
	const char *part = NULL;

	while ((name = strstr(name, marker)) != NULL)
	{
		part = name + strlen(marker);
		name++;
	}
	return part;
}

/* ------------------------------------------------------------------------
 * Which clients wait for the names that we write for locks
 *
 * zklock knows the names of all clients and waits for each of them.  Most clients know
 * their own names alone: what they do when they find ours depends on the dialect that we
 * write.  The table is taken from the sources of those clients and from the tests that run
 * them (test/t/peers); "who excludes whom" in the documentation is the same from a
 * user's point of view.
 *
 * A name does not show everything.  zklock writes the names of other clients and respects
 * what they do not, and kazoo's Lock and WriteLock have the same names but differ in what
 * they wait for.
 * ------------------------------------------------------------------------
 */

#define NDIALECTS 5
#define NMODES 2

/* Curator writes a UUID with dashes behind it, go-zk one without. */
#define CURATOR_PREFIX "_c_"
#define GO_UUID_DIGITS 32
#define GO_MARKER "-lock-"

/*
 * A client whose names begin like this may be .NET's DistributedLock, which waits for such
 * names alone; others wait for all names that contain it.
 */
#define BARE_LOCK "lock-"

#define Y HEED_YES
#define N HEED_NO
#define U HEED_UNKNOWN

/*
 * By dialect and mode of their name, by our dialect, and by our mode, exclusive
 * first.  Readers need not wait for each other.
 */
static const Heed table[NDIALECTS][NMODES][NDIALECTS][NMODES] =
	{[DIALECT_CURATOR] =
		 {/* InterProcessMutex; zklock's own, which respects our readers */
		  [LOCK_MODE_EXCLUSIVE] = {{Y, U}, {N, N}, {N, N}, {N, N}, {N, N}},
		  [LOCK_MODE_SHARED] = {{U, Y}, {Y, Y}, {N, Y}, {N, Y}, {N, Y}}},
	 [DIALECT_CURATOR_RW] =
		 {/* InterProcessReadWriteLock; readers may be zklock's in "curator" */
		  [LOCK_MODE_EXCLUSIVE] = {{N, Y}, {Y, Y}, {N, N}, {N, N}, {N, N}},
		  [LOCK_MODE_SHARED] = {{U, Y}, {Y, Y}, {N, Y}, {N, Y}, {N, Y}}},
	 [DIALECT_KAZOO] =
		 {/* Lock, and WriteLock, which waits for readers too */
		  [LOCK_MODE_EXCLUSIVE] = {{N, N}, {N, N}, {Y, U}, {N, N}, {N, N}},
		  [LOCK_MODE_SHARED] = {{N, Y}, {N, Y}, {Y, Y}, {N, Y}, {N, Y}}},
	 [DIALECT_ZOOKEEPER] =
		 {/* WriteLock; readers of the documented recipe, or zklock's */
		  [LOCK_MODE_EXCLUSIVE] = {{Y, N}, {N, N}, {N, N}, {Y, Y}, {Y, Y}},
		  [LOCK_MODE_SHARED] = {{N, Y}, {N, Y}, {N, Y}, {U, Y}, {N, Y}}},
	 [DIALECT_HIVE] = {[LOCK_MODE_EXCLUSIVE] = {{N, N}, {N, N}, {N, N}, {N, N}, {Y, Y}},
					   [LOCK_MODE_SHARED] = {{N, Y}, {N, Y}, {N, Y}, {N, Y}, {Y, Y}}}};

#undef Y
#undef N
#undef U

/*
 * Returns whether the client that gave a node this name waits for older nodes of ours, in the
 * given dialect and mode; HEED_UNKNOWN for a name that is not recognised as a contender's.
 */
Heed
heed_expected(NodeDialect dialect, LockMode mode, const char *name)
{
	const char *uuid = name + strlen(CURATOR_PREFIX);
	RecipePeer	parsed;
	Heed		heed;

	if (!node_name_parse(name, &parsed))
		return HEED_UNKNOWN;

	/* go-zk counts every child with a number, and fails if it finds another. */
	if (strncmp(name, CURATOR_PREFIX, strlen(CURATOR_PREFIX)) == 0 &&
		strspn(uuid, "0123456789abcdefABCDEF") == GO_UUID_DIGITS &&
		strncmp(uuid + GO_UUID_DIGITS, GO_MARKER, strlen(GO_MARKER)) == 0)
		return HEED_YES;
	heed = table[parsed.dialect][parsed.mode][dialect][mode];
	return heed == HEED_YES && strncmp(name, BARE_LOCK, strlen(BARE_LOCK)) == 0 ? HEED_UNKNOWN : heed;
}

/* ------------------------------------------------------------------------
 * Exclusive and shared locks
 *
 * The algorithm is that of ZooKeeper's recipes for exclusive and shared locks: a contender
 * waits for the nearest older one that it conflicts with, and looks again when that one is
 * gone.  So a contender that leaves wakes one writer or the readers behind it, never
 * everybody.
 *
 * Sequences are distinct but for one case.  An exclusive holder that downgrades gets a shared
 * node with the sequence of the exclusive one: Curator creates it beside the other, zklock in
 * its place.  Nodes with equal sequences never block each other.  A younger contender may wait
 * for either: it looks again when that is gone, and finds the other.  So the set of contenders
 * older than a given one can grow, by a shared one at the moment that an exclusive one goes.
 * ------------------------------------------------------------------------
 */

/* Hive's names have no UUID. */
static bool
lock_name_is_reusable(const RecipeRequest *request)
{
	return request->dialect == DIALECT_HIVE;
}

/* All pairs of modes exclude each other, except shared with shared. */
static bool
lock_excludes(const RecipePeer *peer, const RecipeRequest *request)
{
	return peer->mode != LOCK_MODE_SHARED || request->mode != LOCK_MODE_SHARED;
}

/* heed_expected() above says which clients wait for which names. */
static bool
lock_heedless(const char *child, const RecipeRequest *request, RecipeHeedless *why)
{
	RecipePeer parsed;

	if (heed_expected(request->dialect, request->mode, child) != HEED_NO ||
		!node_name_parse(child, &parsed))
		return false;
	*why = (RecipeHeedless){.ours = node_dialect_names[request->dialect],
							.theirs = node_dialect_names[parsed.dialect]};
	if (parsed.dialect == DIALECT_KAZOO && request->dialect == DIALECT_CURATOR)
		why->remedy =
			", or give kazoo's Lock extra_lock_patterns=[\"lock-\", \"__READ__\"]. If it has that already, ignore this.";
	return true;
}

static bool
lock_may_join(const RecipeRequest *node, const RecipeRequest *request)
{
	return node->mode == request->mode && node->dialect == request->dialect;
}

const Recipe lock_recipe = {.name = "lock",
							.read = node_name_parse,
							.write = node_name_prefix,
							.name_is_reusable = lock_name_is_reusable,
							.excludes = lock_excludes,
							.heedless = lock_heedless,
							.may_join = lock_may_join,
							.downgraded_name = node_name_downgraded};

/* ------------------------------------------------------------------------
 * The permits of semaphores
 *
 * The layout is that of Curator's InterProcessSemaphoreV2.  A node below <path>/leases is a
 * permit, or waits to become one.  Curator takes the permit when there are no more nodes
 * than permits, and lets only one client at a time wait for that, the one that holds the
 * lock <path>/locks.
 *
 * Here a node is a permit when there are fewer older ones than permits.  Consider the
 * youngest of all nodes that are permits: the others are older, so its owner has counted
 * them, whatever its rule was.  Hence the two rules go together, and neither needs the lock
 * to be safe.  The lock only brings order among the clients that wait.  Since this rule
 * looks at older nodes only, clients that come together without the lock do not all fail:
 * some get the permits that are left.
 *
 * A node of ours has in its name the number of permits in its owner's opinion, so that a
 * listing shows clients that disagree.  Curator gives no meaning to the names.
 *
 * Each node is one contender's, and while a contender waits, any change among the children
 * is a reason to look again.  That causes no herd: only the session that holds the lock
 * waits here.
 * ------------------------------------------------------------------------
 */

#define LEASE_MARKER "lease-"
#define PERMITS_MARKER "-of"

static void
permit_write(char *dst, size_t size, const RecipeRequest *request, const uint8_t uuid[ZKLOCK_UUID_BYTES])
{
	char text[37];

	uuid_format(text, sizeof(text), uuid, UUID_DASHES);
	snprintf(dst, size, "_c_%s" PERMITS_MARKER "%d-" LEASE_MARKER, text, (int) request->permits);
}

/*
 * Every child counts for Curator, and so it does here.  A child that has no sequence where one
 * belongs counts as the oldest.
 */
static bool
permit_read(const char *child, RecipePeer *peer)
{
	const char	*number = after_last(child, LEASE_MARKER);
	const size_t marker_len = strlen(PERMITS_MARKER);
	size_t		 start;
	size_t		 end;
	int64_t		 permits;

	*peer = (RecipePeer){.numbered = false, .mode = LOCK_MODE_EXCLUSIVE};
	if (number == NULL)
		return true;
	peer->numbered = node_name_read_number(number, strlen(number), &peer->sequence);

	/* Does the name state the permits, by "-of<permits>-" before the marker of a lease? */
	end = (size_t) (number - child) - strlen(LEASE_MARKER);
	if (end == 0 || child[--end] != '-')
		return true;
	for (start = end; start > 0 && child[start - 1] >= '0' && child[start - 1] <= '9'; start--)
		;
	if (start >= marker_len && memcmp(child + start - marker_len, PERMITS_MARKER, marker_len) == 0 &&
		node_name_read_number(child + start, end - start, &permits))
		peer->permits = (int32_t) permits;
	return true;
}

/*
 * Returns the oldest peer if there is no permit left.  The semaphore has the number of permits
 * that was asked for, or fewer if the owner of an older node thinks so; the smallest number
 * that those owners name is others_permits.
 */
static int
permit_blocker(const RecipePeer *peers, int n, const RecipePeer *self,
			   const RecipeRequest *request, int32_t *others_permits)
{
	int32_t permits = request->permits;
	int		oldest = RECIPE_NOBODY;
	int		older = 0;

	for (int i = 0; i < n; i++)
	{
		if (self && recipe_age(&peers[i], self) < 0)
			continue;
		older++;
		if (peers[i].permits > 0 && (*others_permits == 0 || peers[i].permits < *others_permits))
			*others_permits = peers[i].permits;
		if (oldest == RECIPE_NOBODY || recipe_age(&peers[i], &peers[oldest]) > 0)
			oldest = i;
	}
	if (*others_permits > 0 && *others_permits < permits)
		permits = *others_permits;
	if (older < permits || ZKLOCK_FAULT("permit-early"))
		return RECIPE_NOBODY;
	return oldest;
}

const Recipe permit_recipe = {.name = "semaphore",
							  .read = permit_read,
							  .write = permit_write,
							  .blocker = permit_blocker};

/* ------------------------------------------------------------------------
 * Elections: the oldest candidate leads
 *
 * All clients agree on that, but not on names, and each knows only its own:
 *
 *		_c_<uuid>-latch-N	Curator's LeaderLatch, which sorts all children by what
 *							follows the last "latch-"
 *		n_N					ZooKeeper's LeaderElectionSupport, which takes what follows
 *							the first two characters of any child for a number
 *		<names of locks>	Curator's LeaderSelector and kazoo's Election, which lead
 *							while they hold a lock
 *
 * So a path has candidates of one family.  A candidate of ours waits for all that it
 * recognises, but where it finds another family than its own it does not even create a
 * node: LeaderElectionSupport, for one, never elects anybody again once it has met a name
 * that is not its own.  This is why the path is looked at first.
 *
 * A candidate that waits looks again when any child has changed.  To watch the next older
 * one would suffice; but candidates are few and seldom change, and this way each knows its
 * place, and who leads.
 *
 * Names n_N have no identifier, and N begins anew with a new path, so another node can have
 * the same name later.
 * ------------------------------------------------------------------------
 */

#define LATCH_MARKER "latch-"
#define SUPPORT_PREFIX "n_"
#define PRIORITY_MARKER " priority " /* in the data, between name and number */

const char *const election_family_names[] =
	{[ELECTION_LATCH] = "curator_latch", [ELECTION_SUPPORT] = "zookeeper", [ELECTION_LOCK] = "lock", NULL};

/* Candidates of all families are recognised, whichever is written. */
static bool
election_read(const char *child, RecipePeer *peer)
{
	const char *latch = after_last(child, LATCH_MARKER);
	const char *support = after_last(child, SUPPORT_PREFIX);
	RecipePeer	lock;

	*peer = (RecipePeer){.numbered = true, .mode = LOCK_MODE_EXCLUSIVE};
	if (latch && node_name_read_number(latch, strlen(latch), &peer->sequence))
		peer->family = ELECTION_LATCH;
	else if (support && node_name_read_number(support, strlen(support), &peer->sequence))
		peer->family = ELECTION_SUPPORT;
	else if (node_name_parse(child, &lock))
	{
		peer->family = ELECTION_LOCK;
		peer->sequence = lock.sequence;
	}
	else
		return false;
	return true;
}

static void
election_write(char *dst, size_t size, const RecipeRequest *request,
			   const uint8_t uuid[ZKLOCK_UUID_BYTES])
{
	char text[37];

	switch (request->family)
	{
		case ELECTION_LATCH:
			uuid_format(text, sizeof(text), uuid, UUID_DASHES);
			snprintf(dst, size, "_c_%s-" LATCH_MARKER, text);
			break;
		case ELECTION_SUPPORT:
			snprintf(dst, size, SUPPORT_PREFIX);
			break;
		case ELECTION_LOCK:
			node_name_prefix(dst, size, request, uuid);
			break;
	}
}

/* Returns the oldest candidate that is older than "self": it leads. */
static int
election_blocker(const RecipePeer *peers, int n, const RecipePeer *self,
				 const RecipeRequest *request, int32_t *others_permits)
{
	int oldest = RECIPE_NOBODY;

	(void) request; /* the older one leads, whatever its name */
	(void) others_permits;
	for (int i = 0; i < n; i++)
	{
		if (self && peers[i].sequence >= self->sequence)
			continue;
		if (oldest == RECIPE_NOBODY || peers[i].sequence < peers[oldest].sequence)
			oldest = i;
	}
	return oldest;
}

/*
 * Returns true if a child of this name shows that its path is an election's.  Not every name
 * that a candidate waits for does: "region_1" has nothing to do with elections, and names of
 * locks are those of locks.
 */
bool
recipe_shows_election(const char *child)
{
	RecipePeer peer;

	return node_name_has_sequence(child) && election_read(child, &peer) &&
		   (peer.family == ELECTION_LATCH ||
			strncmp(child, SUPPORT_PREFIX, strlen(SUPPORT_PREFIX)) == 0);
}

/*
 * Writes the data of a candidate's node: its name alone, like the text of any other client's,
 * unless it has a priority, or its name looks as if.  dst has room for a priority behind the
 * longest name that fits.
 */
void
recipe_data_write(char *dst, size_t size, const char *name, int priority)
{
	size_t name_len;

	if (priority == 0 && recipe_data_read(name, &name_len) == 0 && name_len == strlen(name))
		snprintf(dst, size, "%s", name);
	else
		snprintf(dst, size, "%.*s" PRIORITY_MARKER "%d",
				 (int) (size - sizeof(PRIORITY_MARKER "1000")), name, priority);
}

/*
 * Returns the priority that a candidate's node tells, 0 if it tells none, as those of other
 * clients and of older versions do.
 *
 *	name_len	set to the bytes of the data that are its name
 */
int
recipe_data_read(const char *data, size_t *name_len)
{
	const char *number = after_last(data, PRIORITY_MARKER);
	int64_t		priority;

	*name_len = strlen(data);
	if (number == NULL || strlen(number) > 4 ||
		!node_name_read_number(number, strlen(number), &priority) || priority < 0 ||
		priority > ELECTION_PRIORITY_MAX)
		return 0;
	*name_len = (size_t) (number - data) - strlen(PRIORITY_MARKER);
	return (int) priority;
}

static bool
election_cannot_coexist(const RecipePeer *peer, const RecipeRequest *request)
{
	return peer->family != request->family;
}

static bool
election_name_is_reusable(const RecipeRequest *request)
{
	return request->family == ELECTION_SUPPORT ||
		   (request->family == ELECTION_LOCK && lock_name_is_reusable(request));
}

const Recipe election_recipe = {.name = "election",
								.read = election_read,
								.write = election_write,
								.blocker = election_blocker,
								.cannot_coexist = election_cannot_coexist,
								.name_is_reusable = election_name_is_reusable};

/* ------------------------------------------------------------------------
 * Elements of queues, which a transaction takes
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

const Recipe element_recipe = {.name = "element",
							   .fixed_name = true,
							   .read = claim_read,
							   .write = claim_write,
							   .excludes = lock_excludes};

/*
 * Returns a sentence if the child shows that its parent is not a queue but a lock, a
 * semaphore, or an election; else NULL.  Any other child that is not an element is left alone.
 */
const char *
element_name_other_use(const char *child)
{
	RecipePeer lock;

	if (node_name_parse(child, &lock) || strcmp(child, &PERMIT_LEASES[1]) == 0 ||
		strcmp(child, &PERMIT_TURNS[1]) == 0)
		return "It has nodes of a lock or semaphore.";
	if (recipe_shows_election(child))
		return "It has candidates of an election.";
	return NULL;
}

/* ------------------------------------------------------------------------
 * Whom a new node would harm
 *
 * A new node can harm others.  A path that is locked can have other children than lock nodes,
 * such as paths that are locked too.  Most clients ignore those.  Two cannot:
 *
 *  - Curator's locks (InterProcessMutex, InterProcessReadWriteLock's writers, LeaderLatch)
 *    take every child for a contender, and sort all by what follows the last marker of the
 *    lock's kind, or by the whole name without one.  A name that sorts before every
 *    sequence stands in front of everybody for as long as it exists.  A name that begins
 *    like "eu" or "order-17" sorts behind them and harms nobody.
 *  - Semaphores, Curator's and ours, count every child of PERMIT_LEASES as a permit in use.
 *
 * neighbour_harm() needs the new node's name alone, and for nearly all names the result is
 * that it harms nobody; then no child has to be looked at.  Otherwise the parent is listed
 * first, and neighbour_is_harmed() looks at each child that exists, for signs that such a
 * client is at work.
 * ------------------------------------------------------------------------
 */

/*
 * Sequences begin with '0' until there have been a thousand million of them; long before that,
 * the counter is what is worn out.
 */
#define BEHIND_SEQUENCES '1'

static const char *const curator_markers[] = {"lock-", "__READ__", "__WRIT__", "latch-"};

/* Returns the NeighbourHarms that a child of this name can do below this parent. */
int
neighbour_harm(const char *parent, const char *name)
{
	size_t len = strlen(parent);
	size_t tail = strlen(PERMIT_LEASES);
	int	   harm = 0;

	if (len >= tail && strcmp(parent + len - tail, PERMIT_LEASES) == 0)
		harm |= HARMS_SEMAPHORE;
	for (size_t i = 0; i < sizeof(curator_markers) / sizeof(curator_markers[0]); i++)
	{
		/* Curator sorts by what follows the marker, or by all of a name without one. */
		const char *sorted = after_last(name, curator_markers[i]);

		if ((unsigned char) (sorted ? sorted : name)[0] < BEHIND_SEQUENCES)
			harm |= HARMS_LOCK;
	}
	return harm;
}

/* Returns true if an existing child shows a client to which such harm would be done. */
bool
neighbour_is_harmed(int harm, const char *child)
{
	RecipePeer lease;

	/* Curator's clients write such names, and so do other clients that follow them. */
	if ((harm & HARMS_LOCK) && strncmp(child, CURATOR_PREFIX, strlen(CURATOR_PREFIX)) == 0 &&
		node_name_has_sequence(child))
		return true;
	return (harm & HARMS_SEMAPHORE) && permit_recipe.read(child, &lease) && lease.numbered;
}

/* ------------------------------------------------------------------------
 * The contenders on a path in the order of their queue, and who waits for whom
 * ------------------------------------------------------------------------
 */

/*
 * Returns how much older one node is than another.  Sequences run in a circle, so their
 * distance decides, which is right for nodes less than 2^31 apart; one without is the oldest.
 */
int64_t
recipe_age(const RecipePeer *peer, const RecipePeer *than)
{
	if (!peer->numbered || !than->numbered)
		return peer->numbered ? INT32_MIN : (int64_t) INT32_MAX + 1;
	return (int32_t) ((uint32_t) than->sequence - (uint32_t) peer->sequence);
}

static int
compare_queued(const void *a, const void *b)
{
	const RecipeQueued *x = a;
	const RecipeQueued *y = b;

	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;

	/* The shared node that replaces an exclusive one has its number. */
	if (x->peer.mode != y->peer.mode)
		return x->peer.mode == LOCK_MODE_EXCLUSIVE ? -1 : 1;
	return strcmp(x->name, y->name);
}

/*
 * Picks the contenders out of the n children of a path, and puts them in the order of their
 * queue, the one that came first at the beginning.
 *
 *	queue	has room for n; gets pointers into "children"
 *
 * Returns how many there are.  Their order is that of their ages, compared with one of them.
 */
int
recipe_queue(const Recipe *recipe, char *const *children, int n, RecipeQueued *queue)
{
	const RecipePeer *origin = NULL;
	int				  count = 0;

	for (int i = 0; i < n; i++)
	{
		RecipeQueued *next = &queue[count];

		if (!recipe->read(children[i], &next->peer))
			continue;
		next->name = children[i];
		if (origin == NULL && next->peer.numbered)
			origin = &next->peer;
		next->place = -recipe_age(&next->peer, origin ? origin : &next->peer);
		count++;
	}
	qsort(queue, (size_t) count, sizeof(RecipeQueued), compare_queued);
	return count;
}

/*
 * Returns for whom a contender waits: the index of a peer, or RECIPE_NOBODY if it is granted.
 *
 *	peers	the n other contenders on the path, in any order
 *	self	its own node, or NULL if it has none yet and would come last
 *	others_permits	set to the lowest number of permits that others record, 0 if none
 */
int
recipe_blocker(const Recipe *recipe, const RecipePeer *peers, int n, const RecipePeer *self,
			   const RecipeRequest *request, int32_t *others_permits)
{
	int nearest = RECIPE_NOBODY;

	*others_permits = 0;
	if (recipe->blocker)
		return recipe->blocker(peers, n, self, request, others_permits);
	for (int i = 0; i < n; i++)
	{
		if ((self && peers[i].sequence >= self->sequence) || !recipe->excludes(&peers[i], request))
			continue;
		if (nearest == RECIPE_NOBODY || peers[i].sequence > peers[nearest].sequence)
			nearest = i;
	}
	return nearest;
}

/*
 * Finds out which of the n contenders on a path hold, and do not wait.
 *
 *	peers	in the order of their queue
 *	permits	of a semaphore, in the opinion of those whose names do not state any
 *	holds	has room for n
 *
 * Asking recipe_blocker() about each with all peers would take n times as long.  Of those that
 * come first, a recipe that judges peers one by one needs to see the oldest in each mode, as
 * no other property counts.  With blocker(), the first hold, as many as the contender and all
 * before it allow, and one if they name no number.
 */
void
recipe_holders(const Recipe *recipe, const RecipePeer *peers, int n, int32_t permits, bool *holds)
{
	RecipePeer oldest[2];
	int		   nmodes = 0;
	int32_t	   least = INT32_MAX;

	for (int i = 0; i < n; i++)
	{
		RecipeRequest request = {.mode = peers[i].mode};
		int32_t		  asked = peers[i].permits > 0 ? peers[i].permits : permits;
		int32_t		  others_permits;
		int			  k = 0;

		if (recipe->blocker)
		{
			holds[i] = i < least && (i < asked || i == 0);
			if (peers[i].permits > 0 && peers[i].permits < least)
				least = peers[i].permits;
			continue;
		}
		holds[i] = recipe_blocker(recipe, oldest, nmodes, &peers[i], &request, &others_permits) ==
				   RECIPE_NOBODY;
		while (k < nmodes && oldest[k].mode != peers[i].mode)
			k++;
		if (k == nmodes)
			oldest[nmodes++] = peers[i];
		else if (peers[i].sequence < oldest[k].sequence)
			oldest[k] = peers[i];
	}
}
