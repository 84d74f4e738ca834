/*
 * claim_funcs.c
 *		SQL functions that claim slots, and show and reset claims.
 *
 * A slot is claimed once, by one caller of all servers; the worker does that
 * (worker/claims.c).  It is done at the call, whatever becomes of the
 * transaction: what is claimed runs at most once.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/ask.h"
#include "backend/display.h"
#include "backend/node_data.h"
#include "backend/request.h"
#include "backend/wait.h"
#include "compat.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "recipes/claim_record.h"
#include "recipes/node_contender.h"
#include "sql/arguments.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(zk_claim);
PG_FUNCTION_INFO_V1(zk_claims);
PG_FUNCTION_INFO_V1(zk_claim_reset);

/* The columns of zk_claims() */
typedef enum Column
{
	COLUMN_SLOT,
	COLUMN_CLAIMED_AT,
	COLUMN_SERVER,
	COLUMN_PID,
	COLUMN_USER,
	COLUMN_APPLICATION
} Column;

#define COLUMNS (COLUMN_APPLICATION + 1)

/* What is being asked, for errors on the way. */
typedef struct Asked
{
	const char *path;
	const char *slot; /* as text, or NULL for a reset */
} Asked;

/* ------------------------------------------------------------------------
 * Asking the worker
 * ------------------------------------------------------------------------
 */

/* An error, or a cancellation, does not tell whether it has been done. */
static void
claim_context(void *arg)
{
	const Asked *asked = arg;

	if (asked->slot)
		errcontext("while claiming slot %s of ZooKeeper path \"%s\", which may have been done",
				   asked->slot, display_utf8(asked->path));
	else
		errcontext("while resetting claims on ZooKeeper path \"%s\", which may have been done",
				   display_utf8(asked->path));
}

static const char *
other_use_detail(int code)
{
	switch ((ErrandOtherUse) code)
	{
		case OTHER_USE_CONTENDERS:
			return _("It has children like those of a lock, an election or a queue.");
		case OTHER_USE_DATA:
			return _("Its data were not written by zk_claim().");
		case OTHER_USE_EPHEMERAL:
			return _("Its node belongs to a ZooKeeper session.");
		case OTHER_USE_PARENT:
			break;
	}
	return _("It has no data, and has or had children. ZooKeeper may remove such a node, and would forget the claims with it.");
}

/* Raises the error for an outcome that is one. */
static void
report_outcome(const Asked *asked, ErrandOutcome outcome, int code)
{
	char *name = display_path(asked->path);

	switch (outcome)
	{
		case ERRAND_UNDECIDED:
			if (asked->slot)
				ereport(ERROR,
						(errcode(ERRCODE_IO_ERROR),
						 errmsg("could not find out whether slot %s of ZooKeeper path \"%s\" has been claimed",
								asked->slot, name),
						 errdetail("The answer to the claim was lost, and the path's node does not tell."),
						 errhint("Nobody else can claim the slot if it has been. See zk_claims().")));
			ereport(ERROR,
					(errcode(ERRCODE_IO_ERROR),
					 errmsg("could not find out whether claims on ZooKeeper path \"%s\" were reset", name),
					 errdetail("The answer was lost, and the path's node does not tell."),
					 errhint("See zk_claims().")));
			break;
		case ERRAND_OTHER_USE:
			ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
							errmsg("ZooKeeper path \"%s\" is in use for something else", name),
							errdetail_internal("%s", other_use_detail(code)),
							errhint("Use a path of its own for claims.")));
			break;
		case ERRAND_NO_PATH:
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("cannot claim ZooKeeper path \"%s\": it does not exist", name),
					 errdetail("Missing nodes are not created, since \"zklock.parent_nodes\" is \"existing\"."),
					 errhint("Ask an administrator to create the path in ZooKeeper, as a persistent node.")));
			break;
		case ERRAND_NO_CHROOT:
			ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR),
							errmsg("cannot claim ZooKeeper path \"%s\"", name),
							errdetail("The chroot in \"zklock.servers\" does not exist."),
							errhint("Create the chroot node.")));
			break;
		case ERRAND_TOO_DEEP:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("cannot claim ZooKeeper path \"%s\": too many levels of it are missing", name),
					 errdetail("No more than 16 nodes are created for a path: its own and those above it."),
					 errhint("Use a shorter path, or create the upper levels first.")));
			break;
		case ERRAND_HARMFUL:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot claim ZooKeeper path \"%s\": it lies below a lock or semaphore in use",
							name),
					 errdetail("Clients of that lock or semaphore would take the new node for a contender or a permit, for as long as it exists."),
					 errhint("Claim a path that is not below another one.")));
			break;
		default:
			break;
	}
}

/* Has the worker claim a slot, or reset claims.  Returns the outcome if that is no error. */
static ErrandOutcome
ask_claim(const char *path, ClaimRecord *record)
{
	char	 data[CLAIM_RECORD_SIZE];
	char	 slot[CLAIM_RECORD_SLOT_SIZE];
	char	*claimant = node_data_compose(DIALECT_CURATOR, LOCK_SCOPE_SESSION);
	Question question = {.kind = ERRAND_CLAIM, .path = path, .payload = data};
	Asked	 asked = {.path = path};
	ErrorContextCallback context = {.callback = claim_context, .arg = &asked, .previous = error_context_stack};
	uint64		  id;
	ErrandOutcome outcome;

	request_refuse_election(path);
	if (!pg_strong_random(&id, sizeof(id)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
	record->nids = 1;
	snprintf(record->ids[0], CLAIM_RECORD_ID_SIZE, "%016llx", (unsigned long long) id);
	strlcpy(record->claimant, claimant, sizeof(record->claimant));
	question.payload_length = claim_record_write(data, record);
	if (record->claimed)
	{
		claim_record_write_slot(slot, record->slot);
		asked.slot = slot;
	}

	error_context_stack = &context;
	outcome = backend_ask(&question);
	error_context_stack = context.previous;
	report_outcome(&asked, outcome, question.code);
	return outcome;
}

/* Claims a slot, and counts that.  Returns false if it is not later than the last one. */
static bool
claim_slot(const char *path, ClaimRecord *record)
{
	CountedWait wait;
	bool		claimed;

	wait_counted_begin(&wait, STATS_CLAIM);
	PG_ENSURE_ERROR_CLEANUP(wait_counted_break, PointerGetDatum(&wait));
	{
		claimed = ask_claim(path, record) == ERRAND_OK;
	}
	PG_END_ENSURE_ERROR_CLEANUP(wait_counted_break, PointerGetDatum(&wait));
	wait_counted_end(&wait, claimed ? STATS_WAIT_GRANTED : STATS_WAIT_BUSY);
	return claimed;
}

/* ------------------------------------------------------------------------
 * The functions
 * ------------------------------------------------------------------------
 */

/*
 * zk_claim(path text, slot timestamptz) returns boolean
 *
 * Claims a slot: true if it is later than the last slot claimed on the path, by
 * whomever.  An error leaves open whether it has been claimed.
 */
Datum
zk_claim(PG_FUNCTION_ARGS)
{
	char	   *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	ClaimRecord record = {.claimed = true};

	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("slot must not be null")));
	record.slot = PG_GETARG_TIMESTAMPTZ(1);
	if (TIMESTAMP_NOT_FINITE(record.slot))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("slot must be finite"),
						errdetail("After an infinite slot, none could be claimed any more.")));
	PG_RETURN_BOOL(claim_slot(path, &record));
}

/*
 * zk_claim_reset(path text) returns boolean
 *
 * Has the path forget which slot was claimed last.  False if none was.
 */
Datum
zk_claim_reset(PG_FUNCTION_ARGS)
{
	char	   *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	ClaimRecord record = {.claimed = false};

	if (!superuser())
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("permission denied to reset claims"),
						errdetail("Only superusers can have a slot claimed once more.")));
	PG_RETURN_BOOL(ask_claim(path, &record) == ERRAND_OK);
}

static void
set_text(Datum *values, bool *nulls, Column column, const char *text)
{
	char *shown = display_foreign(text, strlen(text));

	nulls[column] = shown == NULL;
	values[column] = shown ? CStringGetTextDatum(shown) : (Datum) 0;
}

static void
put_record(ReturnSetInfo *rsinfo, const ClaimRecord *record, int64 written_at)
{
	Datum		  values[COLUMNS] = {0};
	bool		  nulls[COLUMNS] = {0};
	NodeContender claimant;
	TimestampTz	  time = 0;

	(void) node_contender_read(record->claimant, strlen(record->claimant), &claimant);
	nulls[COLUMN_SLOT] = !record->claimed || !IS_VALID_TIMESTAMP(record->slot);
	values[COLUMN_SLOT] = TimestampTzGetDatum(record->slot);
	nulls[COLUMN_CLAIMED_AT] = !display_time(written_at, &time);
	values[COLUMN_CLAIMED_AT] = TimestampTzGetDatum(time);
	set_text(values, nulls, COLUMN_SERVER, claimant.server);
	nulls[COLUMN_PID] = claimant.pid == 0;
	values[COLUMN_PID] = Int32GetDatum(claimant.pid);
	set_text(values, nulls, COLUMN_USER, claimant.user);
	set_text(values, nulls, COLUMN_APPLICATION, claimant.application);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * zk_claims(path text) returns setof record
 *
 * Shows the last claim on a path: no row if there was none, a row without a slot
 * if claims were reset.
 */
Datum
zk_claims(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Question	   question = {.kind = ERRAND_LAST_CLAIM,
							   .path = argument_path(fcinfo, ALLOWED_PATHS_ONLY),
							   .answer_size = CLAIM_RECORD_SIZE};
	Asked		   asked = {.path = question.path};
	ErrandOutcome  outcome;
	ClaimRecord	   record;

	InitMaterializedSRF(fcinfo, 0);
	outcome = backend_ask(&question);
	report_outcome(&asked, outcome, question.code);
	if (outcome == ERRAND_OK && claim_record_read(question.answer, question.answer_length, &record))
		put_record(rsinfo, &record, question.written_at);
	return (Datum) 0;
}
