# Copyright (c) 2026, zklock contributors
#
# A whole path is deleted with everything below it, or a node as soon as it is created.
# Sessions that wait queue again, and none believes that it holds a lock that it has lost.

use strict;
use warnings;

use Test::More;
use Zklock::Cast qw(:DEFAULT token unlock lost one_believer clean);
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(freeze thaw wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $shell = $zk->shell;
my $a = Zklock::Server->new('a', zookeeper => $zk, conf => ["zklock.session_timeout = '20s'"]);
my $b = Zklock::Server->new('b', zookeeper => $zk, conf => ["zklock.session_timeout = '20s'"]);

my $proxy = Zklock::Proxy->start($zk);
my $d = Zklock::Server->new('d', zookeeper => $proxy, conf => ["zklock.session_timeout = '20s'"]);

foreach my $variant ('all at once', 'one after the other')
{
	subtest "all nodes of a path are deleted, $variant: everybody is served in the end" => sub {
		my $path = $variant =~ /once/ ? '/n/tree/once' : '/n/tree/slow';
		hold($a, 'holder', $path);
		queue($a, 'local', $path);
		queue($b, 'remote', $path);
		queue($b, 'remote2', $path);
		my $token = token('holder', $path);
		if ($variant =~ /once/)
		{
			# Workers that are stopped see everything gone at once. The youngest node goes
			# first, so that nobody's predecessor goes before it.
			my @workers = map { $_->worker_pid } $a, $b;
			freeze(@workers);
			$shell->delete("$path/$_") foreach reverse $zk->children($path);
			$shell->delete($path);
			thaw(@workers);
		}
		else
		{
			# They may be quicker than the deletion, and in its way: once is enough.
			my ($czxid) = $shell->stat($path)->{czxid};
			wait_until {
				eval { $shell->delete('/n/tree', recursive => 1) };
				my $stat = $shell->exists($path);
				!$stat || $stat->{czxid} != $czxid;
			} 'the path to be deleted';
		}
		my @waiting = qw(local remote remote2);
		$a->wait_lock($s{holder}, 'lost', $path);
		# All are gone from ZooKeeper and have to queue again.
		while (@waiting)
		{
			my ($next) = do { my @done; wait_until { @done = grep { !$s{$_}->busy } @waiting } "$variant: somebody to get the lock"; @done };
			@waiting = grep { $_ ne $next } @waiting;
			my $server = $next =~ /remote/ ? $b : $a;
			my $result = $s{$next}->result;
			# Its predecessor's node was deleted a moment before its own: it was granted the
			# lock in between, and loses it.
			my $lost = eval { $server->wait_lock($s{$next}, 'lost', $path, 0.3) };
			if (!$result->{ok} || $lost)
			{
				is($result->{sqlstate}, $result->{ok} ? '00000' : '40001',
					"path deleted $variant: $next had the lock for a moment");
				$s{$next}->query('SELECT zk_unlock_all()');
				next;
			}
			is($result->{text}, 't', "path deleted $variant: $next gets the lock");
			$result = $s{$next}->try("SELECT zk_fencing_token('$path')");
			one_believer([ $a, $b ], $next, $path);
			my $now = $result->{text};
			cmp_ok($now, '>', $token, 'with a higher token, though sequences start again');
			$token = $now;
			unlock($next, $path);
		}
		lost($a, 'holder', $path);
		is($zk->children($path), 0, 'and nothing is left there');
		clean($zk, [ $a, $b ], $path);
	};
}

subtest 'a node that is deleted before it has been listed is replaced' => sub {
	$shell->create('/n/new', makepath => 1);
	my $fault = $proxy->hold_request(op => 'getChildren', path => '^/n/new$');
	queue($d, 'asker', '/n/new');
	$proxy->fired($fault);
	my ($born) = $zk->wait_children('/n/new', 1);
	$shell->delete("/n/new/$born");
	$proxy->heal;
	is($s{asker}->finish, 't', 'a node deleted before it was listed: the lock is granted');
	my ($alive) = $zk->wait_children('/n/new', 1);
	isnt($alive, $born, 'with another node');
	is(($d->locks("path = '/n/new' AND state = 'held'"))[0]{node}, $alive, 'which is there');
	$s{asker}->query("SELECT zk_unlock('/n/new')");
};

subtest 'a node that is deleted before its server knows of it is replaced, or the loss is told' => sub {
	# ZooKeeper has granted the lock, and taken it away.
	$shell->create('/n/newer', makepath => 1);
	wait_until { $zk->watch_count == 0 } 'earlier watches to go';
	my $fault = $proxy->hold_reply(op => 'create2', path => '^/n/newer/');
	queue($d, 'asker', '/n/newer');
	$proxy->fired($fault);
	my ($born) = $zk->wait_children('/n/newer', 1);
	# The listing follows the create: when its watch stands it has been made. (wchp would
	# show no watches on children.)
	wait_until { $zk->four_letter('mntr') =~ /^zk_watch_count\t1$/m } 'the watch of the listing';
	$shell->delete("/n/newer/$born");
	$proxy->heal;
	my $asked = $s{asker}->result;
	if ($asked->{ok} && ($d->locks("path = '/n/newer'"))[0]{node} ne $born)
	{
		is($asked->{text}, 't', 'a node deleted before we know that it exists: the lock is granted');
		is_deeply([ $zk->children('/n/newer') ], [ ($d->locks("path = '/n/newer'"))[0]{node} ], 'under another node, which is there');
		is($s{asker}->query("SELECT zk_unlock('/n/newer')"), 't', 'and was not lost');
	}
	elsif ($asked->{ok})
	{
		is($asked->{text}, 't', 'a node deleted before we know that it exists: the lock was granted');
		$d->wait_lock($s{asker}, 'lost', '/n/newer');
		is($s{asker}->try("SELECT zk_unlock('/n/newer')")->{text}, 'f', 'and is lost, which nobody keeps secret');
	}
	else
	{
		is($asked->{sqlstate}, '40001', 'a node deleted before we know that it exists: the lock was lost again');
		is($d->lock_count("state = 'lost'"), 0, 'and nothing is left to release');
	}
	$s{asker}->disconnect;
	delete $s{asker};
	$d->assert_clean($zk, '/n/new', '/n/newer');
};

done_testing;
