# Copyright (c) 2026, zklock contributors
#
# Credentials that change while locks are held and waited for.
#
# They are shown to ZooKeeper alone: not to the log, whatever its level, nor to any view.

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Zklock::Cast;
use Zklock::Shell;
use Zklock::Util qw(secret);

my ($zk, $a, $b) = cast('a b', zk => { ensemble => 3 }, timeout => '15s', a => { conf => ['log_min_messages = debug5'] });

my $secret = 'S3cretOfTheTest';
my ($id, $client);

subtest 'credentials are taken up in the session, and protect the nodes' => sub {
	hold($a, 'kept', '/c/kept');
	$id = $a->session_id;
	$a->reconfigure(
		'zklock.auth_file' => secret($a->data_dir . '/auth', "digest:zklock:$secret\n"),
		'zklock.acl'       => 'creator');
	is($a->session_id, $id, 'with credentials the session goes on');
	is($s{kept}->query("SELECT zk_fencing_token('/c/kept') > 0"), 't', 'and its locks');
	hold($a, 'holder', '/c/creator/lock');
	ok(!eval { $zk->shell->ls('/c/creator/lock'); 1 }, 'who is without credentials cannot even see the nodes');
	like($@, qr/NoAuth/, 'for lack of rights');

	$client = Zklock::Shell->new;
	$client->connect($zk->connect_string);
	$client->add_auth('digest', "zklock:$secret");
	my ($node) = @{ $client->ls('/c/creator/lock') };
	is($node, ($a->locks("path = '/c/creator/lock'"))[0]{node}, 'one with the credentials sees it');
	ok(!eval { $zk->shell->delete("/c/creator/lock/$node"); 1 }, 'one without cannot delete it');
	like($@, qr/NoAuth/, 'for lack of rights');
	ok(!eval { $zk->shell->get("/c/creator/lock/$node"); 1 }, 'nor read it');
	is(on($b, 'stranger')->try("SELECT zk_lock('/c/creator/lock')")->{sqlstate},
		'42501', 'a server without credentials is refused');
};

subtest 'a node in an open path is protected, too, and respected by those who cannot read it' => sub {
	# In a path that is open the nodes have that ACL all the same; others respect them.
	$zk->shell->create('/c/open');
	hold($a, 'open', '/c/open');
	ok(!eval { $zk->shell->get('/c/open/' . ($zk->children('/c/open'))[0]); 1 }, 'a node in an open path cannot be read');
	queue($b, 'stranger', '/c/open');
	ok($s{stranger}->busy, 'who cannot read it waits');
	is($s{open}->query("SELECT zk_unlock('/c/open')"), 't', 'unlocked');
	is($s{stranger}->finish, 't', 'and gets the lock afterwards');
	$s{stranger}->query("SELECT zk_unlock('/c/open')");
};

subtest 'credentials are shown again on every connection' => sub {
	my $used = $a->zk_session->{server};
	my ($server) = grep { $_->connect_string eq $used } $zk->servers;
	$server->restart;
	wait_until { my $row = $a->zk_session; $row->{state} eq 'connected' && $row->{reconnects} > 0 } 'a new connection';
	$a->wait_session;
	is($s{holder}->query("SELECT zk_unlock('/c/creator/lock')"), 't', 'on a new connection the node can be deleted');
	wait_until { !@{ $client->ls('/c/creator/lock') } } 'the node to be gone';
	hold($a, 'holder', '/c/creator/lock');
	is($s{holder}->query("SELECT zk_unlock('/c/creator/lock')"), 't', 'and another one made');
};

subtest 'two servers with the same credentials share a lock' => sub {
	my $file_b = secret($b->data_dir . '/auth', "digest:zklock:$secret");    # without a newline at the end
	hold($b, 'kept_b', '/c/kept_b');
	$b->reconfigure('zklock.auth_file' => $file_b, 'zklock.acl' => 'creator');
	$s{kept_b}->query("SELECT zk_unlock('/c/kept_b')");
	hold($a, 'holder', '/c/creator/lock');
	queue($b, 'stranger', '/c/creator/lock');
	$s{holder}->hands_over('/c/creator/lock', $s{stranger}, 'two servers with the same credentials share a lock');
	$s{stranger}->query("SELECT zk_unlock('/c/creator/lock')");

	is($a->session_id, $id, 'all in one session');
	is($s{kept}->query("SELECT zk_unlock('/c/kept')"), 't', 'and the lock is still held at last');
};

subtest 'a file that cannot be used at the start is read when it has been set right' => sub {
	my $file = $a->data_dir . '/missing';
	my $c    = Zklock::Server->new('c', zookeeper => $zk, connect => 0, conf => ["zklock.auth_file = '$file'"]);
	$c->wait_session('down');
	$c->wait_log(qr/LOG:  could not use "zklock.auth_file": No such file.*\n.*DETAIL:  The file is "\Q$file\E"/, 0);
	like($c->zk_session->{last_error}, qr/"zklock\.auth_file": No such file/, 'zk_session says what is wrong');
	my $result = on($c, 'asker')->try("SELECT zk_try_lock('/c/free')");
	like($result->{detail} || '', qr/No such file/, 'so does an error');
	unlike("$result->{error} $result->{detail}", qr/\Q$file\E/, 'which does not tell the file, since anybody may get it');
	my @at;
	wait_until {
		@at = map { /(\d+):(\d+):(\S+)/; $1 * 3600 + $2 * 60 + $3 } $c->log_since(0) =~ /^\S+ (\S+) .* LOG:  could not use "zklock.auth_file"/mg;
		@at >= 4;
	} 'four attempts';
	# Half a second, one, two.
	cmp_ok(($at[3] - $at[0]) % 86400, '>=', 3, 'it is tried again later and later');
	secret($file, "digest:zklock:$secret\n");
	$c->wait_session;
	pass('a file that has been set right is used');
	(delete $s{asker})->disconnect;
	$c->stop;
};

subtest 'no view and no log has the credentials' => sub {
	foreach my $server ($a, $b)
	{
		unlike(slurp_file($server->logfile), qr/\Q$secret\E/, 'the log of ' . $server->name . ' does not have them');
		foreach my $sql ('SELECT * FROM zk_session', 'SELECT * FROM zk_locks', 'SELECT * FROM pg_stat_activity',
			'SELECT * FROM pg_settings')
		{
			# The harness's own statements do not mention them.
			unlike($server->value($sql), qr/\Q$secret\E/, $server->name . ": nor has $sql");
		}
	}
	like(slurp_file($a->logfile), qr/DEBUG:  .*ZooKeeper client/, 'though the log tells all else');
};

all_disconnect();
is_deeply($client->ls('/c/creator/lock'), [], 'no node is left in the protected path');
$client->delete('/c/creator', recursive => 1);
$client->stop;
done_clean($zk, $a, $b);
