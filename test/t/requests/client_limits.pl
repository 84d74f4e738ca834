# Copyright (c) 2026, zklock contributors
#
# Limits of ZooKeeper's client library and protocol: signals in the library's threads, too
# many requests at a time, watches and nodes with too many bytes of paths, answers that never
# come. And how many contenders may share a node. (doc/internals.md lists the traps.)

use Zklock::Test;
use Zklock::Cast qw(fails);
use PostgreSQL::Test::Utils;

# So long that no silence in here is taken for the end of a connection.
my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '60s', conf => ['zklock.max_locks_per_session = 6400']);
my $s = $a->session;
my $id = $a->session_id;
my $full;    # how many long paths can be locked

# The signals that each thread of the library blocks; a thread that ends meanwhile counts no more.
sub blocked_signals($worker)
{
	my @status = map { "$_/status" } grep { !m{/$worker$} } glob "/proc/$worker/task/*";
	return map { /^SigBlk:\s+(\w+)$/m } map { eval { slurp_file($_) } // () } @status;
}

subtest 'the threads of the library get no signal (trap 9)' => sub {
	# All but those that cannot be blocked, and two that glibc needs, but blocks until a thread has started.
	my $all    = 'fffffffe7ffbfeff';
	my $worker = $a->worker_pid;
	my @blocked;
	wait_until { @blocked = blocked_signals($worker); @blocked && !grep({ $_ ne $all } @blocked); }
	sub { "all signals to be blocked; what is: @blocked" };
	cmp_ok(scalar @blocked, '>=', 2, 'the library has threads of its own, which get no signal');
};

subtest 'as many contenders share a node as have a number in its tokens' => sub {
	# Who shares the lock takes turns, and never is the last one in: so nothing ends the run.

	my $keeper = $a->session;
	is($keeper->query("SELECT zk_lock_shared('/c/run')"), 't', 'a lock is shared');
	$s->query("DO \$\$ BEGIN FOR i IN 2 .. 4095 LOOP
		PERFORM zk_lock_shared('/c/run'); PERFORM zk_unlock_shared('/c/run'); END LOOP; END \$\$");
	is(scalar($zk->children('/c/run')), 1, '4095 contenders have had one node');
	is($s->query("SELECT zk_lock_shared('/c/run')"), 't', 'the next one');
	is(scalar($zk->children('/c/run')), 2, 'has another');
	$_->query("SELECT zk_unlock_shared('/c/run')") foreach $s, $keeper;
};

subtest 'a server that does not answer gets no more than 600 requests, and reminders (traps 5 and 7)' => sub {
	my $many = 1200;
	is($s->query("SELECT count(*) FROM generate_series(1, $many) i WHERE zk_lock('/c/many/' || i)"), $many, "$many locks");
	$proxy->reset_counts;
	$proxy->blackhole('replies');
	$s->query_start('SELECT zk_unlock_all()');
	# They are released together, and no request waits for the answer to another.
	wait_until { ($proxy->counts->{delete} || 0) >= 100 } 'requests to be sent';
	$a->wait_value("SELECT count(*) FROM zk_locks WHERE state = 'held'", 0);
	$proxy->wait_all_sent;
	my $counts = $proxy->counts;
	delete @{$counts}{qw(exists ping notification)};
	my $asked = 0;
	$asked += $_ foreach values %$counts;
	cmp_ok($asked, '<=', 600, 'but of 1200 requests no more than 600 are under way') or diag explain $counts;
	$proxy->heal;
	ok($s->result->{ok}, 'all are answered in the end');
	$a->assert_clean($zk, '/c/run');
	is(scalar(grep { $zk->children("/c/many/$_") } 1 .. $many), 0, 'no node is left');
};

subtest 'paths of watches and nodes must fit in one message of 1 MB (traps 3 and 4)' => sub {
	$a->value(q{
		CREATE FUNCTION fill() RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			FOR n IN 0 .. 2000 LOOP
				BEGIN
					PERFORM zk_lock('/c/' || repeat('x', 1000) || '/' || n);
				EXCEPTION WHEN out_of_memory THEN
					RETURN n;
				END;
			END LOOP;
		END $$});
	$full = $s->query('SELECT fill()');
	cmp_ok($full, '>=', 500, "$full locks of long paths are granted");
	cmp_ok($full, '<=', 1000, 'no more than fit in a message');
	fails($s->try("SELECT zk_lock('/c/' || repeat('x', 1000) || '/other')"), '53200', 'one more is an error',
		message => qr/too many paths are locked/, hint => qr/Lock fewer paths/);
	$a->wait_value('SELECT count(*) FROM zk_locks', $full);
	is($a->lock_count("state = 'held'"), $full, 'the others are held');
};

subtest 'a new connection registers all watches' => sub {
	my $reconnects = $a->zk_session->{reconnects};
	$proxy->reset_counts;
	$proxy->drop;
	$a->wait_value("SELECT state = 'connected' AND reconnects > $reconnects FROM zk_session", 't');
	wait_until { $proxy->counts->{setWatches} } 'watches to be registered again';
	$a->wait_value("SELECT lease_remaining > '0' FROM zk_session", 't');
	is($a->lock_count("state = 'held'"), $full, 'a new connection, on which all watches are registered again, harms nobody');
	is($a->session_id, $id, 'the session is the same');

	$s->query('SELECT zk_unlock_all()');
	is($s->query('SELECT fill()'), $full, 'when they are released there is room for as many again');
};

subtest 'a request of several writes that comes when the session is over harms nobody (trap 21)' => sub {
	plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};
	# Writes are sent so late that the library has connected again by then, and has heard of the session's end.
	my $c = Zklock::Server->new('c', zookeeper => $zk, faults => 'slow-writes', conf => ["zklock.session_timeout = '4s'"]);
	my ($taker, $mark) = ($c->session, $c->log_mark);
	$taker->query("SELECT zk_queue_offer('/c/queue', 'one')");
	$taker->query('BEGIN');
	is($taker->query("SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('/c/queue')"), 'one', 'an element is taken');
	my $worker = $c->worker_pid;
	freeze($worker);
	$taker->query('COMMIT');
	$zk->shell->expire_session($c->session_id);
	thaw($worker);
	$c->assert_log($mark, qr/element "[^"]+" was taken by a transaction that committed, and may not have been removed/, 'its removal comes too late');
	$c->wait_session;
	is($c->worker_pid, $worker, 'the worker goes on');
	is($taker->query("SELECT convert_from(zk_queue_remove('/c/queue'), 'UTF8')"), 'one', 'the element is still there');
	$c->stop;
};

subtest 'the server stops with as many nodes as there can be' => sub {
	# The server stops with all of them: that ends its session, though many requests are under
	# way, and ZooKeeper survives it.
	$a->stop;
	# The connection may be there for a moment longer.
	my ($sessions) = $zk->four_letter('dump') =~ /^(.*?)^Connections dump/ms;
	unlike($sessions, qr/\b$id\b/, 'the session ends with as many');
	my $b    = Zklock::Server->new('b', zookeeper => $zk);
	my $next = $b->session;
	is($next->query("SELECT zk_lock('/c/' || repeat('x', 1000) || '/0', '0')"), 't', 'so they are free');
	$next->disconnect;
	$b->assert_clean($zk, '/c/run');
};

done_testing;
