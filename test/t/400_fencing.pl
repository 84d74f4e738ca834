# Copyright (c) 2026, zklock contributors
#
# zk_fence() against zombies: holders who have lost their lock, believe they have it, and write.
# With the examples of doc/guarantees.md.

use strict;
use warnings;

use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::JavaWriter;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk = Zklock::ZooKeeper->standalone;
my $a  = Zklock::Server->new('a', zookeeper => $zk);
my $b  = Zklock::Server->new('b', zookeeper => $zk);
# Where the data is: it may be locked from anywhere.
my $data = Zklock::Server->new(
	'data',
	zookeeper        => $zk,
	allows_streaming => 1,
	conf             => ["listen_addresses = '127.0.0.1'"]);
my ($s1, $s2) = map { $data->session } 1, 2;
my $holder = $a->session;
my $next   = $b->session;

sub fence { my ($path, $token) = @_; return "SELECT zk_fence('$path', $token)"; }

# The session waits for the end of another one's transaction.
sub wait_blocked
{
	my ($session, $by) = @_;
	$data->wait_value('SELECT ' . $by->pid . ' = ANY (pg_blocking_pids(' . $session->pid . '))', 't');
	return;
}

my $document = slurp_file(dirname(__FILE__) . '/../../doc/guarantees.md');
my ($section) = $document =~ /^## Fencing\n(.*?)(?:^## |\z)/ms;
my ($local, $trigger, $remote) = $section =~ /^```sql\n(.*?)^```$/msg;
my ($java_class) = $section =~ /^```java\n(.*?)^```$/ms;
my $path = '/pay/lock';
my $balance = 'SELECT balance FROM account WHERE id = 7';

# Runs what stands between BEGIN and COMMIT, up to the first error, and gives its result.
sub run_example
{
	my ($session, $sql) = @_;
	my $last;
	foreach my $statement (split /;.*\n/, $sql)
	{
		$last = $session->try($statement);
		last unless $last->{ok};
	}
	$session->query('ROLLBACK') unless $last->{ok};
	return $last;
}

sub remote_example
{
	my ($token) = @_;
	my $sql = $remote;
	is($sql =~ s/:'token'/'$token'/, 1, 'the example names a token');
	return $sql;
}

$data->value('CREATE TABLE account (id int PRIMARY KEY, balance numeric NOT NULL)');
$data->value('INSERT INTO account VALUES (7, 1000)');
$data->value($trigger);

subtest 'the example for clients elsewhere does no harm without a token' => sub {
	# Pasted as it is, without a token, the example for clients elsewhere must not do harm.
	$data->node->psql('postgres', $remote, on_error_stop => 0, stderr => \my $stderr);
	like($stderr, qr/syntax error at or near ":"/, 'the example without a token fails');
	is($data->value($balance), 1000, 'writes nothing');
	is($data->value("SELECT count(*) FROM zk_fences WHERE path = '$path'"), 0, 'and fences nobody off');
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
	$next->query_start("SELECT zk_lock('$path')");
	$b->wait_waiting($next);
	my ($node) = map { $_->{node} } $a->locks('pid = ' . $holder->pid);
	$zk->shell->delete("$path/$node");
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
	$next->query_start("SELECT zk_lock('$path')");
	$b->wait_waiting($next);
	my ($node) = map { $_->{node} } $data->locks('pid = ' . $s1->pid);
	$zk->shell->delete("$path/$node");
	is($next->finish, 't', 'the next one gets the lock');
	$data->wait_lock($s1, 'lost');
	is($s1->try('UPDATE account SET balance = 0')->{sqlstate}, '40001', 'a lost lock is no token');
	$s1->query('SELECT zk_unlock_all()');
	is($data->value($balance), 600, 'and leaves no trace');
	$next->query("SELECT zk_unlock('$path')");
};

my $user = $data->value('SELECT current_user');
$data->value('CREATE TABLE unfenced (who text)');
my $java = Zklock::JavaWriter->new("
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.zookeeper.data.Stat;

$java_class");
$java->connect($zk->connect_string, 2000,
	'jdbc:postgresql://127.0.0.1:' . $data->port . "/postgres?user=$user");
my $other = $a->session;
my @tokens;

subtest 'tokens of Curator and of sessions are in one order' => sub {
	# Tokens of both worlds are in one order, also among sessions that share a node.
	$holder->query("SELECT zk_lock('$path')");
	push @tokens, $holder->query("SELECT zk_fencing_token('$path')");
	$other->query_start("SELECT zk_lock('$path')");
	$a->wait_waiting($other);
	my $waits = $java->send('acquire', $path);
	wait_until { $zk->children($path) == 2 } 'Curator to queue';
	$holder->query("SELECT zk_unlock('$path')");
	$other->finish;
	push @tokens, $other->query("SELECT zk_fencing_token('$path')");
	is($tokens[1], $tokens[0] + 1, 'two sessions share a node');
	$other->query("SELECT zk_unlock('$path')");
	push @tokens, my $zombie = $java->result($waits);
	my ($node) = $zk->children($path);
	is($zombie, $zk->shell->stat("$path/$node")->{czxid} * 4096 + 1, 'the token of Curator is that of its node');
	ok(run_example($s1, remote_example($tokens[1]))->{ok}, 'the last session before Curator writes');
	is($java->write('UPDATE account SET balance = 400 WHERE id = 7'), 'held 00000', 'Curator writes');
	is(run_example($s1, remote_example($tokens[1]))->{sqlstate}, '40001', 'after it nobody before it does');
};

subtest 'Curator as a zombie believes that it holds the lock, and its late write is refused' => sub {
	# It stands still for longer than its session lives, with writes before it.
	$holder->query_start("SELECT zk_lock('$path')");
	$a->wait_waiting($holder);
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
	push @tokens, $java->acquire($path);
	is($java->write('UPDATE account SET balance = 200 WHERE id = 7'), 'held 00000', 'with the lock again, Curator writes');
	is($data->value($balance), 200, 'indeed');
	$java->release;
	is(scalar(grep { $tokens[$_] <= $tokens[ $_ - 1 ] } 1 .. $#tokens), 0, 'all tokens were in order');
};

$java->stop;
$_->disconnect foreach $s1, $s2, $holder, $next, $other;
Zklock::Server->assert_clean($zk, [ $a, $b, $data ], $path);
done_testing;
