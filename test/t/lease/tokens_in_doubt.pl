# Copyright (c) 2026, zklock contributors
#
# What zk_fence() makes of tokens in a session whose lock may be lost, or is: the next holder may have them. What a
# session that holds the lock can tell of tokens is in sql/fence.sql.

use Zklock::Test;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', a => { timeout => '8s' });
my ($s, $other) = map { $a->session } 1 .. 2;
my $next = $b->session;
my $own  = "SELECT zk_fencing_token('/w/lock')";

sub fence($token) { return "SELECT zk_fence('/w/lock', $token)"; }

subtest 'a lock that may be lost proves nothing about tokens' => sub {
	my $token = $s->query("SELECT zk_lock('/w/lock'); $own");
	$proxy->blackhole;
	$a->wait_lock($s, 'suspended');
	ok($s->try('BEGIN; ' . fence($token + 1))->{ok}, 'a higher token may be that of the next holder');
	is($s->try(fence($token))->{sqlstate}, '40001', 'and the own one stale');
	$s->query('ROLLBACK');
	$a->reconnect($proxy);
	$s->query('SELECT zk_unlock_all()');
};

subtest 'the token of a lost lock is stale when the next holder has fenced' => sub {
	my $token = $s->query("SELECT zk_lock('/w/lock'); $own");
	$next->start_waiting("SELECT zk_lock('/w/lock')");
	$zk->shell->delete("/w/lock/" . ($a->wait_holder($s, '/w/lock'))->{node});
	is($next->finish, 't', 'somebody else gets the lock');
	$a->wait_lock($s, 'lost');
	ok($other->try(fence($next->query($own)))->{ok}, 'and fences');
	is($s->try(fence($token))->{sqlstate}, '40001', 'the token of a lost lock is stale');
	$_->query('SELECT zk_unlock_all()') foreach $s, $next;
};

done_clean($zk, $a, $b);
