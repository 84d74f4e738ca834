# Copyright (c) 2026, zklock contributors
#
# zklock.keep_idle: what is merely kept is in nobody's way: neither entries nor the bytes of nodes,
# of all or of a session's share, are refused to anybody for it; nor is what is not kept at all.

use strict;
use warnings;

use Test::More;
use Zklock::Cast qw(:DEFAULT clean);
use Zklock::Semaphore;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk = Zklock::ZooKeeper->standalone;
my $a  = Zklock::Server->new('a', zookeeper => $zk, max_connections => 20,
	conf => [ "zklock.max_locks = 40", "zklock.max_locks_per_session = 20" ]);
my $big = Zklock::Server->new('big', zookeeper => $zk, max_connections => 20,
	conf => [ "zklock.max_locks = 2000", "zklock.max_locks_per_session = 100" ]);
my @paths;

sub keeper { my ($name) = @_; on($a, $name)->query("SET zklock.keep_idle = '10min'"); return $s{$name}; }

# Paths that a session locks and releases, one after the other
sub keep_many
{
	my ($session, $prefix, $n) = @_;
	push @paths, map { "$prefix$_" } 1 .. $n;
	return $session->try("DO \$\$ BEGIN FOR i IN 1 .. $n LOOP PERFORM zk_lock('$prefix' || i); PERFORM zk_unlock('$prefix' || i); END LOOP; END \$\$");
}

sub kept { my ($session) = @_; return $a->value("SELECT count(*) FROM zk_locks WHERE state = 'kept' AND pid = " . $session->pid); }

subtest 'the share of a session' => sub {
	my $k = keeper('k');
	is(keep_many($k, '/l/a', 55)->{error}, undef, 'it locks more paths than it may hold, one after the other');
	cmp_ok(kept($k), '>', 0, 'and has kept some');
	is(keep_many($k, '/l/a', 18)->{error}, undef, 'it has its share but for a few');
	is($k->query(q{SELECT zk_lock(ARRAY(SELECT '/l/b' || i FROM generate_series(1, 20) i))}), 't', 'it can hold all its share at once');
	is($k->try(q{SELECT zk_lock('/l/b21')})->{sqlstate}, '53200', 'and not more');
	is($k->query(q{SELECT zk_unlock(ARRAY(SELECT '/l/b' || i FROM generate_series(1, 20) i))}), 't', 'it releases them');
	push @paths, map { "/l/b$_" } 1 .. 20;
};

subtest 'all entries' => sub {
	my @keepers = map { keeper("k$_") } 1 .. 3;
	is(keep_many($keepers[$_], "/l/c$_", 20)->{error}, undef, "session $_ keeps what it can") foreach 0 .. 2;
	my @holders = map { on($a, "h$_") } 0 .. 1;
	foreach my $i (0 .. 1)
	{
		is($holders[$i]->query("SELECT zk_lock(ARRAY(SELECT '/l/d$i' || i FROM generate_series(1, 18) i))"), 't', 'others can hold them');
		push @paths, map { "/l/d$i$_" } 1 .. 18;
	}
	$_->query('SELECT zk_unlock_all()') foreach @holders;
};

subtest 'the bytes of nodes' => sub {
	my $k = on($big, 'long');
	$k->query("SET zklock.keep_idle = '10min'");
	my $long = '/l/' . 'x' x 900;
	sub lock_them { my ($name) = @_; return "DO \$\$ BEGIN FOR i IN 1 .. 40 LOOP PERFORM zk_lock('$name' || i); END LOOP; END \$\$"; }
	is($k->try(lock_them($long))->{error}, undef, 'a session has almost all that it may have');
	is($k->try(lock_them("${long}y"))->{sqlstate}, '53200', 'and not twice as much');
	$k->query('SELECT zk_unlock_all()');
	cmp_ok($big->value(q{SELECT count(*) FROM zk_locks WHERE state = 'kept'}), '>=', 40, 'what it keeps');
	is($k->try(lock_them("${long}z"))->{error}, undef, 'is no reason for that');
	$k->query('SELECT zk_unlock_all()');
	is($k->query("SELECT bool_and(zk_try_lock('$long' || i)) FROM generate_series(1, 40) i"), 't', 'also for calls that do not wait');
	$k->query('SELECT zk_unlock_all()');
};

subtest 'what is not kept' => sub {
	my $k = keeper('k');
	is($k->query("SELECT zk_semaphore_acquire('/l/sem', 2)"), 't', 'a permit');
	is($k->query("SELECT zk_semaphore_release('/l/sem')"), 't', 'is released');
	is(scalar $zk->children('/l/sem/leases'), 0, 'and gone');
	is(kept($k), 0, 'with its turn');
	$a->set_conf('zklock.path_dialects' => '/l/hive=hive');
	wait_until { $k->query('SHOW zklock.path_dialects') eq '/l/hive=hive' } 'another dialect';
	is($k->query("SELECT zk_lock('/l/hive') AND zk_unlock('/l/hive')"), 't', "a lock with Hive's names");
	is(scalar $zk->children('/l/hive'), 0, 'is gone');
	push @paths, '/l/hive';
	is($k->query("SELECT zk_lock_tree('/l/t/u/v', '/l/t') AND zk_unlock_tree('/l/t/u/v', '/l/t')"), 't', 'a tree');
	is(kept($k), 2, 'is kept');
	is(on($a, 'other')->query("SELECT zk_lock_tree('/l/t/u/w', '/l/t', '30s')"), 't', 'until another one comes');
	is($k->query("SELECT zk_lock_tree('/l/t/u/v', '/l/t')"), 't', 'and shares what it can');
	$k->query("SELECT zk_unlock_all()");
	$s{other}->query("SELECT zk_unlock_all()");
	push @paths, '/l/t', '/l/t/u', '/l/t/u/v', '/l/t/u/w';
};

clean($zk, [ $a, $big ], '/l/sem/leases', '/l/sem/locks', grep { /[a-c]\d|[vw]$|hive/ } @paths);
done_testing;
