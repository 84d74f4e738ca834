# Copyright (c) 2026, zklock contributors
#
# How much one session can have of what all share: entries in shared memory, and bytes of
# paths in the ZooKeeper session's packets. And the reserve for superusers.
#
# The work that a session's permits cause in the worker grows with their number, not with its square, so that
# thousands of them are no burden on others. That is measured in processor time of the worker, in ticks, and not in how
# long anything takes.

use Zklock::Test;
use PostgreSQL::Test::Utils;

my ($zk, $a) = cast('a', timeout => '30s', zk => { request_log => 0 }, conf => ["log_statement = 'none'"]);
my $s  = $a->session;
my ($few, $many, $rounds) = (250, 1400, 100);

sub ticks
{
	my @fields = split / /, slurp_file('/proc/' . $a->worker_pid . '/stat') =~ s/.*\) //sr;
	return $fields[11] + $fields[12];
}

sub hold_permits($n, $more)
{
	is($s->query("SELECT count(*) FROM generate_series(1, $more) WHERE zk_semaphore_acquire('/p/many', 9999, '0')"),
		$more, "a session has $n permits");
	return;
}

# What it takes to acquire and release another one, again and again
sub work
{
	my $begun = ticks();
	$s->query("DO \$\$ BEGIN FOR i IN 1 .. $rounds LOOP
		PERFORM zk_semaphore_acquire('/p/many', 9999, '0'); PERFORM zk_semaphore_release('/p/many');
	END LOOP; END \$\$");
	return ticks() - $begun;
}

subtest 'many permits' => sub {
	my $other = $a->session;
	hold_permits($few, $few);
	my $work = work();
	hold_permits($many, $many - $few);
	my $more = work();
	note("$work ticks with $few permits, $more with $many");
	cmp_ok($more, '<=', ($work + 1) * $many / $few, 'the work grows with their number, and no faster');
	is($other->query("SELECT zk_lock('/p/other') AND zk_unlock('/p/other')"), 't', 'others are served');
	is($other->query("SELECT zk_semaphore_acquire('/p/many', 1, '0')"), 'f', 'the permits are held');
	$other->disconnect;
	$s->disconnect;
	$s = $a->session;
	$a->assert_clean($zk, '/p/many/leases', '/p/other');
};

# No superuser's function: the reserve is not for its callers.
$a->value('CREATE ROLE mallory LOGIN');
$a->value('GRANT CREATE ON SCHEMA public TO mallory');
$a->value('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory');

# Locks new paths until there is an error, and tells how many those were, and the error.
my $fill = q{
	CREATE OR REPLACE FUNCTION fill(prefix text, OUT n int, OUT state text, OUT message text, OUT detail text, OUT hint text)
	LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 0 .. 20000 LOOP
			n = i;
			PERFORM zk_lock(prefix || i);
		END LOOP;
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
			detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	END $$};
$a->value($fill);

# Session-level locks survive the error that ends fill().
sub fill($session, $prefix)
{
	my %r;
	@r{qw(n state message detail hint)} = split /\|/, $session->query("SELECT * FROM fill('$prefix')");
	return \%r;
}

sub refused_with($r, $message, $hint)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($r->{state}, '53200', 'SQLSTATE') or diag explain $r;
	like($r->{message}, $message, 'message');
	like($r->{hint}, $hint, 'the hint names what can be done');
	return;
}

# A thousand bytes each.
my ($long, @long) = map { "/$_/" . 'x' x 1000 . '/' } 's' .. 'x';

subtest 'long paths in one session leave room for others' => sub {
	my $m = $a->session(user => 'mallory');
	my $r = fill($m, $long);
	refused_with($r, qr/: too many paths are locked in this session$/, qr/"zklock\.max_locks_per_session"/);
	like($r->{detail}, qr/must not exceed 230400 bytes, its share of the 921600 .* and 132 bytes\.$/, 'the detail has the numbers');
	# A quarter of all; with path, separator and the longest name each takes 1,136 bytes or more.
	cmp_ok($r->{n}, '>=', 195, "$r->{n} locks were granted");
	cmp_ok($r->{n}, '<=', 230_400 / 1136, 'not more than the share');
	ok($m->try("SELECT zk_lock('/s/short')")->{ok}, 'a shorter path still fits');
	my $other = $a->session(user => 'mallory');
	is($other->query("SELECT zk_lock('${long}other')"), 't', 'another session, even of the same role, locks');
	is($s->query("SELECT zk_lock('${long}super')"), 't', 'so does a superuser');
	$_->query('SELECT zk_unlock_all()') foreach $m, $other, $s;
	is(fill($m, $long)->{n}, $r->{n}, 'what is released can be had again');
	$_->disconnect foreach $m, $other;
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
};

subtest 'when many sessions have used up the rest, superusers have a reserve' => sub {
	my @m = map { $a->session(user => 'mallory') } 1 .. 5;
	my @r = map { fill($m[$_], $long[$_]) } 0 .. $#m;
	refused_with($r[-1], qr/: too many paths are locked$/, qr/^Lock fewer paths/);
	like($r[-1]{detail}, qr/must not exceed 921600 bytes, of which 57600 are reserved for superusers\.$/, 'detail');
	my $r = $m[-1]->try("SELECT zk_try_lock('${long}another')");
	is($r->{sqlstate}, '53200', 'not even one who does not wait') or diag explain $r;
	is($s->query("SELECT zk_lock('${long}super')"), 't', 'a superuser locks a long path');
	is($s->query("SELECT count(*) FROM generate_series(1, 20) i WHERE zk_lock('${long}super' || i)"), 20, 'and twenty more');
	is($s->query("SELECT zk_lock('$long[0]0', '1ms')"), 'f', 'or waits for somebody');
	$_->disconnect foreach @m;
	$s->query('SELECT zk_unlock_all()');
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
};

subtest 'a worker that takes over knows who has what' => sub {
	my $m = $a->session(user => 'mallory');
	my $n = fill($m, $long)->{n};
	my $pid = $a->worker_pid;
	kill 'TERM', $pid;
	wait_until { ($a->worker_pid || $pid) != $pid } 'a new worker';
	$a->wait_session;
	is($m->try("SELECT zk_lock('${long}more')")->{sqlstate}, '53200', 'the share is used up as before');
	$m->query('SELECT zk_unlock_all()');
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
	is(fill($m, $long)->{n}, $n, 'and free when all is released');
	$m->disconnect;
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
};

$a->append_conf('postgresql.conf', "zklock.max_locks = 64\n");
$a->restart_connected;
$s = $a->session;

subtest 'a session has its share of the entries' => sub {
	my $m = $a->session(user => 'mallory');
	my $r = fill($m, '/e/');
	is($r->{n}, 16, 'by default a quarter');
	refused_with($r, qr/^too many ZooKeeper locks in this session$/, qr/"zklock\.max_locks_per_session"/);
	is($r->{detail}, 'It holds, waits for or is just releasing 16, as many as it may.', 'detail');
	is($m->query("SELECT zk_lock('/e/0')"), 't', 'what is held can be locked again');
	is($m->query("SELECT zk_lock_shared('/e/0')"), 't', 'and shared as well');
	is($m->try("SELECT zk_semaphore_acquire('/e/s', 3)")->{sqlstate}, '53200', 'a permit counts');
	$m->query("SELECT zk_unlock('/e/1')");
	is($m->query("SELECT zk_lock('/e/new')"), 't', 'what is released makes room');
	is($m->try("SELECT zk_lock('/e/none')")->{sqlstate}, '53200', 'for one');
	is($m->try('SET zklock.max_locks_per_session = 64')->{sqlstate}, '42501', 'an ordinary user cannot have more');
	$m->disconnect;
	$a->value('ALTER ROLE mallory SET zklock.max_locks_per_session = 20');
	$m = $a->session(user => 'mallory');
	is(fill($m, '/e/')->{n}, 20, 'unless it is given more');
	$m->disconnect;
	$a->value('ALTER ROLE mallory RESET zklock.max_locks_per_session');
	$s->query('SET zklock.max_locks_per_session = 3');
	is(fill($s, '/e/')->{n}, 3, 'the setting is for superusers as well');
	$s->query('SELECT zk_unlock_all()');
	$s->query('SET zklock.max_locks_per_session = 1000');
	is(fill($s, '/e/')->{n}, 64, 'who can have all, if they say so');
	$s->query('SELECT zk_unlock_all(); RESET zklock.max_locks_per_session');
	is($s->try("SET zklock.max_locks_per_session = 0")->{detail},
		'It must be -1, for a quarter of "zklock.max_locks", or positive.', 'none at all is no share');
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
};

subtest 'and superusers have a reserve of entries' => sub {
	my @m = map { $a->session(user => 'mallory') } 1 .. 4;
	my @r = map { fill($m[$_], "/e/$_/") } 0 .. $#m;
	is_deeply([ map { $_->{n} } @r ], [ 16, 16, 16, 12 ], 'four of 64 are left');
	refused_with($r[-1], qr/^out of shared memory for zklock$/, qr/"zklock\.max_locks"/);
	is($r[-1]{detail}, '60 locks are held or waited for, and the remaining 4 entries are reserved for superusers.', 'detail');
	my $r = fill($s, '/e/super/');
	is($r->{n}, 4, 'a superuser has them');
	is($r->{detail}, '64 locks are held or waited for.', 'then there is none');
	$_->disconnect foreach @m;
	$s->query('SELECT zk_unlock_all()');
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
};

subtest 'what is given up faster than ZooKeeper answers counts until it is done' => sub {
	my $m = $a->session(user => 'mallory');
	$zk->pause;
	my $r;
	# There is no answer to any of these, and each has a node that may exist, unless it was given up
	# before the worker took it up.
	for my $i (1 .. 1000)
	{
		$m->query("SET lock_timeout = '1ms'");
		$r = $m->try("SELECT zk_lock('/e/fast/$i')");
		last if $r->{sqlstate} ne '55P03';
	}
	is($r->{sqlstate}, '53200', 'a session that asks and gives up reaches its limit');
	cmp_ok($a->lock_count, '<=', 16, 'and leaves the others their entries');
	$zk->resume;
	$a->wait_session;
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
	$m->query('RESET lock_timeout');
	is(fill($m, '/e/fast/')->{n}, 16, 'when they are gone it has its share again');
	$m->disconnect;
};

subtest 'an endless loop of lock and unlock finds its entries again' => sub {
	my $m = $a->session(user => 'mallory');
	is( $m->query(q{SELECT count(*) FROM generate_series(1, 200) i WHERE zk_lock('/e/loop' || i % 3) AND zk_unlock('/e/loop' || i % 3)}),
		200, 'two hundred times, of sixteen entries');
	$m->disconnect;
};
$s->disconnect;
$a->wait_value('SELECT count(*) FROM zk_locks', 0);
Zklock::Server->assert_clean($zk, [$a], "${long}other", "${long}super", map { ("$long$_", "/e/fast/$_", "/e/super/$_") } 0 .. 20);
done_testing;
