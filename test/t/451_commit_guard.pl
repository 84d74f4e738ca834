# Copyright (c) 2026, zklock contributors
#
# zklock.commit_guard: who may set it, and that a lock keeps the guard it was taken under.

use Zklock::Test;

my ($zk, $proxy, $a) = cast('a', proxied => 'a');
my $s     = $a->session;

$a->value("CREATE ROLE $_ LOGIN") foreach qw(app mallory strict lax);
$a->value("GRANT CREATE ON SCHEMA public TO app, mallory");
$a->value('GRANT EXECUTE ON FUNCTION zk_lock(text, interval), zk_xact_lock(text, interval), zk_unlock(text) TO app, mallory, strict, lax');
$a->value("ALTER ROLE strict SET zklock.commit_guard = 'quorum'");
$a->value("ALTER ROLE lax SET zklock.commit_guard = 'off'");
$a->value('CREATE TABLE account (balance int)');
$a->value('GRANT SELECT, INSERT ON account TO app, mallory, lax, strict');

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

sub denied($session, $sql, $name)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = $session->try($sql);
	is($result->{sqlstate}, '42501', "$name: refused") or diag explain $result;
	return $result;
}

subtest 'an ordinary user cannot set it, by any means' => sub {
	my $m = $a->session(user => 'mallory');
	is(denied($m, 'SET zklock.commit_guard = off', 'SET')->{message}, 'permission denied to set parameter "zklock.commit_guard"',
		'message');
	denied($m, "SELECT set_config('zklock.commit_guard', 'off', false)", 'set_config');
	denied($m, "UPDATE pg_settings SET setting = 'off' WHERE name = 'zklock.commit_guard'", 'pg_settings');
	denied($m, 'ALTER ROLE mallory SET zklock.commit_guard = off', 'ALTER ROLE');
	denied($m, q{CREATE FUNCTION f() RETURNS int LANGUAGE sql SET zklock.commit_guard = off AS 'SELECT 1'},
		'the definition of a function');
	is($m->query('SHOW zklock.commit_guard'), 'lease', 'it stays as it was');
	$m->disconnect;
	local $ENV{PGOPTIONS} = '-c zklock.commit_guard=off';
	my ($code, $out, $err) = $a->psql('postgres', 'SHOW zklock.commit_guard', extra_params => [ '-U', 'mallory' ], on_error_die => 0);
	like($err, qr/permission denied to set parameter "zklock\.commit_guard"/, 'connection options');
};

subtest 'what the administrator gave a role it has' => sub {
	foreach my $case ([ strict => 'quorum' ], [ lax => 'off' ])
	{
		my ($user, $guard) = @$case;
		my $m = $a->session(user => $user);
		is($m->query('SHOW zklock.commit_guard'), $guard, "$user: $guard");
		denied($m, $_, $_)
		  foreach 'SET zklock.commit_guard = lease', "ALTER ROLE $user SET zklock.commit_guard = lease",
		  "ALTER ROLE $user RESET zklock.commit_guard";
		$m->query('DISCARD ALL');
		is($m->query('SHOW zklock.commit_guard'), $guard, 'DISCARD ALL brings it back');
		$m->disconnect;
	}
};

subtest 'superusers, and who has the privilege, may do what they like' => sub {
	$s->query('SET zklock.commit_guard = off');
	$s->query('SET ROLE mallory');
	is($s->query('SHOW zklock.commit_guard'), 'off', 'what a superuser has set stays');
	denied($s, 'SET zklock.commit_guard = off', 'another role cannot set it again');
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
	$m->disconnect;
};

subtest 'a lock keeps the guard that it was taken under' => sub {
	foreach my $level (qw(transaction session))
	{
		my $path = "/cg/$level";
		$s->query('BEGIN');
		$s->query("SELECT pay('$path', '$level')");
		$s->query('SET zklock.commit_guard = off');
		$a->lose($zk, $s, $path);
		is($s->try('COMMIT')->{sqlstate}, '40001', "$level level: setting it off afterwards changes nothing");
		$s->query('DISCARD ALL');
	}
	$s->query('SET zklock.commit_guard = off');
	$s->query('BEGIN');
	$s->query("SELECT pay('/cg/off', 'transaction')");
	$a->lose($zk, $s, '/cg/off');
	ok($s->try('COMMIT')->{ok}, 'one that was taken under "off" is not asked for');
	$s->query('BEGIN');
	$s->query("SELECT pay('/cg/later', 'transaction')");
	$a->lose($zk, $s, '/cg/later');
	$s->query('SET zklock.commit_guard = lease');
	is($s->try('COMMIT')->{sqlstate}, '40001', 'unless the setting is stricter by then');
	$s->query('SET zklock.commit_guard = off');
	$s->query('BEGIN');
	$s->query("SELECT pay('/cg/twice', 'transaction')");
	$s->query('SET LOCAL zklock.commit_guard = lease');
	$s->query("SELECT pay('/cg/twice', 'transaction')");
	$s->query('SET LOCAL zklock.commit_guard = off');
	$s->query("SELECT pay('/cg/twice', 'transaction')");
	$a->lose($zk, $s, '/cg/twice');
	is($s->try('COMMIT')->{sqlstate}, '40001', 'of several acquisitions the strictest counts');
	$s->query('RESET zklock.commit_guard');
};

subtest 'a function protects itself with a setting of its own' => sub {
	my $m = $a->session(user => 'lax');
	foreach my $level (qw(transaction session))
	{
		$m->query('BEGIN');
		$m->query("SELECT pay_guarded('/cg/function', '$level')");
		is($m->query('SHOW zklock.commit_guard'), 'off', 'its caller has none');
		$a->lose($zk, $m, '/cg/function');
		is($m->try('COMMIT')->{sqlstate}, '40001', "$level level: the commit is refused nevertheless");
		$m->query('DISCARD ALL');
	}
	$m->disconnect;
};

subtest 'a lock released while it cannot be told to be held, likewise' => sub {
	$s->query('BEGIN');
	$s->query("SELECT pay('/cg/released', 'session')");
	$a->lose($zk, $s, '/cg/released');
	$s->query('SET zklock.commit_guard = off');
	$s->try("SELECT zk_unlock('/cg/released')");
	is($s->try('COMMIT')->{sqlstate}, '40001', 'the guard is that of the lock');
	$s->query('RESET zklock.commit_guard');
};

subtest 'with "quorum" taken over from the lock, the node is looked at' => sub {
	$s->query('BEGIN');
	$s->query('SET LOCAL zklock.commit_guard = quorum');
	$s->query("SELECT pay('/cg/quorum', 'transaction')");
	$s->query('SET LOCAL zklock.commit_guard = lease');
	$s->query("SELECT pay('/cg/lease', 'transaction')");
	ok($s->try('COMMIT')->{ok}, 'the transaction commits');
	my %checks = map {
		my $path = "/cg/$_";
		$_ => scalar grep { $_->[0] eq 'multi' && $_->[1] =~ /^\Q$path\E\// } @{ $proxy->requests };
	} qw(quorum lease);
	is_deeply(\%checks, { quorum => 1, lease => 0 }, 'only that of the lock that was taken under "quorum"');
};

$_->disconnect foreach $app, $s;
Zklock::Server->assert_clean($zk, [$a], map { "/cg/$_" } qw(transaction session off later twice function released quorum lease));
done_testing;
