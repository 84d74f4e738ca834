# Copyright (c) 2026, zklock contributors
#
# Queues: what is refused, by whom, and with which error. That a path is a queue or something else is in
# 627_one_use.pl.

use Zklock::Test;
use Zklock::Cast qw(fails);

use constant QUEUE    => '/r/queue';
use constant RECEIPTS => '/zklock-receipts';

my ($zk, $proxy, $server) = cast('a', proxied => 'a', timeout => '5s');
my $shell = $zk->shell;
my $s      = $server->session(name => 's');

# What a function call says
sub says($call, $sqlstate, $message, $name = undef)
{
	my $result = $s->try("SELECT $call");
	is($result->{sqlstate}, $sqlstate, $name || $call) or diag $result->{error} || $result->{text};
	like(join(' ', map { $_ || '' } @{$result}{qw(message detail hint)}), $message, 'which says so');
	return;
}

# Calls of all functions, for a path
sub calls($path)
{
	return ("zk_queue_offer($path, 'x')", "zk_queue_peek($path)", "zk_queue_remove($path)",
		"zk_queue_take($path, '1min')", "zk_xact_queue_take($path, '1min')");
}

subtest 'arguments that make no sense' => sub {
	says($_, '22004', qr/path must not be null/) foreach calls('NULL');
	says($_, '22023', qr/invalid ZooKeeper path/) foreach calls("'relative'");
	says("zk_queue_offer('@{[ QUEUE ]}', NULL)", '22004', qr/data must not be null/);
	says("zk_xact_queue_take('/" . 'x' x 1000 . "')", '22023', qr/at most 991 bytes/, 'a path to which no name of an element can be added');
	says("zk_queue_take('@{[ QUEUE ]}', '-1s')", '22023', qr/timeout must not be negative/);
	says("zk_xact_queue_take('@{[ QUEUE ]}', '-1s')", '22023', qr/timeout must not be negative/);
	says("zk_queue_offer('@{[ QUEUE ]}', convert_to(repeat('x', 65537), 'UTF8'))", '54000', qr/too long: 65537 bytes.*at most 65536/);
	ok(!$shell->exists('/r'), 'nothing was asked of ZooKeeper');
};

subtest 'rights' => sub {
	$server->value('CREATE ROLE poor LOGIN');
	my $poor = $server->session(user => 'poor');
	is($poor->try("SELECT $_")->{sqlstate}, '42501', "$_ is not everybody's") foreach calls("'@{[ QUEUE ]}'");
	$poor->disconnect;
	$s->query("SET zklock.allowed_paths = '/elsewhere/*'");
	says($_, '42501', qr/not in "zklock.allowed_paths"/) foreach calls("'@{[ QUEUE ]}'");
	$s->query('RESET zklock.allowed_paths');
};

subtest 'what ZooKeeper refuses' => sub {
	$shell->create('/r/ephemeral', ephemeral => 1, makepath => 1);
	says("zk_queue_offer('/r/ephemeral', 'x')", '42809', qr/ephemeral node/);
	says("zk_queue_offer('/r/ephemeral/a/b', 'x')", '42809', qr/ephemeral node/);
	says("zk_queue_take('/r/ephemeral/a/b', '1min')", '42809', qr/ephemeral node/);
	$s->query("SELECT zk_queue_offer('@{[ QUEUE ]}', 'x')");
	foreach my $op ([ getChildren => QUEUE, 'zk_queue_take' ], [ getData => QUEUE, 'zk_queue_remove' ],
		[ multi => RECEIPTS, 'zk_queue_remove' ], [ create2 => QUEUE, 'zk_xact_queue_take' ])
	{
		$proxy->refuse(op => $op->[0], code => -102, path => "^$op->[1]", times => 0);
		says("$op->[2]('@{[ QUEUE ]}')", '42501', qr/ZNOAUTH.*ACL/, "$op->[2] when $op->[0] is refused");
		$proxy->clear;
	}
	is($s->query("SELECT convert_from(zk_queue_remove('@{[ QUEUE ]}'), 'UTF8')"), 'x', 'the element is as it was');
};

# A Stat with so many children, of which so many were created
sub stat_of($children, $changes) { return pack('q> q> q> q> l> l> l> q> l> l> q>', 5, 5, 1, 1, 0, $changes, 0, 0, 0, $children, 5); }

subtest 'a queue that is full, or worn out' => sub {
	foreach my $case ([ 50000, 50000, qr/is full.*50000 elements or more.*SKIP LOCKED/ ],
		[ 1, 2147483647, qr/sequence numbers .* are used up/ ], [ 1, -5, qr/sequence numbers .* are used up/ ])
	{
		my ($children, $changes, $message) = @$case;
		$proxy->forge(op => 'exists', body => stat_of($children, $changes), path => '^' . QUEUE . '$');
		says("zk_queue_offer('@{[ QUEUE ]}', 'x')", '54000', $message, "$children elements, $changes changes");
		$proxy->clear;
	}
	is(scalar(() = $zk->children(QUEUE)), 0, 'nothing was sent');
};

subtest 'a path that is not to be created' => sub {
	$s->query("SET zklock.parent_nodes = 'existing'");
	says("zk_queue_offer('/r/missing', 'x')", '42704', qr/does not exist.*"zklock.parent_nodes"/);
	says("zk_queue_take('/r/missing', '1min')", '42704', qr/does not exist/);
	is($s->query("SELECT zk_queue_remove('/r/missing')"), '', 'who does not wait finds it empty');
	ok(!$shell->exists('/r/missing'), 'it is not created');
	$s->query('RESET zklock.parent_nodes');
};

subtest 'no session has more than its share' => sub {
	$s->query("SELECT zk_queue_offer('@{[ QUEUE ]}', convert_to(i::text, 'UTF8')) FROM generate_series(1, 66) i");
	$s->query('BEGIN');
	$s->query("SELECT count(zk_xact_queue_take('@{[ QUEUE ]}')) FROM generate_series(1, 64)");
	says("zk_xact_queue_take('@{[ QUEUE ]}')", '53200', qr/too many elements.*as many as it may/, 'one more');
	$s->query('ROLLBACK');
	my $t = $server->session;
	my $long = '/r/' . join '/', map { $_ x 200 } 'a' .. 'd';
	$t->query("SET zklock.max_locks_per_session = 50");
	$t->query("SELECT zk_queue_offer('$long', 'x') FROM generate_series(1, 40)");
	$t->query('BEGIN');
	fails($t->try("SELECT zk_xact_queue_take('$long') FROM generate_series(1, 40)"), '53200', 'nor more bytes of paths');
	$t->query('ROLLBACK');
	wait_until { $s->query("SELECT count(zk_queue_remove('@{[ QUEUE ]}')) FROM generate_series(1, 60)"); !$zk->children(QUEUE) } 'all to come back';
	wait_until { $t->query("SELECT zk_queue_remove('$long')"); !$zk->children($long) } 'those too';
};

subtest 'who does not wait is told that ZooKeeper is away' => sub {
	$proxy->cut;
	wait_until { $server->value('SELECT lease_remaining FROM zk_session') =~ /^(|00:00:00)$/ } 'the lease to lapse';
	foreach my $call ("zk_queue_remove('@{[ QUEUE ]}')", "zk_queue_offer('@{[ QUEUE ]}', 'x')", "zk_queue_take('@{[ QUEUE ]}', '1ms')")
	{
		says($call, '58030', qr/ZooKeeper cannot be reached/);
	}
	$s->query_start("SELECT convert_from(zk_queue_take('@{[ QUEUE ]}'), 'UTF8')");
	$shell->create(QUEUE . '/qn-', data => 'later', sequence => 1);
	$proxy->heal;
	is($s->finish, 'later', 'who waits for an element outlives that');
};

$shell->delete('/r/ephemeral');
$server->assert_clean($zk, QUEUE, RECEIPTS);
done_testing;
