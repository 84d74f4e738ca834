/*-------------------------------------------------------------------------
 *
 * permit_recipe.h
 *	  Where a semaphore keeps its nodes.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PERMIT_RECIPE_H
#define ZKLOCK_PERMIT_RECIPE_H

/* Below the semaphore's path, as Curator has it */
#define PERMIT_TURNS "/locks"
#define PERMIT_LEASES "/leases"

#endif /* ZKLOCK_PERMIT_RECIPE_H */
