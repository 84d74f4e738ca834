# Copyright (c) 2026, zklock contributors
#
# What the log tells of a wait that lasts: who holds and who waits, of this server,
# others and other clients. And where the worker's log lines come from.

use Zklock::Test;
use Zklock::Cast;
use Zklock::JavaPeer;

my ($zk, $proxy, $a, $b) = cast('a b',
	proxied => 'a', a => { conf => [ 'log_lock_waits = on', "deadlock_timeout = '100ms'" ] });
my $shell = $zk->shell;
my $java  = Zklock::JavaPeer->new;
my $java_session = $java->connect($zk->connect_string, 10000);

# The log tells that a session of a waits, and of whom it says so.
sub told
{
	my ($mark, $name, $what, $path, $detail) = @_;
	my $pid = $s{$name}->pid;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $a->assert_log($mark,
		qr/LOG:  process $pid still waiting for $what on ZooKeeper path "\Q$path\E" after \d+\.\d{3} ms\n.*DETAIL:  $detail\n/,
		"the log tells that $name waits, and of whom");
}

sub pids { return join ', ', map { $s{$_}->pid } @_; }

subtest 'sessions of this server' => sub {
	my $mark = $a->log_mark;
	hold($a, 'holder', '/l/local');
	queue($a, 'first', '/l/local');
	told($mark, 'first', 'ExclusiveLock', '/l/local', 'Process holding the lock: ' . pids('holder') . '\. Wait queue: ' . pids('first') . '\.');
	queue($a, 'second', '/l/local');
	told($mark, 'second', 'ExclusiveLock', '/l/local', 'Process holding the lock: ' . pids('holder') . '\. Wait queue: ' . pids('first', 'second') . '\.');
	$s{holder}->query("SELECT zk_unlock('/l/local')");
	$s{first}->finish;
	$a->assert_log($mark, qr/LOG:  process ${\$s{first}->pid} acquired ExclusiveLock on ZooKeeper path "\/l\/local" after \d+\.\d{3} ms\n/, 'the log tells of the end');
	all_disconnect();
};

subtest 'sessions of other servers' => sub {
	my $mark = $a->log_mark;
	on($b, $_)->query("SELECT zk_lock_shared('/l/remote')") foreach qw(reader other);
	on($a, 'mine')->query("SELECT zk_lock_shared('/l/remote')");
	queue($a, 'writer', '/l/remote');
	told($mark, 'writer', 'ExclusiveLock', '/l/remote',
		'Processes holding the lock: ' . $s{reader}->pid . ' of server b, ' . pids('mine') . '\. Wait queue: ' . pids('writer') . '\.');
	$s{mine}->query("SELECT zk_unlock_shared('/l/remote')");
	queue($a, 'behind', '/l/remote');
	all_disconnect();
};

subtest 'other clients' => sub {
	my $mark = $a->log_mark;
	$java->acquire('holder', '/l/java', -1);
	queue($a, 'waiter', '/l/java');
	$a->wait_queued($s{waiter});
	my $next = $java->acquire_start('next', '/l/java');
	wait_until { 3 == $zk->children('/l/java') } 'another client';
	queue($a, 'last', '/l/java');
	my $curator = $a->value(q{SELECT owner FROM zk_contenders('/l/java') WHERE granted});
	told($mark, 'last', 'ExclusiveLock', '/l/java', "Process holding the lock: \Q$curator\E\\. Wait queue: " . pids('waiter') . ", \Q$curator\E, " . pids('last') . '\.');
	$java->release('holder');
	$s{waiter}->finish;
	$s{waiter}->query("SELECT zk_unlock('/l/java')");
	$java->result($next);

	# What tells nothing has a session all the same.
	my $node = $shell->create('/l/silent/_c_x-lock-', ephemeral => 1, sequence => 1, makepath => 1, hex => '00ff');
	queue($a, 'silent', '/l/silent');
	my $session = ($shell->session)->[0];
	told($mark, 'silent', 'ExclusiveLock', '/l/silent', "Process holding the lock: ZooKeeper session $session\\. Wait queue: " . pids('silent') . '\.');
	$shell->delete($node);
	$s{silent}->finish;
	$java->release('next');
	$s{last}->finish;
	all_disconnect();
};

subtest 'a semaphore' => sub {
	my $mark = $a->log_mark;
	on($a, 'holder')->query("SELECT zk_semaphore_acquire('/l/slots', 1)");
	on($a, 'turn')->query_start("SELECT zk_semaphore_acquire('/l/slots', 1)");
	wait_until { 2 == $zk->children('/l/slots/leases') } 'a session that waits for a permit';
	on($b, 'elsewhere')->query_start("SELECT zk_semaphore_acquire('/l/slots', 1)");
	wait_until { 2 == $zk->children('/l/slots/locks') } 'a session of another server that waits for its turn';
	$a->settle;
	on($a, 'queues')->query_start("SELECT zk_semaphore_acquire('/l/slots', 1)");
	told($mark, 'queues', 'SemaphorePermit', '/l/slots', 'Process holding the lock: ' . pids('holder')
		  . '\. Wait queue: ' . pids('turn', 'elsewhere') . ' of server b, ' . pids('queues') . '\.');
	all_disconnect();
};

subtest 'a crowd is counted' => sub {
	my $mark = $a->log_mark;
	hold($a, 'holder', '/l/crowd');
	queue($a, "waiter$_", '/l/crowd') foreach 1 .. 25;
	told($mark, 'waiter25', 'ExclusiveLock', '/l/crowd', 'Process holding the lock: ' . pids('holder') . '\. Wait queue: ' . pids(map { "waiter$_" } 1 .. 20) . ' and 5 more\.');
	all_disconnect();
};

subtest 'a wait does not wait for what is to be logged' => sub {
	foreach my $end ('granted', 'cancelled', 'terminated')
	{
		hold($a, 'holder', "/l/$end");
		$proxy->reset_counts;
		my $held = $proxy->hold_reply(op => 'getChildren', path => "^/l/$end\$", any => 1);
		on($a, 'waiter')->query_start("SELECT zk_lock('/l/$end')");
		$proxy->fired($held);
		$s{holder}->query_start("SELECT zk_unlock('/l/$end')") if $end eq 'granted';
		$s{waiter}->cancel if $end eq 'cancelled';
		$s{waiter}->terminate if $end eq 'terminated';
		my $result = $s{waiter}->result;
		is($result->{sqlstate}, { granted => '00000', cancelled => '57014', terminated => '57P01' }->{$end}, $end);
		$proxy->heal;
		all_disconnect();
	}
	# More than there are slots for questions; if these were left behind, nobody else could ask.
	hold($a, 'holder', '/l/cancelled');
	$proxy->reset_counts;
	my $held = $proxy->hold_reply(op => 'getChildren', path => '^/l/cancelled$', any => 1);
	on($a, "waiter$_")->query("SET statement_timeout = '1s'") foreach 1 .. 70;
	$s{"waiter$_"}->query_start("SELECT zk_lock('/l/cancelled')") foreach 1 .. 70;
	$proxy->fired($held);
	is((grep { $s{"waiter$_"}->result->{sqlstate} eq '57014' } 1 .. 70), 70, 'all end at their timeout');
	$proxy->heal;
	is($a->value("SET statement_timeout = '30s'; SELECT count(*) FROM zk_contenders('/l/cancelled')"), 1, 'nothing is left of the questions');
	all_disconnect();
};

subtest "the worker's log lines say where they come from" => sub {
	my $mark = $a->log_mark;
	hold($a, 'holder', '/l/context');
	my ($node) = $zk->children('/l/context');
	$shell->delete("/l/context/$node");
	my ($session, $server) = @{ $a->zk_session }{qw(session_id server)};
	$a->assert_log($mark, qr/WARNING:  node "\/l\/context\/$node" of lock.*\n(?:.*DETAIL: .*\n)(?:Process.*\n|\t.*\n)*.*CONTEXT:  ZooKeeper session $session, server \Q$server\E\n\s*path "\/l\/context[\/"]/,
		'session, server and path');
	all_disconnect();

	# What a session asks for is refused: an answer.
	$proxy->refuse(op => 'delete', path => '^/l/refused/', code => -102);
	hold($a, 'holder', '/l/refused');
	my $pid = $s{holder}->pid;
	$s{holder}->query_start("SELECT zk_unlock('/l/refused')");
	$a->assert_log($mark, qr/LOG:  could not delete ZooKeeper node "\/l\/refused.*\n(?:.*(?:DETAIL|HINT): .*\n)*.*CONTEXT:  ZooKeeper session $session, server \Q$server\E\n\s*path "\/l\/refused\/[^"]+", for process $pid/,
		'and the process for which ZooKeeper was asked');
	$s{holder}->finish;
	all_disconnect();
};

$java->stop;
Zklock::Server->assert_clean($zk, [ $a, $b ], map { "/l/$_" } qw(local remote java silent slots/leases slots/locks crowd granted cancelled terminated context refused));
done_testing;
