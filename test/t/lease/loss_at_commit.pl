# Copyright (c) 2026, zklock contributors
#
# A lock is lost after the last check before a commit, while the commit waits for a
# synchronous standby. Whatever zklock.on_lock_loss says, the loss must not make the COMMIT
# return before the standby has the data. If something else ends that wait, PostgreSQL warns, and the transaction's lock goes.

use Zklock::Test;

my ($zk, $primary) = cast('primary', timeout => '20s', conf => [ 'max_prepared_transactions = 5', 'wal_sender_timeout = 0' ], allows_streaming => 1);
$primary->value($_) foreach 'CREATE TABLE t (what text)', 'CREATE TABLE skew (i int)';
my $standby = Zklock::Server->standby('standby', primary => $primary, zookeeper => $zk,
	conf => [ "zklock.session_timeout = '20s'", 'max_prepared_transactions = 5', 'wal_receiver_timeout = 0' ]);
$primary->wait_value("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", 1);
$primary->set_conf('synchronous_standby_names' => '*');
$primary->wait_value("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", 1);
my $receiver = $standby->value('SELECT pid FROM pg_stat_wal_receiver');

# Returns when the worker has sent the signal, if it does.
sub lose($session, $path)
{
	$primary->lose($zk, $session, $path);
	$primary->value("SELECT zk_lock('/r/barrier') AND zk_unlock('/r/barrier')");
	return;
}

my $blocker = $primary->session;
$blocker->query('SELECT pg_advisory_lock(1)');

# A statement that is running is interrupted again, so the setting is in force.
sub cancelled_as_ever($session, $path)
{
	$session->query("SELECT zk_lock('$path-next')");
	$session->query_start('SELECT pg_advisory_lock(1)');
	$primary->wait_event($session, 'advisory');
	lose($session, "$path-next");
	is($session->result->{sqlstate}, '57014', 'afterwards the loss of a lock cancels a statement');
	return;
}

# What comes before, the commit, and what comes after; INSERT stands for that of a row with the commit's name.
my %commits = (
	'COMMIT'                 => [ 'BEGIN; INSERT', 'COMMIT' ],
	'COMMIT without a guard' => [ 'SET zklock.commit_guard = off; BEGIN; INSERT', 'COMMIT' ],
	'quorum'                 => [ 'SET zklock.commit_guard = quorum; BEGIN; INSERT', 'COMMIT' ],
	'savepoint'              => [ 'BEGIN; SAVEPOINT s; INSERT; RELEASE s; SAVEPOINT t; ROLLBACK TO t', 'COMMIT' ],
	'statement'              => [ '', 'INSERT' ],
	'procedure'              => [ '', 'DO $$ BEGIN INSERT; COMMIT; END $$' ],
	'prepare'                => [ 'BEGIN; INSERT', "PREPARE TRANSACTION 'p'", "COMMIT PREPARED 'p'" ],
	'prepared'               => [ "BEGIN; INSERT; PREPARE TRANSACTION 'q'", "COMMIT PREPARED 'q'" ],
	'rolled back'            => [ "BEGIN; INSERT; PREPARE TRANSACTION 'r'", "ROLLBACK PREPARED 'r'" ],
	'terminate'              => [ 'BEGIN; INSERT', 'COMMIT' ]);

foreach my $name (sort keys %commits)
{
	my $setting = $name eq 'terminate' ? $name : 'cancel';
	subtest "with $setting, nothing disturbs this commit: $name" => sub {
		my ($before, $commit, $after) = map { s/INSERT/INSERT INTO t VALUES ('$name')/r } @{ $commits{$name} };
		my $path = '/r/' . ($name =~ s/ /-/gr);
		my $mark = $primary->log_mark;
		my $s    = $primary->session;
		my $pid  = $s->pid;
		$s->query($_) foreach "SET zklock.on_lock_loss = $setting", "SELECT zk_lock('$path')", split /; /, $before;
		freeze($receiver);
		$s->query_start($commit);
		$primary->wait_event($s, 'SyncRep');
		lose($s, $path);
		ok($s->busy, 'it waits for the standby in spite of the loss');
		thaw($receiver);
		my $result = $s->result;
		ok($result->{ok}, 'when the standby is back it succeeds') or diag explain $result;
		unlike($primary->log_since($mark), qr/canceling the wait for synchronous replication/, 'and was not cut short');
		is($s->notices, '', 'and says nothing else') if $setting eq 'cancel';
		$s->query($after) if $after;
		$standby->wait_value("SELECT count(*) FROM t WHERE what = '$name'", 1) unless $name eq 'rolled back';
		return cancelled_as_ever($s, $path) if $setting eq 'cancel';
		$primary->wait_value("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", 0);
		$primary->assert_log($mark,
			qr/deleted by someone else.*Process $pid has lost "\Q$path\E".*FATAL:  terminating connection due to administrator command/s,
			'then the session ends, and the log says why');
	};
}

subtest 'a commit that fails after the last check leaves the setting in force' => sub {
	my ($s, $other) = map { $primary->session } 1 .. 2;
	$s->query($_) foreach 'SET zklock.on_lock_loss = cancel', "SELECT zk_lock('/r/skew')";
	foreach ($s, $other)
	{
		$_->query('BEGIN ISOLATION LEVEL SERIALIZABLE');
		$_->query('SELECT count(*) FROM skew');
	}
	$_->query('INSERT INTO skew VALUES (1)') foreach $s, $other;
	$other->query('COMMIT');
	my $result = $s->try('COMMIT');
	is($result->{message}, 'could not serialize access due to read/write dependencies among transactions',
		'the server refuses the commit');
	cancelled_as_ever($s, '/r/skew');
};

my %ends = (cancel => 'canceling wait for synchronous replication due to user request',
	terminate => 'canceling the wait for synchronous replication and terminating connection due to administrator command');

foreach my $end (sort keys %ends)
{
	subtest "a wait for the standby that ends early ($end) releases the transaction's lock before the standby has its work" => sub {
		my ($s, $next) = map { $primary->session } 1 .. 2;
		my $mark = $primary->log_mark;
		$s->query($_) foreach 'BEGIN', "SELECT zk_xact_lock('/r/early')", "INSERT INTO t VALUES ('early $end')";
		$next->start_waiting("SELECT zk_lock('/r/early')", '/r/early');
		freeze($receiver);
		$s->query_start('COMMIT');
		$primary->wait_event($s, 'SyncRep');
		ok($next->busy, 'while the commit waits nobody else has the lock');
		$s->$end;
		is($next->finish, 't', 'then the next one has it');
		my @there = map { $_->value("SELECT count(*) FROM t WHERE what = 'early $end'") } $primary, $standby;
		is("@there", '1 0', 'the work is visible here, and the standby does not have it');
		$primary->assert_log($mark, qr/WARNING:  $ends{$end}.*might not have been replicated/s, 'PostgreSQL has warned of that');
		$s->result;
		thaw($receiver);
		$next->query("SELECT zk_unlock('/r/early')");
		$standby->wait_value("SELECT count(*) FROM t WHERE what = 'early $end'", 1);
	};
}

done_clean($zk, $primary, $standby);
