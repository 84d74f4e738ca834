/*
 * chance.c
 *		Chance in the simulated world, from a seed.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "sim.h"

static uint64_t state;

void
sim_seed(uint64_t seed)
{
	state = seed;
}

/* splitmix64 */
uint64_t
sim_random(void)
{
	uint64_t z = (state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

uint64_t
sim_below(uint64_t n)
{
	return sim_random() % n;
}

bool
sim_one_in(uint64_t n)
{
	return n > 0 && sim_random() % n == 0;
}
