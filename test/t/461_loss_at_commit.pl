# Copyright (c) 2026, zklock contributors
#
# A lock is lost after the last check before a commit, while the commit waits for a
# synchronous standby. Whatever zklock.on_lock_loss says, the loss must not make the COMMIT
# return before the standby has the data.

use Zklock::Test;

my @conf    = ("zklock.session_timeout = '20s'", 'max_prepared_transactions = 5');
my ($zk, $primary) = cast('primary', timeout => '20s', conf => [ 'max_prepared_transactions = 5', 'wal_sender_timeout = 0' ], allows_streaming => 1);
$primary->value($_) foreach 'CREATE TABLE t (what text)', 'CREATE TABLE skew (i int)';
my $standby = Zklock::Server->standby('standby', primary => $primary, zookeeper => $zk,
	conf => [ @conf, 'wal_receiver_timeout = 0' ]);
$primary->wait_value("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", 1);
$primary->set_conf('synchronous_standby_names' => '*');
$primary->wait_value("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", 1);
my $receiver = $standby->value('SELECT pid FROM pg_stat_wal_receiver');

sub stop_standby   { freeze($receiver); return; }
sub resume_standby { thaw($receiver); return; }

# Returns when the worker has sent the signal, if it does.
sub lose($session, $path)
{
	$primary->lose($zk, $session, $path);
	$primary->value("SELECT zk_lock('/r/barrier') AND zk_unlock('/r/barrier')");
	return;
}

sub wait_event($session, $event)
{
	$primary->wait_value('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $session->pid, $event);
	return;
}

my $blocker = $primary->session;
$blocker->query('SELECT pg_advisory_lock(1)');

# A statement that is running is interrupted again, so the setting is in force.
sub cancelled_as_ever($session, $path)
{
	$session->query("SELECT zk_lock('$path-next')");
	$session->query_start('SELECT pg_advisory_lock(1)');
	wait_event($session, 'advisory');
	lose($session, "$path-next");
	is($session->result->{sqlstate}, '57014', 'afterwards the loss of a lock cancels a statement');
	return;
}

my %commits = (
	'COMMIT' => { before => [ 'BEGIN', "INSERT INTO t VALUES ('COMMIT')" ], sql => 'COMMIT' },
	'COMMIT without a guard' => {
		before => [ 'SET zklock.commit_guard = off', 'BEGIN', "INSERT INTO t VALUES ('COMMIT without a guard')" ],
		sql    => 'COMMIT' },
	'quorum' => {
		before => [ 'SET zklock.commit_guard = quorum', 'BEGIN', "INSERT INTO t VALUES ('quorum')" ],
		sql    => 'COMMIT' },
	'savepoint' => {
		before => [ 'BEGIN', 'SAVEPOINT s', "INSERT INTO t VALUES ('savepoint')", 'RELEASE s', 'SAVEPOINT t', 'ROLLBACK TO t' ],
		sql    => 'COMMIT' },
	'statement' => { before => [], sql => "INSERT INTO t VALUES ('statement')" },
	'procedure' => { before => [], sql => q{DO $$ BEGIN INSERT INTO t VALUES ('procedure'); COMMIT; END $$} },
	'prepare' => {
		before => [ 'BEGIN', "INSERT INTO t VALUES ('prepare')" ], sql => "PREPARE TRANSACTION 'p'",
		after  => "COMMIT PREPARED 'p'" },
	'prepared' => {
		before => [ 'BEGIN', "INSERT INTO t VALUES ('prepared')", "PREPARE TRANSACTION 'q'" ],
		sql    => "COMMIT PREPARED 'q'" },
	'rolled back' => {
		before => [ 'BEGIN', "INSERT INTO t VALUES ('rolled back')", "PREPARE TRANSACTION 'r'" ],
		sql    => "ROLLBACK PREPARED 'r'", silent => 1 });

my @paths;
foreach my $name (sort keys %commits)
{
	subtest "with cancel, nothing disturbs this commit: $name" => sub {
		my $commit = $commits{$name};
		my $path   = '/r/' . ($name =~ s/ /-/gr);
		push @paths, $path, "$path-next";
		my $s = $primary->session;
		$s->query($_) foreach 'SET zklock.on_lock_loss = cancel', "SELECT zk_lock('$path')", @{ $commit->{before} };
		stop_standby();
		$s->query_start($commit->{sql});
		wait_event($s, 'SyncRep');
		lose($s, $path);
		ok($s->busy, 'it waits for the standby in spite of the loss');
		resume_standby();
		ok($s->result->{ok}, 'when the standby is back it succeeds');
		is($s->notices, '', 'and says nothing else');
		$s->query($commit->{after}) if $commit->{after};
		$standby->wait_value("SELECT count(*) FROM t WHERE what = '$name'", 1) unless $commit->{silent};
		cancelled_as_ever($s, $path);
		$s->disconnect;
	};
}

subtest 'with terminate, a session is ended after its commit' => sub {
	my $path = '/r/terminate';
	my $mark = $primary->log_mark;
	my $s    = $primary->session;
	my $pid  = $s->pid;
	$s->query($_) foreach 'SET zklock.on_lock_loss = terminate', "SELECT zk_lock('$path')", 'BEGIN',
	  "INSERT INTO t VALUES ('terminate')";
	stop_standby();
	$s->query_start('COMMIT');
	wait_event($s, 'SyncRep');
	lose($s, $path);
	ok($s->busy, 'it waits for the standby in spite of the loss');
	resume_standby();
	my $result = $s->result;
	ok($result->{ok}, 'the commit succeeds') or diag explain $result;
	unlike($primary->log_since($mark), qr/canceling the wait for synchronous replication/, 'and was not cut short');
	$standby->wait_value("SELECT count(*) FROM t WHERE what = 'terminate'", 1);
	$primary->wait_value("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", 0);
	$primary->assert_log($mark,
		qr/deleted by someone else.*Process $pid has lost "\Q$path\E".*FATAL:  terminating connection due to administrator command/s,
		'then the session ends, and the log says why');
	$s->disconnect;
};

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
	$_->disconnect foreach $s, $other;
};

$_->disconnect foreach $blocker;
Zklock::Server->assert_clean($zk, [ $primary, $standby ], @paths, '/r/terminate', '/r/skew', '/r/skew-next', '/r/barrier');
done_testing;
