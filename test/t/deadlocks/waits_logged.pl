# Copyright (c) 2026, zklock contributors
#
# What the log tells of a wait that lasts: who holds and who waits, of this server,
# others and other clients. And where the worker's log lines come from. What errors that end a wait tell in
# their CONTEXT; also if a COMMIT waits for proof.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT cancel_as_answered story);
use Zklock::JavaPeer;

my ($zk, $proxy, $a, $b) = cast('a b',
	proxied => 'a', a => { timeout => '8s', conf => [ 'log_lock_waits = on', "deadlock_timeout = '100ms'" ] });
END { $zk->resume if $zk; }
my $shell = $zk->shell;
my $java  = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);

# The log tells that a session of a waits for something, for so many, and why that is not had.
sub logged($mark, $name, $what, $detail)
{
	my $pid = $s{$name}->pid;
	return $a->assert_log($mark, qr/LOG:  process $pid still waiting for $what ms\n.*DETAIL:  $detail\.\n/,
		"the log tells that $name waits, and why");
}

# The same of holders, and the queue
sub told($mark, $name, $what, $path, $holders, $queue)
{
	my $processes = $holders =~ /,/ ? 'Processes' : 'Process';
	return logged($mark, $name, qr/$what on ZooKeeper path "\Q$path\E" after \d+\.\d{3}/, "$processes holding the lock: $holders\\. Wait queue: $queue");
}

sub pids { return join ', ', map { $s{$_}->pid } @_; }

story 'sessions of this server' => sub {
	my $mark = $a->log_mark;
	hold($a, 'holder', '/l/local');
	queue($a, 'first', '/l/local');
	told($mark, 'first', 'ExclusiveLock', '/l/local', pids('holder'), pids('first'));
	queue($a, 'second', '/l/local');
	told($mark, 'second', 'ExclusiveLock', '/l/local', pids('holder'), pids('first', 'second'));
	$s{holder}->query("SELECT zk_unlock('/l/local')");
	$s{first}->finish;
	$a->assert_log($mark, qr/LOG:  process ${\$s{first}->pid} acquired ExclusiveLock on ZooKeeper path "\/l\/local" after \d+\.\d{3} ms\n/, 'the log tells of the end');
};

story 'sessions of other servers' => sub {
	my $mark = $a->log_mark;
	on($b, $_)->query("SELECT zk_lock_shared('/l/remote')") foreach qw(reader other);
	on($a, 'mine')->query("SELECT zk_lock_shared('/l/remote')");
	queue($a, 'writer', '/l/remote');
	told($mark, 'writer', 'ExclusiveLock', '/l/remote', pids('reader') . ' of server b, ' . pids('mine'), pids('writer'));
	$s{mine}->query("SELECT zk_unlock_shared('/l/remote')");
	queue($a, 'behind', '/l/remote');
};

story 'leadership' => sub {
	my ($mark, $path) = ($a->log_mark, '/l/leader');
	my $leader = $shell->create("$path/_c_edda2515-abf2-4579-b513-df182d03af67-latch-", ephemeral => 1, sequence => 1, makepath => 1);
	$a->set_conf('zklock.elections' => $path);
	$a->wait_value('SELECT state FROM zk_elections', 'ready');
	on($a, 'candidate')->query_start("SELECT zk_await_leadership('$path')");
	my $wait = qr/leadership on ZooKeeper path "\Q$path\E" after \d+\.\d{3} ms\n/;
	$a->assert_log($mark, qr/LOG:  process ${\$s{candidate}->pid} still waiting for $wait/, 'the log tells who waits to lead');
	$shell->delete($leader);
	is($s{candidate}->finish, 't', 'it leads');
	$a->assert_log($mark, qr/LOG:  process ${\$s{candidate}->pid} acquired $wait/, 'and that it leads');
	$a->set_conf('zklock.elections' => '');
	wait_until { $zk->children($path) == 0 } 'its node to go';
};

# A message looks at interrupts.
story 'a wait is counted, whatever comes as it is logged' => sub {
	my $waits = "SELECT sum(waits) FROM zk_stats";
	foreach my $case (
		# What the server logs, and of what the client is told
		[ $a, "zk_lock('/l/counted')", "zk_lock('/l/counted')", "zk_unlock('/l/counted')" ],
		[ $b, "zk_semaphore_acquire('/l/counted', 1)", "zk_semaphore_acquire('/l/counted', 2)", "zk_semaphore_release('/l/counted')" ])
	{
		my ($server, $first, $ask, $release) = @$case;
		my $mark = $server->log_mark;
		on($server, 'first')->query("SELECT $first");
		on($server, 'waiter')->start_queued("SELECT $ask");
		$server->wait_log(qr/process ${\$s{waiter}->pid} still waiting for/, $mark) if $server == $a;
		my $before = $server->value($waits);
		cancel_as_answered($s{waiter}, sub { $s{first}->query("SELECT $release"); $server->wait_holder($s{waiter}); });
		fails($s{waiter}->result, '57014', "$ask is cancelled");
		is($server->value($waits), $before + 1, 'and its wait counted');
		wait_until { $server->lock_count == 0 } 'the end of all';
		all_disconnect();
	}
};

story 'other clients' => sub {
	my $mark = $a->log_mark;
	$java->acquire('holder', '/l/java', -1);
	queue($a, 'waiter', '/l/java');
	$a->wait_queued($s{waiter});
	my $next = $java->acquire_start('next', '/l/java');
	wait_until { $zk->children('/l/java') == 3 } 'another client';
	$a->settle;
	queue($a, 'last', '/l/java');
	my $curator = quotemeta $a->value(q{SELECT owner FROM zk_contenders('/l/java') WHERE granted});
	told($mark, 'last', 'ExclusiveLock', '/l/java', $curator, pids('waiter') . ", $curator, " . pids('last'));
	$java->release('holder');
	$s{waiter}->finish;
	$s{waiter}->query("SELECT zk_unlock('/l/java')");
	$java->result($next);

	# What tells nothing has a session all the same.
	my $node = $shell->create('/l/silent/_c_x-lock-', ephemeral => 1, sequence => 1, makepath => 1, hex => '00ff');
	queue($a, 'silent', '/l/silent');
	told($mark, 'silent', 'ExclusiveLock', '/l/silent', 'ZooKeeper session ' . $shell->session->[0], pids('silent'));
	$shell->delete($node);
	$s{silent}->finish;
	$java->release('next');
	$s{last}->finish;
};

story 'a semaphore' => sub {
	my $mark = $a->log_mark;
	on($a, 'holder')->query("SELECT zk_semaphore_acquire('/l/slots', 1)");
	on($a, 'turn')->query_start("SELECT zk_semaphore_acquire('/l/slots', 1)");
	wait_until { 2 == $zk->children('/l/slots/leases') } 'a session that waits for a permit';
	on($b, 'elsewhere')->query_start("SELECT zk_semaphore_acquire('/l/slots', 1)");
	wait_until { 2 == $zk->children('/l/slots/locks') } 'a session of another server that waits for its turn';
	$a->settle;
	on($a, 'queues')->query_start("SELECT zk_semaphore_acquire('/l/slots', 1)");
	told($mark, 'queues', 'SemaphorePermit', '/l/slots', pids('holder'), pids('turn', 'elsewhere') . ' of server b, ' . pids('queues'));
};

story 'a crowd is counted' => sub {
	my $mark = $a->log_mark;
	hold($a, 'holder', '/l/crowd');
	queue($a, "waiter$_", '/l/crowd') foreach 1 .. 25;
	told($mark, 'waiter25', 'ExclusiveLock', '/l/crowd', pids('holder'), pids(map { "waiter$_" } 1 .. 20) . ' and 5 more');
};

story 'a wait does not wait for what is to be logged' => sub {
	foreach my $end ('granted', 'cancelled', 'terminated')
	{
		hold($a, 'holder', "/l/$end");
		$proxy->hold_reply_of(on($a, 'waiter'), "SELECT zk_lock('/l/$end')", op => 'getChildren', path => "^/l/$end\$", any => 1);
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
	my $held = $proxy->hold_reply(op => 'getChildren', path => '^/l/cancelled$', any => 1);
	on($a, "waiter$_")->query("SET statement_timeout = '1s'") foreach 1 .. 70;
	$s{"waiter$_"}->query_start("SELECT zk_lock('/l/cancelled')") foreach 1 .. 70;
	$proxy->fired($held);
	is((grep { $s{"waiter$_"}->result->{sqlstate} eq '57014' } 1 .. 70), 70, 'all end at their timeout');
	$proxy->heal;
	is($a->value("SET statement_timeout = '30s'; SELECT count(*) FROM zk_contenders('/l/cancelled')"), 1, 'nothing is left of the questions');
};

story "the worker's log lines say where they come from" => sub {
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
};

$java->stop;
$a->value('CREATE TABLE t (who text)');
my $away = qr/ZooKeeper (?:cannot be reached; the last error, at \d{4}-\d\d-\d\d [^,]*, was: .+|server \S+ is connected, but the session is not proved to be alive)/;

my $holder = $a->session(name => 'holder');
$holder->query("SELECT zk_lock('/w/taken')");
$holder->query("SELECT zk_lock('/w/b\x{e4}r')");
$holder->query("SELECT zk_semaphore_acquire('/w/permits', 1)");

# What ends a wait, and the SQLSTATE it gives
my %ends = (
	lock_timeout      => [ "SET lock_timeout = '300ms'",      '55P03' ],
	statement_timeout => [ "SET statement_timeout = '300ms'", '57014' ],
	cancel            => [ undef,                             '57014' ]);
my %waits = (
	exclusive => [ "SELECT zk_lock('/w/taken')",             'ExclusiveLock on ZooKeeper path "/w/taken"' ],
	shared    => [ "SELECT zk_xact_lock_shared('/w/taken')", 'ShareLock on ZooKeeper path "/w/taken"' ],
	several   => [ "SELECT zk_lock(ARRAY['/w/taken-too', '/w/taken'])", 'ExclusiveLock on ZooKeeper path "/w/taken"' ],
	tree      => [ "SELECT zk_lock_tree('/w/taken/part', '/w')", 'ShareLock on ZooKeeper path "/w/taken"' ],
	permit    => [ "SELECT zk_semaphore_acquire('/w/permits', 1)", 'SemaphorePermit on ZooKeeper path "/w/permits"' ]);

# The result of a wait that comes to such an end
sub ended($end, $sql, $s = $a->session)
{
	$s->query($ends{$end}[0]) if $ends{$end}[0];
	$s->query_start($sql);
	return $s->result if $end ne 'cancel';
	$a->wait_event($s, 'lock');
	$s->cancel;
	return $s->result;
}

foreach my $end (sort keys %ends)
{
	subtest "the error of $end says what was waited for" => sub {
		foreach my $wait (sort keys %waits)
		{
			fails(ended($end, $waits{$wait}[0]), $ends{$end}[1], $wait, context => "while waiting for $waits{$wait}[1]");
		}
	};
}

subtest 'a session that is terminated leaves it in the log' => sub {
	my $mark = $a->log_mark;
	my $s    = $a->session;
	$s->start_waiting("SELECT zk_lock('/w/taken')");
	$s->terminate;
	$a->assert_log($mark,
		qr/FATAL:  terminating connection due to administrator command\n(?:.*DETAIL:  .*\n)?.*CONTEXT:  while waiting for ExclusiveLock on ZooKeeper path "\/w\/taken"\n/,
		'FATAL, with a CONTEXT');
};

subtest 'the path needs no conversion, which could fail' => sub {
	$a->value("CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
	my $s = $a->session(dbname => 'latin1');
	$s->query($_) foreach 'CREATE EXTENSION zklock', "SET client_encoding = 'LATIN1'";
	fails(ended('lock_timeout', "SELECT zk_lock('/w/b' || chr(228) || 'r')", $s), '55P03', 'a database of another encoding',
		context => 'while waiting for ExclusiveLock on ZooKeeper path "/w/b\xc3\xa4r"');
};

subtest 'lock_timeout and log_lock_waits are not for elements of queues' => sub {
	my $mark = $a->log_mark;
	my $s    = $a->session;
	$s->query("SET lock_timeout = '1ms'");
	is($s->query("SELECT $_('/w/queue', '500ms') IS NULL"), 't', "$_ waits for as long as its own timeout says")
	  foreach qw(zk_queue_take zk_xact_queue_take);
	unlike($a->log_since($mark), qr/still waiting for/, 'that nobody offers anything is not logged');
};

# Until the lease has passed; it is lost eight seconds later.
sub go_away
{
	$a->wait_session;
	$zk->pause;
	$a->wait_value("SELECT lease_remaining FROM zk_session", '00:00:00');
	return;
}

subtest 'while ZooKeeper is away' => sub {
	my $mark   = $a->log_mark;
	my ($writer, $other, $hasty) = map {
		in_transaction($a, $_, "/w/$_", "INSERT INTO t VALUES ('$_')");
		$s{$_};
	} qw(writer other hasty);
	$hasty->query("SET LOCAL statement_timeout = '50ms'");
	my $single = on($a, 'single');
	$single->query($_) foreach "SELECT zk_lock('/w/single')", "SET statement_timeout = '1s'";
	my $waiter = on($a, 'waiter');
	go_away();
	$_->query_start('COMMIT') foreach $writer, $other, $hasty;
	$single->query_start("INSERT INTO t VALUES ('single')");
	$waiter->query_start("SELECT zk_lock('/w/free')");
	logged($mark, 'writer', qr/proof of its ZooKeeper locks before commit after \d+/, $away);
	logged($mark, 'waiter', qr/ExclusiveLock on ZooKeeper path "\/w\/free" after \d+\.\d{3}/, $away);
	$a->wait_event($writer, 'guard');
	pass('pg_stat_activity tells it from a wait for a lock');
	fails($hasty->result, '57014', 'statement_timeout ends a COMMIT',
		message => 'canceling statement due to statement timeout',
		context => qr/^while waiting for proof of ZooKeeper locks before commit: $away$/);
	is($hasty->query('SHOW transaction_isolation'), 'read committed', 'and with it the transaction');

	$other->cancel;
	fails($other->result, '57014', 'a cancellation does', context => qr/^while waiting for proof of ZooKeeper locks before commit: $away$/);
	foreach my $end (sort keys %ends)
	{
		like(ended($end, "SELECT zk_lock('/w/away')")->{context},
			qr/^while waiting for ExclusiveLock on ZooKeeper path "\/w\/away": $away$/, "$end: the context names the reason");
	}

	$zk->resume;
	ok($writer->result->{ok}, 'the other COMMIT succeeds when ZooKeeper is back');
	my $pid = $writer->pid;
	$a->assert_log($mark, qr/LOG:  process $pid acquired proof of its ZooKeeper locks before commit after \d+ ms\n/,
		'as the log tells');
	ok($single->result->{ok}, 'statement_timeout does not end the commit of a single statement');
	is($a->value('SELECT string_agg(who, $$ $$ ORDER BY who) FROM t'), 'single writer', 'and no others have written');
	is($waiter->finish, 't', 'a lock is had again');
	is(scalar(() = $a->log_since($mark) =~ /process $pid (?:still waiting for|acquired) proof/g), 2, 'each was logged once');
	all_disconnect();
};

subtest 'statement_timeout ends the COMMIT of a procedure' => sub {
	my $s = $a->session;
	$s->query($_) foreach "SET statement_timeout = '1s'", "SELECT zk_lock('/w/procedure')";
	go_away();
	fails($s->try('DO $$ BEGIN INSERT INTO t VALUES ($q$procedure$q$); COMMIT; END $$'), '57014', 'the timeout ends it',
		message => 'canceling statement due to statement timeout',
		context => qr{^while waiting for proof of ZooKeeper locks before commit: $away\nPL/pgSQL function .* at COMMIT});
	$zk->resume;
	$a->wait_session;
	is($a->value('SELECT count(*) FROM t'), 2, 'and nothing is written');
};

done_clean($zk, $a, $b);
