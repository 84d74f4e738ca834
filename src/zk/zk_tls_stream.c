/*
 * zk_tls_stream.c
 *		A connection with TLS, beside the client library.
 *
 * Questions to servers (zk_ask.c) go through it where the session does.  It checks
 * what the library checks, with the same files, and can say what is wrong, as the
 * library cannot.
 *
 * Runs in: any thread, for one stream one at a time.  Calls nothing of PostgreSQL.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include <poll.h>

#include "shared/clock.h"
#include "zk/zk_tls_library.h"
#include "zk/zk_tls_stream.h"

static void
set_fault(TlsStream *stream, const char *what, const char *why)
{
	snprintf(stream->fault, sizeof(stream->fault), "%s%s", what, why ? why : "");
}

/* Says why the last call has failed.  The alert of a server is an error like others. */
static void
explain(TlsStream *stream)
{
	const TlsLibrary *tls = zk_tls_library();
	long			  verified = tls->verify_result(stream->connection);
	unsigned long	  error = tls->next_error();

	if (verified != TLS_VERIFIED)
		set_fault(stream, "its certificate is not accepted: ", tls->verify_text(verified));
	else if (error != 0)
		set_fault(stream, "", tls->error_reason(error));
	if (stream->fault[0] == '\0')
		set_fault(stream, "it closes the connection", NULL);
}

/*
 * A call has returned this: waits until it can be repeated.  Returns false if it
 * cannot, or not in time.
 */
static bool
may_repeat(TlsStream *stream, int result)
{
	int			  error = zk_tls_library()->get_error(stream->connection, result);
	int64		  left = stream->until - zklock_now_ms();
	struct pollfd fd = {.fd = stream->sock, .events = error == TLS_WANT_WRITE ? POLLOUT : POLLIN};

	if (error != TLS_WANT_READ && error != TLS_WANT_WRITE)
		explain(stream);
	else if (left > 0 && poll(&fd, 1, (int) left) == 1)
		return true;
	else
		set_fault(stream, "it does not answer", NULL);
	return false;
}

/*
 * Shakes hands over a connected socket that does not block, which stays the
 * caller's.  Returns false, having set "fault", if that fails.
 *
 *	until	a time in ms, for all that is done with the stream
 */
bool
zk_tls_stream_open(TlsStream *stream, ZkTls set, int sock, int64 until)
{
	const TlsLibrary *tls = zk_tls_library();
	int				  result;

	*stream = (TlsStream){.sock = sock, .until = until, .context = zk_tls_new_context(set)};
	if (stream->context)
		stream->connection = tls->new_connection(stream->context);
	if (stream->connection == NULL || tls->set_socket(stream->connection, sock) != 1)
	{
		set_fault(stream, "the files for TLS cannot be used", NULL);
		return false;
	}
	do
	{
		tls->clear_errors();
		result = tls->connect(stream->connection);
	} while (result != 1 && may_repeat(stream, result));
	return result == 1;
}

bool
zk_tls_stream_send(TlsStream *stream, const char *message, size_t len)
{
	const TlsLibrary *tls = zk_tls_library();
	int				  result;

	do
	{
		tls->clear_errors();
		result = tls->write(stream->connection, message, (int) len);
	} while (result <= 0 && may_repeat(stream, result));
	return result == (int) len;
}

/* Returns how much has come, at least one byte; or 0 or less, having set "fault". */
ssize_t
zk_tls_stream_receive(TlsStream *stream, char *buffer, size_t size)
{
	const TlsLibrary *tls = zk_tls_library();
	int				  result;

	do
	{
		tls->clear_errors();
		result = tls->read(stream->connection, buffer, (int) size);
	} while (result <= 0 && may_repeat(stream, result));
	return result;
}

void
zk_tls_stream_close(TlsStream *stream)
{
	if (stream->connection)
		zk_tls_library()->free_connection(stream->connection);
	if (stream->context)
		zk_tls_library()->free_context(stream->context);
}
