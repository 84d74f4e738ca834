# Copyright (c) 2026, zklock contributors
#
# A transaction that was told that its server leads, and has written, does not commit when
# leadership was lost in between; zklock.on_lock_loss applies. Leadership is not given up
# while such a transaction commits.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::Election;

my $path = '/e/leader';
my ($zk, $proxy, $a) = cast('a', proxied => 'a', faults => '', allows_streaming => 1,
	conf => [ 'max_prepared_transactions = 1', "synchronous_standby_names = '*'", 'synchronous_commit = local' ]);
my $election = Zklock::Election->new($zk, $path);
my ($s, $other) = ($a->session, $a->session);
$election->stand($a);

sub delete_node
{
	my ($node) = $zk->children($path);
	my $mark = $a->log_mark;
	$zk->shell->delete("$path/$node");
	$a->wait_log(qr/Leadership was lost\. Its node was deleted by someone else/, $mark);
	$election->wait_state($a, 'elected');
	return;
}

sub refused($result, $name)
{
	fails($result, '40001', $name, message => qr{leadership at ZooKeeper path "/e/leader" was lost});
	is($a->value('SELECT count(*) FROM work'), '0', 'and leaves nothing');
	return;
}

my ($leads, $write) = ("SELECT zk_is_leader('$path')", 'INSERT INTO work VALUES (1)');
$a->value('CREATE TABLE work (n int)');

subtest 'nothing was lost: the transaction commits' => sub {
	foreach my $guard (qw(lease quorum))
	{
		$election->work($s);
		$s->query("SET LOCAL zklock.commit_guard = $guard");
		is($s->try('COMMIT')->{sqlstate}, '00000', "$guard: it commits");
		$a->value('TRUNCATE work');
	}
};

# What a transaction does before the term ends and the server leads again in another one; whether it can commit then.
# How it is to end, and how the term ends
foreach my $case (
	[ 'a transaction that was told it leads fails', 0, [ $leads, $write ] ],
	[ 'so does one that is prepared',               0, [ $leads, $write ], "PREPARE TRANSACTION 'p'" ],
	[ 'a savepoint changes nothing',                0, [ $leads, 'SAVEPOINT s', $write ] ],
	[ 'who asked for the term relies on it', 0, [ 'SAVEPOINT s', "SELECT zk_fencing_token('$path')", 'ROLLBACK TO s', $write ] ],
	[ 'so does who waited to lead',                 0, [ "SELECT zk_await_leadership('$path')", $write ] ],
	[ 'the guard can ask a quorum',                 0, [ 'SET LOCAL zklock.commit_guard = quorum', $leads, $write ] ],
	[ 'or be off',                                  1, [ 'SET LOCAL zklock.commit_guard = off', $leads, $write ] ],
	[ 'a resignation ends a term as well',          0, [ $leads, $write ], 'COMMIT',
		sub { is($other->query("SELECT zk_resign('$path')"), 't', 'another session has the server resign'); } ],
	[ 'who has written nothing can commit',         1, [$leads] ])
{
	my ($name, $commits, $does, $end, $ends_term) = @$case;
	subtest $name => sub {
		foreach my $sql ('BEGIN', @$does)
		{
			my $answer = $s->query($sql);
			is($answer, 't', $sql) if $sql =~ /zk_is_leader|zk_await/;
		}
		($ends_term // \&delete_node)->();
		my $result = $s->try($end // 'COMMIT');
		$commits ? is($result->{sqlstate}, '00000', 'it commits') : refused($result, 'it does not commit');
		$a->value('TRUNCATE work');
	};
}

subtest 'a transaction may rely on several elections' => sub {
	$a->set_conf('zklock.elections' => "$path, /e/other");
	$election->wait_state($a, 'elected', '/e/other');
	foreach my $order ([ $path, '/e/other' ], [ '/e/other', $path ])
	{
		foreach my $ends_term (sub { }, \&delete_node)
		{
			$s->query('BEGIN');
			is($s->query("SELECT zk_is_leader('$_')"), 't', "$_: it leads") foreach @$order, @$order;
			$s->query($write);
			$ends_term->();
			my $result = $s->try('COMMIT');
			$ends_term == \&delete_node ? refused($result, 'one was lost') : is($result->{sqlstate}, '00000', 'it leads in both');
			$a->value('TRUNCATE work');
		}
	}
	$election->stand($a);
};

# A loss interrupts the statement that runs then.
sub runs_on($session)
{
	$other->query('SELECT pg_advisory_lock(1)');
	$session->query_start('SELECT pg_advisory_xact_lock(1)');
	$a->wait_event($session, 'advisory');
	delete_node();
	return;
}

subtest 'on_lock_loss interrupts the session' => sub {
	foreach my $case ([ cancel => 'ERROR', '57014' ], [ terminate => 'FATAL', '57P01' ])
	{
		my ($policy, @expected) = @$case;
		my $t = $a->session;
		$t->query("SET zklock.on_lock_loss = '$policy'");
		runs_on($t);
		$other->query('SELECT pg_advisory_unlock(1)');
		is($t->result->{ok}, 1, "$policy: a transaction that has not asked is left alone");
		$election->work($t);
		runs_on($t);
		is_deeply([ @{ $t->result }{qw(severity sqlstate)} ], \@expected, 'one that has is not');
		$other->query('SELECT pg_advisory_unlock(1)');
		is($a->value('SELECT count(*) FROM work'), '0', 'nothing is left of its work');
	}
};

subtest 'who has come in the place of a session that wanted to be interrupted is left alone' => sub {
	my ($t, $mark, $term) = ($a->session, $a->log_mark, $election->term($a));
	$t->query("SET zklock.on_lock_loss = 'cancel'");
	$election->work($t);
	$a->set_faults('slow-losses');
	$other->query('SELECT pg_advisory_lock(1)');
	$zk->shell->delete("$path/$_") foreach $zk->children($path);
	# Between its look at what the session wants, and the signal, the worker waits.
	$a->wait_value("SELECT coalesce(max(term), 0) <> $term FROM zk_elections", 't');
	$t->disconnect;
	# PostgreSQL 15 gives the slot that was left last to the next.
	my @next = map { $a->session } 1 .. 3;
	$_->query_start('SELECT pg_advisory_lock_shared(1)') foreach @next;
	$a->wait_log(qr/Leadership was lost\. Its node was deleted by someone else/, $mark);
	$other->query('SELECT pg_advisory_unlock(1)');
	is($_->result->{sqlstate}, '00000', 'its statement ends well') foreach @next;
	$_->disconnect foreach @next;
	$a->set_faults('');
	$election->wait_state($a, 'elected');
};

subtest 'a session that waits for a lock hears of the loss, if it says so later' => sub {
	my $t = $a->session;
	is($other->query("SELECT zk_lock('/e/lock')"), 't', 'another session has the lock');
	is($t->query("SELECT zk_lock('/e/own')"), 't', 'this one has another lock');
	$election->work($t);
	$t->query("SET LOCAL zklock.on_lock_loss = 'cancel'");
	$t->query_start("SELECT zk_lock('/e/lock')");
	$a->wait_lock($t, 'waiting');
	delete_node();
	fails($t->result, '57014', 'it is cancelled', context => qr{leadership at ZooKeeper path "/e/leader" was lost});
	is($other->query("SELECT zk_unlock('/e/lock')"), 't', 'and no lock is lost');
	$t->query('ROLLBACK');
	is($t->query("SELECT zk_unlock('/e/own')"), 't', 'neither here nor there');
	$t->disconnect;
};

subtest 'a server that is stopped, or cut off, does not lead' => sub {
	my $worker = $a->worker_pid;
	$election->work($s);
	freeze($worker);
	$proxy->sustain;
	wait_until { $election->leads($a) eq 'f' } 'the lease to lapse';
	is($a->value('SELECT state, is_leader FROM zk_elections'), 'suspended|f', 'it is suspended');
	$s->query_start('COMMIT');
	$a->wait_event($s, 'guard');
	ok($s->busy, 'the commit waits for proof');
	thaw($worker);
	$proxy->heal;
	is($s->result->{sqlstate}, '00000', 'and commits when the term is proved to go on');
	$election->wait_state($a, 'elected');
};

subtest 'while such a transaction commits, no other server can lead' => sub {
	my @nodes = $zk->children($path);
	$election->work($s);
	# There is no standby, so this one waits until it need not any more.
	$s->query('SET LOCAL synchronous_commit = on');
	$s->query_start('COMMIT');
	$a->wait_event($s, 'SyncRep');
	$other->query_start("SELECT zk_resign('$path')");
	wait_until { $election->leads($a) eq 'f' } 'the server to lead no more';
	is_deeply([ $zk->children($path) ], \@nodes, 'its candidate is the first still');
	ok($other->busy, 'to resign takes as long as the commit');
	$a->set_conf(synchronous_standby_names => '');
	is($s->result->{sqlstate}, '00000', 'the transaction commits');
	is($other->finish, 't', 'then the server resigns');
	isnt(($zk->children($path))[0], $nodes[0], 'and its candidate goes to the end');
	$election->wait_state($a, 'elected');
};

$election->over($a);
