# Copyright (c) 2026, zklock contributors
#
# What zklock asks of ZooKeeper, how much and when: for locks that nobody else wants, and for those
# that others hold; and to remove an element of a queue. Each request of the server is counted on its way through a proxy.
#
# Sessions of one server take turns without asking ZooKeeper, and yet nobody is overtaken: neither a
# session that waits for a listing, nor a foreigner.

use Zklock::Test;

# What is asked and written when a wait lasts would be counted, too.
my ($zk, $proxy, $a) = cast('a', proxied => 'a', conf => ["deadlock_timeout = '1h'"]);
my $shell = $zk->shell;
my $path;
my @paths;

# A path that nobody has locked yet
sub begin
{
	wait_until { $zk->watch_count == 0 } 'earlier paths to be forgotten';
	push @paths, $path = '/t/requests' . @paths;
	$shell->create($path, makepath => 1);
	return;
}

my $impatient = $a->session(name => 'impatient');
my @s = map { $a->session } 1 .. 50;
my $s = $s[0];

sub asked_in_all
{
	my $counts = $proxy->asked;
	my $sum    = 0;
	$sum += $_ foreach values %$counts;
	note(join(', ', map { "$_ $counts->{$_}" } sort keys %$counts) || 'no request');
	return $sum;
}

sub waiting { return $a->lock_count("path = '$path' AND state = 'waiting'"); }

# These sessions ask for the lock one after the other; the first may get it.
sub queue
{
	foreach my $session (@_)
	{
		$session->query_start("SELECT zk_lock('$path')");
		$session->wait_row("state IN ('waiting', 'held')");
	}
	return;
}

# They get it in turn.
sub serve
{
	foreach my $session (@_)
	{
		$session->finish eq 't' or die $session->name . ' did not get it';
		$session->query("SELECT zk_unlock('$path')");
	}
	return;
}

subtest 'a lock and its release take one create, one listing and one delete, a try-lock one listing more' => sub {
	foreach my $statement (
		'SELECT zk_lock(%s) AND zk_unlock(%s)',
		'SELECT zk_xact_lock(%s)',
		'SELECT zk_lock(%s), zk_lock(%s), zk_unlock(%s), zk_unlock(%s)',
		'DO $$ BEGIN PERFORM zk_xact_lock(%s); PERFORM zk_lock(%s); PERFORM zk_fencing_token(%s);'
		  . ' PERFORM zk_unlock(%s); END $$',
		'SELECT zk_try_lock(%s) AND zk_unlock(%s)')
	{
		begin();
		$a->settle;
		$proxy->asked;
		$s->query($statement =~ s/%s/'$path'/gr);
		wait_until { !$zk->children($path) && !$a->lock_count } 'the node to go';
		my @requests = map { "$_->[0] " . $_->[1] =~ s/_c_[-0-9a-f]{36}-lock-(\d{10})?$/X/r }
		  grep { $_->[0] !~ /^(ping|multi)$/ && $_->[1] =~ /^$path/ } @{ $proxy->requests };
		is_deeply([ @requests[ -3 .. -1 ] ], [ "create2 $path/X", "getChildren $path", "delete $path/X" ], $statement);
		my $listings = $statement =~ /try/ ? 2 : 1;
		is_deeply($proxy->asked, { create2 => 1, getChildren => $listings, delete => 1 }, 'and nothing else');
	}
};

subtest 'to remove an element takes a listing, a look, a pin, a reading behind that, and one request for all that goes' => sub {
	my $queue = '/t/elements';
	$s->query("SELECT zk_queue_offer('$queue', 'x')") for 1 .. 2;
	foreach my $call ('zk_queue_remove', 'zk_queue_take')
	{
		wait_until { !$zk->children('/zklock-receipts') } 'earlier receipts to go';
		$a->settle;
		$proxy->asked;
		$s->query("SELECT $call('$queue')");
		wait_until { !$zk->children('/zklock-receipts') } 'the receipt to go';
		my @requests = map { "$_->[0] " . $_->[1] =~ s/^.*\K(?<=-)(?:\d{10}|[0-9a-f]{32}-pin)$/X/r =~ s/[0-9a-f]{32}$/X/r }
		  grep { ($_->[1] // '') =~ m{^(?:$queue|/zklock-receipts/)} } @{ $proxy->requests };
		is_deeply(\@requests, [ "getChildren $queue", "exists $queue/qn-X", "create2 $queue/zk-queue-X", "getData $queue/qn-X",
				'multi /zklock-receipts/X', 'delete /zklock-receipts/X' ], $call) or diag explain \@requests;
		is_deeply($proxy->asked, { sync => 1, getChildren => 1, exists => 1, create2 => 1, getData => 1, delete => 1 }, 'and nothing else');
	}
};

subtest 'to hold a lock takes nothing, however long' => sub {
	begin();
	# Its watch does not have to be set again.
	$s->query("SELECT zk_lock('$path')");
	$proxy->asked;
	$s->query("SELECT zk_lock('$path'), zk_unlock('$path'), zk_fencing_token('$path')") foreach 1 .. 5;
	is_deeply($proxy->asked, {}, 'to hold takes nothing');
	$s->query("SELECT zk_unlock('$path')");
	$proxy->asked;
};

subtest 'everything that a lock takes is sent before anything is answered' => sub {
	begin();
	$proxy->blackhole('replies');
	$s->query_start("SELECT zk_lock('$path')");
	wait_until { ($proxy->counts->{getChildren} || 0) == 1 } 'the listing';
	is($proxy->counts->{create2}, 1, 'create and listing are sent before either is answered');
	wait_until { $zk->children($path) == 1 } 'the node';
	ok($s->busy, 'the lock is not granted without the answers');
	$proxy->asked;
	$proxy->heal;
	is($s->finish, 't', 'but with them');
	is_deeply($proxy->asked, {}, 'and nothing else');
	$s->query("SELECT zk_unlock('$path')");
	$a->settle;
};

subtest 'fifty locks do not wait for each other' => sub {
	# If ZooKeeper is near, they wait for one request, to go out together. This worker knows it far away.
	$proxy->delay(20);
	$a->restart_worker;
	$a->wait_session;
	$s->query("SELECT zk_lock('$path'), zk_unlock('$path')");
	$proxy->asked;
	$proxy->blackhole('replies');
	$s[$_]->query_start("SELECT zk_lock('/t/many/$_')") foreach 0 .. 49;
	wait_until { ($proxy->counts->{create2} || 0) >= 50 } 'all requests to be sent';
	pass('50 locks of different paths are asked for at once');
	$proxy->delay(0);
	$proxy->heal;
	is(scalar(grep { $_->finish eq 't' } @s), 50, 'and granted');
	$proxy->asked;
	$_->query('SELECT zk_unlock_all()') foreach @s;
	my $asked = $proxy->asked;
	is_deeply($asked, { delete => 50 }, 'each is released by one request');
};

subtest 'fifty sessions of one server take turns with a handful of requests' => sub {
	begin();
	# Many rounds each. There are always some who wait, but at the very end.
	my $rounds = 6;
	$s->query("SELECT zk_lock('$path')");
	$proxy->asked;
	foreach my $session (@s[ 1 .. 49 ])
	{
		$session->query_start("DO \$\$ BEGIN FOR i IN 1 .. $rounds LOOP
			PERFORM zk_lock('$path'); PERFORM zk_unlock('$path'); END LOOP; END \$\$");
	}
	wait_until { waiting() == 49 } '49 sessions to wait';
	is(asked_in_all(), 0, 'to wait behind a session of the same server takes nothing');
	is(scalar($zk->children($path)), 1, 'and no node');
	$s->query("SELECT zk_unlock('$path')");
	$_->finish foreach @s[ 1 .. 49 ];
	wait_until { !$a->lock_count && !$zk->children($path) } 'the last node to go';
	cmp_ok(asked_in_all(), '<=', 10, 49 * $rounds . ' turns of 49 sessions take a handful of requests');
};

subtest 'fifty sessions wait behind a foreigner with one node and one listing' => sub {
	begin();
	my $foreign = $zk->foreigner($path);
	$proxy->asked;
	is($impatient->query("SELECT zk_try_lock('$path')"), 'f', 'behind a foreigner, who does not wait');
	is_deeply($proxy->asked, { getChildren => 1 }, 'is told by one listing');
	queue(@s);
	wait_until { $a->lock_count('blocked_by_node IS NOT NULL') == 50 } 'all to stand behind it';
	is_deeply($proxy->asked, { create2 => 1, getChildren => 1, getData => 2 },
		'fifty sessions behind a foreigner: one node, one listing, a watch on that and on theirs');
	$shell->delete($foreign);
	serve(@s);
	$a->settle;
	cmp_ok(asked_in_all(), '<=', 8, 'and few requests until all had their turn');
};

subtest 'foreigners that go behind us, or in front of our predecessor, cause no request' => sub {
	begin();
	# We watch the nearest only, one after the other.
	my @before = map { $zk->foreigner($path) } 1 .. 10;
	queue(@s[ 0 .. 4 ]);
	wait_until { $a->lock_count('blocked_by_node IS NOT NULL') == 5 } 'all to stand behind it';
	my @later = map { $zk->foreigner($path) } 1 .. 20;
	foreach my $case ([ 'twenty behind us', reverse @later ], [ 'nine in front of our predecessor', @before[ 0 .. 8 ] ])
	{
		my ($which, @gone) = @$case;
		$a->settle;
		$proxy->asked;
		$shell->delete($_) foreach @gone;
		$a->settle;
		my $others = $proxy->asked;
		cmp_ok($others->{getChildren} + ($others->{getData} || 0), '<=', 2, "$which that go cause no request");
		ok($s->busy, 'nor a grant');
	}
	$shell->delete($before[9]);
	serve(@s[ 0 .. 4 ]);
	$a->settle;
};

$path = '/t/turns';

subtest 'a session that waits for a listing is not overtaken by one that needs none' => sub {
	$s[0]->query("SELECT zk_lock('$path')");
	# What comes and goes elsewhere uses up the watch.  The next listing is for the first one who asks, or, if the lock
	# has been held for long, for who may have come behind it.
	my $held = $proxy->hold_reply(op => 'getChildren', path => "^$path\$");
	$shell->delete($zk->foreigner($path));
	$s[1]->start_waiting("SELECT zk_lock('$path')");
	$proxy->fired($held);
	# This one comes too late for that listing, and waits for the next.
	$s[2]->start_waiting("SELECT zk_lock('$path')");
	$s[3]->start_waiting("SELECT zk_lock_shared('$path')");
	$proxy->heal;
	$a->wait_queued($_) foreach @s[ 1 .. 3 ];
	$s[0]->hands_over($path, $s[1], 'who came first is first');
	ok($s[$_]->busy, 'who came later waits') foreach 2, 3;
	$s[1]->hands_over($path, $s[2], 'and follows');
	ok($s[3]->busy, 'before who came last');
	$s[2]->hands_over($path, $s[3], 'who follows then');
	$s[3]->query("SELECT zk_unlock_shared('$path')");
};

subtest 'sessions that come back again and again do not keep a foreigner out' => sub {
	$a->value('CREATE TABLE stop (); CREATE SEQUENCE turns');
	foreach my $session (@s[ 0 .. 19 ])
	{
		$session->query_start("DO \$\$ BEGIN FOR i IN 1 .. 100000 LOOP
			PERFORM zk_lock('$path'); PERFORM nextval('turns'); PERFORM zk_unlock('$path');
			EXIT WHEN EXISTS (SELECT FROM stop);
		END LOOP; END \$\$");
	}
	foreach my $round (1 .. 10)
	{
		my $turns = 'SELECT last_value FROM turns';
		my $begun = $a->value($turns);
		wait_until { $a->value($turns) > $begun + 50 } 'the sessions to take turns';
		my $waits = $shell->lock_start('kazoo', $path);
		# Its node is there, or has been: then it holds the lock.
		wait_until { (grep { /__lock__/ } $zk->children($path)) || $shell->ready($waits) } 'the foreigner to queue';
		$a->settle;
		my $before = $a->value($turns);
		$shell->result($waits) == 1 or die 'kazoo did not get the lock';
		my $holding = $a->value($turns);
		$a->settle;
		is($a->value($turns), $holding, "round $round: a foreigner gets it, and nobody else meanwhile");
		cmp_ok($holding - $before, '<=', 20, 'as soon as it is noticed, after one turn of each at most');
		$shell->unlock('kazoo');
	}
	$a->value('INSERT INTO stop DEFAULT VALUES');
	$_->finish foreach @s[ 0 .. 19 ];
};

done_clean($zk, $a);
