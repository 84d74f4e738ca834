# Copyright (c) 2026, zklock contributors
#
# What zklock asks of ZooKeeper, how much and when: for locks that nobody else wants, and for those
# that others hold. Each request of the server is counted on its way through a proxy.

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
		my $where = 'pid = ' . $session->pid . " AND state IN ('waiting', 'held')";
		wait_until { $a->lock_count($where) } sub { $session->name . " to queue\n" . $a->describe_locks };
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

subtest 'a lock and its release take one create, one listing and one delete' => sub {
	foreach my $statement (
		'SELECT zk_lock(%s) AND zk_unlock(%s)',
		'SELECT zk_xact_lock(%s)',
		'SELECT zk_lock(%s), zk_lock(%s), zk_unlock(%s), zk_unlock(%s)',
		'DO $$ BEGIN PERFORM zk_xact_lock(%s); PERFORM zk_lock(%s); PERFORM zk_fencing_token(%s);'
		  . ' PERFORM zk_unlock(%s); END $$')
	{
		begin();
		$a->settle;
		$proxy->asked;
		$s->query($statement =~ s/%s/'$path'/gr);
		wait_until { !$zk->children($path) && !$a->lock_count } 'the node to go';
		my @requests = map { "$_->[0] " . $_->[1] =~ s/_c_[-0-9a-f]{36}-lock-(\d{10})?$/X/r }
		  grep { $_->[0] !~ /^(ping|multi)$/ && $_->[1] =~ /^$path/ } @{ $proxy->requests };
		is_deeply([ @requests[ -3 .. -1 ] ], [ "create2 $path/X", "getChildren $path", "delete $path/X" ], $statement);
		is_deeply($proxy->asked, { create2 => 1, getChildren => 1, delete => 1 }, 'and nothing else');
	}
};

subtest 'a try-lock takes one listing more' => sub {
	begin();
	is($s->query("SELECT zk_try_lock('$path') AND zk_unlock('$path')"), 't', 'a try-lock');
	is_deeply($proxy->asked, { create2 => 1, getChildren => 2, delete => 1 }, 'takes one listing more');
};

subtest 'to hold a lock takes nothing, however long' => sub {
	begin();
	# A held lock takes nothing, however long: its watch does not have to be set again.
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
	$proxy->asked;
	$proxy->blackhole('replies');
	$s[$_]->query_start("SELECT zk_lock('/t/many/$_')") foreach 0 .. 49;
	wait_until { ($proxy->counts->{create2} || 0) >= 50 } 'all requests to be sent';
	pass('50 locks of different paths are asked for at once');
	$proxy->heal;
	is(scalar(grep { $_->finish eq 't' } @s), 50, 'and granted');
	$proxy->asked;
	$_->query('SELECT zk_unlock_all()') foreach @s;
	is_deeply($proxy->asked, { delete => 50 }, 'each is released by one request');
};

subtest 'fifty sessions of one server take turns with a handful of requests' => sub {
	begin();
	queue(@s);
	$a->settle;
	$proxy->asked;
	is_deeply($proxy->asked, {}, 'they wait');
	is($impatient->query("SELECT zk_try_lock('$path')"), 'f', 'who does not wait');
	is_deeply($proxy->asked, {}, 'is told without any request');
	serve(@s);
	$a->settle;
	cmp_ok(asked_in_all(), '<=', 8, 'fifty hand-overs: one node goes at the end, and the barrier\'s');

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
	my $foreign = $shell->create("$path/_c_6f9619ff-8b86-4d01-b42d-00cf4fc964ff-lock-",
		ephemeral => 1, sequence => 1);
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

subtest 'foreigners behind us that go cause no request' => sub {
	begin();
	# Others come and go elsewhere: nothing here depends on them.
	my $foreign = $shell->create("$path/_c_6f9619ff-8b86-4d01-b42d-00cf4fc964ff-lock-",
		ephemeral => 1, sequence => 1);
	queue(@s[ 0 .. 4 ]);
	wait_until { $a->lock_count('blocked_by_node IS NOT NULL') == 5 } 'all to stand behind it';
	my @later = map {
		$shell->create(sprintf("$path/_c_6f9619ff-8b86-4d01-b42d-%012x-lock-", $_),
			ephemeral => 1, sequence => 1)
	} 1 .. 20;
	$proxy->asked;
	$shell->delete($_) foreach reverse @later;
	$a->settle;
	my $others = $proxy->asked;
	cmp_ok($others->{getChildren} + ($others->{getData} || 0), '<=', 2,
		'twenty foreigners behind us that go cause no request');
	$shell->delete($foreign);
	serve(@s[ 0 .. 4 ]);
};

subtest 'foreigners in front of our predecessor that go cause no request' => sub {
	begin();
	# Foreigners between the one in front and us: we watch the nearest only, one after the
	# other.
	my @before = map {
		$shell->create(sprintf("$path/_c_6f9619ff-8b86-4d01-b42d-%012x-lock-", $_),
			ephemeral => 1, sequence => 1)
	} 1 .. 10;
	queue(@s[ 0 .. 4 ]);
	wait_until { $a->lock_count('blocked_by_node IS NOT NULL') == 5 } 'all to stand behind it';
	$a->settle;
	$proxy->asked;
	$shell->delete($_) foreach @before[ 0 .. 8 ];
	$a->settle;
	my $others = $proxy->asked;
	cmp_ok($others->{getChildren} + ($others->{getData} || 0), '<=', 2,
		'nine foreigners in front of our predecessor that go cause no request');
	ok($s->busy, 'nor a grant');
	$shell->delete($before[9]);
	serve(@s[ 0 .. 4 ]);
	$a->settle;
};

done_clean($zk, $a);
