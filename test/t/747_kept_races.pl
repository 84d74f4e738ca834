# Copyright (c) 2026, zklock contributors
#
# zklock.keep_idle: sessions that take a kept lock again race with others that want it, on the same
# server and on another one, waiting or not; some are slow at any moment. No two hold it at once, and
# each has a higher token than the one before.

use strict;
use warnings;

use List::Util qw(sum);
use Test::More;
use Zklock::Cast qw(:DEFAULT clean);
use Zklock::Server;
use Zklock::ZooKeeper;

my $zk = Zklock::ZooKeeper->standalone;
my @servers;
foreach my $name (my @names = qw(a b)) { push @servers, Zklock::Server->new($name, zookeeper => $zk, faults => 'slow-random'); }

# Begin and end of each hold, and its token
$_->value('CREATE TABLE held (token bigint, since timestamptz, until timestamptz)') foreach @servers;

# One session's rounds: it locks, notes, rests, unlocks
sub rounds
{
	my ($path, $n, $how, $keep) = @_;
	my $shared = $how =~ /_shared$/ ? '_shared' : '';
	return <<"END";
SET zklock.keep_idle = '$keep';
DO \$\$
DECLARE t timestamptz;
BEGIN
	FOR i IN 1 .. $n LOOP
		WHILE NOT $how('$path') LOOP PERFORM pg_sleep(random() * 0.01); END LOOP;
		t := clock_timestamp();
		PERFORM pg_sleep(random() * 0.002);
		INSERT INTO held VALUES (CASE '$shared' WHEN '' THEN zk_fencing_token('$path') END, t, clock_timestamp());
		PERFORM zk_unlock$shared('$path');
		IF random() < 0.3 THEN PERFORM pg_sleep(random() * 0.02); END IF;
	END LOOP;
END \$\$
END
}

# The holds of both servers, in the order of their beginnings: [ token or undef, since, until ]
sub holds
{
	my @all;
	foreach my $server (@servers)
	{
		my $rows = $server->session->try(q{SELECT token, extract(epoch FROM since), extract(epoch FROM until) FROM held})->{rows};
		push @all, @$rows;
		$server->value('TRUNCATE held');
	}
	return sort { $a->[1] <=> $b->[1] } @all;
}

# Pairs that overlap although one of them is exclusive, and exclusive ones whose token is not higher
sub faults
{
	my ($any, $exclusive, $token, $overlaps, $disorder) = (0, 0, 0, 0, 0);
	foreach my $hold (@_)
	{
		$overlaps++ if $hold->[1] < (defined $hold->[0] ? $any : $exclusive);
		$disorder++ if defined $hold->[0] && $hold->[0] <= $token;
		$token     = $hold->[0] if defined $hold->[0];
		$exclusive = $hold->[2] if defined $hold->[0] && $hold->[2] > $exclusive;
		$any       = $hold->[2] if $hold->[2] > $any;
	}
	return "$overlaps overlaps, $disorder tokens out of order";
}

# [ server, function, keep_idle ] of each session
my %scenes = (
	'one session and others of its server'        => [ [ 0, 'zk_lock', '10s' ], [ 0, 'zk_lock', '5ms' ], [ 0, 'zk_try_lock', '10s' ] ],
	'one session and others of another server'    => [ [ 0, 'zk_lock', '10s' ], [ 1, 'zk_lock', '0' ], [ 1, 'zk_try_lock', '0' ] ],
	'two servers, both of which keep it'          => [ [ 0, 'zk_lock', '10s' ], [ 0, 'zk_try_lock', '20ms' ], [ 1, 'zk_try_lock', '10s' ], [ 1, 'zk_lock', '20ms' ] ],
	'readers and writers'                         => [ [ 0, 'zk_lock_shared', '10s' ], [ 1, 'zk_lock_shared', '10s' ], [ 1, 'zk_lock', '10s' ], [ 0, 'zk_try_lock', '10s' ] ]);

my ($n, @paths) = (0);
foreach my $scene (sort keys %scenes)
{
	subtest $scene => sub {
		my @cast = @{ $scenes{$scene} };
		push @paths, my $path = '/race/' . ++$n;
		my @sessions = map { $servers[ $_->[0] ]->session } @cast;
		my $times = 30;
		$sessions[$_]->query_start(rounds($path, $times, $cast[$_][1], $cast[$_][2])) foreach 0 .. $#cast;
		is($sessions[$_]->result->{error}, undef, "$cast[$_][1], $cast[$_][2]") foreach 0 .. $#cast;
		my @holds = holds();
		is(@holds, $times * @cast, 'all have had it');
		is(faults(@holds), '0 overlaps, 0 tokens out of order', 'one after the other');
		$_->disconnect foreach @sessions;
	};
}

subtest 'sixteen sessions of one server' => sub {
	push @paths, my $path = '/race/sixteen';
	my @sessions = map { $servers[0]->session } 1 .. 16;
	$_->query_start(rounds($path, 10, 'zk_lock', '10s')) foreach @sessions;
	is(scalar(grep { $_->result->{error} } @sessions), 0, 'all have it, again and again');
	is(faults(holds()), '0 overlaps, 0 tokens out of order', 'one after the other');
	$_->disconnect foreach @sessions;
};

cmp_ok(sum(map { $_->value('SELECT sum(kept) FROM zk_stats') } @servers), '>', 0, 'some had it kept');
clean($zk, \@servers, @paths);
done_testing;
