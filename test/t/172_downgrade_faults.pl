# Copyright (c) 2026, zklock contributors
#
# A downgrade that is disturbed while others wait for it: a worker restarted in the middle, a holder that leaves before it
# is done, a node deleted by someone else. The faults of the one call that it takes are in the table,
# 293_faults_of_several_locks.pl.
#
# Whatever happens, the holder always has one node, so that no writer comes in. In the end
# the node is a shared one and readers come in, or it has gone with its holder.
#
# Server a talks to ZooKeeper through a proxy that disturbs, and b directly.

use Zklock::Test;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '12s');
my $shell = $zk->shell;
my $id    = $a->session_id;
my ($reader, $writer) = map { $b->session(name => $_) } qw(reader writer);
my $number = 0;
my ($path, $holder);

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
sub ours { return grep { ($shell->stat("$path/$_") || {})->{ephemeralOwner} eq $id } $zk->children($path); }

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

subtest 'a holder that is cut off is downgraded afterwards' => sub {
	begin('cut off');
	$a->cut_off($proxy);
	is($holder->query("SELECT zk_unlock('$path')"), 't', 'unlocked, without waiting for ZooKeeper');
	is($holder->query('SELECT 1'), 1, 'the session goes on');
	ok($reader->busy, 'the reader waits');
	$a->reconnect($proxy);
	is_downgraded();
};

subtest 'a node of another client that has taken the name is left alone' => sub {
	$path   = '/down/' . ++$number;
	$holder = $a->session(name => 'holder');
	$a->write_dialect('hive', $holder);
	is($holder->query("SELECT zk_lock('$path') AND zk_lock_shared('$path')"), 't', 'hive: both modes are held');
	my ($name) = ours();
	$a->cut_off($proxy);
	is($holder->query("SELECT zk_unlock('$path')"), 't', 'unlocked while cut off');
	$shell->delete("$path/$name");
	$shell->create("$path/$name", ephemeral => 1);
	$a->reconnect($proxy);
	$a->wait_lock($holder, 'lost', $path);
	is_deeply([ $zk->children($path) ], [$name], "the other's node stays");
	is($holder->query("SELECT zk_unlock_shared('$path')"), 'f', 'the holder hears that it has lost the lock');
	is_deeply([ $zk->children($path) ], [$name], 'and leaves it alone as well');
	$shell->delete("$path/$name");
	$a->write_dialect('curator', $holder);
	$holder->disconnect;
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
};

subtest 'a downgrade whose name is taken is repeated until it is free' => sub {
	begin('name taken');
	my ($taken) = map { s/-lock-/-__READ__/r } ours();
	$shell->create("$path/$taken");
	$holder->query_start("SELECT zk_unlock('$path')");
	my $attempts = 0;
	wait_until {
		$attempts = grep { $_->[0] eq 'multi' && ($_->[1] // '') eq "$path/$taken" } @{ $proxy->requests };
	} 'an attempt';
	ok($holder->busy, 'a name that is taken: the holder waits');
	ok($_->busy, $_->name . ' waits') foreach $reader, $writer;
	is(scalar(ours()), 1, 'it has its node');
	$shell->delete("$path/$taken");
	is($holder->finish, 't', 'unlocked when the name is free');
	is_downgraded();
};

subtest 'a holder whose node is deleted before or after a downgrade has lost the lock' => sub {
	foreach my $when (qw(before after))
	{
		begin("deleted $when");
		# Before ZooKeeper hears of the downgrade, or when it is done
		my $held = $when eq 'before' && $proxy->hold_request(op => 'multi', path => "^$path/");
		$holder->query_start("SELECT zk_unlock('$path')");
		$held ? $proxy->fired($held) : $holder->finish;
		if (!$held)
		{
			is($reader->finish, 't', 'the reader comes in');
			$reader->query("SELECT zk_unlock_shared('$path')");
		}
		$shell->delete("$path/$_") foreach ours();
		if ($held)
		{
			is($reader->finish, 't', 'the reader comes in');
			$reader->query("SELECT zk_unlock_shared('$path')");
		}
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
