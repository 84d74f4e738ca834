/*-------------------------------------------------------------------------
 *
 * test_wait_record.c
 *	  Unit tests of wait_record.c
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock/wait_graph.h"

#include <stdlib.h>

#include "unit.h"

#define TITLE(name, seen) "zklock waits 1\t" seen "\t0\t0\t\t" name "\n"
#define FOR(pid) "for\t0\t" pid "\t0\t\t\n"
#define HELD(node) "held\t0\t0\t0\t" node "\t\n"
#define HEAD TITLE("a", "0")
#define WAIT HEAD "wait\t1\t7\t0\t\tx\n"

#define GOOD                                                                                          \
	TITLE("one", "1f")                                                                                \
	"wait\tffffffffffffffff\t7\t0\t\tShareLock on transaction 731\n" FOR("8") FOR("9") HELD("/b/n-2") \
		HELD("/b/n-3") "wait\t2\t8\t3\t/s/leases/l-1\tExclusiveLock\n" HELD("/c/n-4") "wait\t3\t9\t0\t\t\n"

#define MAX_LINES 80

/* The kinds of a record's lines, as letters; '!' where it ceases to be one. */
static const char *
read_all(const char *text, size_t len)
{
	static char kinds[MAX_LINES + 1];
	char	   *copy = malloc(len + 1); /* sanitizers see what is read behind it */
	int			n = 0;
	WaitLine	lines[MAX_LINES];
	bool		good;

	memcpy(copy, text, len);
	copy[len] = '\0';
	for (int i = 0; i < MAX_LINES; i++)
		lines[i].kind = WAIT_LINE_END;
	good = wait_record_read(copy, len, lines);
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
	char	 copy[] = GOOD;
	WaitLine lines[MAX_LINES];

	check(GOOD, "twffhhwhw", "a record is read");
	check(TITLE("", "0"), "t", "one of no waits, of a server without a name");
	ok(wait_record_read(copy, strlen(copy), lines), "it has lines");
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

int
main(void)
{
	test_reading();
	test_faults();
	test_garbage();
	return done_testing();
}
