/*
 * report.h
 *		What the log is told.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_REPORT_H
#define ZKLOCK_REPORT_H

#include "lib/stringinfo.h"
#include "queue/engine.h"

/* Which processes lose which paths; report_losses_begin() makes it. */
typedef struct Losses
{
	int			   count;
	StringInfoData lines; /* for as many as are named */
} Losses;

extern void		   report_unrecognised(const Path *path, const char *child);
extern void		   report_sequence(const Path *path, int64 sequence, int64 limit);
extern void		   report_stale(const Path *path, const char *name, const ZkReply *reply);
extern void		   report_heedless(Path *path);
extern void		   report_losses_begin(Losses *losses);
extern void		   report_losses_add(Losses *losses, const Contender *c);
extern const char *report_losses_list(Losses *losses);
extern void		   report_losses_end(Losses *losses);

#endif /* ZKLOCK_REPORT_H */
