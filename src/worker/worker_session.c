/*
 * worker_session.c
 *		The ZooKeeper session: opened, resumed, replaced and ended, and the settings that
 *		it runs with.
 *
 * While the client library has a handle, it connects, and reconnects, by itself.  A new
 * session follows an expired one at once.  If a session cannot begin (no name resolves, bad
 * credentials, a server that hangs up), the worker tries again after ever longer pauses:
 *
 *			   open_at				addresses, or open_by
 *		PAUSE ----------> LOOK-UP ------------------------> HANDLE
 *		  ^					 | no address known				  | expired, refused, in doubt;
 *		  '------------------'--------------------------------' or not opened at all
 *
 * What becomes of a handle, on_session_event() has in one place.
 *
 * The session outlives the worker: its id and password are in shared memory, the next worker
 * resumes it, and locks, queue places and waiting backends go on.
 *
 * After a crash of the server, or an immediate shutdown, shared memory is empty, but the
 * session lives on, and with it the locks, until it times out: the leftover session.  A file
 * has id and password of it, as long as there is one.  The worker ends it before it begins a
 * session of its own:
 *
 *		connected			close it, and connect again to see, MAX_CLOSES times
 *		expired				begin a session of our own
 *		anything else		go on trying, as with our own
 *
 * The leftover session never gets into shared memory.  No process of the server that left it
 * can be there any more and rely on it: the postmaster does not initialise shared memory
 * before all are gone.
 *
 * A changed setting waits until no lock is held, whatever it is, and until the outcome of
 * what sessions' calls have written is known: a typo costs no lock.  zk_session.last_error
 * and the log say that it waits.  Then the worker restarts.  The next one goes on with what
 * is set, and with the session if ZooKeeper continues it; with another chroot, below which
 * there are other nodes, it begins another session.  An administrator who does not want to
 * wait terminates the worker, which has the same effect at once.  The settings in use may so
 * differ from those that are set.  They are in shared memory, for the next worker, which may
 * start at any time.
 *
 * A session that was once granted a shorter timeout than now gives way to another one: under
 * the same conditions if no lease is possible, else when nobody holds, waits or stands for
 * election in it.
 *
 * A lease proves that the session lives, and with it the locks held in it (lease.c).
 * engine/engine.c is called for each change and does what it means for them.
 *
 * Runs in: the worker.  All of this is private to it; shared/session_info.c has the part
 * that others may know.  Only the worker reads and writes SharedSession.settings, which needs
 * no lock; no other process touches the files.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "common/string.h"
#include "compat.h"
#include "engine/engine.h"
#include "fault.h"
#include "port/pg_bswap.h"
#include "shared/common.h"
#include "shared/deadlock_search.h"
#include "shared/entry.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/stats.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/timestamp.h"
#include "worker/worker_internal.h"
#include "zk/zk_client.h"

#define MIN_PAUSE_MS 500
#define MAX_PAUSE_MS 30000
#define CHECK_MS 10000		  /* between looks at files, in an outage */
#define LOOK_UP_MS 1000		  /* ... and at the servers' addresses */
#define TRY_MS 3000			  /* at most, for a handle that does not know all of them */
#define LOOK_UP_CALM_MS 60000 /* ... while connected */

#define LOOK_FOR_LOCKS_MS 200 /* how often to look whether a lock keeps settings waiting */

#define MAX_CLOSES 4		  /* of the leftover session */
#define OPENING_MAX_CRASHES 2 /* in a row */

/* What it takes to resume a session, and to end it */
typedef struct SessionKey
{
	int64  id;												/* 0 if there is no session */
	uint64 password[ZKLOCK_PASSWORD_SIZE / sizeof(uint64)]; /* its bytes in their order */
} SessionKey;

/* The way to a session */
static int64	 open_at;	 /* without a handle: when to look for the servers, ms; NEVER: not
								 * before a reload */
static int64	 open_by;	 /* ... when to open one with known addresses, ms */
static int64	 opened_at;	 /* when a handle was opened last, us */
static uintptr_t lookup;	 /* the look-up of the servers' addresses under way; 0: none */
static int64	 look_up_at; /* with a handle: when to begin another, ms */
static bool		 new_addresses; /* of which the handle does not know */
static int64	 give_up_at; /* not connected any more: the handle, if the lease is over, ms */
static int64	 check_at;	 /* not connected: ms */
static bool		 doubt_logged; /* since the session was connected last */

/* The leftover session */
static SessionKey leftover; /* id 0: there is none, or none any more */
static int		  closes;	/* how often it has been closed; it may still live */

/* The settings of the session */
static SessionSettings *used;			/* in shared memory */
static bool				waiting;		/* changed ones are taken up when no lock is held */
static int64			check_locks_at; /* when to look whether one is held, ms */
static uint64			shown;			/* a hash of the credentials that the handle has */

/* Ends the worker, so that the postmaster starts a new one a second later. */
pg_noreturn static void
restart_worker(const char *reason)
{
	ereport(LOG, (errmsg("zklock worker restarts because of %s", reason)));
	proc_exit(1);
}

/* ------------------------------------------------------------------------
 * The file from which the next server learns of the session
 *
 * A copy of it must never be used: a server that was restored from a base backup, or
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
 * ------------------------------------------------------------------------
 */

#define SESSION_FILE PG_STAT_TMP_DIR "/zklock.session"
#define SESSION_FILE_NEW SESSION_FILE ".new"
#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_LEN 36
#define CONTENT_SIZE 512

#define CONTENT_FORMAT \
	"zklock session 2\nboot %s\ndirectory %llu %llu\nfile %llu %llu\nsession 0x%llx\npassword %016llx%016llx\n"
#define CONTENT_SCAN \
	"zklock session 2 boot %36s directory %llu %llu file %llu %llu session 0x%llx password %16llx%16llx"

/* Where a file is valid */
typedef struct Origin
{
	char		boot_id[BOOT_ID_LEN + 1]; /* of this start of the kernel */
	struct stat directory;				  /* the data directory */
	struct stat file;					  /* itself */
} Origin;

/* Fills in where an open file is valid.  Returns NULL, or why that is not known. */
static const char *
find_origin(int fd, Origin *origin)
{
	char  line[BOOT_ID_LEN + 2] = "";
	FILE *file;

	if (fstat(fd, &origin->file) != 0 || stat(DataDir, &origin->directory) != 0)
		return strerror(errno);
	file = AllocateFile(BOOT_ID_FILE, "r");
	if (file && fgets(line, sizeof(line), file) == NULL)
		line[0] = '\0';
	if (file)
		FreeFile(file);
	if (pg_strip_crlf(line) != BOOT_ID_LEN)
		return "the kernel's boot id cannot be read";
	strlcpy(origin->boot_id, line, sizeof(origin->boot_id));
	return NULL;
}

/* Composes what a file contains, its own identity included. */
static void
format_session_file(char *content, const Origin *origin, const SessionKey *key)
{
	snprintf(content, CONTENT_SIZE, CONTENT_FORMAT, origin->boot_id,
			 (unsigned long long) origin->directory.st_dev,
			 (unsigned long long) origin->directory.st_ino,
			 (unsigned long long) origin->file.st_dev, (unsigned long long) origin->file.st_ino,
			 (unsigned long long) key->id, (unsigned long long) pg_ntoh64(key->password[0]),
			 (unsigned long long) pg_ntoh64(key->password[1]));
}

/* Writes the session to the file. */
static void
write_session_file(int64 id, const char *password)
{
	SessionKey	key = {.id = id};
	Origin		origin;
	char		content[CONTENT_SIZE];
	const char *fault;
	int			fd;

	memcpy(key.password, password, sizeof(key.password));
	(void) unlink(SESSION_FILE_NEW); /* a worker may have died here */
	fd = OpenTransientFilePerm(SESSION_FILE_NEW, O_CREAT | O_EXCL | O_WRONLY, S_IRUSR | S_IWUSR);
	if (fd < 0)
		fault = strerror(errno);
	else
	{
		fault = find_origin(fd, &origin);
		if (fault == NULL)
		{
			ssize_t len;

			format_session_file(content, &origin, &key);
			len = strlen(content);
			errno = ENOSPC; /* what a short write means */
			if (write(fd, content, len) != len)
				fault = strerror(errno);
		}
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

/* Removes the file, since the session has been closed, or is over. */
static void
remove_session_file(void)
{
	if (unlink(SESSION_FILE) != 0 && errno != ENOENT)
		ereport(LOG, (errcode_for_file_access(),
					  errmsg("could not remove file \"%s\": %m", SESSION_FILE)));
}

/*
 * Finds, as a worker starts without a session, the one that this server, and no other, has
 * left behind.  If there is none, or none that is certain, there is no such file any more
 * either.
 */
static void
find_leftover_session(void)
{
	const char		  *fault;
	Origin			   origin;
	const struct stat *file = &origin.file;
	char			   content[CONTENT_SIZE] = "";
	char			   expected[CONTENT_SIZE];
	char			   boot_id[BOOT_ID_LEN + 1];
	unsigned long long password[2];
	unsigned long long device[2]; /* of the directory, and of the file */
	unsigned long long inode[2];
	unsigned long long id;
	ssize_t			   len;
	int				   fd;

	/* This neither follows a link nor waits for the other end of a pipe. */
	fd = OpenTransientFile(SESSION_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return;
	if (fd < 0)
		fault = errno == ELOOP ? "it is a symbolic link" : strerror(errno);
	else if ((fault = find_origin(fd, &origin)) == NULL)
	{
		if (!S_ISREG(file->st_mode))
			fault = "it is not a regular file";
		else if (file->st_uid != geteuid() || (file->st_mode & (S_IRWXG | S_IRWXO)) != 0)
			fault = "others than its owner may access it";
		else if ((len = read(fd, content, sizeof(content) - 1)) < 0)
			fault = strerror(errno);
		else if (sscanf(content, CONTENT_SCAN, boot_id, &device[0], &inode[0], &device[1],
						&inode[1], &id, &password[0], &password[1]) != 8)
			fault = "its contents are not valid";
		else if (strcmp(boot_id, origin.boot_id) != 0)
			fault = "it was written on another machine, or before this one was restarted";
		else if (device[1] != file->st_dev || inode[1] != file->st_ino || file->st_nlink != 1)
			fault = "it is a copy";
		else if (device[0] != origin.directory.st_dev || inode[0] != origin.directory.st_ino)
			fault = "it belongs to another data directory";
		else
		{
			/* Only what format_session_file() makes of a session counts, byte by byte. */
			leftover = (SessionKey){(int64) id, {pg_hton64(password[0]), pg_hton64(password[1])}};
			format_session_file(expected, &origin, &leftover);
			if (id == 0 || (ssize_t) strlen(expected) != len || memcmp(content, expected, len) != 0)
			{
				explicit_bzero(&leftover, sizeof(leftover));
				fault = "its contents are not valid";
			}
		}
	}
	if (fd >= 0)
		(void) CloseTransientFile(fd);
	if (fault)
	{
		ereport(LOG, (errmsg("ignoring file \"%s\": %s", SESSION_FILE, fault),
					  errdetail("A ZooKeeper session that it tells of ends when it times out.")));
		remove_session_file();
	}
}

/* Forgets the leftover session, which is over, or is left to time out. */
static void
forget_leftover_session(void)
{
	explicit_bzero(&leftover, sizeof(leftover));
	remove_session_file();
}

/* ------------------------------------------------------------------------
 * Crashes
 *
 * After a crash of the worker the next one, of a server that has started again, finds the same
 * settings, files and leftover session, and might crash over them again and again.  So a
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

/* Notes that the session is open, or that the worker exits, of which this is a callback. */
static void
opening_over(int code, Datum arg)
{
	if (is_opening)
		(void) unlink(OPENING_FILE);
	is_opening = false;
}

/* SIGQUIT: takes back that this worker has begun, and exits. */
static void
worker_opening_interrupted(SIGNAL_ARGS)
{
	_exit(is_opening && truncate(OPENING_FILE, crashes_before) != 0 ? 3 : 2);
}

/* ------------------------------------------------------------------------
 * Files that settings name
 *
 * They are read for each connection.  The client library connects by itself as long as it has
 * a handle: so they are read anew when a connection is lost, and as long as there is none.  If
 * they cannot be used then, the worker goes on with those that were read before.
 * ------------------------------------------------------------------------
 */

/*
 * Reads the files for the next connection into the configuration of its handle.  Returns
 * false if they cannot be used, and records why.
 *
 *	show	whether credentials are shown to ZooKeeper, if any are set
 *	hash	set to a hash of those that are
 */
static bool
load_files(ZkClientConfig *config, bool show, uint64 *hash)
{
	char *fault = zk_security_load(config, &used->tls, show ? used->auth_file : "");

	*hash = hash_bytes_extended((const unsigned char *) config->auth_scheme,
								strlen(config->auth_scheme), 0);
	*hash = hash_bytes_extended((const unsigned char *) config->auth_credentials,
								strlen(config->auth_credentials), *hash);
	if (fault == NULL)
		return true;
	session_info_set_error(fault);
	pfree(fault);
	return false;
}

/*
 * Reads the files anew while there is no connection for our session.  A handle cannot forget
 * credentials, so other ones need another worker.
 */
static void
read_files_anew(void)
{
	ZkClientConfig config = {0};
	uint64		   hash;
	bool		   changed;

	if (leftover.id != 0)
		return;
	changed = load_files(&config, true, &hash) && hash != shown;
	explicit_bzero(&config, sizeof(config));
	if (changed)
		restart_worker("changed credentials");
}

/* ------------------------------------------------------------------------
 * Ends of the session
 * ------------------------------------------------------------------------
 */

/* Remembers the id of a session of ours that has ended. */
static void
remember_ended_session(int64 id)
{
	int64 *ended = zklock_session->ended;

	memmove(ended + 1, ended, (ZKLOCK_ENDED_SESSIONS - 1) * sizeof(int64));
	ended[0] = id;
}

/*
 * Ends the session, if there is one and it is not over, and forgets it, and the locks with it.
 * Its id goes last: should the worker fail halfway, the next one must not take the locks to the
 * next session.  If a handle has been given up for that, the worker has to restart.
 */
static void
give_session_up(const char *reason)
{
	SessionInfo now;

	(void) zk_client_close();
	if (zklock_session->info.id == 0)
		return;
	remember_ended_session(zklock_session->info.id);
	remove_session_file();
	session_info_set_error(reason);
	engine_session_ended(reason);
	lease_end();
	now = zklock_session->info;
	now.id = 0;
	explicit_bzero(now.password, sizeof(now.password));
	session_info_publish(&now);
}

/* ------------------------------------------------------------------------
 * Changed settings
 * ------------------------------------------------------------------------
 */

/*
 * Returns the names of settings that differ from those in use, palloc'd; NULL if none does.
 *
 *	take	takes those that are set into use
 */
static char *
compare_settings(bool take)
{
	const struct
	{
		const char *name;
		const char *set; /* a text, and the one in use; or NULL ... */
		char	   *used;
		size_t		size;
		int			set_number; /* ... then these */
		int		   *used_number;
	} settings[] = {
		{"zklock.servers", .set = zklock_servers, .used = used->servers, .size = sizeof(used->servers)},
		{"zklock.session_timeout", .set_number = zklock_session_timeout,
		 .used_number = &used->session_timeout},
		{"zklock.tick_time", .set_number = zklock_tick_time, .used_number = &used->tick_time},
		{"zklock.auth_file", .set = zklock_auth_file, .used = used->auth_file,
		 .size = sizeof(used->auth_file)},
		{"zklock.acl", .set_number = zklock_acl, .used_number = &used->acl},
		{"zklock.tls_ca_file", .set = zklock_tls_ca_file, .used = used->tls.names[TLS_CA],
		 .size = ZKLOCK_FILE_SIZE},
		{"zklock.tls_cert_file", .set = zklock_tls_cert_file,
		 .used = used->tls.names[TLS_CERT], .size = ZKLOCK_FILE_SIZE},
		{"zklock.tls_key_file", .set = zklock_tls_key_file, .used = used->tls.names[TLS_KEY],
		 .size = ZKLOCK_FILE_SIZE},
	};
	StringInfoData list;

	/* The addresses are those of other servers. */
	if (take && strcmp(zklock_servers, used->servers) != 0)
		zklock_session->addresses[0] = '\0';
	initStringInfo(&list);
	for (int i = 0; i < (int) lengthof(settings); i++)
	{
		const char *set = settings[i].set;

		if (set ? strcmp(set, settings[i].used) == 0 : settings[i].set_number == *settings[i].used_number)
			continue;
		appendStringInfo(&list, "%s\"%s\"", list.len > 0 ? ", " : "", settings[i].name);
		if (take && set)
			strlcpy(settings[i].used, set, settings[i].size);
		else if (take)
			*settings[i].used_number = settings[i].set_number;
	}
	if (list.len > 0)
		return list.data;
	pfree(list.data);
	return NULL;
}

/* Returns true if no element is still to be deleted with an entry that was given up. */
static bool
all_is_consumed(void)
{
	for (int i = 0; i < entry_pool->max_entries; i++)
	{
		EntryStatus status = entry_status(i);

		if (status.state == ENTRY_RELEASING && status.consumed)
			return false;
	}
	return true;
}

/*
 * Returns true if another worker can take over, with changed settings, or with another session
 * because this one is spoilt: nothing depends on the session, or the settings in use, which an
 * administrator has had taken up while locks were held, give no way to it.
 *
 *	held	set to the number of locks that sessions of this server hold
 */
static bool
session_can_give_way(int *held)
{
	const SessionInfo *session = &zklock_session->info;

	*held = 0;
	for (int i = 0; i < entry_pool->max_entries; i++)
	{
		/* Leadership can go on elsewhere. */
		if (entry_status(i).state == ENTRY_GRANTED && entry_at(i)->request.pid != ENTRY_SERVER_PID)
			(*held)++;
	}
	if (session->id == 0)
		return true;
	if (!zklock_session->settings_work && session->state != SESSION_CONNECTED)
		return strcmp(connect_string_chroot(zklock_servers),
					  connect_string_chroot(used->servers)) == 0;
	if (!waiting && lease_is_possible() && entries_in_use() > 0)
		return false; /* a longer timeout costs nobody a place or a term */
	return *held == 0 && all_is_consumed() && !worker_calls_unsettled(UNSETTLED_NODES_AND_WRITES);
}

/*
 * At the start and after a reload: takes up the settings for which nothing has to wait, which are
 * those that the search for deadlocks uses, and the elections.  Compares the others with those in
 * use, and reports those that wait.  If a session is not opened any more, after crashes, another
 * worker tries again.
 */
void
worker_session_reload(void)
{
	char *changes = compare_settings(false);
	int	  held;

	deadlock_search->deadlock_timeout = DeadlockTimeout;
	deadlock_search->parent_nodes = zklock_parent_nodes;
	pg_atomic_write_u32(&deadlock_search->reloaded, 1);
	candidacy_reload();

	waiting = changes != NULL;
	check_locks_at = zklock_now_ms();
	if (waiting && !session_can_give_way(&held) && held > 0)
	{
		char message[ZKLOCK_ERROR_SIZE];

		snprintf(message, sizeof(message), "changed settings wait until no lock is held: %s", changes);
		session_info_set_error(message);
		ereport(WARNING,
				(errmsg("changed settings of zklock wait until no lock is held: %s", changes),
				 errdetail_plural("Sessions of this server hold %d lock.",
								  "Sessions of this server hold %d locks.", held, held),
				 errhint("To have them taken up now, terminate the zklock worker; the locks are lost if ZooKeeper does not continue the session.")));
	}
	if (changes)
		pfree(changes);
	if (open_at == NEVER)
		restart_worker("a reload after crashes");
}

/*
 * Leaves changed settings to the next worker, and does not return if there are any.  With
 * another chroot the session ends first: the next worker must not look for its nodes
 * elsewhere.
 */
static void
take_settings_up(void)
{
	char *changes = compare_settings(false);

	if (changes == NULL)
		return;
	if (strcmp(connect_string_chroot(zklock_servers), connect_string_chroot(used->servers)) != 0)
		give_session_up("\"zklock.servers\" names another chroot");
	(void) compare_settings(true);
	zklock_session->settings_work = false;
	zklock_session->failures = 0; /* those were of other settings */
	restart_worker(psprintf("changed settings: %s", changes));
}

/* ------------------------------------------------------------------------
 * How the worker ends when it is asked to
 * ------------------------------------------------------------------------
 */

#define MAX_DRAIN_MS 30000
#define MAX_SETTLE_MS 3000
#define LOOK_AGAIN_MS 20

static int64 drain_until;  /* end of the wait for locks, ms; 0: no shutdown yet */
static int64 settle_until; /* end of the wait for calls, ms; 0: some lock is held */

/*
 * A worker that is terminated alone exits at once: the next one resumes the session, with
 * changed settings that have waited.  Only when the server shuts down does the worker end the
 * session, and only after all locks have been released: while a holder's transaction is still
 * finishing, no other session may get its lock.  If they are not released in time, the session
 * is left to expire: better late than while a lock is held.
 *
 * Calls under way are answered before the session is closed, unless ZooKeeper is silent: the
 * client library takes whatever arrives for the answer to its close and hangs up, and then the
 * server may never read that close.  A PostgreSQL session that has not ended yet may ask for a
 * lock meanwhile; then the worker waits until that lock is released, too.
 *
 *	with_server	the server shuts down
 *
 * Returns when it wants to be called again, ms, if the worker does not end yet.
 */
int64
worker_session_shut_down(bool with_server)
{
	int64 now = zklock_now_ms();
	bool  begins = drain_until == 0;
	bool  released;

	ZKLOCK_SLOW("slow-workers", 400, 150);
	if (begins)
	{
		if (!with_server)
		{
			ereport(LOG, (errmsg("terminating zklock worker due to administrator command")));
			ProcessConfigFile(PGC_SIGHUP); /* perhaps before the signal that asks for it */
			take_settings_up();
			proc_exit(1);
		}
		drain_until = now + MAX_DRAIN_MS;
	}

	/*
	 * Every backend has given its locks back, no transaction relies on a reservation, and no
	 * call is to have a persistent lock.  Reservations then end with the session: no other
	 * transaction may begin to rely on one.
	 */
	released =
		(pg_atomic_fetch_or_u32(&entry_pool->reliances, RELIANCES_CLOSED) & ~RELIANCES_CLOSED) == 0;
	for (int i = 0; i < entry_pool->max_entries && released; i++)
	{
		EntryStatus status = entry_status(i);

		released = status.state == ENTRY_FREE || status.state == ENTRY_RELEASING || status.reserved;
	}
	released = released && !worker_calls_unsettled(UNSETTLED_NODES);
	if (begins && !released)
		ereport(DEBUG1, (errmsg("zklock worker waits until all locks are released")));
	if (!released && now > drain_until)
	{
		ereport(LOG, (errmsg("zklock worker exits with locks still held"),
					  errdetail("ZooKeeper frees them when the session times out.")));
		proc_exit(1);
	}
	if (!released)
		settle_until = 0;
	else if (settle_until == 0)
		settle_until = now + MAX_SETTLE_MS;

	if (released && (zk_connection < ZK_CONNECTED || now >= settle_until ||
					 (all_is_consumed() && zk_client_idle())))
	{
		if (zk_client_close())
			remove_session_file();
		proc_exit(1);
	}
	return now + LOOK_AGAIN_MS;
}

/* ------------------------------------------------------------------------
 * Opening a handle
 * ------------------------------------------------------------------------
 */

/*
 * Notes that there is no handle, and when to try again.  The pause grows with the number of
 * attempts that have failed, in this worker and in those before it, but it is never so long
 * that the session ends because of the pauses.  Until the next handle is opened, others see:
 * DOWN if there is no session, or no way to it; AUTH_FAILED if ZooKeeper refuses the
 * credentials; CONNECTING if the next one follows.
 */
static void
handle_is_gone(SessionState shown_as)
{
	int	  failures = Min(zklock_session->failures, 10);
	int	  timeout = used->session_timeout;
	int64 pause = 0;

	if (zklock_session->info.id != 0)
		timeout = Min(timeout, zklock_session->info.negotiated_timeout);
	if (failures > 0)
		pause = Min(MIN_PAUSE_MS << (failures - 1), Min(MAX_PAUSE_MS, timeout / 3));
	lookup = 0;
	open_at = zklock_now_ms() + pause;
	session_info_set_state(shown_as);
}

/* Notes that an attempt to connect has failed. */
static void
attempt_has_failed(SessionState shown_as)
{
	zklock_session->failures++;
	handle_is_gone(shown_as);
	engine_session_unreachable(shown_as == SESSION_AUTH_FAILED ? ZK_AUTH_FAILED : 0);
}

/*
 * Opens a handle: for the leftover session if there is one; else to resume ours, or to begin a
 * new one.
 */
static void
open_handle(void)
{
	const SessionInfo *own = &zklock_session->info;
	ZkClientConfig	   config = {.session_timeout = used->session_timeout, .acl = used->acl};
	bool			   show = true;
	bool			   is_open;

	ZKLOCK_SLOW("slow-workers", 400, 150);
	opened_at = zklock_now_us();
	if (leftover.id != 0)
	{
		config.session_id = leftover.id;
		memcpy(config.session_password, leftover.password, sizeof(config.session_password));

		/*
		 * With wrong credentials a session cannot even be closed, so every second attempt goes
		 * without any.
		 */
		show = closes % 2 == 0;
	}
	else
	{
		config.session_id = own->id;
		memcpy(config.session_password, own->password, sizeof(config.session_password));
		if (own->id != 0 && used->session_timeout < own->shortest_timeout)
			lease_set_timeout(used->session_timeout, opened_at);
	}
	is_open = load_files(&config, show, &shown);
	if (!is_open && leftover.id != 0)
		is_open = load_files(&config, false, &shown); /* enough to end it */
	if ((ZKLOCK_FAULT("crash-leftover") && leftover.id != 0) ||
		(ZKLOCK_FAULT("crash-credentials") && config.auth_scheme[0] != '\0'))
		abort();
	is_open = is_open && zk_client_open(zklock_session->addresses, &config);
	explicit_bzero(&config, sizeof(config));
	give_up_at = NEVER;
	new_addresses = false;
	look_up_at = zklock_now_ms() + LOOK_UP_MS;
	check_at = zklock_now_ms() + CHECK_MS;
	if (!is_open)
		attempt_has_failed(SESSION_DOWN);
}

/*
 * Restarts the worker if the names have other addresses now, of which its handle does not know,
 * and there is no connection.  The handle has some time before: a name service may have others
 * each time.
 */
static void
take_addresses_up(void)
{
	int64 until = opened_at / 1000 + Min(TRY_MS, used->session_timeout / 3);

	if (new_addresses && zk_connection < ZK_CONNECTED && zklock_now_ms() >= until)
		restart_worker("changed addresses of ZooKeeper servers");
}

/*
 * Takes the addresses that the servers' names have.  Those that were looked up last serve as
 * long as no name can be resolved.
 */
static void
on_looked_up(uintptr_t lookup_, const char *found)
{
	char *addresses = zklock_session->addresses;

	if (lookup_ != lookup)
		return;
	lookup = 0;
	look_up_at = zklock_now_ms() + (zk_connection >= ZK_CONNECTED ? LOOK_UP_CALM_MS : LOOK_UP_MS);
	if (found && zk_connection != ZK_NO_HANDLE && connect_string_has_new(found, addresses))
		new_addresses = true;
	if (found)
		strlcpy(addresses, found, ZKLOCK_ADDRESSES_SIZE);
	if (zk_connection != ZK_NO_HANDLE)
		take_addresses_up();
	else if (addresses[0] != '\0')
		open_handle();
	else
	{
		/* Only the first of several failures in a row is logged. */
		if (zklock_session->failures == 0)
			ereport(LOG, (errmsg("could not resolve any server name in \"zklock.servers\"")));
		session_info_set_error("no server name could be resolved");
		attempt_has_failed(SESSION_DOWN);
	}
}

/* ------------------------------------------------------------------------
 * Events of the handle
 * ------------------------------------------------------------------------
 */

/* Handles an event of the handle, which is our session's, or that of the leftover one. */
static void
on_session_event(ZkSessionEvent event, const ZkSession *session)
{
	SessionInfo now;
	const char *fault;
	char		message[ZKLOCK_ERROR_SIZE];

	switch (event)
	{
		case ZK_SESSION_CONNECTED:
			if (leftover.id != 0)
			{
				/*
				 * The request to close it may be lost with the connection, and the client
				 * library does not report an answer.  So the session is known to be over only
				 * when ZooKeeper says so to the next connection.
				 */
				bool answered = zk_client_close();

				if (++closes >= MAX_CLOSES)
				{
					ereport(LOG, (errmsg("could not end ZooKeeper session 0x%llx, which had been left behind",
										 (unsigned long long) leftover.id),
								  errdetail("ZooKeeper frees its locks when it times out.")));
					forget_leftover_session();
				}
				if (answered || leftover.id == 0)
				{
					zklock_session->failures = 0;
					handle_is_gone(SESSION_CONNECTING);
				}
				else
					attempt_has_failed(SESSION_CONNECTING); /* no hurry to see what came of it */
			}
			else
			{
				bool resumed = zklock_session->info.id != 0;

				now = zklock_session->info;
				now.state = SESSION_CONNECTED;
				now.id = session->id;
				memcpy(now.password, session->password, sizeof(now.password));
				now.negotiated_timeout = session->negotiated_timeout;
				strlcpy(now.server, session->server, sizeof(now.server));
				strlcpy(now.chroot, connect_string_chroot(used->servers), sizeof(now.chroot));
				now.connected_since = GetCurrentTimestamp();
				if (resumed)
				{
					now.reconnects++;
					now.shortest_timeout = Min(now.negotiated_timeout, now.shortest_timeout);
					lease_set_timeout(now.shortest_timeout, 0);
				}
				else
				{
					now.shortest_timeout = now.negotiated_timeout;
					lease_begin(opened_at, now.negotiated_timeout);
				}
				if (now.id != zklock_session->info.id)
					write_session_file(now.id, now.password); /* to be ended after a crash */
				doubt_logged = false;
				session_info_publish(&now);

				ereport(LOG, (errmsg("connected to ZooKeeper server %s, %s session 0x%llx", now.server,
									 resumed ? "continuing" : "new", (unsigned long long) now.id)));
				if (now.negotiated_timeout > now.shortest_timeout)
				{
					snprintf(message, sizeof(message),
							 "the lease goes by a session timeout of %d ms, not %d ms, until another ZooKeeper session begins",
							 now.shortest_timeout, now.negotiated_timeout);
					session_info_set_error(message);
				}
				engine_session_connected(&now);
				worker_calls_connected();
			}
			break;

		case ZK_SESSION_DISCONNECTED:
			ereport(LOG, (errmsg("lost connection to ZooKeeper")));
			if (!lease_is_possible())
				/* The client library's handle will ask for no more than it was granted. */
				restart_worker("a session timeout that is too short");
			take_addresses_up();
			read_files_anew();
			if (lookup == 0)
				look_up_at = zklock_now_ms();
			check_at = zklock_now_ms() + CHECK_MS;
			give_up_at = zklock_now_ms() + used->session_timeout / 3;
			session_info_set_state(SESSION_CONNECTING);
			engine_session_unreachable(0);
			break;

		case ZK_SESSION_EXPIRED:
			if (leftover.id != 0)
			{
				unsigned long long id = (unsigned long long) leftover.id;

				if (closes > 0)
					ereport(LOG, (errmsg("ended ZooKeeper session 0x%llx, which had been left behind",
										 id)));
				else
					ereport(DEBUG1, (errmsg("ZooKeeper session 0x%llx, which had been left behind, is over",
											id)));
				remember_ended_session(leftover.id);
				forget_leftover_session();
				zklock_session->failures = 0;
				handle_is_gone(SESSION_CONNECTING);
			}
			else
			{
				/* see worker_session_attend(): the handle before this one was given up */
				bool found_out = give_up_at == NEVER && lease_over() == 0;

				handle_is_gone(SESSION_DOWN);
				give_session_up(found_out ? "session expired; if ZooKeeper refused it before, its data were wiped or restored"
										  : "session expired");
				now = zklock_session->info;
				now.expirations++;
				session_info_publish(&now);
				engine_session_unreachable(0);
			}
			break;

		case ZK_SESSION_AUTH_FAILED:
			fault = used->auth_file[0] != '\0'
						? "ZooKeeper refused the credentials in \"zklock.auth_file\""
						: "ZooKeeper demands credentials, and \"zklock.auth_file\" is not set";
			ereport(LOG, (errmsg_internal("%s", fault)));
			snprintf(message, sizeof(message), "authentication failed: %s", fault);
			session_info_set_error(message);
			pg_fallthrough;

		case ZK_SESSION_SASL_FAILED: /* last_error has the reason */
			attempt_has_failed(SESSION_AUTH_FAILED);
			break;

		case ZK_SESSION_IN_DOUBT: /* there is no session yet */
			fault = "what answers at \"zklock.servers\" does not prove to be a ZooKeeper server";
			session_info_set_error(fault);
			if (!doubt_logged)
				ereport(LOG, (errmsg_internal("%s", fault), errdetail("It is tried again.")));
			doubt_logged = true;
			attempt_has_failed(SESSION_CONNECTING);
			break;
	}
}

/* ------------------------------------------------------------------------
 * What else the client reports
 * ------------------------------------------------------------------------
 */

/*
 * Restarts the worker: a server's answer makes no sense.  The next worker takes the session
 * over on another connection; whatever was under way is settled like a lost reply.
 */
pg_noreturn static void
on_malformed(const char *fault)
{
	session_info_set_error(psprintf("malformed answer: %s", fault));
	restart_worker(psprintf("a malformed answer of ZooKeeper server %s: %s",
							zklock_session->info.server, fault));
}

/*
 * Restarts the worker: its handle cannot connect any more, so the next worker makes another
 * one.
 */
pg_noreturn static void
on_stuck(const char *why)
{
	zklock_session->failures++;
	session_info_set_error(why);
	restart_worker(psprintf("a connection that does not serve: %s", why));
}

/*
 * Counts an answer in the statistics; one that a recipe expects, such as a missing node, is no
 * error.
 */
static void
count_answer(CallOutcome outcome, int64 us)
{
	pg_atomic_fetch_add_u64(&stats_shared->requests, 1);
	pg_atomic_fetch_add_u64(&stats_shared->request_us, us);
	if (outcome == CALL_UNKNOWN || outcome == CALL_REFUSED)
		pg_atomic_fetch_add_u64(&stats_shared->request_errors, 1);
}

static const ZkClientCallbacks callbacks = {.session = on_session_event,
											.watch = worker_calls_watch_event,
											.looked_up = on_looked_up,
											.malformed = on_malformed,
											.stuck = on_stuck,
											.answered = count_answer,
											.complaint = session_info_set_error};

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

/*
 * Goes on, as a worker starts, with the session of the one before it, and its settings.  If
 * there is none, a session may have been left behind.
 *
 * If the workers before this one have crashed over what they found, it does without: the
 * leftover session, and files that settings name.  A session without these files would not be
 * the one that is wanted.  So then, or if there is nothing to do without, or that has not
 * helped, none is opened before a reload.
 *
 * Returns a descriptor that wakes the main loop; see zk_event_may_sleep().
 */
int
worker_session_start(void)
{
	int			queue_fd = zk_client_start(&callbacks);
	struct stat file = {.st_size = 0};
	int			fd;
	int			ncrashes;
	bool		had_leftover;

	used = &zklock_session->settings;
	if (zklock_session->info.id == 0)
		(void) compare_settings(true);
	worker_session_reload();

	/* Note that this worker begins to open a session.  So far SIGQUIT had nothing to take back. */
	pqsignal(SIGQUIT, worker_opening_interrupted);
	fd = OpenTransientFilePerm(OPENING_FILE, O_CREAT | O_APPEND | O_WRONLY | O_NOFOLLOW | O_NONBLOCK,
							   S_IRUSR | S_IWUSR);
	if (fd < 0 || fstat(fd, &file) != 0 || write(fd, "x", 1) != 1)
		ereport(LOG, (errcode_for_file_access(),
					  errmsg("could not write file \"%s\": %m", OPENING_FILE)));
	if (fd >= 0)
		(void) CloseTransientFile(fd);
	crashes_before = file.st_size;
	is_opening = true;
	on_shmem_exit(opening_over, 0);

	if (zklock_session->info.id != 0)
		lease_begin(0, zklock_session->info.shortest_timeout);
	else
	{
		lease_end();
		find_leftover_session();
	}
	handle_is_gone(SESSION_DOWN);

	ncrashes = (int) Min(crashes_before, INT_MAX);
	if (ncrashes < OPENING_MAX_CRASHES)
		return queue_fd;
	had_leftover = leftover.id != 0;
	ereport(WARNING,
			(errmsg("zklock worker has crashed %d times in a row while it opened a ZooKeeper session",
					ncrashes),
			 errdetail("A session that was left behind is not ended: ZooKeeper frees its locks when it times out. Files that settings name are not used."),
			 errhint("Check \"zklock.auth_file\" and \"zklock.tls_*_file\", then reload the configuration.")));
	forget_leftover_session();
	if (ncrashes > OPENING_MAX_CRASHES || !had_leftover || used->auth_file[0] != '\0' ||
		used->tls.names[TLS_CA][0] != '\0')
	{
		session_info_set_error(
			"the worker has crashed again and again while it opened a session; it waits for a reload");
		open_at = NEVER;
	}
	return queue_fd;
}

/*
 * Opens a handle when that is due, and looks for a way to connect for one without a connection.
 *
 * Leaves to the next worker, if that is due and nothing depends on the session: with changed
 * settings, or with another session, as this one was once granted a shorter timeout than now.
 * The lease keeps to the shortest, so only another session helps.
 *
 * Comes behind the client's events in a round, which change what is due, and behind what acts on
 * the end of the lease, such as that of a term, which a restart would leave to the next worker.
 * Returns when it wants to be called again, ms.
 */
int64
worker_session_attend(void)
{
	const SessionInfo *session = &zklock_session->info;
	int64			   now = zklock_now_ms();
	int64			   next = NEVER;
	int				   held;

	if (zk_connection == ZK_ANSWERED)
	{
		zklock_session->failures = 0;
		zklock_session->settings_work = true;
		if (is_opening)
			opening_over(0, 0);
	}
	if (waiting || (session->state == SESSION_CONNECTED &&
					session->negotiated_timeout > session->shortest_timeout))
	{
		if (now >= check_locks_at)
		{
			check_locks_at = now + LOOK_FOR_LOCKS_MS;
			if (session_can_give_way(&held))
			{
				take_settings_up();
				give_session_up("ZooKeeper grants a longer timeout than it once did");
				restart_worker("the end of its session");
			}
		}
		next = check_locks_at;
	}

	if (zk_connection == ZK_NO_HANDLE && lookup == 0 && now >= open_at)
	{
		lookup = zk_client_look_up(used->servers);
		open_by = zklock_session->addresses[0] != '\0' ? now + LOOK_UP_MS : NEVER;
		session_info_set_state(SESSION_CONNECTING);
	}
	else if (zk_connection == ZK_NO_HANDLE && lookup != 0 && now >= open_by)
		open_handle(); /* names cannot be looked up, but the session waits */
	else if (zk_connection != ZK_NO_HANDLE && now >= look_up_at)
	{
		lookup = zk_client_look_up(used->servers);
		look_up_at = NEVER;
	}

	/*
	 * ZooKeeper refuses a client that has seen newer data than it has, as when its data were
	 * wiped or restored.  The next worker's handle has seen none, and hears what has become of
	 * the session; no lock depends on that any more, as its lease is over.
	 */
	if (zk_connection == ZK_CONNECTING && now >= give_up_at && lease_over() == 0)
		restart_worker("a ZooKeeper session that is not continued");

	/* Look for a way that the handle does not find.  A new one knows only what we have asked for. */
	if (zk_connection == ZK_CONNECTING && now >= check_at)
	{
		read_files_anew();
		check_at = now + CHECK_MS;
		if (!zk_client_look_again())
			restart_worker("a ZooKeeper server that does not answer");
	}

	/* What the steps above have left to be done */
	if (zk_connection == ZK_NO_HANDLE)
		return Min(next, lookup == 0 ? open_at : open_by);
	if (zk_connection == ZK_CONNECTING)
		next = Min(next, check_at);
	return Min(next, look_up_at);
}
