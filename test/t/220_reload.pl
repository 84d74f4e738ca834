# Copyright (c) 2026, zklock contributors
#
# Settings that change while locks are held and waited for: other servers, another
# chroot, another session timeout, credentials.
#
# A change that leads to the same ensemble keeps the session and with it all locks. The
# credentials are shown to ZooKeeper alone: not to the log, whatever its level, nor to
# any view.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Cast;
use Zklock::Server;
use Zklock::Shell;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk = Zklock::ZooKeeper->ensemble(3);
my $a  = Zklock::Server->new(
	'a',
	zookeeper => $zk->server(1)->connect_string,
	conf      => [ "zklock.session_timeout = '15s'", 'log_min_messages = debug5' ]);
my $b = Zklock::Server->new('b', zookeeper => $zk, conf => ["zklock.session_timeout = '15s'"]);

# Changes settings, and waits until the worker has taken them up, which takes a new one.
sub change
{
	my ($server, $state, %settings) = @_;
	my $old = $server->worker_pid;
	$server->set_conf(%settings);
	$server->wait_new_worker($old);
	$server->wait_session($state);
	return;
}

# ---- other addresses of the same ensemble

hold($a, 'holder', '/c/held');
queue($a, 'local', '/c/held');
queue($b, 'remote', '/c/held');
hold($b, 'foreigner', '/c/foreign');
queue($a, 'behind', '/c/foreign');
on($a, 'xact')->query('BEGIN');
$s{xact}->query("SELECT zk_xact_lock('/c/xact')");
my $id     = $a->session_id;
my $before = holdings($a);

sub undisturbed
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($a->session_id, $id, "$what: the session is the same");
	# Workers that follow each other fast may let the lease lapse for a moment.
	wait_until { !$a->lock_count("state = 'suspended'") } 'a proof that the session lives';
	is_deeply(holdings($a), $before, 'so are all locks');
	ok($s{$_}->busy, "$_ still waits") foreach qw(local remote behind);
	is($a->zk_session->{expirations}, 0, 'nothing has expired');
	return;
}

is($a->zk_session->{server}, $zk->server(1)->connect_string, 'connected to the first server');
change($a, 'connected', 'zklock.servers' => $zk->server(2)->connect_string);
is($a->zk_session->{server}, $zk->server(2)->connect_string, 'after the change to the second');
undisturbed('another server of the ensemble');

# Two servers, and each time the one in use fails: the other must be tried, and the first
# again when that fails. (An even number of addresses is where the client library skips
# half of them.)
change($a, 'connected', 'zklock.servers' => join(', ', map { $zk->server($_)->connect_string } 1, 2));
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

# ---- a name that does not resolve, alone and among others

my $mark = $a->log_mark;
$a->set_conf('zklock.servers' => 'no-such-host.invalid:2181');
$a->wait_log(qr/WARNING:  changed settings of zklock are not taken up: no server name .* could be resolved/, $mark);
undisturbed('a name that does not resolve');
change($a, 'connected', 'zklock.servers' => 'no-such-host.invalid:1,' . $zk->connect_string);
undisturbed('such a name among others');

# ---- host names

change($a, 'connected', 'zklock.servers' => 'localhost:' . $zk->server(1)->port);
undisturbed('a host name');
change($a, 'connected', 'zklock.servers' => $zk->connect_string);
undisturbed('all servers');

# ---- invalid values

my $worker = $a->worker_pid;
foreach my $value ('localhost:99999', 'localhost:0', 'localhost:', ':2181', 'localhost:x', 'a:1,,b:2',
	'a b:1', '[::1:2181', 'h:1//a', 'h:1/a/', 'h:1/a/../b', join(',', ('localhost:2181') x 200))
{
	my $short = length $value < 40 ? $value : 'a list of 200';
	my $result = on($a, 'setter')->try("ALTER SYSTEM SET zklock.servers = '$value'");
	is($result->{sqlstate}, '22023', "'$short' is refused") or diag explain $result;
	isnt($result->{detail} || '', '', 'with the reason');
}
is(on($a, 'setter')->try("SET zklock.servers = 'localhost:1'")->{sqlstate}, '55P02', 'a session cannot set it');
# In the file it is only noticed by those who read it.
my $conf = $a->data_dir . '/postgresql.auto.conf';
my $good = slurp_file($conf);
$mark = $a->log_mark;
append_to_file($conf, "zklock.servers = 'localhost:99999'\n");
$a->reload;
$a->wait_log(qr/invalid value for parameter "zklock.servers": "localhost:99999"/, $mark);
pass('in the configuration file it is logged');
is($a->value('SHOW zklock.servers'), $zk->connect_string, 'and the old value stays');
truncate($conf, length $good);
$a->reload;
is($a->worker_pid, $worker, 'the worker has not even noticed');
undisturbed('invalid values');

# ---- the session timeout

is($a->zk_session->{negotiated_timeout}, '00:00:15', 'the session timeout, negotiated');
change($a, 'connected', 'zklock.session_timeout' => '25s');
is($a->zk_session->{negotiated_timeout}, '00:00:25', 'changed to a longer one');
undisturbed('a longer session timeout');
change($a, 'connected', 'zklock.session_timeout' => '8s');
is($a->zk_session->{negotiated_timeout}, '00:00:08', 'and a shorter one');
undisturbed('a shorter session timeout');
change($a, 'connected', 'zklock.session_timeout' => '1h');
is($a->zk_session->{negotiated_timeout}, '00:01:00', 'one too long is limited by ZooKeeper');
undisturbed('a session timeout too long');
change($a, 'connected', 'zklock.session_timeout' => '15s');
undisturbed('back again');

$s{holder}->query("SELECT zk_unlock('/c/held')");
is($s{local}->finish, 't', 'after all that queues go on: here');
$s{local}->query("SELECT zk_unlock('/c/held')");
is($s{remote}->finish, 't', 'and elsewhere');
$s{foreigner}->query("SELECT zk_unlock('/c/foreign')");
is($s{behind}->finish, 't', 'and behind others');
ok($s{xact}->try('COMMIT')->{ok}, 'a transaction that has lived through it commits');
all_disconnect();
Zklock::Server->assert_clean($zk, [ $a, $b ], map { "/c/$_" } qw(held foreign xact free));

# ---- chroot

# Without a lock held the session moves (see 471_move.pl), which takes no other worker.
sub move
{
	my ($server, %settings) = @_;
	my $before = $server->session_id;
	$server->set_conf(%settings);
	wait_until { ($server->session_id || $before) ne $before } 'another session';
	$server->wait_session;
	return;
}

$zk->shell->create('/missing/root', makepath => 1);
move($a, 'zklock.servers' => $zk->connect_string('/missing/root'));
isnt($a->session_id, $id, 'another chroot takes another session');
$zk->shell->delete('/missing', recursive => 1);
on($a, 'holder');
foreach my $call ("zk_lock('/c/root')", "zk_try_lock('/c/root')", "zk_lock('/deep/er/lock')")
{
	my $result = $s{holder}->try("SELECT $call");
	is($result->{sqlstate}, '58000', "missing chroot: $call fails") or diag explain $result;
	like($result->{detail} || '', qr/chroot/, 'and says that it is the chroot');
	like($result->{hint}   || '', qr/Create the chroot/, 'and what to do');
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
$s{outsider}->query("SELECT zk_unlock('/missing/root/c/root')");
is($s{insider}->finish, 't', 'and the other way round');
$s{insider}->query("SELECT zk_unlock('/c/root')");
Zklock::Server->assert_clean($zk, [ $a, $b ], '/missing/root/c/root', '/c/root');
move($a, 'zklock.servers' => $zk->connect_string);

# ---- credentials

my $secret = 'S3cretOfTheTest';
sub auth_file
{
	my ($name, $content, $mode) = @_;
	my $file = $a->data_dir . "/$name";
	unlink $file;
	append_to_file($file, $content) if defined $content;
	chmod $mode, $file if defined $mode;
	return $file;
}

hold($a, 'kept', '/c/kept');
$id = $a->session_id;
change($a, 'connected',
	'zklock.auth_file' => auth_file('auth', "digest:zklock:$secret\n", 0600),
	'zklock.acl'       => 'creator');
is($a->session_id, $id, 'with credentials the session goes on');
is($s{kept}->query("SELECT zk_fencing_token('/c/kept') > 0"), 't', 'and its locks');
hold($a, 'holder', '/c/creator/lock');
ok(!eval { $zk->shell->ls('/c/creator/lock'); 1 }, 'who is without credentials cannot even see the nodes');
like($@, qr/NoAuth/, 'for lack of rights');

my $client = Zklock::Shell->new;
$client->connect($zk->connect_string);
$client->add_auth('digest', "zklock:$secret");
my ($node) = @{ $client->ls('/c/creator/lock') };
is($node, ($a->locks("path = '/c/creator/lock'"))[0]{node}, 'one with the credentials sees it');
ok(!eval { $zk->shell->delete("/c/creator/lock/$node"); 1 }, 'one without cannot delete it');
like($@, qr/NoAuth/, 'for lack of rights');
ok(!eval { $zk->shell->get("/c/creator/lock/$node"); 1 }, 'nor read it');
is(on($b, 'stranger')->try("SELECT zk_lock('/c/creator/lock')")->{sqlstate},
	'42501', 'a server without credentials is refused');

# In a path that is open the nodes have that ACL all the same; others respect them.
$zk->shell->create('/c/open');
hold($a, 'open', '/c/open');
ok(!eval { $zk->shell->get('/c/open/' . ($zk->children('/c/open'))[0]); 1 }, 'a node in an open path cannot be read');
queue($b, 'stranger', '/c/open');
ok($s{stranger}->busy, 'who cannot read it waits');
is($s{open}->query("SELECT zk_unlock('/c/open')"), 't', 'unlocked');
is($s{stranger}->finish, 't', 'and gets the lock afterwards');
$s{stranger}->query("SELECT zk_unlock('/c/open')");

# The credentials are shown again on every connection.
my $used = $a->zk_session->{server};
my ($server) = grep { $_->connect_string eq $used } $zk->servers;
$server->restart;
wait_until { my $row = $a->zk_session; $row->{state} eq 'connected' && $row->{reconnects} > 0 } 'a new connection';
$a->wait_session;
is($s{holder}->query("SELECT zk_unlock('/c/creator/lock')"), 't', 'on a new connection the node can be deleted');
wait_until { !@{ $client->ls('/c/creator/lock') } } 'the node to be gone';
hold($a, 'holder', '/c/creator/lock');
is($s{holder}->query("SELECT zk_unlock('/c/creator/lock')"), 't', 'and another one made');

# Both servers with the credentials.
my $file_b = $b->data_dir . '/auth';
append_to_file($file_b, "digest:zklock:$secret");    # without a newline at the end
chmod 0600, $file_b;
hold($b, 'kept_b', '/c/kept_b');
change($b, 'connected', 'zklock.auth_file' => $file_b, 'zklock.acl' => 'creator');
$s{kept_b}->query("SELECT zk_unlock('/c/kept_b')");
hold($a, 'holder', '/c/creator/lock');
queue($b, 'stranger', '/c/creator/lock');
$s{holder}->query("SELECT zk_unlock('/c/creator/lock')");
is($s{stranger}->finish, 't', 'two servers with the same credentials share a lock');
$s{stranger}->query("SELECT zk_unlock('/c/creator/lock')");

is($a->session_id, $id, 'all in one session');
is($s{kept}->query("SELECT zk_unlock('/c/kept')"), 't', 'and the lock is still held at last');

# ---- a file that cannot be used, at the start: 470_changed_settings.pl has it at a reload

my $file = $a->data_dir . '/missing';
my $c    = Zklock::Server->new('c', zookeeper => $zk, connect => 0, conf => ["zklock.auth_file = '$file'"]);
$c->wait_session('down');
$c->wait_log(qr/LOG:  could not use "zklock.auth_file" "\Q$file\E": No such file/, 0);
like($c->zk_session->{last_error}, qr/"zklock\.auth_file": No such file/, 'zk_session says what is wrong');
my $result = on($c, 'asker')->try("SELECT zk_try_lock('/c/free')");
like($result->{detail} || '', qr/No such file/, 'so does an error');
unlike("$result->{error} $result->{detail}", qr/\Q$file\E/, 'which does not tell the file, since anybody may get it');
my @at;
wait_until {
	@at = map { /(\d+):(\d+):(\S+)/; $1 * 3600 + $2 * 60 + $3 } $c->log_since(0) =~ /^\S+ (\S+) .* LOG:  could not use .*\Q$file\E/mg;
	@at >= 4;
} 'four attempts';
# Half a second, one, two.
cmp_ok(($at[3] - $at[0]) % 86400, '>=', 3, 'it is tried again later and later');
auth_file('missing', "digest:zklock:$secret\n", 0600);
$c->wait_session;
pass('a file that has been set right is used');
(delete $s{asker})->disconnect;
$c->stop;

# ---- nobody has learnt the credentials

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

all_disconnect();
my @paths = map { "/c/$_" } qw(held foreign xact free root kept kept_b open);
is_deeply($client->ls('/c/creator/lock'), [], 'no node is left in the protected path');
$client->delete('/c/creator', recursive => 1);
$client->stop;
Zklock::Server->assert_clean($zk, [ $a, $b ], @paths);
done_testing;
