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

/* The file itself: some of what is tested is its own. */
#include "deadlock/wait_search.c"

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

static void *
resize(void *memory, size_t size)
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
static int		   asked;	 /* operations in one search ... */
static int		   answered; /* ... and batches of them */
static bool		   called_away;
static ReadRecord *records[MAX_RECORDS];
static char		  *texts[MAX_RECORDS];
static size_t	   lengths[MAX_RECORDS];
static int		   nrecords;

void
call_batch(Caller *call, CallStep *steps, int n, CallSight sight)
{
	(void) sight;
	call->session = OURS;
	asked += n;
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
	asked = 0;
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
	records[nrecords] = calloc(1, sizeof(ReadRecord) + MAX_RECORD_SIZE);
	records[nrecords]->owner = owner;
	texts[nrecords] = records[nrecords]->text;
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

static WaitSearch
search_all(bool *complete)
{
	static union
	{
		List list;
		char room[sizeof(List) + MAX_RECORDS * sizeof(ListCell)];
	} all;
	WaitSearch search = {.session = OURS, .call.is_called_away = is_called_away, .graph.resize = resize};

	all.list = (List){.type = T_List,
					  .length = nrecords,
					  .max_length = MAX_RECORDS,
					  .elements = all.list.initial_elements};
	for (int i = 0; i < nrecords; i++)
	{
		all.list.elements[i].ptr_value = records[i];
	}
	search.records = nrecords > 0 ? &all.list : NIL;
	asked = 0;
	*complete = wait_search(&search);
	return search;
}

/* The pids of the waits of ours that are to give up, each with the length of its cycle. */
static const char *
victims(void)
{
	static char text[256];
	bool		complete;
	WaitSearch	search = search_all(&complete);

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
 * One record
 * ------------------------------------------------------------------------
 */

#define TITLE(name, seen) "zklock waits 1\t" seen "\t0\t0\t\t" name "\n"
#define FOR(pid) "for\t0\t" pid "\t0\t\t\n"
#define HELD(node) "held\t0\t0\t0\t" node "\t\n"
#define HEAD TITLE("a", "0")
#define WAIT HEAD "wait\t1\t7\t0\t\tx\n"

#define GOOD                                                                                          \
	TITLE("one", "1f")                                                                                \
	"wait\tffffffffffffffff\t7\t0\t\tShareLock on transaction 731\n" FOR("8") FOR("9") HELD("/b/n-2") \
		HELD("/b/n-3") "wait\t2\t8\t3\t/s/leases/l-1\tExclusiveLock\n" HELD("/c/n-4") "wait\t3\t9\t0\t\t\n"

/* The kinds of a record's lines, as letters; '!' where it ceases to be one. */
static const char *
read_all(const char *text, size_t len)
{
	static char		kinds[80];
	char		   *copy = malloc(len + 1); /* sanitizers see what is read behind it */
	const WaitLine *lines;
	int				n = 0;
	bool			good;

	if (copy == NULL)
		abort();
	memcpy(copy, text, len);
	copy[len] = '\0';
	good = read_lines(copy, len, &lines);
	for (; lines[n].kind != WAIT_LINE_END; n++)
		kinds[n] = "twfh"[lines[n].kind];
	if (!good)
		kinds[n++] = '!';
	kinds[n] = '\0';
	free(copy);
	return kinds;
}

static void
check(const char *text, const char *expected, const char *name)
{
	is_str(read_all(text, strlen(text)), expected, name);
}

static void
test_reading(void)
{
	const WaitLine *lines;

	check(GOOD, "twffhhwhw", "a record is read");
	check(TITLE("", "0"), "t", "one of no waits, of a server without a name");
	ok(read_lines(GOOD, strlen(GOOD), &lines), "it has lines");
	is_str(lines[0].text, "one", "the first has the server's name");
	ok(lines[0].number == 0x1f, "and the zxid");
	ok(lines[1].number == UINT64_MAX && lines[1].pid == 7, "a wait");
	is_str(lines[1].text, "ShareLock on transaction 731", "with what is waited for");
	is_str(lines[1].node, "", "which is no node");
	ok(lines[2].pid == 8, "and for whom");
	is_str(lines[4].path, "/b", "what it holds: the path");
	is_str(lines[4].node, "n-2", "and node");
	is_int(lines[6].permits, 3, "one for a permit");
	is_str(lines[6].path, "/s/leases", "with its path");
	is_str(lines[6].node, "l-1", "and node");
}

static void
test_faults(void)
{
	char long_text[WAIT_RECORD_MAX + 1000];

	check("", "!", "nothing is no record");
	check("zklock waits 2\t0\t0\t0\t\ta\n", "!", "nor is one of another version");
	check("zklock waits 1\n", "!", "nor one that ends at once");
	check("zklock waits 1\t0\t0\t0\t\n", "!", "nor one that ends too early");
	check("zklock waits 1\t0\t0\t0\t\ta", "!", "nor one whose last line has no end");
	check("\n", "!", "nor one of an empty line");
	check("wait\t1\t7\t0\t\tx\n", "!", "nor one without a title");
	check(HEAD HEAD, "t!", "or with two");
	check(WAIT HEAD, "tw!", "lines have an order");
	check(HEAD HELD("/a/n"), "t!", "a node belongs to a wait");
	check(HEAD FOR("1"), "t!", "and for whom");
	check(WAIT HELD("/a/n") FOR("1"), "twh!", "what it holds comes last");
	check(WAIT HELD(""), "tw!", "which is something");
	check(WAIT "for\t0\t1\t0\t/a/n\t\n", "tw!", "for whom is no node");
	check("zklock waits 1\t0\t0\t0\t/a/n\ta\n", "!", "nor is the title");
	check(HEAD "\n", "t!", "no line is empty");
	check(HEAD "other\t0\t1\t0\t\t\n", "t!", "or of another kind");
	check("zklock waits 1\t0\t0\t0\t\ta\tb\n", "!", "or has a field too many");
	check(WAIT "for\n", "tw!", "or too few");
	check(WAIT "for\t0\t1\t0\t\t\t\n", "tw!", "or an empty one too many");
	check(WAIT "held\t0\t0\t0\t/a/n\t\tb\tc\td\te\tf\n", "tw!", "or far too many");
	check(TITLE("a", ""), "!", "a number has digits");
	check(TITLE("a", "-1"), "!", "and nothing else");
	check(TITLE("a", "8000000000000000"), "!", "and is not too large");
	check(HEAD "wait\t10000000000000000\t7\t0\t\tx\n", "t!", "nor is this one");
	check(HEAD "wait\t1\t2147483648\t0\t\tx\n", "t!", "nor a pid");
	check(HEAD "wait\t1\t7\t2147483648\t/a/n\tx\n", "t!", "nor are permits");
	check(HEAD "wait\t1\t0\t0\t\tx\n", "t!", "who waits has a pid");
	check(WAIT FOR("0"), "tw!", "and so has for whom");
	check(WAIT "held\t0\t7\t0\t/b/n\t\n", "tw!", "but no node that is held");
	check(HEAD "wait\t1\t7\t0\ta/n\tx\n", "t!", "a path begins at the root");
	check(HEAD "wait\t1\t7\t0\t/a/../b/n\tx\n", "t!", "and has no dots");
	check(WAIT HELD("/a//n"), "tw!", "and no empty component");
	check(WAIT HELD("/n"), "tw!", "and is not the root");
	check(WAIT HELD("n"), "tw!", "a node is below it");
	check(HEAD "wait\t1\t7\t0\t/a/..\tx\n", "t!", "and no dots");
	check(HEAD "wait\t1\t7\t0\t/a/\tx\n", "t!", "and has a name");
	check(TITLE("a\001", "0"), "!", "there are no control characters");
	is_str(read_all(TITLE("a\0b", "0"), sizeof(TITLE("a\0b", "0")) - 1), "!", "nor NULs");
	memset(long_text, 'x', sizeof(long_text));
	memcpy(long_text, "zklock waits 1\t0\t0\t0\t\t", 22);
	strcpy(long_text + 22 + WAIT_RECORD_MAX_TEXT, "\n");
	check(long_text, "t", "a text has some length");
	strcpy(long_text + 22 + WAIT_RECORD_MAX_TEXT, "x\n");
	check(long_text, "!", "but there are no long texts");
	memset(long_text, 'x', sizeof(long_text));
	memcpy(long_text, WAIT "held\t0\t0\t0\t/a/", sizeof(WAIT "held\t0\t0\t0\t/a/") - 1);
	strcpy(long_text + sizeof(WAIT "held\t0\t0\t0\t/a/") - 1 + 255, "\t\n");
	check(long_text, "twh", "a node's name has some length");
	strcpy(long_text + sizeof(WAIT "held\t0\t0\t0\t/a/") - 1 + 255, "x\t\n");
	check(long_text, "tw!", "but there are no long ones");
	strcpy(long_text, HEAD);
	while (strlen(long_text) + 525 <= WAIT_RECORD_MAX)
		sprintf(long_text + strlen(long_text), "wait\t1\t7\t0\t\t%0512d\n", 0);
	ok(strchr(read_all(long_text, strlen(long_text)), '!') == NULL, "a record has some length");
	sprintf(long_text + strlen(long_text), "wait\t1\t7\t0\t\t%0512d\n", 0);
	check(long_text, "!", "what is too long is no record");
}

/* Records that have been damaged are read to their end, or not. */
static void
test_garbage(void)
{
	int good = 0;

	srandom(1);
	for (int run = 0; run < 100000; run++)
	{
		char   text[] = GOOD;
		size_t len = (size_t) random() % sizeof(text);

		for (int damage = (int) (random() % 3); damage > 0; damage--)
			text[(size_t) random() % sizeof(text)] =
				random() % 2 == 0 ? (char) random() : "\t\n/0"[random() % 4];
		good += strchr(read_all(text, random() % 2 == 0 ? sizeof(text) - 1 : len), '!') == NULL;
	}
	ok(good > 1000 && good < 99000, "of 100000 damaged records some are still good, %d", good);
}

/* ------------------------------------------------------------------------
 * All records
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
	bool	   complete;
	WaitSearch search;

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
	WaitSearch	search;
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
	ok(asked <= 500, "of which ZooKeeper is asked about %d", asked);
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
	test_reading();
	test_faults();
	test_garbage();
	test_deadlocks();
	test_named();
	test_crowd(1, false);
	test_crowd(1, true);
	test_crowd(99999, true);
	return done_testing();
}
