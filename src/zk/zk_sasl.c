/*
 * zk_sasl.c
 *		Reads the parameters of SASL, and opens handles that use it.
 *
 * Some builds of the client library cannot do SASL, as Debian's.  Others have one more
 * function and link Cyrus SASL.  As for TLS, the symbols that we need of either are weak.
 * Their types and functions are declared here, so that a build does not need their headers.
 *
 * When a server has accepted the session, the library's I/O thread goes through SASL, on
 * each connection, before anybody hears of it.  It waits there for the DNS and for
 * Kerberos' servers, if it must.  If SASL fails, the handle has a state that says so, but
 * there is no event (trap 22).
 *
 * Runs in: the worker's main thread; the callbacks of Cyrus SASL in the library's I/O
 * thread, where nothing of PostgreSQL is called.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "zk/zk_internal.h"

/* ------------------------------------------------------------------------
 * Cyrus SASL, and what the client library has of it
 * ------------------------------------------------------------------------
 */

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

/* ------------------------------------------------------------------------
 * Parameters
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
 * Fills in an identity from its text, "name=value,...,password=value".  A password is the last
 * one, and may contain commas.  Returns NULL, or what is wrong.
 */
static const char *
read_parameters(SaslIdentity *new)
{
	static const char *const names[] = {"mechanism=", "service=", "host=", "user=", "password="};

	const char	*user = NULL;
	const char	*password = NULL;
	const char **values[] = {&new->params.mechanism, &new->params.service, &new->params.host,
							 &user, &password};
	bool		 is_digest;

	new->params = (SaslParams){"zookeeper", NULL, "", new->callbacks};
	strlcpy(new->split, new->text, sizeof(new->split));
	for (char *word = new->split; word;)
	{
		int i = 0;

		while (i < (int) lengthof(names) && strncmp(word, names[i], strlen(names[i])) != 0)
			i++;
		if (i == (int) lengthof(names))
			return "SASL's parameters are mechanism=, service=, host=, user= and password=, separated by commas";
		*values[i] = word + strlen(names[i]);
		word = password ? NULL : strchr(word, ',');
		if (word)
			*word++ = '\0';
	}
	is_digest = strcmp(new->params.mechanism, "DIGEST-MD5") == 0;
	if (!is_digest && strcmp(new->params.mechanism, "GSSAPI") != 0)
		return "the mechanism of SASL must be DIGEST-MD5 or GSSAPI";
	if ((user != NULL) != is_digest || (password != NULL) != is_digest)
		return "SASL with DIGEST-MD5 needs user and password, and with GSSAPI neither";
	if (!is_digest)
		return NULL;
	if (new->params.host == NULL)
		new->params.host = "zk-sasl-md5"; /* any ZooKeeper server, for this mechanism */
	new->password.len = strlcpy(new->password.data, password, ZK_AUTH_SIZE);
	new->callbacks[0] =
		(SaslCallback){SASL_CB_AUTHNAME, .user = get_user, .context = unconstify(char *, user)};
	new->callbacks[1] =
		(SaslCallback){SASL_CB_PASS, .password = get_password, .context = &new->password};
	return NULL;
}

/*
 * Takes the parameters of SASL for the next handle, which cannot use TLS as well.  Returns NULL,
 * or why they cannot be used: a part of a sentence.
 */
const char *
zk_sasl_load(const char *parameters, bool tls)
{
	SaslIdentity *new;
	const char *fault;

	if (tls)
		return "ZooKeeper's client library cannot do SASL together with TLS; use stunnel for TLS";
	if (zookeeper_init_sasl == NULL || sasl_client_init == NULL)
		return "ZooKeeper's client library, as it is installed here, cannot do SASL; tools/client-library in zklock's source builds one that can";
	if (identity && strcmp(identity->text, parameters) == 0)
		return NULL;
	if (sasl_client_init(NULL) != SASL_OK)
		return "Cyrus SASL does not start";
	new = MemoryContextAllocZero(TopMemoryContext, sizeof(SaslIdentity));
	strlcpy(new->text, parameters, sizeof(new->text));
	fault = read_parameters(new);
	if (fault == NULL)
		identity = new;
	else
	{
		explicit_bzero(new, sizeof(SaslIdentity));
		pfree(new);
	}
	return fault;
}

/*
 * Creates a handle like zookeeper_init2(), with SASL and the parameters that have been loaded.
 * If none have been, it fails.
 */
zhandle_t *
zk_sasl_open(const char *addresses, int timeout, const clientid_t *session, log_callback_fn on_log)
{
	errno = EINVAL;
	if (identity == NULL)
		return NULL;
	return zookeeper_init_sasl(addresses, zk_library_event, timeout, session, (void *) zk_handle_number,
							   ZOO_NO_LOG_CLIENTENV, on_log, &identity->params);
}
