/*
 * listing.h
 *		Listings of a path's children, and what they tell.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_LISTING_H
#define ZKLOCK_LISTING_H

#include "queue/engine.h"

extern void path_list(Path *path, int owner, ListWatch watch);

#endif /* ZKLOCK_LISTING_H */
