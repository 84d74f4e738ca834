/*
 * engine.h
 *		The worker's engine: paths, our nodes in their queues, contenders.
 *
 * node.c explains these terms.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ENGINE_H
#define ZKLOCK_ENGINE_H

#include "shared/session_info.h"
#include "zk/zk_client.h"

/* The path that is being worked on, for the log; or NULL */
extern const char *engine_attended;

/* A round of the main loop */
extern void	 engine_start(void);
extern void	 engine_attend(void);
extern void	 engine_watch(ZkWatchEvent event, const char *path);
extern bool	 engine_needs_watch(const ZkCall *removal);
extern int64 engine_pump(void);

/* What is read now is no older than the connection, if one stands */
extern bool engine_synced;

/* The life of the ZooKeeper session */
extern void engine_session_connected(const SessionInfo *session);
extern void engine_session_unreachable(int refused_code);
extern void engine_session_proved(bool is_alive);
extern void engine_session_ended(const char *reason);

/* A candidate of another client that is to lead rather than this server */
typedef struct EngineRival
{
	const char *node; /* its name */
	const char *data; /* of its node */
	int			priority;
	int64		since; /* when it was first seen, ms */
} EngineRival;

extern bool engine_rival(int entry, int priority, EngineRival *rival);

/* What the search for deadlocks needs to know */
extern void engine_note_remote_waits(void);

#endif /* ZKLOCK_ENGINE_H */
