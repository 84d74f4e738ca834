# Copyright (c) 2026, zklock contributors
#
# Nothing is granted before the worker is sure to hear of it should somebody delete the node. A
# session whose turn comes in that moment, and whose node is gone by then, queues again; it is not
# given a lock that it has lost already. The bug watched-early of test/faults.md makes this fail.
#
# Server a talks to ZooKeeper through a proxy.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT token node_of unlock lost clean);

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '20s');
my $shell = $zk->shell;

hold($a, 'barrier', '/n/barrier');
on($a, 'other');

# The worker answers this by itself, after it has taken up what ZooKeeper has told it.
sub goes_on($what)
{
	is(join('', map { $s{other}->query("SELECT zk_try_lock('/n/barrier')") } 1 .. 20), 'f' x 20, "$what: the worker goes on");
	return;
}

foreach my $mode ('', '_shared')
{
	subtest "zk_lock$mode: the turn comes while the watch on the node is asked for" => sub {
		my $path = "/n/turn$mode";
		hold($b, 'holder', $path);
		my $token  = token('holder', $path);
		my $first  = node_of($b, 'holder');
		my $watch  = $proxy->hold_request(op => 'getData', path => "^$path/.*0000000001\$");
		on($a, 'waiter')->query_start("SELECT zk_lock$mode('$path')");
		$proxy->fired($watch);
		my ($own) = grep { $_ ne $first } $zk->wait_children($path, 2);
		# The watch on the path, which would tell as well, is used up.
		$shell->create("$path/other");
		goes_on('something else comes');
		$shell->delete("$path/$first");
		goes_on('the holder\'s node goes');
		ok($s{waiter}->busy, 'the session is not granted what nobody watches');
		$shell->delete("$path/$_") foreach $own, 'other';
		$proxy->heal;
		is($s{waiter}->finish, 't', 'it gets the lock');
		isnt(node_of($a, 'waiter'), $own, 'with another node');
		cmp_ok($s{waiter}->query("SELECT zk_fencing_token('$path')"), '>', $token, 'which it holds, with a higher token');
		lost($b, 'holder', $path);
		is($s{waiter}->query("SELECT zk_unlock$mode('$path')"), 't', 'until it lets go');
	};
}

unlock('barrier', '/n/barrier');
done_clean($zk, $a, $b);
