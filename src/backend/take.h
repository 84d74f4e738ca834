/*
 * take.h
 *		Elements of queues that this session has.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_TAKE_H
#define ZKLOCK_TAKE_H

#include "access/xact.h"
#include "shared/element.h"
#include "shared/settings.h"

/* An element that the transaction has until it ends */
typedef struct HeldElement
{
	TakenElement	*element;
	SubTransactionId subid;		  /* that has taken it */
	CommitGuard		 taken_under; /* zklock.commit_guard then */
	int64			 taken_at;	  /* us */
} HeldElement;

typedef void (*HeldElementVisitor)(const HeldElement *held, void *arg);

extern TakenElement *take_claim(const char *path, const char *name);
extern void			 take_keep(TakenElement *element);
extern void			 take_report_lost_element(const TakenElement *element);

/* The transaction */
extern bool take_has_elements(void);
extern void take_visit(HeldElementVisitor visit, void *arg);
extern void take_report_lost(const HeldElement *held);
extern void take_end_transaction(XactEvent event);
extern void take_end_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent);

#endif /* ZKLOCK_TAKE_H */
