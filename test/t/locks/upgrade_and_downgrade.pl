# Copyright (c) 2026, zklock contributors
#
# Upgrades from shared to exclusive: which sessions an upgrade waits for, and which wait for it.
# Downgrades from exclusive to shared: other readers come in, and writers stay out, whatever disturbs it.
#
# Sessions of two database servers, of which a talks to ZooKeeper through a proxy, kazoo's ReadLock and Lock, and nodes as
# Curator's InterProcessReadWriteLock makes them.

use Zklock::Test;

my ($zk, $proxy, $a, $b) = cast('a b',
	proxied => 'a', timeout => '12s', conf => [ 'log_lock_waits = on', "deadlock_timeout = '1s'" ]);
my $kazoo = $zk->shell;
my @as    = map { $a->session(name => "a$_") } 1 .. 4;
my @bs    = map { $b->session(name => "b$_") } 1 .. 3;
my $path  = '/t/upgrade';

sub queue($session, $function)
{
	$session->start_queued("SELECT $function('$path')", $path);
	return;
}

sub clean
{
	$_->query('SELECT zk_unlock_all()') foreach @as, @bs;
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
	return;
}

subtest 'an upgrade waits for all other readers, and lets nobody else in meanwhile' => sub {
	is($_->query("SELECT zk_lock_shared('$path')"), 't', $_->name . ' reads') foreach @as[ 0, 1 ], $bs[0];
	is($kazoo->lock('r', $path, kind => 'shared'), 1, 'so does a foreigner');
	is($_->query("SELECT zk_try_lock('$path')"), 'f', $_->name . ' cannot upgrade at once') foreach $as[0], $bs[0];
	is($as[0]->query("SELECT zk_lock('$path', '50ms')"), 'f', 'nor in a while');
	is_deeply([ $as[0]->modes($path) ], ['shared held'], 'and reads on');
	my $token = $as[0]->query("SELECT zk_fencing_token('$path')");
	my $mark  = $a->log_mark;
	queue($as[0], 'zk_lock');
	$kazoo->unlock('r');
	is($bs[0]->query("SELECT zk_unlock_shared('$path')"), 't', 'who is on another server goes, and the foreigner');
	$_->settle foreach $a, $b;
	ok($as[0]->busy, 'who upgrades waits for a session of the same server, which has the same node');
	my ($waiting) = $a->locks('pid = ' . $as[0]->pid . " AND state = 'waiting'");
	is($waiting->{mode}, 'exclusive', 'zk_locks shows for what');
	is($waiting->{blocked_by_pid}, $as[1]->pid, 'and for whom');
	$a->wait_log(qr/process @{[ $as[0]->pid ]} still waiting for ExclusiveLock on ZooKeeper path "$path"/, $mark);
	pass('so does the log');
	is($_->query("SELECT zk_try_lock_shared('$path')"), 'f', 'nobody else comes in meanwhile') foreach $as[2], $bs[1];
	# Something else that wakes it up is no reason to log the wait once more.
	$a->value('SELECT pg_log_backend_memory_contexts(' . $as[0]->pid . ')');
	$a->wait_log(qr/Grand total: /, $mark);
	is($as[1]->query("SELECT zk_unlock_shared('$path')"), 't', 'the other one goes');
	is($as[0]->finish, 't', 'and the upgrade is done');
	is(scalar(() = $a->log_since($mark) =~ /process @{[ $as[0]->pid ]} still waiting/g), 1, 'the wait is logged once');
	is_deeply([ $as[0]->modes($path) ], [ 'exclusive held', 'shared held' ], 'both modes are held');
	cmp_ok($as[0]->query("SELECT zk_fencing_token('$path')"), '>', $token, 'with a token beyond the shared one');
	is($_->query("SELECT zk_try_lock_shared('$path')"), 'f', 'by nobody else') foreach $as[2], $bs[1];
	is($as[0]->query("SELECT zk_unlock('$path')"), 't', 'then back');
	is($_->query("SELECT zk_try_lock_shared('$path')"), 't', 'others share again') foreach $as[2], $bs[1];
	is($_->query("SELECT zk_try_lock('$path')"), 'f', 'and cannot do more') foreach $as[2], $bs[1];
	clean();
};

foreach my $case (
	[ 'an upgrade', "zk_lock_shared('$path') AND zk_lock('$path')", 'zk_lock' ],
	[ 'a lock in both modes', "zk_lock('$path') AND zk_lock_shared('$path')", 'zk_lock_shared' ])
{
	my ($what, $lock, $function) = @$case;
	subtest "who queues behind $what waits for the shared lock that is left of it, and keeps the place" => sub {
		is($as[0]->query("SELECT $lock"), 't', 'both modes are held');
		queue($as[1], 'zk_lock');
		queue($bs[0], $function);
		my @nodes = $zk->children($path);
		is($as[0]->query("SELECT zk_unlock('$path')"), 't', 'a downgrade, with a writer of the same server next');
		is_deeply([ $as[0]->modes($path) ], ['shared held'], 'the holder reads');
		is_deeply([ sort $zk->children($path) ], [ sort @nodes ], 'its node is needed for the writer');
		$_->settle foreach $a, $b;
		ok($_->busy, $_->name . ' waits') foreach $as[1], $bs[0];
		is(($a->locks('pid = ' . $as[1]->pid))[0]{blocked_by_pid}, $as[0]->pid, 'the writer for the reader');
		is($as[0]->query("SELECT zk_unlock_shared('$path')"), 't', 'it goes');
		is($as[1]->finish, 't', 'the writer has its turn');
		ok($bs[0]->busy, 'first');
		$as[1]->hands_over($path, $bs[0], 'then who is behind');
		clean();
	};
}

subtest 'an upgrade waits for older writers, too, whose turn comes first' => sub {
	is($as[0]->query("SELECT zk_lock_shared('$path')"), 't', 'a reader');
	queue($bs[0], 'zk_lock');
	is($as[0]->query("SELECT zk_lock('$path', '50ms')"), 'f', 'cannot pass a writer who waits for it');
	queue($as[0], 'zk_lock');
	$bs[0]->cancel;
	is($as[0]->finish, 't', 'but follows it');
	is($bs[0]->result->{sqlstate}, '57014', 'when it gives up');
	clean();
};

subtest 'of two readers of two servers that upgrade one has to give up' => sub {
	my ($one, $two) = ($as[0], $bs[0]);
	is($_->query("SELECT zk_lock_shared('$path')"), 't', $_->name . ' reads') foreach $one, $two;

	# Nobody looks for a deadlock: the one session does not, the other one's server not so soon.
	$one->query("SET deadlock_timeout = '1h'");
	queue($one, 'zk_lock');
	$two->query("SET deadlock_timeout = '100ms'");
	my $log = $b->log_mark;
	$two->start_waiting("SELECT zk_lock('$path', '600ms')", $path);
	my $waiting = $two->wait_row('blocked_by_node IS NOT NULL');
	ok((grep { $_ eq $waiting->{blocked_by_node} } $zk->children($path)), 'zk_locks names the other\'s node');
	is($two->finish, 'f', 'the second one ends at its timeout');
	like($b->log_since($log),
		qr/still waiting for ExclusiveLock.*\n.*DETAIL:  Processes holding the lock: (?:\d+ of server a, \d+|\d+, \d+ of server a)\. Wait queue: /,
		'the log says for whom it waited');
	is_deeply([ $two->modes($path) ], ['shared held'], 'it reads on');
	ok($one->busy, 'so that the first has to wait');
	is($two->query("SELECT zk_unlock_shared('$path')"), 't', 'until it goes');
	is($one->finish, 't', 'then the first is upgraded');
	$_->query('RESET deadlock_timeout') foreach $one, $two;
	clean();
};

subtest 'an upgrade that is cancelled leaves the shared lock, one that is terminated nothing' => sub {
	is($_->query("SELECT zk_lock_shared('$path')"), 't', $_->name . ' reads') foreach $as[0], $bs[0];
	queue($as[0], 'zk_lock');
	is($as[0]->cancelled, '57014', 'an upgrade is cancelled');
	wait_until { $zk->children($path) == 2 } 'its node to go';
	is_deeply([ $as[0]->modes($path) ], ['shared held'], 'it reads on');
	$as[0]->query("SET lock_timeout = '50ms'");
	is($as[0]->try("SELECT zk_lock('$path')")->{sqlstate}, '55P03', 'lock_timeout ends it as well');
	$as[0]->query('RESET lock_timeout');
	is_deeply([ $as[0]->modes($path) ], ['shared held'], 'it reads on');
	my $victim = $a->session;
	is($victim->query("SELECT zk_lock_shared('$path')"), 't', 'another reader');
	queue($victim, 'zk_lock');
	is($victim->terminated, '57P01', 'is terminated while it upgrades');
	is($_->query("SELECT zk_unlock_shared('$path')"), 't', $_->name . ' goes') foreach $as[0], $bs[0];
	clean();
};

$path = '/t/downgrade';

$kazoo->connect($zk->connect_string, client => 'writer');

foreach my $case (
	[ 'by hand', 'SELECT 1', "zk_lock('$path') AND zk_lock_shared('$path')", "SELECT zk_unlock('$path')" ],
	[ 'at the end of a transaction', 'BEGIN', "zk_xact_lock('$path') AND zk_lock_shared('$path')", 'COMMIT' ],
	[ 'by a rollback to a savepoint', 'BEGIN; SAVEPOINT s', "zk_xact_lock('$path') AND zk_lock_shared('$path')", 'ROLLBACK TO s' ],
	[ 'by zk_unlock_all', 'BEGIN', "zk_lock('$path') AND zk_xact_lock_shared('$path')", 'SELECT zk_unlock_all()' ])
{
	my ($how, $begin, $lock, $unlock) = @$case;
	subtest "a lock is downgraded $how" => sub {
		# Behind the holder come readers there and here, three writers, another reader.
		my $down = $as[0];
		is($down->query("$begin; SELECT $lock"), 't', 'both modes are held');
		my $token = $down->query("SELECT zk_fencing_token('$path')");
		queue($bs[0], 'zk_lock_shared');
		$_->settle foreach $a, $b;
		queue($as[1], 'zk_lock_shared');
		queue($bs[1], 'zk_lock');
		my $foreign_writer = $kazoo->lock_start('w', $path, client => 'writer');
		wait_until { $zk->children($path) == 5 } 'the foreign writer to queue';
		$_->settle foreach $a, $b;
		queue($as[2], 'zk_lock');
		queue($bs[2], 'zk_lock_shared');

		my ($node) = ($a->locks('pid = ' . $down->pid))[0]{node};
		my $told = $down->query($unlock);
		is($told, 't', 'the exclusive mode goes') if $unlock =~ /zk_unlock\(/;
		is_deeply([ $down->modes($path) ], ['shared held'], 'it is a reader now');
		is($down->query("SELECT zk_fencing_token('$path')"), $token, 'with the same token');
		is($bs[0]->finish, 't', 'a reader of another server comes in');
		is($as[1]->finish, 't', 'and one of the same server');
		my ($now) = ($a->locks('pid = ' . $down->pid))[0]{node};
		is(substr($now, -10), substr($node, -10), 'its node has inherited the sequence');
		like($now, qr/__READ__\d{10}$/, 'and is a shared one');
		ok(!(grep { $_ eq $node } $zk->children($path)), 'the exclusive one is gone');
		$_->settle foreach $a, $b;
		ok($_->busy, $_->name . ' waits on') foreach $bs[1], $as[2], $bs[2];
		ok(!$kazoo->ready($foreign_writer), 'so does the foreign writer');

		$_->query("SELECT zk_unlock_shared('$path')") foreach $bs[0], $as[1];
		$_->settle foreach $a, $b;
		ok($_->busy, $_->name . ' waits for the one that was downgraded') foreach $bs[1], $as[2], $bs[2];
		ok(!$kazoo->ready($foreign_writer), 'so does the foreign writer');
		$down->query('COMMIT; SELECT zk_unlock_all()');
		is($bs[1]->finish, 't', 'when it goes, they are served in turn: a writer');
		cmp_ok($bs[1]->query("SELECT zk_fencing_token('$path')"), '>', $token, 'with a token beyond');
		ok(!$kazoo->ready($foreign_writer), 'alone');
		$bs[1]->query("SELECT zk_unlock('$path')");
		is($kazoo->result($foreign_writer), 1, 'the foreign one');
		$kazoo->unlock('w', client => 'writer');
		is($as[2]->finish, 't', 'one more');
		$as[2]->hands_over($path, $bs[2], 'and a reader');
		clean();
	};
}

subtest 'a foreign reader comes in when no writer is behind it' => sub {
	# Kazoo before 2.9 waits for younger ones too.
	is($as[0]->query("SELECT zk_lock('$path') AND zk_lock_shared('$path')"), 't', 'both modes are held');
	my $foreign_reader = $kazoo->lock_start('r', $path, kind => 'shared');
	wait_until { $zk->children($path) == 2 } 'the foreign reader to queue';
	is($as[0]->query("SELECT zk_unlock('$path')"), 't', 'a downgrade');
	is($kazoo->result($foreign_reader), 1, 'lets a foreign reader in');
	is($as[1]->query("SELECT zk_try_lock_shared('$path')"), 't', 'and others');
	is($as[0]->query("SELECT zk_try_lock('$path')"), 'f', 'for which an upgrade has to wait');
	$kazoo->unlock('r');
	clean();
};

subtest "Curator's downgrade is not taken for a release, also when nobody has come since" => sub {
	# A shared node that inherits the sequence, which we must not miss. When others have come, it is as in
	# locks/downgraded_elsewhere.pl.
	my $curator = '_c_6f9619ff-8b86-4d01-b42d-00cf4fc964ff-';
	my $writer  = $kazoo->create("$path/${curator}__WRIT__", ephemeral => 1, sequence => 1, makepath => 1);
	my ($sequence) = $writer =~ /(\d{10})$/;
	queue($as[0], 'zk_lock');
	$_->settle foreach $a, $b;
	my $reader = $kazoo->create("$path/${curator}__READ__$sequence", ephemeral => 1);
	$_->settle foreach $a, $b;
	$kazoo->delete($writer);
	$_->settle foreach $a, $b;
	ok($as[0]->busy, 'a session does not take it for gone');
	wait_until {
		my ($row) = $a->locks('pid = ' . $as[0]->pid);
		"$path/" . ($row->{blocked_by_node} || '') eq $reader;
	} 'the session to wait for the shared node';
	$kazoo->delete($reader);
	is($as[0]->finish, 't', 'it waits for the shared node');
	clean();
};

# ---- downgrades that are disturbed while others wait for them
#
# Whatever happens, the holder always has one node, so that no writer comes in. In the end the node is a shared one and
# readers come in, or it has gone with its holder. The faults of the one call that it takes are in the table of faults,
# faults/faults_of_several_locks.pl.

my $id = $a->session_id;
my ($reader, $writer) = map { $b->session(name => $_) } qw(reader writer);
my $number = 0;
my $holder;

# A holder in both modes, and a reader and a writer behind it, and others in between.
sub begin($what, @next)
{
	$path   = '/down/' . ++$number;
	$holder = $a->session(name => 'holder');
	is($holder->query("SELECT zk_lock('$path') AND zk_lock_shared('$path')"), 't', "$what: both modes are held");
	foreach my $next (@next)
	{
		$next->start_queued("SELECT zk_lock('$path')", $path);
	}
	$reader->start_queued("SELECT zk_lock_shared('$path')", $path);
	$writer->start_queued("SELECT zk_lock('$path')", $path);
	return;
}

# Nodes of server a below the path.
sub ours { return grep { ($kazoo->stat("$path/$_") || {})->{ephemeralOwner} eq $id } $zk->children($path); }

sub is_downgraded
{
	is($reader->finish, 't', 'the reader comes in');
	my @ours = ours();
	is(scalar(@ours), 1, 'the holder has one node');
	like($ours[0], qr/__READ__\d{10}$/, 'a shared one');
	# Which its server learns after the reader's does.
	$a->wait_value("SELECT state, mode, node FROM zk_locks WHERE path = '$path'", "held|shared|$ours[0]");
	pass('which zk_locks names');
	$reader->query("SELECT zk_unlock_shared('$path')");
	ok($writer->busy, 'the writer stays out');
	is($holder->query("SELECT zk_unlock_shared('$path')"), 't', 'the holder goes');
	is_gone();
	return;
}

sub is_gone
{
	is($writer->finish, 't', 'the writer has its turn');
	$writer->query("SELECT zk_unlock('$path')");
	$holder->disconnect;
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
	is($a->session_id, $id, 'all in one session');
	return;
}

subtest 'a holder that goes before its downgrade is known to be done leaves nothing behind' => sub {
	foreach my $hold (qw(hold_reply hold_request))
	{
		my $of = "${hold}_of";
		foreach my $restart (0, 1)
		{
			begin($hold);
			$proxy->$of($holder, "SELECT zk_unlock('$path')", op => 'multi', path => "^$path/");
			is($holder->cancelled, '57014', 'the end of the downgrade is waited for, until cancelled');
			$holder->query_start("SELECT zk_unlock_shared('$path')");
			$a->wait_value("SELECT count(*) FROM zk_locks WHERE path = '$path' AND state = 'releasing'", 1);
			ok($writer->busy, 'the writer stays out so far');
			$a->restart_worker if $restart;
			$a->reconnect($proxy);
			$holder->finish;
			is($reader->finish, 't', 'the reader comes in');
			is_deeply([ ours() ], [], 'nothing of the holder is left') if !$a->lock_count;
			$reader->query("SELECT zk_unlock_shared('$path')");
			is_gone();
		}
	}
};

subtest 'a quorum that is asked before a downgrade is known to be done is asked for the new node' => sub {
	$a->value('ALTER DATABASE postgres SET zklock.commit_guard = quorum');
	begin('a commit');
	$a->value('ALTER DATABASE postgres RESET zklock.commit_guard');
	$holder->query('CREATE TABLE IF NOT EXISTS work (n int)');
	$holder->query($_) foreach 'BEGIN', 'INSERT INTO work VALUES (1)', 'SAVEPOINT s';
	$proxy->hold_reply_of($holder, "SELECT zk_unlock('$path')", op => 'multi', path => "^$path/");
	is($holder->cancelled, '57014', 'the end of the downgrade is waited for, until cancelled');
	$holder->query('ROLLBACK TO s');
	my $multis = sub { scalar grep { $_->[0] eq 'multi' } @{ $proxy->requests } };
	my $before = $multis->();
	$holder->query_start('COMMIT');
	wait_until { $multis->() > $before } 'the quorum to be asked';
	$proxy->heal;
	is($holder->result->{sqlstate}, '00000', 'the transaction commits');
	is_downgraded();
};

subtest 'a holder that shares stays so when the worker is restarted, though its node is exclusive' => sub {
	# And while a session of the same server waits in the same run, so that the node is
	# exclusive and its holder is not.
	my $next = $a->session(name => 'next');
	my $last = $a->session(name => 'last');
	begin('next in the run', $next);
	is($holder->query("SELECT zk_unlock('$path')"), 't', 'unlocked');
	$a->restart_worker;
	$a->wait_session;
	ok($_->busy, $_->name . ' waits') foreach $reader, $writer, $next;
	my ($row) = $a->locks("path = '$path' AND state = 'held'");
	is("$row->{pid} $row->{mode}", $holder->pid . ' shared', 'after a restart of the worker the holder still shares the lock');
	is($last->query("SELECT zk_try_lock_shared('$path')"), 'f', 'with nobody: others are next');
	is($next->cancelled, '57014', 'one gives up');
	$_->disconnect foreach $next, $last;
	is_downgraded();
};

# The node of a downgraded holder is not the one that was created for it, as nobody but the holder's record says.
subtest 'nobody joins a holder that was downgraded, though by an earlier worker' => sub {
	my $other = $a->session(name => 'other');
	$path   = '/down/' . ++$number;
	$holder = $a->session(name => 'holder');
	$holder->query($_) foreach "SELECT zk_lock('$path')", "SELECT zk_lock_shared('$path')", "SELECT zk_unlock('$path')";
	like((ours())[0], qr/__READ__\d{10}$/, 'it is downgraded');
	$a->restart_worker;
	$a->wait_session;
	is($other->query("SELECT zk_lock_shared('$path')"), 't', 'another session comes in');
	is(scalar(ours()), 2, 'under a node of its own');
	is($holder->query("SELECT zk_unlock_shared('$path')"), 't', 'the holder goes');
	$a->cut_off($proxy);
	$a->reconnect($proxy);
	is($other->query("SELECT zk_unlock_shared('$path')"), 't', 'and the other holds what it has on the next connection');
	$_->disconnect foreach $holder, $other;
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
};

subtest 'a holder that is cut off is downgraded afterwards' => sub {
	begin('cut off');
	$a->cut_off($proxy);
	is($holder->query("SELECT zk_unlock('$path')"), 't', 'unlocked, without waiting for ZooKeeper');
	is($holder->query('SELECT 1'), 1, 'the session goes on');
	ok($reader->busy, 'the reader waits');
	$a->reconnect($proxy);
	is_downgraded();
};

subtest 'who comes while a holder is cut off does not keep it from being downgraded' => sub {
	my ($down, $writer) = @as[ 0, 1 ];
	is($down->query("SELECT zk_lock('$path') AND zk_lock_shared('$path') AND zk_lock_shared('$path')"), 't', 'both modes are held');
	$a->cut_off($proxy);
	is($down->query("SELECT zk_unlock('$path')"), 't', 'the exclusive one is unlocked');
	$writer->start_waiting("SELECT zk_lock('$path')", $path);
	$a->reconnect($proxy);
	is($down->query("SET statement_timeout = '30s'; SELECT zk_unlock_shared('$path')"), 't', 'a shared one is unlocked, while the other is held');
	ok($writer->busy, 'who came waits for that');
	is($down->query("SET statement_timeout = 0; SELECT zk_unlock_shared('$path')"), 't', 'it is unlocked as well');
	is($writer->finish, 't', 'and who came has the lock');
	clean();
};

subtest 'a node of another client that has taken the name is left alone' => sub {
	$path   = '/down/' . ++$number;
	$holder = $a->session(name => 'holder');
	$a->write_dialect('hive', $holder);
	is($holder->query("SELECT zk_lock('$path') AND zk_lock_shared('$path')"), 't', 'hive: both modes are held');
	my ($name) = ours();
	$a->cut_off($proxy);
	is($holder->query("SELECT zk_unlock('$path')"), 't', 'unlocked while cut off');
	$kazoo->delete("$path/$name");
	$kazoo->create("$path/$name", ephemeral => 1);
	$a->reconnect($proxy);
	$a->wait_lock($holder, 'lost', $path);
	is_deeply([ $zk->children($path) ], [$name], "the other's node stays");
	is($holder->query("SELECT zk_unlock_shared('$path')"), 'f', 'the holder hears that it has lost the lock');
	is_deeply([ $zk->children($path) ], [$name], 'and leaves it alone as well');
	$kazoo->delete("$path/$name");
	$a->write_dialect('curator', $holder);
	$holder->disconnect;
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
};

subtest 'a downgrade whose name is taken is repeated until it is free' => sub {
	begin('name taken');
	my ($taken) = map { s/-lock-/-__READ__/r } ours();
	$kazoo->create("$path/$taken");
	$holder->query_start("SELECT zk_unlock('$path')");
	my $attempts = 0;
	wait_until {
		$attempts = grep { $_->[0] eq 'multi' && ($_->[1] // '') eq "$path/$taken" } @{ $proxy->requests };
	} 'an attempt';
	ok($holder->busy, 'a name that is taken: the holder waits');
	ok($_->busy, $_->name . ' waits') foreach $reader, $writer;
	is(scalar(ours()), 1, 'it has its node');
	$kazoo->delete("$path/$taken");
	is($holder->finish, 't', 'unlocked when the name is free');
	is_downgraded();
};

subtest 'a holder whose node is deleted before or after a downgrade has lost the lock' => sub {
	foreach my $when (qw(before after))
	{
		begin("deleted $when");
		my $reader_comes = sub {
			is($reader->finish, 't', 'the reader comes in');
			$reader->query("SELECT zk_unlock_shared('$path')");
		};
		# Before ZooKeeper hears of the downgrade, or when it is done
		my $held = $when eq 'before' && $proxy->hold_request(op => 'multi', path => "^$path/");
		$holder->query_start("SELECT zk_unlock('$path')");
		$held ? $proxy->fired($held) : $holder->finish;
		$reader_comes->() if !$held;
		$kazoo->delete("$path/$_") foreach ours();
		$reader_comes->() if $held;
		is($writer->finish, 't', 'the writer comes in');
		$proxy->heal;
		$holder->result if $held;
		$a->wait_lock($holder, 'lost', $path);
		pass('the holder has lost the lock');
		is_deeply([ ours() ], [], 'and does not get it back');
		is($holder->try("SELECT zk_lock('$path')")->{sqlstate}, '40001', 'it cannot build on it');
		is($holder->query("SELECT zk_unlock_shared('$path')"), 'f', 'and hears of it when it goes');
		$writer->query("SELECT zk_unlock('$path')");
		$holder->disconnect;
		Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
	}
};

done_clean($zk, $a, $b);
