/*
 * looks.pml
 *		Two looks of the search for deadlocks across servers.
 *
 * doc/internals.md, "Deadlocks", has the argument; src/deadlock/deadlock.c and
 * wait_search.c have the code.
 *
 *	Process		one on each server: takes locks, gives them back, waits for one that another
 *				process holds.  While it waits it does nothing else; its wait ends when the
 *				lock is free, by itself (a timeout, a cancellation), or by the search.
 *	Search		one on each server: reads the records of all, looks at its own process, judges, and
 *				publishes what it saw.  It may be slow, or stopped, between any two of these.
 *
 * A wait has a number, which grows: it is its identity, and its node's age.  A process waits
 * for one other at a time, so the component of a stuck wait is the circle through it.
 * That ZooKeeper is asked whether the nodes in records exist is left out: it is against
 * forged records.  So are unknown contenders, and permits.
 *
 * Checked: a wait that is given up was in a circle of waits all of which were there at one
 * time; of a circle one wait is given up; no circle lasts, which would be a last state.
 *
 * With any of these the model leaves something out, and must fail:
 *
 *	ONE_LOOK		a circle counts when it is found for the first time
 *	WHO_ONLY		the looks find the same if the same processes wait
 *	UNSEEN			the second look counts records whatever they had seen
 *	OLDEST			Z is the oldest record's zxid, not the newest's
 *	LOOKED_BEFORE	the own process is looked at before the records of others are read
 *	NOT_ANEW		a record that tells of the same waits is not written anew
 *	EVERYBODY		not the youngest wait of the circle gives up, but whichever finds it
 *
 * NEVER_FOUND claims that no wait is given up; it must fail as well, or the model would not move.
 */
#ifndef WAITS
#define WAITS 3 /* in all */
#endif
#ifndef TAKES
#define TAKES 0 /* locks taken without waiting, in all */
#endif
#ifndef CANCELS
#define CANCELS 1 /* waits that end by themselves, in all */
#endif
#define SERVERS 2
#define LOCKS 2
#define NOBODY 7

/* The truth */
byte holder[LOCKS];		  /* at first each has its own */
byte wait[SERVERS];		  /* number of the process's wait, or 0 ... */
byte wanted[SERVERS];	  /* ... and the lock for which it waits */
byte circle[SERVERS];	  /* number of the youngest circle in which this wait was, or 0 */
bool given_up[WAITS + 1]; /* by circle: has a wait of it been given up? */
byte waits;
byte takes = TAKES;
byte cancels = CANCELS;

/* ZooKeeper: the record of each server */
typedef Record {
	byte zxid; /* or 0 if there is none */
	byte seen; /* highest zxid of a record that was read before the process was looked at */
	byte wait;
	byte wanted;
	byte holds /* bits of locks */
};
Record record[SERVERS];
byte zxid;

/* A search would find something new */
bool news[SERVERS];

#define BIT(lock) (1 << (lock))

/* Without meaning between two steps */
hidden byte at;
hidden byte i;
hidden byte members; /* bits of processes */
hidden byte newest;
hidden byte youngest;
hidden short same; /* equal for equal waits */
hidden byte is_confirmed;

inline tell_all()
{
	i = 0;
	do
	:: i < SERVERS -> news[i] = true; i++
	:: else -> break
	od;
	i = 0
}

/* ------------------------------------------------------------------------
 * Processes
 * ------------------------------------------------------------------------
 */

/* Follows waits from a process.  "members" are those of the circle that leads back, or none. */
inline find_circle(from)
{
	at = from;
	members = 0;
	do
	:: at == NOBODY || wait[at] == 0 || (members & BIT(at)) != 0 -> break
	:: else -> members = members | BIT(at); at = holder[wanted[at]]
	od;
	members = (members != 0 && at == from -> members : 0);
	at = 0
}

inline begin_wait(lock)
{
	waits++;
	wait[me] = waits;
	wanted[me] = lock;
	news[me] = true;
	find_circle(me);
	i = 0;
	do
	:: i < SERVERS ->
		circle[i] = ((members & BIT(i)) != 0 -> waits : circle[i]);
		i++
	:: else -> break
	od;
	i = 0;
	members = 0
}

inline end_wait()
{
	wait[me] = 0;
	wanted[me] = 0;
	circle[me] = 0
}

#define STEPS(lock)                                                                               \
	:: d_step { holder[lock] == NOBODY && takes > 0 -> takes--; holder[lock] = me }               \
	:: d_step { holder[lock] == me -> holder[lock] = NOBODY }                                     \
	:: d_step { holder[lock] != me && holder[lock] != NOBODY && waits < WAITS -> begin_wait(lock) }; goto waiting

proctype Process(byte me)
{
end:
	do
	STEPS(0)
	STEPS(1)
	od;
waiting:
	if
	:: d_step { wait[me] != 0 && holder[wanted[me]] == NOBODY -> holder[wanted[me]] = me; end_wait() }
	:: d_step { wait[me] != 0 && cancels > 0 -> cancels--; end_wait() }
	:: wait[me] == 0
	fi;
	goto end
}

/* ------------------------------------------------------------------------
 * The search
 * ------------------------------------------------------------------------
 */

/* Whose record says that it holds the lock? */
inline find_holder(lock)
{
	i = 0;
	do
	:: i < SERVERS && (record[i].zxid == 0 || (record[i].holds & BIT(lock)) == 0) -> i++
	:: else -> break
	od
}

/* The circle through our own wait, by the records */
inline find_told_circle()
{
	at = me;
	members = 0;
	do
	:: at == SERVERS || record[at].zxid == 0 || (members & BIT(at)) != 0 -> break
	:: else ->
		members = members | BIT(at);
		find_holder(record[at].wanted);
		at = i
	od;
	members = (at == me -> members : 0)
}

/* Reads the records and judges what they tell. */
inline read()
{
	find_told_circle();
	seen = 0;
	same = 0;
	newest = 0;
	youngest = 0;
	must_have_seen = 0;
	is_confirmed = members != 0;
	i = 0;
	do
	:: i < SERVERS ->
		seen = (record[i].zxid > seen -> record[i].zxid : seen);
		if
		:: (members & BIT(i)) != 0 ->
#ifdef WHO_ONLY
			same = same * 8 + i + 1;
#else
			same = same * 8 + record[i].wait;
#endif
#ifdef OLDEST
			newest = (newest == 0 || record[i].zxid < newest -> record[i].zxid : newest);
#else
			newest = (record[i].zxid > newest -> record[i].zxid : newest);
#endif
			youngest = (record[i].wait > youngest -> record[i].wait : youngest);
			must_have_seen =
				(i != me && record[i].zxid > must_have_seen -> record[i].zxid : must_have_seen);
#ifndef UNSEEN
			is_confirmed = is_confirmed && record[i].seen >= z
#endif
		:: else
		fi;
		i++
	:: else -> break
	od;
#ifndef ONE_LOOK
	is_confirmed = is_confirmed && same == found;
#endif
	if
	:: same != found -> found = same; z = newest; news[me] = true
	:: else
	fi;
	must_have_seen = (members != 0 && z > must_have_seen -> z : must_have_seen);
#ifdef EVERYBODY
	youngest = record[me].wait;
#endif
	victim = (is_confirmed && youngest == record[me].wait -> youngest : 0)
}

inline look()
{
	own_wait = wait[me];
	own_wanted = wanted[me];
	own_holds = 0;
	i = 0;
	do
	:: i < LOCKS -> own_holds = own_holds | (holder[i] == me -> BIT(i) : 0); i++
	:: else -> break
	od
}

inline give_up()
{
	assert(circle[me] != 0 && !given_up[circle[me]]);
#ifdef NEVER_FOUND
	assert(false);
#endif
	given_up[circle[me]] = true;
	end_wait()
}

#define SAYS_THE_SAME (record[me].zxid != 0 && record[me].wait == own_wait)
#ifdef NOT_ANEW
#define IS_TOLD SAYS_THE_SAME
#else
#define IS_TOLD (SAYS_THE_SAME && record[me].seen >= must_have_seen)
#endif

inline publish()
{
	zxid++;
	record[me].zxid = zxid;
	record[me].seen = seen;
	record[me].wait = own_wait;
	record[me].wanted = own_wanted;
	record[me].holds = own_holds;
	tell_all()
}

inline withdraw()
{
	record[me].zxid = 0;
	record[me].seen = 0;
	record[me].wait = 0;
	record[me].wanted = 0;
	record[me].holds = 0;
	found = 0;
	z = 0;
	tell_all()
}

inline forget()
{
	seen = 0;
	must_have_seen = 0;
	victim = 0;
	own_wait = 0;
	own_wanted = 0;
	own_holds = 0
}

proctype Search(byte me)
{
	/* What searches have found: the waits of a circle, and Z */
	short found;
	byte z;

	/* This search: what it had seen, what others must know that we had seen, our own process */
	byte seen;
	byte must_have_seen;
	byte victim; /* a wait of ours that is to be given up, or 0 */
	byte own_wait;
	byte own_wanted;
	byte own_holds;

end:
	do
#ifdef LOOKED_BEFORE
	:: d_step { news[me] && wait[me] != 0 -> news[me] = false; look() };
		d_step { read() };
#else
	:: d_step { news[me] && wait[me] != 0 -> news[me] = false; read() };
		d_step { look() };
#endif
		d_step {
			if
			:: victim != 0 && victim == own_wait && victim == wait[me] -> give_up()
			:: else ->
				if
				:: own_wait != 0 && !IS_TOLD -> publish()
				:: else
				fi
			fi;
			forget()
		}
	:: d_step { wait[me] == 0 && record[me].zxid != 0 -> withdraw() }
	od
}

init
{
	atomic {
		i = 0;
		do
		:: i < SERVERS -> holder[i] = i; run Process(i); run Search(i); i++
		:: else -> break
		od
	}
}
