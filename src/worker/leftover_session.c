/*
 * leftover_session.c
 *		The ZooKeeper session that a server left behind: how the next server finds it, and
 *		ends it.
 *
 * After a crash or an immediate shutdown the session lives on, and with it the locks, until
 * it times out.  Shared memory is empty then, but a file has id and password of the session,
 * as long as there is one.  The worker ends this former session before it begins one of its
 * own:
 *
 *		connected			close it, and connect again to see, MAX_CLOSES times
 *		expired				begin a session of our own
 *		anything else		go on trying, as with our own
 *
 * The request to close a session may be lost with the connection, and the client library
 * does not report an answer.  So the session is known to be over only when ZooKeeper says so
 * to the next connection.
 *
 * The former session never gets into shared memory.  No process of the former server can be
 * left that relies on it: the postmaster does not initialise shared memory before all are
 * gone.
 *
 * A copy of the file must never be used: a server that was restored from a base backup, or
 * started on a copy or clone of a data directory, would end the session of the server it was
 * taken from, while that server holds locks.  So:
 *
 * - The file is in pg_stat_tmp, whose contents base backups and pg_rewind leave out.
 * - It contains its own identity: the kernel's boot id and the file's device and inode.  A
 *   copy has another inode, perhaps on another device; a copy on another machine, or a clone
 *   of the machine, has another boot id, as has the same machine after a restart.  A file
 *   that fits in all of them is the very one that was written.
 * - It contains device and inode of the data directory as well: where pg_stat_tmp is a
 *   symbolic link, a copy of the data directory has the very same file.  Then the server that
 *   connects last has its session in it.
 *
 * The file is written under another name and renamed, so it is complete or absent.  It needs
 * no fsync: a file that survives a crash of the machine has an old boot id.
 *
 * No error is raised here: a failure is logged, and then the session times out.
 *
 * Runs in: the worker.  All of this is private to it; no other process touches the file.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/string.h"
#include "compat.h"
#include "port/pg_bswap.h"
#include "shared/session_info.h"
#include "storage/fd.h"
#include "worker/worker_internal.h"

#define SESSION_FILE PG_STAT_TMP_DIR "/zklock.session"
#define SESSION_FILE_NEW SESSION_FILE ".new"
#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_LEN 36
#define CONTENT_SIZE 512

#define CONTENT_FORMAT \
	"zklock session 2\nboot %s\ndirectory %llu %llu\nfile %llu %llu\nsession 0x%llx\npassword %016llx%016llx\n"
#define CONTENT_SCAN \
	"zklock session 2 boot %36s directory %llu %llu file %llu %llu session 0x%llx password %16llx%16llx"

/* ------------------------------------------------------------------------
 * The file
 * ------------------------------------------------------------------------
 */

/* What it takes to resume a session, and to end it */
typedef struct SessionKey
{
	int64  id;												/* 0 if there is no session */
	uint64 password[ZKLOCK_PASSWORD_SIZE / sizeof(uint64)]; /* its bytes in their order */
} SessionKey;

/* Where a file is valid */
typedef struct Origin
{
	char		boot_id[BOOT_ID_LEN + 1];
	struct stat directory; /* the data directory */
	struct stat file;	   /* itself */
} Origin;

static SessionKey former; /* id 0: there is none, or none any more */

/* Reads the id of this start of the kernel.  Returns false if the kernel does not say. */
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

/* Fills in where an open file is valid.  Returns NULL, or why that is not known. */
static const char *
find_origin(int fd, Origin *origin)
{
	if (fstat(fd, &origin->file) != 0 || stat(DataDir, &origin->directory) != 0)
		return strerror(errno);
	return read_boot_id(origin->boot_id) ? NULL : "the kernel's boot id cannot be read";
}

/* Composes what a file contains, its own identity included. */
static void
format_content(char *content, const Origin *origin, const SessionKey *key)
{
	snprintf(content, CONTENT_SIZE, CONTENT_FORMAT, origin->boot_id,
			 (unsigned long long) origin->directory.st_dev,
			 (unsigned long long) origin->directory.st_ino,
			 (unsigned long long) origin->file.st_dev, (unsigned long long) origin->file.st_ino,
			 (unsigned long long) key->id, (unsigned long long) pg_ntoh64(key->password[0]),
			 (unsigned long long) pg_ntoh64(key->password[1]));
}

/* Writes an open file that is new.  Returns NULL, or what is wrong. */
static const char *
write_content(int fd, const SessionKey *key)
{
	Origin		origin;
	const char *fault = find_origin(fd, &origin);
	char		content[CONTENT_SIZE];
	ssize_t		len;

	if (fault)
		return fault;
	format_content(content, &origin, key);
	len = strlen(content);
	errno = ENOSPC; /* what a short write means */
	return write(fd, content, len) == len ? NULL : strerror(errno);
}

/* Writes the session to the file. */
void
session_file_write(int64 id, const char *password)
{
	SessionKey	key = {.id = id};
	const char *fault;
	int			fd;

	memcpy(key.password, password, sizeof(key.password));
	(void) unlink(SESSION_FILE_NEW); /* a worker may have died here */
	fd = OpenTransientFilePerm(SESSION_FILE_NEW, O_CREAT | O_EXCL | O_WRONLY, S_IRUSR | S_IWUSR);
	if (fd < 0)
		fault = strerror(errno);
	else
	{
		fault = write_content(fd, &key);
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

/*
 * Reads an open file.  Returns NULL, or why it cannot be used.  Only what format_content()
 * makes of a session counts, byte by byte.
 */
static const char *
read_content(int fd, SessionKey *key)
{
	Origin			   origin;
	const struct stat *file = &origin.file;
	const char		  *fault = find_origin(fd, &origin);
	char			   content[CONTENT_SIZE] = "";
	char			   expected[CONTENT_SIZE];
	char			   boot_id[BOOT_ID_LEN + 1];
	unsigned long long password[2];
	unsigned long long device[2]; /* of the directory, and of the file */
	unsigned long long inode[2];
	unsigned long long id;
	ssize_t			   len;

	if (fault)
		return fault;
	if (!S_ISREG(file->st_mode))
		return "it is not a regular file";
	if (file->st_uid != geteuid() || (file->st_mode & (S_IRWXG | S_IRWXO)) != 0)
		return "others than its owner may access it";
	len = read(fd, content, sizeof(content) - 1);
	if (len < 0)
		return strerror(errno);
	if (sscanf(content, CONTENT_SCAN, boot_id, &device[0], &inode[0], &device[1], &inode[1],
			   &id, &password[0], &password[1]) != 8)
		return "its contents are not valid";
	if (strcmp(boot_id, origin.boot_id) != 0)
		return "it was written on another machine, or before this one was restarted";
	if (device[1] != file->st_dev || inode[1] != file->st_ino || file->st_nlink != 1)
		return "it is a copy";
	if (device[0] != origin.directory.st_dev || inode[0] != origin.directory.st_ino)
		return "it belongs to another data directory";
	*key = (SessionKey){(int64) id, {pg_hton64(password[0]), pg_hton64(password[1])}};
	format_content(expected, &origin, key);
	if (id != 0 && (ssize_t) strlen(expected) == len && memcmp(content, expected, len) == 0)
		return NULL;
	explicit_bzero(key, sizeof(*key));
	return "its contents are not valid";
}

/*
 * Finds, as a worker starts without a session, the one that this server, and no other, has
 * left behind.  If there is none, or none that is certain, there is no such file any more
 * either.
 */
void
leftover_session_find(void)
{
	const char *fault;
	int			fd;

	/* This neither follows a link nor waits for the other end of a pipe. */
	fd = OpenTransientFile(SESSION_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
	{
		if (errno == ENOENT)
			return;
		fault = errno == ELOOP ? "it is a symbolic link" : strerror(errno);
	}
	else
	{
		fault = read_content(fd, &former);
		(void) CloseTransientFile(fd);
	}
	if (fault == NULL)
		return;
	ereport(LOG, (errmsg("ignoring file \"%s\": %s", SESSION_FILE, fault),
				  errdetail("A ZooKeeper session that it tells of ends when it times out.")));
	session_file_remove();
}

/* Removes the file, since the session has been closed, or is over. */
void
session_file_remove(void)
{
	if (unlink(SESSION_FILE) != 0 && errno != ENOENT)
		ereport(LOG, (errcode_for_file_access(),
					  errmsg("could not remove file \"%s\": %m", SESSION_FILE)));
}

/* ------------------------------------------------------------------------
 * Crashes
 *
 * After a crash of the worker the next one, of a server that has started again, finds the same
 * settings, files and session left behind, and might crash over them again and again.  So a
 * file has a byte for each worker that has begun to open a session, until a server has answered
 * in one, or the worker exits.  Shared memory does not outlive a crash; the postmaster need not
 * either, with restart_after_crash off.
 *
 * SIGQUIT, by which the postmaster ends all processes when another one has crashed, or in an
 * immediate shutdown, is no crash of the worker, and takes only its own byte back.
 * ------------------------------------------------------------------------
 */

#define OPENING_FILE PG_STAT_TMP_DIR "/zklock.opening"

static volatile sig_atomic_t is_opening; /* this worker has its byte in the file */
static off_t				 crashes_before;

/*
 * Notes that this worker begins to open a session.  Returns how many before it, in a row,
 * crashed meanwhile.
 */
int
worker_opening_begins(void)
{
	struct stat file = {.st_size = 0};
	int			fd = OpenTransientFilePerm(OPENING_FILE, O_CREAT | O_APPEND | O_WRONLY | O_NOFOLLOW | O_NONBLOCK,
										   S_IRUSR | S_IWUSR);

	if (fd < 0 || fstat(fd, &file) != 0 || write(fd, "x", 1) != 1)
		ereport(LOG, (errcode_for_file_access(),
					  errmsg("could not write file \"%s\": %m", OPENING_FILE)));
	if (fd >= 0)
		(void) CloseTransientFile(fd);
	crashes_before = file.st_size;
	is_opening = true;
	return (int) Min(crashes_before, INT_MAX);
}

/* Notes that the session is open, or that the worker exits. */
void
worker_opening_over(void)
{
	if (is_opening)
		(void) unlink(OPENING_FILE);
	is_opening = false;
}

/* SIGQUIT: takes back that this worker has begun, and exits. */
void
worker_opening_interrupted(SIGNAL_ARGS)
{
	_exit(is_opening && truncate(OPENING_FILE, crashes_before) != 0 ? 3 : 2);
}

/* ------------------------------------------------------------------------
 * The end of the session
 * ------------------------------------------------------------------------
 */

#define MAX_CLOSES 4

static int closes; /* how often it has been closed; it may still live */

void
leftover_session_forget(void)
{
	explicit_bzero(&former, sizeof(former));
	session_file_remove();
}

/* Returns true if there is one that has not been ended yet. */
bool
leftover_session_exists(void)
{
	return former.id != 0;
}

/*
 * Fills in the configuration of a handle that is to close it.  Returns whether credentials are
 * to be shown: with wrong ones a session cannot even be closed, so every second attempt goes
 * without any.
 */
Credentials
leftover_session_configure(ZkClientConfig *config)
{
	config->session_id = former.id;
	memcpy(config->session_password, former.password, sizeof(config->session_password));
	return closes % 2 == 0 ? CREDENTIALS_SHOWN : CREDENTIALS_WITHHELD;
}

/*
 * Closes the session, which is connected, and gives up after MAX_CLOSES attempts.  Returns
 * true if the request was answered; if not, there is no hurry to see what came of it.
 */
bool
leftover_session_close(void)
{
	bool answered = zk_client_close();

	if (++closes >= MAX_CLOSES)
	{
		ereport(LOG, (errmsg("could not end ZooKeeper session 0x%llx, which had been left behind",
							 (unsigned long long) former.id),
					  errdetail("ZooKeeper frees its locks when it times out.")));
		leftover_session_forget();
	}
	return answered;
}

/* Forgets the session: ZooKeeper says that it is over. */
void
leftover_session_is_over(void)
{
	unsigned long long id = (unsigned long long) former.id;

	if (closes > 0)
		ereport(LOG, (errmsg("ended ZooKeeper session 0x%llx, which had been left behind", id)));
	else
		ereport(DEBUG1,
				(errmsg("ZooKeeper session 0x%llx, which had been left behind, is over", id)));
	session_info_ended(former.id);
	leftover_session_forget();
}
