/*
 * reservation.h
 *		Reservations: locks that the server holds for whoever knows their tokens.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_RESERVATION_H
#define ZKLOCK_RESERVATION_H

#include "shared/entry.h"

/* A reservation, as long as its entry has that generation */
typedef struct Reservation
{
	int	   index;
	uint32 generation;
	Oid	   role; /* whose it is */
} Reservation;

/* Backends */
extern int	reservation_count(Oid role, int *all);
extern bool reservation_begin(int index);
extern bool reservation_find(const char *path, int64 token, Reservation *reservation);
extern bool reservation_status(const Reservation *reservation, EntryStatus *status);
extern bool reservation_renew(const Reservation *reservation, int duration_ms);
extern bool reservation_end(const Reservation *reservation, int latch);
extern bool reservation_begin_reliance(void);
extern void reservation_end_reliance(void);

/* The worker */
extern bool reservation_close(void);

#endif /* ZKLOCK_RESERVATION_H */
