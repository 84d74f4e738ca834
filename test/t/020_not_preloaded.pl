# Copyright (c) 2026, zklock contributors
#
# Without shared_preload_libraries the extension can be created, but each of its functions
# reports what is missing, however the library was loaded into the session.

use Zklock::Test;
use Zklock::Catalog qw(calls);

my $server = Zklock::Server->new('plain', preload => 0, extension => 0);
my $admin  = $server->session;
my $created = $admin->try('CREATE EXTENSION zklock');
ok($created->{ok}, 'CREATE EXTENSION works');
like($created->{notices}[0], qr/WARNING.*zklock cannot lock anything yet.*shared_preload_libraries/s, 'with a warning');

# All but that of zk_fences, which needs no preload. None may look at its arguments before.
my @calls = grep { !/zk_fence\(/ } calls($admin);
cmp_ok(scalar @calls, '>=', 12, 'the functions are found');
push @calls, 'SELECT * FROM zk_locks', 'SELECT * FROM zk_session';

sub refuses($session, $sql, $name)
{
	my $result = $session->try($sql);
	return is_deeply(
		[ @$result{qw(sqlstate severity message hint)} ],
		[ '55000', 'ERROR', 'zklock must be loaded via "shared_preload_libraries"',
			'Add "zklock" to "shared_preload_libraries" and restart the server.' ],
		$name) || diag(explain($result));
}

subtest 'without preload every function says what to do' => sub {
	refuses($admin, $_, $_) foreach @calls;
	refuses($admin, q{SELECT zk_lock('/t/lock')}, 'with good arguments as well');
	refuses($admin, q{SELECT zk_lock(ARRAY['/t/lock'], '0')}, 'an array, too');
};

subtest 'loaded by hand, or for each session, zklock runs no worker and disturbs nothing' => sub {
	my $loaded = $server->session;
	ok($loaded->try(q{LOAD 'zklock'})->{ok}, 'LOAD works');
	refuses($loaded, $_, "after LOAD: $_") foreach @calls;

	$admin->query(q{ALTER SYSTEM SET session_preload_libraries = 'zklock'});
	$admin->query('SELECT pg_reload_conf()');
	$server->wait_value('SHOW session_preload_libraries', 'zklock');
	my $preloaded = $server->session;
	refuses($preloaded, $_, "with session_preload_libraries: $_") foreach @calls;

	# What has nothing to do with locks goes on as if there were no extension.
	foreach my $session ($admin, $loaded, $preloaded)
	{
		ok($session->try('DISCARD ALL')->{ok}, 'DISCARD ALL in ' . $session->name);
		is($session->query('BEGIN; CREATE TEMP TABLE t (); DROP TABLE t; COMMIT; SELECT 1'), '1',
			'a transaction in ' . $session->name);
	}
	is($server->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE '%zklock%'}), '0',
		'no worker runs');
};

ok($admin->try('DROP EXTENSION zklock')->{ok}, 'DROP EXTENSION works');

done_testing;
