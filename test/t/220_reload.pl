# Copyright (c) 2026, zklock contributors
#
# Settings that change while locks are held and waited for: other servers, another
# chroot, another session timeout. Credentials are in 221_credentials.pl.
#
# While locks are held, a list of servers is taken up at once if it has the one in use and
# resolves, and a session timeout if a lease is possible with it. Both keep the session, and
# with it all locks. What waits until no lock is held is in 470_changed_settings.pl.

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Zklock::Cast qw(:DEFAULT clean scene undisturbed scene_ends);

my $zk = Zklock::ZooKeeper->ensemble(3);
my ($a, $b) = map { Zklock::Server->new($_->[0], zookeeper => $_->[1], conf => ["zklock.session_timeout = '15s'"]) }
  [ 'a', $zk->server(1)->connect_string ], [ 'b', $zk ];

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

	# Two servers, and each time the one in use fails: the other must be tried, and the first
	# again when that fails. (An even number of addresses is where the client library skips
	# half of them.)
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

# Which these are, and that ALTER SYSTEM refuses them, is in 060_settings.pl.
subtest 'an invalid value in the configuration file is logged, and changes nothing' => sub {
	my $worker = $a->worker_pid;
	is(on($a, 'setter')->try("SET zklock.servers = 'localhost:1'")->{sqlstate}, '55P02', 'a session cannot set it');
	my $conf = $a->data_dir . '/postgresql.auto.conf';
	my $good = slurp_file($conf);
	my $mark = $a->log_mark;
	append_to_file($conf, "zklock.servers = 'localhost:99999'\n");
	$a->reload;
	$a->wait_log(qr/invalid value for parameter "zklock.servers": "localhost:99999".*DETAIL:  A port must be a number from 1 to 65535/s, $mark);
	pass('in the configuration file it is logged');
	is($a->value('SHOW zklock.servers'), $zk->connect_string, 'and the old value stays');
	truncate($conf, length $good);
	$a->reload;
	is($a->worker_pid, $worker, 'the worker has not even noticed');
	undisturbed('invalid values');
};

subtest 'the session timeout changes, and the session with its locks stays' => sub {
	is($a->zk_session->{negotiated_timeout}, '00:00:15', 'the session timeout, negotiated');
	foreach my $case ([ '25s', '00:00:25', 'a longer one' ], [ '8s', '00:00:08', 'a shorter one' ],
		[ '1h', '00:01:00', 'one too long, which ZooKeeper limits' ], [ '15s', '00:00:15', 'and back again' ])
	{
		my ($timeout, $negotiated, $what) = @$case;
		$a->reconfigure('zklock.session_timeout' => $timeout);
		is($a->zk_session->{negotiated_timeout}, $negotiated, $what);
		undisturbed($what);
	}
	scene_ends();
	is($a->zk_session->{expirations}, 0, 'nothing has expired');
	ok($s{xact}->try('COMMIT')->{ok}, 'a transaction that has lived through it commits');
	clean($zk, [ $a, $b ]);
};

# Without a lock held the session moves (see 470_changed_settings.pl): the next worker begins another one.

subtest 'another chroot is another world' => sub {
	$zk->shell->create('/missing/root', makepath => 1);
	my $before = $a->session_id;
	$a->set_conf('zklock.servers' => $zk->connect_string('/missing/root'));
	wait_until { ($a->session_id || $before) ne $before } 'another session';
	$a->wait_session;
	$zk->shell->delete('/missing', recursive => 1);
	on($a, 'holder');
	foreach my $call ("zk_lock('/c/root')", "zk_try_lock('/c/root')", "zk_lock('/deep/er/lock')")
	{
		fails($s{holder}->try("SELECT $call"), '58000', "missing chroot: $call fails",
			detail => qr/chroot/, hint => qr/Create the chroot/);
	}
	ok(!$zk->shell->exists('/missing'), 'it is not created silently');
	$zk->shell->create('/missing/root', makepath => 1);
	is($s{holder}->query("SELECT zk_lock('/c/root')"), 't', 'with the chroot there the lock is granted');
	my ($lock) = $a->locks;
	is($lock->{path}, '/c/root', 'its path is shown without the chroot');
	is_deeply([ $zk->children('/missing/root/c/root') ], [ $lock->{node} ], 'its node is below the chroot');
	# Only who has the same chroot competes; the whole path from outside is the same lock.
	is(on($b, 'outsider')->query("SELECT zk_try_lock('/missing/root/c/root')"), 'f', 'the whole path is the same lock');
	wait_until { !$zk->children('/c/root') } 'the nodes of the session before to go';
	is($s{outsider}->query("SELECT zk_try_lock('/c/root')"), 't', 'the same path outside is another one');
	$s{outsider}->query("SELECT zk_unlock('/c/root')");
	queue($b, 'outsider', '/missing/root/c/root');
	is($s{holder}->query("SELECT zk_unlock('/c/root')"), 't', 'unlocked inside');
	is($s{outsider}->finish, 't', 'granted outside');
	queue($a, 'insider', '/c/root');
	$s{outsider}->hands_over('/missing/root/c/root', $s{insider}, 'and the other way round');
	$s{insider}->query("SELECT zk_unlock('/c/root')");
};

done_clean($zk, $a, $b);
