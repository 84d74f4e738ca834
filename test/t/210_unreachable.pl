# Copyright (c) 2026, zklock contributors
#
# ZooKeeper is not there: at the start, during a wait, while locks are held; or it hangs, and the
# network swallows everything. (211_session_lost.pl is about outages that the session does not
# survive.)
#
# While ZooKeeper is away, calls that may wait do so, calls that must answer at once fail with
# SQLSTATE 58030, and releases return at once and are made good later. As long as the ZooKeeper
# session lives, nobody loses a lock or a place.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT clean);

my $zk = Zklock::ZooKeeper->standalone(start => 0);
# An attempt to connect that meets a server which is just starting takes up to two thirds
# of the session timeout.
my $a = Zklock::Server->new(
	'a',
	zookeeper => $zk,
	connect   => 0,
	conf      => [ "zklock.session_timeout = '12s'", 'log_min_messages = debug1' ]);

subtest 'a server that starts without ZooKeeper waits for it' => sub {
	pass('the server starts without ZooKeeper');
	$a->wait_session('connecting');
	pass('zk_session says that it tries to connect');
	is($a->zk_session->{$_}, undef, "it has no $_")
	  foreach qw(server session_id negotiated_timeout lease_remaining connected_since);
	wait_until { $a->zk_session->{last_error} } 'an error in zk_session';
	like($a->zk_session->{last_error_at}, qr/^\d{4}-/, 'and when there was an error');

	foreach my $call ("zk_try_lock('/u/start')", "zk_lock('/u/start', '0')",
		"zk_lock('/u/start', '50ms')", "zk_try_xact_lock('/u/start')",
		"zk_xact_lock('/u/start', '50ms')", "zk_lock(ARRAY['/u/start', '/u/start2'], '50ms')")
	{
		my $result = on($a, 'asker')->try("SELECT $call");
		is($result->{sqlstate}, '58030', "$call is an error: nobody knows the answer")
		  or diag explain $result;
	}
	queue($a, 'canceller', '/u/start');
	is($s{canceller}->cancelled, '57014', 'a waiting call can be cancelled');
	queue($a, 'waiter',  '/u/start');
	queue($a, 'waiter2', '/u/start');
	queue($a, 'goer',    '/u/start');
	$s{goer}->terminate;

	# Attempts to connect go on, and the log does not grow with them.
	wait_until {
		my $n = () = $a->log_since(0) =~ /zklock worker DEBUG:  ZooKeeper client: /g;
		$n >= 10;
	} 'ten attempts to connect';
	my @lines = $a->log_since(0) =~ /^.* zklock worker (?:LOG|WARNING|ERROR|FATAL): .*$/mg;
	is(scalar @lines, 1, 'the server log has one line about it') or diag explain \@lines;
	like($lines[0] || '', qr/refused/i, 'which says what is wrong');

	# What the library is doing at the moment is not what is wrong.
	like($a->zk_session->{last_error}, qr/refused/i, 'zk_session tells why there is no connection');
	like(on($a, 'asker')->try("SELECT zk_try_lock('/u/start')")->{detail} || '', qr/refused/i,
		'so do errors');

	ok($s{waiter}->busy, 'zk_lock waits for ZooKeeper');
	$zk->start;
	is($s{waiter}->finish, 't', 'and gets the lock when ZooKeeper comes');
	$a->wait_session;
	ok($s{waiter2}->busy, 'the next one goes on waiting');
	is(scalar($zk->children('/u/start')), 1, 'who gave up has no node');
	$s{waiter}->hands_over('/u/start', $s{waiter2}, 'and is next');
	clean($zk, [$a]);
};

my $b = Zklock::Server->new('b', zookeeper => $zk, conf => ["zklock.session_timeout = '12s'"]);

subtest 'locks and places outlive an outage that ends before the session does' => sub {
	hold($a, 'holder', '/u/held');
	hold($a, 'first', '/u/local');
	queue($a, 'second', '/u/local');
	queue($b, 'third',  '/u/local');
	hold($b, 'foreigner', '/u/foreign');
	queue($a, 'behind', '/u/foreign');
	hold($a, 'releaser', '/u/release');
	queue($b, 'heir', '/u/release');
	in_transaction($a, 'committer', '/u/commit');
	queue($b, 'heir2', '/u/commit');
	hold($a, 'leaver', '/u/leave');
	queue($b, 'heir3', '/u/leave');
	queue($a, 'canceller', '/u/foreign');
	hold($a, 'hander', '/u/hand');
	queue($a, 'handed', '/u/hand');
	on($a, 'newcomer');

	my %id     = map { $_->name => $_->session_id } $a, $b;
	my $before = holdings($a);
	my %places = map { $_ => $zk->places($_) } qw(/u/held /u/local /u/foreign);
	my $mark   = $a->log_mark;
	$zk->kill9;
	$_->wait_session('connecting') foreach $a, $b;
	is($a->zk_session->{$_}, undef, "while ZooKeeper is away there is no $_") foreach qw(server connected_since);
	is($a->session_id, $id{a}, 'but the session');
	is_deeply(holdings($a), $before, 'holders keep their locks');
	is($s{holder}->query("SELECT zk_fencing_token('/u/held') > 0"), 't', 'and their tokens');
	is($s{holder}->query("SELECT zk_lock('/u/held')"), 't', 'who holds a lock can lock it again');
	is($s{holder}->query("SELECT zk_unlock('/u/held')"), 't', 'and undo that');

	is($s{releaser}->query("SELECT zk_unlock('/u/release')"), 't', 'a lock is given back meanwhile');
	ok($s{committer}->try('COMMIT')->{ok}, 'a transaction that holds a lock commits');
	is($s{hander}->query("SELECT zk_unlock('/u/hand')"), 't', 'so is one that others here wait for');
	$s{leaver}->terminate;
	is($s{canceller}->cancelled, '57014', 'a wait is cancelled');
	is(on($a, 'asker')->try("SELECT zk_lock('/u/local', '50ms')")->{sqlstate},
		'58030', 'a timeout that expires is an error');
	is($s{asker}->try("SELECT zk_try_lock('/u/free')")->{sqlstate}, '58030', 'so is a try-lock');
	queue($a, 'newcomer', '/u/new');
	ok($s{$_}->busy, "$_ waits") foreach qw(second third behind heir heir2 heir3);

	$zk->start;
	is($s{newcomer}->finish, 't', 'what was asked for meanwhile is granted');
	$_->wait_session foreach $a, $b;
	is($_->session_id, $id{ $_->name }, $_->name . ' has the session it had') foreach $a, $b;
	is($s{$_}->finish, 't', "$_ gets what was released meanwhile") foreach qw(heir heir2 heir3 handed);
	is_deeply($zk->places($_), $places{$_}, "$_: everybody has the node and place they had")
	  foreach qw(/u/held /u/local);
	is_deeply($zk->places('/u/foreign'), $places{'/u/foreign'}, '/u/foreign: likewise');
	my @told = $a->log_since($mark) =~ /zklock worker LOG: *(.*)$/mg;
	my %told;
	$told{ /^(?:could not connect to )?ZooKeeper server / ? 'complaint of the library' : $_ }++ foreach @told;
	is_deeply([ grep { $told{$_} > 1 } sort keys %told ], [], 'the log tells each thing of the outage once')
	  or diag explain \@told;
	cmp_ok(scalar(grep { !/proved to be alive/ } @told), '<=', 3, 'and not much, but for the lease')
	  or diag explain \@told;
	ok($s{$_}->busy, "$_ still waits") foreach qw(second third behind);
	$s{first}->hands_over('/u/local', $s{second}, 'the queue goes on in its order');
	ok($s{third}->busy, 'one after the other');
	$s{second}->hands_over('/u/local', $s{third}, 'to the last');
	$s{foreigner}->hands_over('/u/foreign', $s{behind}, 'who waited for another server is granted as well');
	cmp_ok($a->zk_session->{reconnects}, '>=', 1, 'zk_session counts reconnects');
	is($a->zk_session->{expirations}, 0, 'and no expiration');
	clean($zk, [ $a, $b ]);
};

# A server that hangs: connections stand, nothing moves.
my $proxy = Zklock::Proxy->start($zk);
my $d = Zklock::Server->new('d', zookeeper => $proxy, conf => ["zklock.session_timeout = '6s'"]);
my $old = $d->session_id;

foreach my $trouble (qw(hung requests replies both))
{
	subtest "silence that ends before the session does costs nothing: $trouble" => sub {
		my $path = "/u/$trouble";
		hold($d, $_, "$path-$_") foreach qw(holder releaser);
		on($d, 'newcomer');
		# The last sign of life before silence: it decides how long the session lives.
		hold($d, 'last', "$path-last");
		my $before = holdings($d);
		$trouble eq 'hung' ? $zk->pause : $proxy->blackhole($trouble);
		$s{newcomer}->query_start("SELECT zk_lock('$path-new')");
		$s{releaser}->query_start("SELECT zk_unlock('$path-releaser')");
		$d->wait_session('connecting');
		is($s{releaser}->finish, 't', "$trouble: zk_unlock returns when the silence is noticed");
		ok($s{newcomer}->busy, 'zk_lock waits');
		$trouble eq 'hung' ? $zk->resume : $proxy->heal;
		is($s{newcomer}->finish, 't', 'and is granted when ZooKeeper speaks again');
		$d->wait_session;
		is($d->session_id, $old, 'the session has survived');
		is(scalar($zk->children("$path-new")), 1, 'the new lock has one node');
		my %now = map { $_ => 1 } @{ holdings($d) };
		is_deeply([ grep { !$now{$_} } @$before ], [ grep { m{-releaser } } @$before ], 'holders have what they had');
		wait_until { !$zk->children("$path-releaser") } 'the released lock to be free';
		is(on($b, 'other')->query("SELECT zk_try_lock('$path-releaser')"), 't', 'what was released is free for another server');
		clean($zk, [ $b, $d ]);
	};
}

done_testing;
