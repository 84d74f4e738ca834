/*
 * zk_security.c
 *		TLS and SASL: what they need is read and checked, and handles are opened with it.
 *
 * Some builds of the client library cannot do TLS, or SASL, as Debian's.  Others have one
 * more function for each, and link OpenSSL, or Cyrus SASL.  All symbols that we need of these
 * are weak, and null without, so that one binary works with all builds.  Types and functions
 * of SASL are declared here, so that a build does not need their headers.
 *
 * TLS.  The library reads its files anew for each connection (trap 19).  If it cannot use
 * one, it tries again without a pause, and hardly reports why.  So it does not get the
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
 * worker sets to /dev/null (zk_client_start).  There is no other way: the library makes a
 * context of its own in its thread for each connection, gives nobody access to it before the
 * handshake, and has OpenSSL look for the system's authorities there, which reads the
 * variables each time.  So they must stay; nothing else in the worker uses OpenSSL's, and it
 * starts no programs.
 *
 * SASL.  When a server has accepted the session, the library's I/O thread goes through SASL,
 * on each connection, before anybody hears of it.  It waits there for the DNS and for
 * Kerberos' servers, if it must.  If SASL fails, the handle has a state that says so, but
 * there is no event (trap 22).
 *
 * Runs in: the worker's main thread; the callbacks of Cyrus SASL in the library's I/O
 * thread, where nothing of PostgreSQL is called.
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
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/string.h"
#include "utils/memutils.h"
#include "zk/zk_internal.h"

/* ------------------------------------------------------------------------
 * What builds of the client library have, or not
 * ------------------------------------------------------------------------
 */

/*
 * The library's header declares the function for TLS only if it was built with TLS, and never
 * the constant, a state of handles.
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
#pragma weak SSL_CTX_set_default_passwd_cb_userdata
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

/* Cyrus SASL, and the library's function for it */
#define SASL_OK 0
#define SASL_CB_AUTHNAME 0x4002
#define SASL_CB_PASS 0x4004

typedef struct SaslSecret
{
	unsigned long len;
	char		  data[ZK_AUTH_SIZE]; /* of any size, for Cyrus SASL */
} SaslSecret;

typedef int SaslGetUser(void *context, int id, const char **user, unsigned *len);
typedef int SaslGetPassword(void *connection, void *context, int id, SaslSecret **password);

typedef struct SaslCallback
{
	unsigned long id; /* 0 ends an array */
	union
	{
		SaslGetUser		*user;	   /* SASL_CB_AUTHNAME */
		SaslGetPassword *password; /* SASL_CB_PASS */
	};
	void *context;
} SaslCallback;

typedef struct SaslParams
{
	const char		   *service;
	const char		   *host;
	const char		   *mechanism;
	const SaslCallback *callbacks;
} SaslParams;

extern int		  sasl_client_init(const SaslCallback *callbacks);
extern zhandle_t *zookeeper_init_sasl(const char *hosts, watcher_fn watcher, int timeout,
									  const clientid_t *session, void *context, int flags,
									  log_callback_fn on_log, const SaslParams *params);

#pragma weak sasl_client_init
#pragma weak zookeeper_init_sasl

static int
get_user(void *context, int id, const char **user, unsigned *len)
{
	*user = context;
	return SASL_OK;
}

static int
get_password(void *connection, void *context, int id, SaslSecret **password)
{
	*password = context;
	return SASL_OK;
}

/*
 * Opens a file that a setting names, to *file, which the caller closes unless it is -1.  Returns
 * NULL, or why it cannot be used.
 *
 *	secret	nobody but its owner may access it
 */
static const char *
open_named_file(const char *name, bool secret, int *file, struct stat *st)
{
	/* O_NONBLOCK: opening a FIFO, for example, would block. */
	*file = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (*file < 0 || fstat(*file, st) != 0)
		return strerror(errno);
	if (!S_ISREG(st->st_mode))
		return "it is not a regular file";
	if (secret && (st->st_mode & (S_IRWXG | S_IRWXO)))
		return "others than its owner may access it";
	return NULL;
}

/* ------------------------------------------------------------------------
 * TLS
 * ------------------------------------------------------------------------
 */

#define MAX_FILE_SIZE (1024 * 1024)
#define FILE_NAME_SIZE 32
#define FILE_NAME "/proc/self/fd/%d" /* by which a file in memory can be opened */

static int	in_memory[TLS_FILES]; /* descriptors, never closed; 0 if there is none yet */
static char no_password[] = "";

/*
 * Copies a file into memory, to *fd, and loads it into the context.  Returns NULL, or why it
 * cannot be used.
 */
static const char *
load_file(SSL_CTX *context, TlsFile which, const char *name, int *fd)
{
	char		copy[FILE_NAME_SIZE];
	const X509 *certificate;
	struct stat st;
	ssize_t		copied;
	int			file;
	const char *fault = open_named_file(name, which == TLS_KEY, &file, &st);

	if (fault == NULL)
	{
		*fd = memfd_create("zklock", MFD_CLOEXEC);
		if (*fd < 0)
			fault = strerror(errno);
		else if (st.st_size > MAX_FILE_SIZE)
			fault = "it is too large";
		else if ((copied = sendfile(*fd, file, NULL, st.st_size)) < 0)
			fault = strerror(errno);
		else if (copied < st.st_size)
			fault = "it has become shorter";
	}
	if (file >= 0)
		close(file);
	if (fault)
		return fault;

	snprintf(copy, sizeof(copy), FILE_NAME, *fd);
	if (which == TLS_CA)
		return SSL_CTX_load_verify_locations(context, copy, NULL) == 1
				   ? NULL
				   : "it has no certificate in PEM format";
	if (which == TLS_KEY)
	{
		/* OpenSSL would ask for a key's password at the terminal. */
		SSL_CTX_set_default_passwd_cb_userdata(context, no_password);
		if (SSL_CTX_use_PrivateKey_file(context, copy, SSL_FILETYPE_PEM) == 1 &&
			SSL_CTX_check_private_key(context) == 1)
			return NULL;
		return "it is not the key of the certificate, in PEM format and without a password";
	}
	if (SSL_CTX_use_certificate_chain_file(context, copy) != 1)
		return "it has no certificate in PEM format";
	certificate = SSL_CTX_get0_certificate(context);
	if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
		return "the certificate has expired";
	if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
		return "the certificate is not valid yet";
	return NULL;
}

/* Makes a certificate and its key, in files in memory.  Returns NULL, or what is wrong. */
static const char *
make_certificate(int *fds)
{
	const unsigned char common_name[] = "zklock";

	EVP_PKEY_CTX *algorithm = EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, NULL);
	X509		 *certificate = X509_new();
	X509_NAME	 *name = X509_NAME_new();
	EVP_PKEY	 *key = NULL;
	bool		  made;

	/* It gets a name, since Java refuses to read one without. */
	made = algorithm && certificate && name && EVP_PKEY_keygen_init(algorithm) == 1 &&
		   EVP_PKEY_keygen(algorithm, &key) == 1 &&
		   X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, common_name, -1, -1, 0) == 1 &&
		   X509_set_issuer_name(certificate, name) == 1 &&
		   X509_set_subject_name(certificate, name) == 1 &&
		   X509_gmtime_adj(X509_getm_notBefore(certificate), 0) &&
		   X509_gmtime_adj(X509_getm_notAfter(certificate), 0) &&
		   X509_set_pubkey(certificate, key) == 1 && X509_sign(certificate, key, NULL) > 0;
	for (TlsFile which = TLS_CERT; which <= TLS_KEY && made; which++)
	{
		char  copy[FILE_NAME_SIZE];
		FILE *file;

		fds[which] = memfd_create("zklock", MFD_CLOEXEC);
		snprintf(copy, sizeof(copy), FILE_NAME, fds[which]);
		file = fds[which] < 0 ? NULL : fopen(copy, "we");
		made = file && (which == TLS_KEY ? PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL)
										 : PEM_write_X509(file, certificate)) == 1;
		if (file)
			made = fclose(file) == 0 && made;
	}
	EVP_PKEY_free(key);
	X509_NAME_free(name);
	EVP_PKEY_CTX_free(algorithm);
	X509_free(certificate);
	return made ? NULL : "none is named, and none can be made";
}

/*
 * Reads and checks the files that are named.  If all are usable, they are used from the
 * next connection on.
 *
 * Returns NULL, or why they are not: a sentence without its period, palloc'd.  It does not
 * contain names of files, which only the log has.
 */
static char *
load_tls(const TlsFiles *files)
{
	static const char *const settings[TLS_FILES] = {"zklock.tls_ca_file", "zklock.tls_cert_file",
													"zklock.tls_key_file"};

	bool shows_none = files->names[TLS_CERT][0] == '\0' && files->names[TLS_KEY][0] == '\0';
	int	 fds[TLS_FILES] = {-1, -1, -1};
	const char *fault = NULL;
	char	   *sentence = NULL;
	SSL_CTX	   *context = NULL;

	/* TLS_client_method() came with OpenSSL 1.1, as did others of the functions here. */
	if (zookeeper_init_ssl && TLS_client_method && &ZOO_SSL_CONNECTING_STATE)
		context = SSL_CTX_new(TLS_client_method());
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
			fault = load_file(context, i, files->names[i], &fds[i]);
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

	/* New files replace those in memory under the same descriptors. */
	for (int i = 0; i < TLS_FILES; i++)
	{
		if (fault == NULL && in_memory[i] == 0)
		{
			in_memory[i] = fds[i];
			continue;
		}
		if (fault == NULL)
			(void) dup3(fds[i], in_memory[i], O_CLOEXEC);
		if (fds[i] >= 0)
			close(fds[i]);
	}
	return sentence;
}

/* ------------------------------------------------------------------------
 * SASL
 * ------------------------------------------------------------------------
 */

/* Who we are for SASL */
typedef struct SaslIdentity
{
	char		 text[ZK_AUTH_SIZE];  /* as it was read */
	char		 split[ZK_AUTH_SIZE]; /* the same, at its commas */
	SaslParams	 params;
	SaslSecret	 password;
	SaslCallback callbacks[3];
} SaslIdentity;

static SaslIdentity *identity; /* the next handle's; never freed, since handles refer to it */

/*
 * Takes the parameters of SASL, "name=value,...,password=value", for the next handle, which cannot
 * use TLS as well.  A password is the last one, and may contain commas.  Returns NULL, or why they
 * cannot be used: a part of a sentence.
 */
static const char *
load_sasl(const char *parameters, bool tls)
{
	static const char *const names[] = {"mechanism=", "service=", "host=", "user=", "password="};

	const char *user = NULL;
	const char *password = NULL;
	const char *fault = NULL;
	SaslIdentity *new;
	bool is_digest;

	if (tls)
		return "ZooKeeper's client library cannot do SASL together with TLS; use stunnel for TLS";
	if (zookeeper_init_sasl == NULL || sasl_client_init == NULL)
		return "ZooKeeper's client library, as it is installed here, cannot do SASL; tools/client-library in zklock's source builds one that can";
	if (identity && strcmp(identity->text, parameters) == 0)
		return NULL;
	if (sasl_client_init(NULL) != SASL_OK)
		return "Cyrus SASL does not start";

	new = MemoryContextAllocZero(TopMemoryContext, sizeof(SaslIdentity));
	new->params = (SaslParams){"zookeeper", NULL, "", new->callbacks};
	strlcpy(new->text, parameters, sizeof(new->text));
	strlcpy(new->split, parameters, sizeof(new->split));
	for (char *word = new->split; word;)
	{
		const char **values[] = {&new->params.mechanism, &new->params.service,
								 &new->params.host, &user, &password};
		int			 i = 0;

		while (i < (int) lengthof(names) && strncmp(word, names[i], strlen(names[i])) != 0)
			i++;
		if (i == (int) lengthof(names))
		{
			fault = "SASL's parameters are mechanism=, service=, host=, user= and password=, separated by commas";
			break;
		}
		*values[i] = word + strlen(names[i]);
		word = password ? NULL : strchr(word, ',');
		if (word)
			*word++ = '\0';
	}
	is_digest = strcmp(new->params.mechanism, "DIGEST-MD5") == 0;
	if (fault == NULL && !is_digest && strcmp(new->params.mechanism, "GSSAPI") != 0)
		fault = "the mechanism of SASL must be DIGEST-MD5 or GSSAPI";
	if (fault == NULL && ((user != NULL) != is_digest || (password != NULL) != is_digest))
		fault = "SASL with DIGEST-MD5 needs user and password, and with GSSAPI neither";
	if (fault)
	{
		explicit_bzero(new, sizeof(SaslIdentity));
		pfree(new);
		return fault;
	}
	if (is_digest)
	{
		if (new->params.host == NULL)
			new->params.host = "zk-sasl-md5"; /* any ZooKeeper server, for this mechanism */
		new->password.len = strlcpy(new->password.data, password, ZK_AUTH_SIZE);
		new->callbacks[0] = (SaslCallback){SASL_CB_AUTHNAME, .user = get_user,
										   .context = unconstify(char *, user)};
		new->callbacks[1] =
			(SaslCallback){SASL_CB_PASS, .password = get_password, .context = &new->password};
	}
	identity = new;
	return NULL;
}

/* ------------------------------------------------------------------------
 * What the next handle gets
 * ------------------------------------------------------------------------
 */

/*
 * Reads the files for the next connection into the configuration of its handle.  Returns NULL,
 * or why they cannot be used, palloc'd.
 *
 *	auth_file	"" for no credentials; what it contains is split at the first colon
 */
char *
zk_security_load(ZkClientConfig *config, const TlsFiles *tls, const char *auth_file)
{
	char		buffer[ZK_AUTH_SIZE + 2] = "";
	char	   *colon;
	ssize_t		len = 0;
	bool		sasl;
	struct stat st;
	int			file;
	char	   *fault = NULL;
	const char *why;

	config->tls = tls->names[TLS_CA][0] != '\0';

	/* No core files: the client library keeps a secret in its own memory from now on. */
	if (config->tls || auth_file[0] != '\0')
		(void) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (config->tls)
		fault = load_tls(tls);
	if (fault || auth_file[0] == '\0')
		return fault;

	why = open_named_file(auth_file, true, &file, &st);
	if (why == NULL && (len = read(file, buffer, sizeof(buffer) - 1)) < 0)
		why = strerror(errno);
	if (file >= 0)
		close(file);
	colon = strchr(buffer, ':');

	/* One newline at the end belongs to the line. */
	if (why)
		; /* it cannot be read */
	else if (len == 0)
		why = "it is empty";
	else if ((ssize_t) strlen(buffer) != len)
		why = "it contains a zero byte";
	else if (strchr(buffer, '\n') != NULL && strchr(buffer, '\n')[1] != '\0')
		why = "it has more than one line";
	else if (pg_strip_crlf(buffer) >= ZK_AUTH_SIZE)
		why = "its line is too long";
	else if (colon == NULL || colon == buffer)
		why = "it does not have the form scheme:credentials";
	else
	{
		*colon++ = '\0';
		sasl = strcmp(buffer, "sasl") == 0;
		if (sasl)
			why = load_sasl(colon, config->tls);

		/* A configuration without credentials follows one that failed: nothing may remain. */
		if (why == NULL)
		{
			config->sasl = sasl;
			strlcpy(config->auth_scheme, buffer, sizeof(config->auth_scheme));
			strlcpy(config->auth_credentials, colon, sizeof(config->auth_credentials));
		}
	}
	explicit_bzero(buffer, sizeof(buffer));
	if (why == NULL)
		return NULL;

	/* All roles may see what is wrong, so only the log names the file. */
	ereport(LOG, (errcode(ERRCODE_CONFIG_FILE_ERROR),
				  errmsg("could not use \"zklock.auth_file\": %s", why),
				  errdetail("The file is \"%s\".", auth_file)));
	return psprintf("could not use \"zklock.auth_file\": %s", why);
}

/* ------------------------------------------------------------------------
 * Handles
 * ------------------------------------------------------------------------
 */

/*
 * Creates a handle like zookeeper_init2(), with TLS and the files, or SASL and the parameters,
 * that have been loaded, if the configuration says so.  Returns NULL, with errno set, if it
 * cannot.
 */
zhandle_t *
zk_security_open(const ZkClientConfig *config, const char *hosts, watcher_fn watcher,
				 const clientid_t *session, void *context, log_callback_fn on_log)
{
	static FILE *nowhere;

	char	   name[TLS_FILES][FILE_NAME_SIZE];
	char	   names[TLS_FILES * FILE_NAME_SIZE];
	zhandle_t *handle;

	if (!config->tls && !config->sasl)
		return zookeeper_init2(hosts, watcher, config->session_timeout, session, context,
							   ZOO_NO_LOG_CLIENTENV, on_log);
	if (!config->tls)
	{
		errno = EINVAL;
		if (identity == NULL)
			return NULL;
		return zookeeper_init_sasl(hosts, watcher, config->session_timeout, session, context,
								   ZOO_NO_LOG_CLIENTENV, on_log, &identity->params);
	}

	/*
	 * With TLS the library takes a log function only once the handle exists.  Until then it logs
	 * to a stream, which is discarded.
	 */
	if (nowhere == NULL)
		nowhere = fopen("/dev/null", "w");
	zoo_set_log_stream(nowhere);
	for (int which = 0; which < TLS_FILES; which++)
		snprintf(name[which], sizeof(name[which]), FILE_NAME, in_memory[which]);
	snprintf(names, sizeof(names), "%s,%s,%s", name[TLS_CA], name[TLS_CERT], name[TLS_KEY]);
	handle = zookeeper_init_ssl(hosts, names, watcher, config->session_timeout, session,
								context, ZOO_NO_LOG_CLIENTENV);
	if (handle)
		zoo_set_log_callback(handle, on_log);
	return handle;
}
