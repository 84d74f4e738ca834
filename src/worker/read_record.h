/*
 * read_record.h
 *		Deadlocks across servers: a record that has been read.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_READ_RECORD_H
#define ZKLOCK_READ_RECORD_H

typedef struct ReadStep
{
	int			pid;
	const char *text;
} ReadStep;

typedef struct ReadNode
{
	const char *path;
	const char *name;
} ReadNode;

/* A wait of a record */
typedef struct ReadWait
{
	uint64	  identity;
	int		  permits;
	ReadNode  node;
	ReadStep *steps;
	int		  nsteps;
	ReadNode *held;
	int		  nheld;
} ReadWait;

/* A record that has been read, by whom it is and when it was written */
typedef struct ReadRecord
{
	int64		owner; /* ZooKeeper session */
	int64		czxid;
	const char *server;
	int64		seen;
	ReadWait   *waits;
	int			nwaits;
} ReadRecord;

extern bool worker_record_parse(ReadRecord *record, char *text, size_t len);

#endif /* ZKLOCK_READ_RECORD_H */
