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

#define HEAD "zklock waits 1\nserver\ta\nseen\t0\n"
#define WAIT HEAD "wait\t1\t7\tx\n"

#define GOOD                                                                                           \
	"zklock waits 1\nserver\tone\nseen\t1f\nwait\tffffffffffffffff\t7\tShareLock on transaction 731\n" \
	"for\t8\nfor\t9\nheld\t/b\tn-2\nheld\t/b\tn-3\n"                                                   \
	"wait\t2\t8\tExclusiveLock\nnode\t3\t/s/leases\tl-1\nheld\t/c\tn-4\nwait\t3\t9\t\n"

#define MAX_LINES 64

/* The kinds of a record's lines, as letters; '!' where it ceases to be one. */
static const char *
read_all(const char *text, size_t len)
{
	static char kinds[MAX_LINES + 1];
	char	   *copy = malloc(len > 0 ? len : 1); /* sanitizers see what is read behind it */
	int			n = 0;
	WaitLine	lines[MAX_LINES];
	bool		good;

	memcpy(copy, text, len);
	for (int i = 0; i < MAX_LINES; i++)
		lines[i].kind = WAIT_LINE_END;
	good = wait_record_read(copy, len, lines);
	for (; lines[n].kind != WAIT_LINE_END; n++)
		kinds[n] = "snwqfh"[lines[n].kind];
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
	char	 copy[] = GOOD;
	WaitLine lines[MAX_LINES];

	check(GOOD, "snwffhhwqhw", "a record is read");
	check("zklock waits 1\nserver\t\nseen\t0\n", "sn", "one of no waits, of a server without a name");
	ok(wait_record_read(copy, strlen(copy), lines), "it has lines");
	is_str(lines[0].text, "one", "the first has the server's name");
	ok(lines[1].number == 0x1f, "then the zxid");
	ok(lines[2].number == UINT64_MAX && lines[2].pid == 7, "a wait");
	is_str(lines[2].text, "ShareLock on transaction 731", "with what is waited for");
	ok(lines[3].pid == 8, "and for whom");
	is_int(lines[8].permits, 3, "one for a permit");
	is_str(lines[8].path, "/s/leases", "with its path");
	is_str(lines[8].node, "l-1", "and node");
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
	check(HEAD "held\t/a\tn\n", "sn!", "a node belongs to a wait");
	check(HEAD "node\t0\t/a\tn\n", "sn!", "as does that with which it waits");
	check(HEAD "for\t1\n", "sn!", "and for whom");
	check(WAIT "node\t0\t/a\tn\nnode\t0\t/a\tn\n", "snwq!", "it waits with one");
	check(WAIT "held\t/a\tn\nfor\t1\n", "snwh!", "what it holds comes last");
	check(HEAD "\n", "sn!", "no line is empty");
	check(HEAD "other\t1\n", "sn!", "or of another kind");
	check("zklock waits 1\nserver\ta\tb\nseen\t0\n", "!", "or has a field too many");
	check(WAIT "node\t0\t/a\n", "snw!", "or too few");
	check(WAIT "node\t0\t/a\tb\tc\td\te\tf\n", "snw!", "or far too many");
	check("zklock waits 1\nserver\ta\nseen\t\n", "s!", "a number has digits");
	check("zklock waits 1\nserver\ta\nseen\t-1\n", "s!", "and nothing else");
	check("zklock waits 1\nserver\ta\nseen\t8000000000000000\n", "s!", "and is not too large");
	check(HEAD "wait\t10000000000000000\t7\tx\n", "sn!", "nor is this one");
	check(HEAD "wait\t1\t2147483648\tx\n", "sn!", "nor a pid");
	check(WAIT "node\t2147483648\t/a\tn\n", "snw!", "nor are permits");
	check(WAIT "node\t0\ta\tn\n", "snw!", "a path begins at the root");
	check(WAIT "node\t0\t/a/../b\tn\n", "snw!", "and has no dots");
	check(WAIT "node\t0\t/a\tn/m\n", "snw!", "a node is below it");
	check(WAIT "node\t0\t/a\t..\n", "snw!", "and no dots");
	check(WAIT "node\t0\t/a\t\n", "snw!", "and has a name");
	check("zklock waits 1\nserver\ta\001\nseen\t0\n", "!", "there are no control characters");
	is_str(read_all("zklock waits 1\nserver\ta\0\nseen\t0\n", 32), "!", "nor NULs");
	memset(long_text, 'x', sizeof(long_text));
	memcpy(long_text, "zklock waits 1\nserver\t", 22);
	strcpy(long_text + 22 + WAIT_RECORD_MAX_TEXT, "x\nseen\t0\n");
	check(long_text, "!", "there are no long texts");
	memset(long_text, 'x', sizeof(long_text));
	memcpy(long_text, "zklock waits 1\nserver\t", 22);
	is_str(read_all(long_text, sizeof(long_text)), "!", "what is too long is no record");
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
	test_garbage();
	return done_testing();
}
