# Copyright (c) 2026, zklock contributors
#
# zklock.on_lock_loss: what a session that loses a lock is told, and when. And what the server log tells: it
# warns, and names the paths and the processes.

use Zklock::Test;
use Encode qw(encode_utf8);

my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '4s');
$a->value('CREATE TABLE t (i int)');

sub lose($path)
{
	$zk->shell->delete("$path/$_") foreach grep { /-\d{10}$/ } $zk->children($path);
	return;
}

# A statement that goes on until $blocker unlocks, or somebody interrupts it.
my $blocker = $a->session;
$blocker->query('SELECT pg_advisory_lock(1)');
my $endless = 'SELECT pg_advisory_lock(1)';

sub start_endless($session, $statement = undef)
{
	$session->query_start($statement || $endless);
	$a->wait_value('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $session->pid, 'advisory');
	return;
}

# A session that holds a lock and runs such a statement.
sub running($path, %opt)
{
	my $session = $a->session(%{ $opt{session} || {} });
	$session->query("SET zklock.on_lock_loss = $opt{before}") if $opt{before};
	$session->query("SELECT zk_lock('$path')");
	$session->query("SET zklock.on_lock_loss = $opt{after}") if $opt{after};
	$session->query('BEGIN');
	$session->query('INSERT INTO t VALUES (1)');
	start_endless($session, $opt{statement});
	return $session;
}

sub interrupted_is($session, $path, $how, $mark)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = $session->result;
	my ($severity, $sqlstate, $message) =
	  $how eq 'cancel'
	  ? ('ERROR', '57014', 'canceling statement due to user request')
	  : ('FATAL', '57P01', 'terminating connection due to administrator command');
	is($result->{severity} || '', $severity, "$path: PostgreSQL ends it") or diag explain $result;
	is($result->{sqlstate}, $sqlstate, 'with its own SQLSTATE');
	is($result->{message},  $message,  'and text');
	named_in_log($session, $path, $mark);
	return;
}

# The worker has logged which lock the session lost.
sub named_in_log($session, $path, $mark)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$a->wait_log(qr/[Pp]rocess @{[ $session->pid ]} has lost "\Q$path\E"/, $mark);
	pass('the log names the lock');
	return;
}

subtest 'abort: the statement goes on, and the commit is refused' => sub {
	my $s = running('/o/abort');
	lose('/o/abort');
	$a->wait_lock($s, 'lost', '/o/abort');
	$blocker->query('SELECT pg_advisory_unlock(1)');
	ok($s->result->{ok}, 'abort: the statement is not disturbed');
	$s->query('SELECT pg_advisory_unlock(1)');
	$blocker->query('SELECT pg_advisory_lock(1)');
	is($s->try('COMMIT')->{sqlstate}, '40001', 'but the commit is refused');
	is($s->try("SELECT zk_lock('/o/abort')")->{sqlstate}, '40001', 'the lock is not taken again behind its back');
	$s->query('SELECT zk_unlock_all()');
	is($s->query("SELECT zk_lock('/o/abort')"), 't', 'only once it was given up');
	$s->disconnect;
};

subtest 'cancel: the statement ends, and the session goes on' => sub {
	foreach my $case ([ 'before', 'set before the lock is taken' ], [ 'after', 'set when it is held' ])
	{
		my ($when, $name) = @$case;
		my $mark = $a->log_mark;
		my $s = running("/o/cancel-$when", $when => 'cancel');
		lose("/o/cancel-$when");
		interrupted_is($s, "/o/cancel-$when", 'cancel', $mark);
		is($s->try('SELECT 1')->{sqlstate}, '25P02', "cancel, $name: the transaction has failed");
		$s->query('ROLLBACK');
		is($s->query('SELECT 1'), 1, 'the session goes on');
		start_endless($s);
		$s->cancel;
		my $result = $s->result;
		is($result->{sqlstate}, '57014', 'and is cancelled as ever');
		is($result->{message}, 'canceling statement due to user request', 'with the words as ever');
		$s->disconnect;
	}
};

subtest 'a lock that was lost and released before has nothing to do with a cancel' => sub {
	# A loss while no statement runs does not explain what ends a later one, not even if the
	# lock that is held by then has the memory of the lost one.
	my $s = $a->session;
	$s->query('SET zklock.on_lock_loss = cancel');
	$s->query("SELECT zk_lock('/o/quiet')");
	lose('/o/quiet');
	$a->wait_lock($s, 'lost', '/o/quiet');
	$s->query("SELECT zk_unlock('/o/quiet')");
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
	start_endless($s, "SELECT zk_lock('/o/quiet'), pg_advisory_lock(1)");
	is($s->cancelled, '57014', 'a lock lost and released before has nothing to do with a cancel');
	$s->disconnect;
};

subtest 'no exception handler keeps a loss from having its effect' => sub {
	my $mark = $a->log_mark;
	my $s = running('/o/handler', before => 'cancel', statement =>
		  "DO \$\$ BEGIN BEGIN PERFORM pg_advisory_lock(1); EXCEPTION WHEN OTHERS THEN NULL; END; END \$\$");
	lose('/o/handler');
	interrupted_is($s, '/o/handler', 'cancel', $mark);
	$s->disconnect;
};

subtest 'an idle session has no statement to be cancelled' => sub {
	foreach my $case ([ 'idle', 1 ], [ 'idle-at-once', 1 ], [ 'idle-outside', 0 ])
	{
		my ($name, $in_block) = @$case;
		my $s = $a->session;
		$s->query('SET zklock.on_lock_loss = cancel');
		$s->query("SELECT zk_lock('/o/$name')");
		$s->query('BEGIN; INSERT INTO t VALUES (1)') if $in_block;
		lose("/o/$name");
		$a->wait_lock($s, 'lost', "/o/$name");

		# The worker has sent the signal when it has answered this.
		$a->value("SELECT zk_lock('/o/barrier') AND zk_unlock('/o/barrier')");
		if ($name eq 'idle')
		{
			ok($s->try('SELECT 1')->{ok}, 'cancel: who is idle is not disturbed');
			# What ends a statement for another reason is told as ever.
			$s->query("SAVEPOINT s; SET LOCAL statement_timeout = '10ms'");
			is($s->try($endless)->{message}, 'canceling statement due to statement timeout',
				'a timeout is a timeout');
			$s->query('ROLLBACK TO s');
			is($s->try(q{DO $$ BEGIN RAISE 'of our own' USING ERRCODE = 'admin_shutdown'; END $$})->{message},
				'of our own', 'and an error of the user\'s is his');
			$s->query('ROLLBACK TO s');
			is($s->try('COMMIT')->{sqlstate}, '40001', 'but cannot commit');
		}
		start_endless($s);
		is($s->cancelled, '57014', "$name: is not told of it when cancelled later");
		$s->disconnect;
	}
};

subtest 'terminate: the session ends' => sub {
	my $mark = $a->log_mark;
	my $s = running('/o/terminate', before => 'terminate');
	lose('/o/terminate');
	interrupted_is($s, '/o/terminate', 'terminate', $mark);
	$s->disconnect;
};

subtest 'terminate: an idle session ends, too' => sub {
	my $mark = $a->log_mark;
	my $s = $a->session;
	my $pid = $s->pid;
	$s->query('SET zklock.on_lock_loss = terminate');
	$s->query("SELECT zk_lock('/o/idle-terminate')");
	lose('/o/idle-terminate');
	$a->wait_value("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", 0);
	$a->wait_log(qr/FATAL:  terminating connection due to administrator command/, $mark);
	named_in_log($s, '/o/idle-terminate', $mark);
	$s->disconnect;
};

subtest 'whatever the reason of a loss, those that held nothing are not disturbed' => sub {
	my $mark = $a->log_mark;
	my %s = map { $_ => running("/o/ended-$_", before => $_) } qw(cancel terminate abort);
	my $bystander = $a->session;
	$bystander->query('SET zklock.on_lock_loss = terminate');
	start_endless($bystander);
	$a->expire_session($zk);
	interrupted_is($s{$_}, "/o/ended-$_", $_, $mark) foreach qw(cancel terminate);
	ok($bystander->busy, 'who held nothing is not disturbed');
	ok($s{abort}->busy,  'nor who does not want it');
	$s{abort}->terminate;
	$s{abort}->result;
	$_->disconnect foreach values %s;
	$a->wait_session;

	$mark = $a->log_mark;
	%s = map { $_ => running("/o/unproved-$_", before => $_) } qw(cancel terminate);
	my $worker = $a->worker_pid;
	freeze($worker);
	$a->wait_value("SELECT count(*) FROM zk_locks WHERE state = 'lost'", 2);
	thaw($worker);
	interrupted_is($s{$_}, "/o/unproved-$_", $_, $mark) foreach qw(cancel terminate);
	$_->disconnect foreach values %s;
	$bystander->cancel;
	$bystander->disconnect;
	$a->wait_session;
	is($a->value('SELECT count(*) FROM t'), 0, 'nothing was written');
};

# A wait of ours that ends tells which lock was lost, and so does a commit that waits for proof.
subtest 'a session that waits in a function of zklock is told which lock it has lost' => sub {
	$a->value("CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
	$a->session(dbname => 'latin1')->query('CREATE EXTENSION zklock');
	my $other = $a->session;
	$other->query("SELECT zk_lock('/o/other')");
	foreach my $case ([ 'postgres', 'cancel', "b\x{e4}r" ], [ 'latin1', 'terminate', 'b\xc3\xa4r' ])
	{
		my ($dbname, $how, $shown) = @$case;
		my $mark = $a->log_mark;
		my $s = $a->session(dbname => $dbname);
		$s->query("SET zklock.on_lock_loss = $how");
		$s->query("SELECT zk_lock('/o/told-b' || chr(228) || 'r')");
		$s->start_queued("SELECT zk_lock('/o/other')", '/o/other');
		lose("/o/told-b\x{e4}r");
		my $result = $s->result;
		is($result->{sqlstate}, $how eq 'cancel' ? '57014' : '57P01', "$how: it ends");
		$a->wait_log(qr/CONTEXT:  while waiting for ExclusiveLock on ZooKeeper path "\/o\/other"\n\tlock on ZooKeeper path "\/o\/told-\Q@{[ encode_utf8($shown) ]}\E" was lost/,
			$mark);
		pass('with a context that names the lock');
		like($result->{error}, qr/lock on ZooKeeper path "\/o\/told-\Q$shown\E" was lost/, 'also to the client') if $how eq 'cancel';
		$s->disconnect;
	}
	$other->disconnect;
};

my ($s, $s2) = ($a->session, $a->session);
my $p = $s->pid;

# A warning with its DETAIL, which is of several lines.
sub assert_warning($mark, $message, @details)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $detail = join('\n\t', @details);
	$a->assert_log($mark, qr/WARNING:  $message\n.*DETAIL:  $detail\n(?!\t)/, 'the log warns, with names');
	return;
}

subtest "the session ends: two locks and a permit are lost" => sub {
	$s->query("SELECT zk_lock('/l/1'), zk_semaphore_acquire('/l/s', 1)");
	is($s2->query("SELECT zk_lock_shared('/l/2')"), 't', 'another session holds something, too');
	my $mark = $a->log_mark;
	$a->expire_session($zk);
	assert_warning($mark, 'ZooKeeper session ended: session expired',
		'Locks lost: 3\. Waiting requests that queue again: \d+\.',
		map { "Process (?:$p has lost \"/l/(?:1|s/leases)\"|@{[$s2->pid]} has lost \"/l/2\")\\." } 1 .. 3);
	my $logged = $a->log_since($mark);
	foreach my $loss ("$p has lost \"/l/1\"", "$p has lost \"/l/s/leases\"", $s2->pid . ' has lost "/l/2"')
	{
		is(() = $logged =~ /\Q$loss\E/g, 1, "Process $loss, once");
	}
	$_->query('SELECT zk_unlock_all()') foreach $s, $s2;
	$a->wait_session;
};

subtest 'of many losses the first twenty are named' => sub {
	is($s->query("SELECT count(zk_lock('/l/' || i)) FROM generate_series(1, 23) i"), 23, '23 locks are held');
	my $mark = $a->log_mark;
	$a->expire_session($zk);
	assert_warning($mark, 'ZooKeeper session ended: session expired',
		'Locks lost: 23\. Waiting requests that queue again: 0\.',
		("Process $p has lost \"/l/\\d+\"\\.") x 20, 'And 3 more\.');
	$s->query('SELECT zk_unlock_all()');
	$a->wait_session;
};

subtest 'a node is deleted by someone else: its holders are named' => sub {
	is($_->query("SELECT zk_lock_shared('/l/2')"), 't', 'one of two holders') foreach $s, $s2;
	my ($node) = $zk->children('/l/2');
	my $mark = $a->log_mark;
	$zk->shell->delete("/l/2/$node");
	assert_warning($mark, "node \"/l/2/$node\" of lock \"/l/2\" was deleted by someone else",
		'Its holder has lost the lock; waiting sessions queue again\.',
		map { "Process $_ has lost \"/l/2\"\\." } $p, $s2->pid);
	$_->query('SELECT zk_unlock_all()') foreach $s, $s2;
};

subtest 'nothing is proved for too long: what is lost is named' => sub {
	is($s->query("SELECT zk_lock('/l/1')"), 't', 'a lock is held');
	my $mark = $a->log_mark;
	$proxy->cut;
	assert_warning($mark, 'the ZooKeeper session was not proved to be alive for a session timeout',
		'Locks lost: 1\.', "Process $p has lost \"/l/1\"\\.");
	$proxy->heal;
	$s->query('SELECT zk_unlock_all()');
	$a->wait_session;
};

subtest 'a session that ends without locks is no reason to warn' => sub {
	my $mark = $a->log_mark;
	$a->expire_session($zk);
	$a->assert_log($mark, qr/LOG:  ZooKeeper session ended: session expired\n.*DETAIL:  Locks lost: 0\./, 'it is logged');
};

$_->disconnect foreach $s, $s2;
$a->wait_session;
Zklock::Server->assert_clean($zk, [$a], '/l/1', '/l/2', map { "/o/$_" } qw(abort cancel-before cancel-after handler idle
	terminate idle-terminate ended-cancel ended-terminate ended-abort unproved-cancel unproved-terminate other), "told-b\x{e4}r");
done_testing;
