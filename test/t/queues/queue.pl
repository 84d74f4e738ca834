# Copyright (c) 2026, zklock contributors
#
# Queues: what is offered is removed and taken in its order, once, by whomever it is on whichever server; what one
# session sees of that, and what is refused without ZooKeeper, is in sql/queue.sql. If a server has taken so many
# elements that not all claims are watched, who waits gets whichever is given back. ZooKeeper's own DistributedQueue
# and Curator's SimpleDistributedQueue share queues with zklock: who offers and who takes may be any of them. And what
# ZooKeeper refuses, and with which error; that a path is a queue or something else is in peers/one_use.pl.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::JavaPeer;

use constant { RECEIPTS => '/zklock-receipts', QUEUE => '/app/queue', MANY => '/m/queue', ELEMENTS => 100 };

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a');
my $shell = $zk->shell;
my $s = $a->session(name => 's');
my $t = $b->session(name => 't');

sub offer($session, $data, $queue = QUEUE) { return $session->query("SELECT zk_queue_offer('$queue', '$data')"); }
sub call($session, $what, $queue = QUEUE) { return $session->query("SELECT convert_from(zk_queue_$what('$queue'), 'UTF8')"); }

# Waits in the background for an element.
sub take_start($session) { return $session->query_start("SELECT convert_from(zk_queue_take('@{[ QUEUE ]}'), 'UTF8')"); }

# Tests: a function call is refused, and how.
sub says($call, $sqlstate, $message, $name = $call)
{
	fails($s->try("SELECT $call"), $sqlstate, $name, error => $message);
	return;
}

subtest 'who waits is served as soon as there is an element' => sub {
	take_start($s);
	take_start($t);
	wait_until { $zk->watch_count == 2 } 'both to watch the queue';
	my $u = $a->session;
	offer($u, 'for one');
	wait_until { !$s->busy || !$t->busy } 'one of them to be served';
	my ($served, $waiting) = $s->busy ? ($t, $s) : ($s, $t);
	is($served->finish, 'for one', 'one gets it');
	ok($waiting->busy, 'the other waits');
	offer($u, 'for the other');
	is($waiting->finish, 'for the other', 'and is served');
	is(call($u, 'peek'), '', 'nothing is left');
};

subtest 'those of one server are served in order' => sub {
	my @waiting = map { $a->session } 1 .. 4;
	foreach my $i (0 .. $#waiting)
	{
		take_start($waiting[$i]);
		$a->wait_event($waiting[$i], 'element');
	}
	foreach my $i (0 .. $#waiting)
	{
		offer($t, "element $i");
		is($waiting[$i]->finish, "element $i", 'who has come first');
	}
	$_->disconnect foreach @waiting;
};

# sql/stats.sql has waits that a timeout ends.
subtest 'a wait that is cancelled, or ends with its session, leaves nothing behind' => sub {
	foreach my $end (qw(cancelled terminated))
	{
		my $waiting = $b->session;
		take_start($waiting);
		wait_until { $zk->watch_count == 1 } 'the watch';
		is($waiting->$end, $end eq 'cancelled' ? '57014' : '57P01', $end);
		wait_until { $zk->watch_count == 0 } 'no watch';
	}
	offer($s, 'still there');
	is(call($t, 'remove'), 'still there', 'nobody has taken it in vain');
};

subtest 'what is in a queue, and who has taken it on whichever server' => sub {
	my $listed = '/app/listed';
	offer($s, "element $_", $listed) foreach 1 .. 3;
	$t->query('BEGIN');
	is($t->query("SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('$listed', '0')"), 'element 1', 'one is taken');
	my $show = "SELECT \"position\", element, length, taken, server, pid, created > now() - interval '1 hour' FROM zk_queue_elements('$listed')";
	my @names = map { sprintf 'qn-%010d', $_ } 0 .. 2;
	is_deeply(
		$s->try($show)->{rows},
		[
			[ 1, $names[0], 9, 't', 'b', $t->pid, 't' ],
			[ 2, $names[1], 9, 'f', undef, undef, 't' ],
			[ 3, $names[2], 9, 'f', undef, undef, 't' ]
		],
		'all are shown');
	is($s->query("SELECT zk_queue_length('$listed')"), 3, 'and counted');
	$t->query('ROLLBACK');
	is($s->query("SELECT string_agg(taken::text, ' ') FROM zk_queue_elements('$listed')"), 'false false false', 'it was given back');

	# What goes between the listing and the look is left out.
	$proxy->hold_reply_of($s, "SELECT \"position\", element FROM zk_queue_elements('$listed')", op => 'getChildren', path => "^$listed\$", any => 1);
	is(call($t, 'remove', $listed), 'element 1', 'another session removes one');
	$proxy->heal;
	is($s->finish, "2|$names[1]\n3|$names[2]", 'the others are shown');

	$shell->create_many("$listed/qn-", 228, data => 'many');
	my $many = $s->try("SELECT count(*), count(length), count(taken), max(\"position\") FROM zk_queue_elements('$listed')");
	is($many->{text}, '230|200|200|230', 'of many, the first in full');
	like($many->{notices}[0], qr/NOTICE.*only the first 200 of 230 elements of "$listed" are shown in full/s, 'which is said');
	is($s->query("SELECT zk_queue_length('$listed')"), 230, 'all are counted');
	$s->query(q{SELECT zk_lock('/app/no queue')});
	says("zk_queue_length('/app/no queue')", '55006', qr/./, 'a lock is no queue');
	$s->query(q{SELECT zk_unlock('/app/no queue')});
	$shell->delete($listed, recursive => 1);
};

subtest 'another client may offer a million bytes' => sub {
	$shell->create(QUEUE . '/qn-', hex => '78' x 1000000, sequence => 1);
	is($s->query("SELECT length(zk_queue_peek('@{[ QUEUE ]}'))"), 1000000, 'they are shown');
	is($s->query("SELECT length(zk_queue_remove('@{[ QUEUE ]}'))"), 1000000, 'and removed');
};

my $take = "SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('@{[ MANY ]}')";

# Sessions that take so many elements each
sub takers(@counts)
{
	my @takers;
	foreach my $count (@counts)
	{
		my $taker = $b->session;
		$taker->query('BEGIN');
		$taker->query("SELECT count(zk_xact_queue_take('@{[ MANY ]}')) FROM generate_series(1, $count)");
		push @takers, $taker;
	}
	return @takers;
}

$s->query("SELECT count(zk_queue_offer('@{[ MANY ]}', convert_to(i::text, 'UTF8'))) FROM generate_series(1, @{[ ELEMENTS ]}) i");
my ($last, @others) = reverse takers(60, 39, 1);

subtest 'the last one is given back' => sub {
	$s->query_start($take);
	wait_until { $zk->watch_count > ELEMENTS + 10 } 'some of the claims to be watched';
	ok($s->busy, 'who waits has none');
	$last->query('ROLLBACK');
	is($s->finish, ELEMENTS, 'and gets it');
};

subtest 'many are given back' => sub {
	$s->query_start($take);
	wait_until { $zk->watch_count > ELEMENTS + 10 } 'some of the claims to be watched';
	$others[0]->query('ROLLBACK');
	cmp_ok($s->finish, '>', 60, 'who waits gets one of them');
	$others[1]->query('COMMIT');
};

wait_until { $s->query("SELECT count(zk_queue_remove('@{[ MANY ]}')) FROM generate_series(1, 40)"); !$zk->children(MANY) } 'the rest to be taken';

my @shared;
my $java = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);

foreach my $kind (qw(zookeeper curator))
{
	my $path = "/interop/$kind";
	push @shared, $path;
	my $peer = sub ($action, @data) { return $java->queue($action, $kind, $kind, $path, @data); };

	subtest "$kind and zklock take what the other offers, in order" => sub {
		foreach my $pair ([ 1, 2 ], [ 3, 4 ])
		{
			offer($s, $pair->[0], $path);
			$peer->('offer', $pair->[1]);
		}
		$peer->('offer', 5);
		is($peer->('element'), 1, 'the first is shown');
		is($peer->('remove'), 1, 'and removed');
		is(call($s, 'peek', $path), 2, 'the next is shown');
		is(call($s, 'remove', $path), 2, 'and removed');
		is($peer->('take'), 3, 'one is taken');
		is(call($s, 'take', $path), 4, 'and one');
		is($s->query("SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('$path')"), 5, 'the last by a transaction');
		wait_until { !$zk->children($path) } 'it to be gone';
		is($peer->('remove'), 'none', 'then there is none');
		is(call($s, 'remove', $path), '', 'for both');
	};

	subtest "$kind and zklock wake each other" => sub {
		my $id = $java->queue_start('take', 'waiting', $kind, $path);
		wait_until { $zk->watch_count >= 1 } "$kind to wait";
		offer($s, 'for java', $path);
		is($java->result($id), 'for java', "$kind gets what zklock offers");
		$s->query_start("SELECT convert_from(zk_queue_take('$path'), 'UTF8')");
		wait_until { $zk->watch_count >= 1 } 'zklock to wait';
		$peer->('offer', 'for_sql');
		is($s->finish, 'for_sql', "zklock gets what $kind offers");
	};

	subtest "an element that a transaction has taken is not $kind\'s" => sub {
		offer($s, $_, $path) foreach qw(one two);
		$s->query('BEGIN');
		is($s->query("SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('$path')"), 'one', 'taken');
		ok(!eval { $peer->('remove'); 1 }, "$kind cannot remove it");
		like($@, qr/NotEmpty/, 'and is told why');
		is($peer->('element'), 'one', 'but sees it');
		$s->query('ROLLBACK');
		wait_until { !$zk->children("$path/" . (sort $zk->children($path))[0]) } 'it to come back';
		is($peer->('remove'), $_, "then it gets $_") foreach qw(one two);
	};

	subtest "two hundred elements of zklock and $kind, taken by both" => sub {
		my $offers = $a->session;
		$offers->query_start("SELECT count(zk_queue_offer('$path', convert_to('s' || i, 'UTF8'))) FROM generate_series(1, 100) i");
		my $takes = $a->session;
		$takes->query_start("SELECT string_agg(convert_from(e, 'UTF8'), ' ') FROM (SELECT zk_queue_take('$path') e FROM generate_series(1, 100)) x");
		my @got;
		foreach my $i (1 .. 100)
		{
			$peer->('offer', "j$i");
			push @got, $peer->('take');
		}
		push @got, split(/ /, $takes->finish);
		$offers->finish;
		is_deeply([ sort @got ], [ sort map { ("s$_", "j$_") } 1 .. 100 ], 'each once');
	};
}

$java->close_session;

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
		says("$op->[2]('@{[ QUEUE ]}')", '42501', qr/ZNOAUTH.*ACL/s, "$op->[2] when $op->[0] is refused");
		$proxy->clear;
	}
	is($s->query("SELECT convert_from(zk_queue_remove('@{[ QUEUE ]}'), 'UTF8')"), 'x', 'the element is as it was');
};

# A Stat with so many children, of which so many were created
sub stat_of($children, $changes) { return pack('q> q> q> q> l> l> l> q> l> l> q>', 5, 5, 1, 1, 0, $changes, 0, 0, 0, $children, 5); }

subtest 'a queue that is full, or worn out' => sub {
	foreach my $case ([ 50000, 50000, qr/is full.*50000 elements or more.*SKIP LOCKED/s ],
		[ 1, 2147483647, qr/sequence numbers .* are used up/ ], [ 1, -5, qr/sequence numbers .* are used up/ ])
	{
		my ($children, $changes, $message) = @$case;
		$proxy->forge(op => 'exists', body => stat_of($children, $changes), path => '^' . QUEUE . '$');
		says("zk_queue_offer('@{[ QUEUE ]}', 'x')", '54000', $message, "$children elements, $changes changes");
		$proxy->clear;
	}
	is(scalar(() = $zk->children(QUEUE)), 0, 'nothing was sent');
};

subtest 'a timeout that passes during a request returns NULL' => sub {
	# The request is answered, but nothing can be asked any more: what failed is not tried again.
	my %late = (
		'/late/queue', { do => 'create2', name => 'parents of the queue are missing' },
		QUEUE, { do => 'multi', with => sub { is(call($t, 'remove'), 'late', 'the other is first'); }, name => 'somebody else has the element' });
	foreach my $queue (sort keys %late)
	{
		offer($t, 'late', $queue) if $late{$queue}{with};
		my $held = $proxy->hold_request(op => $late{$queue}{do}, any => 1);
		$s->query_start("SELECT zk_queue_take('$queue', '100ms')");
		$proxy->fired($held);
		$late{$queue}{with}->() if $late{$queue}{with};
		$a->wait_value("SELECT clock_timestamp() > query_start + interval '100ms' FROM pg_stat_activity WHERE pid = @{[ $s->pid ]}", 't');
		$proxy->heal;
		my $r = $s->result;
		is($r->{error} // $r->{text}, '', $late{$queue}{name});
	}
};

subtest 'who does not wait is told that ZooKeeper is away' => sub {
	$a->reconfigure('zklock.session_timeout' => scaled('5s'));
	$proxy->cut;
	wait_until { $a->value('SELECT lease_remaining FROM zk_session') =~ /^(|00:00:00)$/ } 'the lease to lapse';
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
Zklock::Server->assert_clean($zk, [ $a, $b ], QUEUE, MANY, @shared, RECEIPTS);
done_testing;
