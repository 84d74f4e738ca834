/*
 * load.h
 *		What the load generators in C share: requests, clocks, samples, answers.
 *
 * A load generator reads requests from standard input, one a line, and answers
 * each with a line of JSON.  The words of a request are parted by tabs:
 *
 *		ID	COMMAND	key=value	key=value ...
 *
 * A job begins at the time "begin"; what is acquired from the time "from" until
 * the time "end" counts.  Times are in microseconds of CLOCK_MONOTONIC.
 *
 * In a path
 *
 *		%d		is the number of the session, from 1
 *		%n		is another word for each acquisition, which never recurs
 *		%r		is a number from 1 to 10000, another at random for each acquisition
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers that grow in memory as they come. */
typedef struct Samples
{
	int64_t *values;
	size_t	 count;
	size_t	 room;
} Samples;

/* What answers the requests with this name, once, by load_answer...() */
typedef struct Command
{
	const char *name;
	void (*run)(void);
} Command;

extern int64_t	   load_now_us(void);
extern void		   load_serve(const Command *commands, int ncommands);
extern bool		   load_has(const char *key);
extern const char *load_word(const char *key);
extern int64_t	   load_number(const char *key);
extern void		   load_expand_path(char *dst, size_t size, const char *path, int number);
extern void		   load_sample(Samples *samples, int64_t value);
extern void		   load_answer(const char *name, const Samples *samples, int64_t others);
extern void		   load_answer_number(int64_t number);
extern void load_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
extern void *load_memory(void *former, size_t size);

#endif /* BENCH_LOAD_H */
