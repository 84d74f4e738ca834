# Copyright (c) 2026, zklock contributors
#
# zk_session: what the server has asked of ZooKeeper, and how often its session was continued or ended.
# zk_stats: each event is counted once, for its kind and mode, by all sessions together; counts outlast sessions
# and workers. What a session counts that has no rival, and what a reset does, is in sql/stats.sql.

use Zklock::Test;
use List::Util qw(sum0);
use Zklock::Election;

use constant { SESSIONS => 6, ROUNDS => 50, AGAIN => 50_000 };

my @ends   = qw(timeouts busy cancels deadlocks failures);
my @counts = (qw(acquisitions reentrant handed_over waits losses), @ends);
my ($zk, $proxy, $a) = cast('a', proxied => 'a');
my ($admin, $s1, $s2) = map { $a->session(name => $_) } qw(admin s1 s2);
my %before;

# zk_stats: { "lock exclusive" => { acquisitions => 3, ... }, ... }
sub now
{
	my $rows = $admin->try("SELECT concat_ws(' ', kind, mode), " . join(', ', @counts) . ' FROM zk_stats')->{rows};
	return map { my ($kind, @values) = @$_; my %row; @row{@counts} = @values; ($kind => \%row) } @$rows;
}

# From now on counts counted().
sub note_counts { %before = now(); return; }

# What has been counted since then, by kind
sub more
{
	my %now = now();
	my %more;
	foreach my $kind (keys %now)
	{
		my @counted = grep { $now{$kind}{$_} != $before{$kind}{$_} } @counts or next;
		$more{$kind} = { map { $_ => $now{$kind}{$_} - $before{$kind}{$_} } @counted };
	}
	return \%more;
}

# A test: this is counted, at once or in a moment, and nothing else.
sub counted($name, %expected)
{
	eval { wait_until { eq_hash(more(), \%expected) } $name, 20 };
	is_deeply(more(), \%expected, $name);
	note_counts();
	return;
}

# Tests: a statement gives this, a text or an SQLSTATE, and this is counted.
sub gives($session, $sql, $expected, $name, %counted)
{
	my $result = $session->try($sql);
	is($result->{ok} ? $result->{text} : $result->{sqlstate}, $expected, $name);
	return counted($name, %counted);
}

sub hold_time($kind) { return $admin->query("SELECT extract(epoch FROM hold_time)::float8 FROM zk_stats WHERE kind = '$kind'"); }
sub clock     { return $admin->query('SELECT extract(epoch FROM clock_timestamp())::float8'); }

# A new session waits; it is terminated, which counts.
sub end_as_it_waits($kind, $event, $sql)
{
	my $session = $a->session;
	$session->query_start($sql);
	$a->wait_event($session, $event);
	is($session->terminated, '57P01', 'a session that ends as it waits');
	return counted('is cancelled', $kind => { waits => 1, cancels => 1 });
}

# What ZooKeeper sees of the worker's requests, but for pings and what a new connection asks.
sub seen { my %counts = %{ $proxy->counts }; delete @counts{qw(ping connect notification)}; return sum0(values %counts); }

subtest 'requests to ZooKeeper' => sub {
	my $requests = 'SELECT requests FROM zk_session';
	$s1->query("SELECT zk_lock('/p/r')");
	$a->settle;

	# The two are read one after the other, while heartbeats go on.
	my ($counted, $before);
	wait_until { $before = seen(); $counted = $admin->query($requests); seen() == $before } 'a quiet moment';
	my $difference = $counted - $before;
	$s1->query(q{SELECT zk_unlock('/p/r')});
	$s1->query(q{SELECT zk_lock('/p/requests/' || i), zk_unlock('/p/requests/' || i) FROM generate_series(1, 20) i});
	$a->settle;
	wait_until { my $now = seen(); $admin->query($requests) - $now == $difference && seen() > $before + 40 } 'each is counted';
	is($admin->query("SELECT request_errors FROM zk_session"), 0, 'none is an error');
	is($admin->query("SELECT request_time > '0' FROM zk_session"), 't', 'they take their time');

	$proxy->refuse(op => 'create2', path => '^/p/refused/', code => -102);
	is($s1->try("SELECT zk_lock('/p/refused')")->{sqlstate}, '42501', 'a refusal');
	is($admin->query("SELECT request_errors FROM zk_session"), 1, 'is one');
};

subtest 'connections and sessions' => sub {
	my $counts = 'SELECT reconnects, expirations FROM zk_session';
	is($admin->query($counts), '0|0', 'so far all was well');
	$proxy->drop;
	wait_until { $admin->query($counts) eq '1|0' } 'a lost connection';
	$a->wait_session;
	$a->restart_worker;
	$a->wait_session;
	is($admin->query($counts), '2|0', 'the next worker continues the session on another one');
	$a->expire_session($zk);
	wait_until { $admin->query($counts) eq '2|1' } 'a session ends';
	$admin->query('SELECT zk_stats_reset()');
	is($admin->query($counts), '2|1', 'which a reset of the statistics leaves');
	is($admin->query('SELECT requests > 40 FROM zk_session'), 't', 'as it does the requests');
};

# How many rows there are, in that many readings, whose sums do not agree
my $ends = join ' + ', @ends;
$admin->query("CREATE FUNCTION disagreeing(readings int) RETURNS bigint LANGUAGE plpgsql AS \$\$
	DECLARE
		found bigint := 0;
	BEGIN
		FOR i IN 1 .. readings LOOP
			found := found + (SELECT count(*) FROM zk_stats WHERE waits <> acquisitions - reentrant + $ends
				OR waits <> (SELECT sum(n) FROM unnest(wait_histogram) n) OR handed_over > acquisitions);
		END LOOP;
		RETURN found;
	END \$\$");

note_counts();

subtest 'a rival of the same server' => sub {
	$s1->query("SELECT zk_lock('/s/a') AND bool_and(zk_semaphore_acquire('/s/slots', 2)) FROM generate_series(1, 2)");
	$s2->start_queued("SELECT zk_lock('/s/a')");
	note_counts();
	$s1->query("SELECT zk_unlock('/s/a')");
	is($s2->finish, 't', 'the other session follows');
	counted('behind the same node', 'lock exclusive' => { acquisitions => 1, waits => 1, handed_over => 1 });
	gives($s1, "SELECT zk_try_lock('/s/a')", 'f', 'a call that does not wait', 'lock exclusive' => { waits => 1, busy => 1 });
	gives($s1, "SELECT zk_lock_shared('/s/a', '1 ms')", 'f', 'a timeout', 'lock shared' => { waits => 1, timeouts => 1 });
	gives($s1, "SET lock_timeout = '1ms'; SELECT zk_lock_shared('/s/a')", '55P03', "PostgreSQL's", 'lock shared' => { waits => 1, timeouts => 1 });
	$s1->start_queued("SELECT zk_lock('/s/a')");
	is($s1->cancelled, '57014', 'a cancelled call');
	counted('is cancelled', 'lock exclusive' => { waits => 1, cancels => 1 });
	gives($s1, "SET statement_timeout = '50ms'; SELECT zk_lock('/s/a')", '57014', 'statement_timeout',
		'lock exclusive' => { waits => 1, cancels => 1 });
	end_as_it_waits('lock exclusive', 'lock', "SELECT zk_lock('/s/a')");
	$zk->shell->create('/s/closed', acl => [ [ 'world', 'anyone', 'r' ] ]);
	gives($s1, "SELECT zk_lock('/s/closed')", '42501', 'a refusal', 'lock exclusive' => { waits => 1, failures => 1 });
};

subtest 'losses' => sub {
	my ($node) = $zk->children('/s/a');
	$zk->shell->delete("/s/a/$node");
	$a->wait_lock($s2, 'lost', '/s/a');
	counted('a lock', 'lock exclusive' => { losses => 1 });
	$a->expire_session($zk);
	$a->wait_lock($s1, 'lost', '/s/slots');
	counted('two permits', semaphore => { losses => 2 });
	$_->query('SELECT zk_unlock_all()') foreach $s1, $s2;
};

subtest 'counts outlast the worker, and sessions' => sub {
	my $s4 = $a->session(name => 's4');
	$s4->query("SELECT zk_lock('/s/a')");
	$s4->query("SELECT zk_unlock('/s/a')");
	$s4->disconnect;
	$a->restart_worker;
	$a->wait_session;
	counted('as if nothing had happened', 'lock exclusive' => { acquisitions => 1, waits => 1 });
};

subtest 'a wait counts for as long as it was' => sub {
	$s1->query("SELECT zk_lock('/s/a')");
	my $waits = "SELECT extract(epoch FROM wait_time)::float8 FROM zk_stats WHERE kind = 'lock' AND mode = 'exclusive'";
	my $before = $admin->query($waits);
	$s2->start_waiting("SELECT zk_lock('/s/a')");
	my $start = clock();
	my $time  = clock() - $start;
	$s1->query("SELECT zk_unlock('/s/a')");
	$s2->finish;
	cmp_ok($admin->query($waits) - $before, '>', 0.99 * $time, 'it is known since when');
	$s2->query("SELECT zk_unlock('/s/a')");
};

subtest 'nothing is lost, or counted twice, by many sessions at once' => sub {
	my @sessions = map { $a->session } 1 .. SESSIONS;
	note_counts();
	$_->query_start('DO $$ BEGIN FOR i IN 1 .. ' . ROUNDS . q{ LOOP
		PERFORM zk_lock('/s/busy'), zk_lock('/s/busy'), zk_unlock('/s/busy'), zk_unlock('/s/busy');
		PERFORM zk_lock_shared('/s/shared'), zk_unlock_shared('/s/shared');
		END LOOP;
		PERFORM zk_lock_shared('/s/shared') FROM generate_series(0, } . AGAIN . q{);
		PERFORM zk_unlock_all(); END $$}) foreach @sessions;
	my $disagreeing = $admin->query('SELECT disagreeing(300)');
	$_->finish foreach @sessions;
	is($disagreeing, 0, 'sums agree whenever they are read');
	my ($all, $again) = (SESSIONS * ROUNDS, SESSIONS * AGAIN);
	my $more = more();
	delete @{$_}{handed_over} foreach values %$more;
	is_deeply($more, {
			'lock exclusive' => { acquisitions => 2 * $all, reentrant => $all, waits => $all },
			'lock shared'    => { acquisitions => $all + SESSIONS + $again, reentrant => $again, waits => $all + SESSIONS } },
		'each is counted, and ended well');
};

subtest 'elements of queues' => sub {
	my ($take, $xact_take) = map { "SELECT count(*) FROM $_('/s/q') t WHERE t IS NOT NULL" } qw(zk_queue_take zk_xact_queue_take);
	my $offer = "SELECT zk_queue_offer('/s/q', 'x')";
	$zk->shell->create('/s/hidden', acl => [ [ 'world', 'anyone', 'w' ] ]);
	note_counts();
	$s2->query_start($take);
	$a->wait_event($s2, 'element');
	$s1->query($offer);
	is($s2->finish, 1, 'one that was waited for');
	counted('is taken', queue => { acquisitions => 1, waits => 1 });
	end_as_it_waits('queue', 'element', $_) foreach $take, $xact_take;
	gives($s1, "SELECT zk_queue_take('/s/hidden')", '42501', 'a refusal', queue => { waits => 1, failures => 1 });
	$s1->query("$offer; BEGIN");
	$s1->query($xact_take);
	my ($element) = $zk->children('/s/q');
	$zk->shell->delete("/s/q/$element/claim");
	wait_until { (more()->{queue}{losses} // 0) == 1 } 'its loss to be counted';
	is($s1->try('COMMIT')->{sqlstate}, '40001', 'an element is lost');
	counted('which counts', queue => { acquisitions => 1, waits => 1, losses => 1 });
	$s1->query("SELECT zk_queue_remove('/s/q')");
};

subtest 'leadership' => sub {
	my $await    = "SELECT zk_await_leadership('/s/e'%s)";
	my $election = Zklock::Election->new($zk, '/s/e');
	note_counts();
	$a->set_conf('zklock.elections' => '/s/e');
	$election->wait_state($a, 'elected');
	my $since = clock();
	gives($s1, "SELECT zk_is_leader('/s/e')", 't', 'to lead');
	gives($s1, sprintf($await, $_), 't', 'to wait for it', election => { acquisitions => 1, waits => 1 }) foreach '', ", '0'";
	my ($hold, $for) = (hold_time('election'), clock() - $since);
	my $foreign = $zk->shell->create('/s/e/_c_edda2515-abf2-4579-b513-df182d03af67-latch-', sequence => 1);
	is($s1->query("SELECT zk_resign('/s/e')"), 't', 'to resign');
	cmp_ok(hold_time('election') - $hold, '>', 0.99 * $for, 'ends a term');
	counted('is no loss');
	gives($s1, sprintf($await, ", '0'"), 'f', 'another leads', election => { waits => 1, busy => 1 });
	gives($s1, sprintf($await, ", '1 ms'"), 'f', 'a timeout', election => { waits => 1, timeouts => 1 });
	gives($s1, "SET lock_timeout = '1ms'; " . sprintf($await, ''), '55P03', 'lock_timeout', election => { waits => 1, timeouts => 1 });
	gives($s1, "SET statement_timeout = '50ms'; " . sprintf($await, ''), '57014', 'statement_timeout', election => { waits => 1, cancels => 1 });
	end_as_it_waits('election', 'lock', sprintf $await, '');
	$s1->query_start(sprintf $await, '');
	$a->wait_event($s1, 'lock');
	$zk->shell->delete($foreign);
	is($s1->finish, 't', 'and at last not');
	counted('once more', election => { acquisitions => 1, waits => 1 });
	$hold = hold_time('election');
	my ($node) = $zk->children('/s/e');
	$zk->shell->delete("/s/e/$node");
	counted('leadership is lost', election => { losses => 1 });
	cmp_ok(hold_time('election'), '>', $hold, 'and the term ends');
	$election->wait_state($a, 'elected');
	$zk->shell->create('/s/e/_c_edda2515-abf2-4579-b513-df182d03af67-latch-', sequence => 1);
	$s1->query("SELECT zk_resign('/s/e')");
	$s1->query_start(sprintf $await, '');
	$a->wait_event($s1, 'lock');
	$a->set_conf('zklock.elections' => '');
	is($s1->result->{sqlstate}, '42704', 'the server stands no more');
	counted('which is a failure', election => { waits => 1, failures => 1 });
};

subtest 'claims' => sub {
	$zk->shell->create('/s/refused', acl => [ [ 'world', 'anyone', 'r' ] ]);
	note_counts();
	gives($s1, "SELECT zk_claim('/s/refused/c', now())", '42501', 'a refusal', claim => { waits => 1, failures => 1 });
	freeze($a->worker_pid);
	is($s1->try("SET statement_timeout = '50ms'; SELECT zk_claim('/s/claims', now())")->{sqlstate}, '57014', 'nobody answers');
	thaw($a->worker_pid);
	counted('it is cancelled', claim => { waits => 1, cancels => 1 });
	is($admin->query('SELECT disagreeing(1)'), 0, 'sums agree');
};

$a->assert_clean($zk, '/p/r', '/s/a', '/s/busy', '/s/shared', '/s/slots/leases', '/s/slots/locks', '/s/q');
done_testing;
