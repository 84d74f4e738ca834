# Copyright (c) 2026, zklock contributors
#
# Deadlocks through the permits of a semaphore: there is one only if no holder can let go.

use Zklock::Test;
use Zklock::Deadlock;

my ($zk, $a) = cast('a', conf => ["deadlock_timeout = '100ms'"]);
my ($one, $two, $three) = map { $a->session(name => $_) } qw(one two three);
my $permit = 'SemaphorePermit on ZooKeeper path "/d/s"';
my $lock   = 'ExclusiveLock on ZooKeeper path "/d/a"';

sub acquire { my ($permits, $timeout) = @_; return "SELECT zk_semaphore_acquire('/d/s', $permits" . ($timeout ? ", '$timeout'" : '') . ')'; }

# All sessions wait for what they have asked for; then one that began before has looked many times.
sub nobody_gives_up
{
	my (@sessions) = @_;
	my $late = $a->session(name => 'late');
	$late->query("SET deadlock_timeout = '10ms'");
	is($late->query(acquire(2, '1s')), 'f', 'another one looks many times');
	ok($_->busy, $_->name . ' waits') foreach @sessions;
	$late->disconnect;
	return;
}

sub clean
{
	$_->query('SELECT zk_unlock_all()') foreach $one, $two, $three;
	return Zklock::Server->assert_clean($zk, [$a], '/d/a', '/d/s/leases', '/d/s/locks');
}

subtest 'the holder of the only permit waits for one who waits for a permit' => sub {
	in_transactions($one, $two);
	$one->query(acquire(1));
	$two->query("SELECT zk_xact_lock('/d/a')");
	$two->start_waiting(acquire(1), '/d/s');
	$one->query_start("SELECT zk_xact_lock('/d/a')");
	my $victim = wait_until { (grep { !$_->busy } $one, $two)[0] } 'one to give up';
	my $result = $victim->result;
	is($result->{sqlstate}, '40P01', 'the younger wait was given up');
	like($result->{detail}, cycle_regex($victim, undef, $one, $lock, $two, $permit), 'and the cycle is told');
	is($victim->name, 'one', 'it was the one that asked last');
	$one->query('ROLLBACK');
	ok($two->busy, 'a permit is not a transaction\'s');
	$one->query("SELECT zk_semaphore_release('/d/s')");
	is($two->finish, 't', 'it is had when it is given back');
	$two->query('COMMIT');
	clean();
};

subtest 'one of two holders can let go: no deadlock, until it cannot' => sub {
	in_transactions($one, $two, $three);
	$_->query(acquire(2)) foreach $one, $two;
	$three->query("SELECT zk_xact_lock('/d/a')");
	$three->start_waiting(acquire(2), '/d/s');
	$one->start_waiting("SELECT zk_xact_lock('/d/a')", '/d/a');
	nobody_gives_up($one, $three);
	$two->query_start("SELECT zk_xact_lock('/d/a')");
	is($two->result->{sqlstate}, '40P01', 'when the other holder waits as well, it gives up');
	$two->query('ROLLBACK');
	nobody_gives_up($one, $three);
	$two->query("SELECT zk_semaphore_release('/d/s')");
	is($three->finish, 't', 'with its permit the waiter goes on');
	$three->query('COMMIT');
	is($one->finish, 't', 'and the first holder');
	$one->query('COMMIT');
	clean();
};

subtest 'who waits for its turn waits for the one whose turn it is' => sub {
	in_transactions($one, $two, $three);
	$one->query(acquire(1));
	$two->start_waiting(acquire(1), '/d/s');
	$three->query("SELECT zk_xact_lock('/d/a')");
	$three->start_waiting(acquire(1), '/d/s');
	$one->query_start("SELECT zk_xact_lock('/d/a')");
	my $result = $one->result;
	is($result->{sqlstate}, '40P01', 'the youngest of the three gives up');
	like($result->{detail}, cycle_regex($one, undef, $one, $lock, $three, $permit, $two, $permit), 'and the cycle is told');
	$one->query('ROLLBACK');
	$one->query("SELECT zk_semaphore_release('/d/s')");
	is($two->finish, 't', 'the second goes on');
	$two->query('COMMIT');
	$two->query("SELECT zk_semaphore_release('/d/s')");
	is($three->finish, 't', 'and the third');
	$three->query('COMMIT');
	clean();
};

subtest 'a session that has all permits and asks for one more waits for itself' => sub {
	$one->query(acquire(2)) foreach 1, 2;
	my $result = $one->try(acquire(2));
	is($result->{sqlstate}, '40P01', 'which is a deadlock');
	like($result->{detail}, cycle_regex($one, undef, $one, $permit), 'of one process');
	$one->query("SELECT zk_semaphore_release('/d/s')");
	$two->query(acquire(2));
	$one->query_start(acquire(2));
	nobody_gives_up($one);
	$two->query("SELECT zk_semaphore_release('/d/s')");
	is($one->finish, 't', 'but not if another session has one');
	clean();
};

done_testing();
