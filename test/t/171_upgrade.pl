# Copyright (c) 2026, zklock contributors
#
# Upgrades from shared to exclusive: which sessions an upgrade waits for, and which wait for it.
#
# Sessions of two database servers, and kazoo's ReadLock.

use strict;
use warnings;

use Test::More;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my @conf  = ('log_lock_waits = on', "deadlock_timeout = '1s'");
my $a     = Zklock::Server->new('a', zookeeper => $zk, conf => \@conf);
my $b     = Zklock::Server->new('b', zookeeper => $zk, conf => \@conf);
my $kazoo = $zk->shell;
my @as    = map { $a->session(name => "a$_") } 1 .. 4;
my @bs    = map { $b->session(name => "b$_") } 1 .. 3;
my $path  = '/t/upgrade';

sub queue
{
	my ($server, $session, $function) = @_;
	$session->query_start("SELECT $function('$path')");
	$server->wait_queued($session, $path);
	return;
}

sub clean
{
	$_->query('SELECT zk_unlock_all()') foreach @as, @bs;
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
	return;
}

subtest 'an upgrade waits for all other readers, and lets nobody else in meanwhile' => sub {
	is($_->query("SELECT zk_lock_shared('$path')"), 't', $_->name . ' reads') foreach @as[ 0, 1 ], $bs[0];
	is($kazoo->lock('r', $path, kind => 'shared'), 1, 'so does a foreigner');
	is($_->query("SELECT zk_try_lock('$path')"), 'f', $_->name . ' cannot upgrade at once') foreach $as[0], $bs[0];
	is($as[0]->query("SELECT zk_lock('$path', '50ms')"), 'f', 'nor in a while');
	is_deeply([ $as[0]->modes($path) ], ['shared held'], 'and reads on');
	my $token = $as[0]->query("SELECT zk_fencing_token('$path')");
	my $mark  = $a->log_mark;
	queue($a, $as[0], 'zk_lock');
	$kazoo->unlock('r');
	is($bs[0]->query("SELECT zk_unlock_shared('$path')"), 't', 'who is on another server goes, and the foreigner');
	$_->settle foreach $a, $b;
	ok($as[0]->busy, 'who upgrades waits for a session of the same server, which has the same node');
	my ($waiting) = $a->locks('pid = ' . $as[0]->pid . " AND state = 'waiting'");
	is($waiting->{mode}, 'exclusive', 'zk_locks shows for what');
	is($waiting->{blocked_by_pid}, $as[1]->pid, 'and for whom');
	$a->wait_log(qr/process @{[ $as[0]->pid ]} still waiting for ExclusiveLock on ZooKeeper path "$path"/, $mark);
	pass('so does the log');
	is($_->query("SELECT zk_try_lock_shared('$path')"), 'f', 'nobody else comes in meanwhile') foreach $as[2], $bs[1];
	# Something else that wakes it up is no reason to log the wait once more.
	$a->value('SELECT pg_log_backend_memory_contexts(' . $as[0]->pid . ')');
	$a->wait_log(qr/Grand total: /, $mark);
	is($as[1]->query("SELECT zk_unlock_shared('$path')"), 't', 'the other one goes');
	is($as[0]->finish, 't', 'and the upgrade is done');
	my $logged = $a->log_since($mark);
	like($logged, qr/process @{[ $as[0]->pid ]} acquired ExclusiveLock on ZooKeeper path "$path" after [\d.]+ ms/,
		'which is logged, too');
	is(scalar(() = $logged =~ /process @{[ $as[0]->pid ]} still waiting/g), 1, 'the wait is logged once');
	is_deeply([ $as[0]->modes($path) ], [ 'exclusive held', 'shared held' ], 'both modes are held');
	cmp_ok($as[0]->query("SELECT zk_fencing_token('$path')"), '>', $token, 'with a token beyond the shared one');
	is($_->query("SELECT zk_try_lock_shared('$path')"), 'f', 'by nobody else') foreach $as[2], $bs[1];
	is($as[0]->query("SELECT zk_unlock('$path')"), 't', 'then back');
	is($_->query("SELECT zk_try_lock_shared('$path')"), 't', 'others share again') foreach $as[2], $bs[1];
	is($_->query("SELECT zk_try_lock('$path')"), 'f', 'and cannot do more') foreach $as[2], $bs[1];
	clean();
};

subtest 'a session that queues behind an upgrade waits for the shared lock that is left of it' => sub {
	is($as[0]->query("SELECT zk_lock_shared('$path') AND zk_lock('$path')"), 't', 'an upgrade');
	queue($a, $as[1], 'zk_lock');
	queue($b, $bs[0], 'zk_lock');
	is($as[0]->query("SELECT zk_unlock('$path')"), 't', 'and back');
	$_->settle foreach $a, $b;
	ok($_->busy, $_->name . ' waits for the reader') foreach $as[1], $bs[0];
	is(($a->locks('pid = ' . $as[1]->pid))[0]{blocked_by_pid}, $as[0]->pid, 'which zk_locks names');
	is($as[0]->query("SELECT zk_unlock_shared('$path')"), 't', 'it goes');
	is($as[1]->finish, 't', 'and they are served in turn');
	$as[1]->query("SELECT zk_unlock('$path')");
	is($bs[0]->finish, 't', 'both of them');
	clean();
};

subtest 'an upgrade waits for older writers, too, whose turn comes first' => sub {
	# It waits for older writers too, whom it keeps waiting: its turn comes when they give up.
	is($as[0]->query("SELECT zk_lock_shared('$path')"), 't', 'a reader');
	queue($b, $bs[0], 'zk_lock');
	is($as[0]->query("SELECT zk_lock('$path', '50ms')"), 'f', 'cannot pass a writer who waits for it');
	queue($a, $as[0], 'zk_lock');
	$bs[0]->cancel;
	is($as[0]->finish, 't', 'but follows it');
	is($bs[0]->result->{sqlstate}, '57014', 'when it gives up');
	clean();
};

subtest 'of two readers of two servers that upgrade one has to give up' => sub {
	my ($one, $two) = ($as[0], $bs[0]);
	is($_->query("SELECT zk_lock_shared('$path')"), 't', $_->name . ' reads') foreach $one, $two;

	# Nobody looks for a deadlock: the one session does not, the other one's server not so soon.
	$one->query("SET deadlock_timeout = '1h'");
	queue($a, $one, 'zk_lock');
	$two->query("SET deadlock_timeout = '100ms'");
	my $log = $b->log_mark;
	$two->query_start("SELECT zk_lock('$path', '600ms')");
	$b->wait_waiting($two, $path);
	my $waiting = $two->wait_row('blocked_by_node IS NOT NULL');
	ok((grep { $_ eq $waiting->{blocked_by_node} } $zk->children($path)), 'zk_locks names the other\'s node');
	is($two->finish, 'f', 'the second one ends at its timeout');
	like($b->log_since($log),
		qr/still waiting for ExclusiveLock.*\n.*DETAIL:  Processes holding the lock: (?:\d+ of server a, \d+|\d+, \d+ of server a)\. Wait queue: /,
		'the log says for whom it waited');
	is_deeply([ $two->modes($path) ], ['shared held'], 'it reads on');
	ok($one->busy, 'so that the first has to wait');
	is($two->query("SELECT zk_unlock_shared('$path')"), 't', 'until it goes');
	is($one->finish, 't', 'then the first is upgraded');
	$_->query('RESET deadlock_timeout') foreach $one, $two;
	clean();
};

subtest 'an upgrade that is cancelled leaves the shared lock, one that is terminated nothing' => sub {
	is($_->query("SELECT zk_lock_shared('$path')"), 't', $_->name . ' reads') foreach $as[0], $bs[0];
	queue($a, $as[0], 'zk_lock');
	$as[0]->cancel;
	is($as[0]->result->{sqlstate}, '57014', 'an upgrade is cancelled');
	wait_until { $zk->children($path) == 2 } 'its node to go';
	is_deeply([ $as[0]->modes($path) ], ['shared held'], 'it reads on');
	$as[0]->query("SET lock_timeout = '50ms'");
	is($as[0]->try("SELECT zk_lock('$path')")->{sqlstate}, '55P03', 'lock_timeout ends it as well');
	$as[0]->query('RESET lock_timeout');
	is_deeply([ $as[0]->modes($path) ], ['shared held'], 'it reads on');
	my $victim = $a->session;
	is($victim->query("SELECT zk_lock_shared('$path')"), 't', 'another reader');
	queue($a, $victim, 'zk_lock');
	$victim->terminate;
	is($victim->result->{sqlstate}, '57P01', 'is terminated while it upgrades');
	is($_->query("SELECT zk_unlock_shared('$path')"), 't', $_->name . ' goes') foreach $as[0], $bs[0];
	clean();
};

subtest 'a session goes up and down fifty times' => sub {
	is($as[0]->query("SELECT zk_lock_shared('$path')"), 't', 'a reader');
	$as[0]->query("DO \$\$ BEGIN FOR i IN 1 .. 50 LOOP
		IF NOT zk_lock('$path', '10s') OR NOT zk_unlock('$path') THEN RAISE 'round %', i; END IF;
		END LOOP; END \$\$");
	is_deeply([ $as[0]->modes($path) ], ['shared held'], 'fifty times up and down: still a reader');
	$as[0]->query("DO \$\$ BEGIN PERFORM zk_lock('$path'); PERFORM zk_unlock_shared('$path');
		FOR i IN 1 .. 50 LOOP
		IF NOT zk_lock_shared('$path') OR NOT zk_unlock('$path') OR NOT zk_lock('$path', '10s')
			OR NOT zk_unlock_shared('$path') THEN RAISE 'round %', i; END IF;
		END LOOP; END \$\$");
	is_deeply([ $as[0]->modes($path) ], ['exclusive held'], 'fifty times down and up: still a writer');
	clean();
};

sub holdings
{
	return join ' ', sort map { ($_->{path} =~ s{.*/}{}r) . "/$_->{mode}/$_->{scope}/$_->{count}" }
	  $a->locks('pid = ' . $as[0]->pid . " AND state <> 'releasing'");
}

subtest 'a call for several paths that fails releases what it acquired, and nothing else' => sub {
	my @paths = map { "/t/upgrade/$_" } qw(held_ex held_sh new taken);
	my $array = 'ARRAY[' . join(',', map { "'$_'" } @paths) . ']';
	is($bs[0]->query("SELECT zk_lock('$paths[3]')"), 't', 'a path is taken elsewhere');
	$as[0]->query('BEGIN');
	is($as[0]->query("SELECT zk_lock('$paths[0]') AND zk_lock_shared('$paths[1]') AND zk_xact_lock_shared('$paths[1]')"),
		't', 'others are held already');
	my $held = holdings();
	foreach my $function (qw(zk_lock zk_lock_shared zk_xact_lock zk_xact_lock_shared))
	{
		is($as[0]->query("SELECT $function($array, '0')"), 'f', "$function of all fails");
		is(holdings(), $held, 'and leaves what there was');
		is($as[0]->query("SELECT $function($array, '50ms')"), 'f', 'with a timeout as well');
		is(holdings(), $held, 'and leaves what there was');
		is($as[0]->query("SELECT $function(($array)[:3])"), 't', 'without the one it works');
		isnt(holdings(), $held, 'and adds');
		$as[0]->query('ROLLBACK; BEGIN') if $function =~ /xact/;
		$as[0]->query("SELECT zk_unlock" . ($function =~ /_shared/ ? '_shared' : '') . "(($array)[:3])")
		  unless $function =~ /xact/;
		$as[0]->query("SELECT zk_xact_lock_shared('$paths[1]')") if $function =~ /xact/;
		is(holdings(), $held, 'which is taken back');
	}
	$as[0]->query('SAVEPOINT s');
	$as[0]->query_start("SELECT zk_xact_lock($array)");
	$a->wait_waiting($as[0], $paths[3]);
	$as[0]->cancel;
	is($as[0]->result->{sqlstate}, '57014', 'cancelled in the middle');
	is(holdings(), $held, 'it leaves what there was');
	$as[0]->query('ROLLBACK TO s');
	is(holdings(), $held, 'the savepoint has nothing to add');
	$as[0]->query_start("SELECT zk_lock_shared($array)");
	$a->wait_waiting($as[0], $paths[3]);
	$bs[0]->query("SELECT zk_unlock('$paths[3]')");
	is($as[0]->finish, 't', 'all of them are had when the last is free');
	$as[0]->query('COMMIT');
	is($as[0]->query("SELECT zk_unlock_shared($array), zk_unlock('$paths[0]'), zk_unlock_shared('$paths[1]')"),
		't|t|t', 'each is counted');
	Zklock::Server->assert_clean($zk, [ $a, $b ], @paths);
};

Zklock::Server->assert_clean($zk, [ $a, $b ], '/t/barrier');
done_testing;
