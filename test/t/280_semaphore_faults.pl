# Copyright (c) 2026, zklock contributors
#
# What a session that asks for a permit is told when it cannot be answered: ZooKeeper is out of reach, or there
# is no room in shared memory. How waits for permits end otherwise is in 130_cancel.pl.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::Semaphore;

my ($zk, $proxy, $a, $c) = cast('a c', proxied => 'a', timeout => '12s', c => { conf => ['zklock.max_locks = 3'] });
Zklock::Semaphore::cast($zk, $a);

subtest 'a session without a permit is told when ZooKeeper is out of reach, or waits' => sub {
	my @s = map { $a->session(name => "a$_") } 1, 2;
	new_path();
	acquire($s[0], 1);
	$a->cut_off($proxy);
	is($s[1]->try(sql(1, '0'))->{sqlstate}, '58030', 'who does not wait learns that nobody can be asked');
	is($s[1]->try(sql(1, '200ms'))->{sqlstate}, '58030', 'so does who waited');
	acquire_start($s[1], 1);
	wait_row($s[1], "state = 'waiting'");
	is(release($s[0]), 't', 'a release does not wait for it');
	$proxy->heal;
	is($s[1]->finish, 't', 'a wait may outlive it');
	release($s[1]);
	settled(0, 'out of reach');
};

subtest 'a session that finds no room in shared memory is told which setting is to blame' => sub {
	my @c = map { $c->session(name => "c$_") } 1, 2;
	new_path();
	is(acquire($c[0], 9), 't', 'a permit of three entries');
	$c->wait_value('SELECT count(*) FROM zk_locks', 1);
	is(acquire($c[0], 9), 't', 'another: to ask for it takes two');
	$c->wait_value('SELECT count(*) FROM zk_locks', 2);
	foreach my $zero (0, 1)
	{
		if ($zero)
		{
			# Once what the refused call had taken is given back.
			wait_until { ($c[0]->try(sql(9, '0'))->{text} || '') eq 't' } 'an entry to be free';
			pass('without waiting it takes one, the last');
		}
		fails($c[1]->try(sql(9)), '53200', 'then there is no room', hint => qr/zklock\.max_locks/);
		$c->wait_value('SELECT count(*) FROM zk_locks', $zero ? 3 : 2);
	}
	$c[0]->query('SELECT zk_unlock_all()');
	is(acquire($c[1], 1, '30s'), 't', 'after that there is again');
	$c[1]->query('SELECT zk_unlock_all()');
	$c->assert_clean($zk);
};

done_clean($zk, $a, $c);
