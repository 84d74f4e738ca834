/*
 * zk_answer.h
 *		Does an answer of a ZooKeeper server make sense?
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ZK_ANSWER_H
#define ZKLOCK_ZK_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

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
