/*
 * claim_funcs.c
 *		SQL functions that claim slots, and show and reset claims.
 *
 * The node of a path contains the record of its last claim (recipes/claim_record.c).  A
 * claim of a later slot replaces the record, by one write that succeeds only if the record
 * still is the one that was read.  This happens at the call, whatever becomes of the
 * transaction: what is claimed runs at most once.  If the answer to the write is lost, the
 * node is read again to see what became of it.
 *
 * The node is never deleted, because that would reset its version, and an earlier write
 * could then replace a record that it has not seen.  So a reset of claims writes a record
 * without a slot.  If another client deletes the node and it is created again, the czxid
 * shows that a write went to the new one.
 *
 * ZooKeeper must not remove the node either, as it removes containers and nodes with a TTL,
 * and it does not report which these are.  So a record is written only into a node that was
 * created for one, and is persistent.  A node that exists already is replaced, in one step,
 * if it has never been used: it has no data, was never written, and never had children.
 * The new node gets its ACL.
 *
 * Such a replacement may come late, and deletes by name.  It demands version 0, which no
 * record has, because its node is created and written in the same step.  Nothing helps
 * against ZooKeeper's own removal, which picks a node first and then deletes whatever has
 * its name; it picks containers that had children, from release 3.10 on also those that had
 * none for five minutes, and nodes whose TTL is over.
 *
 * If a path has contenders, a claim is refused; if it has a record, a lock is refused
 * (engine/watch.c).  If a claim and a lock begin at the same moment, both may succeed,
 * which harms neither; the next of either is refused.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/guard.h"
#include "common/int.h"
#include "fault.h"
#include "sql/arguments.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

COMPAT_FUNCTION_INFO_V1(zk_claim);
COMPAT_FUNCTION_INFO_V1(zk_claim_next);
COMPAT_FUNCTION_INFO_V1(zk_last_claim);
COMPAT_FUNCTION_INFO_V1(zk_claim_reset);

/* From the beginning of 2000, from which PostgreSQL counts */
#define DAYS_TO_2001 366

/* A claim, or a reset, that is being made */
typedef struct Claiming
{
	const char *path;
	char		slot[CLAIM_RECORD_SLOT_SIZE]; /* as text; empty for a reset */
	ClaimRecord wanted;						  /* empty if claims are only shown */
	ClaimSent	sent;						  /* the write that is in doubt */
	int64		read_mtime; /* when the record that was read was written, ms since 1970 by
							 * ZooKeeper's clock */
	Caller		call;
} Claiming;

/* ------------------------------------------------------------------------
 * Errors
 * ------------------------------------------------------------------------
 */

pg_noreturn static void
report_undecidable(const Claiming *claiming)
{
	char *path = display_path(claiming->path);

	if (claiming->slot[0] != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("could not find out whether slot %s of ZooKeeper path \"%s\" has been claimed",
						claiming->slot, path),
				 errdetail("The answer to the claim was lost, and the path's node does not tell."),
				 errhint("Nobody else can claim the slot if it has been. See zk_last_claim().")));
	ereport(ERROR, (errcode(ERRCODE_IO_ERROR),
					errmsg("could not find out whether claims on ZooKeeper path \"%s\" were reset", path),
					errdetail("The answer was lost, and the path's node does not tell."),
					errhint("See zk_last_claim().")));
}

/* ------------------------------------------------------------------------
 * Reading and writing
 * ------------------------------------------------------------------------
 */

/*
 * Reads the node, and returns it.  Raises an error if it has no record and cannot get one, as the
 * path is used for something else.
 */
static ClaimNode
read_claim_node(Claiming *claiming)
{
	ZkCall asked = {.kind = ZK_GET_DATA, .path = claiming->path, .most = CLAIM_RECORD_SIZE - 1};
	const CallStep *read = call_make(&claiming->call, asked, CALL_AFTER_SYNC);
	const NodeStat *stat = &read->result.stat;
	ClaimNode		node = {.exists = read->result.outcome == CALL_OK};
	const char	   *other_use = NULL;

	if (!node.exists)
		return node;
	node.czxid = stat->czxid;
	node.version = stat->version;
	claiming->read_mtime = stat->mtime;
	if (stat->ephemeral_owner != 0)
		other_use = "Its node belongs to a ZooKeeper session.";
	else if (stat->data_length == 0 && stat->child_changes > 0 && claiming->wanted.nids > 0)
		other_use = "It has no data, and has or had children. ZooKeeper may remove such a node, and would forget the claims with it.";
	else if (stat->data_length == 0 && stat->version > 0 && claiming->wanted.nids > 0)
		other_use = "It has no data, and others have written to it.";
	else if (stat->data_length > 0 &&
			 (read->read == NULL || !claim_record_read(read->read, &node.record)))
		other_use = "Its data were not written by zk_claim().";
	else if (stat->child_count > 0)
	{
		const CallStep *list;

		/* Contenders or elements must not be there, but for a node that may be kept for nobody. */
		asked = (ZkCall){.kind = ZK_GET_CHILDREN, .path = claiming->path};
		list = call_make(&claiming->call, asked, CALL_AS_KNOWN);
		for (int i = 0; i < list->result.nchildren; i++)
		{
			const char *child = list->children[i];
			RecipePeer	lock;

			if ((!lock_recipe.read(child, &lock) || !lock.may_be_kept) &&
				(node_name_has_sequence(child) || strcmp(child, &PERMIT_LEASES[1]) == 0))
				other_use = "It has children like those of a lock, an election or a queue.";
		}
	}

	/* If a write is in doubt, that cannot be settled any more, and the error says so. */
	if (other_use && claiming->sent.what != CLAIM_SENT_NOTHING)
		report_undecidable(claiming);
	if (other_use)
		request_report_other_use(claiming->path, other_use);
	return node;
}

/*
 * Claims a slot, or resets claims: reads the node, judges it, and replaces the record that was
 * read by the one that is wanted, until that is done, or there is nothing to be done: then it
 * returns false.
 */
static bool
make_claim(Claiming *claiming)
{
	ClaimRecord	   *wanted = &claiming->wanted;
	ClaimRecord		replaced = {.claimed = false};
	CallStep		write;
	const CallStep *written;
	char			data[CLAIM_RECORD_SIZE];
	char			slot[CLAIM_RECORD_SLOT_SIZE];

	for (;;)
	{
		ClaimNode	 node = read_claim_node(claiming);
		ClaimVerdict verdict = claim_record_judge(&node, wanted, &claiming->sent);
		bool		 has_record = node.record.nids > 0;

		if (verdict == CLAIM_TAKEN)
			return false;
		if (verdict == CLAIM_UNDECIDABLE)
			report_undecidable(claiming);
		if (verdict == CLAIM_MADE)
			break;
		replaced = node.record;
		claim_record_succeed(wanted, &node.record);
		(void) claim_record_write(data, wanted);

		/* A cancellation that has come already is handled before anything is sent. */
		interrupt_check_client();

		/* Write the record into the node, if it has one, else into a new node. */
		claiming->sent = (ClaimSent){.what = has_record ? CLAIM_SENT_SET : CLAIM_SENT_CREATE,
									 .czxid = node.czxid,
									 .version = node.version};
		write = (CallStep){.asked = {.kind = has_record ? ZK_SET_DATA : ZK_REPLACE_RECORD,
									 .path = claiming->path,
									 .data = data,
									 .version = ZKLOCK_FAULT("claim-unversioned") ? ZK_ANY_VERSION
																				  : node.version}};
		claiming->call.in_doubt = true;
		written = &write;
		if (node.exists)
			call_batch(&claiming->call, &write, 1, CALL_AS_KNOWN);
		else
			written =
				call_create_path(&claiming->call, claiming->path,
								 (ZkCall){.kind = ZK_CREATE_RECORD, .path = claiming->path, .data = data});
		if (has_record && written->result.outcome == CALL_OK && written->result.stat.czxid != node.czxid)
			report_undecidable(claiming);
		claiming->call.in_doubt = written->result.outcome == CALL_UNKNOWN;
		if (!claiming->call.in_doubt)
			claiming->sent.what = CLAIM_SENT_NOTHING;

		/* If the node to be replaced has children by now, the next read shows them. */
		if (written->result.outcome != CALL_NOT_EMPTY)
			call_report(&claiming->call, written);
		if (written->result.outcome == CALL_OK)
			break;

		/*
		 * Another client was faster, or the write is in doubt.  That must be settled, however
		 * long it takes.
		 */
		claiming->call.patience = claiming->call.in_doubt ? CALL_PATIENT : CALL_IMPATIENT;
	}
	claiming->call.in_doubt = true;
	claiming->call.doubt = ", which has been done";

	/* Only superusers can reset claims. */
	if (!wanted->claimed)
	{
		claim_record_write_slot(slot, replaced.slot);
		ereport(LOG,
				(errmsg("claims on ZooKeeper path \"%s\" were reset", display_path(claiming->path)),
				 errdetail("The last slot was %s. It was reset by %s.",
						   replaced.claimed ? slot : "one that is not known any more",
						   wanted->claimant)));
	}

	/* A later cancellation would find no context that says what has been done. */
	CHECK_FOR_INTERRUPTS();
	return true;
}

/*
 * Fills in "claiming", which has a path and, unless it is a reset, a slot, and calls
 * make_claim().  Counts claims in the statistics.
 */
static bool
ask_claim(Claiming *claiming)
{
	ClaimRecord *wanted = &claiming->wanted;
	const char	*path = display_utf8(claiming->path);
	Wait		 wait;
	bool		 made;

	wait_begin(&wait, claiming->path, "a claim",
			   wanted->claimed ? STATS_CLAIM : WAIT_UNCOUNTED, LOCK_NO_WAIT);
	PG_ENSURE_ERROR_CLEANUP(wait_break_off, PointerGetDatum(&wait));
	{
		request_refuse_election(claiming->path);
		wanted->nids = 1;
		strlcpy(wanted->ids[0], node_data_unique(NULL), CLAIM_RECORD_ID_SIZE);
		strlcpy(wanted->claimant, node_data_compose(DIALECT_CURATOR, LOCK_SCOPE_SESSION, NULL),
				sizeof(wanted->claimant));
		if (wanted->claimed)
			claim_record_write_slot(claiming->slot, wanted->slot);

		call_tell(&claiming->call,
				  wanted->claimed
					  ? psprintf("while claiming slot %s of ZooKeeper path \"%s\"", claiming->slot, path)
					  : psprintf("while resetting claims on ZooKeeper path \"%s\"", path),
				  ", which may have been done");
		made = make_claim(claiming);
	}
	PG_END_ENSURE_ERROR_CLEANUP(wait_break_off, PointerGetDatum(&wait));
	error_context_stack = claiming->call.context.previous;
	wait_end(&wait, made);
	return made;
}

/* ------------------------------------------------------------------------
 * The functions
 * ------------------------------------------------------------------------
 */

/*
 * zk_claim(path text, slot timestamptz) returns boolean
 *
 * Claims a slot.  Returns true if it is later than the last slot that anybody has claimed
 * on the path.  After an error, the slot may have been claimed or not.
 */
Datum
zk_claim(PG_FUNCTION_ARGS)
{
	Claiming claiming = {.path = argument_path(fcinfo, ALLOWED_PATHS_ONLY), .wanted.claimed = true};

	argument_refuse_null(fcinfo, 1, "slot");
	claiming.wanted.slot = PG_GETARG_TIMESTAMPTZ(1);
	if (TIMESTAMP_NOT_FINITE(claiming.wanted.slot))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("slot must be finite"),
						errdetail("After an infinite slot, none could be claimed any more.")));
	PG_RETURN_BOOL(ask_claim(&claiming));
}

/*
 * Returns the number of the period in which a moment is, for periods of so many months, or else of
 * so many microseconds: number 0 begins with 2001 in UTC, which is with a Monday, too.
 */
static int64
period_number(TimestampTz moment, int months, int64 us)
{
	int64 size = months > 0 ? months : us;
	int64 distance = moment - DAYS_TO_2001 * USECS_PER_DAY;

	if (months > 0)
	{
		struct pg_tm tm;
		fsec_t		 fraction;

		if (timestamp2tm(moment, NULL, &tm, &fraction, NULL, NULL) != 0)
			ereport(ERROR, (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
							errmsg("timestamp out of range")));
		distance = (int64) (tm.tm_year - 2001) * MONTHS_PER_YEAR + tm.tm_mon - 1;
	}
	return distance >= 0 ? distance / size : -((-distance + size - 1) / size);
}

/*
 * zk_claim_next(path text, step interval, upto timestamptz, "limit" integer) returns timestamptz
 *
 * Claims the oldest slot that is not claimed, of those that began between the last claim on the path and
 * "upto": a slot is the beginning of a period of length "step".  Returns NULL if there is none.
 * Without a last claim, it is the slot in which "upto" is.
 *
 *	step	months, or days and a time; days have 24 hours
 *	limit	number of slots that are caught up at most, with the present one; older ones are
 *			passed over.  NULL: all
 */
Datum
zk_claim_next(PG_FUNCTION_ARGS)
{
	char	   *path = argument_path(fcinfo, ALLOWED_PATHS_ONLY);
	Interval   *step;
	int64		us;
	TimestampTz upto;
	int64		present;
	Interval	from_origin = {0};

	argument_refuse_null(fcinfo, 1, "step");
	argument_refuse_null(fcinfo, 2, "end");
	step = PG_GETARG_INTERVAL_P(1);
	upto = PG_GETARG_TIMESTAMPTZ(2);
	if (pg_mul_s64_overflow(step->day, USECS_PER_DAY, &us) ||
		pg_add_s64_overflow(us, step->time, &us) || step->month < 0 || us < 0 ||
		(step->month > 0) == (us > 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("step must be a number of months, or one of days and a time, above zero")));
	if (TIMESTAMP_NOT_FINITE(upto))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the last slot must be finite")));
	if (!PG_ARGISNULL(3) && PG_GETARG_INT32(3) < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("limit must be at least 1")));
	present = period_number(upto, step->month, us);

	/* If others are faster, the next one is tried. */
	for (;;)
	{
		Claiming  claiming = {.path = path};
		ClaimNode node = read_claim_node(&claiming);
		int64	  number = present;

		if (node.record.claimed && IS_VALID_TIMESTAMP(node.record.slot))
			number = period_number(node.record.slot, step->month, us) + 1;
		if (number > present)
			PG_RETURN_NULL();
		if (!PG_ARGISNULL(3))
			number = Max(number, present - PG_GETARG_INT32(3) + 1);
		claiming = (Claiming){.path = path, .wanted.claimed = true};

		/* The slot is the beginning of the period, in UTC whatever the session's time zone. */
		from_origin.month = (int32) (number * step->month);
		from_origin.time = number * us;
		claiming.wanted.slot =
			DatumGetTimestamp(DirectFunctionCall2(timestamp_pl_interval,
												  TimestampGetDatum(DAYS_TO_2001 * USECS_PER_DAY),
												  IntervalPGetDatum(&from_origin)));
		if (ask_claim(&claiming))
			PG_RETURN_TIMESTAMPTZ(claiming.wanted.slot);
	}
}

/*
 * zk_claim_reset(path text) returns boolean
 *
 * Resets claims: the path forgets which slot was claimed last.  Returns false if none was.
 */
Datum
zk_claim_reset(PG_FUNCTION_ARGS)
{
	Claiming claiming = {.path = argument_path(fcinfo, ALLOWED_PATHS_ONLY)};

	if (!superuser())
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("permission denied to reset claims"),
						errdetail("Only superusers can have a slot claimed once more.")));
	PG_RETURN_BOOL(ask_claim(&claiming));
}

/*
 * zk_last_claim(path text) returns setof record
 *
 * Shows the last claim on a path.  Returns no row if there was none, and a row without a
 * slot if claims were reset.
 */
Datum
zk_last_claim(PG_FUNCTION_ARGS)
{
	Claiming	   claiming = {.path = argument_path(fcinfo, ALLOWED_PATHS_ONLY)};
	ClaimRecord	  *last;
	ClaimNode	   node;
	ContenderOwner claimant;
	Row			   row = {0};

	InitMaterializedSRF(fcinfo, 0);
	node = read_claim_node(&claiming);
	last = &node.record;
	if (last->nids == 0)
		return (Datum) 0;
	claimant = contenders_owner(&(ContenderNode){.data = last->claimant}, NULL);
	row_add_if(&row, last->claimed && IS_VALID_TIMESTAMP(last->slot), TimestampTzGetDatum(last->slot));
	row_add_zk_time(&row, claiming.read_mtime);
	row_add_owner(&row, &claimant);
	row_store(fcinfo, &row);
	return (Datum) 0;
}
