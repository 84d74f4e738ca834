/*
 * test_claim_record.c
 *		The data of a claim's node: written and read, foreign data, and what the
 *		ids tell of a claim whose answer was lost.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "recipes/node_name.h"

#include <stdlib.h>

#include "unit.h"

#define DAY (INT64_C(86400) * 1000000)

/* Finite timestamps of PostgreSQL: from 4714-11-24 BC to the end of 294276. */
#define FIRST (INT64_C(-211813488000000000))
#define LAST (INT64_C(9223371331200000000) - 1)

#define BY "{\"zklock\":\"1.0\",\"host\":\"h\",\"port\":5432,\"pid\":17}"

/* A record of claims that were reset, up to its claimant */
#define RESET_BY "{\"slot\":null,\"claims\":\"0123456789abcdef\",\"by\":"

static ClaimRecord
record_of(int64_t slot, int nids)
{
	ClaimRecord record = {.claimed = true, .slot = slot, .nids = nids, .claimant = BY};

	for (int i = 0; i < nids; i++)
		snprintf(record.ids[i], CLAIM_RECORD_ID_SIZE, "%016x", 0xa00 + i);
	return record;
}

static bool
reads(const char *data)
{
	ClaimRecord record;

	return claim_record_read(data, &record);
}

static void
slot_is(int64_t slot, const char *expected)
{
	char		text[CLAIM_RECORD_SLOT_SIZE];
	char		data[CLAIM_RECORD_SIZE];
	ClaimRecord record = record_of(slot, 1);
	ClaimRecord again;

	(void) claim_record_write(data, &record);
	claim_record_write_slot(text, slot);
	is_str(text, expected, expected);
	ok(claim_record_read(data, &again) && again.slot == slot, "and back");
}

static void
test_slots(void)
{
	slot_is(0, "2000-01-01T00:00:00Z");
	slot_is(-1, "1999-12-31T23:59:59.999999Z");
	slot_is(59 * DAY, "2000-02-29T00:00:00Z");
	slot_is(9822 * DAY + INT64_C(3723000001), "2026-11-22T01:02:03.000001Z");
	slot_is(-36524 * DAY, "1900-01-01T00:00:00Z");
	slot_is(-730119 * DAY, "0001-01-01T00:00:00Z");
	slot_is(-730120 * DAY, "0000-12-31T00:00:00Z");
	slot_is(FIRST, "-4713-11-24T00:00:00Z");
	slot_is(LAST, "294276-12-31T23:59:59.999999Z");

	srand(1);
	for (int i = 0; i < 10000; i++)
	{
		int64_t slot = FIRST + (int64_t) ((double) rand() / RAND_MAX * (double) LAST) + rand();
		char	data[CLAIM_RECORD_SIZE];
		ClaimRecord record = record_of(slot, 1);
		ClaimRecord again;

		(void) claim_record_write(data, &record);
		if (!claim_record_read(data, &again) || again.slot != slot)
		{
			ok(false, "slot %lld is read as it was written", (long long) slot);
			return;
		}
	}
	ok(true, "so is any other slot");
}

static void
test_record(void)
{
	ClaimRecord record = record_of(0, 2);
	ClaimRecord again;
	char		data[CLAIM_RECORD_SIZE];
	size_t		len = claim_record_write(data, &record);

	is_str(data,
		   "{\"slot\":\"2000-01-01T00:00:00Z\",\"claims\":\"0000000000000a00 0000000000000a01\",\"by\":" BY
		   "}",
		   "a record is readable");
	is_int((long long) len, (long long) strlen(data), "its length is told");
	ok(claim_record_read(data, &again) && memcmp(&record, &again, sizeof(record)) == 0,
	   "and read as it was written");

	record.claimed = false;
	len = claim_record_write(data, &record);
	ok(strstr(data, "{\"slot\":null,") == data, "claims that were reset have no slot");
	ok(claim_record_read(data, &again) && !again.claimed && again.nids == 2, "but ids");

	record = record_of(LAST, CLAIM_RECORD_IDS);
	memset(record.claimant + sizeof(BY) - 2, 'x', CLAIM_RECORD_CLAIMANT_SIZE - sizeof(BY));
	record.claimant[CLAIM_RECORD_CLAIMANT_SIZE - 2] = '}';
	record.claimant[CLAIM_RECORD_CLAIMANT_SIZE - 1] = '\0';
	len = claim_record_write(data, &record);
	ok(len < CLAIM_RECORD_SIZE, "the longest record has room");
	ok(claim_record_read(data, &again), "and is read");
	while (len-- > 0)
	{
		data[len] = '\0';
		if (claim_record_read(data, &again))
			ok(false, "%zu bytes of it are none", len);
	}

	ok(!reads(" " RESET_BY BY "}"), "other white space than that of a record is none of ours");
	ok(reads(RESET_BY "{\"zklock\":\"1.0\",\"host\":\"h\",\"port\":1,\"pid\":1,\"user\":\"\\\"}{\\\\\"}}"),
	   "anything may be in a claimant's texts");
}

static void
test_recognised(void)
{
	ClaimRecord record = record_of(LAST, CLAIM_RECORD_IDS);
	char		data[CLAIM_RECORD_SIZE];
	size_t		len = claim_record_write(data, &record);

	ok(claim_record_recognised(data, len), "a record is recognised");
	record.claimed = false;
	ok(claim_record_recognised(data, claim_record_write(data, &record)), "so is that of a reset");
	ok(!claim_record_recognised(data, 0) && !claim_record_recognised(NULL, 0), "no data are no claim's");
	ok(!claim_record_recognised(BY, sizeof(BY) - 1), "nor are a lock's");
	ok(!claim_record_recognised("{\"slot\":7}", 10), "nor anybody's who has slots");
	ok(!claim_record_recognised(data, 20), "nor the beginning of a record");
}

static void
test_foreign(void)
{
	static const char *const foreign[] = {
		"",
		"x",
		"{}",
		"null",
		"2026-11-22T00:00:00.000Z",												 /* ShedLock */
		"{\"version\": 1, \"holder\": \"h\", \"end\": \"2026-11-22T00:00:00\"}", /* kazoo's lease */
		"{\"server\":\"a\",\"host\":\"h\",\"port\":5432,\"pid\":17,\"started\":\"now\"}", /* a lock */
		"{\"slot\":null,\"claims\":\"\",\"by\":" BY "}",
		"{\"slot\":null,\"claims\":\"0123456789abcde\",\"by\":" BY "}",
		"{\"slot\":null,\"claims\":\"0123456789abcdeG\",\"by\":" BY "}",
		"{\"slot\":null,\"claims\":\"0123456789abcdef \",\"by\":" BY "}",
		"{\"slot\":null,\"claims\":\"0123456789abcdef\"}",
		RESET_BY "{}}",
		RESET_BY "{" BY "}}",
		"{\"slot\":null,\"claims\":\"0123456789abcdef\",\"by\":{\"}",
		"{\"slot\":null,\"claims\":\"0123456789abcdef\",\"by\":{\"\\",
		"{\"slot\":null,\"claims\":\"0123456789abcdef\",\"by\":" BY "}x",
		"{\"claims\":\"0123456789abcdef\",\"slot\":null,\"by\":" BY "}",
		"{\"slot\":\"2026-11-22\",\"claims\":\"0123456789abcdef\",\"by\":" BY "}",
		"{\"slot\":\"2026-13-22T00:00:00Z\",\"claims\":\"0123456789abcdef\",\"by\":" BY "}",
		"{\"slot\":\"2026-11-22T24:00:00Z\",\"claims\":\"0123456789abcdef\",\"by\":" BY "}",
		"{\"slot\":\"2026-11-22T00:00:00.1Z\",\"claims\":\"0123456789abcdef\",\"by\":" BY "}",
		"{\"slot\":\"2026-11-22T00:00:00+01\",\"claims\":\"0123456789abcdef\",\"by\":" BY "}",
		"{\"slot\":\"9999999-01-01T00:00:00Z\",\"claims\":\"0123456789abcdef\",\"by\":" BY "}",
		"{\"slot\":\"294277-01-01T00:00:00Z\",\"claims\":\"0123456789abcdef\",\"by\":" BY "}",
		"{\"slot\":\"-4714-01-01T00:00:00Z\",\"claims\":\"0123456789abcdef\",\"by\":" BY "}",
	};
	static const char begun[] = RESET_BY "{";
	char many[128 + 18 * CLAIM_RECORD_IDS] = "{\"slot\":null,\"claims\":\"0123456789abcdef";
	char any[256];
	ClaimRecord record;

	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
		ok(!reads(foreign[i]), "not a record: %s", foreign[i]);
	for (int i = 0; i < CLAIM_RECORD_IDS; i++)
		strcat(many, " 0123456789abcdef");
	ok(!reads(strcat(many, "\",\"by\":" BY "}")), "nor with too many ids");

	srand(2);
	for (int i = 0; i < 20000; i++)
	{
		int	   len = rand() % (int) sizeof(any);
		size_t begin = (size_t) (rand() % (int) (sizeof(begun) - 1));

		for (int j = 0; j < len; j++)
			any[j] = (char) rand();
		if (begin < (size_t) len)
			memcpy(any, begun, begin);
		any[len] = '\0';
		(void) claim_record_read(any, &record);
		(void) claim_record_recognised(any, (size_t) len);
	}
	ok(true, "whatever a node has is survived");
}

static void
test_succession(void)
{
	ClaimRecord last = record_of(5, CLAIM_RECORD_IDS);
	ClaimRecord next = record_of(6, 1);

	strcpy(next.ids[0], "00000000000000ff");
	claim_record_succeed(&next, &last);
	is_int(next.nids, CLAIM_RECORD_IDS, "as many claims are remembered as there is room for");
	is_str(next.ids[0], "00000000000000ff", "its own first");
	is_str(next.ids[1], last.ids[0], "then those before");
	is_str(next.ids[CLAIM_RECORD_IDS - 1], last.ids[CLAIM_RECORD_IDS - 2], "but for the oldest");
}

static ClaimVerdict
judge(const ClaimRecord *last, int64_t slot, const char *id)
{
	ClaimNode	node = {.exists = true, .record = *last};
	ClaimRecord wanted = record_of(slot, 1);
	ClaimSent	sent = {.what = CLAIM_SENT_NOTHING};

	strcpy(wanted.ids[0], id);
	return claim_record_judge(&node, &wanted, &sent);
}

static void
test_judgement(void)
{
	ClaimRecord last = record_of(5, 3);
	ClaimRecord reset = {.nids = 1, .ids = {"00000000000000ff"}};
	ClaimNode	none = {.exists = false};
	ClaimSent	nothing = {.what = CLAIM_SENT_NOTHING};

	is_int(judge(&last, 6, "00000000000000ff"), CLAIM_WRITE, "a later slot can be claimed");
	is_int(judge(&last, 5, "00000000000000ff"), CLAIM_TAKEN, "the same cannot");
	is_int(judge(&last, 4, "00000000000000ff"), CLAIM_TAKEN, "nor an earlier one");
	is_int(claim_record_judge(&none, &last, &nothing), CLAIM_WRITE, "any, where there is no node");
	is_int(claim_record_judge(&none, &reset, &nothing), CLAIM_TAKEN, "where there is nothing to reset");
	last.claimed = false;
	is_int(judge(&last, 4, "00000000000000ff"), CLAIM_WRITE, "but any after a reset");
	is_int(judge(&last, 4, "0000000000000a02"), CLAIM_MADE, "its own id tells that it has been");
}

/* The node has been written so often since our write was sent, or is another one. */
static ClaimVerdict
judge_doubt(const ClaimRecord *seen, const char *id, int writes)
{
	ClaimNode node = {.exists = true, .czxid = writes < 0 ? 2 : 1, .version = 7 + writes, .record = *seen};
	ClaimSent	sent = {.what = CLAIM_SENT_SET, .czxid = 1, .version = 7};
	ClaimRecord wanted = record_of(6, 1);

	strcpy(wanted.ids[0], id);
	return claim_record_judge(&node, &wanted, &sent);
}

static void
test_doubt(void)
{
	ClaimRecord seen = record_of(5, 3);
	ClaimRecord wanted = record_of(6, 1);
	ClaimRecord none = {.claimed = false};
	ClaimNode	node = {.exists = false};
	ClaimSent	set = {.what = CLAIM_SENT_SET};
	ClaimSent	create = {.what = CLAIM_SENT_CREATE};
	ClaimSent	replace = {.what = CLAIM_SENT_CREATE, .czxid = 1};

	is_int(judge_doubt(&seen, "0000000000000a00", 1), CLAIM_MADE, "its id is the last");
	is_int(judge_doubt(&seen, "0000000000000a02", 3), CLAIM_MADE, "others have followed");
	is_int(judge_doubt(&seen, "00000000000000ff", 0), CLAIM_WRITE, "nothing was written");
	is_int(judge_doubt(&seen, "00000000000000ff", 3), CLAIM_WRITE, "others alone have written");
	is_int(judge_doubt(&seen, "00000000000000ff", 4), CLAIM_UNDECIDABLE,
		   "one of them is not remembered");
	is_int(judge_doubt(&seen, "00000000000000ff", -1), CLAIM_UNDECIDABLE, "it is another node");
	is_int(judge_doubt(&none, "00000000000000ff", 0), CLAIM_WRITE, "nobody has claimed anything");
	is_int(judge_doubt(&none, "00000000000000ff", 1), CLAIM_UNDECIDABLE,
		   "somebody has emptied the node");
	is_int(claim_record_judge(&node, &wanted, &set), CLAIM_UNDECIDABLE, "somebody has deleted it");
	is_int(claim_record_judge(&node, &wanted, &create), CLAIM_WRITE, "it has not been created");
	is_int(claim_record_judge(&node, &wanted, &replace), CLAIM_WRITE, "nor replaced");
	node = (ClaimNode){.exists = true, .czxid = 2, .version = 3, .record = seen};
	strcpy(wanted.ids[0], "00000000000000ff");
	is_int(claim_record_judge(&node, &wanted, &create), CLAIM_WRITE, "others have created it");
	is_int(claim_record_judge(&node, &wanted, &replace), CLAIM_WRITE, "others have replaced it");
	node.version = 4;
	is_int(claim_record_judge(&node, &wanted, &create), CLAIM_UNDECIDABLE,
		   "others have, and one is not remembered");
	is_int(claim_record_judge(&node, &wanted, &replace), CLAIM_UNDECIDABLE,
		   "others have replaced it, and one is not remembered");
	node = (ClaimNode){.exists = true, .czxid = 1};
	is_int(claim_record_judge(&node, &wanted, &replace), CLAIM_WRITE, "it has not been replaced");
}

int
main(void)
{
	test_slots();
	test_record();
	test_recognised();
	test_foreign();
	test_succession();
	test_judgement();
	test_doubt();
	return done_testing();
}
