# Copyright (c) 2026, zklock contributors
#
# Shared locks: which sessions share one, which wait, and how many requests that takes.
#
# Readers and writers of two database servers, and kazoo's ReadLock and Lock as foreign
# ones. Server a talks to ZooKeeper through a proxy that counts.

use Zklock::Test;

# What is asked and written when a wait lasts would be counted, too.
my ($zk, $proxy, $a, $b) = cast('a b',
	proxied => 'a', a => { conf => ["deadlock_timeout = '1h'"], max_connections => 150 });
my $kazoo = $zk->shell;
my @as    = map { $a->session(name => "a$_") } 1 .. 5;
my @bs    = map { $b->session(name => "b$_") } 1 .. 3;
my $path  = '/t/shared';

# Asks and waits until that is in the queue.
sub queue($session, $function)
{
	$session->start_queued("SELECT $function('$path')", $path);
	return;
}

sub contenders { return scalar $zk->children($path); }

subtest 'readers share a lock, and a writer waits for the last of them' => sub {
	is($as[0]->query("SELECT zk_lock_shared('$path')"), 't', 'a reader');
	is($as[1]->query("SELECT zk_lock_shared('$path', '0')"), 't', 'another one of the same server');
	is($bs[0]->query("SELECT zk_try_lock_shared('$path')"), 't', 'one of another server');
	is($kazoo->lock('r', $path, kind => 'shared'), 1, 'and a foreign one');
	is(contenders(), 3, 'readers of one server have one node');
	is($_->query("SELECT zk_try_lock('$path')"), 'f', $_->name . ' cannot write') foreach @as[ 2, 3 ], $bs[1];
	is($_->query("SELECT zk_lock('$path', '10ms')"), 'f', $_->name . ' cannot wait that out') foreach $as[2], $bs[1];
	wait_until { contenders() == 3 } 'what they left behind to go';

	queue($as[2], 'zk_lock');
	is($as[0]->query("SELECT zk_unlock_shared('$path')"), 't', 'one reader goes');
	is($bs[0]->query("SELECT zk_unlock_shared('$path')"), 't', 'a second one');
	ok($kazoo->unlock('r') || 1, 'a third one');
	$a->settle;
	ok($as[2]->busy, 'a writer waits for the last');
	is(($a->locks('pid = ' . $as[2]->pid))[0]{blocked_by_pid}, $as[1]->pid, 'which zk_locks names');
	is($as[1]->query("SELECT zk_unlock_shared('$path')"), 't', 'it goes');
	is($as[2]->finish, 't', 'and the writer has its turn');
};

subtest 'a writer keeps readers out, everywhere' => sub {
	is($_->query("SELECT zk_try_lock_shared('$path')"), 'f', $_->name . ' cannot read') foreach $as[0], $bs[0];
	is($kazoo->lock('r', $path, kind => 'shared', timeout => 0.1), 0, 'nor can a foreigner');
	is($as[2]->query("SELECT zk_unlock('$path')"), 't', 'the writer goes');
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
};

subtest 'readers queue behind a writer that waits, so that it has its turn' => sub {
	foreach my $case ([ 'of the same server', $as[4] ], [ 'of another server', $bs[2] ], ['of another program'])
	{
		my ($what, $writer) = @$case;
		my $waits;
		is($as[0]->query("SELECT zk_lock_shared('$path')"), 't', "a reader, and a writer $what that waits");
		if ($writer)
		{
			queue($writer, 'zk_lock');
		}
		else
		{
			$waits = $kazoo->lock_start('w', $path);
			wait_until { contenders() == 2 } 'it to queue';
		}
		$a->settle;
		queue($as[1], 'zk_lock_shared');
		wait_until { $a->lock_count('pid = ' . $as[1]->pid . ' AND blocked_by_pid = ' . $as[4]->pid) }
		'zk_locks to name it as the one who is waited for'
		  if $as[4]->busy;
		queue($as[2], 'zk_xact_lock_shared');
		queue($bs[0], 'zk_lock_shared');
		is($_->query("SELECT zk_try_lock_shared('$path')"), 'f', 'a reader who does not wait does not pass it') foreach $as[3], $bs[1];
		is($as[0]->query("SELECT zk_lock_shared('$path')"), 't', 'but who reads goes on reading');
		is($as[0]->query("SELECT zk_unlock_shared('$path'), zk_unlock_shared('$path')"), 't|t', 'the first reader goes');
		ok($writer ? $writer->finish eq 't' : $kazoo->result($waits), 'the writer has its turn');
		$a->settle;
		ok($_->busy, $_->name . ' waits for it') foreach @as[ 1, 2 ], $bs[0];
		$writer ? $writer->query("SELECT zk_unlock('$path')") : $kazoo->unlock('w');
		is($_->finish, 't', $_->name . ' reads') foreach @as[ 1, 2 ], $bs[0];
		$_->query('SELECT zk_unlock_all()') foreach @as, @bs;
		Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
	}
};

subtest 'readers do not wait for a writer that has given up' => sub {
	foreach my $how (qw(cancel terminate))
	{
		my $writer = $b->session;
		is($as[0]->query("SELECT zk_lock_shared('$path')"), 't', 'a reader');
		queue($writer, 'zk_lock');
		$a->settle;
		queue($as[1], 'zk_lock_shared');
		queue($bs[0], 'zk_lock_shared');
		$writer->$how;
		$writer->result;
		is($_->finish, 't', "after the writer's $how " . $_->name . ' reads') foreach $as[1], $bs[0];
		$_->query('SELECT zk_unlock_all()') foreach @as, @bs;
		Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
	}
};

subtest 'a hundred readers come in at once behind a writer, with a handful of requests' => sub {
	my @readers = map { $a->session(name => "reader$_") } 1 .. 100;

	foreach my $case ([ 'of another server', $bs[0], 1 ], [ 'of the same server', $as[0], 0 ])
	{
		my ($what, $writer, $foreign) = @$case;
		$path = "/t/hundred$foreign";
		$zk->shell->create($path, makepath => 1);
		is($writer->query("SELECT zk_lock('$path')"), 't', "a writer $what");
		$a->settle;
		$proxy->asked;
		$_->query_start("SELECT zk_lock_shared('$path')") foreach @readers;
		wait_until { $a->lock_count("state = 'waiting' AND mode = 'shared'") == 100 } '100 readers to wait';
		wait_until { $a->lock_count('blocked_by_node IS NOT NULL') == 100 } 'all to stand behind it' if $foreign;
		is(contenders(), 2, 'have one node');
		$a->settle;
		my $asked = $proxy->asked;
		is($asked->{create2} - 1, 1, 'which takes one create');
		cmp_ok($asked->{getChildren} - 1, '<=', 3, 'one listing, and another for those who come meanwhile');
		# On a node of our own only if its path is not watched any more.
		$foreign
		  ? is($asked->{getData} || 0, 2, 'and a watch on the writer, and on the node itself')
		  : cmp_ok($asked->{getData} || 0, '<=', 1, 'and at most a watch on the node itself');
		# All requests after the release, and no answer to a second round of them.
		is($writer->query("SELECT zk_unlock('$path')"), 't', 'the writer goes');
		is(scalar(grep { $_->finish eq 't' } @readers), 100, '100 readers are granted');
		is($a->lock_count("state = 'held' AND mode = 'shared'"), 100, 'all together');
		$asked = $proxy->asked;
		note(join ', ', map { "$_ $asked->{$_}" } sort keys %$asked);
		cmp_ok(($asked->{getData} || 0) + ($asked->{getChildren} || 0), '<=', 1,
			'in one round: at most one question is asked');
		is($asked->{create2} || 0, 0, 'and no node created');
		is($a->value("SELECT count(DISTINCT fencing_token) FROM zk_locks WHERE path = '$path'"), 100,
			'each has a token of its own');
		$_->query("SELECT zk_unlock_shared('$path')") foreach @readers;
		$a->settle;
		is($proxy->asked->{delete}, 2, 'they leave with one delete, and the barrier\'s');
		Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
	}
};

done_clean($zk, $a, $b);
