# Copyright (c) 2026, zklock contributors
#
# Every function: it answers, or refuses nulls, in any schema, and has a C function of its own. Without shared_preload_libraries the
# extension can be created, but each reports what is missing, however the library was loaded into the
# session; zk_fence() alone works there too, since a server may have the data and take no locks, and
# zklock.allowed_paths applies as elsewhere. So it is with zklock_advisory.

use Zklock::Test;
use Zklock::Cast qw(fails);

my ($zk, $preloaded) = cast('preloaded');
my $server = Zklock::Server->new('plain', preload => 0, extension => 0);
my $admin  = $server->session;
my $created = $admin->try('CREATE EXTENSION zklock');
ok($created->{ok}, 'CREATE EXTENSION works');
like($created->{notices}[0], qr/WARNING.*zklock cannot lock anything yet.*shared_preload_libraries/s, 'with a warning');

# Statements that call each function but those of triggers, with nulls for arguments. None may end the session.
sub calls($session)
{
	return split /\n/, $session->query(q{
		SELECT format('SELECT * FROM %s(%s)', p.oid::regproc,
			(SELECT string_agg(format('NULL::%s', format_type(type, NULL)), ', ' ORDER BY n)
			FROM unnest(proargtypes::oid[]) WITH ORDINALITY a (type, n)))
		FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
		WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
			AND prorettype <> 'trigger'::regtype
		ORDER BY p.oid::regprocedure::text});
}

# All but that of zk_fences, which needs no preload. None may look at its arguments before.
my @calls = grep { !/zk_fence\(/ } calls($admin);
cmp_ok(scalar @calls, '>=', 44, 'the functions are found');
push @calls, 'SELECT * FROM zk_locks', 'SELECT * FROM zk_session';

sub refuses($session, $sql, $name)
{
	return fails($session->try($sql), '55000', $name,
		message => 'zklock must be loaded via "shared_preload_libraries"',
		hint    => 'Add "zklock" to "shared_preload_libraries" and restart the server.');
}

subtest 'without preload every function says what to do' => sub {
	refuses($admin, $_, $_) foreach @calls;
	refuses($admin, q{SELECT zk_lock('/t/lock')}, 'with good arguments as well');
	refuses($admin, q{SELECT zk_lock(ARRAY['/t/lock'], '0')}, 'an array, too');
};

subtest 'nor does an advisory lock pass for one' => sub {
	my $advisory = $server->session;
	$advisory->query('CREATE EXTENSION zklock_advisory');
	my @functions = split /\n/, $advisory->query(q{SELECT format('%I.%I(%s)', pronamespace::regnamespace, proname,
		array_to_string(array_fill(1, ARRAY[pronargs::int]), ', ')) FROM pg_proc WHERE pronamespace = 'zk_advisory'::regnamespace});
	cmp_ok(scalar @functions, '>=', 21, 'the functions are found');
	refuses($advisory, "SELECT $_", $_) foreach @functions;
	refuses($advisory, 'SELECT * FROM zk_advisory.pg_locks', 'its view');
	$advisory->query('DROP EXTENSION zklock_advisory');
};

is($admin->query(q{SELECT string_agg(prosrc, ' ') FROM (SELECT prosrc FROM pg_proc WHERE probin LIKE '%/zklock'
	GROUP BY prosrc, pronargs HAVING count(*) > 1) shared}), '', 'signatures of a C function differ in the number of arguments, so none is looked up');

# Only a session that has the library knows that the setting is a list.
$admin->query($_) foreach
  'CREATE ROLE writer LOGIN', 'CREATE ROLE limited LOGIN',
  "ALTER ROLE limited SET zklock.allowed_paths = '/mine/*', '/our'",
  'GRANT EXECUTE ON FUNCTION zk_fence(text, bigint) TO writer, limited';

sub fence($path, $token) { return "SELECT zk_fence('$path', $token)"; }

# In a session of its own each: what counts is also what happens when the library is loaded.
sub state_of($user, @sql)
{
	my $session = $server->session(user => $user);
	my @states = map { $session->try($_)->{sqlstate} } @sql;
	return "@states";
}

subtest 'zk_fence() refuses stale tokens there' => sub {
	is(state_of('writer', fence('/f/a', 5), fence('/f/a', 5), fence('/f/a', 4), fence('/f/a', 6)),
		'00000 00000 40001 00000', 'in one session');
	is(state_of('writer', fence('/f/a', 5)), '40001', 'and the next');
	is($server->value('SELECT path, token, fenced_by FROM zk_fencing.zk_fences'), '/f/a|6|writer', 'as the table says');
	is(state_of('writer', fence('f', 5), fence('/f/a', 0), 'SELECT zk_fence(NULL, 1)'), '22023 22023 22004', 'bad arguments are errors');
	is(state_of('writer', q{SELECT zk_lock('/f/a')}, q{SELECT count(*) FROM zk_locks}), '42501 55000',
		'while locks are not to be had');
};

subtest 'a role that is limited to some paths stays so' => sub {
	is(state_of('limited', fence('/mine/a', 1), fence('/our', 1), fence('/f/a', 9)), '00000 00000 42501', 'it has these');
	foreach my $widen (
		q{SET zklock.allowed_paths = '/*'},
		q{SELECT set_config('zklock.allowed_paths', '/*', false)},
		'RESET zklock.allowed_paths', 'RESET ALL', 'DISCARD ALL')
	{
		# Before the library is loaded nobody knows the setting, and anyone may set it.
		like(state_of('limited', $widen, fence('/f/a', 9)), qr/ 42501$/, "first of all: $widen");
		like(state_of('limited', fence('/mine/a', 1), $widen, fence('/f/a', 9)), qr/ 42501$/, "later: $widen");
	}
	is(state_of('limited', q{BEGIN; SET LOCAL zklock.allowed_paths = '/*'; } . fence('/f/a', 9)), '42501',
		'nor in a transaction');
	is($server->value("SELECT token FROM zk_fencing.zk_fences WHERE path = '/f/a'"), '6', 'nothing has come of it');
};

subtest 'loaded by hand, or for each session, zklock runs no worker and disturbs nothing' => sub {
	my $loaded = $server->session;
	ok($loaded->try(q{LOAD 'zklock'})->{ok}, 'LOAD works');
	refuses($loaded, $_, "after LOAD: $_") foreach @calls;
	ok($loaded->try(fence('/f/load', 1))->{ok}, 'but zk_fence() works');
	is($loaded->query('SHOW zklock.allowed_paths'), '/*', 'all paths are allowed by default');

	$server->set_conf('session_preload_libraries' => 'zklock');
	$server->wait_value('SHOW session_preload_libraries', 'zklock');
	my $later = $server->session;
	refuses($later, $_, "with session_preload_libraries: $_") foreach @calls;
	is(state_of('limited', fence('/mine/a', 2), fence('/f/a', 9)), '00000 42501', 'but zk_fence()');

	# What has nothing to do with locks goes on as if there were no extension.
	foreach my $session ($admin, $loaded, $later)
	{
		ok($session->try('DISCARD ALL')->{ok}, 'DISCARD ALL in ' . $session->name);
		is($session->query('BEGIN; CREATE TEMP TABLE t (); DROP TABLE t; COMMIT; SELECT 1'), '1',
			'a transaction in ' . $session->name);
	}
	is($server->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE '%zklock%'}), '0',
		'no worker runs');
};

ok($admin->try('DROP EXTENSION zklock')->{ok}, 'DROP EXTENSION works');

subtest 'all functions and views work in any schema' => sub {
	$preloaded->value('CREATE DATABASE odd');
	my $session = $preloaded->session(dbname => 'odd');
	$session->query($_)
	  foreach 'CREATE SCHEMA "some where"', 'CREATE EXTENSION zklock SCHEMA "some where"', 'SET search_path = "some where"';
	my %state = map { $_ => $session->try($_)->{sqlstate} } calls($session);
	cmp_ok(scalar(keys %state), '>=', 45, 'there are functions');
	is(join(' ', grep { $state{$_} !~ /^(?:00000|22004)$/ } sort keys %state), '', 'all answer, or refuse nulls');
	is($session->query(q{SELECT zk_lock('/every/a'), zk_lock_shared('/every/s'), zk_semaphore_acquire('/every/slots', 2)}),
		't|t|t', 'locks');
	is($session->query(q{SELECT zk_fence('/every/a', zk_fencing_token('/every/a')) IS NULL}), 'f', 'a fence');
	is($session->query(q{SELECT string_agg(path || ' ' || state, ', ' ORDER BY path) FROM zk_locks}),
		'/every/a held, /every/s held, /every/slots held', 'the view of locks');
	# The lock that says whose turn it is at the semaphore may still be on its way out.
	$preloaded->wait_value('SELECT locks_in_use FROM zk_session', 3);
	is($session->query('SELECT state, max_locks, locks_in_use, obstacle, last_error FROM zk_session'),
		'connected|6400|3||', 'and that of the session');
	is( $session->query(
			q{SELECT zk_unlock('/every/a'), zk_unlock_shared('/every/s'), zk_semaphore_release('/every/slots')}),
		't|t|t', 'all is unlocked');
};

done_clean($zk, $preloaded);
