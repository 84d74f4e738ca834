/*
 * inquiry.h
 *		Is a lock merely kept, elsewhere, for which a call does not want to wait?
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_INQUIRY_H
#define ZKLOCK_INQUIRY_H

#include "queue/engine.h"

/* What is known of the lock that other clients have */
typedef enum Inquiry
{
	INQUIRY_TAKEN,
	INQUIRY_UNDER_WAY, /* look again when the path is marked */
	INQUIRY_PERHAPS_KEPT
} Inquiry;

extern Inquiry contender_inquire(const Contender *c);
extern bool	   contender_may_ask(const Contender *c, const Foreigner *blocker);

#endif /* ZKLOCK_INQUIRY_H */
