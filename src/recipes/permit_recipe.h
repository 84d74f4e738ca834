/*-------------------------------------------------------------------------
 *
 * permit_recipe.h
 *	  Semaphores as arithmetic: the names of leases, and who has a permit.
 *
 * Pure C: depends on node_name.h alone, allocates nothing, keeps no state,
 * runs in any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PERMIT_RECIPE_H
#define ZKLOCK_PERMIT_RECIPE_H

#include "recipes/node_name.h"

/* Where a semaphore keeps its nodes, as Curator does. */
#define PERMIT_TURNS "/locks"
#define PERMIT_LEASES "/leases"

/* What the name of a node below PERMIT_LEASES tells. */
typedef struct PermitLease
{
	bool	numbered; /* has a sequence; others are taken to be the oldest */
	int32_t sequence;
	int32_t permits; /* its owner's idea of the semaphore, 0 if it does not tell */
} PermitLease;

/* A lease in the order of age. */
typedef struct PermitPlace
{
	int64_t youth;	/* the smaller, the older */
	int		lease;	/* which of the leases it is */
	int32_t fewest; /* smallest number of permits that it or an older one tells, or 0 */
} PermitPlace;

extern void
			lease_name_prefix(char *dst, size_t size, int32_t permits, const uint8_t uuid[ZKLOCK_UUID_BYTES]);
extern bool lease_name_parse(const char *name, PermitLease *lease);
extern void permit_order(const PermitLease *leases, int n, PermitPlace *places);
extern int permit_blocker(const PermitLease *leases, const PermitPlace *places, int n, int own,
						  int32_t permits, int32_t *others);

#endif /* ZKLOCK_PERMIT_RECIPE_H */
