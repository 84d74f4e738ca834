/*
 * element_work.h
 *		What the worker keeps of requests for elements, and of their queues.
 *
 * Private to the files of the worker that see to element requests.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_ELEMENT_WORK_H
#define ZKLOCK_ELEMENT_WORK_H

#include "lib/ilist.h"
#include "shared/element.h"

/* Until something that failed is tried again, ms */
#define ELEMENT_RETRY_MS 1000

/* Until a lock that is being released is looked at again, ms */
#define ELEMENT_LOOK_MS 20

/* So often it is tried in a row to offer, or to make the path. */
#define ELEMENT_ATTEMPTS 16

struct ElementQueue;

/* The private part of a request, in an array with the same index */
typedef struct ElementWork
{
	dlist_node			 link;			 /* in queue->works, in order of asking */
	dlist_node			 marked_link;	 /* in the list of the marked */
	bool				 marked;		 /* to be looked at */
	struct ElementQueue *queue;			 /* NULL: not taken up */
	size_t				 bytes;			 /* of watches and nodes, charged to its session */
	int					 calls;			 /* that are not answered */
	int64				 retry_at;		 /* nothing is tried before, ms */
	uint64				 needs_list;	 /* number of the listing that it has to see */
	char   candidate[ELEMENT_NAME_SIZE]; /* the element it tries or has, or empty */
	bool   fetched;						 /* what follows is known of the candidate */
	int64  czxid;
	char  *data;	   /* NULL if there is none */
	Size   length;	   /* bytes */
	int	   attempts;   /* to offer: so many */
	Size   sent_bytes; /* OFFER: under way, or 0 */
	uint32 check;	   /* number of the check under way */
} ElementWork;

/* An element of a queue */
typedef struct QueueElement
{
	ElementName	 key; /* first; its name is the one that follows */
	char		 name[ELEMENT_NAME_SIZE];
	ElementWork *work;	  /* whose candidate it is, or NULL */
	bool		 gone;	  /* somebody has removed it since the listing */
	bool		 claimed; /* somebody else has taken it, as far as is known */
	bool		 watched; /* its claim is */
} QueueElement;

/* What is known of the data of a queue's own node, where those of claims would be */
typedef enum QueueData
{
	QUEUE_DATA_NONE,   /* none that could be a claim's */
	QUEUE_DATA_UNREAD, /* some, which have to be read before anything else is done */
	QUEUE_DATA_ASKED,
	QUEUE_DATA_OTHER /* others' business: not read again while somebody uses the queue */
} QueueData;

/* A queue that a request is about */
typedef struct ElementQueue
{
	char		  path[ZKLOCK_MAX_PATH + 1]; /* hash key */
	dlist_head	  works;					 /* requests */
	QueueElement *elements;					 /* in their order, as listed; or NULL */
	int			  n;						 /* of them */
	int			  first;					 /* of those that are not gone */
	bool		  listed;		 /* nothing has changed since, as far as is known */
	bool		  watched;		 /* the children are */
	bool		  maybe_watched; /* since an earlier connection */
	bool		  is_missing;	 /* the path did not exist when it was listed */
	bool		  verified;		 /* no child shows that it is something else */
	QueueData	  data;
	uint64		  lists_sent; /* listings asked for */
	uint64		  lists_told; /* number of the one that was answered last */
	bool		  listing;	  /* one is under way */
	bool		  contended;  /* somebody else had claimed what we tried: look first */
	int			  calls;	  /* about the queue itself, not answered */
	int			  surveying;  /* of these, looks at elements */
	int64 look_at; /* claims that are not watched are looked at again, ms; 0: there are none */
	size_t		   missing_len;	 /* the part of the path that is looked for */
	int			   missing;		 /* levels that do not exist */
	bool		   making;		 /* the path is being created */
	int			   creating;	 /* creates under way */
	ElementOutcome refusal;		 /* why one failed, or OK */
	int			   refusal_code; /* ZooKeeper's */
} ElementQueue;

extern ElementWork *worker_element_works; /* by index of the request */

static inline ElementRequest *
work_request(const ElementWork *work)
{
	return &element_pool->requests[work - worker_element_works];
}

extern void			worker_element_work_start(void);
extern void			worker_element_mark(ElementWork *work);
extern void			worker_element_mark_all(ElementQueue *queue);
extern ElementWork *worker_element_next_marked(void);
extern void			worker_element_retry(ElementWork *work, int64 ms);
extern void			worker_element_look_later(ElementQueue *queue, int64 ms);
extern int64		worker_element_retry_at(void);
extern void			worker_element_retry_due(void);
extern void			worker_element_forget(ElementWork *work);
extern void worker_element_fail_all(ElementQueue *queue, ElementOutcome outcome, int code);

#endif /* ZKLOCK_ELEMENT_WORK_H */
