# Copyright (c) 2026, zklock contributors
#
# The end of a session releases its locks, however it comes: each time a session of the other
# server waits for the lock, gets it, and nothing stays behind.

use strict;
use warnings;

use Test::More;
use Zklock::Release;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk = Zklock::ZooKeeper->standalone;
my $a  = Zklock::Server->new('a', zookeeper => $zk);
my $b  = Zklock::Server->new('b', zookeeper => $zk);
Zklock::Release::cast($zk, $a, $b);

$a->value('CREATE TABLE t (id int PRIMARY KEY, value int)');

foreach my $level ([ 'session', \@session ], [ 'transaction', \@transaction ],
	[ 'both', [ @session, @transaction ] ])
{
	my ($name, $take) = @$level;
	subtest "the end of a session releases its locks: level $name" => sub {
		my @way = (take => $take, rows => $name eq 'both' ? 2 : 1, over => 1);
		release_by("disconnect, $name", @way, release => sub { $_[0]->disconnect });
		release_by("lost client, $name", @way, release => sub { $_[0]->vanish });
		release_by("terminate, $name", @way,
			release => sub {
				my ($s) = @_;
				ok($s->terminate, "terminate, $name: the session ends");
				$s->disconnect;
			});
		release_by("terminate in a statement, $name", @way,
			release => sub {
				my ($s) = @_;
				my $blocker = $a->session;
				$blocker->query('SELECT pg_advisory_lock(1)');
				$s->query_start('SELECT pg_advisory_lock(1)');
				$a->wait_value('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $s->pid, 'advisory');
				$s->terminate;
				is($s->result->{sqlstate}, '57P01', "terminate in a statement, $name: the session ends");
				$s->disconnect;
			});
	};
}

subtest 'what an ended session had is not shown of the next' => sub {
	my ($first, $s, $next) = map { $a->session } 1 .. 3;
	$s->query("SELECT zk_lock('/t/other'), zk_lock_shared('/t/other')");
	$s->query("BEGIN; SELECT zk_xact_lock('/t/other'), zk_xact_lock_shared('/t/other')");
	is($a->lock_count("state = 'held'"), 4, 'both modes at both levels');
	$s->disconnect;
	wait_until { $a->lock_count == 0 } 'the end of the session';
	$first->query("SELECT zk_lock_shared('$path')");
	is_deeply([ map { "$_->{mode} $_->{scope} $_->{count}" } $a->locks ], ['shared session 1'],
		'the next holder has what it asked for');
	foreach my $function (qw(zk_lock zk_xact_lock))
	{
		$first->query('SELECT zk_unlock_all()');
		$first->query("SELECT $function('/t/other')");
		$first->query('SELECT zk_unlock_all()');
		$waiter->query("SELECT zk_lock('$path')");
		wait_until { $a->lock_count == 0 } 'the entry to be free';
		$next->query_start("SELECT zk_lock('$path')");
		$a->wait_waiting($next);
		is_deeply([ map { "$_->{state} $_->{count} " . ($_->{granted_at} // 'never') . ' ' . ($_->{fencing_token} // 'none') }
				$a->locks ],
			['waiting 0 never none'], "who waits after $function has nothing yet");
		$waiter->query("SELECT zk_unlock('$path')");
		is($next->finish, 't', 'and is served');
		$next->query("SELECT zk_unlock('$path')");
	}
	$_->disconnect foreach $first, $next;
};

subtest 'the end of a session undoes its changes, and releases the lock' => sub {
	release_by('session closed after a change',
		take    => [ @transaction, 'INSERT INTO t VALUES (3, 3)' ],
		over    => 1,
		release => sub { $_[0]->vanish });
	is($a->value('SELECT count(*) FROM t WHERE id = 3'), 0, 'the change is undone');
};

subtest 'a session that is terminated after an error releases its lock' => sub {
	release_by('terminate after an error',
		take    => [ @session, 'BEGIN' ],
		hold    => ['SELECT 1/0'],
		over    => 1,
		release => sub { $_[0]->terminate; $_[0]->disconnect });
};

subtest 'timeouts end sessions that are idle, and release their locks' => sub {
	release_by('idle in transaction',
		take    => [ "SET idle_in_transaction_session_timeout = '2s'", @transaction ],
		over    => 1,
		release => sub {
			my ($s) = @_;
			wait_until { !$a->value('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $s->pid) }
			'the session to be ended';
			$s->disconnect;
		});
	release_by('idle session',
		take    => [ "SET idle_session_timeout = '2s'", @session ],
		over    => 1,
		release => sub {
			my ($s) = @_;
			wait_until { !$a->value('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $s->pid) }
			'the session to be ended';
			$s->disconnect;
		});
};

$waiter->disconnect;
Zklock::Server->assert_clean($zk, [ $a, $b ], $path, '/t/other', '/t/barrier');
done_testing;
