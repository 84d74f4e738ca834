/*
 * reload.h
 *		How changed settings are taken up.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_RELOAD_H
#define ZKLOCK_RELOAD_H

/* The step that changed settings ask of the worker. */
typedef enum ReloadStep
{
	RELOAD_STEP_NONE,
	RELOAD_STEP_RESTART, /* go on with the session in another handle */
	RELOAD_STEP_MOVE	 /* end the session, and begin another one */
} ReloadStep;

extern void		  worker_reload_begin(void);
extern ReloadStep worker_reload_attend(void);
extern int64	  worker_reload_next_wakeup(void);

#endif /* ZKLOCK_RELOAD_H */
