# Copyright (c) 2026, zklock contributors
#
# ZooKeeper loses its data, or gets older ones. It refuses to continue a session whose client has seen newer data than it
# has, so that client cannot learn that the session is over. Locks are lost, loudly, and then all goes on by itself.

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Zklock::Cast qw(:DEFAULT lost);

# For each: how many servers ZooKeeper has, and what becomes of the data while they are stopped
my %older;
my %cases = (
	'the data of one server are wiped' => [ 1, sub ($zk) { $zk->wipe } ],
	'those of three are'               => [ 3, sub ($zk) { $zk->wipe } ],
	'one server gets older data'       => [ 1, sub ($zk) {
		$zk->wipe;
		system_or_bail('cp', '-a', '--', $older{$zk}, $zk->server(1)->dir . '/data/version-2');
	} ]);

foreach my $case (sort keys %cases)
{
	my ($n, $lose) = @{ $cases{$case} };
	subtest $case => sub {
		my $zk = Zklock::ZooKeeper->ensemble($n);
		my $a = Zklock::Server->new('server' . keys %older, zookeeper => $zk, conf => ["zklock.session_timeout = '4s'"]);
		my $data = $zk->server(1)->dir . '/data/version-2';
		$older{$zk} = PostgreSQL::Test::Utils::tempdir . '/older';
		system_or_bail('cp', '-a', '--', $data, $older{$zk});

		# Older data stay older: sessions that come and go after the restart are changes, too.
		# Whoever makes them has seen them, and would be refused afterwards as well.
		my $shell = Zklock::Shell->new;
		$shell->connect($zk->connect_string);
		$shell->create("/later$_") foreach 1 .. 100;
		$shell->stop;
		hold($a, 'holder', '/w/lock');
		queue($a, 'waiter', '/w/lock');
		my ($session, $mark) = ($a->session_id, $a->log_mark);
		$zk->stop;
		$lose->($zk);
		$zk->start;

		is($s{waiter}->finish, 't', 'who waited gets the lock in a new session');
		isnt($a->session_id, $session, 'which is another one');
		lost($a, 'holder', '/w/lock');
		like($a->zk_session->{last_error}, qr/session expired; if ZooKeeper refused it before, its data were wiped or restored/, 'zk_session says why');
		my $restarts = () = $a->log_since($mark) =~ /LOG:  zklock worker restarts/g;
		cmp_ok($restarts, '<=', 2, 'the worker has not begun anew again and again');
		hold($a, 'next', '/w/next');
		all_disconnect();
		$a->assert_clean($zk, '/w/lock', '/w/next');
		$_->stop foreach $a, $zk;
	};
}
done_testing;
