/*-------------------------------------------------------------------------
 *
 * node_name.h
 *	  Paths, the names of the nodes of locks and of elements of queues, and what the data
 *	  of nodes say: who contends, and who made a claim.
 *
 * A lock is a ZooKeeper path; each client that holds it or waits for it has a child node
 * below that path.  Only the child's name shows what it is, and each client library has
 * its own names.  This module checks paths, writes names in one chosen dialect and reads
 * the names of all of them.
 *
 * Pure C: depends on libc alone, allocates nothing, keeps no state, runs in
 * any process or thread, holds no lock.
 *
 * Copyright (c) 2026, zklock contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NODE_NAME_H
#define ZKLOCK_NODE_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest lock path: bytes of UTF-8, without the terminating NUL. */
#define ZKLOCK_MAX_PATH 1023
#define PATH_TOO_LONG "A path can have at most 1023 bytes in UTF-8."

#define ZKLOCK_UUID_BYTES 16

/*
 * Versions of the UUIDs in names, by RFC 9562: random ones, and those of nodes that this
 * server may keep for a moment when nobody needs them.  No other client writes version 8.
 */
#define UUID_VERSION_RANDOM 4
#define UUID_VERSION_KEPT 8

/*
 * Longest node name zklock writes, sequence included, without the terminating
 * NUL.  Other clients may write longer ones.
 */
#define ZKLOCK_MAX_NODE_NAME 127

typedef enum LockMode
{
	LOCK_MODE_EXCLUSIVE,
	LOCK_MODE_SHARED
} LockMode;

/* Names to write.  Names of every dialect are always recognised. */
typedef enum NodeDialect
{
	DIALECT_CURATOR,	/* InterProcessMutex */
	DIALECT_CURATOR_RW, /* InterProcessReadWriteLock */
	DIALECT_KAZOO,		/* Lock, WriteLock and ReadLock */
	DIALECT_ZOOKEEPER,	/* ZooKeeper's own recipes, in code and on paper */
	DIALECT_HIVE		/* Hive's lock manager */
} NodeDialect;

/* How a UUID is written */
typedef enum UuidForm
{
	UUID_NONE,	 /* not at all */
	UUID_DASHES, /* 36 characters */
	UUID_HEX,	 /* 32 hexadecimal digits */
	UUID_HALF	 /* the first 16 of these */
} UuidForm;

/* The names of the dialects in settings and views, with a NULL behind the last */
extern const char *const node_dialect_names[];

extern const char *path_check(const char *path, size_t len);
extern const char *path_check_node(const char *path, size_t len);
extern bool		   node_name_has_sequence(const char *name);
extern bool		   node_name_read_number(const char *text, size_t len, int64_t *number);
extern bool		   node_name_is_possible(const char *name);
extern void uuid_format(char *dst, size_t size, const uint8_t uuid[ZKLOCK_UUID_BYTES], UuidForm form);

/* recipe.c: which clients wait for the names that we write */
typedef enum Heed
{
	HEED_YES,	 /* it waits for us, or need not */
	HEED_NO,	 /* it does not: both of us may hold the lock */
	HEED_UNKNOWN /* clients of this name differ; zklock is one that waits */
} Heed;

extern Heed heed_expected(NodeDialect dialect, LockMode mode, const char *name);

/* ------------------------------------------------------------------------
 * Creating the missing levels of a path; whom a new node would harm (recipe.c)
 * ------------------------------------------------------------------------
 */

/* Most nodes that are created for one, its own included, since they may stay for good */
#define ZKLOCK_MAX_LEVELS 16

/*
 * How often the walk is made in a row: others may delete what it creates, as ZooKeeper does with
 * containers
 */
#define MISSING_PATH_ATTEMPTS 16

/* A walk over the missing levels; it begins with MISSING_LOOK at the lowest one, length == end */
typedef struct MissingPath
{
	size_t end;		   /* bytes of the path to be created */
	size_t length;	   /* bytes of it up to the level being tried */
	bool   descending; /* a level above that exists by now */
} MissingPath;

/* What comes next of a walk */
typedef enum MissingStep
{
	MISSING_LOOK,	/* create the node, unless its parent shows somebody who would be harmed */
	MISSING_CREATE, /* create the node */
	MISSING_END,	/* the path exists, or some of it is gone again: a new attempt shows it */
	MISSING_NO_CHROOT, /* not even the root exists */
	MISSING_TOO_DEEP
} MissingStep;

extern size_t	   missing_path_above(const char *path, size_t length);
extern MissingStep missing_path_next(MissingPath *walk, const char *path, bool exists);

typedef enum NeighbourHarm
{
	HARMS_LOCK = 1,		/* it stands in front of Curator's contenders */
	HARMS_SEMAPHORE = 2 /* it counts as a permit in use */
} NeighbourHarm;

extern int	neighbour_harm(const char *parent, const char *name);
extern bool neighbour_is_harmed(int harm, const char *child);

/* ------------------------------------------------------------------------
 * ZooKeeper's recipe for queues: names of elements, and their order
 * ------------------------------------------------------------------------
 */

/* What a name begins with; ZooKeeper appends a sequence. */
#define ELEMENT_PREFIX "qn-"

/* Longest name of an element, with its NUL.  Longer ones are somebody else's. */
#define ELEMENT_NAME_SIZE 32

/* The ephemeral child of an element that a transaction has taken */
#define ELEMENT_CLAIM "claim"

/* Where the receipts of all servers are */
#define ELEMENT_RECEIPTS "/zklock-receipts"

/* A child of a queue's path that keeps it from being deleted; sorts behind the elements */
#define ELEMENT_PIN "zk-queue-%s-pin"

/* An element of a queue, as a listing shows it */
typedef struct ElementName
{
	int64_t		number; /* its place: lower ones come first */
	const char *name;
} ElementName;

extern bool		   element_name_read(const char *child, int64_t *number);
extern int		   element_name_sort(char *const *children, int n, ElementName *elements);
extern const char *element_name_other_use(const char *child);

/* ------------------------------------------------------------------------
 * Contenders in the data of nodes
 * ------------------------------------------------------------------------
 */

#define NODE_CONTENDER_TEXT 256 /* bytes of a text, with its NUL; what is longer is clipped */

/* Texts may have any bytes; a text that the data does not have is empty. */
typedef struct NodeContender
{
	char	server[NODE_CONTENDER_TEXT];
	int32_t pid;
	char	user[NODE_CONTENDER_TEXT];
	char	application[NODE_CONTENDER_TEXT];
	bool	reservation; /* once granted, it is the server's, and not that process's */
} NodeContender;

/* The first member of a zklock node's JSON: the version */
#define NODE_CONTENDER_MEMBER "zklock"
#define NODE_CONTENDER_VERSION "1.0"

/* The second member, if zk_break_lock() is about to delete the node: its caller */
#define NODE_CONTENDER_BROKEN "broken_by"
#define NODE_CONTENDER_BROKEN_SIZE 16 /* bytes that the member has in addition to its value */

extern bool node_contender_has_version(const char *data, size_t len);
extern bool node_contender_is_broken(const char *data, size_t len);
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

/* How many claims are remembered by their ids, the last one included */
#define CLAIM_RECORD_IDS 10

typedef struct ClaimRecord
{
	bool	claimed; /* if not, claims were reset: every slot can be claimed */
	int64_t slot;	 /* us since 2000-01-01 00:00 UTC */
	int		nids;
	char	ids[CLAIM_RECORD_IDS][CLAIM_RECORD_ID_SIZE]; /* of the last claims, the last one
													   * first */
	char	claimant[CLAIM_RECORD_CLAIMANT_SIZE]; /* what display.c says of the session */
} ClaimRecord;

/* A path's node, as it is now */
typedef struct ClaimNode
{
	bool		exists;
	int64_t		czxid;
	int32_t		version; /* of its data: a record's is 1 at least */
	ClaimRecord record;	 /* all zero if there is none */
} ClaimNode;

/* A write of ours whose outcome is not known */
typedef struct ClaimSent
{
	enum
	{
		CLAIM_SENT_NOTHING,
		CLAIM_SENT_CREATE,
		CLAIM_SENT_SET
	} what;
	int64_t czxid;	 /* SET: of the node; CREATE: of the one to be replaced, or 0 */
	int32_t version; /* SET: of the data to be replaced */
} ClaimSent;

/* What is to be done next, or what has become of a claim or a reset */
typedef enum ClaimVerdict
{
	CLAIM_WRITE, /* create the node with the record, or replace the one that exists */
	CLAIM_MADE,	 /* the write has been made */
	CLAIM_TAKEN, /* another client has that slot or a later one; there is nothing to reset */
	CLAIM_UNDECIDABLE /* the outcome of what was sent cannot be known */
} ClaimVerdict;

extern bool			claim_record_recognised(const char *data, size_t len);
extern bool			claim_record_read(const char *data, ClaimRecord *record);
extern size_t		claim_record_write(char dst[CLAIM_RECORD_SIZE], const ClaimRecord *record);
extern void			claim_record_write_slot(char dst[CLAIM_RECORD_SLOT_SIZE], int64_t slot);
extern void			claim_record_succeed(ClaimRecord *next, const ClaimRecord *last);
extern ClaimVerdict claim_record_judge(const ClaimNode *node, const ClaimRecord *wanted,
									   const ClaimSent *sent);

#endif /* ZKLOCK_NODE_NAME_H */
