# Copyright (c) 2026, zklock contributors
#
# Nodes of a semaphore are deleted by somebody else, their ZooKeeper session ends, or there is no room in shared memory.
# Those that wait go on waiting, and no permit is had twice, nor does one leak. What a session and a transaction are
# told that have lost one is in the SQL contract; what becomes of a single permit at each call, in the table of faults,
# faults/faults_of_semaphores.pl; that all outlive a worker, in outages/failures.pl; how waits end, also without ZooKeeper, in
# locks/cancel.pl and outages/away.pl.
#
# Server a talks to ZooKeeper through a proxy, b directly; c has little room.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::Semaphore;
use Zklock::Util qw(most_at_once);

my ($zk, $proxy, $a, $b, $c) = cast('a b c', proxied => 'a', timeout => '12s', c => { conf => ['zklock.max_locks = 3'] });
my $shell = $zk->shell;
Zklock::Semaphore::cast($zk, $a, $b);

my $holder = $b->session(name => 'b holder');
my $next_b = $b->session(name => 'b next');
my $s      = $a->session(name => 'a s');
$a->value('CREATE TABLE t (i int)');

# A subtest about another semaphore, of which no permit is held in the end.
sub on_semaphore($name, $code)
{
	return subtest $name => sub {
		new_path();
		$code->();
		settled(0, $name);
	};
}

on_semaphore 'a session that finds no room in shared memory is told which setting is to blame' => sub {
	my @c = map { $c->session(name => "c$_") } 1, 2;
	my $no_room = sub ($held) {
		fails($c[1]->try(sql(9)), '53200', 'then there is no room', hint => qr/zklock\.max_locks/);
		$c->wait_value('SELECT count(*) FROM zk_locks', $held);
	};
	foreach my $held (1, 2)
	{
		is(acquire($c[0], 9), 't', "permit $held of three entries: to ask for it takes two");
		$c->wait_value('SELECT count(*) FROM zk_locks', $held);
	}
	$no_room->(2);
	# Once what the refused call had taken is given back.
	wait_until { ($c[0]->try(sql(9, '0'))->{text} || '') eq 't' } 'the last entry, which is enough without waiting';
	$no_room->(3);
	$c[0]->query('SELECT zk_unlock_all()');
	is(acquire($c[1], 1, '30s'), 't', 'after that there is again');
	$c[1]->query('SELECT zk_unlock_all()');
};

on_semaphore 'a crowd that is cancelled, ends and loses connections never has more permits than there are' => sub {
	# Sessions that wait for a while, are cancelled or end, while connections break. Who was inside
	# notes when: after it got a permit, and before it gave it back.
	my $microseconds = '(extract(epoch FROM clock_timestamp()) * 1000000)::bigint';
	my @crowd = map { ($a->session(name => "a crowd $_"), $b->session(name => "b crowd $_")) } 1 .. 5;
	$_->value('CREATE TABLE inside (began bigint, ended bigint)') foreach $a, $b;
	my ($wanted, $cancelled) = (150, 0);
	foreach my $round (0 .. $wanted - 1)
	{
		my $session = $crowd[ $round % @crowd ];
		if ($session->{statement})
		{
			# It is given some time, not for ever.
			$cancelled += $session->cancel if $round % 3 == 0 && $session->busy;
			my $r = $session->result;
			fail("round $round: $r->{error}") unless $r->{ok} || $r->{sqlstate} eq '57014';
		}
		if ($round % 17 == 16)
		{
			$session->terminate if $round % 2;
			$session->disconnect;
			$session = $crowd[ $round % @crowd ] = $session->server->session(name => $session->name);
		}
		$proxy->drop if $round % 11 == 10;
		# The permit of a call that is cancelled is had until the next.
		$session->query_start("DO \$\$
			DECLARE
				began bigint;
			BEGIN
				PERFORM zk_unlock_all();
				IF zk_semaphore_acquire('$path', 3, '20s') THEN
					began := $microseconds;
					PERFORM count(*) FROM generate_series(1, 100000);
					INSERT INTO inside VALUES (began, $microseconds);
				END IF;
				PERFORM zk_unlock_all();
			END \$\$");
	}
	foreach my $session (@crowd)
	{
		is($session->result->{error}, undef, $session->name . ' comes to an end');
		$session->disconnect;
	}
	settled(0, 'all at once');
	my @inside = map { [ split /\|/ ] } map { split /\n/, $_->value('SELECT began, ended FROM inside') } $a, $b;
	my $most = most_at_once(@inside);
	cmp_ok($most, '<=', 3, "never more than three inside (at most $most, " . @inside . " times, $cancelled cancelled)");
	cmp_ok(2 * @inside, '>', $wanted, 'most were served');
};

foreach my $fate (qw(lose_reply lose_request))
{
	on_semaphore "the deletion of a lease is noticed without the watch that was to tell: $fate of getData" => sub {
		acquire($s, 2);
		settled(1, 'a permit');
		my $fault = $proxy->$fate(op => 'getData', path => "^$path/leases/");
		acquire($next_b, 2);
		ok($proxy->fired($fault), "$fate of getData");
		$a->wait_session;
		my ($node) = map { $_->{node} } $a->locks('pid = ' . $s->pid);
		$shell->delete("$path/leases/$node");
		is(wait_row($s, "state = 'lost'")->{granted}, 'f', "$fate of getData: a deletion is noticed nevertheless");
		is(release($s), 'f', 'it was lost');
		release($next_b);
	};
}

is($a->zk_session->{expirations}, '0', 'all in one session');

on_semaphore 'with zklock.commit_guard = quorum the nodes of permits are looked at' => sub {
	$s->query("SET zklock.commit_guard = 'quorum'");
	acquire($s, 2);
	$proxy->reset_counts;
	is($s->try('INSERT INTO t VALUES (1); DELETE FROM t')->{sqlstate}, '00000', 'a quorum confirms a permit');
	ok((grep { $_->[0] eq 'multi' && ($_->[1] // '') =~ m{^$path/leases/} } @{ $proxy->requests }), 'which was asked');
	release($s);
	$s->query('RESET zklock.commit_guard');
};

on_semaphore 'with zklock.on_lock_loss a lost permit interrupts a statement, and a lost turn does not' => sub {
	$s->query("SET zklock.on_lock_loss = 'cancel'");
	acquire($s, 2);
	settled(1, 'a permit');
	my $blocker = $a->session;
	$blocker->query('SELECT pg_advisory_lock(1)');
	$s->query_start('SELECT pg_advisory_lock(1)');
	$a->wait_event($s, 'advisory');
	$shell->delete("$path/leases/$_") foreach leases();
	fails($s->result, '57014', 'a lost permit cancels a statement');
	is(release($s), 'f', 'and is released');
	acquire($holder, 1);
	acquire_until($s, 1, $has_lease);
	$shell->delete("$path/locks/$_") foreach turns();
	acquire_until($next_b, 1, $has_lease);
	ok($s->busy, 'a lost turn cancels nothing');
	release($holder);
	is($s->finish, 't', 'who lost it gets the permit');
	release($s);
	is($next_b->finish, 't', 'and then the next');
	release($next_b);
	$s->query('RESET zklock.on_lock_loss');
};

on_semaphore 'a turn that is lost before its session knows of it costs nobody a permit' => sub {
	acquire($holder, 1);
	acquire_until($next_b, 1, $has_lease);
	acquire_until($s, 1, $has_turn);
	my $pid = $s->pid;
	freeze($pid);
	is($next_b->cancelled, '57014', 'the head of the queue gives up');
	wait_row($s, 'blocked_by_pid IS NULL AND blocked_by_node IS NULL');
	$shell->delete("$path/locks/$_") foreach turns();
	wait_until { turns() == 0 } 'the turn to be lost';
	thaw($pid);
	wait_row($s, $has_lease);
	release($holder);
	is($s->finish, 't', 'the next, which loses its turn at once, gets the permit');
	release($s);
};

on_semaphore 'the end of the ZooKeeper session takes the permits, and those who wait queue again' => sub {
	my ($head, $behind, $next) = map { $a->session(name => "a $_") } 1 .. 3;
	acquire($_, 3) foreach $s, $holder, $s;
	settled(3, 'three permits');
	acquire_until($head, 3, $has_lease);
	acquire_until($behind, 3, $has_turn);
	$a->expire_session($zk);
	wait_until { $a->lock_count('pid = ' . $s->pid . " AND state = 'lost'") == 2 } 'both permits to be lost';
	is($head->finish, 't', 'who waited at the head gets a permit');
	is($behind->finish, 't', 'who waited behind, another');
	is($b->lock_count("path = '$path' AND state = 'held'"), 1, 'the other server keeps its own');
	is(acquire($next, 3, '0'), 'f', 'and there are no more');
	is(release($s), 'f', 'a lost one is released');
	$s->disconnect;
	is(acquire($next, 3, '0'), 'f', 'which gives nobody a permit');
	release($_) foreach $head, $behind, $holder;
};

done_clean($zk, $a, $b, $c);
