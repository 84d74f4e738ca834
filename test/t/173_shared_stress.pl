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

my $rounds = 60;
my ($zk, $proxy, $left, $right) = cast('a b', proxied => 'a', timeout => '20s', conf => ["statement_timeout = '100s'"]);
my $path   = '/t/stress';

foreach my $server ($left, $right)
{
	$server->value('CREATE TABLE held (who text, mode text, since float8, until float8, token bigint)');
	$server->value(<<'SQL');
CREATE FUNCTION now_s() RETURNS float8 LANGUAGE sql VOLATILE AS 'SELECT extract(epoch FROM clock_timestamp())::float8';
SQL
	# A session that does not wait, or not for ever, may meet a worker that restarts; one of two
	# that go up ends their deadlock.
	$server->value(<<'SQL');
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
SQL
	# Each way to hold the path for a moment; what was held is noted before it is given up.
	$server->value(<<'SQL');
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
    shared := NULL;
    exclusive := NULL;
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
    IF what IN (2, 3, 4) THEN
      exclusive := now_s();
    ELSE
      shared := now_s();
    END IF;
    PERFORM pg_sleep(random() * 0.002);
    IF what = 4 THEN
      -- down
      PERFORM zk_lock_shared(path);
      shared := now_s();
    ELSIF what = 5 THEN
      -- up, if nobody is in the way for long
      IF asked('zk_lock($1, ''20 ms'')', path) THEN
        exclusive := now_s();
        PERFORM pg_sleep(random() * 0.001);
      END IF;
    END IF;
    IF exclusive IS NOT NULL THEN
      INSERT INTO held VALUES (who, 'exclusive', exclusive, now_s(), zk_fencing_token(path));
      PERFORM zk_unlock(path);
    END IF;
    IF shared IS NOT NULL THEN
      PERFORM pg_sleep(random() * 0.002);
      INSERT INTO held VALUES (who, 'shared', shared, now_s(), zk_fencing_token(path));
      PERFORM zk_unlock_shared(path);
    END IF;
  END LOOP;
  RETURN n;
END
$$;
SQL
}

my %server_of;
my @sessions;
foreach my $i (1 .. 5)
{
	foreach my $server ($left, $right)
	{
		my $session = $server->session(name => $server->name . $i);
		$server_of{ $session->name } = $server;
		push @sessions, $session;
	}
}
$_->query_start("SELECT work('" . $_->name . "', '$path', $rounds)") foreach @sessions;

# Meanwhile kazoo takes its turns, and things break.
my $kazoo = $zk->shell;
my @held;
my %breaks = (3 => 'worker a', 6 => 'drop', 9 => 'worker b', 12 => 'drop', 15 => 'worker a');
foreach my $turn (1 .. 20)
{
	last unless grep { $_->busy } @sessions;
	my $what = $breaks{$turn} || '';
	if ($what =~ /worker/)
	{
		my $server = $what =~ /a$/ ? $left : $right;
		my $worker = wait_until { $server->worker_pid } 'a worker';
		$server->value("SELECT pg_terminate_backend($worker)");
	}
	$proxy->drop if $what eq 'drop';
	is($kazoo->lock('kazoo', $path), 1, "kazoo has turn $turn" . ($what && ", after: $what"));
	my $since = time;
	my $until = time;
	push @held, [ $since, $until, 'exclusive', 'kazoo' ];
	$kazoo->unlock('kazoo');
}
foreach my $session (@sessions)
{
	my $n = $session->finish;
	cmp_ok($n, '>', 0, $session->name . " held the path $n times");
}

foreach my $server ($left, $right)
{
	push @held, map { [ split /\|/ ] } split /\n/, $server->value(
		'SELECT since, until, mode, who, token FROM held');
}
@held = sort { $a->[0] <=> $b->[0] } @held;
my %count;
$count{ $_->[2] }++ foreach @held;
note(join ', ', map { "$_ $count{$_}" } sort keys %count);
is_deeply([ overlaps(@held) ], [], 'nobody held the path together with an exclusive holder');

ok(increasing(map { $_->[4] } grep { $_->[2] eq 'exclusive' && $_->[4] } @held), 'the tokens of exclusive holders increase');
cmp_ok($count{shared},    '>', 50, 'there were readers');
cmp_ok($count{exclusive}, '>', 50, 'and writers');

Zklock::Server->assert_clean($zk, [ $left, $right ], $path);
done_testing;
