# Copyright (c) 2026, zklock contributors
#
# A lock that another server gives back is granted here without a question to ZooKeeper; and if
# its holder has only downgraded it, it is not granted, whoever that is and whatever happens.
#
# And the worker's main loop is woken by whatever it waits for. A wake-up that were lost would be made
# up for by its timers, the more often the longer: then none of the last subtests ends in time.
#
# Server a, where one waits, talks to ZooKeeper through a proxy. Behind it queues another one, so
# that the watch on the path's children, which would tell as well, has fired.

use Zklock::Test;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '20s');
my $shell = $zk->shell;
my $next  = $b->session(name => 'next');
my ($number, $path, $holder, $waiter) = (0);

sub ask($session) { $session->query_start("SELECT zk_lock('$path')"); return; }

# One holds the path in both modes, one of server a waits, and another one behind it.
sub begin($server)
{
	$path   = '/downgraded nodes/' . ++$number;
	$waiter = $a->session(name => 'waiter');
	if ($server)
	{
		$holder = $server->session(name => 'holder');
		is($holder->query("SELECT zk_lock('$path') AND zk_lock_shared('$path')"), 't', $server->name . ': both modes are held');
	}
	else
	{
		undef $holder;
		$shell->create("$path/_c_00000000-0000-4000-8000-000000000001-__WRIT__", ephemeral => 1, sequence => 1, makepath => 1);
	}
	ask($waiter);
	$a->wait_queued($waiter, $path);
	$a->wait_value('SELECT blocked_by_node IS NOT NULL FROM zk_locks WHERE pid = ' . $waiter->pid, 't');
	$b->settle;
	ask($next);
	$b->wait_queued($next, $path);
	$a->settle;
	return;
}

sub first_node
{
	my %by_sequence = map { (substr($_, -10) => $_) } $zk->children($path);
	my ($first) = sort keys %by_sequence;
	return $by_sequence{$first};
}

sub downgrade
{
	return is($holder->query("SELECT zk_unlock('$path')"), 't', 'the holder downgrades') if $holder;
	# As Curator does: beside, and then the other goes.
	my $node = first_node();
	$shell->create("$path/_c_00000000-0000-4000-8000-000000000002-__READ__" . substr($node, -10), ephemeral => 1);
	$shell->delete("$path/$node");
	return;
}

# The waiter waits for the downgraded node, and then it is its turn.
sub waits_for_downgraded($name)
{
	my $downgraded = first_node();
	like($downgraded, qr/__READ__\d{10}$/, "$name: there is a downgraded node");
	$a->wait_value("SELECT state || ' ' || coalesce(blocked_by_node, '-') FROM zk_locks WHERE pid = " . $waiter->pid, "waiting $downgraded");
	ok($waiter->busy, 'for which the writer waits');
	$holder ? $holder->query("SELECT zk_unlock_shared('$path')") : $shell->delete("$path/$downgraded");
	end($waiter => 'then it has its turn', $next => 'and the one behind it');
	return;
}

# One after the other gets the lock, and releases it.
sub end(@turns)
{
	while (my ($session, $name) = splice @turns, 0, 2)
	{
		is($session->finish, 't', $name);
		$session->query("SELECT zk_unlock('$path')");
	}
	undef $_ foreach $holder, $waiter;
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
	return;
}

subtest 'a lock that is given back elsewhere is granted without a question' => sub {
	begin($b);
	$proxy->blackhole('requests');
	$holder->query("SELECT zk_unlock_shared('$path')");
	$holder->query("SELECT zk_unlock('$path')");
	is($waiter->finish, 't', 'nothing that server a asks gets through, and it grants the lock');
	$proxy->heal;
	is($a->zk_session->{reconnects}, 0, 'on the same connection');

	# From its first moment on its holder hears of it if it loses it.
	my $node = first_node();
	is($a->wait_holder($waiter, $path)->{node}, $node, 'its node is the first');
	$shell->delete("$path/$node");
	$a->wait_lock($waiter, 'lost', $path);
	$waiter->query("SELECT zk_unlock('$path')");
	end($next => 'a node that somebody deletes is missed at once, and the next one served');
};

subtest 'also when nobody queues behind' => sub {
	# The watch on the path's children tells of the holder's end as well, and is gone with it.
	$path = '/downgraded nodes/' . ++$number;
	($holder, $waiter) = ($b->session(name => 'holder'), $a->session(name => 'waiter'));
	is($holder->query("SELECT zk_lock('$path')"), 't', 'the path is taken');
	ask($waiter);
	my $node = $a->wait_queued($waiter, $path)->{node};
	$zk->wait_watched("$path/$node", $a->session_id);
	$zk->wait_watched("$path/" . first_node(), $a->session_id);
	$proxy->blackhole('requests');
	$holder->query("SELECT zk_unlock('$path')");
	is($waiter->finish, 't', 'nothing that server a asks gets through, and it grants the lock');
	$proxy->heal;
	$waiter->query("SELECT zk_unlock('$path')");
	end();
};

subtest 'a lock that is downgraded elsewhere is not granted' => sub {
	foreach my $server ($b, undef)
	{
		begin($server);
		downgrade();
		waits_for_downgraded($server ? 'zklock' : 'Curator');
	}
};

subtest 'nor after the answer to the read of the holder, or the connection, was lost' => sub {
	my $fault = $proxy->lose_reply(op => 'getData', path => "^/downgraded nodes/" . ($number + 1) . '/_c_');
	begin($b);
	ok($proxy->fired($fault), 'the answer is lost');
	downgrade();
	waits_for_downgraded('a lost answer');

	# The new connection tells of the old node's deletion alone.
	begin($b);
	$a->cut_off($proxy);
	downgrade();
	$a->reconnect($proxy);
	waits_for_downgraded('a lost connection');
	begin($b);
	$a->cut_off($proxy);
	$holder->query("SELECT zk_unlock_shared('$path')");
	$holder->query("SELECT zk_unlock('$path')");
	$proxy->heal;
	end($waiter => 'then it has its turn', $next => 'and the one behind it');
};

subtest 'nor when the worker is restarted' => sub {
	foreach my $when ('before', 'meanwhile')
	{
		begin($b);
		my $pid = $a->worker_away;
		$a->worker_back($pid) if $when eq 'before';
		downgrade();
		$a->worker_back($pid) if $when eq 'meanwhile';
		waits_for_downgraded("a new worker $when");
	}
};

subtest 'a holder whose data somebody changes is still the holder' => sub {
	begin($b);
	my $node = first_node();
	$shell->set("$path/$node", 'changed');
	$a->settle;
	is(first_node(), $node, 'the node is there');
	ok($waiter->busy, 'the writer waits');
	$a->wait_value('SELECT blocked_by_node FROM zk_locks WHERE pid = ' . $waiter->pid, $node);
	$zk->wait_watched("$path/$node", $a->session_id);
	downgrade();
	waits_for_downgraded('changed data');
};

sub pairs($path, $n)
{
	return "DO \$\$ BEGIN FOR i IN 1 .. $n LOOP PERFORM zk_lock('$path'); PERFORM zk_unlock('$path'); END LOOP; END \$\$";
}

# What, how often, the paths, and the servers of a session on each
foreach my $case (
	[ 'answers, one after the other', 300, ['alone'], $a ],
	[ 'requests and answers that come while it is busy', 100, [ 1 .. 8 ], ($a) x 8 ],
	[ 'what happens elsewhere', 75, [ ('together') x 4 ], ($a, $b) x 2 ])
{
	my ($what, $times, $paths, @servers) = @$case;
	subtest "the worker is woken by $what" => sub {
		my @sessions = map { $_->session } @servers;
		$sessions[$_]->query_start(pairs("/woken/$paths->[$_]", $times)) foreach 0 .. $#sessions;
		is($_->result->{error}, undef, "a session locks and unlocks $times times") foreach @sessions;
	};
}

subtest 'the worker is woken by the loss of the answer that follows one which wakes nobody' => sub {
	my $s = $a->session;
	foreach my $lose (qw(lose_reply lose_request))
	{
		my $fault = $proxy->$lose(op => 'getChildren', path => '^/woken/lost$');
		is($s->query("SELECT zk_lock('/woken/lost')"), 't', "$lose: a listing behind a create");
		ok($proxy->fired($fault), 'is lost');
		is($s->query("SELECT zk_unlock('/woken/lost')"), 't', 'and the lock released');
	}
	$s->disconnect;
};

done_clean($zk, $a, $b);
