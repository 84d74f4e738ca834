# Copyright (c) 2026, zklock contributors
#
# Requests to read that are sent on a connection that the worker does not know of yet.
#
# The client library connects again by itself. A request that the worker sends before it has
# been told goes out on the new connection, ahead of everything that makes answers on it
# current, so the worker does not believe the answer. But the watch that was requested is set.
# It must not be forgotten, or it would stay for as long as the node that it watches.
#
# The worker is told late if its main loop stands still, which happens when it has something
# to log and no process empties the pipe to the logging collector.

use Zklock::Test;
use Errno qw(EAGAIN);
use Fcntl qw(O_NONBLOCK O_WRONLY);
use PostgreSQL::Test::Utils;
use Zklock::Util qw(children_of);

# Nor does a search for deadlocks, which asks ZooKeeper for a sync, run here.
my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '6s', conf => [ 'logging_collector = on', "deadlock_timeout = '1h'" ]);
my $shell = $zk->shell;
# What this session does is not logged: it must not stand still.
my $s = $a->session(options => '-clog_statement=none');
$s->query('SET log_min_messages = panic');

# It names itself when it has begun.
my $logger = wait_until
{
	(grep { (eval { slurp_file("/proc/$_/cmdline") } // '') =~ /\blogger\b/ } children_of($a->postmaster_pid))[0]
}
'the logger';

sub begin_to_log    { thaw($logger) if $logger; return; }
sub cease_to_log
{
	freeze($logger);
	sysopen(my $pipe, '/proc/' . $a->worker_pid . '/fd/2', O_WRONLY | O_NONBLOCK) or die "the pipe: $!";
	foreach my $size (4096, 1)
	{
		1 while syswrite($pipe, "\n" x $size);
		die "the pipe: $!" unless $! == EAGAIN;
	}
	return;
}

# The server could not even be stopped.
END { begin_to_log(); }

# What the worker has something to log about when it sees it first
sub make_strange($path) { return $shell->create("$path/strange-0000000001", makepath => 1); }

# Has the worker stand still at the answer to its next listing of a path, until a new connection stands.
sub stall($path, $sql)
{
	$proxy->reset_counts;
	my $listing = $proxy->hold_reply(op => 'getChildren', path => "^$path\$");
	cease_to_log();
	$s->query_start($sql);
	$proxy->fired($listing);
	$proxy->heal;
	# When the library sends a ping that was not on its way by then, it has read what came.
	$proxy->lose_request(op => 'ping', nth => 2);
	wait_until { $proxy->counts->{connect} } 'a new connection';
	return;
}

sub requests($path)
{
	return join ' ', map { $_->[0] }
	  grep { $_->[0] =~ /^(connect|sync)$/ || defined $_->[1] && $_->[1] =~ /^\Q$path/ } @{ $proxy->requests };
}

subtest "the watch on a path's children is not forgotten" => sub {
	make_strange('/l/children');
	# Nothing that we do below the path makes the watch fire.
	$proxy->refuse(op => 'create2', path => '^/l/children/', code => -102);
	stall('/l/children', "SELECT zk_try_lock('/l/children')");
	begin_to_log();
	is($s->result->{sqlstate}, '58030', 'zk_try_lock does not wait for another connection');
	$a->wait_session;
	like(requests('/l/children'), qr/^getChildren connect create2 getChildren sync/,
		'a listing was asked for on a connection not yet known of');
	$a->assert_clean($zk);
};

subtest 'the watch on a predecessor is not forgotten' => sub {
	make_strange('/l/predecessor');
	my $predecessor = $shell->create('/l/predecessor/lock-', ephemeral => 1, sequence => 1);
	stall('/l/predecessor', "SELECT zk_lock('/l/predecessor')");
	# The answer comes when nobody has a use for it any more.
	my $reading = $proxy->hold_reply(op => 'getData', path => '^/l/predecessor/');
	begin_to_log();
	$proxy->fired($reading);
	is($s->cancelled, '57014', 'a session that waits can be cancelled meanwhile');
	$a->wait_value("SELECT count(*) FROM zk_locks WHERE state <> 'releasing'", 0);
	$proxy->heal;
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
	like(requests('/l/predecessor'), qr/^create2 getChildren connect getData\b.* sync/,
		'the predecessor was read on a connection not yet known of');
	$a->assert_clean($zk, $predecessor);
	is_deeply([ sort map { "/l/predecessor/$_" } $zk->children('/l/predecessor') ], [ $predecessor, '/l/predecessor/strange-0000000001' ],
		'though the predecessor is still there');
};

$s->disconnect;
done_testing;
