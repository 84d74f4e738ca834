# Copyright (c) 2026, zklock contributors
#
# Settings that change while locks are held and waited for: other servers, another session timeout, and credentials.
#
# Here the worker is terminated to have them taken up, which keeps the session, and with it all locks, if ZooKeeper
# continues that. That they wait otherwise is in settings/changed_settings.pl.
#
# The file with credentials is read for each connection. They are shown to ZooKeeper alone: not to the log, whatever its
# level, nor to any view.

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Zklock::Cast qw(:DEFAULT clean scene undisturbed scene_ends);
use Zklock::Shell;
use Zklock::Util qw(secret);

my $zk = Zklock::ZooKeeper->ensemble(3);
my @conf = ("zklock.session_timeout = '15s'");
my $b    = Zklock::Server->new('b', zookeeper => $zk, conf => \@conf);
push @conf, 'log_min_messages = debug5';
my $a = Zklock::Server->new('a', zookeeper => $zk->server(1)->connect_string, conf => \@conf);

subtest 'other addresses of the same ensemble change nothing' => sub {
	in_transaction($a, 'xact', '/c/xact');
	scene($a, $b, '/c');

	is($a->zk_session->{server}, $zk->server(1)->connect_string, 'connected to the first server');
	$a->reconfigure('zklock.servers' => join(', ', map { $zk->server($_)->connect_string } 1, 2));
	undisturbed('a list that still has the server in use');
	$zk->server(1)->stop;
	wait_until { ($a->zk_session->{server} || '') eq $zk->server(2)->connect_string } 'a connection to the second server';
	$zk->server(1)->start;
	$a->reconfigure('zklock.servers' => $zk->server(2)->connect_string);
	is($a->zk_session->{server}, $zk->server(2)->connect_string, 'the second server alone, when it is in use');
	undisturbed('another server of the ensemble');

	# Two servers, and each time the one in use fails: the other must be tried, and the first again when that fails.
	# (An even number of addresses is where the client library skips half of them.)
	$a->reconfigure('zklock.servers' => join(', ', map { $zk->server($_)->connect_string } 1, 2));
	undisturbed('a list of two');
	foreach my $i (1 .. 4)
	{
		my $in_use = $a->zk_session->{server};
		my ($server) = grep { $_->connect_string eq $in_use } $zk->servers;
		$server->stop;
		my $now = '';
		wait_until {
			my $row = $a->zk_session;
			$now = $row->{server} || '';
			$row->{state} eq 'connected' && $now ne $in_use;
		} 'a connection to the other server';
		$server->start;
		isnt($now, $in_use, "failure $i of the server in use: it goes on with the other");
	}
	undisturbed('servers that fail');
};

subtest 'host names do as well as addresses, and one that does not resolve does no harm among others' => sub {
	$a->reconfigure('zklock.servers' => 'no-such-host.invalid:1,' . $zk->connect_string);
	undisturbed('a name that does not resolve among others');
	my ($in_use) = grep { $_->connect_string eq $a->zk_session->{server} } $zk->servers;
	$a->reconfigure('zklock.servers' => 'localhost:' . $in_use->port);
	undisturbed('a host name');
	$a->reconfigure('zklock.servers' => $zk->connect_string);
	undisturbed('all servers');
};

# Which these are, and that ALTER SYSTEM refuses them, is in sql/settings.sql.
subtest 'an invalid value in the configuration file is logged, and changes nothing' => sub {
	my $worker = $a->worker_pid;
	is(on($a, 'setter')->try("SET zklock.servers = 'localhost:1'")->{sqlstate}, '55P02', 'a session cannot set it');
	my $conf = $a->data_dir . '/postgresql.auto.conf';
	my $good = slurp_file($conf);
	my $mark = $a->log_mark;
	append_to_file($conf, "zklock.servers = 'localhost:99999'\n");
	$a->reload;
	$a->wait_log(qr/invalid value for parameter "zklock.servers": "localhost:99999".*DETAIL:  A port must be a number from 1 to 65535/s, $mark);
	is($a->value('SHOW zklock.servers'), $zk->connect_string, 'and the old value stays');
	truncate($conf, length $good);
	$a->reload;
	is($a->worker_pid, $worker, 'the worker has not even noticed');
	undisturbed('invalid values');
};

subtest 'the session timeout changes, and the session with its locks stays' => sub {
	my $is = sub ($timeout, $name) { is($a->value("SELECT negotiated_timeout = '$timeout' FROM zk_session"), 't', $name); };
	$is->(scaled('15s'), 'the session timeout, negotiated');
	foreach my $case ([ scaled('25s'), 'a longer one' ], [ scaled('8s'), 'a shorter one' ],
		[ '1h', 'one too long, which ZooKeeper limits', scaled('60s') ], [ scaled('15s'), 'and back again' ])
	{
		my ($timeout, $what, $negotiated) = @$case;
		$a->reconfigure('zklock.session_timeout' => $timeout);
		$is->($negotiated // $timeout, $what);
		undisturbed($what);
	}
	scene_ends();
	is($a->zk_session->{expirations}, 0, 'nothing has expired');
	ok($s{xact}->try('COMMIT')->{ok}, 'a transaction that has lived through it commits');
	clean($zk, [ $a, $b ]);
};

# ---- credentials

my $secret = 'S3cretOfTheTest';
my ($id, $client);

# A test: who has shown no credentials lacks the right to call this.
sub denied($name, $call, $path) { return ok(!eval { $zk->shell->$call($path); 1 } && $@ =~ /NoAuth/, $name); }

# Whoever has shown these credentials
sub client_of($credentials)
{
	my $client = Zklock::Shell->new;
	$client->connect($zk->connect_string);
	$client->add_auth('digest', $credentials);
	return $client;
}

subtest 'credentials are taken up in the session, and protect the nodes' => sub {
	hold($a, 'kept', '/c/kept');
	$id = $a->session_id;
	$a->reconfigure(
		'zklock.auth_file' => secret($a->data_dir . '/auth', "digest:zklock:$secret\n"),
		'zklock.acl'       => 'creator');
	is($a->session_id, $id, 'with credentials the session goes on');
	is($s{kept}->query("SELECT zk_fencing_token('/c/kept') > 0"), 't', 'and its locks');
	hold($a, 'holder', '/c/creator/lock');
	denied('who is without credentials cannot even see the nodes', ls => '/c/creator/lock');

	$client = client_of("zklock:$secret");
	my ($node) = @{ $client->ls('/c/creator/lock') };
	is($node, ($a->locks("path = '/c/creator/lock'"))[0]{node}, 'one with the credentials sees it');
	denied('one without cannot delete it', delete => "/c/creator/lock/$node");
	denied('nor read it', get => "/c/creator/lock/$node");
	is(on($b, 'stranger')->try("SELECT zk_lock('/c/creator/lock')")->{sqlstate},
		'42501', 'a server without credentials is refused');
};

subtest 'a node in an open path is protected, too, and respected by those who cannot read it' => sub {
	# In a path that is open the nodes have that ACL all the same; others respect them.
	$zk->shell->create('/c/open');
	hold($a, 'open', '/c/open');
	denied('a node in an open path cannot be read', get => '/c/open/' . ($zk->children('/c/open'))[0]);
	queue($b, 'stranger', '/c/open');
	ok($s{stranger}->busy, 'who cannot read it waits');
	is($s{open}->query("SELECT zk_unlock('/c/open')"), 't', 'unlocked');
	is($s{stranger}->finish, 't', 'and gets the lock afterwards');
	$s{stranger}->query("SELECT zk_unlock('/c/open')");
};

subtest 'credentials are shown again on every connection' => sub {
	my $before = $a->zk_session;
	my ($server) = grep { $_->connect_string eq $before->{server} } $zk->servers;
	$server->restart;
	$a->wait_value("SELECT state = 'connected' AND reconnects > $before->{reconnects} FROM zk_session", 't');
	$a->wait_session;
	is($s{holder}->query("SELECT zk_unlock('/c/creator/lock')"), 't', 'on a new connection the node can be deleted');
	wait_until { !@{ $client->ls('/c/creator/lock') } } 'the node to be gone';
	hold($a, 'holder', '/c/creator/lock');
	is($s{holder}->query("SELECT zk_unlock('/c/creator/lock')"), 't', 'and another one made');
};

# The connection is lost, and there is another one.
sub reconnected($change)
{
	my $before = $a->zk_session;
	my ($server) = grep { $_->connect_string eq $before->{server} } $zk->servers;
	$change->();
	$server->restart;
	wait_until { my $now = $a->zk_session; $now->{state} eq 'connected' && $now->{connected_since} gt $before->{connected_since} } 'another connection';
	$a->wait_session;
	is($a->session_id, $id, 'the session goes on');
	return;
}

subtest 'the file is read for each connection' => sub {
	my $other = client_of("zklock:Another$secret");
	my $mark  = $a->log_mark;
	reconnected(sub { secret($a->data_dir . '/auth', "digest:zklock:Another$secret\n"); });
	like($a->log_since($mark), qr/LOG:  zklock worker restarts because of changed credentials/, 'by another worker');
	$zk->shell->create('/c/other');
	hold($a, 'holder', '/c/other');
	# The clients may read from a server that knows of the node a moment later.
	my $node = sub { return '/c/other/' . $a->value(q{SELECT node FROM zk_locks WHERE path = '/c/other'}) };
	wait_until { eval { $other->get($node->()); 1 } } 'other credentials to be shown on the next connection';
	ok(!eval { $client->get($node->()); 1 }, 'and no longer those that were there before');
	is($s{holder}->query("SELECT zk_unlock('/c/other')"), 't', 'unlocked');

	my $worker = $a->worker_pid;
	$mark = $a->log_mark;
	reconnected(sub { secret($a->data_dir . '/auth', "digest:zklock:$secret\n", 0640); });
	$a->assert_log($mark, qr/LOG:  could not use "zklock.auth_file": others than its owner may access it/, 'one that cannot be used is logged');
	is($a->worker_pid, $worker, 'the worker stays');
	hold($a, 'holder', '/c/other');
	wait_until { eval { $other->get($node->()); 1 } } 'the credentials that were read before to be shown';
	is($s{holder}->query("SELECT zk_unlock('/c/other')"), 't', 'unlocked');
	reconnected(sub { chmod 0600, $a->data_dir . '/auth'; });
	$zk->shell->delete('/c/other');
	$other->stop;
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
	my $c    = Zklock::Server->new('c', zookeeper => $zk, connect => 0, conf => [ "zklock.auth_file = '$file'", "zklock.session_timeout = '6s'" ]);
	$c->wait_session('down');
	$c->wait_log(qr/LOG:  could not use "zklock.auth_file": No such file.*\n.*DETAIL:  The file is "\Q$file\E"/, 0);
	like($c->zk_session->{last_error}, qr/"zklock\.auth_file": No such file/, 'zk_session says what is wrong');
	my $result = on($c, 'asker')->try("SELECT zk_try_lock('/c/free')");
	like($result->{detail} || '', qr/No such file/, 'so does an error');
	unlike("$result->{error} $result->{detail}", qr/\Q$file\E/, 'which does not tell the file, as anybody may get it');
	my @at;
	wait_until {
		@at = map { /(\d+):(\d+):(\S+)/; $1 * 3600 + $2 * 60 + $3 }
		  $c->log_since(0) =~ /^\S+ (\S+) .* LOG:  could not use "zklock.auth_file"/mg;
		@at >= 4;
	} 'four attempts';
	# Half a second, one, two.
	cmp_ok(($at[3] - $at[0]) % 86400, '>=', 3, 'it is tried again later and later');
	foreach my $case (
		[ qr/more than one line/, "digest:a:b\ndigest:c:d\n" ],
		[ qr/more than one line/, "digest:a:b\n\n" ],
		[ qr/line is too long/,   'digest:' . 'x' x 600 ],
		[ qr/others than its owner/, "digest:a:b\n", 0640 ],
		[ qr/empty/,              '' ],
		[ qr/zero byte/,          "digest:a\0b\n" ],
		[ qr/scheme:credentials/, "sesame\n" ])
	{
		my ($why, @content) = @$case;
		secret($file, @content);
		wait_until { $c->zk_session->{last_error} =~ /could not use "zklock.auth_file": .*$why/ } "zk_session to say why: $why";
	}
	unlink $file;
	system('mkfifo', '-m', '600', $file);
	wait_until { $c->zk_session->{last_error} =~ /not a regular file/ } 'zk_session to say that it is a pipe';
	unlink $file;
	secret($file, "digest:zklock:$secret\n");
	$c->wait_session;
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
