# Copyright (c) 2026, zklock contributors
#
# ZooKeeper servers whose sessions are local, and must not become global: a session cannot have
# ephemeral nodes. A follower lets the leader say so of a request that consists of several, which
# knows nothing of the session, and calls it expired. Nothing was done then, and each function says
# at once what is wrong; what needs no ephemeral node works.

use Zklock::Test;
use Zklock::Cast;

my ($zk, $proxy, $a) = cast('a',
	proxied => 'a',
	timeout => '10s',
	zk      => { ensemble => 3, conf => { localSessionsEnabled => 'true', localSessionsUpgradingEnabled => 'false' } });
my ($follower) = $zk->followers;
$proxy->target($follower);
$proxy->drop;
wait_until { $a->zk_session->{reconnects} } 'the worker to connect to a follower';
$a->wait_session;
my $s = $a->session(name => 's');
$zk->shell->create('/q/qn-0000000000', makepath => 1, data => 'x');

sub refused($call, $error)
{
	my $result = $s->try("SET statement_timeout = '30s'; SELECT $call");
	return fails($result, '58000', $call, detail => qr/^ZooKeeper refused: $error\./, hint => qr/"localSessionsUpgradingEnabled"/);
}

subtest 'functions that need an ephemeral node say what is wrong' => sub {
	refused($_, 'ZEPHEMERALONLOCALSESSION')
	  foreach q{zk_lock('/l', '5s')}, q{zk_try_lock('/l')}, q{zk_lock(ARRAY['/m/1', '/m/2'])}, q{zk_reserve('/r', '1min')},
	  q{zk_semaphore_acquire('/s', 2)}, q{zk_xact_queue_take('/q', '3s')};
	refused($_, 'ZSESSIONEXPIRED') foreach q{zk_queue_offer('/q', 'y')}, q{zk_queue_remove('/q')}, q{zk_queue_take('/q', '3s')};
	is_deeply([ $zk->children('/q') ], ['qn-0000000000'], 'and change nothing');
};

subtest 'functions that need none work' => sub {
	is($s->query("SELECT zk_queue_peek('/q')"), 'x', 'a look at a queue');
	is($s->query("SELECT zk_claim('/c', now())"), 't', 'a claim');
	my $token = $s->query("SELECT zk_lock_persistent('/p')");
	is($s->query("SELECT zk_unlock_persistent('/p', $token)"), 't', 'a persistent lock');
};

is($a->zk_session->{expirations}, 0, 'the session lives all the time');
done_testing();
