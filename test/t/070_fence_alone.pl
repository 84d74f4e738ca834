# Copyright (c) 2026, zklock contributors
#
# zk_fence() in a server that has the data and takes no locks: to install the extension is
# enough, and zklock.allowed_paths applies as elsewhere.

use Zklock::Test;

my $server = Zklock::Server->new('plain', preload => 0);
$server->value($_) foreach
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

subtest 'it refuses stale tokens' => sub {
	is(state_of('writer', fence('/f/a', 5), fence('/f/a', 5), fence('/f/a', 4), fence('/f/a', 6)),
		'00000 00000 40001 00000', 'in one session');
	is(state_of('writer', fence('/f/a', 5)), '40001', 'and the next');
	is($server->value('SELECT path, token, fenced_by FROM zk_fences'), '/f/a|6|writer', 'as the table says');
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
	is($server->value("SELECT token FROM zk_fences WHERE path = '/f/a'"), '6', 'nothing has come of it');
};

subtest 'however the library is loaded' => sub {
	my $session = $server->session;
	ok($session->try(q{LOAD 'zklock'})->{ok}, 'LOAD');
	ok($session->try(fence('/f/load', 1))->{ok}, 'works');
	is($session->query('SHOW zklock.allowed_paths'), '/*', 'all paths are allowed by default');
	$session->disconnect;
	$server->set_conf('session_preload_libraries' => 'zklock');
	$server->wait_value('SHOW session_preload_libraries', 'zklock');
	is(state_of('limited', fence('/mine/a', 2), fence('/f/a', 9)), '00000 42501', 'session_preload_libraries');
};

done_testing;
