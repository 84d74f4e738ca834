# Copyright (c) 2026, zklock contributors
#
# zk_locks while locks come and go. A row shows one contender, never half of one and half of
# the next one in the same memory.

use Zklock::Test;

my ($zk, $a) = cast('a', timeout => '20s');

# Paths tell which session and which of its locks it is, over their whole length, and so
# do mode and scope.
$a->value(q{CREATE FUNCTION churn(seconds int) RETURNS int LANGUAGE plpgsql AS $$
	DECLARE
		me text := rpad(pg_backend_pid()::text, 8, '_');
		till timestamptz := clock_timestamp() + make_interval(secs => seconds);
		n int := 0;
	BEGIN
		WHILE clock_timestamp() < till LOOP
			PERFORM zk_lock('/v/' || repeat(me || 'x', 100));
			PERFORM zk_unlock('/v/' || repeat(me || 'x', 100));
			PERFORM zk_lock_shared('/v/' || repeat(me || 's', 100));
			PERFORM zk_unlock_shared('/v/' || repeat(me || 's', 100));
			n := n + 2;
		END LOOP;
		RETURN n;
	END $$});
$a->value(q{CREATE FUNCTION look(OUT rows int, OUT broken text) LANGUAGE plpgsql AS $$
	DECLARE
		seen int;
		bad text;
	BEGIN
		rows := 0;
		WHILE (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'churn' AND state = 'active') > 0 LOOP
			SELECT count(*),
				string_agg(l::text, E'\n') FILTER (WHERE path <> '/v/' || repeat(rpad(pid::text, 8, '_') ||
					CASE mode WHEN 'exclusive' THEN 'x' ELSE 's' END, 100))
			INTO seen, bad FROM zk_locks l;
			rows := rows + seen;
			broken := coalesce(broken, bad);
			PERFORM pg_stat_clear_snapshot();
		END LOOP;
	END $$});

my @sessions = map { $a->session } 1 .. 4;
$_->query("SET application_name = 'churn'") foreach @sessions;
$_->query_start('SELECT churn(4)') foreach @sessions;
$a->wait_value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'churn' AND state = 'active'", 4);
my $seen = $a->session->try('SELECT rows, broken FROM look()');
is($seen->{rows}[0][1], undef, 'each row is of one contender');
cmp_ok($seen->{rows}[0][0], '>', 0, "of $seen->{rows}[0][0]");
my @paths;
foreach my $s (@sessions)
{
	cmp_ok($s->finish, '>', 0, 'a session has had locks meanwhile');
	push @paths, map { '/v/' . (sprintf('%s%s', substr($s->pid . '_' x 8, 0, 8), $_) x 100) } qw(x s);
	$s->disconnect;
}
$a->assert_clean($zk, @paths);
done_testing;
