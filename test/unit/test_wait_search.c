/*-------------------------------------------------------------------------
 *
 * test_wait_search.c
 *	  Unit tests of wait_search.c: what records say, however much that is.
 *
 * A ZooKeeper of a few arrays answers the questions of the search.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "deadlock/deadlock_internal.h"

#undef printf
#undef sprintf
#undef vprintf
#undef vsprintf
#undef vsnprintf
#undef snprintf
#undef qsort
#include "unit.h"

#define OURS 1

/* ------------------------------------------------------------------------
 * What the search needs of PostgreSQL
 * ------------------------------------------------------------------------
 */

void *
palloc(Size size)
{
	return malloc(size);
}

void *
palloc0(Size size)
{
	return calloc(1, size);
}

void *
palloc_extended(Size size, int flags)
{
	(void) flags;
	return malloc(size);
}

void
pfree(void *memory)
{
	free(memory);
}

char *
psprintf(const char *format, ...)
{
	char   *text = malloc(2048);
	va_list args;

	va_start(args, format);
	vsnprintf(text, 2048, format, args);
	va_end(args);
	return text;
}

void
pg_qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *))
{
	qsort(base, n, size, compare);
}

void *
waits_resize(void *memory, size_t size)
{
	return realloc(memory, size);
}

/* ------------------------------------------------------------------------
 * ZooKeeper, and the records in it
 * ------------------------------------------------------------------------
 */

#define MAX_NODES 100000
#define MAX_RECORDS 64
#define MAX_RECORD_SIZE (4 * 1024 * 1024)

static struct
{
	char  path[64];
	int64 owner;
} nodes[MAX_NODES];

static int		   nnodes;
static int		   most_asked; /* in one search */
static int		   answered;
static bool		   called_away;
static ReadRecord *records[MAX_RECORDS];
static char		   texts[MAX_RECORDS][MAX_RECORD_SIZE];
static size_t	   lengths[MAX_RECORDS];
static int		   nrecords;

bool
wait_records_make_calls(Search *search, CallStep *steps, int n, CallSight sight)
{
	(void) search;
	(void) sight;
	most_asked = n;
	answered++;
	for (int i = 0; i < n; i++)
	{
		size_t		len = strlen(steps[i].asked.path);
		CallResult *result = &steps[i].result;

		if (steps[i].asked.kind == ZK_GET_CHILDREN)
			steps[i].children = malloc((size_t) nnodes * sizeof(char *) + 1);
		result->outcome = steps[i].asked.kind == ZK_GET_CHILDREN ? CALL_OK : CALL_NO_NODE;
		for (int k = 0; k < nnodes; k++)
		{
			if (strncmp(nodes[k].path, steps[i].asked.path, len) != 0)
				continue;
			if (steps[i].asked.kind == ZK_GET_CHILDREN && nodes[k].path[len] == '/')
				steps[i].children[result->nchildren++] = nodes[k].path + len + 1;
			if (steps[i].asked.kind != ZK_EXISTS || nodes[k].path[len] != '\0')
				continue;
			result->outcome = CALL_OK;
			result->stat = (NodeStat){.czxid = k + 1, .ephemeral_owner = nodes[k].owner};
			break;
		}
	}
	return true;
}

static bool
is_called_away(void *arg)
{
	(void) arg;
	return called_away;
}

static void
begin(void)
{
	nnodes = 0;
	nrecords = 0;
	answered = 0;
	most_asked = 0;
}

/* Creates a node; the next one is younger. */
static const char *
node(int64 owner, const char *path, const char *kind, int sequence)
{
	snprintf(nodes[nnodes].path, sizeof(nodes[0].path), "%s/%s%010d", path, kind, sequence);
	nodes[nnodes].owner = owner;
	return nodes[nnodes++].path;
}

static void
record(int64 owner)
{
	records[nrecords] = calloc(1, sizeof(ReadRecord) + 1);
	records[nrecords]->owner = owner;
	lengths[nrecords] = (size_t) sprintf(texts[nrecords], WAIT_RECORD_TITLE "\t0\t0\t0\t\tserver\n");
	nrecords++;
}

/* Appends a line to the last record. */
static void __attribute__((format(printf, 1, 2))) line(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	lengths[nrecords - 1] +=
		(size_t) vsprintf(texts[nrecords - 1] + lengths[nrecords - 1], format, args);
	va_end(args);
}

static void
wait_with(int pid, int permits, const char *path)
{
	line("wait\t%x\t%d\t%d\t%s\tx\n", pid, pid, permits, path);
}

static void
wait_for(int pid)
{
	line("for\t0\t%d\t0\t\t\n", pid);
}

static void
held(const char *path)
{
	line("held\t0\t0\t0\t%s\t\n", path);
}

/* Reads the lines, which may be more than a record has room for. */
static WaitLine *
parse(const char *text, size_t length)
{
	WaitLine *lines;
	size_t	  n = 1;

	for (size_t i = 0; i < length; i++)
		n += text[i] == '\n';
	lines = malloc(n * sizeof(WaitLine));
	if (length > WAIT_RECORD_MAX || !wait_record_read(strdup(text), length, lines))
	{
		printf("# no record, of %zu bytes\n", length);
		exit(1);
	}
	return lines;
}

static Search
search_all(bool *complete)
{
	static union
	{
		List list;
		char room[sizeof(List) + MAX_RECORDS * sizeof(ListCell)];
	} all;
	Search search = {.session = OURS, .call.is_called_away = is_called_away};

	all.list = (List){.type = T_List,
					  .length = nrecords,
					  .max_length = MAX_RECORDS,
					  .elements = all.list.initial_elements};
	for (int i = 0; i < nrecords; i++)
	{
		records[i]->lines = parse(texts[i], lengths[i]);
		all.list.elements[i].ptr_value = records[i];
	}
	search.records = nrecords > 0 ? &all.list : NIL;
	*complete = wait_search(&search);
	return search;
}

/* The pids of the waits of ours that are to give up, each with the length of its cycle. */
static const char *
victims(void)
{
	static char text[256];
	bool		complete;
	Search		search = search_all(&complete);

	text[0] = '\0';
	for (int i = 0; i < search.nwaits && complete; i++)
	{
		int at = i;
		int n = 0;

		if (!wait_search_is_victim(&search, i))
			continue;
		do
		{
			at = search.graph.vertices[at].parent;
			n++;
		} while (at != i && n < 20);
		sprintf(text + strlen(text), "%s%d:%d", text[0] == '\0' ? "" : " ",
				search.waits[i].line->pid, n);
	}
	return text;
}

/* ------------------------------------------------------------------------
 * Tests
 * ------------------------------------------------------------------------
 */

static void
test_deadlocks(void)
{
	const char *a;
	const char *b;
	const char *wants_a;
	const char *wants_b;

	begin();
	a = node(OURS, "/a", "x-lock-", 1);
	b = node(2, "/b", "x-lock-", 1);
	wants_a = node(2, "/a", "x-lock-", 2);
	wants_b = node(OURS, "/b", "x-lock-", 2);
	record(OURS);
	wait_with(10, 0, wants_b);
	held(a);
	record(2);
	wait_with(20, 0, wants_a);
	held(b);
	is_str(victims(), "10:2", "two servers, of which ours has waited for less long");
	is_int(answered, 1, "after questions to ZooKeeper");
	nodes[1].owner = 3;
	is_str(victims(), "", "nobody, if the other's node is not its own");

	begin();
	a = node(OURS, "/a", "x-lock-", 1);
	b = node(2, "/b", "x-lock-", 1);
	wants_b = node(OURS, "/b", "x-lock-", 2);
	record(OURS);
	wait_with(10, 0, wants_b);
	held(a);
	is_str(victims(), "", "nobody, if the other does not wait");
	is_int(answered, 0, "without a question");

	/* A reader of ours and one of another server, with an exclusive contender between them */
	begin();
	a = node(2, "/a", "x-__READ__", 1);
	(void) node(7, "/a", "x-lock-", 2);
	wants_a = node(OURS, "/a", "x-__READ__", 3);
	b = node(OURS, "/b", "x-lock-", 1);
	wants_b = node(2, "/b", "x-lock-", 2);
	record(OURS);
	wait_with(10, 0, wants_a);
	held(b);
	record(2);
	wait_with(20, 0, wants_b);
	held(a);
	is_str(victims(), "", "the other server gives up");
	nodes[2].owner = nodes[3].owner = 3;
	records[0]->owner = 3;
	nodes[0].owner = nodes[4].owner = OURS;
	records[1]->owner = OURS;
	is_str(victims(), "20:3", "behind another contender");
	snprintf(nodes[1].path, sizeof(nodes[1].path), "/a/x-__READ__0000000002");
	is_str(victims(), "", "and nobody if that is a reader");

	/* A semaphore with two permits; one that has one waits for ours. */
	for (int stuck = 1; stuck <= 2; stuck++)
	{
		begin();
		a = node(2, "/s/leases", "x-lease-", 1);
		b = node(3, "/s/leases", "x-lease-", 2);
		wants_a = node(OURS, "/s/leases", "x-lease-", 3);
		record(OURS);
		wait_with(10, 2, wants_a);
		held(node(OURS, "/b", "x-lock-", 1));
		record(2);
		wait_with(20, 0, node(2, "/b", "x-lock-", 2));
		held(a);
		record(3);
		if (stuck == 2)
		{
			wait_with(30, 0, node(3, "/b", "x-lock-", 3));
			held(b);
		}
		nnodes++;
		snprintf(nodes[nnodes - 1].path, sizeof(nodes[0].path), "/none");
		is_str(victims(), "", stuck == 1 ? "a permit may be given back" : "or the youngest gives up");
		is_int(answered, stuck - 1, "a semaphore is suspect if none may be");
	}
}

/* Of one record, a session has as many processes as it says. */
static void
test_named(void)
{
	bool   complete;
	Search search;

	begin();
	record(OURS);
	for (int i = 0; i < 60; i++)
	{
		wait_with(i % 2 + 1, 0, "");
		for (int k = 0; k < 30; k++)
			wait_for(i % 2 + 1);
	}
	search = search_all(&complete);
	ok(search.graph.nedges <= 61 * 30 + 60, "each line is one edge, %d", search.graph.nedges);
}

/*
 * Twelve sessions say that a thousand processes wait in one queue, and have most nodes there: behind
 * a deadlock, or, if that is at "place", in it.
 */
static void
test_crowd(int place, bool real)
{
	static char text[64];
	bool		complete;
	Search		search;
	int			sequence = 1;

	begin();
	record(OURS);
	wait_with(10, 0, node(OURS, "/c", "-lock-", place));
	held(node(OURS, "/d", "x-lock-", 1));
	record(2);
	wait_with(20, 0, node(2, "/d", "x-lock-", 2));
	held(node(2, "/c", "-lock-", 0));
	for (int64 owner = 3; owner < 15; owner++)
	{
		record(owner);
		for (int wait = 0; wait < 80; wait++)
		{
			for (int i = 0; i < 11; i++)
			{
				snprintf(text, sizeof(text), "/c/-lock-%010d", ++sequence);
				if (real)
					(void) node(owner, "/c", "-lock-", sequence);
				if (i == 0)
					wait_with(wait + 1, 0, text);
				else
					held(text);
			}
		}
	}
	search = search_all(&complete);
	ok(complete && search.nwaits > 960 && search.nkept > 10000, "%d waits with %d nodes",
	   search.nwaits, search.nkept);
	ok(most_asked <= 500, "of which ZooKeeper is asked about %d", most_asked);
	ok(search.graph.max_edges <= 256 * 1024, "make room for %d edges", search.graph.max_edges);
	is_str(victims(), "", "nobody gives up who is older");
	nodes[2].owner = nodes[3].owner = OURS;
	nodes[0].owner = nodes[1].owner = 2;
	records[0]->owner = 2;
	records[1]->owner = OURS;
	if (place == 1)
		is_str(victims(), "20:2", "a deadlock ahead of them is found");

	called_away = true;
	answered = 0;
	(void) search_all(&complete);
	ok(!complete && answered == 0, "an interrupt ends the search");
	called_away = false;
}

int
main(void)
{
	test_deadlocks();
	test_named();
	test_crowd(1, false);
	test_crowd(1, true);
	test_crowd(99999, true);
	return done_testing();
}
