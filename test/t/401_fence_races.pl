# Copyright (c) 2026, zklock contributors
#
# zk_fence() with several sessions at once, and what becomes of the tokens seen when a database is
# dumped and restored, or a standby promoted.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Server;
use Zklock::ZooKeeper;

my $zk = Zklock::ZooKeeper->standalone;
# Where the data is: it may be locked from anywhere.
my $data = Zklock::Server->new(
	'data',
	zookeeper        => $zk,
	allows_streaming => 1,
	conf             => ["listen_addresses = '127.0.0.1'"]);
my ($s1, $s2, $s3) = map { $data->session } 1 .. 3;

sub fence { my ($path, $token) = @_; return "SELECT zk_fence('$path', $token)"; }

sub stale
{
	my ($result, $token, $seen, $name) = @_;
	return is_deeply(
		[ @$result{qw(sqlstate message detail)} ],
		[   '40001',
			"fencing token for ZooKeeper path \"/t/race\" is stale",
			"The token is $token, but $seen has been seen." ],
		$name) || diag(explain($result));
}

# The session waits for the end of another one's transaction.
sub wait_blocked
{
	my ($session, $by) = @_;
	$data->wait_value('SELECT ' . $by->pid . ' = ANY (pg_blocking_pids(' . $session->pid . '))', 't');
	return;
}

sub token_of { return $data->value("SELECT token FROM zk_fences WHERE path = '$_[0]'"); }
sub forget { $data->value('DELETE FROM zk_fences'); return; }

foreach my $known (0, 1)
{
	my $kind = $known ? 'known path' : 'new path';
	my $begin = sub {
		my (@isolation) = @_;
		forget();
		$data->value(fence('/t/race', 5)) if $known;
		$s1->query('BEGIN');
		# With an isolation level, the snapshot is from before what the other does.
		$s2->query("BEGIN @isolation");
		$s2->query('SELECT 1');
		return;
	};

	subtest "$kind: an older token waits for a newer, and passes if that is rolled back" => sub {
		$begin->();
		$s1->query(fence('/t/race', 7));
		$s2->query_start(fence('/t/race', 6));
		wait_blocked($s2, $s1);
		$s1->query('COMMIT');
		stale($s2->result, 6, 7, "$kind: the older token waits for the newer, and is refused");
		$s2->query('ROLLBACK');

		$begin->();
		$s1->query(fence('/t/race', 7));
		$s2->query_start(fence('/t/race', 6));
		wait_blocked($s2, $s1);
		$s1->query('ROLLBACK');
		ok($s2->result->{ok}, "$kind: unless the newer is rolled back");
		$s2->query('COMMIT');
		is(token_of('/t/race'), 6, 'then it was never seen');

		$begin->();
		$s1->query('SAVEPOINT s');
		$s1->query(fence('/t/race', 7));
		$s2->query_start(fence('/t/race', 6));
		wait_blocked($s2, $s1);
		$s1->query('ROLLBACK TO s');
		ok($s2->result->{ok}, "$kind: or rolled back to a savepoint");
		$s2->query('COMMIT');
		$s1->query('COMMIT');
	};

	subtest "$kind: a token that is not older waits, and passes" => sub {
		foreach my $token (7, 8)
		{
			$begin->();
			$s1->query(fence('/t/race', 7));
			$s2->query_start(fence('/t/race', $token));
			wait_blocked($s2, $s1);
			$s1->query('COMMIT');
			ok($s2->result->{ok}, "$kind: token $token waits for 7, and passes");
			$s2->query('COMMIT');
			is(token_of('/t/race'), $token, 'the highest is kept');
		}
	};

	subtest "$kind: a session that does not see what another has fenced does not pass, whatever its token" => sub {
		# Who sees nothing of a transaction must not go on behind it, whatever the tokens.
		foreach my $isolation ('REPEATABLE READ', 'SERIALIZABLE')
		{
			foreach my $token (6, 7, 8)
			{
				$begin->("ISOLATION LEVEL $isolation");
				$s1->query(fence('/t/race', 7));
				$s2->query_start(fence('/t/race', $token));
				wait_blocked($s2, $s1);
				$s1->query('COMMIT');
				is($s2->result->{sqlstate}, '40001', "$kind, $isolation: token $token while 7 commits");
				$s2->query('ROLLBACK');
				is(token_of('/t/race'), 7, 'leaves no trace');

				$begin->("ISOLATION LEVEL $isolation");
				$s1->query(fence('/t/race', 7));
				$s1->query('COMMIT');
				is($s2->try(fence('/t/race', $token))->{sqlstate}, '40001',
					"$kind, $isolation: token $token after 7 has committed");
				$s2->query('ROLLBACK');
			}
			$begin->("ISOLATION LEVEL $isolation");
			$s1->query(fence('/t/race', 7));
			$s2->query_start(fence('/t/race', 6));
			wait_blocked($s2, $s1);
			$s1->query('ROLLBACK');
			ok($s2->result->{ok}, "$kind, $isolation: token 6 after 7 was rolled back");
			$s2->query('COMMIT');
		}
	};
}

subtest 'a newer token does not pass with a snapshot from before the older has committed' => sub {
	# An older holder that has fenced before, with the same token, and now writes: the newer
	# one must not miss that.
	foreach my $isolation ('REPEATABLE READ', 'SERIALIZABLE')
	{
		forget();
		$data->value(fence('/t/race', 7));
		$s1->query('BEGIN');
		$s1->query(fence('/t/race', 7));
		$s2->query("BEGIN ISOLATION LEVEL $isolation");
		$s2->query('SELECT 1');
		$s1->query('COMMIT');
		is($s2->try(fence('/t/race', 8))->{sqlstate}, '40001',
			"$isolation: a newer token, but a snapshot from before the older has committed");
		$s2->query('ROLLBACK');
	}
};

subtest 'paths do not wait for each other, and a wait is an ordinary one' => sub {
	# Paths do not wait for each other, and a wait is an ordinary one.
	forget();
	$s1->query('BEGIN');
	$s1->query(fence('/t/race', 1));
	$s2->query('BEGIN');
	$s2->query(fence('/t/other', 1));
	is($s3->try("SET statement_timeout = '50ms'; " . fence('/t/race', 2))->{sqlstate}, '57014', 'statement_timeout');
	is($s3->try("SET statement_timeout = 0; SET lock_timeout = '50ms'; " . fence('/t/race', 2))->{sqlstate},
		'55P03', 'lock_timeout');
	$s3->query('RESET ALL');
	$s1->query_start(fence('/t/other', 2));
	wait_blocked($s1, $s2);
	$s2->query_start(fence('/t/race', 2));
	my @ends = sort map { $_->result->{sqlstate} } $s1, $s2;
	is("@ends", '00000 40P01', 'a deadlock is found');
	$_->query('ROLLBACK') foreach $s1, $s2;
};

subtest 'of many tokens at once on a new path none passes after a higher one' => sub {
	# Many at once, on a path that is new: tokens must have come in order.
	forget();
	$data->value('CREATE TABLE passed (n serial, token bigint)');
	my @crowd = map { $data->session } 1 .. 8;
	foreach my $i (0 .. $#crowd)
	{
		$crowd[$i]->query_start("DO \$\$
			DECLARE
				own bigint;
			BEGIN
				FOR i IN 1 .. 100 LOOP
					own := i * 10 + $i;
					BEGIN
						PERFORM zk_fence('/t/crowd', own);
						INSERT INTO passed (token) VALUES (own);
					EXCEPTION WHEN serialization_failure THEN
						NULL;
					END;
					COMMIT;
				END LOOP;
			END \$\$");
	}
	is($_->result->{error}, undef, $_->name . ' came through') foreach @crowd;
	$_->disconnect foreach @crowd;
	is( $data->value(
			'SELECT count(*) FROM (SELECT token, lag(token) OVER (ORDER BY n) AS before FROM passed) p WHERE token < before'),
		0, 'no token has passed after a higher one');
	cmp_ok($data->value('SELECT count(*) FROM passed'), '>=', 100, 'and many did');
	is(token_of('/t/crowd'), $data->value('SELECT max(token) FROM passed'), 'the highest is kept');
	forget();
};

subtest 'a database that is dumped and restored remembers the tokens' => sub {
	$data->value(fence('/t/race', 70));
	$data->value(fence('/t/"dump", \\', 71));
	my $dump = PostgreSQL::Test::Utils::tempdir . '/dump.sql';
	$data->node->command_ok([ 'pg_dump', '--file', $dump, '--dbname', $data->connstr('postgres') ], 'pg_dump');
	$data->value('CREATE DATABASE restored TEMPLATE template0');
	$data->node->command_ok([ 'psql', qw(-X -q -v ON_ERROR_STOP=1), '-f', $dump, '-d', $data->connstr('restored') ],
		'restore');
	my $restored = $data->session(dbname => 'restored');
	stale($restored->try(fence('/t/race', 69)), 69, 70, 'a restored database remembers');
	ok($restored->try(fence('/t/race', 70))->{ok}, 'as the original does');
	is($restored->query('SELECT count(*) FROM zk_fences'), 2, 'all of it');
	is_deeply(
		$restored->try('SELECT * FROM zk_fences WHERE path LIKE \'%dump%\'')->{rows},
		$s1->try('SELECT * FROM zk_fences WHERE path LIKE \'%dump%\'')->{rows},
		'as it was');
	# In a database of its own a path has tokens of its own.
	ok($restored->try(fence('/t/race', 100))->{ok}, 'a newer token there');
	ok($s1->try(fence('/t/race', 71))->{ok}, 'is not seen here');
	$restored->disconnect;
};

subtest 'a hot standby cannot fence, and a promoted one knows the tokens' => sub {
	# One that has never reached ZooKeeper: there is no need to.
	my $standby =
	  Zklock::Server->standby('standby', primary => $data, zookeeper => '127.0.0.1:1', connect => 0);
	my $result  = $standby->session->try(fence('/t/race', 72));
	is("$result->{sqlstate} $result->{message}", '25006 cannot execute zk_fence() in a read-only transaction',
		'a hot standby cannot fence');
	$data->wait_for_catchup($standby->node);
	$standby->promote;
	my $promoted = $standby->session;
	stale($promoted->try(fence('/t/race', 70)), 70, 71, 'a promoted standby knows the tokens');
	ok($promoted->try(fence('/t/race', 72))->{ok}, 'and takes newer ones');
	$promoted->disconnect;
	$standby->stop;
};

$_->disconnect foreach $s1, $s2, $s3;
Zklock::Server->assert_clean($zk, [$data]);
done_testing;
