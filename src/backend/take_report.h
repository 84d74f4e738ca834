/*
 * take_report.h
 *		What a session is told of elements of queues that it cannot have.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_TAKE_REPORT_H
#define ZKLOCK_TAKE_REPORT_H

#include "shared/element.h"

/* What is known of a request */
typedef struct TakeView
{
	ElementState   state;
	char		   name[ELEMENT_NAME_SIZE];
	int64		   czxid;
	Size		   data_length;
	ElementOutcome outcome;
	int			   code;
} TakeView;

extern TakeView take_look(ElementRequest *request);
extern void		take_report_unreachable(const char *path);
extern void		take_report_uncertain(const ElementRequest *request, const TakeView *view);
extern void		take_report_failure(const ElementRequest *request, const TakeView *view);
extern void		take_report_lost_element(const ElementRequest *request, const TakeView *view);

#endif /* ZKLOCK_TAKE_REPORT_H */
