# Copyright (c) 2026, zklock contributors
#
# zk_locks while locks come and go fast. A row shows one contender, never half of one and half of the next one in
# the same memory: the node in a row, and the one that it waits for, are of the row's path. A path's dialect tells
# which names its nodes can have, and a node that has been seen with one path is never seen with another.
#
# A slow look (slow-views) takes longer than the contender at which it looks exists. The bug
# torn-views of test/faults/README.md makes this fail.

use Zklock::Test;

plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};

my %form = (
	curator   => '^_c_[0-9a-f-]{36}-(lock-|__READ__)(\d{10})?$',
	kazoo     => '^[0-9a-f]{32}__lock__(\d{10})?$',
	zookeeper => '^x-[0-9a-f]{16}-(\d{10})?$',
	hive      => '^LOCK-EXCLUSIVE-(\d{10})?$');
my @dialects = sort keys %form;
my @conf     = (
	"zklock.session_timeout = '20s'",
	"zklock.path_dialects = '" . join(', ', map { "/of-$_/*=$_" } @dialects) . "'");

my ($zk, $a, $b) = cast('a b', conf => \@conf, a => { faults => '' });

foreach my $server ($a, $b)
{
	$server->value('CREATE TABLE stop ()');
	$server->value('CREATE TABLE forms (dialect text, form text)');
	$server->value("INSERT INTO forms VALUES ('$_', '$form{$_}')") foreach @dialects;
	# Locks and unlocks until told to stop: below each dialect's path one of its own, which others do not have,
	# or one that all contend for. A path of its own tells over its whole length which session it is of, and
	# the mode.
	$server->value(q{CREATE FUNCTION churn(own text) RETURNS int LANGUAGE plpgsql AS $$
	DECLARE
		dialects text[] := (SELECT array_agg(dialect) FROM forms);
		top text;
		path text;
		n int := 0;
	BEGIN
		WHILE NOT EXISTS (SELECT FROM stop) LOOP
			top := '/of-' || dialects[1 + n % 4] || '/';
			path := top || CASE WHEN n % 3 = 0 OR own IS NULL THEN 'all' ELSE repeat(own || 'e', 100) END;
			PERFORM zk_lock(path);
			PERFORM zk_unlock(path);
			IF own IS NOT NULL AND top = '/of-curator/' THEN
				path := top || repeat(own || 's', 100);
				PERFORM zk_lock_shared(path);
				PERFORM zk_unlock_shared(path);
			END IF;
			n := n + 1;
		END LOOP;
		RETURN n;
	END $$});
}

# Looks until it has seen so many rows, or one that cannot be.
$a->value('CREATE TABLE seen (node text, path text, UNIQUE (node, path))');
$a->value(q{CREATE FUNCTION look(wanted int, OUT nodes int, OUT blockers int, OUT broken text)
	LANGUAGE plpgsql AS $$
	DECLARE
		l record;
	BEGIN
		nodes := 0;
		blockers := 0;
		WHILE broken IS NULL AND (nodes < wanted OR blockers < wanted / 20) LOOP
			FOR l IN SELECT zk_locks.*, form FROM zk_locks LEFT JOIN forms ON split_part(path, '/', 2) = 'of-' || dialect LOOP
				IF l.form IS NULL OR l.node !~ l.form OR l.blocked_by_node !~ l.form OR
					split_part(l.path, '/', 3) NOT IN ('all', repeat(rpad(l.pid::text, 8, '_') || left(l.mode, 1), 100)) OR
					(l.granted AND (l.node !~ '\d{10}$' OR l.node IS NULL)) THEN
					broken := l::text;
				END IF;
				nodes := nodes + (l.node IS NOT NULL)::int;
				blockers := blockers + (l.blocked_by_node IS NOT NULL)::int;
				INSERT INTO seen SELECT l.node, l.path WHERE l.node IS NOT NULL ON CONFLICT DO NOTHING;
			END LOOP;
		END LOOP;
		SELECT coalesce(broken, string_agg(node || ' was seen with ' || paths, E'\n')) INTO broken
		FROM (SELECT node, string_agg(path, ', ') AS paths FROM seen WHERE node !~ '^LOCK-'
			GROUP BY node HAVING count(*) > 1) twice;
	END $$});

my @own    = map { $a->session } 1 .. 4;
my @others = map { $b->session } 1 .. 2;
$_->query_start("SELECT churn(rpad(pg_backend_pid()::text, 8, '_'))") foreach @own;
$_->query_start('SELECT churn(NULL)') foreach @others;

sub look($wanted, $fault)
{
	my $s = $a->session;
	$s->query("SELECT set_config('zklock.faults',
		concat_ws(',', nullif(current_setting('zklock.faults'), ''), $fault), false)");
	my ($nodes, $blockers, $broken) = @{ $s->try("SELECT * FROM look($wanted)")->{rows}[0] };
	is($broken, undef, 'each row is of one contender');
	return note("$nodes nodes, and $blockers that are waited for");
}

subtest 'looks that take no time' => sub { look(4000, 'NULL'); };

subtest 'looks that take longer than what they look at' => sub {
	look(200, "'slow-views'") foreach 1 .. 3;
};

$_->value('INSERT INTO stop DEFAULT VALUES') foreach $a, $b;
cmp_ok($_->finish, '>', 0, 'a session has had locks meanwhile') foreach @own, @others;
done_clean($zk, $a, $b);
