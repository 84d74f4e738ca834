# Copyright (c) 2026, zklock contributors
#
# The test harness itself, without zklock: if this fails, look here first.

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);
use Zklock::Process;
use Zklock::Shell;

my $start = time;
my $zk    = Zklock::ZooKeeper->standalone;
note sprintf('ready after %.2f s', time - $start);

subtest 'a ZooKeeper server runs' => sub {
	is($zk->four_letter('ruok'), 'imok', 'a ZooKeeper server runs');
	is($zk->leader->mode, 'standalone', 'it is alone');
};

my $shell = $zk->shell;

subtest 'the shell creates, reads and lists nodes' => sub {
	is($shell->create('/h/nodes', makepath => 1), '/h/nodes', 'the shell creates a node');
	my $second = $shell->create('/h/nodes/b-', ephemeral => 1, sequence => 1, data => "\x{e4}");
	my $third = $shell->create('/h/nodes/a-', ephemeral => 1, sequence => 1);
	is_deeply([ $zk->children('/h/nodes') ], [ 'b-0000000000', 'a-0000000001' ],
		'children come in the order of their numbers');
	is($shell->get($second), "\x{e4}", 'data survives the way there and back');
	is($shell->stat($second)->{ephemeralOwner}, $shell->session->[0], 'the owner is told');
	is_deeply($shell->ephemerals, [ $third, $second ], 'ephemeral nodes are found');
	is_deeply([ $zk->children('/nowhere') ], [], 'no node, no children');
	ok(!eval { $shell->create('/h/nodes'); 1 } && $@ =~ /NodeExistsError/, 'errors are raised');
};

subtest 'requests are counted by operation' => sub {
	my $mark = $zk->mark;
	$shell->create('/h/x');
	$shell->ls('/h/x');
	eval { $shell->delete('/h/y') };
	$shell->delete('/h/x');
	is_deeply($zk->requests($mark), { create => 1, getChildren => 1, delete => 2 },
		'requests are counted by operation');
};

subtest 'a session is ended from outside' => sub {
	my $victim = Zklock::Shell->new;
	$victim->connect($zk->connect_string);
	$victim->create('/h/victim', ephemeral => 1);
	$shell->expire_session($victim->session->[0]);
	ok(!$shell->exists('/h/victim'), 'a session is ended from outside');
	$victim->stop;
};

my $proxy  = Zklock::Proxy->start($zk);
my $client = Zklock::Shell->new;
$client->connect($proxy->connect_string);
$proxy->reset_counts;

subtest 'the proxy counts and remembers requests' => sub {
	$client->create('/h/proxied');
	$client->ls('/h');
	is_deeply($proxy->counts_without_beats, { create => 1, getChildren => 1 }, 'the proxy counts');
	is_deeply([ grep { $_->[0] !~ /^(ping|multi)$/ } @{ $proxy->requests } ],
		[ [ 'create', '/h/proxied' ], [ 'getChildren', '/h' ] ],
		'and remembers');
};

subtest 'the proxy loses replies and requests' => sub {
	# kazoo's create is not repeated after a loss.
	my $fault = $proxy->lose_reply(op => 'create|create2', nth => 2, path => '^/h/lost');
	$client->create('/h/lost1');
	ok(!eval { $client->create('/h/lost2'); 1 } && $@ =~ /ConnectionLoss/,
		'the client learns nothing of its create')
	  or diag $@;
	is_deeply($proxy->fired($fault), [ 'create', '/h/lost2' ], 'since the proxy lost the reply');
	ok($shell->exists('/h/lost2'), 'but the node exists');

	$fault = $proxy->lose_request(op => 'create', path => 'never');
	wait_until { eval { $client->ls('/') } } 'the client to be back';
	ok(!eval { $client->create('/h/never'); 1 }, 'a request is lost');
	$proxy->fired($fault);
	ok(!$shell->exists('/h/never'), 'the server never saw it');
};

subtest 'the proxy holds replies back, or everything' => sub {
	wait_until { eval { $client->ls('/') } } 'the client to be back';
	my $fault = $proxy->hold_reply(op => 'create');
	my $pending = $client->send('create', '/h/held', {});
	$proxy->fired($fault);
	wait_until { $shell->exists('/h/held') } 'the node';
	ok(!$client->ready($pending), 'a reply is held');
	$proxy->heal;
	is($client->result($pending), '/h/held', 'and let go');

	$proxy->blackhole;
	$pending = $client->send('create', '/h/hole', {});
	my $past = time + 0.2;
	wait_until { time > $past } 'a moment';
	ok(!$client->ready($pending) && !$shell->exists('/h/hole'), 'nothing gets through a black hole');
	$proxy->heal;
	is($client->result($pending), '/h/hole', 'until it is healed');
};

subtest 'the proxy delays replies, and cuts connections' => sub {
	$proxy->delay(300);
	$start = time;
	$client->ls('/');
	cmp_ok(time - $start, '>=', 0.3, 'replies are delayed');
	$proxy->delay(0);

	$proxy->cut;
	wait_until { $proxy->connections == 0 } 'the end of all connections';
	my $refused = Zklock::Shell->new;
	my $pending = $refused->send('connect', $proxy->connect_string, {});
	my $past = time + 0.3;
	wait_until { time > $past } 'a moment';
	ok(!$refused->ready($pending), 'a cut proxy lets nobody connect');
	$proxy->heal;
	like($refused->result($pending), qr/^0x/, 'a healed one does');
	$_->stop foreach $refused, $client;
};

subtest 'a ZooKeeper server is paused, killed and started again' => sub {
	$zk->pause;
	is($zk->server(1)->four_letter('ruok', 0.3), '', 'a paused server is silent');
	$zk->resume;
	is($zk->four_letter('ruok'), 'imok', 'a resumed one is not');
	$zk->kill9;
	is($zk->running, 0, 'a killed one is gone');
	$zk->start;
	ok($shell->exists('/h/nodes'), 'and remembers everything when it is back');
};

subtest 'a process ends with its object' => sub {
	my $child = Zklock::Process->new(
		name => 'sleeper',
		log  => "$PostgreSQL::Test::Utils::log_path/sleeper.log",
		argv => [ 'sleep', '600' ]);
	my $pid = $child->pid;
	undef $child;
	ok(!kill(0, $pid), 'a process ends with its object');
};

subtest 'an ensemble survives the loss of its leader' => sub {
	$start = time;
	my $ensemble = Zklock::ZooKeeper->ensemble(3);
	note sprintf('ensemble ready after %.2f s', time - $start);
	my $leader = $ensemble->leader;
	is(scalar($ensemble->followers), 2, 'an ensemble has a leader and two followers');
	$ensemble->shell->create('/e');
	my $mark = $ensemble->mark;
	$ensemble->shell->create('/e/x');
	is_deeply($ensemble->requests($mark), { create => 1 }, 'a write counts once');
	$leader->kill9;
	my $next = $ensemble->leader;
	isnt($next->name, $leader->name, 'it survives the loss of its leader');
	wait_until { eval { $ensemble->shell->create('/e/y'); 1 } || $@ =~ /NodeExists/ } 'a write', 20;
	$leader->start;
	is(scalar($ensemble->followers), 2, 'the old leader comes back as a follower');
	is_deeply([ $ensemble->children('/e') ], [ 'x', 'y' ], 'nothing is lost');
};

done_testing;
