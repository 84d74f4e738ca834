/*
 * take.h
 *		Elements of queues, as a session asks for them and has them.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_TAKE_H
#define ZKLOCK_TAKE_H

#include "access/xact.h"
#include "shared/element.h"
#include "shared/settings.h"

/* An element, as it is shown, removed or taken */
typedef struct TakenElement
{
	char *name;	 /* UTF-8 */
	int64 token; /* its czxid */
	char *data;	 /* palloc'd; bytes */
	Size  length;
} TakenElement;

/* An element that the transaction has until it ends */
typedef struct HeldElement
{
	ElementRequest	*request;
	SubTransactionId subid;		  /* that has taken it */
	CommitGuard		 taken_under; /* zklock.commit_guard then */
	int64			 taken_at;	  /* us */
} HeldElement;

/* Is a call counted in the statistics? */
typedef enum TakeCounting
{
	TAKE_UNCOUNTED,
	TAKE_COUNTED
} TakeCounting;

typedef void (*HeldElementVisitor)(const HeldElement *held, void *arg);

extern char *take_offer(const char *path, const char *data, Size length);
extern bool	 take_element(const char *path, ElementAction action, int64 timeout_ms,
						  TakeCounting counting, TakenElement *taken);

/* The transaction */
extern bool take_has_elements(void);
extern void take_visit(HeldElementVisitor visit, void *arg);
extern void take_report_lost(const HeldElement *held);
extern void take_end_transaction(XactEvent event);
extern void take_end_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent);

#endif /* ZKLOCK_TAKE_H */
