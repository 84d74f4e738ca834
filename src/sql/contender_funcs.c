/*
 * contender_funcs.c
 *		SQL function that shows the holders and waiters at a path, of all clients.
 *
 * A path can have several queues, which zk_contenders() reads from ZooKeeper
 * (backend/view.c) and shows one after the other:
 *
 *		lock		the nodes of a lock at the path itself
 *		candidate	those of an election there, if there is no lock, as an election may use
 *					the names of one
 *		semaphore	the leases of a semaphore at the path, below "leases"
 *		turn		the holder of the turn to get a lease, and those that wait for it, below
 *					"locks", if the path has leases
 *
 * Names show mode, dialect and place in the queue, and together they show who is granted.
 * All else comes from the data of the nodes, which anybody may have written.  It is shown
 * if it is text, and one conclusion is drawn from it: that a node is zklock's, which only
 * the data shows, and whose contenders honor all others.
 *
 * A node of this server stands for all its contenders that share it.  Shared memory knows
 * which of them is granted, and its token; the data describes the first.
 *
 * Like zk_session(), it is for members of pg_monitor only, because it shows names and data
 * of other services.
 *
 * Runs in: backends.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/view.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "recipes/recipe.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "sql/arguments.h"

COMPAT_FUNCTION_INFO_V1(zk_contenders);

/* How many nodes are read.  Of the others, only what their names contain is shown. */
#define MAX_READ 200

/* A queue that is shown */
typedef struct Queue
{
	const char *kind;
	NodeDialect dialect; /* in which this session would create a node here */
	Contenders	contenders;
	LockView	ours; /* this server's contenders there */
} Queue;

/* The contender that a node stands for, by the node's data and by shared memory */
typedef struct Party
{
	const char *server;
	int			pid; /* 0 if that is not known */
	const char *user;
	const char *application;
	const char *owner; /* what another client has written */
	bool		is_zklock;
	bool		granted;
	int64		token; /* 0 if that is not known */
} Party;

/* Returns true if the names of the queue's nodes show a mode. */
static bool
has_modes(const Queue *queue)
{
	return queue->contenders.recipe == &lock_recipe;
}

/*
 * Corrects a party by an entry in shared memory: the data describes the cohort's first
 * contender only, unless another client has overwritten it, and a session that holds a lock
 * does not wait for itself.  A node that is kept is nobody's.
 */
static void
correct_party(Party *party, const EntryCopy *entry)
{
	if (entry->status.kept)
	{
		*party = (Party){.server = display_foreign(zklock_own_name()), .is_zklock = true};
		return;
	}
	if (entry->request.kind == REQUEST_CANDIDACY)
		party->owner = NULL;
	else if (party->pid != entry->request.pid)
	{
		party->pid = entry->request.pid;
		party->user = GetUserNameFromId(entry->request.role, true);
		party->application = NULL;
	}
	if (party->server == NULL)
		party->server = display_foreign(zklock_own_name());
	party->is_zklock = true;
	if (entry->status.state != ENTRY_GRANTED || lease_state() == LEASE_OVER)
		return;
	party->granted = true;
	if (entry->request.kind == REQUEST_LOCK || entry->request.kind == REQUEST_CANDIDACY)
		party->token = entry->status.token;
}

static Party
find_party(const Queue *queue, const ContenderNode *node)
{
	Party			 party = {.granted = node->holds};
	const EntryCopy *entry = lock_view_of_node(&queue->ours, node);
	NodeContender	 data;

	party.is_zklock = node_contender_read(node->data, &data);
	party.owner = contenders_reservation(node, entry, &data);
	if (party.is_zklock)
	{
		party.server = display_foreign(data.server);
		party.pid = data.pid;
		party.user = display_foreign(data.user);
		party.application = display_foreign(data.application);
	}
	else if (party.owner == NULL)
		party.owner = display_node_data(node->data, node->answer.text_length);

	/* To unlock a persistent lock one needs its token. */
	if (party.is_zklock && party.granted && node->answer.stat.ephemeral_owner == 0)
		party.token = token_of_grant(node->answer.stat.czxid, 1);
	if (entry)
		correct_party(&party, entry);
	return party;
}

/* Returns whether the client would wait for an older exclusive node of this session. */
static Heed
heeds_us(const Queue *queue, const ContenderNode *node, const Party *party)
{
	if (party->is_zklock)
		return HEED_YES;
	if (queue->contenders.recipe == &election_recipe)
		return HEED_UNKNOWN;
	return has_modes(queue) ? heed_expected(queue->dialect, LOCK_MODE_EXCLUSIVE, node->name) : HEED_YES;
}

static const char *
dialect_name(const Queue *queue, const ContenderNode *node)
{
	NodeName parsed;

	if (queue->contenders.recipe == &election_recipe)
		return election_family_names[node->peer.family];
	if (!has_modes(queue) || !node_name_parse(node->name, &parsed))
		return node_dialect_names[DIALECT_CURATOR];
	return node_dialect_names[parsed.dialect];
}

static void
put_row(FunctionCallInfo fcinfo, const Queue *queue, int i)
{
	const ContenderNode *node = &queue->contenders.nodes[i];
	Party				 party = find_party(queue, node);
	Heed				 heed = heeds_us(queue, node, &party);
	Row					 row = {0};

	row_add(&row, Int32GetDatum(i + 1));
	row_add_text(&row, display_utf8(node->name));
	row_add_text(&row, queue->kind);
	row_add_text(&row, !has_modes(queue)						? NULL
					   : node->peer.mode == LOCK_MODE_EXCLUSIVE ? "exclusive"
																: "shared");
	row_add_text(&row, dialect_name(queue, node));
	row_add_if(&row, party.granted || !queue->contenders.permits_unknown, BoolGetDatum(party.granted));
	row_add_if(&row, party.token != 0, Int64GetDatum(party.token));
	row_add_text(&row, party.server);
	row_add_if(&row, party.pid != 0, Int32GetDatum(party.pid));
	row_add_text(&row, party.user);
	row_add_text(&row, party.application);
	row_add_text(&row, party.owner);
	row_add_text(&row, display_session(node->answer.stat.ephemeral_owner));
	row_add_zk_time(&row, node->answer.stat.ctime);
	row_add_if(&row, heed != HEED_UNKNOWN, BoolGetDatum(heed == HEED_YES));
	row_add_if(&row, node->answer.stat.czxid != 0,
			   BoolGetDatum(node->answer.stat.ephemeral_owner == 0));
	row_store(fcinfo, &row);
}

/* Reports with a NOTICE how many contenders are not shown in full. */
static void
report_unread(const Contenders *contenders)
{
	int unread = 0;

	for (int i = 0; i < contenders->n; i++)
		unread += contenders->nodes[i].answer.stat.czxid == 0;
	if (unread > 0)
		ereport(NOTICE,
				(errmsg("only the first %d of %d contenders on \"%s\" are shown in full",
						contenders->n - unread, contenders->n, display_path(contenders->path)),
				 errdetail("Of the others, what their nodes' names tell is shown.")));
}

/* Shows a queue.  Returns its number of contenders, or -1 if its path does not exist. */
static int
show_queue(FunctionCallInfo fcinfo, const char *kind, const char *path, const Recipe *recipe,
		   NodeDialect dialect)
{
	Queue queue = {.kind = kind, .dialect = dialect, .contenders = {.path = path, .recipe = recipe}};
	Caller	 call = {0};
	CallStep listed = contenders_read(&queue.contenders, &call, MAX_READ, CALL_AFTER_SYNC);

	call_report(&listed);
	if (listed.result.outcome == CALL_NO_NODE)
		return -1;
	queue.ours = lock_view_take(path);
	for (int i = 0; i < queue.contenders.n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		put_row(fcinfo, &queue, i);
	}
	report_unread(&queue.contenders);
	return queue.contenders.n;
}

/*
 * zk_contenders(path text) returns setof record
 *
 * Shows the holders and waiters at a path, in the order of the queue.  A path that does
 * not exist has no rows.
 */
Datum
zk_contenders(PG_FUNCTION_ARGS)
{
	char *path = argument_path(fcinfo, ANY_PATH);
	char *leases = psprintf("%s" PERMIT_LEASES, path);
	char *turns = psprintf("%s" PERMIT_TURNS, path);
	int	  nlocks;

	InitMaterializedSRF(fcinfo, 0);
	nlocks = show_queue(fcinfo, "lock", path, &lock_recipe, dialect_of_path(path));
	if (nlocks == 0)
		(void) show_queue(fcinfo, "candidate", path, &election_recipe, DIALECT_CURATOR);
	if (nlocks >= 0 && show_queue(fcinfo, "semaphore", leases, &permit_recipe, DIALECT_CURATOR) >= 0)
		(void) show_queue(fcinfo, "turn", turns, &lock_recipe, DIALECT_CURATOR);
	return (Datum) 0;
}
