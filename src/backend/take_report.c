/*
 * take_report.c
 *		What a session is told of elements of queues that it cannot have.
 *
 * Runs in: backends.  Requests are read under their mutexes.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/take_report.h"
#include "shared/worker_process.h"
#include "zk/zk_error.h"

/* What a request is at this moment */
TakeView
take_look(ElementRequest *request)
{
	TakeView view;

	SpinLockAcquire(&request->mutex);
	view.state = request->state;
	memcpy(view.name, request->name, sizeof(view.name));
	view.czxid = request->czxid;
	view.data_length = request->data_length;
	view.outcome = request->outcome;
	view.code = request->code;
	SpinLockRelease(&request->mutex);
	return view;
}

/* Raises the error for a call that cannot wait until ZooKeeper can be reached. */
void
take_report_unreachable(const char *path)
{
	const char *outage = display_outage();

	if (zklock_worker_pid() == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zklock worker is not running"),
				 errhint("See the server log; you might need to increase \"max_worker_processes\".")));
	ereport(ERROR, (errcode(ERRCODE_IO_ERROR),
					errmsg("could not use ZooKeeper queue \"%s\": ZooKeeper cannot be reached",
						   display_path(path)),
					outage ? errdetail_internal("%s.", outage) : 0));
}

/* Raises the error for a write of which nobody knows whether it was made. */
void
take_report_uncertain(const ElementRequest *request, const TakeView *view)
{
	if (request->action == ELEMENT_OFFER)
		ereport(ERROR, (errcode(ERRCODE_IO_ERROR),
						errmsg("could not find out whether an element was added to ZooKeeper queue \"%s\"",
							   display_path(request->path)),
						errdetail("The connection to ZooKeeper was lost meanwhile.")));
	ereport(ERROR, (errcode(ERRCODE_IO_ERROR),
					errmsg("could not find out whether element \"%s\" of ZooKeeper queue \"%s\" was removed",
						   display_utf8(view->name), display_path(request->path)),
					errdetail("The connection to ZooKeeper was lost meanwhile."),
					errhint("If the element is still in the queue, it was not.")));
}

static const char *
other_use_detail(int code)
{
	switch ((ElementOtherUse) code)
	{
		case ELEMENT_USE_ELECTION:
			return _("The elements of a queue and the candidates of an election cannot have the same path.");
		case ELEMENT_USE_CLAIMS:
			return _("The elements of a queue and claims cannot have the same path.");
		case ELEMENT_USE_NONE:
		case ELEMENT_USE_LOCK:
			break;
	}
	return _("The elements of a queue and the nodes of a lock or semaphore cannot have the same path.");
}

/* Raises the error for a request that cannot be fulfilled. */
void
take_report_failure(const ElementRequest *request, const TakeView *view)
{
	const char *name = display_path(request->path);

	switch (view->outcome)
	{
		case ELEMENT_OUTCOME_UNREACHABLE:
			take_report_unreachable(request->path);
			break;
		case ELEMENT_OUTCOME_UNCERTAIN:
			take_report_uncertain(request, view);
			break;
		case ELEMENT_OUTCOME_NO_PATH:
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("ZooKeeper queue \"%s\" does not exist", name),
					 errdetail("Missing nodes are not created, since \"zklock.parent_nodes\" is \"existing\".")));
			break;
		case ELEMENT_OUTCOME_NO_RECEIPTS:
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
							errmsg("cannot use ZooKeeper queue \"%s\": node \"%s\" does not exist",
								   name, ELEMENT_RECEIPTS),
							errdetail("Missing nodes are not created, since \"zklock.parent_nodes\" is \"existing\"."),
							errhint("Ask an administrator to create the node in ZooKeeper.")));
			break;
		case ELEMENT_OUTCOME_NO_CHILDREN:
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("\"%s\" cannot be a ZooKeeper queue", name),
					 errdetail("The path, or one above it, is an ephemeral node, which cannot have children.")));
			break;
		case ELEMENT_OUTCOME_NO_CHROOT:
			ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR),
							errmsg("cannot use ZooKeeper queue \"%s\"", name),
							errdetail("The chroot in \"zklock.servers\" does not exist."),
							errhint("Create the chroot node.")));
			break;
		case ELEMENT_OUTCOME_TOO_DEEP:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("cannot create ZooKeeper queue \"%s\": too many levels of it are missing", name),
					 errdetail("No more than 16 nodes are created for a path: its own and those above it.")));
			break;
		case ELEMENT_OUTCOME_HARMFUL:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot create ZooKeeper queue \"%s\": it lies below a lock or semaphore in use",
							name),
					 errdetail("Clients of that lock or semaphore would take the new node for a contender or a permit, for as long as it exists.")));
			break;
		case ELEMENT_OUTCOME_OTHER_USE:
			ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
							errmsg("ZooKeeper path \"%s\" is in use for something else", name),
							errdetail_internal("%s", other_use_detail(view->code))));
			break;
		case ELEMENT_OUTCOME_FULL:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("ZooKeeper queue \"%s\" is full", name),
					 errdetail("It has %d elements or more.", ELEMENT_MAX_CHILDREN),
					 errhint("With many more, clients could not list them. For thousands of elements, use a table and SELECT ... FOR UPDATE SKIP LOCKED.")));
			break;
		case ELEMENT_OUTCOME_WORN_OUT:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("the sequence numbers of ZooKeeper queue \"%s\" are used up", name),
					 errdetail("ZooKeeper numbers the nodes below a path up to 2147483647; beyond that there is no order."),
					 errhint("When the queue is empty and nobody uses it, delete its node.")));
			break;
		case ELEMENT_OUTCOME_SESSION_FULL:
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("cannot use ZooKeeper queue \"%s\": too many elements are held or waited for",
							name),
					 errdetail("The paths of their nodes and watches exceed what all sessions of this server, or this one, may have."),
					 errhint("Take fewer elements at a time, or use shorter paths.")));
			break;
		case ELEMENT_OUTCOME_UNDELIVERED:
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("could not exchange data with the zklock worker about \"%s\"", name),
					 errdetail("The worker could not use the dynamic shared memory segment for it."),
					 errhint("See server log for the reason.")));
			break;
		default:
			ereport(ERROR, (errcode(zk_error_is_permission(view->code) ? ERRCODE_INSUFFICIENT_PRIVILEGE
																	   : ERRCODE_SYSTEM_ERROR),
							errmsg("cannot use ZooKeeper queue \"%s\"", name),
							errdetail("ZooKeeper refused: %s.", zk_error_name(view->code)),
							zk_error_is_permission(view->code)
								? errhint("Check the ACLs of the queue and of node \"%s\", and the settings \"zklock.auth_file\" and \"zklock.acl\".",
										  ELEMENT_RECEIPTS)
								: 0));
	}
}

/* Raises the error for an element that was taken and that others may have by now. */
void
take_report_lost_element(const ElementRequest *request, const TakeView *view)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("element \"%s\" of ZooKeeper queue \"%s\" was lost",
					display_utf8(view->name), display_path(request->path)),
			 errdetail("The ZooKeeper session ended, or somebody deleted the claim of the element."),
			 errhint("Others may have taken the element meanwhile. Retry the transaction.")));
}
