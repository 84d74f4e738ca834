# Copyright (c) 2026, zklock contributors
#
# Deletions that wait while another one is under way go out in one request, which does all or
# nothing. Whatever becomes of it, each lock is released, and none of them twice. The bug batch-done
# of test/faults/README.md makes this fail.

use Zklock::Test;
use Zklock::Cast qw(%s on hold queue unlock);

plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '20s', conf => ["zklock.parent_nodes = 'persistent'"],
	a => { faults => 'near' });
my $shell = $zk->shell;
my $n     = 6;
my $name  = '';

sub path($i) { return "/batch/$name/$i"; }

# Session 0 releases its lock, and the answer is held back; the others release theirs meanwhile.
# A block may do something before. A new worker has not been refused anything yet.
sub begin($what, $before = undef)
{
	$name = $what;
	$a->restart_worker;
	$a->wait_session;
	# A transaction's lock is watched from the first, so it is known that nobody else has come.
	foreach my $i (0 .. $n)
	{
		on($a, "s$i")->query('BEGIN');
		is($s{"s$i"}->query(sprintf("SELECT zk_xact_lock('%s')", path($i))), 't', "$name: lock $i");
	}
	$a->settle;
	$before->() if $before;
	$proxy->hold_reply_of($s{s0}, 'COMMIT', op => 'delete', path => '^' . path(0) . '/');
	foreach my $i (1 .. $n)
	{
		$s{"s$i"}->query_start('COMMIT');
		$a->wait_value(sprintf("SELECT state FROM zk_locks WHERE path = '%s'", path($i)), 'releasing');
	}
	# The worker answers this by itself, when it has taken up all that was before.
	is(on($a, 'other')->query("SELECT zk_try_lock('/batch/barrier')"), 'f', 'the worker knows of them');
	is(scalar(grep { $zk->children(path($_)) } 0 .. $n), $n, 'while one deletion is under way, no other one is asked for');
	return;
}

# By which transactions the nodes were deleted, once they are
sub deletions
{
	wait_until { !grep { $zk->children(path($_)) } 0 .. $n } 'all locks to be free';
	return map { $shell->stat(path($_))->{pzxid} } 0 .. $n;
}

sub end
{
	foreach my $i (0 .. $n)
	{
		ok($s{"s$i"}->result->{ok}, "session $i has committed");
		wait_until { !$zk->children(path($i)) } "lock $i to be free";
	}
	is($b->value(sprintf "SELECT zk_try_lock('%s') AND zk_unlock('%s')", path($_), path($_)), 't', "anybody can have lock $_") foreach 0 .. $n;
	return;
}

hold($a, 'barrier', '/batch/barrier');

subtest 'deletions that have gathered are one write' => sub {
	begin('gathered');
	$proxy->heal;
	my ($first, @others) = deletions();
	is_deeply(\@others, [ ($others[0]) x $n ], 'all nodes were deleted by one transaction');
	isnt($first, $others[0], 'but for the first');
	end();
};

subtest 'a node that is gone already does not keep the others' => sub {
	begin('gone');
	$shell->delete(path(3) . "/$_") foreach $zk->children(path(3));
	$proxy->heal;
	my %deletions = map { $_ => 1 } deletions();
	is(scalar(keys %deletions), $n + 1, 'each was deleted by itself');
	end();
};

subtest 'nor does one that must not be deleted' => sub {
	begin('forbidden', sub { $shell->set_acl(path(2), [ [ 'world', 'anyone', 'cra' ] ]) });
	my $mark = $a->log_mark;
	$proxy->heal;
	wait_until { !grep { $zk->children(path($_)) } 0, 1, 3 .. $n } 'the other locks to be free';
	ok(scalar $zk->children(path(2)), 'the node is there');
	$a->wait_log(qr{could not delete ZooKeeper node "\Q@{[ path(2) ]}\E/\S+": ZNOAUTH}, $mark);
	$shell->set_acl(path(2), [ [ 'world', 'anyone', 'cdrwa' ] ]);
	end();
};

subtest 'an answer, or a request, that is lost is made up for' => sub {
	foreach my $lose (qw(lose_reply lose_request))
	{
		begin($lose);
		my $fault = $proxy->$lose(op => 'delete', path => '^' . path(1) . '/');
		$proxy->heal;
		end();
		ok($proxy->fired($fault), 'it was lost');
	}
};

subtest 'a worker that ends meanwhile leaves nothing behind' => sub {
	begin('restart');
	$proxy->heal;
	$a->restart_worker;
	end();
};

subtest 'a lock for which another server waits does not wait for the others' => sub {
	hold($a, 'awaited', '/batch/awaited');
	queue($b, 'next', '/batch/awaited');
	begin('others');
	$s{awaited}->query_start("SELECT zk_unlock('/batch/awaited')");
	is($s{next}->finish, 't', 'it is granted while the answer is held back');
	$proxy->heal;
	is($s{awaited}->finish, 't', 'and released');
	end();
	unlock('next', '/batch/awaited');
};

done_clean($zk, $a, $b);
