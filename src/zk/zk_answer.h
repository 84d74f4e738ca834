/*
 * zk_answer.h
 *		Answers of ZooKeeper: what they mean, and whether they make sense.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_ANSWER_H
#define ZKLOCK_ZK_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

/* ------------------------------------------------------------------------
 * zk_error.c: ZooKeeper's error codes: what they are called, and what they mean
 * ------------------------------------------------------------------------
 */

/* What became of a call. */
typedef enum ZkOutcome
{
	ZK_OK,
	ZK_NO_NODE,
	ZK_NODE_EXISTS,
	ZK_NO_CHILDREN, /* the parent is ephemeral */
	ZK_UNKNOWN,		/* no answer: it may have happened or not */
	ZK_REFUSED		/* anything else; the code says what */
} ZkOutcome;

/* The codes that matter to others than zk_error.c. */
#define ZK_CONNECTION_LOSS (-4)
#define ZK_NO_AUTH (-102)
#define ZK_BAD_VERSION (-103)
#define ZK_NOT_EMPTY (-111)
#define ZK_AUTH_FAILED (-115)
#define ZK_CLOSING (-116)
#define ZK_NO_WATCHER (-121)
#define ZK_QUOTA_EXCEEDED (-125)
#define ZK_REQUIRES_AUTH (-124) /* ZSESSIONCLOSEDREQUIRESASLAUTH, since 3.7 */

/* What a connection was in use for when a complaint came. */
typedef enum ZkConnectionUse
{
	ZK_CONNECTION_NEW,	 /* nothing yet: no server had answered on it */
	ZK_CONNECTION_IN_USE /* calls */
} ZkConnectionUse;

extern ZkOutcome   zk_error_outcome(int code);
extern const char *zk_error_name(int code);
extern bool		   zk_error_is_permission(int code);
extern bool		   zk_error_is_breakdown(int code);
extern char		  *zk_error_sentence(const char *complaint, ZkConnectionUse use);

/* ------------------------------------------------------------------------
 * zk_answer.c: does an answer of a ZooKeeper server make sense?
 * ------------------------------------------------------------------------
 */

/* How the path in the answer to a create follows from the one asked for. */
typedef enum AnswerPathKind
{
	ANSWER_PATH_SAME,
	ANSWER_PATH_NUMBERED /* a sequence is appended */
} AnswerPathKind;

/* Each returns NULL if all is well, else the fault as a sentence (constant). */
extern const char *zk_answer_code_fault(int code);
extern const char *zk_answer_path_fault(const char *path, const char *asked, AnswerPathKind kind);
extern const char *zk_answer_stat_fault(int64_t czxid, int64_t mzxid);
extern const char *zk_answer_new_stat_fault(int64_t czxid, int64_t mzxid);
extern const char *zk_answer_owner_fault(int64_t ephemeral_owner, int64_t session);
extern const char *zk_answer_children_fault(char *const *children, int n);
extern const char *zk_answer_event_fault(const char *path);
extern const char *zk_answer_session_fault(int64_t session, int timeout);
extern const char *zk_answer_password_fault(const char *password, const char *known);

#endif /* ZKLOCK_ZK_ANSWER_H */
