# Copyright (c) 2026, zklock contributors
#
# zklock.keep_idle: what a session has kept goes the moment that anybody elsewhere wants it: a session
# of another server, waiting or not, Curator, kazoo, and the previous version of zklock. Each of them
# has it before the time is over, with a higher token; and what is held is not taken for kept.

use strict;
use warnings;

use Test::More;
use Zklock::Cast qw(:DEFAULT token clean);
use Zklock::JavaPeer;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk  = Zklock::ZooKeeper->standalone;
my $a   = Zklock::Server->new('a', zookeeper => $zk);
my $b   = Zklock::Server->new('b', zookeeper => $zk);
my $previous = $ENV{ZKLOCK_FAULTS} ? undef : $ENV{ZKLOCK_PREVIOUS_STAGE};   # which has no faults
my $old = $previous ? Zklock::Server->new('old', zookeeper => $zk, stage => $previous) : undef;
my ($n, $path, $token) = (0);
my @paths;

on($a, 'keeper')->query("SET zklock.keep_idle = '10min'");

# The keeper of server a has kept a new path.
sub keep
{
	my ($what) = @_;
	my $suffix = ($what // '') eq 'shared' ? '_shared' : '';
	push @paths, $path = '/r/' . ++$n;
	$s{keeper}->query("SELECT zk_lock$suffix('$path')");
	$token = token('keeper', $path);
	$s{keeper}->query("SELECT zk_unlock$suffix('$path')");
	is($a->value("SELECT state FROM zk_locks WHERE path = '$path'"), 'kept', "$path is kept");
	return;
}

# Somebody has it: the keeper does not, and when it is released can have it.
sub keeper_is_out
{
	is($s{keeper}->query("SELECT zk_try_lock('$path')"), 'f', 'the keeper cannot have it any more');
	$a->wait_value("SELECT count(*) FROM zk_locks WHERE path = '$path'", 0);
	return;
}

sub keeper_is_back
{
	is($s{keeper}->query("SELECT zk_lock('$path')"), 't', 'now the keeper has it again');
	cmp_ok(token('keeper', $path), '>', $token, 'with a higher token');
	$s{keeper}->query("SELECT zk_unlock('$path')");
	return;
}

foreach my $mode ('', '_shared')
{
	foreach my $how (qw(zk_lock zk_try_lock zk_xact_lock))
	{
		subtest "by $how of another server: " . ($mode || 'exclusive') => sub {
			keep(substr($mode, 1));
			my $other = on($b, 'other');
			$other->query('BEGIN');
			is($other->query("SELECT $how('$path')"), 't', 'another server has it');
			cmp_ok(token('other', $path), '>', $token, 'with a higher token');
			$token = token('other', $path);
			keeper_is_out();
			$other->query('COMMIT');
			$other->query("SELECT zk_unlock('$path')") if $how ne 'zk_xact_lock';
			keeper_is_back();
		};
	}
}

subtest 'readers elsewhere leave a reader what it has kept' => sub {
	keep('shared');
	is(on($b, 'other')->query("SELECT zk_try_lock_shared('$path')"), 't', 'another server shares it');
	$a->settle;
	is($a->value("SELECT state FROM zk_locks WHERE path = '$path'"), 'kept', 'it is kept still');
	is($s{keeper}->query("SELECT zk_try_lock_shared('$path') AND zk_unlock_shared('$path')"), 't', 'and had again');
	is($s{other}->query("SELECT zk_unlock_shared('$path')"), 't', 'the other releases');
	is($s{other}->query("SELECT zk_try_lock('$path')"), 't', 'and has it exclusively, without waiting');
	keeper_is_out();
	$s{other}->query("SELECT zk_unlock('$path')");
	keeper_is_back();
};

subtest 'what is held is not kept' => sub {
	keep();
	is($s{keeper}->query("SELECT zk_lock('$path')"), 't', 'it is held again');
	my $node = one_node();
	is($b->value("SELECT granted, kept IS NULL FROM zk_contenders('$path')"), 't|t', 'another server cannot tell');
	is(on($b, 'other')->query("SELECT zk_try_lock('$path')"), 'f', 'it asks, and is told that it is held');
	is($b->value("SELECT granted, kept FROM zk_contenders('$path')"), 't|f', 'as anybody can see from then on');
	my $changes = $zk->shell->stat($path)->{cversion};
	is($s{other}->query("SELECT zk_try_lock('$path')"), 'f', 'so the next time it asks nobody');
	is($zk->shell->stat($path)->{cversion}, $changes, 'and creates no node');
	is(one_node(), $node, 'the holder has its node');
	is($s{keeper}->query("SELECT zk_unlock('$path')"), 't', 'and when it releases');
	is(scalar $zk->children($path), 0, 'does not keep it');
};

sub one_node { my @nodes = $zk->children($path); is(@nodes, 1, 'there is one node'); return $nodes[0]; }

subtest 'what is held and waited for is handed over' => sub {
	keep();
	$s{keeper}->query("SELECT zk_lock('$path')");
	queue($b, 'other', $path);
	is(on($b, 'third')->query("SELECT zk_try_lock('$path')"), 'f', 'a call that does not wait fails');
	$a->settle;
	is($s{keeper}->query("SELECT zk_unlock('$path')"), 't', 'the keeper releases');
	is($s{other}->finish, 't', 'and keeps nothing');
	$s{other}->query("SELECT zk_unlock('$path')");
};

subtest 'by two servers that keep it, in turn' => sub {
	keep();
	on($b, 'other')->query("SET zklock.keep_idle = '10min'");
	my @tokens = ($token);
	foreach my $name (qw(other keeper other keeper))
	{
		is($s{$name}->query("SELECT zk_try_lock('$path')"), 't', "$name");
		push @tokens, token($name, $path);
		cmp_ok($tokens[-1], '>', $tokens[-2], 'its token is higher');
		$s{$name}->query("SELECT zk_unlock('$path')");
	}
	$s{other}->query('RESET zklock.keep_idle');
};

subtest 'by Curator' => sub {
	keep();
	my $java = Zklock::JavaPeer->new;
	$java->connect($zk->connect_string, 10000);
	is($java->acquire('j', $path, 30000), 1, 'which waits, and has it');
	keeper_is_out();
	$java->release('j');
	keeper_is_back();
	wait_until { $java->acquire('j', $path, 0) } 'or tries until it has it';
	keeper_is_out();
	$java->release('j');
	$java->stop;
};

subtest 'by kazoo' => sub {
	keep();
	is($zk->shell->lock('k', $path, timeout => 30), 1, 'which waits, and has it');
	keeper_is_out();
	$zk->shell->unlock('k');
};

subtest 'by the previous version' => sub {
	plan skip_all => 'it is not there' if !$old;
	keep();
	is(on($old, 'old')->query("SELECT zk_lock('$path', '30s')"), 't', 'which waits, and has it');
	keeper_is_out();
	$s{old}->query("SELECT zk_unlock('$path')");
	keeper_is_back();
	is($s{old}->query("SELECT zk_try_lock('$path')"), 'f', 'when it does not wait it cannot know that nobody holds it');
};

clean($zk, [ $a, $b, $old // () ], @paths);
done_testing;
