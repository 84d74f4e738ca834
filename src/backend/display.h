/*
 * display.h
 *		Paths, node data and states of ZooKeeper as text for messages and views.
 *
 * Copyright (c) 2026, zklock contributors
 */
#ifndef ZKLOCK_DISPLAY_H
#define ZKLOCK_DISPLAY_H

extern char		  *display_path(const char *path);
extern char		  *display_utf8(const char *utf8);
extern char		  *display_foreign(const char *text);
extern char		  *display_node_data(const char *data, int len);
extern char		  *display_session(int64 id);
extern const char *display_outage(void);
extern const char *display_outage_suffix(void);

#endif /* ZKLOCK_DISPLAY_H */
