/*-------------------------------------------------------------------------
 *
 * claim_record.c
 *	  The data of a claim's node: which slot was claimed last, and by whom.
 *
 * The node of a path has one record, which each claim replaces:
 *
 *	{"slot":"2026-11-22T00:00:00Z","claims":"6f1d... 09ac...","by":{...}}
 *
 *	slot	the slot claimed last, in UTC; null if claims were reset
 *	claims	ids of the last claims, the last one first.  A reset has an id as well.
 *	by		who made the last one, as display.c describes a session
 *
 * The ids settle what became of a claim whose answer was lost.  Each write replaces one
 * version of the node and puts its id in front.  So when the node is n versions further,
 * and the record has n ids or more, all claims made since are among them.  A new node's
 * record has version 1.
 *
 * The record is for people to read.  Data that would not be written in exactly the same
 * way belong to somebody else.  Years before 1 and after 9999 are written as ISO 8601
 * expands them.
 *
 * Pure C: depends on libc alone, allocates nothing, keeps no state, runs in any
 * process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/node_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define US_PER_SECOND INT64_C(1000000)
#define SECONDS_TO_2000 INT64_C(946684800) /* since 1970 */

/* The range of PostgreSQL's timestamps, in astronomical years */
#define MIN_YEAR (-4713)
#define MAX_YEAR 294276

#define RECORD_BEGINNING "{\"slot\":"
#define RECORD_IDS ",\"claims\":\""

/* Writes a slot as text, with microseconds if it has any. */
void
claim_record_write_slot(char dst[CLAIM_RECORD_SLOT_SIZE], int64_t slot)
{
	int		  us = (int) ((slot % US_PER_SECOND + US_PER_SECOND) % US_PER_SECOND);
	time_t	  seconds = (slot - us) / US_PER_SECOND + SECONDS_TO_2000;
	char	  fraction[8] = "";
	char	  rest[20];
	struct tm tm;
	int		  year;

	gmtime_r(&seconds, &tm);
	year = tm.tm_year + 1900;
	if (us != 0)
		snprintf(fraction, sizeof(fraction), ".%06d", us);
	strftime(rest, sizeof(rest), "-%m-%dT%H:%M:%S", &tm);
	snprintf(dst, CLAIM_RECORD_SLOT_SIZE, "%s%04d%s%sZ", year < 0 ? "-" : "", abs(year), rest, fraction);
}

/*
 * Returns true if the data of a node are a claim's.  They have len bytes, which may be any, or
 * are NULL.  Only their beginning counts, for callers that must not read what others wrote.
 */
bool
claim_record_recognised(const char *data, size_t len)
{
	char text[CLAIM_RECORD_SIZE];

	snprintf(text, sizeof(text), "%.*s", data ? (int) len : 0, data ? data : "");
	return strncmp(text, RECORD_BEGINNING, strlen(RECORD_BEGINNING)) == 0 &&
		   strstr(text, RECORD_IDS) != NULL;
}

/*
 * Reads a node's data, which may be any, up to a NUL.  Returns false if they are not a record;
 * then *record is all zero.
 */
bool
claim_record_read(const char *data, ClaimRecord *record)
{
	ClaimRecord read = {.claimed = false};
	char		slot[CLAIM_RECORD_SLOT_SIZE];
	char		ids[CLAIM_RECORD_IDS * CLAIM_RECORD_ID_SIZE];
	char		again[CLAIM_RECORD_SIZE];
	int			by = 0;

	*record = read;
	read.claimed = sscanf(data, RECORD_BEGINNING "\"%39[^\"]", slot) == 1;
	if (read.claimed)
	{
		struct tm tm = {0};
		int		  us = 0;

		if (sscanf(slot, "%7d-%2d-%2dT%2d:%2d:%2d.%6d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
				   &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &us) < 6 ||
			tm.tm_year < MIN_YEAR || tm.tm_year > MAX_YEAR)
			return false;
		tm.tm_year -= 1900;
		tm.tm_mon--;
		read.slot = ((int64_t) timegm(&tm) - SECONDS_TO_2000) * US_PER_SECOND + us;
	}
	if (sscanf(data, RECORD_BEGINNING "%*[^,]" RECORD_IDS "%169[0-9a-f ]\",\"by\":%n", ids, &by) != 1 ||
		by == 0)
		return false;
	for (size_t at = 0; at + CLAIM_RECORD_ID_SIZE - 1 <= strlen(ids); at += CLAIM_RECORD_ID_SIZE)
		memcpy(read.ids[read.nids++], ids + at, CLAIM_RECORD_ID_SIZE - 1);

	/* The last brace is the record's. */
	snprintf(read.claimant, CLAIM_RECORD_CLAIMANT_SIZE, "%.*s", (int) strlen(data + by) - 1,
			 data + by);
	if (read.nids == 0 || !node_contender_read(read.claimant, &(NodeContender){.pid = 0}))
		return false;

	/* From anything else than a record, something else or nothing was read. */
	(void) claim_record_write(again, &read);
	if (strcmp(data, again) != 0)
		return false;
	*record = read;
	return true;
}

/* Writes a record, which has an id at least.  Returns its length. */
size_t
claim_record_write(char dst[CLAIM_RECORD_SIZE], const ClaimRecord *record)
{
	char slot[CLAIM_RECORD_SLOT_SIZE];
	char ids[CLAIM_RECORD_IDS * CLAIM_RECORD_ID_SIZE] = "";

	claim_record_write_slot(slot, record->slot);
	for (int i = 0; i < record->nids; i++)
		snprintf(ids + i * CLAIM_RECORD_ID_SIZE - (i > 0), CLAIM_RECORD_ID_SIZE + 1, "%s%s",
				 i > 0 ? " " : "", record->ids[i]);
	return (size_t) snprintf(dst, CLAIM_RECORD_SIZE,
							 RECORD_BEGINNING "%s%s%s" RECORD_IDS "%s\",\"by\":%s}",
							 record->claimed ? "\"" : "", record->claimed ? slot : "null",
							 record->claimed ? "\"" : "", ids, record->claimant);
}

/* ------------------------------------------------------------------------
 * One claim after the other
 * ------------------------------------------------------------------------
 */

/* Copies the ids of the claims before it into a new record, which has its own id. */
void
claim_record_succeed(ClaimRecord *next, const ClaimRecord *last)
{
	next->nids = 1;
	for (int i = 0; i < last->nids && next->nids < CLAIM_RECORD_IDS; i++)
		memcpy(next->ids[next->nids++], last->ids[i], CLAIM_RECORD_ID_SIZE);
}

/*
 * Returns what comes next for a wanted record, now that the node has been read.  Anything that
 * was sent before is done by now or never will be.
 */
ClaimVerdict
claim_record_judge(const ClaimNode *node, const ClaimRecord *wanted, const ClaimSent *sent)
{
	const ClaimRecord *last = &node->record;
	bool			   same_node = node->exists && node->czxid == sent->czxid;
	int64_t			   writes = 0;

	for (int i = 0; i < last->nids; i++)
	{
		if (strcmp(last->ids[i], wanted->ids[0]) == 0)
			return CLAIM_MADE;
	}

	/*
	 * How often has the node been written, or created, since "sent"?  That includes our own
	 * write if it was made.
	 */
	switch (sent->what)
	{
		case CLAIM_SENT_NOTHING:
			break;
		case CLAIM_SENT_CREATE:
			if (node->exists && !same_node)
				writes = node->version;
			break;
		case CLAIM_SENT_SET:
			if (!same_node)
				return CLAIM_UNDECIDABLE; /* it is another node */
			writes = (int64_t) node->version - sent->version;
			break;
	}
	if (writes < 0 || writes > last->nids)
		return CLAIM_UNDECIDABLE;
	if (wanted->claimed ? last->claimed && wanted->slot <= last->slot : !last->claimed)
		return CLAIM_TAKEN;
	return CLAIM_WRITE;
}
