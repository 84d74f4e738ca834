# Copyright (c) 2026, zklock contributors
#
# Deadlocks across servers: one session gives up, wherever it is, and is told the whole cycle.

use Zklock::Test;
use Zklock::Deadlock;

my ($zk, $a, $b, $c) = cast('a b c', conf => ["deadlock_timeout = '200ms'"]);
$a->value('CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)');
Zklock::Deadlock::scene($zk, [ $a, $b, $c ], '/d/a', '/d/b', '/d/c', '/d/t/x/y', '/d/s/leases', '/zklock-waits');
my ($a1, $a2, $b1, $c1) = (sessions($a, 'a1 a2'), sessions($b, 'b1'), sessions($c, 'c1'));

my $mark = $b->log_mark;
circle('two servers, two locks', 'a1 b1', 'a1 has /d/a, b1 has /d/b, a1 wants /d/b, b1 wants /d/a',
	victim => 'b1',    # the youngest
	after  => sub {
		like($b->log_since($mark), qr/Process @{[ $b1->pid ]}: SELECT zk_xact_lock\('\/d\/a'\)/, 'the log has what it runs');
	});

circle('two servers, and a row of one of them', 'a1 a2 b1',
	'a1 has /d/a, a2 has row, b1 has /d/b, a2 wants /d/b, b1 wants /d/a, a1 wants row');

circle('three servers in a ring', 'a1 b1 c1',
	'a1 has /d/a, b1 has /d/b, c1 has /d/c, b1 wants /d/c, c1 wants /d/a, a1 wants /d/b', victim => 'a1');

circle('two readers of two servers that upgrade', 'a1 b1', 'a1 shares /d/a, b1 shares /d/a, a1 wants /d/a, b1 wants /d/a');

circle('a tree and an array', 'a1 b1', 'a1 has /d/t//x/y, b1 has /d/b+/d/c, a1 wants /d/a+/d/c, b1 wants /d/t/x');

subtest 'a permit: no deadlock while one holder can let go' => sub {
	in_transactions($a1, $b1, $c1);
	steps('a1 has /d/s:2, b1 has /d/s:2, c1 has /d/a, c1 wants /d/s:2, a1 wants /d/a');
	is($c->session(name => 'late')->query("SELECT zk_lock('/d/a', '2s')"), 'f', 'time passes');
	ok($_->busy, $_->name . ' waits') foreach $a1, $c1;
	steps('b1 wants /d/a');
	gives_up('b1 c1');
	ok($_->busy, $_->name . ' waits on') foreach $a1, $c1;
	steps('b1 releases /d/s');
	go_on($c1, $a1);
	steps('a1 releases /d/s, c1 releases /d/s');
	clean();
};

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

done_testing();
