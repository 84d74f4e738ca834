/*
 * session_file.h
 *		The file that tells a server which ZooKeeper session it left behind.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_SESSION_FILE_H
#define ZKLOCK_SESSION_FILE_H

#include "shared/session_info.h"

/* A session can be taken up, and ended, with these two. */
typedef struct SessionKey
{
	int64 id; /* 0 if there is no session */
	char  password[ZKLOCK_PASSWORD_SIZE];
} SessionKey;

extern void session_file_write(const SessionKey *key);
extern void session_file_read(SessionKey *key);
extern void session_file_remove(void);

#endif /* ZKLOCK_SESSION_FILE_H */
