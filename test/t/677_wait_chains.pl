# Copyright (c) 2026, zklock contributors
#
# Sessions that wait for another one of their server, which waits for another server: what is told
# of them stays the same as long as they wait, and names the session that is in the way.

use Zklock::Test;
use Zklock::Deadlock;

my $zk = Zklock::ZooKeeper->standalone;
my ($a, $b) = map { Zklock::Server->new($_, zookeeper => $zk, conf => [ "deadlock_timeout = '50ms'", "cluster_name = '$_'" ]) } qw(a b);
my ($a1, $a2, $a3) = map { $a->session(name => $_) } qw(a1 a2 a3);
my ($b1, $b2, $b3) = map { $b->session(name => $_) } qw(b1 b2 b3);
my $advisory = 'ExclusiveLock on advisory lock \[.*\]';

sub zk { my ($path, $mode) = @_; return ($mode || 'Exclusive') . qq{Lock on ZooKeeper path "$path"}; }

# Waits for an advisory lock of its server.
sub waits_here
{
	my ($session, $key) = @_;
	$session->query_start("SELECT pg_advisory_xact_lock($key)");
	$session->server->wait_value('SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $session->pid, 'Lock');
	return;
}

sub waits
{
	my ($session, $path, $function) = @_;
	$session->query_start('SELECT ' . ($function || 'zk_xact_lock') . "('$path')");
	$session->server->wait_queued($session, $path);
	return;
}

# What is told of all waits at this moment
sub told
{
	return join '', map { $zk->shell->get("/zklock-waits/$_") } $zk->children('/zklock-waits');
}

sub clean { return Zklock::Server->assert_clean($zk, [ $a, $b ], '/d/a', '/d/b', '/d/p', '/zklock-waits'); }

subtest 'a server tells of a wait once' => sub {
	in_transactions($a1, $a2, $a3, $b1);
	$b1->query("SELECT zk_xact_lock_shared('/d/b')");
	$a1->query('SELECT pg_advisory_xact_lock(1)');
	$a2->query("SELECT zk_xact_lock_shared('/d/a')");
	$a2->query("SELECT zk_xact_lock('/d/a')");
	$a1->query("SELECT zk_xact_lock_shared('/d/p')");
	$a3->query('SELECT pg_advisory_xact_lock(0)');
	waits($a3, '/d/a');
	waits_here($a2, 1);
	waits($a1, '/d/b');
	my @told;
	wait_until { @told = $zk->children('/zklock-waits'); @told == 1 && 2 == (() = told() =~ /^wait/mg) } 'both to be told';
	my $sent = $a->value('SELECT requests FROM zk_session');
	$a->wait_value("SELECT requests > $sent + 20 FROM zk_session", 't');
	is_deeply([ $zk->children('/zklock-waits') ], \@told, 'rounds later it is the same record');
	$b1->query('COMMIT');
	foreach my $session ($a1, $a2, $a3)
	{
		is($session->result->{sqlstate}, '00000', $session->name . ' goes on');
		$session->query('COMMIT');
	}
	clean();
};

subtest 'a bystander whose wait ends with the same one is not told to be in the way' => sub {
	in_transactions($a1, $a2, $b1, $b2);
	$b1->query("SELECT zk_xact_lock_shared('/d/p')");
	$a1->query('SELECT pg_advisory_xact_lock(1)');
	$b2->query('SELECT pg_advisory_xact_lock(1)');
	$a2->query("SELECT zk_xact_lock('/d/a')");
	waits($a1, '/d/p');
	waits_here($a2, 1);
	waits_here($b1, 1);
	$b->settle;
	waits($b2, '/d/p', 'zk_xact_lock_shared');
	one_victim([ $a1, $b1, $b2 ], [ $b2, zk('/d/p', 'Share'), $a1, zk('/d/p'), $b1, $advisory ]);
	is($a2->result->{sqlstate}, '00000', 'the bystander goes on');
	$a2->query('COMMIT');
	clean();
};

subtest 'a session that waits for its own server alone keeps a reader of another one back' => sub {
	in_transactions($a1, $a2, $b1, $b2);
	$_->query("SELECT zk_xact_lock_shared('/d/p')") foreach $a1, $a2;
	$b1->query("SELECT zk_xact_lock('/d/b')");
	$b2->query('SELECT pg_advisory_xact_lock(0)');
	waits($a2, '/d/b');
	waits($a1, '/d/p');
	waits_here($b1, 0);
	$b->settle;
	waits($b2, '/d/p', 'zk_xact_lock_shared');
	one_victim([ $a1, $a2, $b1, $b2 ], [ $b2, zk('/d/p', 'Share'), $a1, zk('/d/p'), $a2, zk('/d/b'), $b1, $advisory ]);
	clean();
};

subtest 'a session that holds nothing stands between the two locks of another one' => sub {
	in_transactions($a1, $b1);
	$b1->query("SELECT zk_xact_lock_shared('/d/p')");
	waits($a1, '/d/p');
	$b->settle;
	waits($b1, '/d/p');
	is(one_victim([ $a1, $b1 ], [ $b1, zk('/d/p'), $a1, zk('/d/p') ])->name, 'b1', 'the youngest gave up');
	clean();
};

subtest "other waits behind those of a deadlock do not matter, time $_" => sub {
	in_transactions($a1, $a2, $b1, $b2, $b3);
	$a1->query('SELECT pg_advisory_xact_lock(1)');
	$b1->query('SELECT pg_advisory_xact_lock(1)');
	$b2->query("SELECT zk_xact_lock_shared('/d/b')");
	$a2->query("SELECT zk_xact_lock_shared('/d/a')");
	$b2->query("SELECT zk_xact_lock('/d/b')");
	$b1->query("SELECT zk_xact_lock_shared('/d/p')");
	waits($a1, '/d/p');
	$b3->query('SELECT pg_advisory_xact_lock(0)');
	waits($b3, '/d/b');
	waits_here($b2, 1);
	waits_here($a2, 1);
	waits($b1, '/d/a');
	is(one_victim([ $a1, $a2, $b1 ], [ $b1, zk('/d/a'), $a2, $advisory, $a1, zk('/d/p') ])->name, 'b1', 'the youngest gave up');
	foreach my $session ($b2, $b3)
	{
		is($session->result->{sqlstate}, '00000', $session->name . ' goes on');
		$session->query('COMMIT');
	}
	clean();
} foreach 1 .. 3;

done_testing();
