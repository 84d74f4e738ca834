# Copyright (c) 2026, zklock contributors
#
# Deadlocks on one server, through zklock's locks and PostgreSQL's own: one session gives up.

use Zklock::Test;
use Zklock::Deadlock;

my ($zk, $a) = cast('a',
	conf => [ "deadlock_timeout = '100ms'", 'log_lock_waits = on', 'max_prepared_transactions = 2' ]);
my ($one, $two, $three) = map { $a->session(name => $_) } qw(one two three);
$a->value('CREATE TABLE t (id int PRIMARY KEY, n int)');
$a->value('INSERT INTO t SELECT id, 0 FROM generate_series(1, 9) id');

my %row = (update => 'ShareLock on transaction \d+', table => 'AccessExclusiveLock on relation \d+ of database \d+',
	advisory => 'ExclusiveLock on advisory lock \[.*\]');

sub zk { my ($path, $mode) = @_; return ($mode || 'Exclusive') . qq{Lock on ZooKeeper path "$path"}; }

sub update { return "UPDATE t SET n = n + 1 WHERE id = $_[0]"; }

sub is_waiting
{
	my ($session) = @_;
	return $a->value("SELECT wait_event_type IN ('Lock', 'Extension') FROM pg_stat_activity WHERE pid = " . $session->pid) eq 't';
}

# Runs a statement that waits, and returns when PostgreSQL shows it to, or when it has been given up.
sub waits
{
	my ($session, $sql) = @_;
	$session->query_start($sql);
	wait_until { !$session->busy || is_waiting($session) } $session->name . ' to wait';
	return;
}

sub clean { return Zklock::Server->assert_clean($zk, [$a], '/d/a', '/d/b', '/d/c'); }

subtest 'two sessions lock two paths in opposite orders' => sub {
	in_transactions($one, $two);
	$one->query("SELECT zk_xact_lock('/d/a')");
	$two->query("SELECT zk_xact_lock('/d/b')");
	waits($one, "SELECT zk_xact_lock('/d/b')");
	my $mark = $a->log_mark;
	waits($two, "SELECT zk_xact_lock('/d/a') AS victim");
	my $victim = one_victim([ $one, $two ], [ $one, zk('/d/b'), $two, zk('/d/a') ]);
	is($victim->name, 'two', 'the younger wait was given up');
	my $log = $a->log_since($mark);
	like($log, qr/ERROR:  deadlock detected\n.*DETAIL:  Process @{[ $two->pid ]} waits for /, 'the log tells the cycle');
	like($log, qr/Process @{[ $two->pid ]}: SELECT zk_xact_lock\('\/d\/a'\) AS victim\n/, 'and what one runs');
	is($a->value("SELECT deadlocks FROM zk_stats WHERE kind = 'lock' AND mode = 'exclusive'"), 1, 'zk_stats counts it');
	like($log, qr/Process @{[ $one->pid ]}: SELECT zk_xact_lock\('\/d\/b'\)\n/, 'and what the other runs');
	clean();
};

subtest 'a lock and a row: the row is waited for last' => sub {
	in_transactions($one, $two);
	$one->query("SELECT zk_xact_lock('/d/a')");
	$two->query(update(1));
	my $mark = $a->log_mark;
	waits($two, "SELECT zk_xact_lock('/d/a')");
	$a->wait_log(qr/process @{[ $two->pid ]} still waiting for ExclusiveLock/, $mark);
	waits($one, update(1));
	is(one_victim([ $one, $two ], [ $one, $row{update}, $two, zk('/d/a') ])->name,
		'two', 'the session that waits for the lock gave up');
	clean();
};

subtest 'a lock and a row: the lock is waited for last' => sub {
	in_transactions($one, $two);
	$one->query("SELECT zk_xact_lock('/d/a')");
	$two->query(update(1));
	waits($one, update(1));
	waits($two, "SELECT zk_xact_lock('/d/a')");
	is(one_victim([ $one, $two ], [ $one, $row{update}, $two, zk('/d/a') ])->name,
		'two', 'the session that waits for the lock gave up');
	clean();
};

subtest 'a circle of three through a shared lock, an advisory lock and a table' => sub {
	in_transactions($one, $two, $three);
	$one->query("SELECT zk_xact_lock_shared('/d/a')");
	$two->query('SELECT pg_advisory_xact_lock(7)');
	$three->query('SELECT * FROM t');
	waits($three, "SELECT zk_xact_lock('/d/a')");
	waits($one, 'SELECT pg_advisory_xact_lock(7)');
	waits($two, 'LOCK TABLE t');
	one_victim([ $one, $two, $three ], [ $one, $row{advisory}, $two, $row{table}, $three, zk('/d/a') ]);
	clean();
};

subtest 'of two shared holders that ask for the exclusive lock one gives up at once' => sub {
	in_transactions($one, $two);
	$_->query("SET LOCAL deadlock_timeout = '1h'") foreach $one, $two;
	$_->query("SELECT zk_xact_lock_shared('/d/a')") foreach $one, $two;
	waits($one, "SELECT zk_xact_lock('/d/a')");
	$two->query_start("SELECT zk_xact_lock('/d/a')");
	is(one_victim([ $one, $two ], [ $one, zk('/d/a'), $two, zk('/d/a') ])->name, 'two', 'it was the second');
	clean();
};

subtest 'one that asks behind a writer who waits for it gives up at once' => sub {
	in_transactions($one, $two);
	$_->query("SET LOCAL deadlock_timeout = '1h'") foreach $one, $two;
	$one->query("SELECT zk_xact_lock_shared('/d/a')");
	waits($two, "SELECT zk_xact_lock('/d/a')");
	$one->query_start("SELECT zk_xact_lock('/d/a')");
	is(one_victim([ $one, $two ], [ $one, zk('/d/a'), $two, zk('/d/a') ])->name, 'one', 'it was the upgrade');
	clean();
};

subtest 'a cycle through a tree and an array' => sub {
	in_transactions($one, $two);
	$one->query("SELECT zk_xact_lock_tree('/d/t/b/c', '/d/t')");
	$two->query("SELECT zk_xact_lock(ARRAY['/d/b', '/d/c'])");
	waits($one, "SELECT zk_xact_lock(ARRAY['/d/0', '/d/c'])");
	waits($two, "SELECT zk_xact_lock_tree('/d/t/b', '/d/t')");
	one_victim([ $one, $two ], [ $one, zk('/d/c'), $two, zk('/d/t/b') ]);
	clean();
};

subtest 'a failed wait leaves session-level locks, as for advisory locks' => sub {
	$one->query("SELECT zk_lock('/d/a')");
	$two->query("SELECT zk_lock('/d/b')");
	waits($one, "SELECT zk_lock('/d/b')");
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
	$one->query("SELECT zk_xact_lock('/d/a')");
	$two->query(update(1));
	waits($two, "SELECT zk_xact_lock('/d/a')");
	waits($three, update(1));
	my $looks = $a->log_mark;
	$_->query("SET deadlock_timeout = '50ms'") foreach my $late = $a->session(name => 'late');
	is($late->query("SELECT zk_lock('/d/a', '1s')"), 'f', 'one behind them looks twenty times');
	ok($_->busy, $_->name . ' waits') foreach $two, $three;
	$one->query('COMMIT');
	is($two->finish, 't', 'the second goes on');
	$two->query('COMMIT');
	is($three->result->{sqlstate}, '00000', 'and the third');
	$three->query('COMMIT');
	$late->disconnect;
	clean();
};

subtest 'a prepared transaction is waited for by many, and waits for nobody' => sub {
	in_transactions($one, $two);
	$three->query('BEGIN');
	$three->query(update(1));
	$three->query("PREPARE TRANSACTION 'p'");
	$one->query("SELECT zk_xact_lock('/d/a')");
	waits($one, update(1));
	waits($two, "SELECT zk_xact_lock('/d/a')");
	is($three->query("SELECT zk_lock('/d/a', '500ms')"), 'f', 'a third one looks as well');
	ok($_->busy, $_->name . ' waits') foreach $one, $two;
	$three->query("COMMIT PREPARED 'p'");
	is($one->result->{sqlstate}, '00000', 'it is committed, and the first goes on');
	$one->query('COMMIT');
	is($two->finish, 't', 'and the second');
	$two->query('COMMIT');
	clean();
};

done_testing();
