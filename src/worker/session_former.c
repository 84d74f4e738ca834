/*
 * session_former.c
 *		The ZooKeeper session that a server left behind: how the next one finds it, and
 *		ends it.
 *
 * After a crash or an immediate shutdown the session lives on, and with it the
 * locks, until it times out.  Shared memory is empty then, but a file has id and
 * password of the session, as long as there is one.  The worker ends this former
 * session before it begins one of its own:
 *
 *		connected			close it, and connect again to see
 *		expired, refused	begin a session of our own
 *		unreachable			go on trying, as with our own
 *
 * The request to close a session may be lost with the connection, and the client
 * library does not tell of an answer.  So the session is known to be over only
 * when ZooKeeper says so to the next connection.
 *
 * The former session never gets into shared memory.  No process of the former
 * server can be left that relies on it: the postmaster does not initialise shared
 * memory before all are gone.
 *
 * A copy of the file must never be used: a server that was restored from a base
 * backup, or started on a copy or clone of a data directory, would end the session
 * of the server it was taken from, while that holds locks.  So:
 *
 * - The file is in pg_stat_tmp, whose contents base backups and pg_rewind leave
 *	 out.
 * - It contains what it is: the kernel's boot id and its own device and inode.
 *	 A copy has another inode, on another device perhaps; a copy on another
 *	 machine, or a clone of the machine, has another boot id, as has the same
 *	 machine after a restart.  A file that fits in all of them is the very one
 *	 that was written.
 *
 * The file is written under another name and renamed, so it is complete or absent.
 * It needs no fsync: one that survives a crash of the machine has an old boot id.
 *
 * Nothing here is worth failing for.  A failure is logged, and then the session
 * times out.
 *
 * Runs in: the worker.  All of this is private to it; no other process touches the
 * file.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/string.h"
#include "compat.h"
#include "shared/shmem.h"
#include "storage/fd.h"
#include "worker/session.h"
#include "zk/zk_client.h"

#define SESSION_FILE PG_STAT_TMP_DIR "/zklock.session"
#define SESSION_FILE_NEW SESSION_FILE ".new"
#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_LEN 36
#define PASSWORD_LEN (2 * ZKLOCK_PASSWORD_SIZE) /* in hexadecimal */
#define CONTENT_SIZE 512

#define CONTENT_FORMAT \
	"zklock session 1\nboot %s\nfile %llu %llu\nsession 0x%llx\npassword %s\n"
#define CONTENT_SCAN "zklock session 1 boot %36s file %llu %llu session 0x%llx password %32s"

/* ------------------------------------------------------------------------
 * The file
 * ------------------------------------------------------------------------
 */

/* A session can be taken up, and ended, with these two. */
typedef struct SessionKey
{
	int64 id; /* 0 if there is no session */
	char  password[ZKLOCK_PASSWORD_SIZE];
} SessionKey;

/* The contents of the file, its own identity included. */
typedef struct SessionRecord
{
	char			   boot_id[BOOT_ID_LEN + 1];
	unsigned long long device;
	unsigned long long inode;
	unsigned long long id;
	char			   password[PASSWORD_LEN + 1];
} SessionRecord;

/* Reads the id of this start of the kernel.  Returns false if it does not say. */
static bool
read_boot_id(char *boot_id)
{
	FILE *file = AllocateFile(BOOT_ID_FILE, "r");
	char  line[BOOT_ID_LEN + 2];
	bool  found;

	if (file == NULL)
		return false;
	found = fgets(line, sizeof(line), file) != NULL && pg_strip_crlf(line) == BOOT_ID_LEN;
	if (found)
		strlcpy(boot_id, line, BOOT_ID_LEN + 1);
	FreeFile(file);
	return found;
}

static int
record_format(const SessionRecord *record, char *content)
{
	return snprintf(content, CONTENT_SIZE, CONTENT_FORMAT, record->boot_id, record->device,
					record->inode, record->id, record->password);
}

/* Takes only what record_format() makes of a record, byte by byte. */
static bool
record_parse(const char *content, SessionRecord *record)
{
	char again[CONTENT_SIZE];

	if (sscanf(content, CONTENT_SCAN, record->boot_id, &record->device, &record->inode,
			   &record->id, record->password) != 5)
		return false;
	(void) record_format(record, again);
	return strcmp(content, again) == 0 && strlen(record->password) == PASSWORD_LEN &&
		   strspn(record->password, "0123456789abcdef") == PASSWORD_LEN && record->id != 0;
}

/* Writes an open file that is new; returns NULL or what is wrong. */
static const char *
write_content(int fd, int64 id, const char *password)
{
	SessionRecord record;
	struct stat	  st;
	char		  content[CONTENT_SIZE];
	int			  len;
	bool		  written;

	if (!read_boot_id(record.boot_id))
		return "the kernel's boot id cannot be read";
	if (fstat(fd, &st) != 0)
		return strerror(errno);
	record.device = st.st_dev;
	record.inode = st.st_ino;
	record.id = id;
	for (int i = 0; i < ZKLOCK_PASSWORD_SIZE; i++)
		snprintf(record.password + 2 * i, 3, "%02x", (unsigned char) password[i]);
	len = record_format(&record, content);
	errno = ENOSPC; /* what a short write means */
	written = write(fd, content, len) == len;
	return written ? NULL : strerror(errno);
}

/* Remembers a session. */
void
session_file_write(int64 id, const char *password)
{
	const char *fault = NULL;
	int			fd;

	(void) unlink(SESSION_FILE_NEW); /* a worker may have died here */
	fd = OpenTransientFilePerm(SESSION_FILE_NEW, O_CREAT | O_EXCL | O_WRONLY, S_IRUSR | S_IWUSR);
	if (fd < 0)
		fault = strerror(errno);
	else
	{
		fault = write_content(fd, id, password);
		if (CloseTransientFile(fd) != 0 && fault == NULL)
			fault = strerror(errno);
		if (fault == NULL && rename(SESSION_FILE_NEW, SESSION_FILE) != 0)
			fault = strerror(errno);
	}
	if (fault)
	{
		ereport(LOG, (errmsg("could not write file \"%s\": %s", SESSION_FILE, fault),
					  errdetail("After a crash, locks will be free only when the ZooKeeper session has timed out.")));
		(void) unlink(SESSION_FILE_NEW);
	}
}

/* Reads an open file; returns NULL or why it cannot be used. */
static const char *
read_content(int fd, SessionKey *key)
{
	SessionRecord record;
	struct stat	  st;
	char		  content[CONTENT_SIZE];
	char		  boot_id[BOOT_ID_LEN + 1];
	ssize_t		  len;

	if (fstat(fd, &st) != 0)
		return strerror(errno);
	if (!S_ISREG(st.st_mode))
		return "it is not a regular file";
	if (st.st_uid != geteuid() || (st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
		return "others than its owner may access it";
	len = read(fd, content, sizeof(content) - 1);
	if (len < 0)
		return strerror(errno);
	content[len] = '\0';
	if (strlen(content) != (size_t) len || !record_parse(content, &record))
		return "its contents are not valid";
	if (!read_boot_id(boot_id))
		return "the kernel's boot id cannot be read";
	if (strcmp(record.boot_id, boot_id) != 0)
		return "it was written on another machine, or before this one was restarted";
	if (record.device != st.st_dev || record.inode != st.st_ino || st.st_nlink != 1)
		return "it is a copy";
	key->id = (int64) record.id;
	for (int i = 0; i < ZKLOCK_PASSWORD_SIZE; i++)
	{
		unsigned int byte;

		(void) sscanf(record.password + 2 * i, "%2x", &byte);
		key->password[i] = (char) byte;
	}
	return NULL;
}

/*
 * Finds the session that this server, and no other, has left behind.
 *
 * Leaves "key" alone if there is none, or none that is certain; then there is no
 * such file any more either.
 */
static void
session_file_read(SessionKey *key)
{
	const char *fault;
	int			fd;

	/* Neither follows a link nor waits for the other end of a pipe. */
	fd = OpenTransientFile(SESSION_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
	{
		if (errno == ENOENT)
			return;
		fault = errno == ELOOP ? "it is a symbolic link" : strerror(errno);
	}
	else
	{
		fault = read_content(fd, key);
		(void) CloseTransientFile(fd);
	}
	if (fault == NULL)
		return;
	ereport(LOG, (errmsg("ignoring file \"%s\": %s", SESSION_FILE, fault),
				  errdetail("A ZooKeeper session that it tells of ends when it times out.")));
	session_file_remove();
}

/* Forgets the session: it has been closed, or it is over. */
void
session_file_remove(void)
{
	if (unlink(SESSION_FILE) != 0 && errno != ENOENT)
		ereport(LOG, (errcode_for_file_access(),
					  errmsg("could not remove file \"%s\": %m", SESSION_FILE)));
}

/* ------------------------------------------------------------------------
 * The end of the session
 * ------------------------------------------------------------------------
 */

#define MAX_CLOSES 4

static SessionKey former; /* id 0: there is none, or none any more */
static int		  closes; /* how often it has been closed; it may live all the same */

static void
forget(void)
{
	explicit_bzero(&former, sizeof(former));
	session_file_remove();
}

/* A worker starts that has no session: looks whether one was left behind. */
void
session_former_find(void)
{
	session_file_read(&former);
}

/* Is there one that has not been ended yet? */
bool
session_former_exists(void)
{
	return former.id != 0;
}

/*
 * Fills in the configuration of a handle that is to close it.  Returns whether
 * credentials are to be shown: with wrong ones a session cannot even be closed,
 * so every other time that is tried without any.
 */
Credentials
session_former_configure(ZkClientConfig *config)
{
	config->purpose = ZK_PURPOSE_END;
	config->session_id = former.id;
	memcpy(config->session_password, former.password, sizeof(config->session_password));
	return closes % 2 == 0 ? CREDENTIALS_SHOWN : CREDENTIALS_WITHHELD;
}

/* Gives up what could not be ended. */
static void
give_up(void)
{
	ereport(LOG, (errmsg("could not end ZooKeeper session 0x%llx, which had been left behind",
						 (unsigned long long) former.id),
				  errdetail("ZooKeeper frees its locks when it times out.")));
	forget();
}

/* It is connected: closes it.  Returns how to go on. */
FormerStep
session_former_close(void)
{
	bool answered = zk_client_close();

	if (++closes < MAX_CLOSES)
		return answered ? FORMER_LOOK_NOW : FORMER_LOOK_LATER;
	give_up();
	return FORMER_FORGOTTEN;
}

/* ZooKeeper says that it is over. */
void
session_former_is_over(void)
{
	unsigned long long id = (unsigned long long) former.id;

	if (closes > 0)
		ereport(LOG, (errmsg("ended ZooKeeper session 0x%llx, which had been left behind", id)));
	else
		ereport(DEBUG1,
				(errmsg("ZooKeeper session 0x%llx, which had been left behind, is over", id)));
	session_info_ended(former.id);
	forget();
}

/* ZooKeeper refuses our credentials, and so to end it. */
void
session_former_refused(void)
{
	give_up();
}
