# Copyright (c) 2026, zklock contributors
#
# zklock.parent_nodes: which roles may choose, and what "existing" means.

use Zklock::Test;

my ($zk, $a) = cast('a');
my $shell = $zk->shell;
my $s     = $a->session;
$a->value('CREATE ROLE mallory LOGIN');
$a->value('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory');

subtest 'only superusers, and who has the privilege, choose what is created' => sub {
	my $m = $a->session(user => 'mallory');
	foreach my $value (qw(persistent container existing))
	{
		is($m->try("SET zklock.parent_nodes = $value")->{sqlstate}, '42501', "$value: refused");
	}
	is($m->try("SELECT set_config('zklock.parent_nodes', 'persistent', false)")->{sqlstate}, '42501', 'set_config: refused');
	is($m->try('ALTER ROLE mallory SET zklock.parent_nodes = persistent')->{sqlstate}, '42501', 'ALTER ROLE: refused');
	$m->disconnect;
	$a->value('ALTER ROLE mallory SET zklock.parent_nodes = existing');
	$m = $a->session(user => 'mallory');
	is($m->query('SHOW zklock.parent_nodes'), 'existing', 'a superuser chooses for the role');
	is($m->try('ALTER ROLE mallory RESET zklock.parent_nodes')->{sqlstate}, '42501', 'which it cannot undo');
	is($m->try('RESET zklock.parent_nodes')->{sqlstate}, '42501', 'in no way');
	$m->query('DISCARD ALL');
	is($m->query('SHOW zklock.parent_nodes'), 'existing', 'not with DISCARD ALL either');
	$a->value('GRANT SET ON PARAMETER zklock.parent_nodes TO mallory');
	ok($m->try('SET zklock.parent_nodes = persistent')->{ok}, 'but the privilege can be granted');
	$a->value('REVOKE SET ON PARAMETER zklock.parent_nodes FROM mallory');
	$m->disconnect;
};

my $m = $a->session(user => 'mallory');
$shell->create('/p/there', makepath => 1);

sub missing
{
	my ($sql, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = $m->try($sql);
	is($result->{sqlstate}, '42704', "$name: refused") or diag explain $result;
	return $result;
}

subtest 'with "existing" no path is created' => sub {
	my $result = missing(q{SELECT zk_lock('/p/missing')}, 'a lock');
	is($result->{message}, 'cannot use ZooKeeper path "/p/missing": it does not exist', 'message');
	is($result->{detail}, 'ZooKeeper refused: ZNONODE. Missing nodes are not created, since "zklock.parent_nodes" is "existing".', 'detail');
	is($result->{hint}, 'Ask an administrator to create the path in ZooKeeper.', 'hint');
	missing(q{SELECT zk_lock('/p/missing/deep', '1s')},              'with a timeout');
	missing(q{SELECT zk_try_lock('/p/missing')},                     'one that does not wait');
	missing(q{SELECT zk_xact_lock_shared('/p/missing')},             'a shared one');
	missing(q{SELECT zk_lock(ARRAY['/p/there', '/p/missing'])},      'one of several');
	missing(q{SELECT zk_lock_tree('/p/there/below', '/p')},          'the end of a branch');
	missing(q{SELECT zk_semaphore_acquire('/p/there', 2)},           'a semaphore');
	missing(q{SELECT zk_semaphore_acquire('/p/there', 2, '0')},      'one that does not wait');
	is_deeply([ sort $zk->children('/p') ], ['there'], 'nothing was created');
	is_deeply([ $zk->children('/p/there') ], [], 'nor below');
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
};

subtest 'and what exists can be locked' => sub {
	is($m->query(q{SELECT zk_lock('/p/there')}), 't', 'a lock');
	is($m->query(q{SELECT zk_unlock('/p/there')}), 't', 'unlocked');
	$shell->create("/p/semaphore/$_", makepath => 1) foreach qw(locks leases);
	is($m->query(q{SELECT zk_semaphore_acquire('/p/semaphore', 2)}), 't', 'a semaphore, if both its nodes exist');
	$m->query('SELECT zk_unlock_all()');
};

subtest 'who waits behind one that may create the path gets the lock' => sub {
	my $creator = $a->session;
	is($creator->query(q{SELECT zk_lock('/p/created')}), 't', 'one creates it');
	$m->start_waiting(q{SELECT zk_lock('/p/created')});
	$creator->query('SELECT zk_unlock_all()');
	is($m->finish, 't', 'the other one is next');
	$m->query('SELECT zk_unlock_all()');
	$creator->disconnect;
};

subtest 'who waits together with one that may not, gets the lock nevertheless' => sub {
	# While ZooKeeper does not answer both join one run, the one that may not being first.
	$zk->pause;
	$m->start_waiting(q{SELECT zk_lock('/p/both')});
	$s->start_waiting(q{SELECT zk_lock('/p/both')});
	$zk->resume;
	is($m->result->{sqlstate}, '42704', 'the first is refused');
	is($s->finish, 't', 'the second has the path created');
	$s->query('SELECT zk_unlock_all()');
};

subtest 'a path that goes away while it is locked' => sub {
	$shell->create('/p/going');
	is($m->query(q{SELECT zk_lock('/p/going')}), 't', 'is locked');
	my ($node) = $zk->children('/p/going');
	my $waiter = $a->session(user => 'mallory');
	$waiter->start_waiting(q{SELECT zk_lock('/p/going')});

	# The worker would put another node there in between.
	freeze($a->worker_pid);
	$shell->delete($_) foreach "/p/going/$node", '/p/going';
	thaw($a->worker_pid);
	is($waiter->result->{sqlstate}, '42704', 'who waits for it is refused');
	$a->wait_lock($m, 'lost', '/p/going');
	$m->query('SELECT zk_unlock_all()');
	$waiter->disconnect;
};
$_->disconnect foreach $m, $s;
Zklock::Server->assert_clean($zk, [$a], map { "/p/$_" } qw(there missing created both going));
done_testing;
