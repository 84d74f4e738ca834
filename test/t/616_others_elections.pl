# Copyright (c) 2026, zklock contributors
#
# Where others stand at an election, this server has no semaphores, queues or claims. Locks ignore
# candidates, as all nodes that no lock recipe has written.

use Zklock::Test;
use Zklock::Election;

my ($zk, $a, $b) = cast('a b', a => { conf => [ "zklock.elections = '/e/latch, /e/support=zookeeper'" ] });
my $shell = $zk->shell;
my $s = $b->session;

foreach my $path ('/e/latch', '/e/support')
{
	subtest "candidates of another server at $path keep semaphores, queues and claims out" => sub {
		my $election = Zklock::Election->new($zk, $path);
		$election->wait_state($a, 'elected');
		my ($candidate) = $zk->children($path);
		foreach my $call ("zk_queue_remove('$path')",
			"zk_semaphore_acquire('$path', 1)", "zk_claim('$path', now())", "zk_queue_offer('$path', 'x')")
		{
			my $result = $s->try("SELECT $call");
			is($result->{sqlstate}, '55006', "$call is refused") or diag $result->{error} // $result->{text};
			like($result->{message}, qr/is in use for something else/, 'and says so');
		}
		$b->wait_value('SELECT count(*) FROM zk_locks', 0);
		is_deeply([ $zk->children($path) ], [$candidate], 'nothing is left there');
		my $r = $a->session;
		is($r->query("SELECT zk_resign('$path')"), 't', 'the election goes on');
		is($r->query("SELECT zk_is_leader('$path')"), 't', 'and has its leader');
		$r->disconnect;
	};
}

subtest 'locks ignore candidates, and names that only look alike' => sub {
	$shell->create("/e/plain/$_", makepath => 1) foreach qw(region_0000000001 latch-7 n_x latch n_0000000000);
	is($s->query(q{SELECT zk_lock('/e/plain') AND zk_unlock('/e/plain')}), 't', 'beside them, a path can be locked');
	$shell->delete("/e/plain/$_") foreach qw(region_0000000001 latch-7 n_x latch n_0000000000);
};

$a->set_conf('zklock.elections' => '');
Zklock::Server->assert_clean($zk, [ $a, $b ], '/e/latch', '/e/support', '/e/plain');
done_testing;
