# Copyright (c) 2026, zklock contributors
#
# A wait, for a lock or for a permit, may end at any moment and for any reason. It leaves no contender
# behind, takes the place of nobody, and loses no grant that crossed it. Each state of a wait meets each way
# to end it.
#
# That a wait that ends costs the session nothing else, in a savepoint or before, is in locks/multi.pl. Waits that end
# while a call to ZooKeeper is not answered yet, and releases that are interrupted, are in the table of faults, which
# has each call; so are cancellations that come as the answer does.

use Zklock::Test;
use Zklock::Cast qw(fails);

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a');
my $shell = $zk->shell;

my $path;
my $next_a = $a->session(name => 'next on a');
my $next_b = $b->session(name => 'next on b');
my $holder = $a->session(name => 'holder');

# The semaphore has one permit.
my %lock = (
	ask => "zk_lock('PATH')", timed => "zk_lock('PATH', 'TIMEOUT')", try => "zk_try_lock('PATH')",
	release => "zk_unlock('PATH')", folders => ['']);
my %permit = (
	ask => "zk_semaphore_acquire('PATH', 1)", timed => "zk_semaphore_acquire('PATH', 1, 'TIMEOUT')",
	try => "zk_semaphore_acquire('PATH', 1, '0')", release => "zk_semaphore_release('PATH')",
	folders => [ '/locks', '/leases' ]);
my $recipe;

sub sql($what, $timeout = '30s') { return 'SELECT ' . $recipe->{$what} =~ s/PATH/$path/r =~ s/TIMEOUT/$timeout/r; }

sub nodes { return map { $zk->children("$path$_") } @{ $recipe->{folders} }; }

# The victim asks, and its wait comes to this state, unless its time is over before.
sub reach($victim, $sql, $condition)
{
	$victim->query_start($sql);
	return reached($victim, $victim, $condition);
}

sub reached($session, $victim, $condition)
{
	wait_until { !$victim->busy || $a->lock_count("path = '$path' AND $condition AND pid = " . $session->pid)
		  || $b->lock_count("path = '$path' AND $condition AND pid = " . $session->pid) }
	sub { $session->name . " to be $condition\n" . $a->describe_locks . $b->describe_locks };
	return;
}

# ---- the states of a wait
#
# Each is brought about by code that gets the victim's statement. It returns code that lets ZooKeeper or the
# holder go on, and the session that is next and must be granted then, with what is true of it when it stands
# behind the victim. If the victim's time was over too early, it is tried again with more of it.

my $waiting   = "state = 'waiting'";
my $elsewhere = 'blocked_by_node IS NOT NULL';

# The worker has not seen the request.
my @requested = (
	'requested' => sub ($victim, $sql) {
		freeze(my $worker = $a->worker_pid);
		reach($victim, $sql, "state = 'requested' AND wait_start IS NOT NULL");
		return (sub { thaw($worker) }, $next_a, "state = 'requested'");
	});
# There is no connection. Nobody can tell whether the lock is free, so the timeout ends in an error.
my @not_connected = (
	'not connected' => sub ($victim, $sql) {
		$a->cut_off($proxy);
		reach($victim, $sql, $waiting);
		return (sub { $a->reconnect($proxy) }, $next_a, $waiting);
	});

sub behind_foreigner($next_waits, $next)
{
	return sub ($victim, $sql) {
		my $node = $zk->foreigner($path);
		reach($victim, $sql, $elsewhere);
		return (sub { $shell->delete($node) }, $next, $next_waits);
	};
}

my @of_locks = (
	@requested,
	'behind a foreigner' => behind_foreigner($elsewhere, $next_b),
	'behind a foreigner, with others' => behind_foreigner("$elsewhere AND blocked_by_pid IS NULL", $next_a),
	'behind a session' => sub ($victim, $sql) {
		$holder->query(sql('ask'));
		reach($victim, $sql, 'blocked_by_pid IS NOT NULL');
		return (sub { $holder->query(sql('release')) }, $next_a, 'blocked_by_pid IS NOT NULL');
	},
	# The last run has to be looked at again before anyone may join it.
	'waiting for a listing' => sub ($victim, $sql) {
		$holder->query(sql('ask'));
		$_->settle foreach $a, $b;
		$shell->create("$path/noise");
		$shell->delete("$path/noise");
		$a->settle;
		# It is for the victim, or, if the lock has been held for long, for who may have come behind it.
		my $fault = $proxy->hold_reply(op => 'getChildren', path => "^$path\$");
		reach($victim, $sql, "$waiting AND node IS NULL");
		wait_until { !$victim->busy || $proxy->has_fired($fault) } 'the listing';
		return (sub { $proxy->heal; $holder->query(sql('release')) }, $next_a, "$waiting AND node IS NULL");
	},
	@not_connected);

my @of_permits = (
	@requested,
	'waiting for its turn' => sub ($victim, $sql) {
		$holder->query(sql('ask'));
		$next_a->query_start(sql('timed'));
		$next_a->wait_row("node ~ 'lease-\\d{10}\$' AND blocked_by_pid IS NOT NULL", $path);
		reach($victim, $sql, "node ~ 'lock-\\d{10}\$' AND (blocked_by_pid IS NOT NULL OR $elsewhere)");
		return (sub { $holder->query(sql('release')) }, $next_a);
	},
	'waiting for a permit' => sub ($victim, $sql) {
		$holder->query(sql('ask'));
		reach($victim, $sql, "node ~ 'lease-\\d{10}\$' AND blocked_by_pid IS NOT NULL");
		return (sub { $holder->query(sql('release')) }, $next_b, $elsewhere);
	},
	@not_connected);

# ---- the ways to end it

my @ways = (
	{ name => 'pg_cancel_backend', end => sub { $_[0]->cancel }, sqlstate => '57014' },
	{ name => 'statement_timeout', sqlstate => '57014', message => 'canceling statement due to statement timeout' },
	{ name => 'lock_timeout', sqlstate => '55P03', message => 'canceling statement due to lock timeout' },
	{ name => 'timeout argument' },
	{ name => 'pg_terminate_backend', end => sub { $_[0]->terminate }, sqlstate => '57P01' },
	{   name => 'lost client',
		end => sub ($s) {
			$s->vanish;
			wait_until { !$a->value('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $s->pid) } 'the victim to end';
		} });

my $case = 0;

# The victim waits, at session and transaction level by turns.
sub begin($reach, $way, $in_block, $seconds)
{
	$path = '/t/cancel/' . ++$case;
	my $victim = $a->session(name => 'victim');
	$victim->query("SET client_connection_check_interval = '20ms'") if $way->{name} eq 'lost client';
	$victim->query("SET $way->{name} = '${seconds}s'") if $way->{name} =~ /_timeout$/;
	$victim->query('BEGIN') if $in_block;
	my $sql = sql($way->{name} eq 'timeout argument' ? 'timed' : 'ask', "${seconds}s");
	my ($go_on, $next, $behind) = $reach->($victim, $in_block ? $sql =~ s/zk_/zk_xact_/r : $sql);
	$next->query_start(sql('timed')) if $behind;
	reached($next, $victim, $behind) if $behind;
	return ($victim, $go_on, $next) if $victim->busy;
	$victim->result;
	$go_on->();
	$proxy->clear;
	$next->finish;
	$next->query(sql('release'));
	return begin($reach, $way, $in_block, 2 * $seconds);
}

sub wait_ends($state, $reach, $way, $in_block)
{
	my $name = "$state, $way->{name}";
	my ($victim, $go_on, $next) = begin($reach, $way, $in_block, 0.3);
	$way->{end}->($victim) if $way->{end};

	# It ends at once, not when ZooKeeper answers or the holder goes.
	if ($way->{name} ne 'lost client')
	{
		my $r = $victim->result;
		# Nobody can tell whether it is free.
		my $sqlstate = $way->{sqlstate} // ($state eq 'not connected' ? '58030' : '00000');
		is_deeply([ @{$r}{qw(sqlstate text)} ], [ $sqlstate, $sqlstate eq '00000' ? 'f' : undef ], $name) or diag($r->{error});
		is($r->{message}, $way->{message}, "$name: told in PostgreSQL's own words") if $way->{message};
	}
	ok($next->busy, "$name: who comes next still waits");
	$go_on->();
	my $r = $next->result;
	is($r->{text}, 't', "$name: who comes next is granted") or diag($r->{error});

	# The session of the victim, if it lives, can ask again.
	if ($victim->dbh && ($way->{sqlstate} || '') ne '57P01')
	{
		$victim->query('ROLLBACK; RESET lock_timeout; RESET statement_timeout');
		is($victim->query(sql('try')), 'f', "$name: it cannot have it");
		is($victim->query(sql('release')), 'f', "$name: and does not hold it");
		$victim->query_start(sql('timed'));
		$victim->wait_row($waiting, $path);
		is($next->query(sql('release')), 't', "$name: released");
		is($victim->finish, 't', "$name: then it can have it");
		$victim->query(sql('release'));
	}
	else
	{
		$next->query(sql('release'));
	}
	if ($recipe == \%permit)
	{
		my ($other) = grep { $_ != $next } $next_a, $next_b;
		is($other->query(sql('timed')), 't', "$name: the other server gets the permit as well");
		is($other->query(sql('release')), 't', "$name: and gives it back");
	}
	$victim->disconnect;
	wait_until { $a->lock_count == 0 && $b->lock_count == 0 && !nodes() }
	sub { "$name: nothing to be left\n" . $a->describe_locks . $b->describe_locks };
	return;
}

foreach my $what ([ 'a lock', \%lock, @of_locks ], [ 'a permit', \%permit, @of_permits ])
{
	(my $thing, $recipe, my @states) = @$what;
	while (my ($state, $reach) = splice(@states, 0, 2))
	{
		subtest "a wait for $thing leaves nothing behind when it ends: $state" => sub {
			wait_ends($state, $reach, $ways[$_], ($_ + 1) % 2) foreach 0 .. $#ways;
		};
	}
}

foreach my $hold ('hold_request', 'hold_reply')
{
	subtest "the only session that waits gives up, and can ask again at once: $hold of create" => sub {
		$path = "/t/cancel/alone_$hold";
		$shell->create($path, makepath => 1);
		my $victim = $a->session;
		# Whom it waited for before is not told of the next wait, which uses the same memory.
		my $node = $zk->foreigner('/t/cancel/before');
		is($victim->query("SELECT zk_lock('/t/cancel/before', '100ms')"), 'f', 'a wait before');
		$shell->delete($node);
		wait_until { $a->lock_count == 0 } 'its end';
		my $of = "${hold}_of";
		$proxy->$of($victim, "SELECT zk_lock('$path')", op => 'create2', path => "^$path/");
		$victim->wait_row("state = 'waiting'", $path);
		is($a->lock_count(q{blocked_by_node IS NULL AND node !~ '\d{10}$'}), 1, 'it is not known who is before it');
		is($victim->cancelled, '57014', 'the only one gives up');

		# The same session, and the same path, before anything is answered.
		$victim->start_waiting("SELECT zk_lock('$path', '30s')", $path);
		$proxy->heal;
		is($victim->finish, 't', 'it can ask again at once');
		wait_until { $zk->children($path) == 1 } 'one node';
		is($victim->query("SELECT zk_unlock('$path')"), 't', 'and has one node only');
		is(scalar($zk->children($path)), 0, 'no node is left');
	};
}

subtest 'lock_timeout is for each wait, and does not go on after it' => sub {
	$path = '/t/cancel/timeout';
	my $s = $a->session;
	$shell->create('/t/cancel/ephemeral', ephemeral => 1);
	# So of what never ends, another timeout is the end.
	$s->query("SET lock_timeout = '1500ms'; SET statement_timeout = '3s'");
	is($s->try("SELECT zk_lock('$path'); DO \$\$ BEGIN LOOP END LOOP; END \$\$")->{sqlstate},
		'57014', 'lock_timeout is over when the lock is granted');
	is( $s->try("DO \$\$ BEGIN PERFORM zk_lock('/t/cancel/ephemeral/lock'); EXCEPTION"
			  . ' WHEN wrong_object_type THEN LOOP END LOOP; END $$')->{sqlstate},
		'57014', 'and when it is refused');
	is($s->query("RESET lock_timeout; RESET statement_timeout; SELECT zk_unlock('$path')"), 't', 'the lock is held');
	$shell->delete('/t/cancel/ephemeral');
};

subtest 'a call that a cancellation finds at its end leaves what was held before, as often as before' => sub {
	my $s    = $a->session;
	my $held = sub { join ' ', map { "$_->{path} $_->{mode} $_->{count}" } $a->locks("pid = ${\$s->pid} AND state = 'held' ORDER BY path, mode") };
	my $tree = "zk_lock_tree('/t/cancel/end/x', '/t/cancel')";
	my @calls = ("zk_lock('/t/cancel/end')", "zk_lock_shared('/t/cancel/end')", "zk_lock(ARRAY['/t/cancel/end', '/t/cancel/end/x'])", $tree);
	$s->query("SELECT $_") foreach @calls;
	my $before = $held->();
	is($before, '/t/cancel/end exclusive 2 /t/cancel/end shared 2 /t/cancel/end/x exclusive 2', 'what the session holds');
	foreach my $call (@calls)
	{
		fails($s->try("SELECT pg_cancel_backend(pg_backend_pid()), $call"), '57014', $call);
		is($held->(), $before, 'and is as before');
	}
	# What has returned has returned, as with pg_advisory_lock().
	fails($s->try("SELECT $calls[0], pg_cancel_backend(pg_backend_pid())"), '57014', 'a statement that is cancelled behind the call');
	like($held->(), qr/exclusive 3/, 'keeps what that has returned');
	is($s->query("DECLARE c CURSOR FOR SELECT $calls[0], pg_cancel_backend(pg_backend_pid()); FETCH 1 FROM c"),
		't|t', 'one that is over, and has written nothing, is not cancelled as it is committed');
	like($held->(), qr/exclusive 4/, 'and has the lock');
	$s->query('SELECT zk_unlock_all()');
};

subtest 'a session that releases all its locks waits until the nodes are gone' => sub {
	foreach my $all ('SELECT zk_unlock_all()', 'DISCARD ALL')
	{
		$path = '/t/cancel/unlock_all' . ++$case; # locked again, its node might be kept
		my $s = $a->session;
		$s->query("SELECT zk_lock('$path')");
		$proxy->hold_request_of($s, $all, op => 'delete', path => "^$path/");
		$a->wait_event($s, 'unlock');
		$proxy->heal;
		$s->finish;
		is(scalar($zk->children($path)), 0, "$all returns when the node is gone");
	}
};

done_clean($zk, $a, $b);
