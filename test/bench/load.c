/*
 * load.c
 *		What the load generators in C share; see the header.
 *
 * Copyright (c) 2026, zklock contributors
 */
#define _GNU_SOURCE
#include "load.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_WORDS 32

static char	 *line; /* the request; its words point into it */
static size_t line_size;
static char	 *words[MAX_WORDS];
static int	  nwords;

/* The clock that all load generators, in whatever language, read, in microseconds. */
int64_t
load_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* realloc() that does not fail */
void *
load_memory(void *former, size_t size)
{
	void *memory = realloc(former, size);

	if (memory == NULL)
		load_fail("out of memory");
	return memory;
}

static void
split_request(void)
{
	char *rest = line;

	line[strcspn(line, "\n")] = '\0';
	nwords = 0;
	while (rest && nwords < MAX_WORDS)
		words[nwords++] = strsep(&rest, "\t");
	if (nwords < 2)
		load_fail("this is no request: %s", line);
}

/* Serves requests until the end of the input. */
void
load_serve(const Command *commands, int ncommands)
{
	while (getline(&line, &line_size, stdin) >= 0)
	{
		int i = 0;

		split_request();
		while (i < ncommands && strcmp(commands[i].name, words[1]) != 0)
			i++;
		if (i == ncommands)
			load_fail("unknown command %s", words[1]);
		commands[i].run();
	}
}

/* The value of a key in the request; NULL without the key. */
static const char *
find_word(const char *key)
{
	size_t length = strlen(key);

	for (int i = 2; i < nwords; i++)
	{
		if (strncmp(words[i], key, length) == 0 && words[i][length] == '=')
			return words[i] + length + 1;
	}
	return NULL;
}

bool
load_has(const char *key)
{
	return find_word(key) != NULL;
}

/* The value of a key that the request must have. */
const char *
load_word(const char *key)
{
	const char *word = find_word(key);

	if (word == NULL)
		load_fail("%s without %s", words[1], key);
	return word;
}

int64_t
load_number(const char *key)
{
	return strtoll(load_word(key), NULL, 10);
}

/* A path with its marks replaced, for the session with this number.  Threads may call it. */
void
load_expand_path(char *dst, size_t size, const char *path, int number)
{
	static atomic_int used;
	size_t			  length = 0;

	while (*path && length < size)
	{
		char  *end = dst + length;
		size_t room = size - length;

		if (strncmp(path, "%d", 2) == 0)
			length += snprintf(end, room, "%d", number);
		else if (strncmp(path, "%n", 2) == 0)
			length += snprintf(end, room, "%d-%d", (int) getpid(), ++used);
		else if (strncmp(path, "%r", 2) == 0)
			length += snprintf(end, room, "%ld", random() % 10000 + 1);
		else
		{
			dst[length++] = *path++;
			continue;
		}
		path += 2;
	}
	if (length >= size)
		load_fail("the path is too long");
	dst[length] = '\0';
}

void
load_sample(Samples *samples, int64_t value)
{
	if (samples->count == samples->room)
	{
		samples->room = samples->room ? 2 * samples->room : 1024;
		samples->values = load_memory(samples->values, samples->room * sizeof(int64_t));
	}
	samples->values[samples->count++] = value;
}

/*
 * Answers the request with the samples, under this name, and with the number of
 * those that are not among them.
 */
void
load_answer(const char *name, const Samples *samples, int64_t others)
{
	printf("{\"id\":%s,\"ok\":true,\"result\":{\"%s\":\"", words[0], name);
	for (size_t i = 0; i < samples->count; i++)
		printf(i ? " %" PRId64 : "%" PRId64, samples->values[i]);
	printf("\",\"others\":%" PRId64 "}}\n", others);
	fflush(stdout);
}

void
load_answer_number(int64_t number)
{
	printf("{\"id\":%s,\"ok\":true,\"result\":%" PRId64 "}\n", words[0], number);
	fflush(stdout);
}

/* Ends the program: a measurement that went wrong says nothing. */
void
load_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}
