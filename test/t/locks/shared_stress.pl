# Copyright (c) 2026, zklock contributors
#
# Readers, writers, upgrades and downgrades at random, on two database servers and with
# kazoo's Lock, while workers are restarted and connections drop.
#
# Each client notes when it believes that it holds the path, and in which mode. No client may
# hold it in any mode while another one does so exclusively.

use Zklock::Test;
use Time::HiRes qw(time);
use Zklock::Util qw(overlaps);

my ($zk, $proxy, $left, $right) = cast('a b', proxied => 'a', timeout => '20s', conf => ["statement_timeout = '100s'"]);
my $path   = '/t/stress';

foreach my $server ($left, $right)
{
	$server->safe_psql('postgres', <<'SQL');
CREATE TABLE held (since float8, until float8, mode text, who text, token bigint);

CREATE FUNCTION now_s() RETURNS float8 LANGUAGE sql VOLATILE AS 'SELECT extract(epoch FROM clock_timestamp())::float8';

-- A session that does not wait, or not for ever, may meet a worker that restarts; one of two
-- that go up ends their deadlock.
CREATE FUNCTION asked(statement text, path text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  got boolean;
BEGIN
  EXECUTE 'SELECT ' || statement INTO got USING path;
  RETURN got;
EXCEPTION WHEN io_error OR object_not_in_prerequisite_state OR deadlock_detected THEN
  RETURN false;
END
$$;

-- Each way to hold the path for a moment; what was held is noted before it is given up.
CREATE FUNCTION work(who text, path text, rounds int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  shared float8;
  exclusive float8;
  what int;
  got boolean;
  n int := 0;
BEGIN
  FOR i IN 1 .. rounds LOOP
    what := floor(random() * 6);
    CASE what
      WHEN 0 THEN got := zk_lock_shared(path);
      WHEN 1 THEN got := asked('zk_try_lock_shared($1)', path);
      WHEN 2 THEN got := asked('zk_lock($1, ''2 s'')', path);
      WHEN 3 THEN got := asked('zk_try_lock($1)', path);
      WHEN 4 THEN got := zk_lock(path);
      ELSE got := asked('zk_lock_shared($1, ''2 s'')', path);
    END CASE;
    CONTINUE WHEN NOT got;
    n := n + 1;
    exclusive := CASE WHEN what IN (2, 3, 4) THEN now_s() END;
    shared := CASE WHEN what IN (0, 1, 5) THEN now_s() END;
    PERFORM pg_sleep(random() * 0.002);
    -- down; or up, if nobody is in the way for long
    IF what = 4 AND zk_lock_shared(path) THEN
      shared := now_s();
    ELSIF what = 5 AND asked('zk_lock($1, ''20 ms'')', path) THEN
      exclusive := now_s();
      PERFORM pg_sleep(random() * 0.001);
    END IF;
    IF exclusive IS NOT NULL THEN
      INSERT INTO held VALUES (exclusive, now_s(), 'exclusive', who, zk_fencing_token(path));
      PERFORM zk_unlock(path);
    END IF;
    IF shared IS NOT NULL THEN
      PERFORM pg_sleep(random() * 0.002);
      INSERT INTO held VALUES (shared, now_s(), 'shared', who, zk_fencing_token(path));
      PERFORM zk_unlock_shared(path);
    END IF;
  END LOOP;
  RETURN n;
END
$$;
SQL
}

my @sessions = map { my $i = $_; map { $_->session(name => $_->name . $i) } $left, $right } 1 .. 5;
$_->query_start("SELECT work('" . $_->name . "', '$path', 60)") foreach @sessions;

# Meanwhile kazoo takes its turns, and things break.
my $kazoo = $zk->shell;
my @held;
my %restarts = (3 => $left, 9 => $right, 15 => $left);
my %drops    = (6 => 1, 12 => 1);
foreach my $turn (1 .. 20)
{
	last unless grep { $_->busy } @sessions;
	if (my $server = $restarts{$turn})
	{
		my $worker = wait_until { $server->worker_pid } 'a worker';
		$server->value("SELECT pg_terminate_backend($worker)");
	}
	$proxy->drop if $drops{$turn};
	is($kazoo->lock('kazoo', $path), 1, "kazoo has turn $turn");
	my $since = time;
	push @held, [ $since, time, 'exclusive', 'kazoo' ];
	$kazoo->unlock('kazoo');
}
cmp_ok($_->finish, '>', 0, $_->name . ' held the path') foreach @sessions;

push @held, map { [ split /\|/ ] } map { split /\n/, $_->value('SELECT * FROM held') } $left, $right;
@held = sort { $a->[0] <=> $b->[0] } @held;
my %count;
$count{ $_->[2] }++ foreach @held;
is_deeply([ overlaps(@held) ], [], 'nobody held the path together with an exclusive holder');
ok(increasing(map { $_->[4] } grep { $_->[2] eq 'exclusive' && $_->[4] } @held), 'the tokens of exclusive holders increase');
cmp_ok($count{$_}, '>', 50, "many were $_ holders") foreach qw(shared exclusive);

done_clean($zk, $left, $right);
