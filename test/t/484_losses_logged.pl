# Copyright (c) 2026, zklock contributors
#
# When locks are lost, the server log warns, and names the paths and the processes.

use Zklock::Test;

my ($zk, $proxy, $server) = cast('a', proxied => 'a', timeout => '4s');
my $s      = $server->session;
my ($p, $s2) = ($s->pid, $server->session);

# A warning with its DETAIL, which is of several lines.
sub assert_warning
{
	my ($mark, $message, @details) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $detail = join('\n\t', @details);
	$server->assert_log($mark, qr/WARNING:  $message\n.*DETAIL:  $detail\n(?!\t)/, 'the log warns, with names');
	return;
}

subtest "the session ends: two locks and a permit are lost" => sub {
	$s->query("SELECT zk_lock('/l/1'), zk_semaphore_acquire('/l/s', 1)");
	is($s2->query("SELECT zk_lock_shared('/l/2')"), 't', 'another session holds something, too');
	my $mark = $server->log_mark;
	$server->expire_session($zk);
	assert_warning($mark, 'ZooKeeper session ended: session expired',
		'Locks lost: 3\. Waiting requests that queue again: \d+\.',
		map { "Process (?:$p has lost \"/l/(?:1|s/leases)\"|@{[$s2->pid]} has lost \"/l/2\")\\." } 1 .. 3);
	my $logged = $server->log_since($mark);
	foreach my $loss ("$p has lost \"/l/1\"", "$p has lost \"/l/s/leases\"", $s2->pid . ' has lost "/l/2"')
	{
		is(() = $logged =~ /\Q$loss\E/g, 1, "Process $loss, once");
	}
	$_->query('SELECT zk_unlock_all()') foreach $s, $s2;
	$server->wait_session;
};

subtest 'of many losses the first twenty are named' => sub {
	is($s->query("SELECT count(zk_lock('/l/' || i)) FROM generate_series(1, 23) i"), 23, '23 locks are held');
	my $mark = $server->log_mark;
	$server->expire_session($zk);
	assert_warning($mark, 'ZooKeeper session ended: session expired',
		'Locks lost: 23\. Waiting requests that queue again: 0\.',
		("Process $p has lost \"/l/\\d+\"\\.") x 20, 'And 3 more\.');
	$s->query('SELECT zk_unlock_all()');
	$server->wait_session;
};

subtest 'a node is deleted by someone else: its holders are named' => sub {
	is($_->query("SELECT zk_lock_shared('/l/2')"), 't', 'one of two holders') foreach $s, $s2;
	my ($node) = $zk->children('/l/2');
	my $mark = $server->log_mark;
	$zk->shell->delete("/l/2/$node");
	assert_warning($mark, "node \"/l/2/$node\" of lock \"/l/2\" was deleted by someone else",
		'Its holder has lost the lock; waiting sessions queue again\.',
		map { "Process $_ has lost \"/l/2\"\\." } $p, $s2->pid);
	$_->query('SELECT zk_unlock_all()') foreach $s, $s2;
};

subtest 'nothing is proved for too long: what is lost is named' => sub {
	is($s->query("SELECT zk_lock('/l/1')"), 't', 'a lock is held');
	my $mark = $server->log_mark;
	$proxy->cut;
	assert_warning($mark, 'the ZooKeeper session was not proved to be alive for a session timeout',
		'Locks lost: 1\.', "Process $p has lost \"/l/1\"\\.");
	$proxy->heal;
	$s->query('SELECT zk_unlock_all()');
	$server->wait_session;
};

subtest 'a session that ends without locks is no reason to warn' => sub {
	my $mark = $server->log_mark;
	$server->expire_session($zk);
	$server->assert_log($mark, qr/LOG:  ZooKeeper session ended: session expired\n.*DETAIL:  Locks lost: 0\./, 'it is logged');
};

$_->disconnect foreach $s, $s2;
$server->wait_session;
$server->assert_clean($zk, '/l/1', '/l/2');
done_testing;
