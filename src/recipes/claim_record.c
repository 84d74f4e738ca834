/*-------------------------------------------------------------------------
 *
 * claim_record.c
 *	  The data of a claim's node: which slot was claimed last, and by whom.
 *
 * A path's node has one record, which each claim replaces:
 *
 *	{"slot":"2026-11-22T00:00:00Z","claims":"6f1d... 09ac...","by":{...}}
 *
 *	slot	the slot claimed last, in UTC; null if claims were reset
 *	claims	ids of the last claims, the last one first.  A reset has one as well.
 *	by		who made the last one, as node_data.c tells of a session
 *
 * The ids settle what became of a claim whose answer was lost.  Each write
 * replaces one version of the node and puts its id in front.  So when the node is
 * n versions further, and the record has n ids or more, all claims since are
 * among them, or have not been made.
 *
 * The record is for people to read; they may also write it.  What is not exactly
 * of this form, but for white space between its parts, is somebody else's data.
 * Years before 1 and after 9999 are written as ISO 8601 expands them.
 *
 * Pure C: depends on libc alone, allocates nothing, keeps no state, runs in any
 * process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/claim_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define US_PER_SECOND INT64_C(1000000)
#define US_PER_DAY (INT64_C(86400) * US_PER_SECOND)

/* What PostgreSQL's timestamps have, in astronomical years. */
#define MIN_YEAR (-4713)
#define MAX_YEAR 294276

/* Days from 0000-03-01, with which 400 years of the calendar begin, to 2000-01-01. */
#define DAYS_TO_2000 730425
#define DAYS_PER_400_YEARS 146097

/* ------------------------------------------------------------------------
 * Slots
 * ------------------------------------------------------------------------
 */

/*
 * The day, counted from 2000-01-01, of a date in the Gregorian calendar.  A year
 * that begins in March has its leap day at the end, and the days before a month
 * of it are those before the same fraction of 153 days in 5 months.
 */
static int64_t
day_of_date(int64_t year, int month, int day)
{
	int64_t march_year = month > 2 ? year : year - 1;
	int64_t era = (march_year >= 0 ? march_year : march_year - 399) / 400;
	int64_t year_of_era = march_year - era * 400;
	int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;

	return era * DAYS_PER_400_YEARS + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 +
		   day_of_year - DAYS_TO_2000;
}

/* The date of a day: the inverse of the above. */
static void
date_of_day(int64_t days, int64_t *year, int *month, int *day)
{
	int64_t from_march = days + DAYS_TO_2000;
	int64_t era = (from_march >= 0 ? from_march : from_march - (DAYS_PER_400_YEARS - 1)) /
				  DAYS_PER_400_YEARS;
	int64_t day_of_era = from_march - era * DAYS_PER_400_YEARS;
	int64_t year_of_era =
		(day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
	int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	int64_t month_of_year = (5 * day_of_year + 2) / 153;

	*day = (int) (day_of_year - (153 * month_of_year + 2) / 5 + 1);
	*month = (int) (month_of_year < 10 ? month_of_year + 3 : month_of_year - 9);
	*year = year_of_era + era * 400 + (*month <= 2 ? 1 : 0);
}

/* Writes a slot as text, with microseconds if it has any. */
void
claim_record_write_slot(char dst[CLAIM_RECORD_SLOT_SIZE], int64_t slot)
{
	int64_t days = slot / US_PER_DAY - (slot % US_PER_DAY < 0 ? 1 : 0);
	int64_t us = slot - days * US_PER_DAY;
	int		seconds = (int) (us / US_PER_SECOND);
	int64_t year;
	int		month;
	int		day;
	int		len;

	date_of_day(days, &year, &month, &day);
	len = snprintf(dst, CLAIM_RECORD_SLOT_SIZE, "%s%04" PRId64 "-%02d-%02dT%02d:%02d:%02d",
				   year < 0 ? "-" : "", year < 0 ? -year : year, month, day, seconds / 3600,
				   seconds / 60 % 60, seconds % 60);
	if (us % US_PER_SECOND != 0)
		len += snprintf(dst + len, CLAIM_RECORD_SLOT_SIZE - (size_t) len, ".%06d",
						(int) (us % US_PER_SECOND));
	snprintf(dst + len, CLAIM_RECORD_SLOT_SIZE - (size_t) len, "Z");
}

/* ------------------------------------------------------------------------
 * Reading
 * ------------------------------------------------------------------------
 */

/* What is still to be read. */
typedef struct Reader
{
	const char *at;
	const char *end;
} Reader;

static bool
is_at(const Reader *reader, char c)
{
	return reader->at < reader->end && *reader->at == c;
}

static void
skip_space(Reader *reader)
{
	while (is_at(reader, ' ') || is_at(reader, '\t') || is_at(reader, '\r') || is_at(reader, '\n'))
		reader->at++;
}

/* Goes over a text if it comes next. */
static bool
take(Reader *reader, const char *text)
{
	size_t len = strlen(text);

	if ((size_t) (reader->end - reader->at) < len || memcmp(reader->at, text, len) != 0)
		return false;
	reader->at += len;
	return true;
}

/* Likewise, a part of the form, with space on both sides. */
static bool
take_part(Reader *reader, const char *part)
{
	skip_space(reader);
	if (!take(reader, part))
		return false;
	skip_space(reader);
	return true;
}

/* A member's name and the colon behind it */
static bool
take_name(Reader *reader, const char *name)
{
	return take_part(reader, name) && take_part(reader, ":");
}

/* A number of at least "least" digits and at most "most", between two bounds */
static bool
read_number(Reader *reader, int least, int most, int64_t low, int64_t high, int64_t *value)
{
	int digits = 0;

	*value = 0;
	while (digits < most && reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9')
	{
		*value = *value * 10 + (*reader->at++ - '0');
		digits++;
	}
	return digits >= least && *value >= low && *value <= high;
}

static bool
read_slot(Reader *reader, int64_t *slot)
{
	bool	negative = take(reader, "-");
	int64_t year;
	int64_t month;
	int64_t day;
	int64_t hour;
	int64_t minute;
	int64_t second;
	int64_t us = 0;

	if (!read_number(reader, 4, 6, 0, negative ? -MIN_YEAR : MAX_YEAR, &year) ||
		!take(reader, "-") || !read_number(reader, 2, 2, 1, 12, &month) ||
		!take(reader, "-") || !read_number(reader, 2, 2, 1, 31, &day) || !take(reader, "T") ||
		!read_number(reader, 2, 2, 0, 23, &hour) || !take(reader, ":") ||
		!read_number(reader, 2, 2, 0, 59, &minute) || !take(reader, ":") ||
		!read_number(reader, 2, 2, 0, 59, &second) ||
		(take(reader, ".") && !read_number(reader, 6, 6, 0, US_PER_SECOND - 1, &us)))
		return false;
	*slot = day_of_date(negative ? -year : year, (int) month, (int) day) * US_PER_DAY +
			((hour * 60 + minute) * 60 + second) * US_PER_SECOND + us;
	return take(reader, "Z");
}

static bool
read_ids(Reader *reader, ClaimRecord *record)
{
	do
	{
		char *id;

		if (record->nids == CLAIM_RECORD_IDS || reader->end - reader->at < CLAIM_RECORD_ID_SIZE - 1)
			return false;
		id = record->ids[record->nids];
		memcpy(id, reader->at, CLAIM_RECORD_ID_SIZE - 1);
		if (strspn(id, "0123456789abcdef") != CLAIM_RECORD_ID_SIZE - 1)
			return false;
		reader->at += CLAIM_RECORD_ID_SIZE - 1;
		record->nids++;
	} while (take(reader, " "));
	return true;
}

/* The claimant: an object with other values than objects, which it is not looked into for. */
static bool
read_claimant(Reader *reader, ClaimRecord *record)
{
	const char *start = reader->at;
	bool		quoted = false;
	size_t		len;

	if (!take(reader, "{"))
		return false;
	while (reader->at < reader->end && *reader->at != '\0' && (quoted || *reader->at != '}'))
	{
		if (!quoted && *reader->at == '{')
			return false;
		if (*reader->at == '"')
			quoted = !quoted;
		else if (quoted && *reader->at == '\\' && reader->at + 1 < reader->end && reader->at[1] != '\0')
			reader->at++;
		reader->at++;
	}
	if (!take(reader, "}"))
		return false;
	len = (size_t) (reader->at - start);
	if (len >= CLAIM_RECORD_CLAIMANT_SIZE)
		return false;
	memcpy(record->claimant, start, len);
	return true;
}

static bool
read_record(Reader *reader, ClaimRecord *record)
{
	if (!take_part(reader, "{") || !take_name(reader, "\"slot\""))
		return false;
	record->claimed = !take(reader, "null");
	if (record->claimed &&
		(!take(reader, "\"") || !read_slot(reader, &record->slot) || !take(reader, "\"")))
		return false;
	return take_part(reader, ",") && take_name(reader, "\"claims\"") && take(reader, "\"") &&
		   read_ids(reader, record) && take(reader, "\"") && take_part(reader, ",") &&
		   take_name(reader, "\"by\"") && read_claimant(reader, record) &&
		   take_part(reader, "}") && reader->at == reader->end;
}

/*
 * Reads a node's data of len bytes, which may be any.  Returns false if that is
 * not a record; then nothing is told.
 */
bool
claim_record_read(const char *data, size_t len, ClaimRecord *record)
{
	Reader reader = {.at = data, .end = data + len};
	bool   ours;

	memset(record, 0, sizeof(*record));
	ours = read_record(&reader, record);
	if (!ours)
		memset(record, 0, sizeof(*record));
	return ours;
}

/* ------------------------------------------------------------------------
 * Writing
 * ------------------------------------------------------------------------
 */

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
	return (size_t) snprintf(dst, CLAIM_RECORD_SIZE, "{\"slot\":%s%s%s,\"claims\":\"%s\",\"by\":%s}",
							 record->claimed ? "\"" : "", record->claimed ? slot : "null",
							 record->claimed ? "\"" : "", ids, record->claimant);
}

/* ------------------------------------------------------------------------
 * One claim after the other
 * ------------------------------------------------------------------------
 */

/* Has a new record, which has its own id, remember the claims before it. */
void
claim_record_succeed(ClaimRecord *next, const ClaimRecord *last)
{
	next->nids = 1;
	for (int i = 0; i < last->nids && next->nids < CLAIM_RECORD_IDS; i++)
		memcpy(next->ids[next->nids++], last->ids[i], CLAIM_RECORD_ID_SIZE);
}

/*
 * How often has the node been written since, or created, our own write included if
 * it was made?  -1 if it is another node.
 */
static int64_t
writes_since(const ClaimNode *node, const ClaimSent *sent)
{
	switch (sent->what)
	{
		case CLAIM_SENT_NOTHING:
			break;
		case CLAIM_SENT_CREATE:
			return node->exists ? INT64_C(1) + node->version : 0;
		case CLAIM_SENT_SET:
			return node->exists && node->czxid == sent->czxid ? (int64_t) node->version - sent->version
															  : -1;
	}
	return 0;
}

/*
 * What comes next for a record that is wanted, now that the node has been read?
 * What was sent before, if anything, is done by now or never will be.
 */
ClaimVerdict
claim_record_judge(const ClaimNode *node, const ClaimRecord *wanted, const ClaimSent *sent)
{
	const ClaimRecord *last = &node->record;
	int64_t			   writes = writes_since(node, sent);

	for (int i = 0; i < last->nids; i++)
	{
		if (strcmp(last->ids[i], wanted->ids[0]) == 0)
			return CLAIM_MADE;
	}
	if (writes < 0 || writes > last->nids)
		return CLAIM_UNDECIDABLE;
	if (wanted->claimed ? last->claimed && wanted->slot <= last->slot : !last->claimed)
		return CLAIM_TAKEN;
	return node->exists ? CLAIM_WRITE : CLAIM_CREATE;
}
