# Copyright (c) 2026, zklock contributors
#
# A changed setting waits until no lock is held, whatever it is; zk_session and the log say so. Then the worker restarts,
# and the next one goes on with it, and with the session if ZooKeeper continues that. Whoever does not want to wait
# terminates the worker.
#
# What the settings do is in settings/reload.pl, TLS in settings/tls.pl; both have files that change while their names stay.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT clean);

my ($here, $a, $b) = cast('a b', conf => ['zklock.session_timeout = 30000'], zk => { ensemble => 3 });
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

# The settings are changed, and wait; of these names.
sub put_off($names, %settings)
{
	my $mark = $a->log_mark;
	my $list = join(', ', map { qq("zklock.$_") } split ' ', $names);
	$a->set_conf(map { ("zklock.$_", $settings{$_}) } keys %settings);
	$a->assert_log($mark, qr/WARNING:  changed settings of zklock wait until no lock is held: $list$/m, "$names: the log says so");
	$a->assert_log($mark, qr/DETAIL:  Sessions of this server hold \d+ locks?\.$/m, 'and how many are held');
	wait_until { ($a->zk_session->{last_error} || '') eq "changed settings wait until no lock is held: $list" } 'zk_session to say so';
	undisturbed($names);
	is(scalar(() = $a->log_since($mark) =~ /WARNING:  changed settings/g), 1, 'in one warning');
	return $mark;
}

# What was set is taken up, in the same session or another one.
sub taken_up($mark, $what)
{
	$a->wait_log(qr/LOG:  zklock worker restarts because of changed settings: "zklock/, $mark);
	$a->wait_new_worker($worker);
	$a->wait_session;
	return pass($what);
}

sub continued { return is($a->session_id, $id, 'in the same session'); }
sub another   { return isnt($a->session_id, $id, 'in another session'); }

# Each setting, with another value and the one that it had
my %changes = (
	servers         => [ $here->connect_string . ',127.0.0.1:1', $here->connect_string ],
	session_timeout => [ '45s',                                  '30s' ],
	tick_time       => [ '1min',                                 $tick ],
	auth_file       => [ '/no/such/file',                        '' ],
	acl             => [ 'creator',                              'open' ],
	tls_ca_file     => [ '/no/such/file',                        '' ],
	tls_cert_file   => [ '/no/such/file',                        '' ],
	tls_key_file    => [ '/no/such/file',                        '' ]);

subtest 'whatever is changed waits while a lock is held' => sub {
	hold($a, 'holder', '/s/held');
	queue($a, 'local', '/s/held');
	remember();
	my %back;
	foreach my $name (sort keys %changes)
	{
		put_off($name, %back, $name => $changes{$name}[0]);
		%back = ($name => $changes{$name}[1]);
	}
	put_off('servers session_timeout tick_time auth_file acl tls_ca_file tls_cert_file tls_key_file',
		map { ($_, $changes{$_}[0]) } keys %changes);
	$a->set_conf(map { ("zklock.$_", $changes{$_}[1]) } keys %changes);
	is(on($a, 'trier')->query("SELECT zk_try_lock('/s/free') AND zk_unlock('/s/free')"), 't', 'locks are granted as before');
	ok($s{local}->busy, 'who waits goes on waiting');
	$s{holder}->hands_over('/s/held', $s{local}, 'after all that the queue goes on');
	all_disconnect();
};

subtest 'what waits is taken up when the last lock is released, in the same session' => sub {
	$a->set_conf('zklock.elections' => '/m/leader');
	$a->wait_value('SELECT is_leader FROM zk_elections', 't');
	my $term = $a->value('SELECT term FROM zk_elections');
	hold($a, 'holder', '/m/held');
	hold($b, 'foreigner', '/m/foreign');
	queue($a, 'waiter', '/m/foreign');
	my $place = $a->wait_queued($s{waiter}, '/m/foreign')->{node};
	remember();
	put_off('servers session_timeout', servers => $here->connect_string . ',127.0.0.1:1', session_timeout => '35s');
	hold($a, 'other', '/m/other');
	is($s{holder}->query("SELECT zk_unlock('/m/held')"), 't', 'one lock is released');
	is($a->worker_pid, $worker, 'but another one is still held');
	my $mark = $a->log_mark;
	is($s{other}->query("SELECT zk_unlock('/m/other')"), 't', 'it is released as well');
	taken_up($mark, 'then it is taken up');
	continued();
	is($a->zk_session->{negotiated_timeout}, '00:00:35', 'the new timeout is in force');
	is(($a->locks("path = '/m/foreign'"))[0]{node}, $place, 'who waits has kept its place');
	is($a->value('SELECT term FROM zk_elections WHERE is_leader'), $term, 'and who leads its term');
	$s{foreigner}->hands_over('/m/foreign', $s{waiter}, 'the queue goes on');
	$a->set_conf('zklock.elections' => '');
	all_disconnect();
	wait_until { ($a->session_id // $id) ne $id } 'another session, for the longer timeout';
	$a->wait_session;
};

subtest 'with no lock held at all it is taken up at once' => sub {
	remember();
	my $mark = $a->log_mark;
	$a->set_conf('zklock.servers' => $here->connect_string);
	taken_up($mark, 'one server less');
	continued();
	unlike($a->log_since($mark), qr/WARNING/, 'nothing waits');
};

subtest 'who waits, and has told others so, keeps nothing from being taken up' => sub {
	# The other server leaves it to this one to create the node of such records.
	$b->set_conf(deadlock_timeout => '1h');
	wait_until { !$here->children('/zklock-waits') } 'earlier records to be gone';
	eval { $here->shell->delete('/zklock-waits') };
	is(on($b, 'foreigner')->query("SELECT zk_lock_shared('/m/foreign')"), 't', 'another server reads');
	queue($a, 'waiter', '/m/foreign');
	$a->wait_queued($s{waiter}, '/m/foreign');
	# It matters to others since it stands between readers.
	on($b, 'reader')->start_waiting("SELECT zk_lock_shared('/m/foreign')", '/m/foreign');
	wait_until { $here->children('/zklock-waits') } 'its record';
	remember();
	my $mark = $a->log_mark;
	$a->set_conf('zklock.servers' => $here->connect_string . ',127.0.0.1:1');
	taken_up($mark, 'though it waits');
	continued();
	$a->set_conf('zklock.servers' => $here->connect_string);
	is($s{foreigner}->query("SELECT zk_unlock_shared('/m/foreign')"), 't', 'the other reads no more');
	is($s{waiter}->finish, 't', 'it has its turn');
	all_disconnect();
	$b->set_conf(deadlock_timeout => '1s');
};

subtest 'a reload that changes nothing leaves nothing in memory' => sub {
	plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};
	my $c = Zklock::Server->new('memory', zookeeper => $here, faults => '');
	my $used = sub {
		my $mark = $c->log_mark;
		$c->value('SELECT pg_log_backend_memory_contexts(' . $c->worker_pid . ')');
		$c->wait_log(qr/Grand total/, $mark);
		return $c->log_since($mark) =~ /zklock worker: .* (\d+) used/ ? $1 : undef;
	};
	# The worker logs that it has taken them up.
	my $reload = sub { $c->set_faults($_ % 2 ? 'near' : '') foreach 1 .. 20; return; };
	$reload->();
	my $before = $used->();
	$reload->();
	# A request that is under way takes some, too.
	wait_until { $used->() <= $before } 'the worker to use no more than before';
	pass('the worker uses as much as before');
	$c->stop;
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
	$c->assert_log($mark, qr/WARNING:  changed settings of zklock wait/, 'the next one says the same');
	is($c->session_id, $session, 'the session goes on');
	is($s{keeper}->query("SELECT zk_unlock('/s/kept')"), 't', 'and the lock in it');
	(delete $s{keeper})->disconnect;
	wait_until { ($c->session_id || $session) ne $session } 'another session, of the other server';
	$c->stop;
};

subtest 'what waits is not taken up while a call that was given up may still change something' => sub {
	my $proxy = Zklock::Proxy->start($here->server(1));
	my $c     = Zklock::Server->new('d', zookeeper => $proxy, conf => ["zklock.session_timeout = '30s'"]);
	my ($caller, $old, $mark) = ($c->session, $c->worker_pid, $c->log_mark);
	my $restarts = qr/zklock worker restarts because of changed settings/;
	# Its node is to be deleted again. A worker that ends before the answer does not know of it.
	$proxy->hold_reply_of($caller, "SELECT zk_queue_offer('/gone/queue', 'x')", op => 'createContainer', path => '^/gone$');
	is($caller->cancelled, '57014', 'a session gives up');
	$here->shell->create('/elsewhere');
	$c->set_conf('zklock.servers' => $proxy->connect_string('/elsewhere'));
	# The worker has looked whether it may by then.
	my $beats = $proxy->counts->{multi} || 0;
	wait_until { $c->log_since($mark) =~ $restarts || ($proxy->counts->{multi} || 0) > $beats + 1 } 'heartbeats';
	unlike($c->log_since($mark), $restarts, 'nothing is taken up before the answer');
	$proxy->heal;
	$c->wait_log($restarts, $mark);
	ok(!$here->shell->exists('/gone'), 'then it is, and the node is gone');
	$c->wait_new_worker($old);
	$c->stop;
};

subtest 'another ensemble does not continue the session' => sub {
	hold($a, 'holder', '/m/held');
	hold($b, 'foreigner', '/m/foreign');
	queue($a, 'waiter', '/m/foreign');
	remember();
	put_off('servers', servers => $there->connect_string);
	my $mark = $a->log_mark;
	is($s{holder}->query("SELECT zk_unlock('/m/held')"), 't', 'the lock is released');
	is($s{waiter}->finish, 't', 'who waits gets the lock there, where nobody holds it');
	taken_up($mark, 'it is taken up');
	another();
	$a->assert_log($mark, qr/Locks lost: 0\. Waiting requests that queue again: 1\./, 'nothing has been lost');
	is(scalar($there->children('/m/foreign')), 1, 'its node is there');
	wait_until { $here->children('/m/foreign') == 1 } 'the session left to end';
	is($s{waiter}->query("SELECT zk_unlock('/m/foreign')"), 't', 'unlocked');
	all_disconnect();
	remember();
	$mark = $a->log_mark;
	$a->set_conf('zklock.servers' => $here->connect_string);
	taken_up($mark, 'and back');
	another();
};

subtest 'another chroot ends the session' => sub {
	$here->shell->create('/root');
	hold($a, 'holder', '/m/held');
	hold($b, 'foreigner', '/m/foreign');
	queue($a, 'waiter', '/m/foreign');
	remember();
	my $mark = put_off('servers', servers => $here->connect_string('/root'));
	is($s{holder}->query("SELECT zk_unlock('/m/held')"), 't', 'the lock is released');
	is($s{waiter}->finish, 't', 'who waits gets the lock below the chroot');
	taken_up($mark, 'it is taken up');
	another();
	is(scalar($here->children('/m/foreign')), 1, 'of what was there nothing is left');
	hold($a, 'holder', '/m/held');
	is(($a->locks("path = '/m/held'"))[0]{path}, '/m/held', 'a lock is held again, with a path that is shown without the chroot');
	is(scalar($here->children('/root/m/held')), 1, 'its node is below the chroot');
	is(on($b, 'outsider')->query("SELECT zk_try_lock('/root/m/held')"), 'f', 'the whole path is the same lock');
	is($s{outsider}->query("SELECT zk_try_lock('/m/held') AND zk_unlock('/m/held')"), 't', 'the same path is another');
	$s{waiter}->query("SELECT zk_unlock('/m/foreign')");
};

subtest 'a change of mind counts' => sub {
	remember();
	put_off('servers', servers => $there->connect_string('/root'));
	$a->set_conf('zklock.servers' => $here->connect_string('/root'));
	wait_until { $a->value('SHOW zklock.servers') eq $here->connect_string('/root') } 'the old value';
	is($s{holder}->query("SELECT zk_unlock('/m/held')"), 't', 'the lock is released');
	hold($a, 'holder', '/m/held');
	is($a->worker_pid, $worker, 'nothing is taken up');
};

subtest 'to terminate the worker takes settings up now, and keeps the locks if the session is continued' => sub {
	in_transaction($a, 'committer', '/m/xact', 'CREATE TABLE t ()');
	queue($b, 'behind', '/root/m/held');
	remember();
	my $mark = put_off('servers session_timeout', servers => $here->connect_string('/root') =~ s/,/,127.0.0.1:1,/r, session_timeout => '32s');
	$a->value("SELECT pg_terminate_backend($worker)");
	taken_up($mark, 'it is taken up');
	continued();
	is($a->zk_session->{negotiated_timeout}, '00:00:32', 'the new timeout is in force');
	is_deeply(holdings($a), $before, 'holders hold');
	ok($s{committer}->try('COMMIT')->{ok}, 'a transaction that relied on one commits');
	ok($s{behind}->busy, 'others wait');
	is($s{holder}->query("SELECT zk_unlock('/m/held')"), 't', 'until it is released');
	is($s{behind}->finish, 't', 'and get it');
	$s{behind}->query('SELECT zk_unlock_all()');
};

subtest 'what has been set just before it is terminated is taken up as well' => sub {
	hold($a, 'holder', '/m/held');
	remember();
	my $mark = $a->log_mark;
	# No signal has told the worker of it.
	$a->value("ALTER SYSTEM SET zklock.session_timeout = '30s'");
	$a->value("SELECT pg_terminate_backend($worker)");
	$a->wait_log(qr/LOG:  zklock worker restarts because of changed settings: "zklock.session_timeout"$/m, $mark);
	$a->reload;
	$a->wait_new_worker($worker);
	$a->wait_session;
	continued();
	is($a->zk_session->{negotiated_timeout}, '00:00:30', 'the new timeout is in force');
	is_deeply(holdings($a), $before, 'holders hold');
};

foreach my $case ([ 'another chroot', sub { $here->connect_string }, $here ], [ 'another ensemble', sub { $there->connect_string }, $there ])
{
	my ($what, $servers, $zk) = @$case;
	subtest "if the session is not continued they are lost, and never silently: $what" => sub {
		hold($a, 'holder', '/m/held') unless $a->lock_count("path = '/m/held'");
		in_transaction($a, 'committer', '/m/xact', 'CREATE TABLE u ()');
		remember();
		my $mark = put_off('servers', servers => $servers->());
		$a->value("SELECT pg_terminate_backend($worker)");
		taken_up($mark, 'it is taken up');
		another();
		is(($a->locks("path = '/m/held'"))[0]{state}, 'lost', 'the lock is lost, and its holder told');
		$a->assert_log($mark, qr/WARNING:  ZooKeeper session ended: .*\n.*Locks lost: 2\./, 'the log says so');
		is($s{committer}->try('COMMIT')->{sqlstate}, '40001', 'a transaction that relied on one fails at commit');
		is($s{holder}->query("SELECT zk_unlock('/m/held')"), 'f', 'there is nothing to unlock');
		hold($a, 'holder', '/m/held');
		is(scalar($zk->children('/m/held')), 1, 'and locks are held there');
	};
}
wait_until { !$here->children('/root/m/held') && !$here->children('/m/held') } 'nothing to be left of either';

subtest 'while locks come and go all the time, none is lost' => sub {
	$s{holder}->query('SELECT zk_unlock_all()');
	$a->value('CREATE PROCEDURE churn(path text) LANGUAGE plpgsql AS $$ BEGIN
		WHILE NOT EXISTS (SELECT FROM stop) LOOP PERFORM zk_lock(path); PERFORM zk_unlock(path); COMMIT; END LOOP; END $$');
	$a->value('CREATE TABLE stop ()');
	# There is a moment without a lock soon.
	on($a, "churn$_")->query_start("CALL churn('/m/churn$_')") foreach 1, 2;
	remember();
	foreach my $i (1 .. 3)
	{
		my ($old, $mark) = ($a->worker_pid, $a->log_mark);
		$a->set_conf('zklock.servers' => join(',', ($there->connect_string) x $i, '127.0.0.1:1'));
		$a->wait_new_worker($old);
		$a->wait_session;
		is($a->session_id, $id, "list $i is taken up");
	}
	$a->value('INSERT INTO stop DEFAULT VALUES');
	foreach (1, 2)
	{
		my $result = $s{"churn$_"}->result;
		ok($result->{ok}, "no lock of session $_ was lost") or diag explain $result;
	}
};

all_disconnect();
clean($there, [$a]);
done_clean($here, $a, $b);
