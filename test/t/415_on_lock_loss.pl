# Copyright (c) 2026, zklock contributors
#
# zklock.on_lock_loss: what a session that loses a lock is told, and when.

use strict;
use warnings;
use Test::More;
use Zklock::Server;
use Zklock::Util qw(freeze thaw);
use Zklock::ZooKeeper;

my $zk = Zklock::ZooKeeper->standalone;
my $a = Zklock::Server->new('a', zookeeper => $zk, conf => ["zklock.session_timeout = '4s'"]);
$a->value('CREATE TABLE t (i int)');

sub lose
{
	my ($path) = @_;
	$zk->shell->delete("$path/$_") foreach grep { /-\d{10}$/ } $zk->children($path);
	return;
}

# A statement that goes on until $blocker unlocks, or somebody interrupts it.
my $blocker = $a->session;
$blocker->query('SELECT pg_advisory_lock(1)');
my $endless = 'SELECT pg_advisory_lock(1)';

sub start_endless
{
	my ($session, $statement) = @_;
	$session->query_start($statement || $endless);
	$a->wait_value('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $session->pid, 'advisory');
	return;
}

# A session that holds a lock and runs such a statement.
sub running
{
	my ($path, %opt) = @_;
	my $session = $a->session(%{ $opt{session} || {} });
	$session->query("SET zklock.on_lock_loss = $opt{before}") if $opt{before};
	$session->query("SELECT zk_lock('$path')");
	$session->query("SET zklock.on_lock_loss = $opt{after}") if $opt{after};
	$session->query('BEGIN');
	$session->query('INSERT INTO t VALUES (1)');
	start_endless($session, $opt{statement});
	return $session;
}

my %reason = (
	deleted => qr/The lock's node was deleted by someone else\./,
	ended   => qr/The ZooKeeper session ended\./,
	unproved => qr/The ZooKeeper session was not proved to be alive for a session timeout\./);

sub interrupted_is
{
	my ($session, $path, $how, $reason, $mark) = @_;
	my $result = $session->result;
	my ($severity, $sqlstate, $message) =
	  $how eq 'cancel'
	  ? ('ERROR', '40001', "canceling statement because lock on ZooKeeper path \"$path\" was lost")
	  : ('FATAL', '57P01', "terminating connection because lock on ZooKeeper path \"$path\" was lost");
	is($result->{severity} || '', $severity, "$path: the client gets the severity") or diag explain $result;
	is($result->{sqlstate}, $sqlstate, 'the SQLSTATE');
	is($result->{message},  $message,  'the message');
	like($result->{error}, qr/DETAIL:  $reason/, 'the reason');
	like($result->{error}, qr/HINT:  Others may have held the lock/, 'with a hint');
	$a->wait_log(qr/\Q$severity:  $message\E\n.*$reason/, $mark);
	pass('and so does the log');
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
		interrupted_is($s, "/o/cancel-$when", 'cancel', $reason{deleted}, $mark);
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
	$s->cancel;
	is($s->result->{sqlstate}, '57014', 'a lock lost and released before has nothing to do with a cancel');
	$s->disconnect;
};

subtest 'no exception handler keeps a loss from having its effect' => sub {
	# Neither a handler nor a savepoint keeps a loss from having its effect.
	my $mark = $a->log_mark;
	my $s = running('/o/handler', before => 'cancel', statement =>
		  "DO \$\$ BEGIN BEGIN PERFORM pg_advisory_lock(1); EXCEPTION WHEN OTHERS THEN NULL; END; END \$\$");
	lose('/o/handler');
	interrupted_is($s, '/o/handler', 'cancel', $reason{deleted}, $mark);
	$s->disconnect;
};

subtest 'an idle session has no statement to be cancelled' => sub {
	# A session that is idle has no statement to be cancelled, in a transaction or not.
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
		$s->cancel;
		is($s->result->{sqlstate}, '57014', "$name: is not told of it when cancelled later");
		$s->disconnect;
	}
};

subtest 'terminate: the session ends' => sub {
	my $mark = $a->log_mark;
	my $s = running('/o/terminate', before => 'terminate');
	lose('/o/terminate');
	interrupted_is($s, '/o/terminate', 'terminate', $reason{deleted}, $mark);
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
	$a->wait_log(qr/FATAL:  terminating connection because lock on ZooKeeper path "\/o\/idle-terminate" was lost/, $mark);
	pass('terminate: also who is idle');
	$s->disconnect;
};

subtest 'sessions are told the reason of a loss, and those that held nothing are not disturbed' => sub {
	my $mark = $a->log_mark;
	my %s = map { $_ => running("/o/ended-$_", before => $_) } qw(cancel terminate abort);
	my $bystander = $a->session;
	$bystander->query('SET zklock.on_lock_loss = terminate');
	start_endless($bystander);
	$a->expire_session($zk);
	interrupted_is($s{$_}, "/o/ended-$_", $_, $reason{ended}, $mark) foreach qw(cancel terminate);
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
	interrupted_is($s{$_}, "/o/unproved-$_", $_, $reason{unproved}, $mark) foreach qw(cancel terminate);
	$_->disconnect foreach values %s;
	$bystander->cancel;
	$bystander->disconnect;
	$a->wait_session;
	is($a->value('SELECT count(*) FROM t'), 0, 'nothing was written');
};

subtest 'an idle session in a database of another encoding is told which path it has lost' => sub {
	$a->value("CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
	$a->session(dbname => 'latin1')->query('CREATE EXTENSION zklock');
	my $s = $a->session(dbname => 'latin1');
	$s->query("SET client_encoding = 'LATIN1'");
	$s->query('SET zklock.on_lock_loss = terminate');
	$s->query("SELECT zk_lock('/o/latin1-b' || chr(228) || 'r')");
	my $mark = $a->log_mark;
	lose("/o/latin1-b\x{e4}r");
	$a->wait_log(qr/FATAL:  .*\n.*/, $mark);
	$a->assert_log($mark, qr/FATAL:  terminating connection because lock on ZooKeeper path "\/o\/latin1-b\\xc3\\xa4r" was lost/,
		'who is idle in a database of another encoding is told why');
	$s->disconnect;
};

Zklock::Server->assert_clean($zk, [$a], map { "/o/$_" } qw(abort cancel-before cancel-after handler idle
	terminate idle-terminate ended-cancel ended-terminate ended-abort unproved-cancel unproved-terminate), "latin1-b\x{e4}r");
done_testing;
