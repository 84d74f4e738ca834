# Copyright (c) 2026, zklock contributors
#
# Every function answers, or refuses nulls, and the extension works in any schema.

use Zklock::Test;
use Zklock::Catalog qw(call_all);

my ($zk, $server) = cast('main');

my %schema = (plain => 'public', odd => 'some where');
foreach my $database (sort keys %schema)
{
	my $schema = $schema{$database};
	subtest "in schema $schema" => sub {
		$server->value("CREATE DATABASE $database");
		my $session = $server->session(dbname => $database);
		$session->query($_)
		  foreach qq{CREATE SCHEMA IF NOT EXISTS "$schema"}, qq{CREATE EXTENSION zklock SCHEMA "$schema"}, qq{SET search_path = "$schema"};
		my %state = call_all($session);
		cmp_ok(scalar(keys %state), '>=', 45, 'there are functions');
		is(join(' ', grep { $state{$_} !~ /^(?:00000|22004)$/ } sort keys %state), '', 'all answer, or refuse nulls');
		is($session->query(q{SELECT zk_lock('/every/a'), zk_lock_shared('/every/s'), zk_semaphore_acquire('/every/slots', 2)}),
			't|t|t', 'locks');
		is($session->query(q{SELECT zk_fence('/every/a', zk_fencing_token('/every/a')) IS NULL}), 'f', 'a fence');
		is($session->query(q{SELECT string_agg(path || ' ' || state, ', ' ORDER BY path) FROM zk_locks}),
			'/every/a held, /every/s held, /every/slots held', 'the view of locks');
		# The lock that says whose turn it is at the semaphore may still be on its way out.
		$server->wait_value('SELECT locks_in_use FROM zk_session', 3);
		is($session->query('SELECT state, max_locks, locks_in_use, obstacle, last_error FROM zk_session'),
			'connected|6400|3||', 'and that of the session');
		is($session->query(q{SELECT zk_unlock('/every/a'), zk_unlock_shared('/every/s'), zk_semaphore_release('/every/slots')}),
			't|t|t', 'all is unlocked');
	};
}

done_clean($zk, $server);
