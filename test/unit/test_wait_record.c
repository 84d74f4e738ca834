/*-------------------------------------------------------------------------
 *
 * test_wait_record.c
 *	  Unit tests of wait_record.c
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/wait_record.h"

#include <stdlib.h>

#include "unit.h"

#define GOOD                                                                                        \
	"zklock waits 1\nserver\tone\nseen\t1f\nwait\tffffffffffffffff\t0\t/a\tn-1\n"                   \
	"step\t7\tShareLock on transaction 731\nstep\t8\tExclusiveLock\nheld\t/b\tn-2\nheld\t/b\tn-3\n" \
	"wait\t2\t3\t/s/leases\tl-1\nstep\t9\t\nheld\t/c\tn-4\n"

/* The kinds of a record's lines, as letters; '!' where it ceases to be one. */
static const char *
read_all(const char *text, size_t len)
{
	static char kinds[WAIT_RECORD_MAX];
	char	   *copy = malloc(len > 0 ? len : 1); /* sanitizers see what is read behind it */
	int			n = 0;
	WaitReader	reader;
	WaitLine	line;
	bool		good;

	memcpy(copy, text, len);
	good = wait_record_begin(&reader, copy, len);
	while (good)
	{
		good = wait_record_next(&reader, &line);
		if (!good || line.kind == WAIT_LINE_END)
			break;
		kinds[n++] = "snwph"[line.kind];
	}
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
	char	   copy[] = GOOD;
	WaitReader reader;
	WaitLine   line;

	check(GOOD, "snwpphhwph", "a record is read");
	check("zklock waits 1\nserver\t\nseen\t0\n", "sn", "one of no waits, of a server without a name");
	ok(wait_record_begin(&reader, copy, strlen(copy)), "it begins");
	ok(wait_record_next(&reader, &line), "with a line");
	is_str(line.text, "one", "that has the server's name");
	ok(wait_record_next(&reader, &line) && line.number == 0x1f, "then the zxid");
	ok(wait_record_next(&reader, &line) && line.number == UINT64_MAX && line.permits == 0, "a wait");
	is_str(line.path, "/a", "with its path");
	is_str(line.node, "n-1", "and node");
	ok(wait_record_next(&reader, &line) && line.number == 7, "a step");
	is_str(line.text, "ShareLock on transaction 731", "with what is waited for");
}

static void
test_faults(void)
{
	char long_text[WAIT_RECORD_MAX + 100];

	check("", "!", "nothing is no record");
	check("zklock waits 2\nserver\ta\nseen\t0\n", "!", "nor is one of another version");
	check("zklock waits 1\n", "!", "nor one that ends at once");
	check("zklock waits 1\nserver\ta\n", "s!", "nor one that ends too early");
	check("zklock waits 1\nserver\ta\nseen\t0", "s!", "nor one whose last line has no end");
	check("zklock waits 1\nseen\t0\n", "!", "nor one without a server");
	check("zklock waits 1\nserver\ta\nserver\ta\n", "s!", "or with two");
	check("zklock waits 1\nserver\ta\nseen\t0\nseen\t0\n", "sn!", "lines have an order");
	check("zklock waits 1\nserver\ta\nseen\t0\nheld\t/a\tn\n", "sn!", "a node belongs to a wait");
	check("zklock waits 1\nserver\ta\nseen\t0\nwait\t1\t0\t/a\tn\nheld\t/a\tn\n", "snw!", "with steps");
	check("zklock waits 1\nserver\ta\nseen\t0\nwait\t1\t0\t/a\tn\nstep\t1\tx\n", "snwp!",
		  "a wait has nodes");
	check("zklock waits 1\nserver\ta\nseen\t0\n\n", "sn!", "no line is empty");
	check("zklock waits 1\nserver\ta\nseen\t0\nother\t1\n", "sn!", "or of another kind");
	check("zklock waits 1\nserver\ta\tb\nseen\t0\n", "!", "or has a field too many");
	check("zklock waits 1\nserver\ta\nseen\t0\nwait\t1\t0\t/a\n", "sn!", "or too few");
	check("zklock waits 1\nserver\ta\nseen\t0\nwait\t1\t0\t/a\tb\tc\td\te\tf\n", "sn!",
		  "or far too many");
	check("zklock waits 1\nserver\ta\nseen\t\n", "s!", "a number has digits");
	check("zklock waits 1\nserver\ta\nseen\t-1\n", "s!", "and nothing else");
	check("zklock waits 1\nserver\ta\nseen\t8000000000000000\n", "s!", "and is not too large");
	check("zklock waits 1\nserver\ta\nseen\t0\nwait\t10000000000000000\t0\t/a\tn\n", "sn!",
		  "nor is this one");
	check("zklock waits 1\nserver\ta\nseen\t0\nwait\t1\t2147483648\t/a\tn\n", "sn!", "nor are permits");
	check("zklock waits 1\nserver\ta\nseen\t0\nwait\t1\t0\ta\tn\n", "sn!", "a path begins at the root");
	check("zklock waits 1\nserver\ta\nseen\t0\nwait\t1\t0\t/a/../b\tn\n", "sn!", "and has no dots");
	check("zklock waits 1\nserver\ta\nseen\t0\nwait\t1\t0\t/a\tn/m\n", "sn!", "a node is below it");
	check("zklock waits 1\nserver\ta\nseen\t0\nwait\t1\t0\t/a\t..\n", "sn!", "and no dots");
	check("zklock waits 1\nserver\ta\nseen\t0\nwait\t1\t0\t/a\t\n", "sn!", "and has a name");
	check("zklock waits 1\nserver\ta\001\nseen\t0\n", "!", "there are no control characters");
	is_str(read_all("zklock waits 1\nserver\ta\0\nseen\t0\n", 32), "!", "nor NULs");
	strcpy(long_text, "zklock waits 1\nserver\ta\nseen\t0\nwait\t1\t0\t/a\tn\n");
	for (int i = 0; i <= WAIT_RECORD_MAX_STEPS; i++)
		strcat(long_text, "step\t1\tx\n");
	strcat(long_text, "held\t/a\tn\n");
	ok(strchr(read_all(long_text, strlen(long_text)), '!') != NULL, "there are not too many steps");
	memset(long_text, 'x', sizeof(long_text));
	memcpy(long_text, "zklock waits 1\nserver\t", 22);
	is_str(read_all(long_text, sizeof(long_text)), "!", "what is too long is no record");
}

static void
test_writing(void)
{
	char	   text[201];
	WaitWriter writer;
	WaitLine   held = {.kind = WAIT_LINE_HELD, .path = "/b", .node = "n-2"};
	int		   n = 0;

	wait_record_start(&writer, text, sizeof(text) - 1);
	ok(wait_record_put(&writer, &(WaitLine){.kind = WAIT_LINE_SERVER, .text = "o\tn\ne"}),
	   "a record is written");
	wait_record_put(&writer, &(WaitLine){.kind = WAIT_LINE_SEEN, .number = 0x1f});
	wait_record_put(&writer,
					&(WaitLine){.kind = WAIT_LINE_WAIT, .number = 10, .permits = 2, .path = "/a", .node = "n-1"});
	wait_record_put(&writer, &(WaitLine){.kind = WAIT_LINE_STEP, .number = 7, .text = "what"});
	wait_record_put(&writer, &held);
	is_str(text, "zklock waits 1\nserver\to n e\nseen\t1f\nwait\ta\t2\t/a\tn-1\nstep\t7\twhat\nheld\t/b\tn-2\n",
		   "what would part a field is left out");
	while (wait_record_put(&writer, &held))
		n++;
	ok(n > 5 && writer.len <= sizeof(text) - 1, "as many lines as there is room for");
	ok(strchr(read_all(text, writer.len), '!') == NULL, "and what is written can be read");
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

int
main(void)
{
	test_reading();
	test_faults();
	test_writing();
	test_garbage();
	return done_testing();
}
