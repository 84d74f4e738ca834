/*-------------------------------------------------------------------------
 *
 * permit_recipe.c
 *	  Semaphores as arithmetic: the names of leases, and who has a permit.
 *
 * The layout is that of Curator's InterProcessSemaphoreV2.  A node below
 * <path>/leases is a lease: it is a permit, or waits to become one.  Curator
 * takes the permit when there are no more leases than permits, and lets only
 * one client at a time wait for that, who holds the lock <path>/locks.
 *
 * Here a lease is a permit when there are fewer older ones than permits.  Of
 * all leases that are permits, look at the youngest: the others are older, so
 * its owner has counted them, whatever its rule was.  Hence the two rules go
 * together, and neither needs the lock to be safe.  What the lock is for is
 * order among those who wait.  That the rule looks at older leases only makes
 * it sure that of those who come together, without the lock, somebody gets
 * what there is.
 *
 * A lease of ours tells in its name how many permits its owner thinks there
 * are, so that a listing shows those who disagree.  Curator gives no meaning
 * to the names.
 *
 * There may be thousands of leases.  They are put in order once for each
 * listing; then each question is answered from its place in that order.
 *
 * Pure C: runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/permit_recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEASE_MARKER "lease-"
#define PERMITS_MARKER "-of"

/* Digits of the largest 32-bit number. */
#define MAX_DIGITS 10

/*
 * Reads len digits as a number of 32 bits; returns false if they are none.
 */
static bool
read_number(const char *digits, size_t len, bool negative, int32_t *number)
{
	int64_t value = 0;
	size_t	i;

	if (len == 0 || len > MAX_DIGITS)
		return false;
	for (i = 0; i < len; i++)
	{
		if (digits[i] < '0' || digits[i] > '9')
			return false;
		value = value * 10 + (digits[i] - '0');
	}
	if (negative)
		value = -value;
	if (value < INT32_MIN || value > INT32_MAX)
		return false;
	*number = (int32_t) value;
	return true;
}

/* Is what precedes the marker "-of<permits>-"?  Returns 0 if not. */
static int32_t
read_permits(const char *name, size_t len)
{
	const size_t marker_len = strlen(PERMITS_MARKER);
	size_t		 start;
	int32_t		 permits;

	if (len == 0 || name[--len] != '-')
		return 0;
	for (start = len; start > 0 && name[start - 1] >= '0' && name[start - 1] <= '9'; start--)
		;
	if (start < marker_len || memcmp(name + start - marker_len, PERMITS_MARKER, marker_len) != 0 ||
		!read_number(name + start, len - start, false, &permits))
		return 0;
	return permits;
}

/*
 * Write the name to give to a sequential create into dst, which has room for
 * size bytes: all of a lease's name but the sequence.  ZKLOCK_MAX_NODE_NAME + 1
 * bytes are always enough, with the sequence too.
 */
void
lease_name_prefix(char *dst, size_t size, int32_t permits, const uint8_t uuid[ZKLOCK_UUID_BYTES])
{
	char text[37];

	uuid_format(text, sizeof(text), uuid, true);
	snprintf(dst, size, "_c_%s" PERMITS_MARKER "%d-" LEASE_MARKER, text, (int) permits);
}

/*
 * Read the name of a node below PERMIT_LEASES.  Returns false if it has no
 * sequence where one belongs; it is a lease nevertheless, since for Curator
 * every child is one.
 *
 * The sequence is what a server makes of a counter of 32 bits: ten digits at
 * first, a sign and fewer digits when it has run over.
 */
bool
lease_name_parse(const char *name, PermitLease *lease)
{
	const char *marker = NULL;
	const char *next = name;
	const char *digits;
	bool		negative;

	lease->numbered = false;
	lease->sequence = 0;
	lease->permits = 0;

	while ((next = strstr(next, LEASE_MARKER)) != NULL)
		marker = next++;
	if (marker == NULL)
		return false;
	digits = marker + strlen(LEASE_MARKER);
	negative = *digits == '-';
	digits += negative;
	lease->numbered = read_number(digits, strlen(digits), negative, &lease->sequence);
	lease->permits = read_permits(name, (size_t) (marker - name));
	return lease->numbered;
}

static int
compare_places(const void *a, const void *b)
{
	const PermitPlace *one = a;
	const PermitPlace *other = b;

	return one->youth < other->youth ? -1 : one->youth > other->youth ? 1 : 0;
}

static int32_t
smaller_permits(int32_t a, int32_t b)
{
	return a > 0 && (b <= 0 || a < b) ? a : b;
}

/*
 * Put leases in the order of age, the oldest first.
 *
 * leases are the n children of the semaphore's node for leases, in any order;
 * places has room for as many.
 *
 * Sequences run in a circle, so their distance tells, which is right for
 * leases less than 2^31 apart.  Those without a sequence are older than all
 * others.
 */
void
permit_order(const PermitLease *leases, int n, PermitPlace *places)
{
	int32_t fewest = 0;
	int		reference = 0;
	int		i;

	while (reference < n && !leases[reference].numbered)
		reference++;
	for (i = 0; i < n; i++)
	{
		places[i].lease = i;
		places[i].youth = INT64_MIN;
		if (leases[i].numbered)
			places[i].youth =
				(int32_t) ((uint32_t) leases[i].sequence - (uint32_t) leases[reference].sequence);
	}
	if (n > 0)
		qsort(places, (size_t) n, sizeof(PermitPlace), compare_places);
	for (i = 0; i < n; i++)
	{
		fewest = smaller_permits(leases[places[i].lease].permits, fewest);
		places[i].fewest = fewest;
	}
}

/*
 * Whom does the owner of a lease wait for?
 *
 * leases and places are those of permit_order(); own is the place of the one
 * in question, or -1 for somebody who has none yet and would come last.  The
 * semaphore has the given number of permits, or less if the owner of an older
 * lease thinks so; *others is the smallest number that those name, 0 if none
 * does.  Of two with the same age each counts the other as older.
 *
 * Returns the index of the oldest lease if there is no permit left, else -1.
 */
int
permit_blocker(const PermitLease *leases, const PermitPlace *places, int n, int own,
			   int32_t permits, int32_t *others)
{
	int older = own < 0 ? n : own;
	int i;

	/* Twins stand side by side. */
	while (own >= 0 && older > 0 && places[older - 1].youth == places[own].youth)
		older--;
	*others = older > 0 ? places[older - 1].fewest : 0;
	for (i = older; own >= 0 && i < n && places[i].youth == places[own].youth; i++)
	{
		if (i == own)
			continue;
		older++;
		*others = smaller_permits(leases[places[i].lease].permits, *others);
	}
	if (*others > 0 && *others < permits)
		permits = *others;
	if (older < permits)
		return -1;
	return places[own == 0 && n > 1 ? 1 : 0].lease;
}
