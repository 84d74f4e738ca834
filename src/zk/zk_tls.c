/*
 * zk_tls.c
 *		TLS: what is needed for it, and whether that can be used.
 *
 * Debian's client library cannot do TLS; others can, which have one function
 * more.  It is looked for when the worker starts, so that one binary serves both;
 * and so are OpenSSL's functions, which such a library brings along.
 *
 * The library reads its files anew for each connection, and when one cannot be
 * used it tries again without a pause, and says little.  So it is not given the
 * administrator's files.  They are read, and checked with OpenSSL's own functions,
 * and copied into files in memory, under whose names the library finds them: what
 * it uses has been checked.  Newer ones are put in their place all at once, and
 * count from the next connection.  (A comma in a name, which separates names for
 * the library, does no harm either.)
 *
 * The library trusts the authorities of the system as well as those in the file
 * that it is given, and does not compare host names: anybody with a certificate
 * for anything could be our server.  OpenSSL finds the system's by variables of
 * the environment, which the worker sets to nothing.
 *
 * Runs in: the worker's main thread.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "zk/zk_tls.h"

#define MAX_FILE_SIZE (1024 * 1024)
#define FILE_NAME_SIZE 32

/* OpenSSL's number for the format, which is part of its interface */
#define TLS_FILETYPE_PEM 1

/* The files, in the order in which the library wants them */
typedef enum TlsFile
{
	TLS_CA,
	TLS_CERT,
	TLS_KEY
} TlsFile;

#define TLS_FILES (TLS_KEY + 1)

/*
 * Functions of the client library and of OpenSSL.  OpenSSL's header files are not
 * needed, nor is the library itself, unless the client library is one with TLS.
 * Its objects are pointers to void here.
 */
typedef struct TlsLibrary
{
	/* ZooKeeper's client library */
	zhandle_t *(*init)(const char *hosts, const char *files, watcher_fn watcher, int timeout,
					   const clientid_t *session, void *context, int flags);
	const int *shaking_hands; /* a handle's state, which its header file does not have */

	/* A context, and what it is given */
	const void *(*method)(void);
	void *(*new_context)(const void *method);
	void (*free_context)(void *context);
	int (*use_ca_file)(void *context, const char *file, const char *directory);
	int (*use_cert_file)(void *context, const char *file);
	int (*use_key_file)(void *context, const char *file, int type);
	int (*check_key)(const void *context);
	void (*set_password_callback)(void *context, int (*callback)(char *, int, int, void *));

	/* Certificates */
	void *(*own_certificate)(const void *context);
	const void *(*not_before)(const void *certificate);
	const void *(*not_after)(const void *certificate);
	int (*compare_with_now)(const void *time);

	void (*clear_errors)(void);
} TlsLibrary;

static TlsLibrary library;
static bool		  is_complete;
static int in_memory[TLS_FILES]; /* descriptors, kept for good; 0 if there is none yet */

static const struct
{
	const char *name;
	size_t		offset;
} functions[] = {{"zookeeper_init_ssl", offsetof(TlsLibrary, init)},
				 {"ZOO_SSL_CONNECTING_STATE", offsetof(TlsLibrary, shaking_hands)},
				 {"TLS_client_method", offsetof(TlsLibrary, method)},
				 {"SSL_CTX_new", offsetof(TlsLibrary, new_context)},
				 {"SSL_CTX_free", offsetof(TlsLibrary, free_context)},
				 {"SSL_CTX_load_verify_locations", offsetof(TlsLibrary, use_ca_file)},
				 {"SSL_CTX_use_certificate_chain_file", offsetof(TlsLibrary, use_cert_file)},
				 {"SSL_CTX_use_PrivateKey_file", offsetof(TlsLibrary, use_key_file)},
				 {"SSL_CTX_check_private_key", offsetof(TlsLibrary, check_key)},
				 {"SSL_CTX_set_default_passwd_cb", offsetof(TlsLibrary, set_password_callback)},
				 {"SSL_CTX_get0_certificate", offsetof(TlsLibrary, own_certificate)},
				 {"X509_get0_notBefore", offsetof(TlsLibrary, not_before)},
				 {"X509_get0_notAfter", offsetof(TlsLibrary, not_after)},
				 {"X509_cmp_current_time", offsetof(TlsLibrary, compare_with_now)},
				 {"ERR_clear_error", offsetof(TlsLibrary, clear_errors)}};

/*
 * Looks for what TLS needs; once per process, before there are threads.
 */
void
zk_tls_start(void)
{
	is_complete = true;
	for (int i = 0; i < (int) lengthof(functions); i++)
	{
		void *function = dlsym(RTLD_DEFAULT, functions[i].name);

		memcpy((char *) &library + functions[i].offset, &function, sizeof(function));
		is_complete = is_complete && function != NULL;
	}
	(void) setenv("SSL_CERT_FILE", "/dev/null", 1);
	(void) setenv("SSL_CERT_DIR", "/dev/null", 1);
}

/* The name under which a file in memory is opened. */
static void
name_of(int fd, char *name, size_t size)
{
	snprintf(name, size, "/proc/self/fd/%d", fd);
}

/* As zookeeper_init2(), with TLS and the files that have been loaded. */
zhandle_t *
zk_tls_init(const char *servers, watcher_fn watcher, int timeout, const clientid_t *session,
			void *context, int flags)
{
	char name[TLS_FILES][FILE_NAME_SIZE];
	char names[TLS_FILES * FILE_NAME_SIZE];

	for (int which = 0; which < TLS_FILES; which++)
		name_of(in_memory[which], name[which], FILE_NAME_SIZE);
	snprintf(names, sizeof(names), "%s,%s,%s", name[TLS_CA], name[TLS_CERT], name[TLS_KEY]);
	return library.init(servers, names, watcher, timeout, session, context, flags);
}

/* Is a handle in the middle of TLS's handshake, or about to begin one? */
bool
zk_tls_is_shaking_hands(zhandle_t *handle)
{
	return is_complete && zoo_state(handle) == *library.shaking_hands;
}

/* ------------------------------------------------------------------------
 * Reading files
 * ------------------------------------------------------------------------
 */

static bool
copy(int from, int to)
{
	char	buffer[8192];
	ssize_t n;
	bool	copied = true;

	while (copied && (n = read(from, buffer, sizeof(buffer))) != 0)
		copied = n > 0 && write(to, buffer, n) == n;
	explicit_bzero(buffer, sizeof(buffer));
	return copied;
}

/* Copies a file into memory, to *fd.  Returns NULL, or why it cannot be used. */
static const char *
read_file(const char *name, TlsFile which, int *fd)
{
	const char *fault = NULL;
	struct stat st;
	int			file;

	/* It might be one that blocks when it is opened. */
	file = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file < 0)
		return strerror(errno);
	*fd = memfd_create("zklock", MFD_CLOEXEC);
	if (*fd < 0 || fstat(file, &st) != 0)
		fault = strerror(errno);
	else if (!S_ISREG(st.st_mode))
		fault = "it is not a regular file";
	else if (which == TLS_KEY && (st.st_mode & (S_IRWXG | S_IRWXO)))
		fault = "others than its owner may access it";
	else if (st.st_size > MAX_FILE_SIZE)
		fault = "it is too large";
	else if (!copy(file, *fd))
		fault = strerror(errno);
	close(file);
	return fault;
}

/* There is nobody to ask for the password of a key. */
static int
no_password(char *buffer, int size, int is_writing, void *arg)
{
	return 0;
}

/* What is wrong with the contents of a file, or NULL; "context" gets them. */
static const char *
check_file(void *context, TlsFile which, int fd)
{
	char		name[FILE_NAME_SIZE];
	const void *certificate;

	name_of(fd, name, sizeof(name));
	if (which == TLS_CA)
		return library.use_ca_file(context, name, NULL) == 1 ? NULL : "it has no certificate in PEM format";
	if (which == TLS_KEY)
	{
		library.set_password_callback(context, no_password);
		if (library.use_key_file(context, name, TLS_FILETYPE_PEM) == 1 &&
			library.check_key(context) == 1)
			return NULL;
		return "it is not the key of the certificate, in PEM format and without a password";
	}
	if (library.use_cert_file(context, name) != 1)
		return "it has no certificate in PEM format";
	certificate = library.own_certificate(context);
	if (library.compare_with_now(library.not_after(certificate)) < 0)
		return "the certificate has expired";
	if (library.compare_with_now(library.not_before(certificate)) > 0)
		return "the certificate is not valid yet";
	return NULL;
}

/* Puts a new file in memory in the place of the former one. */
static void
replace(TlsFile which, int fd)
{
	if (in_memory[which] == 0)
		in_memory[which] = fd;
	else
	{
		(void) dup3(fd, in_memory[which], O_CLOEXEC);
		close(fd);
	}
}

/*
 * Reads and checks the files that are named.  If all can be used, they are from the
 * next connection on.
 *
 * Returns NULL, or why they cannot be: part of a sentence, palloc'd, without the
 * name of a file, which *culprit gets if it is one that is at fault.
 */
char *
zk_tls_load(const ZkTlsNames *names, const char **culprit)
{
	static const char *const settings[TLS_FILES] = {"zklock.tls_ca_file", "zklock.tls_cert_file",
													"zklock.tls_key_file"};

	const char *file_names[TLS_FILES] = {names->ca_file, names->cert_file, names->key_file};
	int			fds[TLS_FILES] = {-1, -1, -1};
	const char *fault = NULL;
	int			which;
	void	   *context;

	*culprit = NULL;
	if (!is_complete)
		return pstrdup("\"zklock.tls_ca_file\" is set, but ZooKeeper's client library, as it is installed here, cannot do TLS");
	for (which = 0; which < TLS_FILES; which++)
	{
		if (file_names[which][0] == '\0')
			return psprintf("\"%s\" is set, but \"%s\" is not", settings[TLS_CA], settings[which]);
	}
	context = library.new_context(library.method());
	if (context == NULL)
		return pstrdup("OpenSSL makes no context for TLS");
	for (which = 0; which < TLS_FILES && fault == NULL; which++)
	{
		fault = read_file(file_names[which], which, &fds[which]);
		if (fault == NULL)
			fault = check_file(context, which, fds[which]);
	}
	library.free_context(context);
	library.clear_errors();
	if (fault)
	{
		for (int i = 0; i < TLS_FILES; i++)
		{
			if (fds[i] >= 0)
				close(fds[i]);
		}
		*culprit = file_names[which - 1];
		return psprintf("could not use \"%s\": %s", settings[which - 1], fault);
	}
	for (which = 0; which < TLS_FILES; which++)
		replace(which, fds[which]);
	return NULL;
}

/* A number that is another one when any of the files has changed. */
uint64
zk_tls_fingerprint(const ZkTlsNames *names)
{
	const char *file_names[TLS_FILES] = {names->ca_file, names->cert_file, names->key_file};
	uint64		seen[TLS_FILES][4] = {0};

	for (int i = 0; i < TLS_FILES; i++)
	{
		struct stat st;

		if (stat(file_names[i], &st) != 0)
			continue;
		seen[i][0] = st.st_ino;
		seen[i][1] = st.st_size;
		seen[i][2] = st.st_mtim.tv_sec;
		seen[i][3] = st.st_mtim.tv_nsec;
	}
	return hash_bytes_extended((const unsigned char *) seen, sizeof(seen), 0);
}
