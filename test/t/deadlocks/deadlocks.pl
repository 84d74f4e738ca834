# Copyright (c) 2026, zklock contributors
#
# Deadlocks on one server and across servers, through zklock's locks and PostgreSQL's own: one session gives up,
# wherever it is, and is told the whole cycle. Through the permits of a semaphore there is one only if no holder can
# let go.
#
# Of sessions that wait for another one of their server, which waits for another server, what is told stays the same
# as long as they wait, and names the session that is in the way. One waiting session searches for deadlocks across
# servers, for all of its server. When it waits no more, or is not heard of, another one takes over. Candidacies and
# prepared transactions give nothing up, and so are no part of a deadlock; and a clock that is set back hides none.

use Zklock::Test;
use Zklock::Deadlock;
use PostgreSQL::Test::Utils;

my $clock = PostgreSQL::Test::Utils::tempdir;
system_or_bail('gcc', '-shared', '-fPIC', '-o', "$clock/set_clock.so", 'test/preload/set_clock.c');
local $ENV{CLOCK_SET_BACK} = "$clock/back";
local $ENV{ZKLOCK_PRELOAD} = join(' ', grep { defined } $ENV{ZKLOCK_PRELOAD}, "$clock/set_clock.so");

my ($zk, $a, $b, $c) = cast('a b c', zk => { request_log => 1 },
	conf => [ "deadlock_timeout = '100ms'", 'log_lock_waits = on', 'max_prepared_transactions = 2' ]);
$a->value('CREATE TABLE t (id int PRIMARY KEY, n int)');
$a->value('INSERT INTO t SELECT id, 0 FROM generate_series(1, 9) id');
Zklock::Deadlock::scene($zk, [ $a, $b, $c ], (map { "/d/$_" } qw(a b c p one two q t/b/c s/leases s/locks e/1 e/2)), '/zklock-waits');

# All sessions wait for what they have asked for; then one that began before has looked many times.
sub nobody_gives_up(@sessions)
{
	my $late = $a->session(name => 'late');
	$late->query("SET deadlock_timeout = '10ms'");
	is($late->query("SELECT zk_semaphore_acquire('/d/s', 2, '1s')"), 'f', 'another one looks many times');
	ok($_->busy, $_->name . ' waits') foreach @sessions;
	return;
}

my ($one, $two, $three);
foreach my $servers ([ $a, $a, $a ], [ $a, $b, $c ])
{
	my @names = qw(one two three);
	($one, $two, $three) = map { sessions($servers->[$_], $names[$_]) } 0 .. 2;
	my $where = $one->server == $two->server ? 'of one server' : 'across servers';
	my $mark  = $two->server->log_mark;
	circle("two sessions $where lock two paths in opposite orders", 'one two',
		'one has /d/a, two has /d/b, one wants /d/b, two wants /d/a',
		victim => 'two',    # whose wait is the younger
		after  => sub {
			my $log = $two->server->log_since($mark);
			like($log, qr/ERROR:  deadlock detected\n.*DETAIL:  Process @{[ $two->pid ]}(?: of server "b")? waits for /, 'the log tells the cycle');
			like($log, qr/Process @{[ $two->pid ]}: SELECT zk_xact_lock\('\/d\/a'\)\n/, 'and what one runs');
			like($log, qr/Process @{[ $one->pid ]}: SELECT zk_xact_lock\('\/d\/b'\)\n/, 'and what the other runs') if $where =~ /one/;
			is($two->server->value("SELECT deadlocks FROM zk_stats WHERE kind = 'lock' AND mode = 'exclusive'"), 1, 'zk_stats counts it');
		});

	circle("three $where in a ring", 'one two three',
		'one has /d/a, two has /d/b, three has /d/c, two wants /d/c, three wants /d/a, one wants /d/b', victim => 'one');

	circle("a cycle $where through a tree and an array", 'one two',
		'one has /d/t//b/c, two has /d/b+/d/c, one wants /d/0+/d/c, two wants /d/t//b');

	subtest "one of two holders of permits $where can let go: no deadlock, until it cannot" => sub {
		in_transactions($one, $two, $three);
		steps('one has /d/s:2, two has /d/s:2, three has /d/a, three wants /d/s:2, one wants /d/a');
		nobody_gives_up($one, $three);
		steps('two wants /d/a');
		gives_up($where =~ /one/ ? 'two one three' : 'two three');
		nobody_gives_up($one, $three);
		steps('two releases /d/s');
		go_on($three, $one);
		steps('one releases /d/s, three releases /d/s');
		clean();
	};
}

($one, $two, $three) = sessions($a, 'one two three');
my $at_once = "SET LOCAL deadlock_timeout = '1h'";

my $mark = $a->log_mark;
circle('a lock and a row: the row is waited for last, but who waits for the lock gives up', 'one two',
	[ 'one has /d/a, two has row, two wants /d/a',
		sub { $a->wait_log(qr/process @{[ $two->pid ]} still waiting for ExclusiveLock/, $mark) }, 'one wants row' ],
	victim => 'two');

circle('a lock and a row: the lock is waited for last', 'one two', 'one has /d/a, two has row, one wants row, two wants /d/a',
	victim => 'two');

circle('a circle of three through a shared lock, an advisory lock and a table', 'one two three',
	'one shares /d/a, two has #7, three has table, three wants /d/a, one wants #7, two wants table');

circle('of two shared holders that ask for the exclusive lock the second gives up at once', 'one two',
	'one shares /d/a, two shares /d/a, one wants /d/a, two wants /d/a', first => $at_once, victim => 'two');

circle('one that asks behind a writer who waits for it gives up at once', 'one two',
	'one shares /d/a, two wants /d/a, one wants /d/a', first => $at_once, victim => 'one');

subtest 'a failed wait leaves session-level locks, as for advisory locks' => sub {
	local $Zklock::Deadlock::asks = 'zk_lock';
	steps('one has /d/a, two has /d/b, one wants /d/b');
	is($two->try("SELECT zk_lock('/d/a')")->{sqlstate}, '40P01', 'the second gives up');
	is_deeply([ $two->modes('/d/b') ], ['exclusive held'], 'it holds what it held');
	ok($one->busy, 'so the first waits on');
	is($two->query("SELECT zk_unlock('/d/b')"), 't', 'until it unlocks');
	is($one->finish, 't', 'then it goes on');
	$one->query('SELECT zk_unlock_all()');
	clean();
};

subtest 'a prepared transaction is waited for by many, and waits for nobody' => sub {
	in_transactions($one, $two, $three);
	steps('three has row');
	$three->query("PREPARE TRANSACTION 'p'");
	steps('one has /d/a, one wants row, two wants /d/a');
	is($three->query("SELECT zk_lock('/d/a', '500ms')"), 'f', 'a third one looks as well');
	ok($_->busy, $_->name . ' waits') foreach $one, $two;
	$three->query("COMMIT PREPARED 'p'");
	go_on($one, $two);
	clean();
};

subtest 'who waits for its turn waits for the one whose turn it is' => sub {
	in_transactions($one, $two, $three);
	steps('one has /d/s:1, two wants /d/s:1, three has /d/a, three wants /d/s:1, one wants /d/a');
	gives_up('one three two');
	steps('one releases /d/s');
	foreach my $next ($two, $three)
	{
		go_on($next);
		steps($next->name . ' releases /d/s');
	}
	clean();
};

subtest 'a session that has all permits and asks for one more waits for itself' => sub {
	in_transactions($one);
	steps('one has /d/s:2, one has /d/s:2, one wants /d/s:2');
	gives_up('one');
	steps('one releases /d/s, two has /d/s:2, one wants /d/s:2');
	nobody_gives_up($one);
	steps('two releases /d/s');
	is($one->finish, 't', 'but not if another session has one');
	steps('one releases /d/s, one releases /d/s');
	clean();
};

my ($a1, $a2, $a3, $b1, $b2) = (sessions($a, 'a1 a2 a3'), sessions($b, 'b1 b2 b3'));

circle('two servers, and a row of one of them', 'a1 a2 b1',
	'a1 has /d/a, a2 has row, b1 has /d/b, a2 wants /d/b, b1 wants /d/a, a1 wants row');

subtest 'a permit that a session of the same server has, which waits for another server' => sub {
	in_transactions($a1, $a2, $b1);
	steps('a1 has /d/s:1, a2 has /d/b, b1 has /d/a, a2 wants /d/s:1');
	wait_until { $a->wait_queued($a2, '/d/s')->{node} =~ /lease/ } 'it to wait for its permit';
	steps('a1 wants /d/a, b1 wants /d/b');
	gives_up('b1 a2 a1');
	go_on($a1);
	ok($a2->busy, 'the other waits on');
	steps('a1 releases /d/s');
	go_on($a2);
	steps('a2 releases /d/s');
	clean();
};

# What is told of all waits at this moment
sub told { return join '', map { $zk->shell->get("/zklock-waits/$_") } $zk->children('/zklock-waits'); }

subtest 'a server tells of a wait once' => sub {
	in_transactions($a1, $a2, $a3, $b1);
	steps('b1 shares /d/b, a1 has #1, a2 shares /d/a, a2 has /d/a, a1 shares /d/p, a3 has #0, a3 wants /d/a, a2 wants #1, a1 wants /d/b');
	my @told;
	wait_until { @told = $zk->children('/zklock-waits'); @told == 1 && 2 == (() = told() =~ /^wait/mg) } 'both to be told';
	my $sent = $a->value('SELECT requests FROM zk_session');
	$a->wait_value("SELECT requests > $sent + 20 FROM zk_session", 't');
	is_deeply([ $zk->children('/zklock-waits') ], \@told, 'rounds later it is the same record');
	$b1->query('COMMIT');
	go_on($a1, $a2, $a3);
	clean();
};

circle('a bystander whose wait ends with the same one is not told to be in the way', 'b2 a1 b1',
	'b1 shares /d/p, a1 has #1, b2 has #1, a2 has /d/a, a1 wants /d/p, a2 wants #1, b1 wants #1, b settles, b2 wants to share /d/p');

circle('a session that waits for its own server alone keeps a reader of another one back', 'b2 a1 a2 b1',
	'a1 shares /d/p, a2 shares /d/p, b1 has /d/b, b2 has #0, a2 wants /d/b, a1 wants /d/p, b1 wants #0, b settles, b2 wants to share /d/p');

circle('a session that holds nothing stands between the two locks of another one', 'b1 a1',
	'b1 shares /d/p, a1 wants /d/p, b settles, b1 wants /d/p', victim => 'b1');    # the youngest

sub look_after($server, $timeout)
{
	$server->set_conf(deadlock_timeout => $timeout);
	$server->wait_value('SHOW deadlock_timeout', $timeout);
	return;
}

look_after($a, '3s');
look_after($b, '1s');
circle('who stands between them is named, though its server tells of its waits late', 'b1 a1',
	'b1 shares /d/p, a1 wants /d/p, b settles, b1 wants /d/p', victim => 'b1');
look_after($_, '100ms') foreach $a, $b;

circle("other waits behind those of a deadlock do not matter, time $_", 'b1 a2 a1',
	'a1 has #1, b1 has #1, b2 shares /d/b, a2 shares /d/a, b2 has /d/b, b1 shares /d/p, a1 wants /d/p, b3 has #0, '
	  . 'b3 wants /d/b, b2 wants #1, a2 wants #1, b1 wants /d/a', victim => 'b1') foreach 1 .. 3;

# What a server tells of waits, in one record; "" if it has none or is just writing another
sub told_by($server)
{
	my $id = $server->session_id =~ s/^0x//r;
	my @names = grep { /^0*\Q$id\E-/ } $zk->children('/zklock-waits');
	return @names == 1 ? eval { $zk->shell->get("/zklock-waits/$names[0]") } // '' : '';
}

sub wait_told($server, $path) { return wait_until { told_by($server) =~ m{^held\t0\t0\t0\t\Q$path\E/}m } "$path to be told"; }

# The first to wait for long is the one that searches. What becomes of it, and what its session does in the end
my %ends = (
	'is granted what it waits for' => sub ($a1) {
		$b2->query('COMMIT');
		is($a1->finish, 't', 'it goes on');
		$b2->query('BEGIN');
		return sub { $a1->query('COMMIT'); };
	},
	'is cancelled' => sub ($a1) {
		is($a1->cancelled, '57014', 'it gives up');
		return sub { $a1->query('ROLLBACK'); };
	},
	'is terminated' => sub ($a1) {
		is($a1->terminated, '57P01', 'it ends');
		return sub { };
	},
	'is stopped' => sub ($a1) {
		freeze($a1->pid);
		return sub { thaw($a1->pid); go_on($a1); };
	});

foreach my $what (sort keys %ends)
{
	subtest "the session that searches $what, and another one takes over" => sub {
		my ($a1) = sessions($a, 'a1');
		in_transactions($a1, $a2, $b1, $b2);
		steps('a1 has /d/one, a2 has /d/two, b1 has /d/p, b2 has /d/q, a1 wants /d/q');
		wait_told($a, '/d/one');
		steps('a2 wants /d/p');
		wait_told($a, '/d/two');
		my $over = $ends{$what}->($a1);
		steps('b1 wants /d/two');
		one_victim('b1 a2');
		$b2->query('COMMIT');
		$over->();
		clean();
	};
}

($a1) = sessions($a, 'a1');

subtest 'a session that is stopped, and is to give up, hides no other deadlock' => sub {
	in_transactions($a1, $a2, $b1, $b2);
	$b1->query($at_once);
	steps('a1 has /d/a, b1 has /d/b, a2 has /d/one, b2 has /d/two, a1 wants /d/b, b1 wants /d/a');
	freeze($b1->pid);
	steps('a2 wants /d/two, b2 wants /d/one');
	is(one_victim('b2 a2')->name, 'b2', 'the younger of the other two gives up');
	thaw($b1->pid);
	gives_up('b1 a1');
	go_on($a1);
	clean();
};

# The elections at which a server stands, and in which states it is there
sub stand($server, $elections, $states = '')
{
	$server->set_conf('zklock.elections' => $elections);
	$server->wait_value("SELECT string_agg(state, ' ' ORDER BY path) FROM zk_elections", $states);
	return;
}

# All of these wait on while they and the servers look several times.
sub wait_on(@sessions)
{
	my $mark = $zk->mark;
	wait_until { ($zk->requests($mark)->{sync} // 0) >= 40 || grep { !$_->busy } @sessions } 'the servers to look several times';
	ok($_->busy, $_->name . ' waits') foreach @sessions;
	return;
}

subtest 'two servers that lead one election each hide no deadlock of sessions' => sub {
	stand($a, '/d/e/1=lock', 'elected');
	stand($b, '/d/e/2=lock', 'elected');
	stand($a, '/d/e/1=lock, /d/e/2=lock', 'elected ready');
	stand($b, '/d/e/1=lock, /d/e/2=lock', 'ready elected');
	in_transactions($a1, $b1);
	steps('a1 has /d/one, b1 has /d/two, a1 wants /d/two, b1 wants /d/one');
	is(one_victim('a1 b1')->name, 'b1', 'the younger gives up');
	stand($_, '') foreach $a, $b;
	clean();
};

subtest 'a candidate waits for a session, which waits for the leader on the same server: no deadlock' => sub {
	in_transactions($a1, $b1);
	steps('b1 has /d/e/2, b1 has /d/c');
	stand($a, '/d/e/1=lock', 'elected');
	stand($a, '/d/e/1=lock, /d/e/2=lock', 'elected ready');
	steps('a1 wants /d/c, b1 wants /d/e/1');
	wait_on($a1, $b1);
	stand($a, '');
	go_on($b1, $a1);
	clean();
};

subtest 'a candidate waits for a session, and its server has a prepared transaction for which that waits: no deadlock' => sub {
	in_transactions($a1, $a2, $a3, $b1);
	steps('b1 has /d/e/2, b1 has /d/c, a1 has /d/a, a2 has row');
	stand($a, '/d/e/2=lock', 'ready');
	$a2->query("PREPARE TRANSACTION 'p'");
	steps('a3 wants /d/c, a1 wants row, b1 wants /d/a');
	wait_on($a3, $a1, $b1);
	$a2->query("COMMIT PREPARED 'p'");
	go_on($a1, $b1, $a3);
	stand($a, '');
	clean();
};

subtest 'a candidate keeps a reader back behind another one: who is in a circle gives up' => sub {
	in_transactions($a1, $b1);
	steps('a1 shares /d/e/1, b1 has /d/a');
	stand($c, '/d/e/1=lock', 'ready');
	steps('b1 wants to share /d/e/1, a1 wants /d/a');
	gives_up([ $a1, zk('/d/a'), $b1, zk('/d/e/1', 'Share') . ' behind another contender' ]);
	stand($c, '');
	go_on($b1);
	clean();
};

# The clock of the day is set back by an hour.
my $set_back = sub { append_to_file($ENV{CLOCK_SET_BACK}, ''); };

circle("the clock is set back while one session waits, $_->[0]", "$_->[1] $_->[2]",
	[ "$_->[1] has /d/a, $_->[2] has /d/b, $_->[2] wants /d/a", $set_back, "$_->[1] wants /d/b" ],
	victim => $_->[1], after => sub { unlink $ENV{CLOCK_SET_BACK}; })
  foreach [ 'here', 'one', 'two' ], [ 'across servers', 'a1', 'b1' ];

done_testing();
