/*
 * zk_tls.c
 *		Loads and checks the files for TLS, and opens handles that use it.
 *
 * Some builds of the client library cannot do TLS, as Debian's.  Others have one more
 * function and link OpenSSL.  All symbols that we need of either are weak, and null
 * without TLS, so that one binary works with both.
 *
 * The library reads its files anew for each connection (trap 19).  If it cannot use one,
 * it tries again without a pause, and hardly reports why.  So it does not get the
 * administrator's files.  We read them, check them with OpenSSL's own functions, and copy
 * them into files in memory, whose names the library gets.  Newer files replace all of
 * these together, and are used from the next connection on.  The names in memory also
 * contain no commas, which would separate names for the library.
 *
 * The library requires a certificate of its own, even if no server asks for one
 * (ZOOKEEPER-4929).  If the administrator names none, we make one, which no server trusts.
 *
 * The library trusts the system's authorities as well as those in its file, and does not
 * compare host names (trap 20): anybody with a certificate for anything could be our
 * server.  OpenSSL finds the system's authorities by environment variables, which the
 * worker sets to /dev/null.  There is no other way: the library makes a context of its own in
 * its thread for each connection, gives nobody access to it before the handshake, and has
 * OpenSSL look for the system's authorities there, which reads the variables each time.  So
 * they must stay; nothing else in the worker uses OpenSSL's, and it starts no programs.
 *
 * Runs in: the worker's main thread.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "zk/zk_internal.h"

#define MAX_FILE_SIZE (1024 * 1024)
#define FILE_NAME_SIZE 32

/*
 * Symbols of the client library.  Its header declares the function only if it was built
 * with TLS, and never the constant, a state of handles.
 */
extern zhandle_t *zookeeper_init_ssl(const char *hosts, const char *files, watcher_fn watcher,
									 int timeout, const clientid_t *session, void *context,
									 int flags);
extern const int  ZOO_SSL_CONNECTING_STATE;

#pragma weak zookeeper_init_ssl
#pragma weak ZOO_SSL_CONNECTING_STATE

/* Symbols of OpenSSL */
#pragma weak TLS_client_method
#pragma weak SSL_CTX_new
#pragma weak SSL_CTX_free
#pragma weak SSL_CTX_load_verify_locations
#pragma weak SSL_CTX_use_certificate_chain_file
#pragma weak SSL_CTX_use_PrivateKey_file
#pragma weak SSL_CTX_check_private_key
#pragma weak SSL_CTX_set_default_passwd_cb
#pragma weak SSL_CTX_get0_certificate
#pragma weak X509_get0_notBefore
#pragma weak X509_get0_notAfter
#pragma weak X509_cmp_current_time
#pragma weak X509_new
#pragma weak X509_free
#pragma weak X509_getm_notBefore
#pragma weak X509_getm_notAfter
#pragma weak X509_gmtime_adj
#pragma weak X509_NAME_new
#pragma weak X509_NAME_free
#pragma weak X509_NAME_add_entry_by_txt
#pragma weak X509_set_issuer_name
#pragma weak X509_set_subject_name
#pragma weak X509_set_pubkey
#pragma weak X509_sign
#pragma weak EVP_PKEY_CTX_new_id
#pragma weak EVP_PKEY_CTX_free
#pragma weak EVP_PKEY_keygen_init
#pragma weak EVP_PKEY_keygen
#pragma weak EVP_PKEY_free
#pragma weak PEM_write_X509
#pragma weak PEM_write_PrivateKey
#pragma weak ERR_clear_error

static int in_memory[TLS_FILES]; /* descriptors, never closed; 0 if there is none yet */

/*
 * Returns true if the client library can do TLS, and OpenSSL is recent enough:
 * TLS_client_method() came with OpenSSL 1.1, as did others of the functions here.
 */
static bool
library_has_tls(void)
{
	return zookeeper_init_ssl && TLS_client_method && &ZOO_SSL_CONNECTING_STATE;
}

/* Hides the system's authorities; called once per process, before there are threads. */
void
zk_tls_start(void)
{
	(void) setenv("SSL_CERT_FILE", "/dev/null", 1);
	(void) setenv("SSL_CERT_DIR", "/dev/null", 1);
}

/* Writes the name under which a file in memory can be opened. */
static void
name_of(int fd, char *name, size_t size)
{
	snprintf(name, size, "/proc/self/fd/%d", fd);
}

/*
 * Creates a handle like zookeeper_init2(), with TLS and the files that have been loaded.
 * The library takes a log function only once the handle exists.  Until then it logs to a
 * stream, which is discarded.
 */
zhandle_t *
zk_tls_open(const char *addresses, int timeout, const clientid_t *session, log_callback_fn on_log)
{
	static FILE *nowhere;

	char	   name[TLS_FILES][FILE_NAME_SIZE];
	char	   names[TLS_FILES * FILE_NAME_SIZE];
	zhandle_t *handle;

	if (nowhere == NULL)
		nowhere = fopen("/dev/null", "w");
	zoo_set_log_stream(nowhere);
	for (int which = 0; which < TLS_FILES; which++)
		name_of(in_memory[which], name[which], FILE_NAME_SIZE);
	snprintf(names, sizeof(names), "%s,%s,%s", name[TLS_CA], name[TLS_CERT], name[TLS_KEY]);
	handle = zookeeper_init_ssl(addresses, names, zk_library_event, timeout, session,
								(void *) zk_handle_number, ZOO_NO_LOG_CLIENTENV);
	if (handle)
		zoo_set_log_callback(handle, on_log);
	return handle;
}

/* ------------------------------------------------------------------------
 * Reading files
 * ------------------------------------------------------------------------
 */

/* Copies a file into memory, to *fd.  Returns NULL, or why it cannot be used. */
static const char *
read_file(const char *name, TlsFile which, int *fd)
{
	const char *fault = NULL;
	struct stat st;
	ssize_t		copied;
	int			file;

	/* O_NONBLOCK: opening a FIFO, for example, would block. */
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
	else if ((copied = sendfile(*fd, file, NULL, st.st_size)) < 0)
		fault = strerror(errno);
	else if (copied < st.st_size)
		fault = "it has become shorter";
	close(file);
	return fault;
}

/* OpenSSL's callback for the password of a key: there is none. */
static int
no_password(char *buffer, int size, int is_writing, void *arg)
{
	return 0;
}

/* Loads a file into the context.  Returns NULL, or what is wrong with its contents. */
static const char *
check_file(SSL_CTX *context, TlsFile which, int fd)
{
	char		name[FILE_NAME_SIZE];
	const X509 *certificate;

	name_of(fd, name, sizeof(name));
	if (which == TLS_CA)
		return SSL_CTX_load_verify_locations(context, name, NULL) == 1
				   ? NULL
				   : "it has no certificate in PEM format";
	if (which == TLS_KEY)
	{
		SSL_CTX_set_default_passwd_cb(context, no_password);
		if (SSL_CTX_use_PrivateKey_file(context, name, SSL_FILETYPE_PEM) == 1 &&
			SSL_CTX_check_private_key(context) == 1)
			return NULL;
		return "it is not the key of the certificate, in PEM format and without a password";
	}
	if (SSL_CTX_use_certificate_chain_file(context, name) != 1)
		return "it has no certificate in PEM format";
	certificate = SSL_CTX_get0_certificate(context);
	if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
		return "the certificate has expired";
	if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
		return "the certificate is not valid yet";
	return NULL;
}

/* Writes the certificate or the key to a new file in memory, *fd.  Returns true on success. */
static bool
write_made(TlsFile which, const X509 *certificate, const EVP_PKEY *key, int *fd)
{
	char  name[FILE_NAME_SIZE];
	FILE *file;
	bool  written;

	*fd = memfd_create("zklock", MFD_CLOEXEC);
	name_of(*fd, name, sizeof(name));
	file = *fd < 0 ? NULL : fopen(name, "we");
	if (file == NULL)
		return false;
	written = which == TLS_KEY ? PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1
							   : PEM_write_X509(file, certificate) == 1;
	return fclose(file) == 0 && written;
}

/* Gives the certificate a name: Java refuses to read one without. */
static bool
name_certificate(X509 *certificate)
{
	X509_NAME *name = X509_NAME_new();
	bool	   named;

	named = name &&
			X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
									   (const unsigned char *) "zklock", -1, -1, 0) == 1 &&
			X509_set_issuer_name(certificate, name) == 1 &&
			X509_set_subject_name(certificate, name) == 1;
	X509_NAME_free(name);
	return named;
}

/* Makes a certificate and its key, in files in memory.  Returns NULL, or what is wrong. */
static const char *
make_certificate(int *fds)
{
	EVP_PKEY_CTX *algorithm = EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, NULL);
	X509		 *certificate = X509_new();
	EVP_PKEY	 *key = NULL;
	bool		  made;

	made = algorithm && certificate && EVP_PKEY_keygen_init(algorithm) == 1 &&
		   EVP_PKEY_keygen(algorithm, &key) == 1 && name_certificate(certificate) &&
		   X509_gmtime_adj(X509_getm_notBefore(certificate), 0) &&
		   X509_gmtime_adj(X509_getm_notAfter(certificate), 0) &&
		   X509_set_pubkey(certificate, key) == 1 && X509_sign(certificate, key, NULL) > 0 &&
		   write_made(TLS_CERT, certificate, key, &fds[TLS_CERT]) &&
		   write_made(TLS_KEY, certificate, key, &fds[TLS_KEY]);
	EVP_PKEY_free(key);
	EVP_PKEY_CTX_free(algorithm);
	X509_free(certificate);
	return made ? NULL : "none is named, and none can be made";
}

/* Reads and checks the file that a setting names.  Returns NULL, or what is wrong. */
static const char *
load_file(SSL_CTX *context, const TlsFiles *files, TlsFile which, int *fds)
{
	const char *fault = read_file(files->names[which], which, &fds[which]);

	return fault ? fault : check_file(context, which, fds[which]);
}

/* Replaces a file in memory by a new one, under the same descriptor. */
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
 * Reads and checks the files that are named.  If all are usable, they are used from the
 * next connection on.
 *
 * Returns NULL, or why they are not: a sentence without its period, palloc'd.  It does not
 * contain names of files, which only the log has.
 */
char *
zk_tls_load(const TlsFiles *files)
{
	static const char *const settings[TLS_FILES] = {"zklock.tls_ca_file", "zklock.tls_cert_file",
													"zklock.tls_key_file"};

	bool shows_none = files->names[TLS_CERT][0] == '\0' && files->names[TLS_KEY][0] == '\0';
	int	 fds[TLS_FILES] = {-1, -1, -1};
	const char *fault = NULL;
	char	   *sentence = NULL;
	SSL_CTX	   *context = library_has_tls() ? SSL_CTX_new(TLS_client_method()) : NULL;

	if (context == NULL)
		sentence = pstrdup(
			"\"zklock.tls_ca_file\" is set, but ZooKeeper's client library, as it is installed here, cannot do TLS");
	for (int i = 0; i < TLS_FILES && sentence == NULL; i++)
	{
		if (files->names[i][0] == '\0' && !shows_none)
			sentence = psprintf("\"%s\" is set, but \"%s\" is not",
								settings[i == TLS_CERT ? TLS_KEY : TLS_CERT], settings[i]);
	}
	if (sentence)
	{
		if (context)
			SSL_CTX_free(context);
		ereport(LOG, (errcode(ERRCODE_CONFIG_FILE_ERROR), errmsg_internal("%s", sentence)));
		return sentence;
	}

	for (int i = 0; i < TLS_FILES && fault == NULL; i++)
	{
		if (i == TLS_CA || !shows_none)
			fault = load_file(context, files, i, fds);
		else if (i == TLS_CERT)
			fault = make_certificate(fds);
		if (fault == NULL)
			continue;
		sentence = psprintf("could not use \"%s\": %s", settings[i], fault);
		ereport(LOG, (errcode(ERRCODE_CONFIG_FILE_ERROR), errmsg_internal("%s", sentence),
					  errdetail("The file is \"%s\".", files->names[i])));
	}
	SSL_CTX_free(context);
	ERR_clear_error();
	for (int i = 0; i < TLS_FILES; i++)
	{
		if (fault == NULL)
			replace(i, fds[i]);
		else if (fds[i] >= 0)
			close(fds[i]);
	}
	return sentence;
}
