# Copyright (c) 2026, zklock contributors
#
# A transaction that was told that its server leads, and has written, does not commit when
# leadership was lost in between; zklock.on_lock_loss applies. Leadership is not given up
# while such a transaction commits.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::Election;

my $path = '/e/leader';
my ($zk, $a) = cast('a', conf => ['max_prepared_transactions = 1']);
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

subtest 'nothing was lost: the transaction commits' => sub {
	$election->work($s);
	is($s->try('COMMIT')->{sqlstate}, '00000', 'it commits');
	$a->value('TRUNCATE work');
};

subtest 'the term ended, even if the server leads again' => sub {
	$election->work($s);
	delete_node();
	is($s->query("SELECT zk_is_leader('$path')"), 't', 'it leads again, in another term');
	refused($s->try('COMMIT'), 'the transaction fails at commit');

	$s->query('BEGIN');
	$s->query("SELECT zk_is_leader('$path')");
	delete_node();
	is($s->try('COMMIT')->{sqlstate}, '00000', 'one that has written nothing does not');

	$election->work($s);
	delete_node();
	refused($s->try("PREPARE TRANSACTION 'p'"), 'nor is one prepared');

	my $leads = "SELECT zk_is_leader('$path')";
	my %asked = (
		'a savepoint changes nothing'           => [ $leads, 'SAVEPOINT s' ],
		'who asked for the term relies on it'   => [ 'SAVEPOINT s', "SELECT zk_fencing_token('$path')", 'ROLLBACK TO s' ],
		'so does who waited to lead'            => ["SELECT zk_await_leadership('$path')"]);
	foreach my $name (sort keys %asked)
	{
		foreach my $said ('BEGIN', @{ $asked{$name} }, 'INSERT INTO work VALUES (1)')
		{
			my $answer = $s->query($said);
			is($answer, 't', $said) if $said =~ /zk_is_leader|zk_await/;
		}
		delete_node();
		refused($s->try('COMMIT'), $name);
	}
};

subtest 'the guard can be laxer or stricter' => sub {
	$s->query('SET zklock.commit_guard = off');
	$election->work($s);
	delete_node();
	is($s->try('COMMIT')->{sqlstate}, '00000', 'off: it commits');
	$a->value('TRUNCATE work');
	$s->query('SET zklock.commit_guard = quorum');
	$election->work($s);
	is($s->try('COMMIT')->{sqlstate}, '00000', 'quorum: it commits when a quorum has seen the node');
	$a->value('TRUNCATE work');
	$election->work($s);
	delete_node();
	refused($s->try('COMMIT'), 'or fails');
	$s->query('RESET zklock.commit_guard');
};

# A loss interrupts the statement that runs then.
sub run_on($session)
{
	$session->query_start('SELECT pg_advisory_lock(1)');
	$a->wait_value("SELECT wait_event FROM pg_stat_activity WHERE pid = @{[ $session->pid ]}", 'advisory');
	return;
}

subtest 'on_lock_loss interrupts the session' => sub {
	$s->query("SET zklock.on_lock_loss = 'cancel'");
	$election->work($s);
	$other->query('SELECT pg_advisory_lock(1)');
	run_on($s);
	delete_node();
	my $result = $s->result;
	is($result->{sqlstate}, '57014', 'its statement is cancelled');
	$s->query('ROLLBACK');
	run_on($s);
	delete_node();
	$other->query('SELECT pg_advisory_unlock(1)');
	is($s->result->{ok}, 1, 'a transaction that has not asked is left alone');
	$s->query('SELECT pg_advisory_unlock(1)');

	my $t = $a->session;
	$t->query("SET zklock.on_lock_loss = 'terminate'");
	$election->work($t);
	$other->query('SELECT pg_advisory_lock(1)');
	run_on($t);
	delete_node();
	$result = $t->result;
	is($result->{severity}, 'FATAL', 'with terminate, so is its connection');
	is($result->{sqlstate}, '57P01', 'in PostgreSQL\'s way');
	is($a->value('SELECT count(*) FROM work'), '0', 'nothing is left of its work');
	$other->query('SELECT pg_advisory_unlock(1)');
	$s->query('RESET zklock.on_lock_loss');
};

subtest 'a server that is stopped, or cut off, does not lead' => sub {
	my $worker = $a->worker_pid;
	$election->work($s);
	freeze($worker);
	wait_until { $election->leads($a) eq 'f' } 'the lease to lapse';
	is($a->value('SELECT state, is_leader FROM zk_elections'), 'suspended|f', 'it is suspended');
	$s->query_start('COMMIT');
	$a->wait_event($s, 'guard');
	ok($s->busy, 'the commit waits for proof');
	thaw($worker);
	is($s->result->{sqlstate}, '00000', 'and commits when the term is proved to go on');
	$election->wait_state($a, 'elected');
	$a->value('TRUNCATE work');
};

$election->over($a);
