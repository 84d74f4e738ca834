# Copyright (c) 2026, zklock contributors
#
# Settings that change while locks are held and waited for, and do not work: a file that is
# not there, servers that do not answer, credentials that are refused, a tick time with which
# no lease is possible. None of them costs the session, whoever runs it; each is told.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Cast;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk = Zklock::ZooKeeper->standalone;
my $a  = Zklock::Server->new('a', zookeeper => $zk, conf => ["zklock.session_timeout = '10s'"]);
my $b  = Zklock::Server->new('b', zookeeper => $zk);
my $tick = $a->value('SHOW zklock.tick_time');

hold($a, 'holder', '/s/held');
queue($a, 'waiter', '/s/held');
hold($b, 'foreigner', '/s/foreign');
queue($a, 'behind', '/s/foreign');
my $id     = $a->session_id;
my $before = holdings($a);
my $worker = $a->worker_pid;

# The settings are changed in vain, and all goes on.
sub refused
{
	my ($why, $what, %settings) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $mark = $a->log_mark;
	$a->set_conf(%settings);
	$a->assert_log($mark, qr/WARNING:  changed settings of zklock are not taken up: .*$why/, "$what: the log tells");
	wait_until { ($a->zk_session->{last_error} || '') =~ $why } 'the error in zk_session';
	like($a->zk_session->{last_error}, qr/^changed settings are not taken up: .*$why/, 'so does zk_session');
	undisturbed($what);
	my $lines = () = $a->log_since($mark) =~ /WARNING:  changed settings/g;
	is($lines, 1, 'in one warning');
	return $mark;
}

sub undisturbed
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $session = $a->zk_session;
	is("$session->{state} $session->{session_id}", "connected $id", "$what: the session goes on");
	is($session->{worker_pid}, $worker, 'in the same worker');
	is_deeply(holdings($a), $before, 'holders hold');
	ok($s{waiter}->busy && $s{behind}->busy, 'who waits goes on waiting');
	is(on($a, 'trier')->query("SELECT zk_try_lock('/s/free') AND zk_unlock('/s/free')"), 't', 'and locks are granted');
	return;
}

sub auth_file
{
	my ($name, $content, $mode) = @_;
	my $file = $a->data_dir . "/$name";
	append_to_file($file, $content);
	chmod $mode || 0600, $file;
	return $file;
}

subtest 'a file with credentials that cannot be used is not taken up' => sub {
	refused(qr/No such file/, 'no such file', 'zklock.auth_file' => '/no/such');
	unlike($a->zk_session->{last_error}, qr{/no/such}, 'not everybody learns its name');
	foreach my $case (
		[ 'two_lines', "digest:a:b\ndigest:c:d\n", 0600, qr/more than one line/ ],
		[ 'blank_line', "digest:a:b\n\n",          0600, qr/more than one line/ ],
		[ 'long',      'digest:' . 'x' x 600,      0600, qr/line is too long/ ],
		[ 'group',     "digest:a:b\n",             0640, qr/others than its owner/ ],
		[ 'empty',     '',                         0600, qr/empty/ ],
		[ 'no_colon',  "sesame\n",                 0600, qr/scheme:credentials/ ])
	{
		my ($name, $content, $mode, $why) = @$case;
		my $mark = refused($why, $name, 'zklock.auth_file' => auth_file($name, $content, $mode));
		like($a->log_since($mark), qr/DETAIL:  The file is ".*\/$name"/, 'the log names the file');
	}
	system('mkfifo', '-m', '600', $a->data_dir . '/pipe');
	refused(qr/not a regular file/, 'a pipe', 'zklock.auth_file' => $a->data_dir . '/pipe');
};

subtest 'credentials that ZooKeeper refuses are not taken up' => sub {
	my $mark = refused(qr/ZooKeeper refuses the credentials/, 'an unknown scheme',
		'zklock.auth_file' => auth_file('nosuch', "nosuchscheme:topsecret\n"));
	unlike($a->log_since($mark), qr/topsecret/, 'nobody learns them');
};

subtest 'servers that cannot be resolved, or do not answer, are not taken up' => sub {
	refused(qr/no server name .* could be resolved/, 'no such name', 'zklock.servers' => 'no-such-host.invalid:2181',
		'zklock.auth_file' => '');
	refused(qr/no server .* has answered in \d+ s: could not connect .*refused/, 'a wrong port',
		'zklock.servers' => '127.0.0.1:1');
	# That PostgreSQL speaks another protocol.
	refused(qr/no server .* has answered|is not ZooKeeper/, 'a PostgreSQL server',
		'zklock.servers' => '127.0.0.1:' . postgres_port());
};

subtest 'a tick time with which no lease is possible is not taken up' => sub {
	refused(qr/tick_time.* 60000 ms/, 'a minute for a tick', 'zklock.tick_time' => '60s',
		'zklock.servers' => $zk->connect_string);
};

subtest 'what has been refused is not taken up by the next worker either' => sub {
	my $mark = $a->log_mark;
	$a->set_conf('zklock.servers' => 'no-such-host.invalid:2181', 'zklock.auth_file' => '/no/such',
		'zklock.tick_time' => $tick);
	$a->wait_log(qr/WARNING:  changed settings of zklock are not taken up/, $mark);
	$mark = $a->log_mark;
	$a->value("SELECT pg_terminate_backend($worker)");
	wait_until { ($a->worker_pid || $worker) != $worker } 'a new worker';
	$a->wait_session;
	$worker = $a->worker_pid;
	$a->assert_log($mark, qr/WARNING:  changed settings of zklock are not taken up/, 'it tries, and tells');
	undisturbed('a new worker');
};

subtest 'settings that have been set right are taken up at a reload' => sub {
	my $good = auth_file('good', "digest:zklock:secret\n");
	$a->set_conf('zklock.servers' => 'localhost:' . $zk->port, 'zklock.auth_file' => $good);
	wait_until { ($a->worker_pid || $worker) != $worker } 'a new worker';
	$a->wait_session;
	$worker = $a->worker_pid;
	undisturbed('other names, and credentials');
	is($a->zk_session->{expirations}, 0, 'nothing has expired');
};

subtest 'no session of a trial is left behind' => sub {
	# Other sessions than those of the servers and the administrator.
	my %known = map { $_ => 1 } $a->session_id, $b->session_id;
	$zk->shell->exists('/');
	wait_until { (my @other = grep { !$known{$_} } $zk->four_letter('dump') =~ /^\t(0x[0-9a-f]+)$/mg) <= 1 }
	'sessions to be closed';
	pass('all have been closed');
};

sub postgres_port
{
	my $other = Zklock::Server->new('other', extension => 0, preload => 0, conf => ["listen_addresses = '127.0.0.1'"]);
	return $other->value('SHOW port');
}

$s{holder}->query("SELECT zk_unlock('/s/held')");
is($s{waiter}->finish, 't', 'after all that the queue goes on');
$s{foreigner}->query("SELECT zk_unlock('/s/foreign')");
is($s{behind}->finish, 't', 'here and elsewhere');
all_disconnect();
Zklock::Server->assert_clean($zk, [ $a, $b ], '/s/held', '/s/foreign', '/s/free');
done_testing;
