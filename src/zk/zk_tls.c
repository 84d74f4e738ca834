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
 * when a handle is to be made, and copied into files in memory, under whose names
 * the library finds them: what it uses has been checked, and changes when changed
 * settings are taken up, not in between.  (A comma in a name, which separates
 * names for the library, does no harm either.)
 *
 * There are two sets of such files: of the session that is used, and of a trial
 * (zk_trial.c).  A set keeps its descriptors for good; a newer one is put in their
 * place.
 *
 * The library trusts the authorities of the system as well as those in the file
 * that it is given, and does not compare host names: anybody with a certificate
 * for anything could be our server.  OpenSSL finds the system's by variables of
 * the environment, which the worker sets to nothing.
 *
 * Runs in: the worker's main thread, but for zk_tls_library(), zk_tls_paths() and
 * zk_tls_new_context(), which any thread may call.
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
#include "zk/zk_tls_library.h"

#define MAX_FILE_SIZE (1024 * 1024)
#define NFILES 3

typedef struct Set
{
	int fd[NFILES]; /* CA, certificate, key, as the library wants them; 0 if there is none yet */
	char paths[NFILES * 32];
} Set;

static Set		  sets[2]; /* of ZK_TLS_USED and ZK_TLS_TRIED */
static TlsLibrary library;
static bool		  is_complete;

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
				 {"SSL_CTX_set_verify", offsetof(TlsLibrary, set_verify)},
				 {"SSL_CTX_set_default_passwd_cb", offsetof(TlsLibrary, set_password_callback)},
				 {"SSL_CTX_get0_certificate", offsetof(TlsLibrary, own_certificate)},
				 {"X509_get0_notBefore", offsetof(TlsLibrary, not_before)},
				 {"X509_get0_notAfter", offsetof(TlsLibrary, not_after)},
				 {"X509_cmp_current_time", offsetof(TlsLibrary, compare_with_now)},
				 {"SSL_new", offsetof(TlsLibrary, new_connection)},
				 {"SSL_free", offsetof(TlsLibrary, free_connection)},
				 {"SSL_set_fd", offsetof(TlsLibrary, set_socket)},
				 {"SSL_connect", offsetof(TlsLibrary, connect)},
				 {"SSL_read", offsetof(TlsLibrary, read)},
				 {"SSL_write", offsetof(TlsLibrary, write)},
				 {"SSL_get_error", offsetof(TlsLibrary, get_error)},
				 {"SSL_get_verify_result", offsetof(TlsLibrary, verify_result)},
				 {"X509_verify_cert_error_string", offsetof(TlsLibrary, verify_text)},
				 {"ERR_clear_error", offsetof(TlsLibrary, clear_errors)},
				 {"ERR_get_error", offsetof(TlsLibrary, next_error)},
				 {"ERR_reason_error_string", offsetof(TlsLibrary, error_reason)}};

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

/* Any thread: the functions, or NULL if the client library cannot do TLS. */
const TlsLibrary *
zk_tls_library(void)
{
	return is_complete ? &library : NULL;
}

static Set *
set_of(ZkTls set)
{
	Assert(set != ZK_TLS_OFF);
	return &sets[set == ZK_TLS_TRIED];
}

/* Any thread: the names of a set that has been loaded, as the library wants them. */
const char *
zk_tls_paths(ZkTls set)
{
	return set_of(set)->paths;
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

/*
 * Copies a file into memory, under the descriptor *fd, which is made if it is 0.
 * Returns NULL, or why it cannot be used.
 */
static const char *
read_file(const char *name, bool is_secret, int *fd)
{
	const char *fault = NULL;
	struct stat st;
	int			file;
	int			in_memory;

	/* It might be one that blocks when it is opened. */
	file = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file < 0)
		return strerror(errno);
	in_memory = memfd_create("zklock", MFD_CLOEXEC);
	if (in_memory < 0 || fstat(file, &st) != 0)
		fault = strerror(errno);
	else if (!S_ISREG(st.st_mode))
		fault = "it is not a regular file";
	else if (is_secret && (st.st_mode & (S_IRWXG | S_IRWXO)))
		fault = "others than its owner may access it";
	else if (st.st_size > MAX_FILE_SIZE)
		fault = "it is too large";
	else if (!copy(file, in_memory))
		fault = strerror(errno);
	else if (*fd == 0)
	{
		*fd = in_memory;
		in_memory = -1;
	}
	else if (dup3(in_memory, *fd, O_CLOEXEC) < 0)
		fault = strerror(errno);
	close(file);
	if (in_memory >= 0)
		close(in_memory);
	return fault;
}

/* ------------------------------------------------------------------------
 * Checking them
 * ------------------------------------------------------------------------
 */

/* There is nobody to ask for the password of a key. */
static int
no_password(char *buffer, int size, int is_writing, void *arg)
{
	return 0;
}

/* The name under which a file in memory is opened. */
static void
name_of(int fd, char *name, size_t size)
{
	snprintf(name, size, "/proc/self/fd/%d", fd);
}

/*
 * Any thread: a context of OpenSSL's with the files of a set, as the client
 * library makes it; or NULL if they do not go together.
 */
void *
zk_tls_new_context(ZkTls set)
{
	const Set *files = set_of(set);
	char	   name[NFILES][32];
	void	  *context = library.new_context(library.method());

	if (context == NULL)
		return NULL;
	for (int i = 0; i < NFILES; i++)
		name_of(files->fd[i], name[i], sizeof(name[i]));
	library.set_password_callback(context, no_password);
	library.set_verify(context, TLS_VERIFY_PEER, NULL);
	if (library.use_ca_file(context, name[0], NULL) == 1 &&
		library.use_cert_file(context, name[1]) == 1 &&
		library.use_key_file(context, name[2], TLS_FILETYPE_PEM) == 1 &&
		library.check_key(context) == 1)
		return context;
	library.free_context(context);
	return NULL;
}

/* What is wrong with the contents of a file, or NULL; "context" gets them. */
static const char *
check_file(void *context, int which, int fd)
{
	char		name[32];
	const void *certificate;

	name_of(fd, name, sizeof(name));
	if (which == 0)
		return library.use_ca_file(context, name, NULL) == 1 ? NULL : "it has no certificate in PEM format";
	if (which == 2)
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

/*
 * Reads and checks the files that are named, and keeps them as this set.
 *
 * Returns NULL, or why TLS cannot be used: part of a sentence, palloc'd, without
 * the name of a file, which *culprit gets if it is one that is at fault.
 */
char *
zk_tls_load(ZkTls set, const ZkTlsNames *names, const char **culprit)
{
	static const char *const settings[NFILES] = {"zklock.tls_ca_file", "zklock.tls_cert_file",
												 "zklock.tls_key_file"};

	const char *file_names[NFILES] = {names->ca_file, names->cert_file, names->key_file};
	Set		   *files = set_of(set);
	const char *fault = NULL;
	int			which = 0;
	void	   *context;

	*culprit = NULL;
	if (!is_complete)
		return pstrdup("\"zklock.tls\" is on, but ZooKeeper's client library, as it is installed here, cannot do TLS");
	for (int i = 0; i < NFILES; i++)
	{
		if (file_names[i][0] == '\0')
			return psprintf("\"zklock.tls\" is on, but \"%s\" is not set", settings[i]);
	}
	context = library.new_context(library.method());
	if (context == NULL)
		return pstrdup("OpenSSL makes no context for TLS");
	for (which = 0; which < NFILES && fault == NULL; which++)
	{
		fault = read_file(file_names[which], which == 2, &files->fd[which]);
		if (fault == NULL)
			fault = check_file(context, which, files->fd[which]);
	}
	library.free_context(context);
	library.clear_errors();
	if (fault)
	{
		*culprit = file_names[which - 1];
		return psprintf("could not use \"%s\": %s", settings[which - 1], fault);
	}
	snprintf(files->paths, sizeof(files->paths), "/proc/self/fd/%d,/proc/self/fd/%d,/proc/self/fd/%d",
			 files->fd[0], files->fd[1], files->fd[2]);
	return NULL;
}

/* A number that is another one when any of the files has changed. */
uint64
zk_tls_fingerprint(const ZkTlsNames *names)
{
	const char *file_names[NFILES] = {names->ca_file, names->cert_file, names->key_file};
	uint64		seen[NFILES][4] = {0};

	for (int i = 0; i < NFILES; i++)
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
