# Copyright (c) 2026, zklock contributors
#
# How much one session can have of what all share: entries in shared memory, and bytes of
# paths in the ZooKeeper session's packets. And the reserve for superusers. And what one role can do with the sessions
# of others: a table's owner has them run its functions when they maintain the table. There, in PostgreSQL's
# security-restricted operations, locks cannot be had or given up.
#
# The work that a session's permits cause in the worker grows with their number, not with its square, so that
# thousands of them are no burden on others. That is measured in processor time of the worker, in ticks, and not in how
# long anything takes.

use Zklock::Test;
use Zklock::Cast qw(fails);

my ($zk, $a) = cast('a', timeout => '30s', zk => { request_log => 0 }, conf => ["log_statement = 'none'"]);
my $s  = $a->session;
my ($few, $many, $rounds) = (250, 1400, 100);

sub hold_permits($n, $more)
{
	is($s->query("SELECT count(*) FROM generate_series(1, $more) WHERE zk_semaphore_acquire('/p/many', 9999, '0')"),
		$more, "a session has $n permits");
	return;
}

# What it takes to acquire and release another one, again and again
sub work
{
	my $begun = $a->worker_ticks;
	$s->query("DO \$\$ BEGIN FOR i IN 1 .. $rounds LOOP
		PERFORM zk_semaphore_acquire('/p/many', 9999, '0'); PERFORM zk_semaphore_release('/p/many');
	END LOOP; END \$\$");
	return $a->worker_ticks - $begun;
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
	@r{qw(n sqlstate message detail hint)} = split /\|/, $session->query("SELECT * FROM fill('$prefix')");
	return \%r;
}

# A subtest with a session of mallory's; in the end no lock is left to anybody.
sub with_mallory($name, $code)
{
	return subtest $name => sub {
		$code->($a->session(user => 'mallory'));
		$s->query('SELECT zk_unlock_all()');
		$a->wait_value('SELECT count(*) FROM zk_locks', 0);
	};
}

# A thousand bytes each.
my ($long, @long) = map { "/$_/" . 'x' x 1000 . '/' } 's' .. 'x';

with_mallory 'long paths in one session leave room for others' => sub ($m) {
	my $r = fill($m, $long);
	fails($r, '53200', 'one too many',
		message => qr/: too many paths are locked in this session$/,
		detail  => qr/must not exceed 230400 bytes, its share of the 921600 .* and 132 bytes\.$/,
		hint    => qr/"zklock\.max_locks_per_session"/);
	# A quarter of all; with path, separator and the longest name each takes 1,136 bytes or more.
	cmp_ok($r->{n}, '>=', 195, "$r->{n} locks were granted");
	cmp_ok($r->{n}, '<=', 230_400 / 1136, 'not more than the share');
	ok($m->try("SELECT zk_lock('/s/short')")->{ok}, 'a shorter path still fits');
	my $other = $a->session(user => 'mallory');
	is($other->query("SELECT zk_lock('${long}other')"), 't', 'another session, even of the same role, locks');
	is($s->query("SELECT zk_lock('${long}super')"), 't', 'so does a superuser');
	$_->query('SELECT zk_unlock_all()') foreach $m, $other, $s;
	is(fill($m, $long)->{n}, $r->{n}, 'what is released can be had again');
};

with_mallory 'when many sessions have used up the rest, superusers have a reserve' => sub (@m) {
	push @m, map { $a->session(user => 'mallory') } 2 .. 5;
	my @r = map { fill($m[$_], $long[$_]) } 0 .. $#m;
	fails($r[-1], '53200', 'there is no more',
		message => qr/: too many paths are locked$/,
		detail  => qr/must not exceed 921600 bytes, of which 57600 are reserved for superusers\.$/,
		hint    => qr/^Lock fewer paths/);
	fails($m[-1]->try("SELECT zk_try_lock('${long}another')"), '53200', 'not even for one who does not wait');
	is($s->query("SELECT zk_lock('${long}super')"), 't', 'a superuser locks a long path');
	is($s->query("SELECT count(*) FROM generate_series(1, 20) i WHERE zk_lock('${long}super' || i)"), 20, 'and twenty more');
	is($s->query("SELECT zk_lock('$long[0]0', '1ms')"), 'f', 'or waits for somebody');
};

with_mallory 'a worker that takes over knows who has what' => sub ($m) {
	my $n = fill($m, $long)->{n};
	$a->restart_worker;
	$a->wait_session;
	is($m->try("SELECT zk_lock('${long}more')")->{sqlstate}, '53200', 'the share is used up as before');
	$m->query('SELECT zk_unlock_all()');
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
	is(fill($m, $long)->{n}, $n, 'and free when all is released');
};

$a->append_conf('postgresql.conf', "zklock.max_locks = 64\n");
$a->restart_connected;
$s = $a->session;

with_mallory 'a session has its share of the entries' => sub ($m) {
	my $r = fill($m, '/e/');
	is($r->{n}, 16, 'by default a quarter');
	fails($r, '53200', 'one more is refused',
		message => 'too many ZooKeeper locks in this session',
		detail  => 'It holds, waits for or is just releasing 16, as many as it may.',
		hint    => qr/"zklock\.max_locks_per_session"/);
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
		'It must be -1, for the default, or positive.', 'none at all is no share');
};

with_mallory 'and superusers have a reserve of entries' => sub (@m) {
	push @m, map { $a->session(user => 'mallory') } 2 .. 4;
	my @r = map { fill($m[$_], "/e/$_/") } 0 .. $#m;
	is_deeply([ map { $_->{n} } @r ], [ 16, 16, 16, 12 ], 'four of 64 are left');
	fails($r[-1], '53200', 'one more is refused',
		message => 'out of shared memory for zklock',
		detail  => '60 locks are held or waited for, and the remaining 4 entries are reserved for superusers.',
		hint    => qr/"zklock\.max_locks"/);
	my $r = fill($s, '/e/super/');
	is($r->{n}, 4, 'a superuser has them');
	is($r->{detail}, '64 locks are held or waited for.', 'then there is none');
};

with_mallory 'what is given up faster than ZooKeeper answers counts until it is done' => sub ($m) {
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
};

with_mallory 'an endless loop of lock and unlock finds its entries again' => sub ($m) {
	is( $m->query(q{SELECT count(*) FROM generate_series(1, 200) i WHERE zk_lock('/e/loop' || i % 3) AND zk_unlock('/e/loop' || i % 3)}),
		200, 'two hundred times, of sixteen entries');
};

$a->value("ALTER ROLE mallory SET zklock.allowed_paths = '/m/*'");
my $m = $a->session(user => 'mallory');

# What she does is in a function that is changed at will, and can only be called by others.
# She says it is immutable: else it could not be in an index. Maintenance has another search_path.
sub trap($call)
{
	$m->query(qq{CREATE OR REPLACE FUNCTION trap(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE
		SET search_path = public AS \$\$
		BEGIN
			IF session_user <> 'mallory' THEN
				PERFORM $call;
			END IF;
			RETURN i;
		END \$\$});
	return;
}
trap('1');
$m->query($_)
  foreach 'CREATE TABLE bait AS SELECT generate_series(1, 10) i',
  'CREATE INDEX bait_trap ON bait (trap(i))',
  'CREATE MATERIALIZED VIEW view AS SELECT trap(i) FROM bait',
  # Maintenance does not look at tables that have not changed.
  'INSERT INTO bait VALUES (11)';

my @maintenance = (
	'ANALYZE bait', 'VACUUM FULL bait', 'REINDEX TABLE bait', 'CLUSTER bait USING bait_trap',
	'CREATE INDEX another ON bait (trap(i + 1))', 'REFRESH MATERIALIZED VIEW view');

sub refused($sql, $call, %says)
{
	return fails($s->try($sql), '42501', "$sql: $call is refused", %says);
}

subtest 'maintenance by a superuser takes no lock for the owner of the table' => sub {
	my @nodes = $zk->children('/');
	trap(q{zk_lock('/victim', '0')});
	refused($_, 'zk_lock', message => 'cannot use ZooKeeper locks within security-restricted operation') foreach @maintenance;
	is($a->lock_count, 0, 'nobody holds a lock');
	is_deeply([ $zk->children('/') ], \@nodes, 'and no node was created');
};

subtest 'whatever function it calls' => sub {
	foreach my $call (
		(map { ("$_('/victim', '0')", "$_(ARRAY['/victim'], '0')") } qw(zk_lock zk_lock_shared zk_xact_lock zk_xact_lock_shared)),
		(map { "$_('/victim')" } qw(zk_try_lock zk_try_lock_shared zk_try_xact_lock zk_try_xact_lock_shared)),
		(map { "$_('/victim/a', '/', '0')" } qw(zk_lock_tree zk_lock_tree_shared zk_xact_lock_tree zk_xact_lock_tree_shared)),
		q{zk_semaphore_acquire('/victim', 3, '0')})
	{
		trap($call);
		refused('ANALYZE bait', $call);
	}
	is($a->lock_count, 0, 'nobody holds a lock');
};

subtest 'nor does it release any' => sub {
	$s->query("SELECT zk_lock('/held'), zk_lock_shared('/shared'), zk_lock_tree('/tree/a', '/tree'), zk_semaphore_acquire('/semaphore', 3)");
	my $held = $a->lock_count("state = 'held'");
	foreach my $call (
		"zk_unlock('/held')", "zk_unlock(ARRAY['/held'])", "zk_unlock_shared('/shared')",
		"zk_unlock_shared(ARRAY['/shared'])", "zk_unlock_tree('/tree/a', '/tree')",
		"zk_unlock_tree_shared('/tree/a', '/tree')", 'zk_unlock_all()', "zk_semaphore_release('/semaphore')",
		"zk_fencing_token('/held')")
	{
		trap($call);
		refused('ANALYZE bait', $call);
	}
	is($a->lock_count("state = 'held'"), $held, 'all are held');
	$s->query('SELECT zk_unlock_all()');
};

subtest 'nor fences any' => sub {
	trap(q{zk_fence('/victim', 9223372036854775807)});
	refused('ANALYZE bait', 'zk_fence', message => 'cannot use fencing tokens within security-restricted operation');
	is($a->value('SELECT count(*) FROM zk_fences'), '0', 'no token was remembered');
};

subtest 'autovacuum neither' => sub {
	my $mark = $a->log_mark;
	trap(q{zk_lock('/victim', '0')});
	$a->set_conf(autovacuum_naptime => '1s');
	$m->query('ALTER TABLE bait SET (autovacuum_analyze_threshold = 1, autovacuum_analyze_scale_factor = 0)');
	$m->query('INSERT INTO bait SELECT generate_series(1, 100)');
	# Before PostgreSQL 15 a session tells what it has inserted with a later statement.
	wait_until {
		$m->query('SELECT');
		$a->log_since($mark) =~ /autovacuum worker.*cannot use ZooKeeper locks within security-restricted operation/;
	} 'autovacuum to try it';
	is($a->lock_count, 0, 'nobody holds a lock');
};

subtest 'elsewhere an index can have such a function' => sub {
	$m->query(q{CREATE OR REPLACE FUNCTION trap(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE
		SET search_path = public AS $$ BEGIN PERFORM zk_xact_lock('/m/own'); RETURN i; END $$});
	ok($m->try('INSERT INTO bait VALUES (12)')->{ok}, 'who inserts calls it');
	is($m->try('ANALYZE bait')->{sqlstate}, '42501', 'who maintains the table cannot, not even its owner');
};

done_clean($zk, $a);
