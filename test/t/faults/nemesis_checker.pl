# Copyright (c) 2026, zklock contributors
#
# The checkers of the fault run, of locks, elections, claims and queues, on histories made by hand: good ones
# pass, and each kind of violation is found.

use Zklock::Test;
use FindBin;
use lib "$FindBin::Bin/../../nemesis/lib";
use Nemesis::Schedule;
use Nemesis::Target;

Nemesis::Target->all;
my $number = 0;

# What all attempts have, and what matters here
sub attempt(%its)
{
	$number++;
	return { id => "c.$number", kind => 'sql', server => 'a', path => '/p', clock => 0, %its };
}

# A test: a target finds these kinds of violations in the attempts. Returns what it has counted.
sub judged($target, $expected, $name, $attempts, %more)
{
	my $verdict = "Nemesis::Target::$target"->judge(attempts => $attempts, session_timeout => 4, %more);
	my $found   = $verdict->{violations};
	is(join(', ', map { $_->{kind} } @$found), $expected, "$target, $name: " . ($expected || 'good')) or diag explain $found;
	return $verdict->{counts};
}

# Each attempt gets a newer token.
sub hold($granted, $until, %more)
{
	return attempt(
		scope   => 'transaction',
		guard   => 'lease',
		asked   => ($granted || 0) - 0.5,
		granted => $granted,
		until   => $until,
		told    => ($until || 0) + 0.1,
		token   => ($number + 1) << 12,
		outcome => 'committed',
		%more);
}

sub curator { return hold(@_, kind => 'curator', server => undef, guard => undef, scope => undef); }
sub good { return judged(Locks => '', @_); }
sub bad { return judged(Locks => @_); }

# ---- exclusion

my $v = good('one after the other', [ hold(1, 2), hold(2.1, 3), curator(3.1, 4), hold(4.1, 5) ]);
is($v->{acquisitions}, 4, 'acquisitions are counted');
is($v->{committed},    4, 'and what became of them');
good('at once on two paths', [ hold(1, 2), hold(1.5, 3, path => '/q') ]);
good('not granted', [ hold(1, 2), hold(undef, undef, asked => 1.5, outcome => 'timeout', token => undef) ]);
my @jumbled = map { hold(10 * $_, 10 * $_ + 5) } 1 .. 3;
good('in any order of the file', [ @jumbled[ 2, 0, 1 ] ]);

bad('unguarded commit', 'two have committed', [ hold(1, 3), hold(2, 4) ]);
bad('unguarded commit', 'one within the other', [ hold(1, 9), hold(2, 3) ]);
bad('unguarded commit', 'a third long after', [ hold(1, 9), hold(2, 3, outcome => 'refused'), hold(8, 10) ]);
bad('unguarded commit', 'sent in time, written too late', [ hold(1, 2, commit_at => 3), hold(2.5, 4) ]);
bad('unguarded commit', 'over a Java service', [ curator(1, 3), hold(2, 4) ]);
bad('exclusion', 'two Java services', [ curator(1, 3), curator(2, 4) ]);
bad('unguarded commit, unguarded commit', 'three at once', [ hold(1, 5), hold(2, 5), hold(3, 5) ]);

foreach my $outcome (qw(refused lost aborted))
{
	$v = good("the older holder is $outcome", [ hold(1, 3, outcome => $outcome), hold(2, 4) ]);
	is($v->{overlaps}, 1, 'the overlap is counted');
	is($v->{latency}, 1100, 'and how long it took to be noticed');
	good("the younger holder is $outcome", [ hold(1, 3), hold(2, 4, outcome => $outcome) ]);
}

# ---- interventions

# An administrator deletes the node of the first of two attempts, when both have been made.
sub deleted { return (interventions => [ { path => '/p', from => 1.5, to => 1.6, czxids => [ $number - 1 ] } ]); }

$v = good('the holder\'s node was deleted', [ hold(1, 3), hold(2, 4) ], deleted());
is($v->{overlaps_by_intervention}, 1, 'which is counted');
my @elsewhere = deleted();
bad('unguarded commit', 'another node was deleted', [ hold(1, 3), hold(2, 4) ], @elsewhere);
bad('unguarded commit', 'in spite of a quorum, its node deleted',
	[ hold(1, 3, guard => 'quorum'), hold(2, 4, guard => 'quorum') ], deleted());
$v = good('a quorum was asked before the node was deleted',
	[ hold(1, 1.55, guard => 'quorum', commit_at => 3), hold(2, 4, guard => 'quorum') ], deleted());
is($v->{overlaps_by_intervention}, 1, 'which is counted');
bad('unguarded commit', 'a node of another path was deleted', [ hold(1, 3), hold(2, 4) ],
	interventions => [ { path => '/q', from => 1.5, to => 1.6 } ]);
bad('unguarded commit', 'nodes were deleted later', [ hold(1, 3), hold(2, 4) ],
	interventions => [ { path => '/p', from => 5, to => 6 } ]);
bad('unguarded commit', 'nodes were deleted long before', [ hold(11, 13), hold(12, 14) ],
	interventions => [ { path => '/p', from => 5, to => 6 } ]);
good('nodes were deleted, it is not known which', [ hold(1, 3), hold(2, 4) ],
	interventions => [ { path => '/p', from => 1.5 } ]);
good('the session was closed', [ hold(1, 3), hold(2, 4, server => 'b') ],
	interventions => [ { server => 'a', from => 0.5, to => 0.8 } ]);
bad('unguarded commit', 'another session was closed', [ hold(1, 3), hold(2, 4) ],
	interventions => [ { server => 'b', from => 0.5, to => 0.8 } ]);

# ---- tokens

bad('token order', 'an older token', [ hold(1, 2, token => 8192), hold(3, 4, token => 4096) ]);
bad('token order', 'an older token much later',
	[ hold(1, 2, token => 8192), hold(3, 4, token => 12288), hold(5, 6, token => 8193) ]);
bad('token order', 'the same token twice', [ hold(1, 2, token => 4097), hold(3, 4, token => 4097) ]);
good('grants under one node', [ map { hold($_, $_ + 0.5, token => 4096 + $_) } 1 .. 5 ]);
good('tokens of two paths', [ hold(1, 2, token => 8192), hold(3, 4, token => 4096, path => '/q') ]);
good('told too late that it was its turn',
	[ hold(1, 2, token => 8192), hold(3, 4, token => 4096, outcome => 'refused') ]);
good('a session that died after the grant', [ hold(1, 2, token => undef, outcome => 'aborted'), hold(3, 4) ]);

# ---- the register

sub written($fenced, $attempt, $seen, $value)
{
	return {
		path    => '/p',
		fenced  => $fenced,
		attempt => $attempt->{id},
		token   => $attempt->{token},
		seen    => $seen,
		value   => $value };
}

my @two = (hold(1, 2), hold(3, 4));
foreach my $fenced (0, 1)
{
	good('writes in order', \@two, writes => [ written($fenced, $two[0], 0, 1), written($fenced, $two[1], 1, 2) ]);
}
bad('lost update', 'two have read the same', \@two,
	writes => [ written(0, $two[0], 0, 1), written(0, $two[1], 0, 1) ]);
bad('fenced register', 'two have read the same', \@two,
	writes => [ written(1, $two[0], 0, 1), written(1, $two[1], 0, 1) ]);
bad('fenced register', 'an old token after a new one', \@two,
	writes => [ written(1, $two[1], 0, 1), written(1, $two[0], 1, 2) ]);

my @zombie = (hold(1, 5, outcome => 'refused'), hold(3, 4));
$v = good('a refused one has overwritten', \@zombie,
	writes => [ written(0, $zombie[1], 0, 1), written(0, $zombie[0], 0, 1) ]);
is($v->{lost_unfenced_updates}, 1, 'which is counted');
bad('fenced register, fenced register', 'there is no excuse for one that is refused', \@zombie,
	writes => [ written(1, $zombie[1], 0, 1), written(1, $zombie[0], 0, 1) ]);

# ---- errors

good('expected errors', [ map { hold(10 * $_, 10 * $_ + 1, outcome => 'aborted', sqlstate => (qw(57014 57P01 08006 58030 40001 55000))[$_], error => 'x') } 0 .. 5 ]);
bad('unexpected error', 'out of memory', [ hold(1, 2, outcome => 'aborted', sqlstate => '53200', error => 'ERROR: out of memory') ]);
bad('unexpected error', 'internal', [ hold(undef, undef, asked => 1, outcome => 'failed', sqlstate => 'XX000', error => 'ERROR: what?') ]);

# ---- it is linear

my @many = map { hold($_, $_ + 0.9) } 1 .. 20_000;
my @times = times;
good('many', \@many);
note sprintf('%d attempts in %.1f s', scalar @many, (times)[0] - $times[0]);

# ---- the schedule

my %plan = (seed => 7, seconds => 600, session_timeout => 4, faults => [ Nemesis::Schedule->names ]);
my @one = Nemesis::Schedule->plan(%plan);
is_deeply([ Nemesis::Schedule->plan(%plan) ], \@one, 'a seed gives the same schedule again');
isnt(join(' ', map { Nemesis::Schedule->describe($_) } Nemesis::Schedule->plan(%plan, seed => 8)),
	join(' ', map { Nemesis::Schedule->describe($_) } @one), 'another seed another one');
my %seen = map { $_->{fault} => 1 } @one;
is_deeply([ sort keys %seen ], [ Nemesis::Schedule->names ], 'every fault has its turn');
my @fixed = Nemesis::Schedule->plan(%plan, faults => ['cut:long:server=2']);
ok(@fixed && !grep({ $_->{fault} ne 'cut' || $_->{server} != 2 || $_->{duration} < 4 } @fixed),
	'parameters may be fixed');
ok(!eval { Nemesis::Schedule->plan(%plan, faults => ['nonsense']); 1 }, 'there is no fault nonsense');

# ---- elections

# A true answer, and what was written on its strength
sub led($server, $term, $asked, $granted, %more)
{
	return attempt(server => $server, path => '/e', asked => $asked, granted => $granted, until => $granted,
		told => $granted + 0.1, token => $term << 12, outcome => 'asked', %more);
}

sub committed($at) { return (outcome => 'committed', commit_at => $at); }

judged(Elections => '', 'one after the other', [ led('a', 1, 1, 2), led('a', 1, 3, 4, committed(4.5)), led('b', 2, 5, 6), led('a', 3, 7, 8) ]);
judged(Elections => '', 'an answer that was asked for before another had his', [ led('a', 1, 1, 2), led('a', 1, 5, 7), led('b', 2, 4, 6) ]);
judged(Elections => 'two leaders', 'one that was asked for later', [ led('a', 1, 1, 2), led('b', 2, 3, 4), led('a', 1, 4.5, 5) ]);
judged(Elections => 'two leaders', 'much later', [ led('a', 1, 1, 2), led('b', 2, 3, 4), led('c', 3, 5, 6), led('a', 1, 6.5, 7) ]);
judged(Elections => 'late commit', 'a commit after the next one led', [ led('a', 1, 1, 2, committed(4.1)), led('b', 2, 3, 4) ]);
judged(Elections => '', 'one that was refused', [ led('a', 1, 1, 2, outcome => 'refused', told => 9), led('b', 2, 3, 4) ]);
judged(Elections => 'term of two', 'one term, two servers', [ led('a', 1, 1, 2), led('b', 1, 3, 4) ]);
judged(Elections => 'two leaders', 'a lower term after a higher one', [ led('a', 2, 1, 2), led('b', 1, 3, 4) ]);
judged(Elections => '', 'another path', [ led('a', 1, 1, 2), led('b', 2, 3, 4, path => '/f'), led('a', 1, 4.5, 5) ]);
judged(Elections => 'unexpected error', 'an error', [ led('a', 1, 1, 2), { id => 'c.0', path => '/e', outcome => 'no', sqlstate => 'XX000', error => 'oh' } ]);

my @late = (led('a', 1, 1, 2), led('b', 2, 3, 4), led('a', 1, 4.2, 5));
judged(Elections => '', 'its node was deleted by an administrator', \@late, interventions => [ { from => 2.5, to => 2.6, path => '/e', czxids => [1] } ]);
judged(Elections => 'two leaders', 'another one was', \@late, interventions => [ { from => 2.5, to => 2.6, path => '/e', czxids => [7] } ]);
judged(Elections => '', 'its session was closed by an administrator', \@late, interventions => [ { from => 2.5, to => 2.6, server => 'a' } ]);
judged(Elections => 'two leaders', "another's was", \@late, interventions => [ { from => 2.5, to => 2.6, server => 'b' } ]);
judged(Elections => 'two leaders', 'or later', \@late, interventions => [ { from => 6, to => 6.1, server => 'a' } ]);

# ---- claims and queues

sub claim($outcome, $slot, $asked, $told, %more)
{
	return attempt(outcome => $outcome, slot => $slot, asked => $asked, told => $told, %more);
}

judged(Claims => '', 'one after the other', [ claim(claimed => 1, 1, 2), claim(claimed => 2, 3, 4) ]);
judged(Claims => '', 'one of many', [ claim(claimed => 1, 1, 4), map { claim(refused => 1, $_, $_ + 1) } 1, 2, 3 ]);
judged(Claims => '', 'the same of two paths', [ claim(claimed => 1, 1, 2), claim(claimed => 1, 1, 2, path => '/q') ]);
judged(Claims => '', 'at once, the later first', [ claim(claimed => 1, 1, 4), claim(claimed => 2, 2, 3) ]);
judged(Claims => '', 'refused, since somebody with an error may have it', [ claim(failed => 1, 1, 2, sqlstate => '58030'), claim(refused => 1, 3, 4) ]);
judged(Claims => '', 'an error changes nothing', [ claim(failed => 1, 1, 2), claim(claimed => 1, 3, 4) ]);
judged(Claims => 'slot claimed twice', 'at once', [ claim(claimed => 1, 1, 3), claim(claimed => 1, 2, 4) ]);
judged(Claims => 'slot claimed twice', 'one after the other', [ claim(claimed => 1, 1, 2), claim(claimed => 1, 3, 4) ]);
judged(Claims => 'claim order', 'an earlier slot', [ claim(claimed => 2, 1, 2), claim(claimed => 1, 3, 4) ]);
judged(Claims => 'slot lost', 'nobody has it', [ claim(claimed => 1, 1, 2), claim(refused => 2, 3, 4) ]);
judged(Claims => 'slot lost', 'nobody has asked for it yet', [ claim(refused => 2, 1, 2), claim(claimed => 2, 3, 4) ]);
judged(Claims => 'unexpected error', 'out of memory', [ claim(failed => 1, 1, 2, sqlstate => '53200', error => 'out of memory') ]);

is(join(' ', map { $_->name } Nemesis::Target->all('claims', 'locks')), 'claims locks', 'targets are found by name');
ok(!eval { Nemesis::Target->all('nonsense'); 1 }, 'there is no target nonsense');

sub handle($action, $outcome, $what, %more)
{
	return attempt(action => $action, outcome => $outcome, what => $what, applied => 1, %more);
}
sub offer { return handle('offer', @_); }
sub take { return handle('take', @_); }

judged(Queues => '', 'offered and taken', [ offer(offered => 'x'), take(committed => 'x') ]);
judged(Queues => '', 'given back once', [ offer(offered => 'x'), take(aborted => 'x'), take(committed => 'x') ]);
judged(Queues => '', 'an offer that failed is taken or not', [ offer(failed => 'x'), offer(failed => 'y'), take(committed => 'x') ]);
judged(Queues => '', 'taken again, and not applied again', [ offer(offered => 'x'), take(committed => 'x'), take(committed => 'x', applied => 0) ]);
judged(Queues => '', 'taken again on another server', [ offer(offered => 'x'), take(committed => 'x'), take(committed => 'x', server => 'b') ]);
judged(Queues => '', 'there was none', [ handle('take', 'none', undef) ]);
judged(Queues => 'element lost', 'nobody has taken it', [ offer(offered => 'x') ]);
judged(Queues => 'element lost', 'who has taken it did not commit', [ offer(offered => 'x'), take(aborted => 'x') ]);
judged(Queues => 'applied twice', 'on one server', [ offer(offered => 'x'), take(committed => 'x'), take(committed => 'x') ]);
judged(Queues => 'element from nowhere', 'nobody has offered it', [ take(committed => 'x') ]);
judged(Queues => 'unexpected error', 'an internal error', [ offer(failed => 'x', sqlstate => 'XX000', error => 'internal error') ]);

done_testing;
