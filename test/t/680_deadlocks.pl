# Copyright (c) 2026, zklock contributors
#
# Deadlocks on one server, through zklock's locks and PostgreSQL's own: one session gives up. Through the
# permits of a semaphore there is one only if no holder can let go.

use Zklock::Test;
use Zklock::Deadlock;

my ($zk, $a) = cast('a',
	conf => [ "deadlock_timeout = '100ms'", 'log_lock_waits = on', 'max_prepared_transactions = 2' ]);
$a->value('CREATE TABLE t (id int PRIMARY KEY, n int)');
$a->value('INSERT INTO t SELECT id, 0 FROM generate_series(1, 9) id');
Zklock::Deadlock::scene($zk, [$a], '/d/a', '/d/b', '/d/c', '/d/s/leases', '/d/s/locks');

my ($one, $two, $three) = sessions($a, 'one two three');
my $at_once = "SET LOCAL deadlock_timeout = '1h'";

my $mark = $a->log_mark;
circle('two sessions lock two paths in opposite orders', 'one two', 'one has /d/a, two has /d/b, one wants /d/b, two wants /d/a',
	victim => 'two',    # whose wait is the younger
	after  => sub {
		my $log = $a->log_since($mark);
		like($log, qr/ERROR:  deadlock detected\n.*DETAIL:  Process @{[ $two->pid ]} waits for /, 'the log tells the cycle');
		like($log, qr/Process @{[ $two->pid ]}: SELECT zk_xact_lock\('\/d\/a'\)\n/, 'and what one runs');
		like($log, qr/Process @{[ $one->pid ]}: SELECT zk_xact_lock\('\/d\/b'\)\n/, 'and what the other runs');
		is($a->value("SELECT deadlocks FROM zk_stats WHERE kind = 'lock' AND mode = 'exclusive'"), 1, 'zk_stats counts it');
	});

$mark = $a->log_mark;
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

circle('a cycle through a tree and an array', 'one two',
	'one has /d/t//b/c, two has /d/b+/d/c, one wants /d/0+/d/c, two wants /d/t//b');

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

subtest 'waits without a circle end by themselves' => sub {
	in_transactions($one, $two, $three);
	steps('one has /d/a, two has row, two wants /d/a, three wants row');
	my $late = $a->session(name => 'late');
	$late->query("SET deadlock_timeout = '50ms'");
	is($late->query("SELECT zk_lock('/d/a', '1s')"), 'f', 'one behind them looks twenty times');
	ok($_->busy, $_->name . ' waits') foreach $two, $three;
	$one->query('COMMIT');
	go_on($two, $three);
	$late->disconnect;
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

# All sessions wait for what they have asked for; then one that began before has looked many times.
sub nobody_gives_up(@sessions)
{
	my $late = $a->session(name => 'late');
	$late->query("SET deadlock_timeout = '10ms'");
	is($late->query("SELECT zk_semaphore_acquire('/d/s', 2, '1s')"), 'f', 'another one looks many times');
	ok($_->busy, $_->name . ' waits') foreach @sessions;
	return;
}

subtest 'the holder of the only permit waits for one who waits for a permit' => sub {
	in_transactions($one, $two);
	steps('one has /d/s:1, two has /d/a, two wants /d/s:1, one wants /d/a');
	gives_up('one two');
	ok($two->busy, 'a permit is not a transaction\'s');
	steps('one releases /d/s');
	go_on($two);
	steps('two releases /d/s');
	clean();
};

subtest 'one of two holders can let go: no deadlock, until it cannot' => sub {
	in_transactions($one, $two, $three);
	steps('one has /d/s:2, two has /d/s:2, three has /d/a, three wants /d/s:2, one wants /d/a');
	nobody_gives_up($one, $three);
	is($two->try("SELECT zk_xact_lock('/d/a')")->{sqlstate}, '40P01', 'when the other holder waits as well, it gives up');
	$two->query('ROLLBACK');
	nobody_gives_up($one, $three);
	steps('two releases /d/s');
	go_on($three, $one);
	steps('one releases /d/s, three releases /d/s');
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

done_testing();
