# Copyright (c) 2026, zklock contributors
#
# zklock.commit_guard: a lock keeps the guard it was taken under. 456_who_sets.pl has who may set it.

use Zklock::Test;
use Zklock::Cast qw(fails);

my ($zk, $proxy, $a) = cast('a', proxied => 'a');
my $s     = $a->session;

$a->value("CREATE ROLE $_ LOGIN") foreach qw(app mallory lax);
$a->value("GRANT CREATE ON SCHEMA public TO app, mallory");
$a->value('GRANT EXECUTE ON FUNCTION zk_lock(text, interval), zk_xact_lock(text, interval), zk_unlock(text) TO app, mallory, lax');
$a->value("ALTER ROLE lax SET zklock.commit_guard = 'off'");
$a->value('CREATE TABLE account (balance int)');
$a->value('GRANT SELECT, INSERT ON account TO app, mallory, lax');

my $app = $a->session(user => 'app');
$app->query(q{CREATE FUNCTION pay(path text, level text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
	SET search_path = public, pg_temp AS $$
	BEGIN
		IF level = 'session' THEN
			PERFORM zk_lock(path);
		ELSE
			PERFORM zk_xact_lock(path);
		END IF;
		INSERT INTO account VALUES (1);
		RETURN true;
	END $$});
# The same, with a guard of its own while it takes the lock.
$a->value('GRANT SET ON PARAMETER zklock.commit_guard TO app');
$app->query(q{CREATE FUNCTION pay_guarded(path text, level text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET search_path = public, pg_temp SET zklock.commit_guard = lease AS 'SELECT pay(path, level)'});

subtest 'superusers, and who has the privilege, may do what they like' => sub {
	$s->query('SET zklock.commit_guard = off');
	$s->query('SET ROLE mallory');
	is($s->query('SHOW zklock.commit_guard'), 'off', 'what a superuser has set stays');
	fails($s->try('SET zklock.commit_guard = off'), '42501', 'another role cannot set it again');
	$s->query('RESET ROLE; RESET zklock.commit_guard');
	$a->value(q{CREATE FUNCTION relax() RETURNS text LANGUAGE sql SECURITY DEFINER
		AS $$ SELECT set_config('zklock.commit_guard', 'off', false) $$});
	my $m = $a->session(user => 'mallory');
	is($m->query('SELECT relax()'), 'off', 'a superuser can lend it, in a SECURITY DEFINER function');
	$m->disconnect;
	ok($app->try('SET zklock.commit_guard = off; RESET zklock.commit_guard')->{ok}, 'or grant it');
};

subtest 'parallel workers take over what the leader has' => sub {
	$a->value('CREATE TABLE many AS SELECT generate_series(1, 20000) i');
	$a->value('GRANT SELECT ON many TO mallory');
	my $m = $a->session(user => 'mallory');
	$m->query('SELECT relax()');
	$m->query("SET $_") foreach 'parallel_setup_cost = 0', 'parallel_tuple_cost = 0',
	  'min_parallel_table_scan_size = 0', 'max_parallel_workers_per_gather = 2';
	like($m->query('EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT count(*) FROM many'),
		qr/Workers Launched: [12]/, 'a laxer value as well');
};

# A transaction is begun, its lock is lost, and it goes on; whether it commits
my $lax = $a->session(user => 'lax');
my ($set, $local) = map { "$_ zklock.commit_guard =" } 'SET', 'SET LOCAL';
my ($xact, $session) = map { "SELECT pay('/cg/path', '$_')" } qw(transaction session);
my ($guarded_xact, $guarded_session) = map { s/ pay/ pay_guarded/r } $xact, $session;
my @losses = (
	[ 'set off after the lock was taken, it counts as before',  "BEGIN; $xact; $set off" ],
	[ 'at session level as well',                               "BEGIN; $session; $set off" ],
	[ 'a lock that was taken under "off" is not asked for',     "$set off; BEGIN; $xact", '', 'commits' ],
	[ 'unless the setting is stricter by then',                 "$set off; BEGIN; $xact", "$set lease" ],
	[ 'of several acquisitions the strictest counts',           "$set off; BEGIN; $xact; $local lease; $xact; $local off; $xact" ],
	[ 'so does the guard of a lock that is released meanwhile', "BEGIN; $session", "$set off; SELECT zk_unlock('/cg/path')" ],
	[ 'a function protects itself with a setting of its own',   "BEGIN; $guarded_xact" ],
	[ 'at session level, too',                                  "BEGIN; $guarded_session" ],
	[ 'who has only read relies on no lock of the session',     "BEGIN; SELECT zk_lock('/cg/path')", '', 'commits' ]);

subtest 'a lock keeps the guard that it was taken under' => sub {
	foreach my $case (@losses)
	{
		my ($name, $before, $after, $commits) = @$case;
		my $session = $before =~ /guarded/ ? $lax : $s;
		$session->query($before);
		is($session->query('SHOW zklock.commit_guard'), 'off', 'the caller has none') if $session == $lax;
		$a->lose($zk, $session, '/cg/path');
		$session->try($after) if $after;
		is($session->try('COMMIT')->{sqlstate}, $commits ? '00000' : '40001', $name);
		is($session->query("BEGIN; SELECT zk_try_xact_lock('/cg/path')"), 't', 'the transaction can be repeated')
		  if $before eq "BEGIN; $xact; $set off";
		$session->query('ROLLBACK');
		$session->query('DISCARD ALL');
	}
};

subtest 'with "quorum" taken over from the lock, the node is looked at' => sub {
	$s->query("BEGIN; $local quorum; SELECT pay('/cg/quorum', 'transaction'); $local lease; SELECT pay('/cg/lease', 'transaction')");
	ok($s->try('COMMIT')->{ok}, 'the transaction commits');
	my %checks = map {
		my $path = "/cg/$_";
		$_ => scalar grep { $_->[0] eq 'multi' && $_->[1] =~ /^\Q$path\E\// } @{ $proxy->requests };
	} qw(quorum lease);
	is_deeply(\%checks, { quorum => 1, lease => 0 }, 'only that of the lock that was taken under "quorum"');
};

done_clean($zk, $a);
