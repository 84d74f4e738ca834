# Copyright (c) 2026, zklock contributors
#
# zk_stats: elements of queues, leadership and claims, each event counted once.

use Zklock::Test;
use Zklock::Election;
use Zklock::Stats;

my ($zk, $a) = cast('a');
my $admin = $a->session(name => 'admin');
my ($s1, $s2) = map { $a->session(name => $_) } qw(s1 s2);
my $stats = Zklock::Stats->new($admin);

sub hold_time { my ($kind) = @_; return $admin->query("SELECT extract(epoch FROM hold_time)::float8 FROM zk_stats WHERE kind = '$kind'"); }
sub clock     { return $admin->query('SELECT extract(epoch FROM clock_timestamp())::float8'); }

# A new session waits; it is terminated, which counts.
sub end_as_it_waits
{
	my ($kind, $event, $sql) = @_;
	my $session = $a->session;
	$session->query_start($sql);
	$a->wait_event($session, $event);
	is($session->terminated, '57P01', 'a session that ends as it waits');
	my $cancels = $stats->before($kind)->{cancels} + 1;
	$a->wait_value("SELECT cancels FROM zk_stats WHERE kind = '$kind'", $cancels);
	return $stats->counted('is cancelled', $kind => { waits => 1, cancels => 1 });
}

subtest 'elements of queues' => sub {
	my @takes = map { "SELECT count(*) FROM $_('/s/q', %s) t WHERE t IS NOT NULL" } qw(zk_queue_take zk_xact_queue_take);
	my $offer = "SELECT zk_queue_offer('/s/q', 'x')";
	$stats->note;
	$s1->query($offer) foreach 1 .. 3;
	is($s1->query("SELECT zk_queue_peek('/s/q') = zk_queue_remove('/s/q')"), 't', 'what does not take');
	$stats->counted('does not count');
	is($s1->query(sprintf $_, "'0'"), 1, 'a take') foreach @takes;
	$stats->counted('is an acquisition', queue => { acquisitions => 2, waits => 2 });
	$s2->query_start(sprintf $takes[0], 'NULL');
	$a->wait_event($s2, 'element');
	$s1->query($offer);
	is($s2->finish, 1, 'one that waited');
	$stats->counted('is one, too', queue => { acquisitions => 1, waits => 1 });
	foreach my $take (@takes)
	{
		$a->wait_value("SELECT zk_queue_peek('/s/q') IS NULL", 't');
		is($s1->query(sprintf $take, "'$_'"), 0, "no element within $_") foreach '0', '1 ms';
		$stats->counted('is counted', queue => { waits => 2, busy => 1, timeouts => 1 });
		is($s1->try("SET statement_timeout = '50ms'; " . sprintf($take, 'NULL'))->{sqlstate}, '57014', 'statement_timeout');
		$s1->query('RESET statement_timeout');
		$stats->counted('cancels', queue => { waits => 1, cancels => 1 });
		end_as_it_waits('queue', 'element', sprintf $take, 'NULL');
	}
	$zk->shell->create('/s/hidden', acl => [ [ 'world', 'anyone', 'w' ] ]);
	is($s1->try("SELECT zk_queue_take('/s/hidden')")->{sqlstate}, '42501', 'a refusal');
	$stats->counted('is a failure', queue => { waits => 1, failures => 1 });

	$s1->query($offer);
	foreach my $end ('ROLLBACK', 'ROLLBACK TO s', 'COMMIT')
	{
		my $hold = hold_time('queue');
		$s1->query('COMMIT; BEGIN; SAVEPOINT s');
		is($s1->query(sprintf $takes[1], 'NULL'), 1, 'an element is held');
		my $since = clock();
		my $for   = clock() - $since;
		is(hold_time('queue'), $hold, 'which counts not yet');
		$s1->query($end);
		cmp_ok(hold_time('queue') - $hold, '>', 0.99 * $for, "but at $end");
	}
	$stats->counted('three more', queue => { acquisitions => 3, waits => 3 });
	$s1->query("$offer; BEGIN");
	$s1->query(sprintf $takes[1], 'NULL');
	my ($element) = $zk->children('/s/q');
	$zk->shell->delete("/s/q/$element/claim");
	$a->wait_value("SELECT losses FROM zk_stats WHERE kind = 'queue'", $stats->before('queue')->{losses} + 1);
	is($s1->try('COMMIT')->{sqlstate}, '40001', 'an element is lost');
	$stats->counted('which counts', queue => { acquisitions => 1, waits => 1, losses => 1 });
	$s1->query("SELECT zk_queue_remove('/s/q')");
};

subtest 'leadership' => sub {
	my $await    = "SELECT zk_await_leadership('/s/e'%s)";
	my $election = Zklock::Election->new($zk, '/s/e');
	$stats->note;
	$a->set_conf('zklock.elections' => '/s/e');
	$election->wait_state($a, 'elected');
	my $since = clock();
	is($s1->query("SELECT zk_is_leader('/s/e')"), 't', 'to lead');
	$stats->counted('is not counted');
	is($s1->query(sprintf $await, $_), 't', 'to wait for it') foreach '', ", '0'";
	$stats->counted('is', election => { acquisitions => 2, waits => 2 });
	my ($hold, $for) = (hold_time('election'), clock() - $since);
	my $foreign = $zk->shell->create('/s/e/_c_edda2515-abf2-4579-b513-df182d03af67-latch-', sequence => 1);
	is($s1->query("SELECT zk_resign('/s/e')"), 't', 'to resign');
	cmp_ok(hold_time('election') - $hold, '>', 0.99 * $for, 'ends a term');
	$stats->counted('is no loss');
	is($s1->query(sprintf $await, $_), 'f', 'another leads') foreach ", '0'", ", '1 ms'";
	is($s1->try("SET lock_timeout = '1ms'; " . sprintf($await, ''))->{sqlstate}, '55P03', 'lock_timeout');
	$s1->query('RESET lock_timeout');
	$stats->counted('which is waited for in vain', election => { waits => 3, busy => 1, timeouts => 2 });
	end_as_it_waits('election', 'lock', sprintf $await, '');
	$s1->query_start(sprintf $await, '');
	$a->wait_event($s1, 'lock');
	$zk->shell->delete($foreign);
	is($s1->finish, 't', 'and at last not');
	$stats->counted('once more', election => { acquisitions => 1, waits => 1 });
	$hold = hold_time('election');
	my ($node) = $zk->children('/s/e');
	$zk->shell->delete("/s/e/$node");
	$a->wait_value("SELECT losses FROM zk_stats WHERE kind = 'election'", $stats->before('election')->{losses} + 1);
	$stats->counted('leadership is lost', election => { losses => 1 });
	cmp_ok(hold_time('election'), '>', $hold, 'and the term ends');
	$election->wait_state($a, 'elected');
	$zk->shell->create('/s/e/_c_edda2515-abf2-4579-b513-df182d03af67-latch-', sequence => 1);
	$s1->query("SELECT zk_resign('/s/e')");
	$s1->query_start(sprintf $await, '');
	$a->wait_event($s1, 'lock');
	$a->set_conf('zklock.elections' => '');
	is($s1->result->{sqlstate}, '42704', 'the server stands no more');
	$stats->counted('which is a failure', election => { waits => 1, failures => 1 });
};

subtest 'claims' => sub {
	my $claim = "SELECT zk_claim('/s/c', now())";
	$stats->note;
	is($s1->query("BEGIN; $claim"), 't', 'a slot is claimed');
	is($s1->query($claim), 'f', 'once');
	$s1->query('COMMIT; SELECT zk_last_claim(\'/s/c\'), zk_claim_reset(\'/s/c\')');
	$stats->counted('one got it, the other not', claim => { acquisitions => 1, waits => 2, busy => 1 });
	$zk->shell->create('/s/closed', acl => [ [ 'world', 'anyone', 'r' ] ]);
	is($s1->try("SELECT zk_claim('/s/closed/c', now())")->{sqlstate}, '42501', 'a refusal');
	$stats->counted('is a failure', claim => { waits => 1, failures => 1 });
	freeze($a->worker_pid);
	is($s1->try("SET statement_timeout = '50ms'; $claim")->{sqlstate}, '57014', 'nobody answers');
	thaw($a->worker_pid);
	$s1->query('RESET statement_timeout');
	$stats->counted('it is cancelled', claim => { waits => 1, cancels => 1 });
	is($admin->query("SELECT count(*) FROM zk_stats WHERE waits <> acquisitions - reentrant + @{[ join ' + ', @Zklock::Stats::ends ]}
		OR waits <> (SELECT sum(n) FROM unnest(wait_histogram) n)"), 0, 'sums agree');
	is($admin->query("SELECT max(hold_time) FROM zk_stats WHERE kind = 'claim'"), '00:00:00', 'nobody holds a claim');
};

$_->disconnect foreach $s1, $s2, $admin;
$a->assert_clean($zk, '/s/q');
done_testing;
