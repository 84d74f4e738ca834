/*-------------------------------------------------------------------------
 *
 * test_wait_graph.c
 *	  Unit tests of wait_graph.c
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock/wait_graph.h"

#include <stdlib.h>

#include "unit.h"

#define MAX_VERTICES 16

static WaitGraph   graph = {.resize = realloc};
static WaitVertex *vertices;

/* A graph of n vertices that wait for all, of which each is younger than the one before. */
static void
begin(int n)
{
	graph.nvertices = 0;
	graph.nedges = 0;
	for (int i = 0; i < n; i++)
		(void) wait_graph_add(&graph);
	vertices = graph.vertices;
	for (int i = 0; i < n; i++)
		vertices[i].order = (uint64_t) i + 1;
}

static void
edge(int from, int to)
{
	wait_graph_connect(&graph, from, to);
}

/* The stuck vertices, as letters. */
static const char *
stuck(void)
{
	static char text[MAX_VERTICES + 1];
	int			n = 0;

	wait_graph_solve(&graph);
	for (int i = 0; i < graph.nvertices; i++)
	{
		if (vertices[i].stuck)
			text[n++] = (char) ('a' + i);
	}
	text[n] = '\0';
	return text;
}

/* The cycle that is ended by giving up a vertex, as letters. */
static const char *
cycle(int self)
{
	static char text[MAX_VERTICES + 1];
	int			n = 0;
	int			at = self;

	if (wait_graph_is_victim(&graph, self))
	{
		do
		{
			text[n++] = (char) ('a' + at);
			at = vertices[at].parent;
		} while (at != self && n < MAX_VERTICES);
	}
	text[n] = '\0';
	return text;
}

static void
test_chains(void)
{
	begin(0);
	is_str(stuck(), "", "nobody is not stuck");

	begin(3);
	edge(0, 1);
	edge(1, 2);
	is_str(stuck(), "", "who waits for one that goes on goes on");
	is_str(cycle(0), "", "so there is nothing to give up");
}

static void
test_cycles(void)
{
	begin(5);
	edge(0, 1);
	edge(1, 2);
	edge(2, 0);
	edge(3, 2);
	edge(2, 4);
	is_str(stuck(), "abcd", "a cycle is stuck, and who waits for it");
	is_str(cycle(2), "cab", "the youngest gives up");
	is_str(cycle(0), "", "no other");
	is_str(cycle(1), "", "of the cycle");
	is_str(cycle(3), "", "nor one who waits for it, though it is younger");
	is_str(cycle(4), "", "nor one that goes on");

	vertices[2].order = 0;
	is_str(stuck(), "abcd", "one that cannot be given up is stuck as well");
	is_str(cycle(2), "", "and stays so");
	is_str(cycle(1), "bca", "the youngest of those that can gives up");

	begin(2);
	edge(0, 1);
	edge(1, 0);
	vertices[1].order = 1;
	vertices[0].tie = 1;
	(void) stuck();
	is_str(cycle(0), "ab", "of two that are equally young");
	is_str(cycle(1), "", "one does");

	begin(1);
	edge(0, 0);
	is_str(stuck(), "a", "who waits for itself is stuck");
	is_str(cycle(0), "a", "and gives up");
}

static void
test_components(void)
{
	begin(5);
	edge(0, 1);
	edge(1, 0);
	edge(2, 3);
	edge(3, 2);
	edge(3, 0);
	is_str(stuck(), "abcd", "two cycles, of which one waits for the other");
	is_str(cycle(1), "ba", "each");
	is_str(cycle(3), "dc", "gives up one");

	begin(5);
	edge(4, 0);
	edge(0, 1);
	edge(1, 2);
	edge(2, 4);
	edge(1, 4);
	edge(0, 3);
	edge(3, 0);
	is_str(stuck(), "abcde", "cycles that share a vertex");
	is_str(cycle(3), "", "give up only one");
	is_str(cycle(4), "eab", "and show the shortest");
	wait_graph_reach(&graph, 3);
	ok(vertices[0].reached && vertices[4].reaches, "which all are reached, and reach");
}

/* The vertices that are reached from one and are "behind" or not, as letters. */
static const char *
reached(int self, bool behind)
{
	static char text[MAX_VERTICES + 1];
	int			n = 0;

	wait_graph_solve(&graph);
	wait_graph_reach(&graph, self);
	wait_graph_find_behind(&graph);
	for (int i = 0; i < graph.nvertices; i++)
	{
		if (vertices[i].reached && vertices[i].behind == behind)
			text[n++] = (char) ('a' + i);
	}
	text[n] = '\0';
	return text;
}

/* A cycle of b and c that waits for one of f and g by way of e, and a crowd behind: a, d, h. */
static void
test_crowd(void)
{
	begin(9);
	edge(1, 2);
	edge(2, 1);
	edge(2, 4);
	edge(4, 5);
	edge(5, 6);
	edge(6, 5);
	edge(3, 1);
	edge(7, 3);
	edge(7, 6);
	edge(0, 3);
	edge(0, 7);
	edge(0, 8);
	is_str(stuck(), "abcdefgh", "a crowd behind two cycles is stuck");
	is_str(reached(0, true), "adh", "those that merely wait behind the cycles");
	is_str(reached(0, false), "bcefg", "and those in them, and between them");
	is_str(cycle(2), "cb", "the youngest of one of them gives up");
	is_str(reached(2, false), "bcefg", "all for whom that waits, without the crowd");
	is_str(reached(2, true), "", "of which nobody is reached from there");
	is_str(reached(8, true), "i", "one that goes on reaches nobody");

	begin(2);
	edge(0, 1);
	edge(1, 1);
	(void) stuck();
	is_str(reached(0, false), "b", "who waits for itself is not behind");
}

static void
test_numbers(void)
{
	begin(4);
	vertices[0].needs = 1;
	edge(0, 1);
	edge(0, 2);
	edge(1, 0);
	edge(2, 3);
	is_str(stuck(), "", "who needs one of two goes on with either");
	edge(3, 0);
	is_str(stuck(), "abcd", "but not if neither goes on");
	is_str(cycle(3), "dac", "then one gives up");
	is_str(cycle(1), "", "not two");

	vertices[0].needs = 0;
	is_str(stuck(), "", "who needs none goes on");

	begin(4);
	vertices[0].needs = 2;
	edge(0, 1);
	edge(0, 2);
	edge(0, 3);
	edge(1, 0);
	is_str(stuck(), "", "who needs two of three goes on when two do");
	edge(2, 0);
	is_str(stuck(), "abc", "and not when one does");

	begin(4);
	vertices[1].needs = WAIT_GRAPH_NEVER;
	edge(0, 1);
	edge(1, 2);
	edge(3, 2);
	is_str(stuck(), "ab", "who never goes on is stuck, and who waits for it");
	wait_graph_reach(&graph, 0);
	ok(vertices[1].reached && !vertices[0].reaches, "which makes no cycle");
	is_str(cycle(0), "", "so there is nothing to give up");
}

/* Is a set stuck by the definition: none in it can go on if all others do? */
static bool
is_closed(void)
{
	for (int i = 0; i < graph.nvertices; i++)
	{
		int	 all = 0;
		int	 good = 0;
		bool goes_on;

		for (int e = 0; e < graph.nedges; e++)
		{
			if (graph.edges[e].end[WAIT_FROM] != i)
				continue;
			all++;
			good += !vertices[graph.edges[e].end[WAIT_TO]].stuck;
		}
		goes_on = good >= (vertices[i].needs == WAIT_GRAPH_ALL ? all : vertices[i].needs);
		if (goes_on == vertices[i].stuck)
			return false;
	}
	return true;
}

/* Of each component of stuck vertices one gives up, if it has a cycle. */
static void
test_random(void)
{
	int wrong = 0;
	int deadlocks = 0;

	srandom(1);
	for (int run = 0; run < 20000; run++)
	{
		int	 victims = 0;
		bool any = false;

		begin(2 + (int) (random() % 8));
		for (int n = (int) (random() % (2 * graph.nvertices)); n > 0; n--)
			edge((int) (random() % graph.nvertices), (int) (random() % graph.nvertices));
		if (graph.nedges > 0 && random() % 2 == 0)
			vertices[graph.edges[random() % graph.nedges].end[WAIT_FROM]].needs = 1;
		(void) stuck();
		wrong += !is_closed();
		for (int i = 0; i < graph.nvertices; i++)
		{
			const char *found = cycle(i);

			any |= vertices[i].stuck;
			victims += found[0] != '\0';
			for (; *found != '\0'; found++)
				wrong += !vertices[*found - 'a'].stuck ||
						 vertices[*found - 'a'].order > vertices[i].order;
		}
		wrong += any && victims == 0;
		deadlocks += victims > 0;
	}
	is_int(wrong, 0, "random graphs: the stuck ones are, and their cycles have one that gives up");
	ok(deadlocks > 1000 && deadlocks < 19000, "some had deadlocks, %d of 20000", deadlocks);
}

int
main(void)
{
	test_chains();
	test_cycles();
	test_components();
	test_crowd();
	test_numbers();
	test_random();
	return done_testing();
}
