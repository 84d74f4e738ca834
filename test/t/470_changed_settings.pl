# Copyright (c) 2026, zklock contributors
#
# Settings that change while locks are held and could cost the session: they wait until no
# lock is held, and zk_session and the log say so, and why. Then the session ends, and another
# one begins. Whoever does not want to wait terminates the worker, and loses the locks.
#
# What is taken up at once is in 220_reload.pl, TLS in 710_tls.pl.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT clean);
use Zklock::Util qw(secret);

my ($here, $a, $b) = cast('a b', timeout => '10s', zk => { ensemble => 3 });
my $there = Zklock::ZooKeeper->standalone;
my $tick  = $a->value('SHOW zklock.tick_time');

# The session, its worker and its locks, which wait for nothing.
my ($id, $worker, $before);
sub remember
{
	($id, $worker, $before) = ($a->session_id, $a->worker_pid, holdings($a));
	return;
}

sub undisturbed($what)
{
	my $session = $a->zk_session;
	is("$session->{state} $session->{session_id}", "connected $id", "$what: the session goes on");
	is($session->{worker_pid}, $worker, 'in the same worker');
	is_deeply(holdings($a), $before, 'holders hold');
	return;
}

# The settings are changed, and wait.
sub put_off($why, $what, %settings)
{
	my $mark = $a->log_mark;
	$a->set_conf(%settings);
	$a->assert_log($mark, qr/WARNING:  changed settings of zklock wait until no lock is held: .*$why/, "$what: the log tells");
	wait_until { ($a->zk_session->{last_error} || '') =~ /^changed settings wait until no lock is held: .*$why/ }
	'the same in zk_session';
	undisturbed($what);
	is(scalar(() = $a->log_since($mark) =~ /WARNING:  changed settings/g), 1, 'in one warning');
	return $mark;
}

sub moved($what)
{
	wait_until { my $s = $a->zk_session; $s->{state} eq 'connected' && $s->{session_id} ne $id } 'another session';
	$a->wait_session;
	pass($what);
	return;
}

sub auth_file($name, @content) { return secret($a->data_dir . "/$name", @content); }

subtest 'a file with credentials that cannot be used, or may be refused, waits' => sub {
	hold($a, 'holder', '/s/held');
	queue($a, 'local', '/s/held');
	remember();
	put_off(qr/could not use "zklock.auth_file": No such file/, 'no such file', 'zklock.auth_file' => '/no/such');
	unlike($a->zk_session->{last_error}, qr{/no/such}, 'not everybody learns its name');
	foreach my $case (
		[ 'two_lines', "digest:a:b\ndigest:c:d\n", 0600, qr/more than one line/ ],
		[ 'blank_line', "digest:a:b\n\n",          0600, qr/more than one line/ ],
		[ 'long',      'digest:' . 'x' x 600,      0600, qr/line is too long/ ],
		[ 'group',     "digest:a:b\n",             0640, qr/others than its owner/ ],
		[ 'empty',     '',                         0600, qr/empty/ ],
		[ 'zero',      "digest:a\0b\n",           0600, qr/zero byte/ ],
		[ 'no_colon',  "sesame\n",                 0600, qr/scheme:credentials/ ])
	{
		my ($name, $content, $mode, $why) = @$case;
		my $mark = put_off($why, $name, 'zklock.auth_file' => auth_file($name, $content, $mode));
		like($a->log_since($mark), qr/DETAIL:  The file is ".*\/$name"/, 'the log names the file');
	}
	system('mkfifo', '-m', '600', $a->data_dir . '/pipe');
	put_off(qr/not a regular file/, 'a pipe', 'zklock.auth_file' => $a->data_dir . '/pipe');
	my $mark = put_off(qr/ZooKeeper may refuse credentials of another scheme/, 'an unknown scheme',
		'zklock.auth_file' => auth_file('scheme', "nosuchscheme:topsecret\n"));
	unlike($a->log_since($mark), qr/topsecret/, 'the log does not show them');
	is(on($a, 'trier')->query("SELECT zk_try_lock('/s/free') AND zk_unlock('/s/free')"), 't', 'locks are granted as before');
	ok($s{local}->busy, 'who waits goes on waiting');
};

subtest 'servers without the one in use wait, and so does a name that does not resolve' => sub {
	put_off(qr/no server name .* could be resolved/, 'no such name', 'zklock.servers' => 'no-such-host.invalid:2181',
		'zklock.auth_file' => '');
	put_off(qr/does not have the server in use, 127\.0\.0\.1:\d+/, 'a wrong port', 'zklock.servers' => '127.0.0.1:1');
};

subtest 'a tick time with which no lease is possible waits' => sub {
	put_off(qr/tick_time.* 60000 ms/, 'a minute for a tick', 'zklock.tick_time' => '60s',
		'zklock.servers' => $here->connect_string);
	put_off(qr/session timeout of 1000 ms/, 'a session timeout of a second', 'zklock.tick_time' => '600ms', 'zklock.session_timeout' => '1s');
	$a->set_conf('zklock.tick_time' => $tick, 'zklock.session_timeout' => '10s');
};

subtest 'what waits is not taken up by a worker that fails' => sub {
	plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};
	my $c = Zklock::Server->new('c', zookeeper => $here, conf => ["zklock.session_timeout = '20s'"], faults => '');
	hold($c, 'keeper', '/s/kept');
	my ($session, $old, $mark) = ($c->session_id, $c->worker_pid, $c->log_mark);
	$c->set_conf('zklock.servers' => $there->connect_string);
	$c->wait_log(qr/WARNING:  changed settings of zklock wait/, $mark);
	$c->set_conf('zklock.faults' => 'fail-fatally');
	$c->wait_log(qr/\(PID $old\) exited with exit code 1/, $mark);
	$mark = $c->log_mark;
	$c->set_conf('zklock.faults' => '');
	$c->wait_session;
	$c->assert_log($mark, qr/WARNING:  changed settings of zklock wait/, 'the next one tells the same');
	is($c->session_id, $session, 'the session goes on');
	is($s{keeper}->query("SELECT zk_unlock('/s/kept')"), 't', 'and the lock in it');
	(delete $s{keeper})->disconnect;
	wait_until { ($c->session_id || $session) ne $session } 'the session to move then';
	$c->stop;
};

subtest 'settings that have been set right are taken up at a reload' => sub {
	my $good = auth_file('good', "digest:zklock:secret\n");
	$a->reconfigure('zklock.servers' => $here->connect_string . ',127.0.0.1:1', 'zklock.auth_file' => $good);
	$worker = $a->worker_pid;
	undisturbed('one server more, and credentials');
	$s{holder}->hands_over('/s/held', $s{local}, 'after all that the queue goes on');
	all_disconnect();
};

subtest 'another ensemble is taken up when no lock is held any more' => sub {
	hold($a, 'holder', '/m/held');
	hold($b, 'foreigner', '/m/foreign');
	queue($a, 'waiter', '/m/foreign');
	remember();
	put_off(qr/does not have the server in use/, 'another ensemble', 'zklock.servers' => $there->connect_string);
	is(on($a, 'other')->query("SELECT zk_try_lock('/m/other')"), 't', 'locks are granted as before');
	is($s{holder}->query("SELECT zk_unlock('/m/held')"), 't', 'one is released');
	is($a->session_id, $id, 'but another one is still held');
	my $mark = $a->log_mark;
	is($s{other}->query("SELECT zk_unlock('/m/other')"), 't', 'it is released as well');
	is($s{waiter}->finish, 't', 'then the session moves, and who waits gets the lock there, where nobody holds it');
	moved('in another session');
	$a->assert_log($mark, qr/Locks lost: 0\. Waiting requests that queue again: 1\./, 'nothing has been lost');
	is(scalar($there->children('/m/foreign')), 1, 'its node is there');
	wait_until { $here->children('/m/foreign') == 1 } 'the session left to be closed';
	is($s{waiter}->query("SELECT zk_unlock('/m/foreign')"), 't', 'unlocked');
	all_disconnect();
};

subtest 'with no lock held at all it is taken up at once' => sub {
	remember();
	$a->set_conf('zklock.servers' => $here->connect_string);
	moved('in another session');
	is(on($a, 'holder')->query("SELECT zk_try_lock('/m/held')"), 't', 'locks are granted there');
};

subtest 'another chroot is taken up when no lock is held any more' => sub {
	$here->shell->create('/root');
	remember();
	put_off(qr/another chroot/, 'another chroot', 'zklock.servers' => $here->connect_string('/root'));
	is($s{holder}->query("SELECT zk_unlock('/m/held')"), 't', 'the lock is released');
	moved('in another session');
	hold($a, 'holder', '/m/held');
	is(($a->locks)[0]{path}, '/m/held', 'and held again, with a path that is shown without the chroot');
	is(scalar($here->children('/root/m/held')), 1, 'its node is below the chroot');
	is(on($b, 'outsider')->query("SELECT zk_try_lock('/root/m/held')"), 'f', 'the whole path is the same lock');
	is($s{outsider}->query("SELECT zk_try_lock('/m/held') AND zk_unlock('/m/held')"), 't', 'the same path is another');
};

subtest 'a change of mind counts' => sub {
	remember();
	put_off(qr/server in use/, 'another ensemble', 'zklock.servers' => $there->connect_string('/root'));
	$a->set_conf('zklock.servers' => $here->connect_string('/root'));
	wait_until { $a->value('SHOW zklock.servers') eq $here->connect_string('/root') } 'the old value';
	is($s{holder}->query("SELECT zk_unlock('/m/held')"), 't', 'the lock is released');
	hold($a, 'holder', '/m/held');
	is($a->session_id, $id, 'the session has not moved');
};

subtest 'with zklock.acl = creator other credentials wait until no lock is held' => sub {
	$a->reconfigure('zklock.auth_file' => auth_file('first', "digest:first:secret\n"), 'zklock.acl' => 'creator');
	hold($a, 'second', '/m/creator');
	$s{holder}->query("SELECT zk_unlock('/m/held')");
	remember();
	put_off(qr/other credentials may not allow access/, 'others', 'zklock.auth_file' => auth_file('second', "digest:second:secret\n"));
	is($s{second}->query("SELECT zk_unlock('/m/creator')"), 't', 'the lock is released');
	moved('then the session moves');
	$a->set_conf('zklock.acl' => 'open');
	$here->shell->add_auth('digest', 'first:secret');
	$here->shell->delete('/root/m/creator', recursive => 1);
};

subtest 'to terminate the worker is to consent to the loss' => sub {
	hold($a, 'holder', '/m/held');
	in_transaction($a, 'committer', '/m/xact', 'CREATE TABLE t ()');
	remember();
	$there->shell->create('/root');
	my $mark = put_off(qr/server in use/, 'another ensemble', 'zklock.servers' => $there->connect_string('/root'));
	$a->value("SELECT pg_terminate_backend($worker)");
	$a->assert_log($mark, qr/LOG:  zklock takes up changed settings, and loses all locks, as the worker is terminated/, 'the log tells');
	moved('the next worker begins another session');
	is(($a->locks("path = '/m/held'"))[0]{state}, 'lost', 'the lock is lost, and its holder told');
	is($s{committer}->try('COMMIT')->{sqlstate}, '40001', 'a transaction that relied on one fails at commit');
	is($s{holder}->query("SELECT zk_unlock('/m/held')"), 'f', 'there is nothing to unlock');
	is(scalar($here->children('/root/m/held')), 0, 'none is left behind');
	hold($a, 'holder', '/m/held');
	is(scalar($there->children('/root/m/held')), 1, 'and locks are held there');
};

subtest 'while locks come and go all the time, none is lost' => sub {
	$a->value('CREATE PROCEDURE churn(path text) LANGUAGE plpgsql AS $$ BEGIN
		WHILE NOT EXISTS (SELECT FROM stop) LOOP PERFORM zk_lock(path); PERFORM zk_unlock(path); COMMIT; END LOOP; END $$');
	$a->value('CREATE TABLE stop ()');
	on($a, "churn$_")->query_start("CALL churn('/m/churn$_')") foreach 1 .. 8;
	# The lock that is held meanwhile keeps the session where it is.
	remember();
	foreach my $i (1 .. 3)
	{
		my $list = join(',', ($there->connect_string) x $i);
		my $old  = $a->worker_pid;
		$a->set_conf('zklock.servers' => "$list,127.0.0.1:1/root");
		$a->wait_new_worker($old);
		$a->wait_session;
		is($a->session_id, $id, "list $i with the server in use is taken up");
	}
	$a->value('INSERT INTO stop DEFAULT VALUES');
	foreach (1 .. 8)
	{
		my $result = $s{"churn$_"}->result;
		ok($result->{ok}, "no lock of session $_ was lost") or diag explain $result;
	}
};

clean($there, [$a]);
done_clean($here, $a, $b);
