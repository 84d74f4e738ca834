# Copyright (c) 2026, zklock contributors
#
# zk_waits(): the waits that last, as all servers publish them, and who is in their way. What others write where
# they publish, it does not show, or shows as text, and it says so.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::Deadlock;
use Zklock::JavaPeer;

my ($zk, $a, $b) = cast('a b', conf => ["deadlock_timeout = '100ms'"]);
my ($a1, $a2, $b1, $b2) = (sessions($a, 'a1 a2'), sessions($b, 'b1 b2'));
my %watch = map { $_->name => $_->session(name => 'watch') } $a, $b;
my $root  = '/zklock-waits';
my $sh    = $zk->shell;
$asks = 'zk_lock';
Zklock::Deadlock::scene($zk, [ $a, $b ], '/w/a', '/w/b', '/w/c', '/w/d', '/w/s/leases', '/w/s/locks', $root);

# Rows as lists of the columns named, as a server shows them
sub rows($server, $columns, $where = 'true')
{
	return $watch{ $server->name }->try("SELECT $columns FROM zk_waits() WHERE $where ORDER BY server, pid")->{rows};
}

sub notices($server) { return join "\n", @{ $watch{ $server->name }->try('SELECT count(*) FROM zk_waits()')->{notices} }; }

# Waits until the server shows the wait of a session.
sub shown($server, $session)
{
	my $row;
	wait_until { ($row) = @{ rows($server, '*', "server = '" . $session->server->name . "' AND pid = " . $session->pid) } }
	$session->name . ' to be shown by ' . $server->name;
	return $row;
}

sub served(@sessions)
{
	foreach my $session (@sessions)
	{
		is($session->finish, 't', $session->name . ' is served');
		$session->query('SELECT zk_unlock_all()');
	}
	return;
}

sub lets_go($session) { return is($session->query('SELECT zk_unlock_all()'), '', $session->name . ' lets go'); }

# The node of the only contender of a session that waits, or holds
sub node($session, $path) { return $session->wait_row('true', $path)->{node}; }

my $user = $a1->query('SELECT session_user');
my $app  = 'waits.pl';

subtest 'without any wait there are no rows, and the server says that it publishes none' => sub {
	is_deeply(rows($a, '*'), [], 'no rows');
	like(notices($a), qr/NOTICE:.* servers without waits that others need to know: "a"\n.*zk_waits\(\) shows them on their own server/s, 'but a notice');
};

subtest 'only members of pg_monitor see it' => sub {
	$a->value('CREATE ROLE nobody LOGIN');
	$a->value('CREATE ROLE monitor LOGIN IN ROLE pg_monitor');
	fails($a->session(user => 'nobody')->try('SELECT * FROM zk_waits()'), '42501', 'another role',
		message => 'permission denied for function zk_waits');
	is($a->session(user => 'monitor')->query('SELECT count(*) FROM zk_waits()'), 0, 'a member');
};

subtest 'every server shows what another one publishes: who waits, for what, since when, and behind whom' => sub {
	steps('a1 has /w/a, b1 has /w/b, b1 wants /w/a');
	foreach my $server ($a, $b)
	{
		shown($server, $b1);
		is_deeply(rows($server, 'server, pid, usename, application_name, path, mode, waits_for'),
			[ [ 'b', $b1->pid, $user, $app, '/w/a', 'exclusive', zk('/w/a') ] ], $server->name . ' shows who waits for what');
		is_deeply(rows($server, 'blocked_by_server, blocked_by_pid, blocked_by_owner, blocked_by_node, blocked_by_session'),
			[ [ 'a', $a1->pid, undef, node($a1, '/w/a'), $a->session_id ] ], 'and behind whom');
	}
	my $node = node($b1, '/w/a');
	is_deeply(rows($a, 'node, (extract(epoch FROM wait_start) * 1000)::bigint'),
		[ [ $node, $sh->stat("/w/a/$node")->{ctime} ] ], 'since when, by the time of its node');
	like(notices($a), qr/servers without waits that others need to know: "a"\n/, 'the server that publishes it is not named');
	like(notices($b), qr/servers without waits that others need to know: "a"\n/, 'the one in whose queue it waits is');
	lets_go($a1);
	served($b1);
	clean();
};

subtest 'the holder is shown, not the next in the queue; and for a row, the session that has it' => sub {
	$b->value('CREATE TABLE t (id int, n int)');
	$b->value('INSERT INTO t VALUES (1, 0)');
	$b1->query('BEGIN');
	steps('a1 has /w/a, b1 has row, b1 has /w/b, b2 has /w/c, a2 wants /w/a, b1 wants /w/a, b2 wants row');
	shown($a, $_) foreach $b1, $b2;
	is_deeply(rows($a, 'blocked_by_server, blocked_by_pid, blocked_by_session', "server = 'b' AND pid = " . $b1->pid),
		[ [ 'a', $a1->pid, $a->session_id ] ], 'two wait, for the holder');
	my ($row) = @{ rows($a, 'waits_for, path, mode, node, wait_start, blocked_by_server, blocked_by_pid', "server = 'b' AND pid = " . $b2->pid) };
	like(shift @$row, qr/^ShareLock on transaction \d+$/, 'the third waits for a row');
	is_deeply($row, [ undef, undef, undef, undef, 'b', $b1->pid ], 'that the second has changed');
	lets_go($a1);
	served($a2, $b1);
	$b1->query('COMMIT');
	is($b2->finish, '', 'the third goes on');
	$b2->query('SELECT zk_unlock_all()');
	$b->value('DROP TABLE t');
	clean();
};

subtest "what is in no record, but waits on this server, is shown by this server" => sub {
	steps('a1 has /w/a, b1 wants /w/a, b2 wants /w/a');
	shown($b, $_) foreach $b1, $b2;
	is_deeply(rows($b, 'server, usename, path, mode, waits_for, blocked_by_server, blocked_by_pid', 'pid = ' . $_->pid),
		[ [ 'b', $user, '/w/a', 'exclusive', zk('/w/a'), 'a', $a1->pid ] ], $_->name . ', which holds nothing') foreach $b1, $b2;
	is($watch{b}->query('SELECT count(*) FROM zk_waits() JOIN zk_locks USING (pid, wait_start)'), 2, 'since when');
	like(notices($b), qr/"b", "a"\n/, 'and neither server publishes any');
	is_deeply(rows($a, '*'), [], 'the other one does not know of them');
	lets_go($a1);
	served($b1, $b2);
	clean();
};

subtest 'the holder of a node that has been handed over is shown by its own server' => sub {
	steps('b1 has /w/a, b2 wants /w/a');
	$b1->query("SELECT zk_unlock('/w/a')");
	is($b2->finish, 't', 'the second has it');
	steps('b1 wants /w/a');
	shown($b, $b1);
	is_deeply(rows($b, 'blocked_by_server, blocked_by_pid', 'pid = ' . $b1->pid), [ [ 'b', $b2->pid ] ], 'to one behind the same node');
	is($b1->cancelled, '57014', 'which gives up');
	steps('a1 wants /w/a, b settles, b1 wants /w/a');
	shown($b, $b1);
	is_deeply(rows($b, 'blocked_by_server, blocked_by_pid', 'pid = ' . $b1->pid), [ [ 'b', $b2->pid ] ], 'to one with a later node');
	lets_go($b2);
	served($a1, $b1);
	clean();
};

subtest 'a reservation is shown as one, on each server, and no session for it' => sub {
	my $token = $a1->query("SELECT zk_reserve('/w/a', '1h')");
	my $until = $a1->query("SELECT 'reservation, until ' || expires_at::timestamptz FROM zk_locks WHERE path = '/w/a'");
	my ($node) = map { $_->{node} } $a->locks("path = '/w/a'");
	$_->start_queued("SELECT zk_lock('/w/a')", '/w/a') foreach $a2, $b1;
	my $blocker = 'blocked_by_server, blocked_by_pid, blocked_by_owner, blocked_by_node';
	is_deeply(rows($a, $blocker, 'pid = ' . shown($a, $a2)->[1]), [ [ 'a', undef, $until, $node ] ], 'who waits for it there');
	is_deeply(rows($b, $blocker, 'pid = ' . shown($b, $b1)->[1]), [ [ 'a', undef, 'reservation', $node ] ], 'and elsewhere');
	foreach my $server ($a, $b)
	{
		my $rows = $watch{ $server->name }->try("SELECT granted, server, pid, usename, owner FROM zk_contenders('/w/a')")->{rows};
		is_deeply($rows->[0], [ 't', 'a', undef, $user, $server == $a ? $until : 'reservation' ], 'so is it as a contender');
	}
	is($a1->query("SELECT zk_unreserve('/w/a', $token)"), 't', 'it ends');
	served($a2, $b1);
};

subtest 'shared locks, permits, and other clients' => sub {
	my $java = Zklock::JavaPeer->new;
	my $java_session = $java->connect($zk->connect_string);
	is($java->acquire('j', '/w/a', 5000), 1, 'a Java service holds a lock');
	steps('a1 has /w/s:1, b1 has /w/b, b2 has /w/c, b1 wants to share /w/a, b2 wants /w/s:1');
	shown($a, $_) foreach $b1, $b2;
	is_deeply(rows($a, 'path, mode, waits_for, blocked_by_server, blocked_by_session, blocked_by_pid', 'pid = ' . $b2->pid),
		[ [ '/w/s', undef, 'SemaphorePermit on ZooKeeper path "/w/s"', 'a', $a->session_id, $a1->pid ] ], 'a permit');
	my ($row) = @{ rows($a, 'path, mode, blocked_by_server, blocked_by_pid, blocked_by_session, blocked_by_owner', 'pid = ' . $b1->pid) };
	like(pop @$row, qr/^[\d.:a-f]+$/, "Curator's address");
	is_deeply($row, [ '/w/a', 'shared', undef, undef, $java_session ], 'a shared lock, behind another client');
	$java->release('j');
	$java->stop;
	steps('a1 releases /w/s');
	served($b1, $b2);
	clean();
};

# The name of a record of our own session, but the last digit
my $ours = $sh->session->[0] =~ s/^0x//r;
my $name = "$root/" . ('0' x (16 - length $ours)) . "$ours-0000000";

subtest 'what is no record is counted in a warning, and the others are shown' => sub {
	steps('a1 has /w/a, b1 has /w/b, b1 wants /w/a');
	shown($a, $b1);
	my $good  = $sh->get("$root/" . ($zk->children($root))[0]);
	my @names = map { $name . $_ } 1 .. 3;
	$sh->create($names[0], data => $good =~ s/held/hold/r, ephemeral => 1);
	$sh->create($names[1], data => 'x' x 40_000, ephemeral => 1);
	$sh->create($names[2], ephemeral => 1);
	$sh->create($_, data => $good, ephemeral => 1) foreach "$root/x", "$root/" . ('f' x 16) . '-00000000';
	$sh->create("$root/y");
	$sh->create("$root/y/z", data => $good, ephemeral => 1);
	like(notices($a), qr/WARNING:.* ignoring 6 nodes below "$root"\n/, 'all of them');
	is_deeply(rows($a, 'server, pid'), [ [ 'b', $b1->pid ] ], 'and the record is shown');
	$sh->delete($_) foreach @names, "$root/x", "$root/" . ('f' x 16) . '-00000000', "$root/y/z", "$root/y";
	lets_go($a1);
	served($b1);
	clean();
};

subtest 'a forged record is shown as text at most' => sub {
	my $node = '_c_00000000-0000-0000-0000-000000000000-lock-0000000001';
	steps('a1 has /w/a');
	my $record = "zklock waits 1\t7fffffffffffffff\t0\t0\t\t\xc3\x28\n"
	  . join('', map { "wait\t$_\t1\t0\t/w/none-$_/$node\tx\xff\n" } 1 .. 150)
	  . "wait\t1\t2\t0\t\tSemaphorePermit\nheld\t0\t0\t0\t/w/a/n\t\n"
	  . "wait\t1\t3\t7\t/w/a/lock-\tSemaphorePermit\nfor\t0\t2147483647\t0\t\t\n"
	  . "wait\t1\t4\t0\t/w/none/config\tx\xc2\x85y\n";
	$sh->create($root) unless grep { "/$_" eq $root } $zk->children('/');
	$sh->create($name . 4, hex => unpack('H*', $record), ephemeral => 1);
	is(scalar @{ rows($a, '*', 'pid = 1') }, 150, 'waits on paths that do not exist, more than are looked at');
	is_deeply(rows($a, 'server, pid, path, mode, waits_for, blocked_by_server, blocked_by_pid, blocked_by_node', 'pid > 1'),
		[ [ undef, 2, undef, undef, 'SemaphorePermit', undef, undef, undef ],
			[ undef, 3, '/w', undef, 'SemaphorePermit', undef, 2147483647, undef ],
			[ undef, 4, '/w/none', undef, undef, undef, undef, undef ] ], 'names that are no text, and nodes that are none');
	$sh->delete($name . 4);
	lets_go($a1);
	clean();
};

is($_->zk_session->{state}, 'connected', 'the worker of ' . $_->name . ' is well') foreach $a, $b;
done_clean($zk, $a, $b);
