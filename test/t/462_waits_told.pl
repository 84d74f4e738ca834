# Copyright (c) 2026, zklock contributors
#
# How waits are reported: in the CONTEXT of errors that end one, and, with log_lock_waits, in
# the log, also if a COMMIT waits for proof.

use Zklock::Test;

my ($zk, $a) = cast('a', timeout => '8s', conf => [ 'log_lock_waits = on', "deadlock_timeout = '100ms'" ]);
END { $zk->resume if $zk; }
$a->value('CREATE TABLE t (i int)');
my $away = qr/ZooKeeper (?:cannot be reached; the last error, at \d{4}-\d\d-\d\d [^,]*, was: .+|server \S+ is connected, but the session is not proved to be alive)/;

my $holder = $a->session(name => 'holder');
$holder->query("SELECT zk_lock('/w/taken')");
$holder->query("SELECT zk_lock('/w/b\x{e4}r')");
$holder->query("SELECT zk_semaphore_acquire('/w/permits', 1)");

# What ends a wait, and the SQLSTATE it gives
my %ends = (
	lock_timeout      => [ "SET lock_timeout = '300ms'",      '55P03' ],
	statement_timeout => [ "SET statement_timeout = '300ms'", '57014' ],
	cancel            => [ undef,                             '57014' ]);
my %waits = (
	exclusive => [ "SELECT zk_lock('/w/taken')",             'ExclusiveLock on ZooKeeper path "/w/taken"' ],
	shared    => [ "SELECT zk_xact_lock_shared('/w/taken')", 'ShareLock on ZooKeeper path "/w/taken"' ],
	several   => [ "SELECT zk_lock(ARRAY['/w/taken-too', '/w/taken'])", 'ExclusiveLock on ZooKeeper path "/w/taken"' ],
	tree      => [ "SELECT zk_lock_tree('/w/taken/part', '/w')", 'ShareLock on ZooKeeper path "/w/taken"' ],
	permit    => [ "SELECT zk_semaphore_acquire('/w/permits', 1)", 'SemaphorePermit on ZooKeeper path "/w/permits"' ]);

# The result of a wait that comes to such an end
sub ended
{
	my ($end, $sql, $session) = @_;
	my $s = $session || $a->session;
	$s->query($ends{$end}[0]) if $ends{$end}[0];
	$s->query_start($sql);
	if ($end eq 'cancel')
	{
		$a->wait_event($s, 'lock');
		$s->cancel;
	}
	my $result = $s->result;
	$s->disconnect unless $session;
	return $result;
}

foreach my $end (sort keys %ends)
{
	subtest "the error of $end says what was waited for" => sub {
		foreach my $wait (sort keys %waits)
		{
			my $result = ended($end, $waits{$wait}[0]);
			is($result->{sqlstate}, $ends{$end}[1], "$wait: the SQLSTATE");
			is($result->{context}, "while waiting for $waits{$wait}[1]", 'the context');
		}
	};
}

subtest 'a session that is terminated leaves it in the log' => sub {
	my $mark = $a->log_mark;
	my $s    = $a->session;
	$s->start_waiting("SELECT zk_lock('/w/taken')");
	$s->terminate;
	$a->assert_log($mark,
		qr/FATAL:  terminating connection due to administrator command\n.*CONTEXT:  while waiting for ExclusiveLock on ZooKeeper path "\/w\/taken"\n/,
		'FATAL, with a CONTEXT');
	$s->disconnect;
};

subtest 'the path needs no conversion, which could fail' => sub {
	$a->value("CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
	my $s = $a->session(dbname => 'latin1');
	$s->query($_) foreach 'CREATE EXTENSION zklock', "SET client_encoding = 'LATIN1'";
	my $result = ended('lock_timeout', "SELECT zk_lock('/w/b' || chr(228) || 'r')", $s);
	is($result->{sqlstate}, '55P03', 'a database of another encoding: the SQLSTATE');
	is($result->{context}, 'while waiting for ExclusiveLock on ZooKeeper path "/w/b\xc3\xa4r"', 'the context');
	$s->disconnect;
};

# Until the lease has passed; it is lost eight seconds later.
sub go_away
{
	$a->wait_session;
	$zk->pause;
	$a->wait_value("SELECT lease_remaining FROM zk_session", '00:00:00');
	return;
}

subtest 'while ZooKeeper is away' => sub {
	my $mark   = $a->log_mark;
	my $writer = $a->session(name => 'writer');
	my $other  = $a->session(name => 'other');
	foreach my $i (1, 2)
	{
		my $s = ($writer, $other)[ $i - 1 ];
		$s->query($_) foreach 'BEGIN', "SELECT zk_xact_lock('/w/writer$i')", "INSERT INTO t VALUES ($i)",
		  "SET LOCAL statement_timeout = '50ms'";
	}
	my $waiter = $a->session(name => 'waiter');
	go_away();
	$_->query_start('COMMIT') foreach $writer, $other;
	$waiter->query_start("SELECT zk_lock('/w/free')");
	my $pid = $writer->pid;
	$a->assert_log($mark,
		qr/LOG:  process $pid still waiting for proof of its ZooKeeper locks before commit after \d+ ms\n.*DETAIL:  $away\.\n/,
		'log_lock_waits tells of a COMMIT that waits, and why');
	$pid = $waiter->pid;
	$a->assert_log($mark,
		qr/LOG:  process $pid still waiting for ExclusiveLock on ZooKeeper path "\/w\/free" after [\d.]+ ms\n.*DETAIL:  $away\.\n/,
		'and why a lock that is free is not had');
	$a->wait_event($writer, 'guard');
	pass('pg_stat_activity tells it from a wait for a lock');
	ok($writer->busy, 'statement_timeout does not end a COMMIT');

	$other->cancel;
	my $result = $other->result;
	is($result->{sqlstate}, '57014', 'a cancellation does');
	like($result->{context}, qr/^while waiting for proof of ZooKeeper locks before commit: $away$/, 'with a context');
	foreach my $end (sort keys %ends)
	{
		like(ended($end, "SELECT zk_lock('/w/away')")->{context},
			qr/^while waiting for ExclusiveLock on ZooKeeper path "\/w\/away": $away$/, "$end: the context names the reason");
	}

	$zk->resume;
	ok($writer->result->{ok}, 'the other COMMIT succeeds when ZooKeeper is back');
	$pid = $writer->pid;
	$a->assert_log($mark, qr/LOG:  process $pid acquired proof of its ZooKeeper locks before commit after \d+ ms\n/,
		'as the log tells');
	is($a->value('SELECT string_agg(i::text, $$ $$) FROM t'), '1', 'and alone has written');
	is($waiter->finish, 't', 'a lock is had again');
	is(scalar(() = $a->log_since($mark) =~ /process $pid (?:still waiting for|acquired) proof/g), 2, 'each was logged once');
	$_->disconnect foreach $writer, $other, $waiter;
};

subtest 'statement_timeout ends the COMMIT of a procedure' => sub {
	my $s = $a->session;
	$s->query($_) foreach "SET statement_timeout = '1s'", "SELECT zk_lock('/w/procedure')";
	go_away();
	my $result = $s->try('DO $$ BEGIN INSERT INTO t VALUES (3); COMMIT; END $$');
	is($result->{message}, 'canceling statement due to statement timeout', 'the timeout ends it');
	like($result->{context}, qr/^while waiting for proof of ZooKeeper locks before commit: $away\nPL\/pgSQL function .* at COMMIT/,
		'the context leads to the COMMIT');
	$zk->resume;
	$a->wait_session;
	is($a->value('SELECT count(*) FROM t'), 1, 'and nothing is written');
	$s->disconnect;
};

$holder->disconnect;
$a->assert_clean($zk, map { "/w/$_" } qw(taken taken-too free away writer1 writer2 procedure permits/leases permits/locks), "b\x{e4}r");
done_testing;
