/*-------------------------------------------------------------------------
 *
 * node_record.h
 *	  What the data of nodes say: who contends, and who made a claim.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NODE_RECORD_H
#define ZKLOCK_NODE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ------------------------------------------------------------------------
 * node_contender.c: who the data of a zklock node says it is
 * ------------------------------------------------------------------------
 */

#define NODE_CONTENDER_TEXT 256 /* bytes of a text, with its NUL; what is longer is clipped */

/* Texts are empty if the data does not tell, and of any bytes. */
typedef struct NodeContender
{
	char	server[NODE_CONTENDER_TEXT];
	int32_t pid;
	char	user[NODE_CONTENDER_TEXT];
	char	application[NODE_CONTENDER_TEXT];
} NodeContender;

/* The first member of a zklock node's JSON: the version */
#define NODE_CONTENDER_MEMBER "zklock"
#define NODE_CONTENDER_VERSION "1.0"

/* The second member, if zk_break_lock() is about to delete the node: who called it */
#define NODE_CONTENDER_BROKEN "broken_by"
#define NODE_CONTENDER_BROKEN_SIZE 16 /* bytes that the member has besides its value */

extern bool node_contender_tells_version(const char *data, size_t len);
extern bool node_contender_tells_broken(const char *data, size_t len);
extern bool node_contender_write_broken(char *dst, const char *data, const char *by);
extern bool node_contender_read(const char *data, NodeContender *read);

/* ------------------------------------------------------------------------
 * claim_record.c: which slot was claimed last, and by whom
 * ------------------------------------------------------------------------
 */

/* Bytes, each with its NUL */
#define CLAIM_RECORD_SLOT_SIZE 40	   /* a slot as text */
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
	char claimant[CLAIM_RECORD_CLAIMANT_SIZE];		  /* what node_data.c tells */
} ClaimRecord;

/* A path's node, as it is now */
typedef struct ClaimNode
{
	bool		exists;
	int64_t		czxid;
	int32_t		version; /* of its data */
	ClaimRecord record;	 /* all zero if there is none */
} ClaimNode;

/* A write of ours, of which it is not known whether it has been made */
typedef struct ClaimSent
{
	enum
	{
		CLAIM_SENT_NOTHING,
		CLAIM_SENT_CREATE,
		CLAIM_SENT_SET
	} what;
	int64_t czxid;	 /* SET: of the node */
	int32_t version; /* SET: of the data to be replaced */
} ClaimSent;

/* What is to be done next, or what has become of a claim, or reset. */
typedef enum ClaimVerdict
{
	CLAIM_WRITE,	  /* create the node with the record, or replace the one that is there */
	CLAIM_MADE,		  /* it has been */
	CLAIM_TAKEN,	  /* somebody has that slot or a later one; there is nothing to reset */
	CLAIM_UNDECIDABLE /* whether what was sent has been made cannot be known */
} ClaimVerdict;

extern bool			claim_record_recognised(const char *data, size_t len);
extern bool			claim_record_read(const char *data, ClaimRecord *record);
extern size_t		claim_record_write(char dst[CLAIM_RECORD_SIZE], const ClaimRecord *record);
extern void			claim_record_write_slot(char dst[CLAIM_RECORD_SLOT_SIZE], int64_t slot);
extern void			claim_record_succeed(ClaimRecord *next, const ClaimRecord *last);
extern ClaimVerdict claim_record_judge(const ClaimNode *node, const ClaimRecord *wanted,
									   const ClaimSent *sent);

#endif /* ZKLOCK_NODE_RECORD_H */
