# Copyright (c) 2026, zklock contributors
#
# A wait may end at any moment and for any reason. It leaves no contender behind, takes
# the place of nobody, and loses no grant that crossed it. Each state of a wait meets each way to end it.
#
# Then, what is left of it: savepoints, other locks, timeouts. That a release is made good although it is
# interrupted is in the table of faults.

use Zklock::Test;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a');
my $shell = $zk->shell;

my $path;

sub wait_gone($server, $session)
{
	wait_until { !$server->value('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $session->pid) }
	$session->name . ' to end';
	return;
}

# The states of a wait. Each is brought about by code that gets the victim's statement and returns two more
# pieces of code, one that lets ZooKeeper or the holder go on, and one that begins the
# wait of another session. That one is next behind the victim, and must be granted.

my $next_a = $a->session(name => 'next on a');
my $next_b = $b->session(name => 'next on b');
my $holder = $a->session(name => 'holder');
my $numbered = "node ~ '\\d{10}\$'";

sub queue_next($session, $condition)
{
	$session->query_start("SELECT zk_lock('$path', '30s')");
	$session->wait_row($condition, $path);
	return $session;
}

# A call to ZooKeeper is held back.
sub at_call($state, $hold, $op, $below, $where, $queue_next)
{
	my $code = sub ($victim, $sql) {
		$shell->create($path, makepath => 1) unless $op eq 'createContainer';
		$proxy->$hold($victim, $sql, op => $op, path => "^$path$below");
		$victim->wait_row("state = 'waiting' AND $where", $path);
		wait_until { $zk->children($path) } 'the node' if "$hold $op" eq 'hold_reply_of create2';
		return (sub { $proxy->heal }, $queue_next->($victim));
	};
	return $state => $code;
}

my @states = (
	# The worker has not seen the request.
	'requested' => sub ($victim, $sql) {
		my $worker = $a->worker_pid;
		freeze($worker);
		$victim->query_start($sql);
		$victim->wait_row("state = 'requested' AND wait_start IS NOT NULL", $path);
		return (sub { thaw($worker) }, queue_next($next_a, "state = 'requested'"));
	},
	# The path, and the one above it, are being made.
	at_call('making parents', hold_reply_of => 'createContainer', '$', "NOT $numbered",
		sub { queue_next($next_a, 'blocked_by_pid = ' . $_[0]->pid) }),
	# create has not reached ZooKeeper. The other server's node comes first then.
	at_call('create held back', hold_request_of => 'create2', '/', "NOT $numbered",
		sub { queue_next($next_a, "state = 'waiting'") }),
	# The node exists, but its answer has not come: it must not stay.
	at_call('create not answered', hold_reply_of => 'create2', '/', "NOT $numbered",
		sub { queue_next($next_b, 'blocked_by_node IS NOT NULL') }),
	# The node is known, but who stands before it is not.
	at_call('not listed', hold_request_of => 'getChildren', '$', $numbered,
		sub { queue_next($next_b, 'blocked_by_node IS NOT NULL') }),
	'behind a foreigner' => sub ($victim, $sql) {
		my $node = $zk->foreigner($path);
		$victim->query_start($sql);
		$victim->wait_row('blocked_by_node IS NOT NULL', $path);
		return (sub { $shell->delete($node) }, queue_next($next_b, 'blocked_by_node IS NOT NULL'));
	},
	'behind a foreigner, with others' => sub ($victim, $sql) {
		my $node = $zk->foreigner($path);
		$victim->query_start($sql);
		$victim->wait_row('blocked_by_node IS NOT NULL', $path);
		return (sub { $shell->delete($node) },
			queue_next($next_a, 'blocked_by_node IS NOT NULL AND blocked_by_pid IS NULL'));
	},
	'behind a session' => sub ($victim, $sql) {
		$holder->query("SELECT zk_lock('$path')");
		$victim->query_start($sql);
		$victim->wait_row('blocked_by_pid IS NOT NULL', $path);
		return (
			sub { $holder->query("SELECT zk_unlock('$path')") },
			queue_next($next_a, 'blocked_by_pid IS NOT NULL'));
	},
	# The last run has to be looked at again before anyone may join it.
	'waiting for a listing' => sub ($victim, $sql) {
		$holder->query("SELECT zk_lock('$path')");
		$shell->create("$path/noise");
		$shell->delete("$path/noise");
		$_->settle foreach $a, $b;
		$proxy->hold_reply_of($victim, $sql, op => 'getChildren', path => "^$path\$");
		$victim->wait_row("state = 'waiting' AND node IS NULL", $path);
		my $next = queue_next($next_a, "state = 'waiting' AND node IS NULL");
		return (sub { $proxy->heal; $holder->query("SELECT zk_unlock('$path')") }, $next);
	},
	# There is no connection. Nobody can tell whether the lock is free, so the timeout
	# ends in an error.
	'not connected' => sub ($victim, $sql) {
		$a->cut_off($proxy);
		$victim->query_start($sql);
		$victim->wait_row("state = 'waiting'", $path);
		my $next = queue_next($next_a, "state = 'waiting'");
		return (sub { $a->reconnect($proxy) }, $next);
	});

# The ways to end it.
my @ways = (
	{ name => 'pg_cancel_backend', end => sub { $_[0]->cancel }, sqlstate => '57014' },
	{   name => 'statement_timeout', set => "SET statement_timeout = '1s'",
		sqlstate => '57014', message => 'canceling statement due to statement timeout' },
	{   name => 'lock_timeout', set => "SET lock_timeout = '1s'",
		sqlstate => '55P03', message => 'canceling statement due to lock timeout' },
	{ name => 'timeout argument', timeout => '1s' },
	{ name => 'pg_terminate_backend', end => sub { $_[0]->terminate }, sqlstate => '57P01' },
	{   name => 'lost client', set => "SET client_connection_check_interval = '20ms'",
		end => sub { $_[0]->vanish; wait_gone($a, $_[0]) } });

my $case = 0;

while (my ($state, $reach) = splice(@states, 0, 2))
{
	subtest "a wait leaves nothing behind when it ends: $state" => sub {
		foreach my $way (@ways)
		{
			my $name     = "$state, $way->{name}";
			my $in_block = ++$case % 2;    # at both levels, by turns
			$path = "/t/cancel/$case";
			my $victim = $a->session(name => 'victim');
			$victim->query($way->{set}) if $way->{set};
			$victim->query('BEGIN') if $in_block;
			my $sql = ($in_block ? 'SELECT zk_xact_lock' : 'SELECT zk_lock') . "('$path'"
			  . ($way->{timeout} ? ", '$way->{timeout}')" : ')');
			my ($go_on, $next) = $reach->($victim, $sql);
			$way->{end}->($victim) if $way->{end};

			# It ends at once, not when ZooKeeper answers or the holder goes.
			my $lost = $way->{name} eq 'lost client';
			unless ($lost)
			{
				my $r = $victim->result;
				my $expect = $way->{sqlstate} ? { sqlstate => $way->{sqlstate}, text => undef }
				  : $state eq 'not connected' ? { sqlstate => '58030', text => undef }
				  : { sqlstate => '00000', text => 'f' };
				is_deeply({ map { $_ => $r->{$_} } qw(sqlstate text) }, $expect, $name)
				  or diag($r->{error});
				is($r->{message}, $way->{message}, "$name: told in PostgreSQL's own words")
				  if $way->{message};
			}
			ok($next->busy, "$name: who comes next still waits");
			$go_on->();
			my $r = $next->result;
			is($r->{text}, 't', "$name: who comes next is granted") or diag($r->{error});

			# The session of the victim, if it lives, can ask again.
			if ($victim->dbh && ($way->{sqlstate} || '') ne '57P01')
			{
				$victim->query('ROLLBACK; RESET lock_timeout; RESET statement_timeout');
				is($victim->query("SELECT zk_try_lock('$path')"), 'f', "$name: it does not hold it");
				$victim->query_start("SELECT zk_lock('$path', '30s')");
				$victim->wait_row("state = 'waiting'", $path);
				$next->hands_over($path, $victim, "$name: but can have it later");
				$victim->query("SELECT zk_unlock('$path')");
			}
			else
			{
				$next->query("SELECT zk_unlock('$path')");
			}
			$victim->disconnect;
			wait_until { $a->lock_count == 0 && $b->lock_count == 0 && !$zk->children($path) }
			sub { "$name: nothing to be left\n" . $a->describe_locks . $b->describe_locks };
		}
	};
}

my $s = $a->session;

foreach my $hold ('hold_request', 'hold_reply')
{
	subtest "the only session that waits gives up, and can ask again at once: $hold of create" => sub {
		$path = "/t/cancel/alone $hold" =~ s/ /_/r;
		$shell->create($path, makepath => 1);
		my $victim = $a->session;
		# Whom it waited for before is not told of the next wait, which uses the same memory.
		my $node = $shell->create('/t/cancel/before/_c_00000001-0000-4000-8000-000000000000-lock-',
			ephemeral => 1, sequence => 1, makepath => 1);
		is($victim->query("SELECT zk_lock('/t/cancel/before', '100ms')"), 'f', "$hold of create: a wait before");
		$shell->delete($node);
		wait_until { $a->lock_count == 0 } 'its end';
		my $fault = $proxy->$hold(op => 'create2', path => "^$path/");
		$victim->query_start("SELECT zk_lock('$path')");
		$proxy->fired($fault);
		$victim->wait_row("state = 'waiting'", $path);
		is($a->lock_count('blocked_by_node IS NULL AND node !~ \'\\d{10}$\''), 1,
			"$hold of create: it is not known who is before it");
		is($victim->cancelled, '57014', "$hold of create: the only one gives up");

		# The same session, and the same path, before anything is answered.
		$victim->query_start("SELECT zk_lock('$path', '30s')");
		$victim->wait_row("state = 'waiting'", $path);
		$proxy->heal;
		is($victim->finish, 't', "$hold of create: it can ask again at once");
		wait_until { $zk->children($path) == 1 } 'one node';
		is($victim->query("SELECT zk_unlock('$path')"), 't', "$hold of create: and has one node only");
		is(scalar($zk->children($path)), 0, "$hold of create: no node is left");
		$victim->disconnect;
	};
}

$path = '/t/cancel/savepoint';

subtest 'a wait that ends in a savepoint costs the transaction nothing else' => sub {
	$holder->query("SELECT zk_lock('$path')");
	$s->query($_) foreach 'BEGIN', 'CREATE TABLE kept ()', 'SAVEPOINT s', "SET LOCAL lock_timeout = '50ms'";
	is($s->try("SELECT zk_xact_lock('$path')")->{sqlstate}, '55P03', 'a wait in a savepoint ends');
	is($s->try('SELECT 1')->{sqlstate}, '25P02', 'the transaction has failed');
	$s->query('ROLLBACK TO s');
	$holder->query("SELECT zk_unlock('$path')");
	is($s->query("SELECT zk_xact_lock('$path', '30s')"), 't', 'after the rollback to it the lock can be had');
	is($holder->query("SELECT zk_try_lock('$path')"), 'f', 'and is held');
	$s->query('COMMIT');
	is($a->value("SELECT to_regclass('kept') IS NOT NULL"), 't', 'the rest of the transaction is kept');
	$holder->query("SELECT zk_lock('$path')");
	is( $s->query("SET lock_timeout = '50ms'; DO \$\$ BEGIN PERFORM zk_xact_lock('$path'); EXCEPTION"
			  . " WHEN lock_not_available THEN PERFORM set_config('t.caught', 'yes', false); END \$\$;"
			  . " RESET lock_timeout; SELECT current_setting('t.caught')"),
		'yes', 'an exception block catches the end of a wait');
	is($a->lock_count('pid = ' . $s->pid . " AND state <> 'releasing'"), 0, 'which leaves nothing');
	$holder->query("SELECT zk_unlock('$path')");
};

subtest 'a lock that is held is not touched by a wait for another one that ends' => sub {
	$holder->query("SELECT zk_lock('$path')");
	$s->query("SELECT zk_lock('/t/cancel/held'), zk_lock('/t/cancel/held')");
	is($s->try("SET lock_timeout = '50ms'; SELECT zk_lock('$path')")->{sqlstate}, '55P03', 'a wait ends');
	is($s->query("RESET lock_timeout; SELECT zk_unlock('/t/cancel/held')"), 't', 'another lock is still held');
	is($s->query("SELECT zk_unlock('/t/cancel/held')"), 't', 'as often as before');
	$holder->query("SELECT zk_unlock('$path')");
};

subtest 'lock_timeout is for each wait, and does not go on after it' => sub {
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

subtest 'a session that releases all its locks waits until the nodes are gone' => sub {
	foreach my $all ('SELECT zk_unlock_all()', 'DISCARD ALL')
	{
		$path = '/t/cancel/unlock_all';
		my $s = $a->session;
		$s->query("SELECT zk_lock('$path')");
		$proxy->hold_request_of($s, $all, op => 'delete', path => "^$path/");
		$a->wait_event($s, 'unlock');
		$proxy->heal;
		$s->finish;
		is(scalar($zk->children($path)), 0, "$all returns when the node is gone");
		$s->disconnect;
	}
};

done_clean($zk, $a, $b);
