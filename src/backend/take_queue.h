/*
 * take_queue.h
 *		The inside of queues of elements: what take*.c share.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_TAKE_QUEUE_H
#define ZKLOCK_TAKE_QUEUE_H

#include "backend/call.h"
#include "backend/take.h"

/* A user's call on a queue */
typedef struct TakeQueue
{
	const char *path;
	int64		timeout_ms;
	Call		call;
	bool		offering; /* an offer is being sent, or in doubt */
	const char *removing; /* the element that is being removed, or NULL */
} TakeQueue;

/*
 * Gets an element, by its name.  Returns false if somebody else has it, if it is
 * gone, or if the time is over.
 */
typedef bool (*TakeGetter)(TakeQueue *queue, const char *name, Element *got);

/* take_queue.c */
extern void				  take_context(void *arg);
extern void				  take_check(const TakeQueue *queue, const CallStep *step);
extern const CallStep	 *take_list(TakeQueue *queue, bool watch);
extern const ElementName *take_sort(const CallStep *list, int *n);
extern char				 *take_element_path(const TakeQueue *queue, const char *name);
extern void				  take_refuse_claims(TakeQueue *queue, const CallResult *result);
extern void				  take_make_certainly(TakeQueue *queue, CallStep *step);
extern bool				  take_create_receipts(TakeQueue *queue);
extern bool				  take_is_out_of_time(const TakeQueue *queue);
extern void				  take_sleep(const TakeQueue *queue);

/* take.c */
extern bool take_show_element(TakeQueue *queue, const char *name, Element *got);
extern bool take_remove_element(TakeQueue *queue, const char *name, Element *got);
extern bool take_claim_element(TakeQueue *queue, const char *name, Element *got);

#endif /* ZKLOCK_TAKE_QUEUE_H */
