/*-------------------------------------------------------------------------
 *
 * fuzz_node_name.c
 *	  libFuzzer target for the parts that are pure C: node_name.c, recipe.c.
 *
 * Each input is used three times: as a path, as the name of a child node and
 * as a queue of contenders.  What the code says is compared with a second
 * opinion that is reached in another way: for paths, the C library's UTF-16
 * converter and a look at the code units; for names, a regular expression and
 * the name put together again; for queues, sorting.  Inputs lie in buffers
 * without a byte to spare, so that AddressSanitizer sees any read beyond them.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#include "recipes/node_name.h"
#include "recipes/recipe.h"

#include <iconv.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONTENDERS 64

/* Bytes that describe one contender: the mode, four of the sequence. */
#define CONTENDER_BYTES 5

extern int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool condition, const char *what)
{
	if (!condition)
	{
		fprintf(stderr, "property violated: %s\n", what);
		abort();
	}
}

static void *
copy_exact(const void *data, size_t size)
{
	void *copy = malloc(size > 0 ? size : 1);

	if (copy == NULL)
		abort();
	memcpy(copy, data, size);
	return copy;
}

static bool
forbidden_unit(unsigned unit)
{
	return unit < 0x20 || (unit >= 0x7F && unit < 0xA0) || (unit >= 0xD800 && unit < 0xF900) ||
		   unit >= 0xFFF0;
}

/*
 * Compile the recognised names, once: one expression per mode, with the
 * sequence as its last group.
 */
static const regex_t *
compiled_names(void)
{
	static regex_t expressions[2];
	static bool	   compiled = false;
	const char	  *exclusive = "^(.*(lock-|__lock__|__WRIT__|-write-)"
							   "|LOCK-EXCLUSIVE-"
							   "|x-(-?[0-9]{1,19}|[0-9a-fA-F]{16})-)(-?[0-9]{10})$";
	const char	  *shared =
		"^((.*(__READ__|__rlock__|-read-))|LOCK-SHARED-|LOCK-SEMI_SHARED-)(-?[0-9]{10})$";

	if (compiled)
		return expressions;
	require(regcomp(&expressions[LOCK_MODE_EXCLUSIVE], exclusive, REG_EXTENDED) == 0 &&
				regcomp(&expressions[LOCK_MODE_SHARED], shared, REG_EXTENDED) == 0,
			"the expressions are valid");
	compiled = true;
	return expressions;
}

/* Does the expression match, with a sequence of 32 bits?  Then return it. */
static bool
model_sequence(const regex_t *expression, const char *name, int64_t *sequence)
{
	regmatch_t groups[5];

	if (regexec(expression, name, 5, groups, 0) != 0)
		return false;
	*sequence = strtoll(name + groups[4].rm_so, NULL, 10);
	return *sequence == (int32_t) *sequence;
}

/* Is a component of an otherwise acceptable path the name of a lock node? */
static bool
model_has_lock_node(const char *path, size_t len)
{
	char	copy[ZKLOCK_MAX_PATH + 1];
	int64_t sequence;

	memcpy(copy, path, len);
	copy[len] = '\0';
	for (char *name = strtok(copy, "/"); name != NULL; name = strtok(NULL, "/"))
	{
		if (model_sequence(&compiled_names()[LOCK_MODE_EXCLUSIVE], name, &sequence) ||
			model_sequence(&compiled_names()[LOCK_MODE_SHARED], name, &sequence))
			return true;
	}
	return false;
}

/*
 * Should this path be accepted?  Works on the whole path in UTF-16, as a
 * server in Java does, with a slash put behind it to end the last component.
 */
static bool
model_path_accepted(const char *path, size_t len)
{
	static const char *const reserved[] = {"/zookeeper", "/zklock-waits", "/zklock-receipts"};

	static iconv_t converter = (iconv_t) -1;
	unsigned char  utf16[2 * (ZKLOCK_MAX_PATH + 1)];
	char		  *in = (char *) path;
	char		  *out = (char *) utf16;
	size_t		   in_left = len;
	size_t		   out_left = sizeof(utf16);
	size_t		   units;
	size_t		   i;
	unsigned	   last[3] = {0, 0, 0}; /* units before this one, latest first */

	if (converter == (iconv_t) -1)
		converter = iconv_open("UTF-16BE", "UTF-8");
	require(converter != (iconv_t) -1, "iconv knows UTF-8 and UTF-16");

	if (len < 2 || len > ZKLOCK_MAX_PATH || path[0] != '/')
		return false;
	for (i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
	{
		size_t n = strlen(reserved[i]);

		if (len >= n && strncmp(path, reserved[i], n) == 0 && (len == n || path[n] == '/'))
			return false;
	}

	iconv(converter, NULL, NULL, NULL, NULL);
	if (iconv(converter, &in, &in_left, &out, &out_left) == (size_t) -1)
		return false;
	*out++ = 0;
	*out++ = '/';
	units = (size_t) ((unsigned char *) out - utf16) / 2;

	for (i = 0; i < units; i++)
	{
		unsigned unit = (unsigned) utf16[2 * i] << 8 | utf16[2 * i + 1];

		if (forbidden_unit(unit))
			return false;
		if (unit == '/' && last[0] == '/')
			return false;
		if (unit == '/' && last[0] == '.' && last[1] == '/')
			return false;
		if (unit == '/' && last[0] == '.' && last[1] == '.' && last[2] == '/')
			return false;
		last[2] = last[1];
		last[1] = last[0];
		last[0] = unit;
	}
	return !model_has_lock_node(path, len);
}

static void
fuzz_path(const uint8_t *data, size_t size)
{
	char	   *path = copy_exact(data, size);
	const char *fault = path_check(path, size);

	require((fault == NULL) == model_path_accepted(path, size),
			"a path is accepted exactly if the slow check accepts it");
	free(path);
}

/*
 * Put the name together again from its prefix and what was read, and look for
 * a marker of that mode at the end of the prefix.
 */
static bool
derives_again(const char *name, const RecipePeer *parsed)
{
	static const char *const markers[2][6] = {{"lock-", "__lock__", "__WRIT__", "-write-",
											   "LOCK-EXCLUSIVE-", NULL},
											  {"__READ__", "__rlock__", "-read-",
											   "LOCK-SHARED-", "LOCK-SEMI_SHARED-", NULL}};
	const size_t			 len = strlen(name);
	char					 digits[32];
	size_t					 digits_len;
	int						 i;

	/* "-0000000000" reads as zero, which is not written like that. */
	if (parsed->sequence < 0 || (parsed->sequence == 0 && len > 11 && name[len - 11] == '-' &&
								 strspn(name + len - 12, "-_") > 0))
		snprintf(digits, sizeof(digits), "-%010lld", -(long long) parsed->sequence);
	else
		snprintf(digits, sizeof(digits), "%010lld", (long long) parsed->sequence);
	digits_len = strlen(digits);

	if (digits_len > len || strcmp(name + len - digits_len, digits) != 0)
		return false;
	for (i = 0; markers[parsed->mode][i] != NULL; i++)
	{
		size_t marker_len = strlen(markers[parsed->mode][i]);

		if (digits_len + marker_len <= len && strncmp(name + len - digits_len - marker_len,
													  markers[parsed->mode][i], marker_len) == 0)
			return true;
	}
	return parsed->mode == LOCK_MODE_EXCLUSIVE && strncmp(name, "x-", 2) == 0 &&
		   name[len - digits_len - 1] == '-';
}

static void
fuzz_name(const uint8_t *data, size_t size)
{
	const regex_t *expressions = compiled_names();
	const size_t   len = strnlen((const char *) data, size);
	char		  *name = malloc(len + 1);
	RecipePeer	   parsed = {.mode = LOCK_MODE_SHARED, .sequence = INT64_MIN};
	int64_t		   sequence = 0;
	bool		   recognised;

	if (name == NULL)
		abort();
	memcpy(name, data, len);
	name[len] = '\0';

	recognised = node_name_parse(name, &parsed);
	if (recognised)
	{
		require(model_sequence(&expressions[parsed.mode], name, &sequence),
				"what is recognised matches the expression of its mode");
		require(sequence == parsed.sequence, "the sequence is right");
		require(!model_sequence(&expressions[!parsed.mode], name, &sequence),
				"no name matches both modes");
		require(derives_again(name, &parsed), "a parsed name derives again");
	}
	else
	{
		require(!model_sequence(&expressions[LOCK_MODE_EXCLUSIVE], name, &sequence) &&
					!model_sequence(&expressions[LOCK_MODE_SHARED], name, &sequence),
				"what matches is recognised");
		require(parsed.mode == LOCK_MODE_SHARED && parsed.sequence == INT64_MIN,
				"a name that is not recognised leaves the result alone");
	}
	free(name);
}

/*
 * Write a name in a dialect, with a sequence, both taken from the input, into
 * a buffer that may be too small; read it back if it was not.
 */
static void
fuzz_written_name(const uint8_t *data, size_t size)
{
	uint8_t		  input[ZKLOCK_UUID_BYTES + 7] = {0};
	int32_t		  sequence;
	RecipeRequest request;
	size_t		  room;
	char		 *cut;
	char		  name[ZKLOCK_MAX_NODE_NAME + 1];
	size_t		  prefix_len;
	RecipePeer	  parsed;

	memcpy(input, data, size < sizeof(input) ? size : sizeof(input));
	memcpy(&sequence, input + ZKLOCK_UUID_BYTES, sizeof(sequence));
	request =
		(RecipeRequest){.mode = (input[ZKLOCK_UUID_BYTES + 5] & 1) ? LOCK_MODE_SHARED : LOCK_MODE_EXCLUSIVE,
						.dialect = (NodeDialect) (input[ZKLOCK_UUID_BYTES + 4] % (DIALECT_HIVE + 1))};
	room = input[ZKLOCK_UUID_BYTES + 6] % sizeof(name) + 1;

	/* a server writes fewer than ten digits of these */
	if (sequence < 0 && sequence > -1000000000)
		sequence = -sequence;

	node_name_prefix(name, sizeof(name), &request, input);
	prefix_len = strlen(name);

	cut = malloc(room);
	if (cut == NULL)
		abort();
	node_name_prefix(cut, room, &request, input);
	require(strlen(cut) == (prefix_len < room ? prefix_len : room - 1) &&
				strncmp(cut, name, strlen(cut)) == 0,
			"a name that does not fit is cut off");
	free(cut);

	snprintf(name + prefix_len, sizeof(name) - prefix_len, "%010d", (int) sequence);
	require(node_name_parse(name, &parsed) && parsed.mode == request.mode && parsed.sequence == sequence,
			"what is written is read back");
}

static int
compare_contenders(const void *a, const void *b)
{
	const RecipePeer *left = a;
	const RecipePeer *right = b;

	return (left->sequence > right->sequence) - (left->sequence < right->sequence);
}

/*
 * The first bytes are the sequence and the mode that ask, the rest contenders.
 * The model sorts the queue and walks back from the one that asks.
 */
static void
fuzz_recipe(const uint8_t *data, size_t size)
{
	RecipePeer	  all[MAX_CONTENDERS + 1];
	RecipePeer	 *contenders;
	RecipePeer	 *sorted;
	RecipePeer	  asking;
	RecipeRequest request = {0};
	int32_t		  remark;
	int			  count = 0;
	int			  n;
	int			  place;
	int			  got;

	while (size >= CONTENDER_BYTES && count <= MAX_CONTENDERS)
	{
		int32_t sequence;

		memcpy(&sequence, data + 1, sizeof(sequence));

		/* one in two is made small, so that equal sequences are frequent */
		all[count].sequence = (data[0] & 2) ? sequence : sequence % 8;
		all[count].mode = (data[0] & 1) ? LOCK_MODE_SHARED : LOCK_MODE_EXCLUSIVE;
		count++;
		data += CONTENDER_BYTES;
		size -= CONTENDER_BYTES;
	}
	if (count == 0)
		return;

	asking = all[0];
	n = count - 1;
	contenders = copy_exact(all + 1, (size_t) n * sizeof(all[0]));
	sorted = copy_exact(all + 1, (size_t) n * sizeof(all[0]));
	qsort(sorted, (size_t) n, sizeof(sorted[0]), compare_contenders);

	place = n - 1;
	while (place >= 0 && (sorted[place].sequence >= asking.sequence ||
						  (sorted[place].mode == LOCK_MODE_SHARED && asking.mode == LOCK_MODE_SHARED)))
		place--;

	request.mode = asking.mode;
	got = recipe_blocker(&lock_recipe, contenders, n, &asking, &request, &remark);
	require(got >= -1 && got < n, "the index is one of the contenders'");
	require((got < 0) == (place < 0), "there is a blocker exactly if the model finds one");
	if (got >= 0)
	{
		require(contenders[got].sequence == sorted[place].sequence, "the blocker is the nearest");
		require(contenders[got].mode == LOCK_MODE_EXCLUSIVE || asking.mode == LOCK_MODE_EXCLUSIVE,
				"the blocker conflicts");
	}

	free(contenders);
	free(sorted);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_path(data, size);
	fuzz_name(data, size);
	fuzz_written_name(data, size);
	fuzz_recipe(data, size);
	return 0;
}
