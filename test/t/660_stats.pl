# Copyright (c) 2026, zklock contributors
#
# zk_stats: each event is counted once, for its kind and mode, by all sessions together;
# counts outlast sessions and workers, until they are reset.

use Zklock::Test;
use Zklock::Stats;

use constant { SESSIONS => 6, ROUNDS => 50, AGAIN => 50_000 };

my @ends   = @Zklock::Stats::ends;
my @counts = @Zklock::Stats::counts;
my ($zk, $a) = cast('a');
my $admin  = $a->session(name => 'admin');
my $stats  = Zklock::Stats->new($admin);
my ($s1, $s2) = map { $a->session(name => $_) } qw(s1 s2);

sub stats      { return $stats->now; }
sub note_stats { return $stats->note; }
sub counted    { local $Test::Builder::Level = $Test::Builder::Level + 1; return $stats->counted(@_); }

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

note_stats();

subtest 'acquisitions, and how they came about' => sub {
	$s1->query("SELECT zk_lock('/s/a')");
	counted('one that was waited for', 'lock exclusive' => { acquisitions => 1, waits => 1 });
	$s1->query("SELECT zk_lock('/s/a'), zk_xact_lock('/s/a')");
	counted('two of a lock that is held', 'lock exclusive' => { acquisitions => 2, reentrant => 2 });
	$s1->query("SELECT zk_lock_shared('/s/a')");
	counted('a shared one of it', 'lock shared' => { acquisitions => 1, reentrant => 1 });
	$s2->start_queued("SELECT zk_lock('/s/a')");
	$s1->query('SELECT zk_unlock_all()');
	is($s2->finish, 't', 'another session of the server follows');
	counted('behind the same node', 'lock exclusive' => { acquisitions => 1, waits => 1, handed_over => 1 });
	$s2->query("SELECT zk_unlock('/s/a')");
	$s1->query("SELECT zk_lock(ARRAY['/s/a', '/s/b', '/s/c'])");
	counted('an array', 'lock exclusive' => { acquisitions => 3, waits => 3 });
	$s1->query('SELECT zk_unlock_all()');
	$s1->query("SELECT zk_lock_tree('/s/t/b', '/s')");
	counted('a tree', 'lock exclusive' => { acquisitions => 1, waits => 1 }, 'lock shared' => { acquisitions => 1, waits => 1 });
	$s1->query('SELECT zk_unlock_all()');
	$s1->query("SELECT zk_semaphore_acquire('/s/slots', 2) FROM generate_series(1, 2)");
	counted('two permits', semaphore => { acquisitions => 2, waits => 2 });
};

subtest 'calls that get nothing' => sub {
	$s1->query("SELECT zk_lock('/s/a')");
	note_stats();
	is($s2->query("SELECT zk_try_lock('/s/a')"), 'f', 'a call that does not wait');
	counted('found it taken', 'lock exclusive' => { waits => 1, busy => 1 });
	is($s2->query("SELECT zk_lock_shared('/s/a', '1 ms')"), 'f', 'a timeout');
	is($s2->try("SET lock_timeout = '1ms'; SELECT zk_lock_shared('/s/a')")->{sqlstate}, '55P03', "and PostgreSQL's");
	$s2->query('RESET lock_timeout');
	counted('are timeouts', 'lock shared' => { waits => 2, timeouts => 2 });
	is($s2->query("SELECT zk_semaphore_acquire('/s/slots', 2, '1 ms')"), 'f', 'no permit in time');
	is($s2->query("SELECT zk_semaphore_acquire('/s/slots', 2, '0')"), 'f', 'none at once');
	counted('of a semaphore', semaphore => { waits => 2, timeouts => 1, busy => 1 });
	$s2->start_queued("SELECT zk_lock('/s/a')");
	is($s2->cancelled, '57014', 'a cancelled call');
	is($s2->try("SET statement_timeout = '50ms'; SELECT zk_lock('/s/a')")->{sqlstate}, '57014', 'statement_timeout');
	$s2->query('RESET statement_timeout');
	my $s3 = $a->session(name => 's3');
	$s3->start_queued("SELECT zk_lock('/s/a')");
	is($s3->terminated, '57P01', 'a session that ends as it waits');
	wait_until { my %now = stats(); $now{'lock exclusive'}{cancels} == $stats->before('lock exclusive')->{cancels} + 3 } 'its exit counts';
	counted('are cancelled', 'lock exclusive' => { waits => 3, cancels => 3 });
	$zk->shell->create('/s/closed', acl => [ [ 'world', 'anyone', 'r' ] ]);
	is($s2->try("SELECT zk_lock('/s/closed')")->{sqlstate}, '42501', 'a refusal');
	counted('is a failure', 'lock exclusive' => { waits => 1, failures => 1 });
	is($s2->try("SELECT zk_lock('no path')")->{sqlstate}, '22023', 'what is refused at once');
	counted('was never waited for');
};

subtest 'losses' => sub {
	my ($node) = $zk->children('/s/a');
	$zk->shell->delete("/s/a/$node");
	$a->wait_lock($s1, 'lost', '/s/a');
	counted('a lock', 'lock exclusive' => { losses => 1 });
	$a->expire_session($zk);
	$a->wait_lock($s1, 'lost', '/s/slots');
	wait_until { my %now = stats(); $now{semaphore}{losses} == $stats->before('semaphore')->{losses} + 2 } 'both to be lost';
	counted('two permits', semaphore => { losses => 2 });
	$s1->query('SELECT zk_unlock_all()');
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

subtest 'times' => sub {
	$s1->query("SELECT zk_lock('/s/a')");
	my $waits = "SELECT extract(epoch FROM wait_time)::float8 FROM zk_stats WHERE kind = 'lock' AND mode = 'exclusive'";
	my $wait_before = $admin->query($waits);
	$s2->start_waiting("SELECT zk_lock('/s/a')");
	my $start = $admin->query('SELECT extract(epoch FROM clock_timestamp())');
	my $end   = $admin->query('SELECT extract(epoch FROM clock_timestamp())');
	$s1->query("SELECT zk_unlock('/s/a')");
	$s2->finish;
	cmp_ok($admin->query($waits) - $wait_before, '>', 0.99 * ($end - $start), 'a wait counts for as long as it was');
	my $hold = "SELECT extract(epoch FROM hold_time)::float8 FROM zk_stats WHERE kind = 'lock' AND mode = 'exclusive'";
	my $hold_before = $admin->query($hold);
	$s2->query("SELECT zk_unlock('/s/a')");
	cmp_ok($admin->query($hold), '>', $hold_before, 'the time for which it was held counts at its release');
	is($admin->query("SELECT bool_and(cardinality(wait_histogram) = cardinality(wait_bounds)) FROM zk_stats"), 't',
		'each bucket has a bound');
	is($admin->query("SELECT bool_and(wait_bounds[cardinality(wait_bounds)] = 'Infinity') FROM zk_stats"), 't', 'the last has none');
};

subtest 'nothing is lost, or counted twice, by many sessions at once' => sub {
	my @sessions = map { $a->session } 1 .. SESSIONS;
	note_stats();
	$_->query_start('DO $$ BEGIN FOR i IN 1 .. ' . ROUNDS . q{ LOOP
		PERFORM zk_lock('/s/busy'), zk_lock('/s/busy'), zk_unlock('/s/busy'), zk_unlock('/s/busy');
		PERFORM zk_lock_shared('/s/shared'), zk_unlock_shared('/s/shared');
		END LOOP;
		PERFORM zk_lock_shared('/s/shared') FROM generate_series(0, } . AGAIN . q{);
		PERFORM zk_unlock_all(); END $$}) foreach @sessions;
	my $disagreeing = $admin->query('SELECT disagreeing(300)');
	$_->finish foreach @sessions;
	is($disagreeing, 0, 'sums agree whenever they are read');
	my %now  = stats();
	my $all  = SESSIONS * ROUNDS;
	my %more = map { my $kind = $_; ($kind => { map { $_ => $now{$kind}{$_} - $stats->before($kind)->{$_} } @counts }) } keys %now;
	is_deeply([ @{ $more{'lock exclusive'} }{qw(acquisitions reentrant waits)} ], [ 2 * $all, $all, $all ], 'exclusive locks');
	my ($first, $again) = ($all + SESSIONS, SESSIONS * AGAIN);
	is_deeply([ @{ $more{'lock shared'} }{qw(acquisitions reentrant waits)} ], [ $first + $again, $again, $first ], 'shared locks');
	is($more{$_->[0]}{ $_->[1] }, 0, "$_->[0]: $_->[1]") foreach map { my $kind = $_; map { [ $kind, $_ ] } @ends, 'losses' } keys %more;
	$_->disconnect foreach @sessions;
};

subtest 'a reset' => sub {
	my $reset = $admin->query('SELECT stats_reset FROM zk_stats LIMIT 1');
	$s1->query("SELECT zk_lock('/s/a')");
	$admin->query('SELECT zk_stats_reset()');
	my %now = stats();
	is_deeply([ grep { $_ != 0 } map { values %$_ } values %now ], [], 'lets all begin at 0');
	is($admin->query("SELECT bool_and(stats_reset > '$reset') FROM zk_stats"), 't', 'from then on');
	$s1->query("SELECT zk_lock('/s/a')");
	note_stats();
	is($stats->before('lock exclusive')->{acquisitions}, 1, 'what comes after counts');
	is($admin->query('SELECT disagreeing(1)'), 0, 'and agrees');
	$s1->query('SELECT zk_unlock_all()');
};

subtest 'privileges are those of statistics in PostgreSQL' => sub {
	$admin->query('CREATE ROLE plain LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
	my %session = map { $_ => $a->session(user => $_) } qw(plain watcher);
	foreach my $role (qw(plain watcher))
	{
		is($session{$role}->query("SELECT count(*) FROM zk_stats WHERE stats_reset IS NOT NULL") > 0, 1, "$role reads zk_stats");
		is($session{$role}->try('SELECT zk_stats_reset()')->{sqlstate}, '42501', "$role must not reset");
	}
	$admin->query('GRANT EXECUTE ON FUNCTION zk_stats_reset() TO plain');
	my $refused = $session{plain}->try('SELECT zk_stats_reset()');
	is($refused->{sqlstate}, '42501', 'whatever is granted');
	like($refused->{detail}, qr/privileges of the "pg_monitor" role/, 'which tells to whom it can be');
	$admin->query('GRANT EXECUTE ON FUNCTION zk_stats_reset() TO watcher');
	is($session{watcher}->try('SELECT zk_stats_reset()')->{sqlstate}, '00000', 'such a role may');
	$_->disconnect foreach values %session;
};

$_->disconnect foreach $s1, $s2, $admin;
$a->assert_clean($zk, '/s/a', '/s/busy', '/s/shared', '/s/slots/leases', '/s/slots/locks');
done_testing;
