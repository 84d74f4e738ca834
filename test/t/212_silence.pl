# Copyright (c) 2026, zklock contributors
#
# A ZooKeeper server that hangs: connections stand, nothing moves. The silence is noticed, and
# as long as the session lives, nobody loses a lock or a place.

use strict;
use warnings;

use Test::More;
use Zklock::Cast;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
my $b = Zklock::Server->new('b', zookeeper => $zk, conf => ["zklock.session_timeout = '12s'"]);
my $d = Zklock::Server->new('d', zookeeper => $proxy, conf => ["zklock.session_timeout = '6s'"]);
my $old = $d->session_id;

foreach my $trouble (qw(hung requests replies both))
{
	subtest "silence that ends before the session does costs nothing: $trouble" => sub {
		my $path = "/u/$trouble";
		hold($d, 'holder', $path);
		hold($d, 'releaser', "$path-release");
		hold($d, 'hander', "$path-hand");
		queue($d, 'handed', "$path-hand");
		hold($b, 'foreigner', "$path-foreign");
		queue($d, 'behind', "$path-foreign");
		on($d, 'newcomer');
		# The last sign of life before silence: it decides how long the session lives.
		hold($d, 'last', "$path-last");
		my $before = holdings($d);
		$trouble eq 'hung' ? $zk->pause : $proxy->blackhole($trouble);
		$s{newcomer}->query_start("SELECT zk_lock('$path-new')");
		$s{releaser}->query_start("SELECT zk_unlock('$path-release')");
		is($s{hander}->try("SELECT zk_unlock('$path-hand')")->{text}, 't', "$trouble: a lock is handed over")
		  if $trouble eq 'both';
		$d->wait_session('connecting');
		is($s{releaser}->finish, 't', "$trouble: zk_unlock returns when the silence is noticed");
		ok($s{newcomer}->busy, 'zk_lock waits');
		$trouble eq 'hung' ? $zk->resume : $proxy->heal;
		is($s{newcomer}->finish, 't', 'and is granted when ZooKeeper speaks again');
		$d->wait_session;
		is($d->session_id, $old, 'the session has survived');
		is(scalar($zk->children("$path-new")), 1, 'the new lock has one node');
		my %now = map { $_ => 1 } @{ holdings($d) };
		is_deeply(
			[ grep { !$now{$_} } @$before ],
			[ grep { $trouble eq 'both' ? m{-release|-hand } : m{-release } } @$before ],
			'holders have what they had');
		wait_until { !$zk->children("$path-release") } 'the released lock to be free';
		is(on($b, 'other')->query("SELECT zk_try_lock('$path-release')"), 't',
			'what was released is free for another server');
		$s{hander}->query("SELECT zk_unlock('$path-hand')") unless $trouble eq 'both';
		is($s{handed}->finish, 't', 'who waited here gets the lock');
		$s{foreigner}->query("SELECT zk_unlock('$path-foreign')");
		is($s{behind}->finish, 't', 'who waited for another server as well');
		all_disconnect();
		Zklock::Server->assert_clean($zk, [ $b, $d ],
			map { "$path$_" } '', qw(-release -hand -foreign -last -new));
	};
}

done_testing;
