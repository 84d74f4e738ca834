/*-------------------------------------------------------------------------
 *
 * claim_record.h
 *	  The data of a claim's node: which slot was claimed last, and by whom.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLAIM_RECORD_H
#define ZKLOCK_CLAIM_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes, each with its NUL */
#define CLAIM_RECORD_SLOT_SIZE 32	   /* a slot as text */
#define CLAIM_RECORD_ID_SIZE 17		   /* an id: 16 hexadecimal digits */
#define CLAIM_RECORD_CLAIMANT_SIZE 768 /* whose claim it is */
#define CLAIM_RECORD_SIZE 1024		   /* all of a record */

/* So many claims are remembered by their ids, the last one included. */
#define CLAIM_RECORD_IDS 10

typedef struct ClaimRecord
{
	bool	claimed; /* if not, claims were reset: every slot can be claimed */
	int64_t slot;	 /* us since 2000-01-01 00:00 UTC */
	int		nids;
	char ids[CLAIM_RECORD_IDS][CLAIM_RECORD_ID_SIZE]; /* of the last claims, the last one first */
	char claimant[CLAIM_RECORD_CLAIMANT_SIZE];		  /* a JSON object */
} ClaimRecord;

/* What became of a claim whose answer was lost. */
typedef enum ClaimFate
{
	CLAIM_FATE_MADE,
	CLAIM_FATE_NOT_MADE,
	CLAIM_FATE_UNDECIDABLE /* too many others have followed */
} ClaimFate;

extern bool		 claim_record_read(const char *data, size_t len, ClaimRecord *record);
extern size_t	 claim_record_write(char dst[CLAIM_RECORD_SIZE], const ClaimRecord *record);
extern void		 claim_record_write_slot(char dst[CLAIM_RECORD_SLOT_SIZE], int64_t slot);
extern bool		 claim_record_admits(const ClaimRecord *last, int64_t slot);
extern void		 claim_record_succeed(ClaimRecord *next, const ClaimRecord *last);
extern ClaimFate claim_record_fate(const ClaimRecord *seen, const char *id, int64_t writes);

#endif /* ZKLOCK_CLAIM_RECORD_H */
