# Copyright (c) 2026, zklock contributors
#
# zklock.on_lock_loss: what a session that loses a lock is told, and when. And what the server log tells: it
# warns, and names the paths and the processes. sql/guard.sql has the
# default, abort, and locks of trees that are lost.

use Zklock::Test;
use Encode qw(encode_utf8);
use Zklock::Cast qw(fails);

my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '4s', faults => '');
$a->value('CREATE TABLE t (i int)');

sub lose($path) { return $zk->shell->remove($path, 'first'); }

# A statement that goes on until $blocker unlocks, or somebody interrupts it.
my $blocker = $a->session;
$blocker->query('SELECT pg_advisory_lock(1)');
my $endless = 'SELECT pg_advisory_lock(1)';

sub start_endless($session, $statement = $endless)
{
	$session->query_start($statement);
	return $a->wait_event($session, 'advisory');
}

# A session for which the setting is this, or the default if there is none, with a lock; the other way round, it is
# set when the lock is held.
sub holder($path, $setting, $later = 0)
{
	my $session = $a->session;
	my @sql     = ($setting ? "SET zklock.on_lock_loss = $setting" : (), "SELECT zk_lock('$path')");
	$session->query($_) foreach $later ? reverse @sql : @sql;
	return $session;
}

# One that runs such a statement in a transaction
sub running($path, $setting, %opt)
{
	my $session = holder($path, $setting, $opt{later});
	$session->query('BEGIN; INSERT INTO t VALUES (1)');
	start_endless($session, $opt{statement} // $endless);
	return $session;
}

my %ends = (
	cancel    => [ '57014', severity => 'ERROR', message => 'canceling statement due to user request' ],
	terminate => [ '57P01', severity => 'FATAL', message => 'terminating connection due to administrator command' ]);

sub interrupted_is($session, $path, $how, $mark)
{
	my ($sqlstate, %says) = @{ $ends{$how} };
	fails($session->result, $sqlstate, "$path: PostgreSQL ends it", %says);
	named_in_log($session, $path, $mark);
	return;
}

# The worker has logged which lock the session lost.
sub named_in_log($session, $path, $mark)
{
	return $a->assert_log($mark, qr/[Pp]rocess @{[ $session->pid ]} has lost "\Q$path\E"/, 'the log names the lock');
}

foreach my $case (
	[ 'cancel',    'set before the lock is taken' ],
	[ 'cancel',    'set when it is held', later => 1 ],
	[ 'cancel',    'in spite of an exception handler', statement =>
		  "DO \$\$ BEGIN BEGIN PERFORM pg_advisory_lock(1); EXCEPTION WHEN OTHERS THEN NULL; END; END \$\$" ],
	[ 'terminate', 'set before the lock is taken' ])
{
	my ($how, $name, %opt) = @$case;
	subtest "$how, $name: the statement ends" => sub {
		my $path = "/o/$how" . ($name =~ s/\W/-/gr);
		my $mark = $a->log_mark;
		my $s    = running($path, $how, %opt);
		lose($path);
		interrupted_is($s, $path, $how, $mark);
		return if $how eq 'terminate';
		is($s->try('SELECT 1')->{sqlstate}, '25P02', 'the transaction has failed');
		$s->query('ROLLBACK');
		is($s->query('SELECT 1'), 1, 'the session goes on');
		start_endless($s);
		$s->cancel;
		fails($s->result, '57014', 'and is cancelled as ever', message => 'canceling statement due to user request');
	};
}

subtest 'an idle session has no statement to be cancelled, and its loss does not explain what ends a later one' => sub {
	foreach my $case ([ 'idle', 1 ], [ 'idle-at-once', 1 ], [ 'idle-outside', 0 ], [ 'idle-released', 0 ])
	{
		my ($name, $in_block) = @$case;
		my $s = holder("/o/$name", 'cancel');
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
		# Not even if the lock that is held by then has the memory of the lost one.
		if ($name eq 'idle-released')
		{
			$s->query("SELECT zk_unlock('/o/$name')");
			$a->wait_value("SELECT count(*) FROM zk_locks WHERE path = '/o/$name'", 0);
			$s->query("SELECT zk_lock('/o/$name')");
		}
		start_endless($s);
		$s->cancel;
		unlike($s->result->{error}, qr/was lost/, "$name: is not told of it when cancelled later");
	}
};

subtest 'terminate: an idle session ends, too' => sub {
	my $mark = $a->log_mark;
	my $s = holder('/o/idle-terminate', 'terminate');
	lose('/o/idle-terminate');
	$a->wait_value('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $s->pid, 0);
	$a->wait_log(qr/FATAL:  terminating connection due to administrator command/, $mark);
	named_in_log($s, '/o/idle-terminate', $mark);
};

subtest 'who has come in the place of a session that has lost a lock is left alone' => sub {
	my $s = holder('/o/left', 'cancel');
	$a->set_faults('slow-losses');
	lose('/o/left');
	# Between the loss and the signal, the worker waits.
	$a->wait_lock($s, 'lost', '/o/left');
	$s->disconnect;
	# PostgreSQL 15 gives the slot that was left last to the next.
	my @next = map { $a->session } 1 .. 3;
	start_endless($_, 'SELECT pg_advisory_lock_shared(1)') foreach @next;
	$a->value("SELECT zk_lock('/o/barrier') AND zk_unlock('/o/barrier')");
	$blocker->query('SELECT pg_advisory_unlock(1)');
	is($_->result->{sqlstate}, '00000', 'its statement ends well') foreach @next;
	$_->disconnect foreach @next;
	$blocker->query('SELECT pg_advisory_lock(1)');
	$a->set_faults('');
};

subtest 'whatever the reason of a loss, those that held nothing are not disturbed' => sub {
	my $mark = $a->log_mark;
	my %s = map { $_ => running("/o/ended-$_", $_) } qw(cancel terminate abort);
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
	%s = map { $_ => running("/o/unproved-$_", $_) } qw(cancel terminate);
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
		is($result->{sqlstate}, $ends{$how}[0], "$how: it ends");
		$a->assert_log($mark, qr/CONTEXT:  while waiting for ExclusiveLock on ZooKeeper path "\/o\/other"\n\tlock on ZooKeeper path "\/o\/told-\Q@{[ encode_utf8($shown) ]}\E" was lost/,
			'with a context that names the lock');
		like($result->{context}, qr/lock on ZooKeeper path "\/o\/told-\Q$shown\E" was lost/, 'also to the client') if $how eq 'cancel';
	}
};

my ($s, $s2) = ($a->session, $a->session);
my ($p, $p2) = ($s->pid, $s2->pid);

# A subtest: the sessions take something, it is lost in a way, which tells what the log warns of, and the log has
# details of several lines.
sub warns($name, $sql, $sql2, $way, @details)
{
	return subtest $name => sub {
		$s->query($sql);
		$s2->query($sql2) if $sql2;
		my $mark   = $a->log_mark;
		my $detail = join('\n\t', @details);
		my $loss   = $way->();
		$a->assert_log($mark, qr/WARNING:  $loss\n.*DETAIL:  $detail\n(?!\t)/, 'the log warns, with names');
		my @losses = $a->log_since($mark) =~ /Process \d+ has lost "[^"]*"/g;
		my %once   = map { $_ => 1 } @losses;
		is(scalar @losses, scalar keys %once, 'each once');
		$proxy->heal;
		$_->query('SELECT zk_unlock_all()') foreach $s, $s2;
		$a->wait_session;
	};
}

my $expire = sub { $a->expire_session($zk); return 'ZooKeeper session ended: session expired' };
warns('the session ends: two locks and a permit are lost',
	"SELECT zk_lock('/l/1'), zk_semaphore_acquire('/l/s', 1)", "SELECT zk_lock_shared('/l/2')", $expire,
	'Locks lost: 3\. Waiting requests that queue again: \d+\.',
	("Process (?:$p has lost \"/l/(?:1|s/leases)\"|$p2 has lost \"/l/2\")\\.") x 3);
warns('of many losses the first twenty are named',
	"SELECT count(zk_lock('/l/' || i)) FROM generate_series(1, 23) i", undef, $expire,
	'Locks lost: 23\. Waiting requests that queue again: 0\.', ("Process $p has lost \"/l/\\d+\"\\.") x 20, 'And 3 more\.');
warns('a node is deleted by someone else: its holders are named',
	"SELECT zk_lock_shared('/l/2')", "SELECT zk_lock_shared('/l/2')", sub {
		my ($node) = $zk->children('/l/2');
		$zk->shell->delete("/l/2/$node");
		return qq(node "/l/2/$node" of lock "/l/2" was deleted by someone else);
	},
	'Its holder has lost the lock; waiting sessions queue again\.',
	map { "Process $_ has lost \"/l/2\"\\." } $p, $p2);
warns('nothing is proved for too long: what is lost is named',
	"SELECT zk_lock('/l/1')", undef,
	sub { $proxy->cut; return 'the ZooKeeper session was not proved to be alive for a session timeout' },
	'Locks lost: 1\.', "Process $p has lost \"/l/1\"\\.");

subtest 'a session that ends without locks is no reason to warn' => sub {
	my $mark = $a->log_mark;
	$a->expire_session($zk);
	$a->assert_log($mark, qr/LOG:  ZooKeeper session ended: session expired\n.*DETAIL:  Locks lost: 0\./, 'it is logged');
};

done_clean($zk, $a);
