# Copyright (c) 2026, zklock contributors
#
# zk_fence() against zombies: holders who have lost their lock, believe they have it, and write.
# With the examples of doc/guarantees.md. Then several sessions at once, and what becomes of the tokens seen
# when a standby is promoted; lease/replicated_fences.pl has a database that is dumped and restored.

use Zklock::Test;
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Zklock::Cast qw(fails);
use Zklock::Jars;
use Zklock::JavaPeer;

# Where the data is, it may be locked from anywhere.
my ($zk, $a, $b, $data) = cast('a b data', data => { allows_streaming => 1, conf => ["listen_addresses = '127.0.0.1'"] });
my ($s1, $s2, $s3) = map { $data->session } 1 .. 3;
my $holder = $a->session;
my $next   = $b->session;

sub fence($path, $token) { return "SELECT zk_fence('$path', $token)"; }

# The session waits for the end of another one's transaction.
sub wait_blocked($session, $by)
{
	$data->wait_value('SELECT ' . $by->pid . ' = ANY (pg_blocking_pids(' . $session->pid . '))', 't');
	return;
}

my ($section) = slurp_file(dirname(__FILE__) . '/../../../doc/guarantees.md') =~ /^## Fencing\n(.*?)(?:^## |\z)/ms;
# Here the extension is in another schema.
$section =~ s/\bzklock\.(?=zk_)/public./g;
my ($local, $trigger, $remote) = $section =~ /^```sql\n(.*?)^```$/msg;
my ($java_class) = $section =~ /^```java\n(.*?)^```$/ms;
my $path = '/pay/lock';
my $balance = 'SELECT balance FROM account WHERE id = 7';

# Runs what stands between BEGIN and COMMIT, up to the first error, and gives its result.
sub run_example($session, $sql)
{
	my $last;
	foreach my $statement (split /;.*\n/, $sql)
	{
		$last = $session->try($statement);
		last unless $last->{ok};
	}
	$session->query('ROLLBACK') unless $last->{ok};
	return $last;
}

sub remote_example($token)
{
	my $sql = $remote;
	is($sql =~ s/:'token'/'$token'/, 1, 'the example names a token');
	return $sql;
}

$data->value('CREATE TABLE account (id int PRIMARY KEY, balance numeric NOT NULL)');
$data->value('INSERT INTO account VALUES (7, 1000)');
$data->value($trigger);

subtest 'the example for clients elsewhere does no harm without a token' => sub {
	$data->node->psql('postgres', $remote, on_error_stop => 0, stderr => \my $stderr);
	like($stderr, qr/syntax error at or near ":"/, 'the example without a token fails');
	is($data->value($balance), 1000, 'writes nothing');
	is($data->value("SELECT count(*) FROM zk_fencing.zk_fences WHERE path = '$path'"), 0, 'and fences nobody off');
};

subtest 'the trigger of the example lets the holder of the lock write, and nobody else' => sub {
	ok(run_example($s1, $local)->{ok}, 'a holder of the lock in this server writes');
	is($data->value($balance), 900, 'indeed');
	is($s1->try('UPDATE account SET balance = 0')->{sqlstate}, '55000', 'who has not the lock does not');
	is($s1->try($_)->{sqlstate}, '55000', $_)
	  foreach 'INSERT INTO account VALUES (8, 1)', 'DELETE FROM account', 'TRUNCATE account';
	is($s1->try('COPY account FROM PROGRAM \'echo 8 1\'')->{sqlstate}, '55000', 'COPY');
	is($s1->query($balance), 900, 'reading is free');
};

subtest 'a zombie whose node was deleted cannot write once the next holder has fenced' => sub {
	# A zombie, in SQL: its lock's node is deleted by an administrator. Neither its client
	# nor its server needs to know.
	$holder->query("SELECT zk_lock('$path')");
	my $old = $holder->query("SELECT zk_fencing_token('$path')");
	ok(run_example($s1, remote_example($old))->{ok}, 'a holder on another server writes with its token');
	is($data->value($balance), 800, 'indeed');
	$next->start_waiting("SELECT zk_lock('$path')");
	$zk->shell->remove($path, 'first');
	is($next->finish, 't', 'the next one gets the lock');
	my $new = $next->query("SELECT zk_fencing_token('$path')");
	cmp_ok($new, '>', $old, 'and a higher token');
	ok(run_example($s1, remote_example($old))->{ok}, 'until that is used, an old token is as good as any');
	# From zk_fence() on, not only from the first write on, the zombie is kept out.
	$s2->query('BEGIN');
	$s2->query("SELECT set_config('app.token', '$new', true)");
	$s2->query(fence($path, $new));
	is($s2->query($balance), 700, 'the next holder reads');
	$s1->query("SET app.token = '$old'");
	$s1->query_start('UPDATE account SET balance = 0');
	wait_blocked($s1, $s2);
	$s2->query('UPDATE account SET balance = balance - 100 WHERE id = 7');
	$s2->query('COMMIT');
	is($s1->result->{sqlstate}, '40001', 'the late write is refused');
	is($s1->try($_)->{sqlstate}, '40001', "late: $_")
	  foreach 'INSERT INTO account VALUES (8, 1)', 'DELETE FROM account', 'TRUNCATE account';
	$s1->query('RESET app.token');
	is($data->value($balance), 600, 'and leaves no trace');
	is($holder->query("SELECT zk_unlock('$path')"), 'f', 'the zombie learns it at last');
	ok(run_example($s2, remote_example($new))->{ok}, 'the holder goes on');
	$next->query("SELECT zk_unlock('$path')");
};

subtest 'a session of the server that has the data cannot write under a lost lock' => sub {
	# The same with a session of the server that has the data: the trigger asks zklock.
	$s1->query("SELECT zk_lock('$path')");
	$s1->query('UPDATE account SET balance = 600');
	$data->lose($zk, $s1, $path);
	is($s1->try('UPDATE account SET balance = 0')->{sqlstate}, '40001', 'a lost lock is no token');
	$s1->query('SELECT zk_unlock_all()');
	is($data->value($balance), 600, 'and leaves no trace');
};

my $user = $data->value('SELECT current_user');
$data->value('CREATE TABLE unfenced (who text)');
my $java = Zklock::Java->program('FencePeer', jars => [ @peer_jars, 'postgresql' ], sources => { FencedMutex => "
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.zookeeper.data.Stat;

$java_class" });
$java->call('connect', $zk->connect_string, 2000, 'jdbc:postgresql://127.0.0.1:' . $data->port . "/postgres?user=$user");
my $other = $a->session;
my @tokens;

subtest 'tokens of Curator and of sessions are in one order' => sub {
	$holder->query("SELECT zk_lock('$path')");
	push @tokens, $holder->query("SELECT zk_fencing_token('$path')");
	$other->start_waiting("SELECT zk_lock('$path')");
	my $waits = $java->send('acquire', $path);
	wait_until { $zk->children($path) == 2 } 'Curator to queue';
	$holder->hands_over($path, $other, 'the next session has it, before Curator');
	push @tokens, $other->query("SELECT zk_fencing_token('$path')");
	is($tokens[1], $tokens[0] + 1, 'two sessions share a node');
	$other->query("SELECT zk_unlock('$path')");
	push @tokens, my $zombie = $java->result($waits);
	my ($node) = $zk->children($path);
	is($zombie, $zk->shell->stat("$path/$node")->{czxid} * 4096 + 1, 'the token of Curator is that of its node');
	ok(run_example($s1, remote_example($tokens[1]))->{ok}, 'the last session before Curator writes');
	is($java->call('write', 'UPDATE account SET balance = 400 WHERE id = 7'), 'held 00000', 'Curator writes');
	is(run_example($s1, remote_example($tokens[1]))->{sqlstate}, '40001', 'after it nobody before it does');
};

subtest 'Curator as a zombie believes that it holds the lock, and its late write is refused' => sub {
	# It stands still for longer than its session lives, with writes before it.
	$holder->start_waiting("SELECT zk_lock('$path')");
	$java->pause;
	my @late = map { $java->send('write', $_) } 'UPDATE account SET balance = 0 WHERE id = 7',
	  q(INSERT INTO unfenced VALUES ('zombie'));
	is($holder->finish, 't', 'a session gets the lock while Curator stands still');
	push @tokens, $holder->query("SELECT zk_fencing_token('$path')");
	ok(run_example($s1, remote_example($tokens[-1]))->{ok}, 'and writes');
	is($data->value($balance), 300, 'indeed');
	$java->resume;
	is($java->result($late[0]), 'held 40001', 'Curator believes that it holds the lock; its late write is refused');
	is($java->result($late[1]), 'held 00000', 'without a fence it is not');
	is($data->value($balance), 300, 'the data is as the holder left it');
	is($data->value('SELECT who FROM unfenced'), 'zombie', 'where it is fenced');
	$holder->query("SELECT zk_unlock('$path')");
};

subtest 'Curator writes when it has the lock again' => sub {
	push @tokens, $java->call('acquire', $path);
	is($java->call('write', 'UPDATE account SET balance = 200 WHERE id = 7'), 'held 00000', 'with the lock again, Curator writes');
	is($data->value($balance), 200, 'indeed');
	$java->call('release');
	ok(increasing(@tokens), 'all tokens were in order');
};

sub stale($result, $token, $seen, $name)
{
	return fails($result, '40001', $name, message => 'fencing token for ZooKeeper path "/t/race" is stale',
		detail => "The token is $token, but $seen has been seen.");
}

sub token_of { return $data->value("SELECT token FROM zk_fencing.zk_fences WHERE path = '$_[0]'"); }
sub forget { $data->value('DELETE FROM zk_fencing.zk_fences'); return; }

# A token has been seen, unless it is 0. One session fences with 7, and the other, whose snapshot is from before that if it
# has an isolation level, with its token, before the first ends in this way, or after it has committed: 'committed'.
# What the other is told
sub race($known, $isolation, $token, $end)
{
	forget();
	$data->value(fence('/t/race', $known)) if $known;
	$s1->query('BEGIN' . ($end eq 'ROLLBACK TO s' ? '; SAVEPOINT s' : ''));
	$s2->query("BEGIN $isolation; SELECT 1");
	$s1->query(fence('/t/race', 7));
	$s1->query('COMMIT') if $end eq 'committed';
	$s2->query_start(fence('/t/race', $token));
	if ($end ne 'committed')
	{
		wait_blocked($s2, $s1);
		$s1->query($end);
	}
	my $result = $s2->result;
	$s2->query($result->{ok} ? 'COMMIT' : 'ROLLBACK');
	$s1->query('COMMIT') if $end eq 'ROLLBACK TO s';
	return $result;
}

foreach my $known (0, 5)
{
	my $path = $known ? 'a known path' : 'a new path';
	foreach my $isolation ('', 'ISOLATION LEVEL REPEATABLE READ', 'ISOLATION LEVEL SERIALIZABLE')
	{
		my $who = 'a session' . ($isolation && " of $isolation");
		subtest "on $path $who passes behind an older token, if it sees that" => sub {
			foreach my $end ('COMMIT', 'committed')
			{
				foreach my $token (6, 7, 8)
				{
					my $passes = !$isolation && $token >= 7;
					my $result = race($known, $isolation, $token, $end);
					is($result->{sqlstate}, $passes ? '00000' : '40001', "token $token, and 7 that ends by $end");
					stale($result, 6, 7, 'the older one is told so') if !$isolation && $token < 7;
					is(token_of('/t/race'), $passes ? $token : 7, 'the highest is kept');
				}
			}
		};

		subtest "on $path $who passes behind any token that is rolled back" => sub {
			foreach my $end ('ROLLBACK', 'ROLLBACK TO s')
			{
				ok(race($known, $isolation, 6, $end)->{ok}, "token 6, and 7 that ends by $end");
				is(token_of('/t/race'), 6, 'which was never seen');
			}
		};
	}
}

subtest 'a newer token does not pass with a snapshot from before the older has committed' => sub {
	# An older holder that has fenced before, with the same token, and now writes: the newer
	# one must not miss that.
	is(race(7, "ISOLATION LEVEL $_", 8, 'committed')->{sqlstate}, '40001', "$_: a snapshot from before the older has committed")
	  foreach 'REPEATABLE READ', 'SERIALIZABLE';
};

subtest 'paths do not wait for each other, and a wait is an ordinary one' => sub {
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
	forget();
	$data->value('CREATE TABLE passed (n serial, token bigint)');
	my @crowd = map { $data->session } 1 .. 8;
	foreach my $i (0 .. $#crowd)
	{
		$crowd[$i]->query_start("DO \$\$
			BEGIN
				FOR own IN 10 + $i .. 1000 + $i BY 10 LOOP
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

subtest 'in a database of its own a path has tokens of its own' => sub {
	$data->value(fence('/t/race', 70));
	$data->value('CREATE DATABASE another');
	$data->session(dbname => 'another')->query('CREATE EXTENSION zklock; ' . fence('/t/race', 100));
	ok($s1->try(fence('/t/race', 71))->{ok}, 'a newer token there is not seen here');
};

subtest 'a hot standby cannot fence, and a promoted one knows the tokens' => sub {
	# One that has never reached ZooKeeper: there is no need to.
	my $standby =
	  Zklock::Server->standby('standby', primary => $data, zookeeper => '127.0.0.1:1', connect => 0);
	fails($standby->session->try(fence('/t/race', 72)), '25006', 'a hot standby cannot fence',
		message => 'cannot execute zk_fence() in a read-only transaction');
	$data->wait_for_catchup($standby->node);
	$standby->promote;
	my $promoted = $standby->session;
	stale($promoted->try(fence('/t/race', 70)), 70, 71, 'a promoted standby knows the tokens');
	ok($promoted->try(fence('/t/race', 72))->{ok}, 'and takes newer ones');
	$standby->stop;
};

$java->stop;
done_clean($zk, $a, $b, $data);
