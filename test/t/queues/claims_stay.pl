# Copyright (c) 2026, zklock contributors
#
# ZooKeeper removes containers, and nodes with a TTL; the record of a claim is in neither. It gets a node of its own, which
# takes the place of one that is there and has never been used, and has its ACL; that happens once, whoever
# is late. Nor does what waits rely on containers.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::JavaPeer;

# What is empty, or too old, goes at once.
my @java = '-Dzookeeper.extendedTypesEnabled=true';
my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', zk => { container_check => 200, java => \@java });
my ($s, $t) = ($a->session, $b->session);
my $shell = $zk->shell;
my $java  = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);

sub claim_of($path, $day = 0) { return "SELECT zk_claim('$path', date '2026-01-01' + $day)"; }

# Until ZooKeeper has looked twice for what is to be removed, and has removed all that it found by then
my $looks = 0;
sub removal_is_over()
{
	foreach my $container (map { '/swept' . ++$looks } 1 .. 2)
	{
		$java->container($container);
		$shell->create("$container/x");
		$shell->delete("$container/x");
		wait_until { !$shell->exists($container) } 'an empty container to go';
	}
	return;
}

subtest 'a container keeps no claim' => sub {
	$java->container('/jobs');
	is($s->query(claim_of('/jobs')), 't', 'a slot is claimed');
	is($t->query("SELECT zk_lock('/jobs/nightly') AND zk_unlock('/jobs/nightly')"), 't', 'a lock is held below it');
	wait_until { !$shell->exists('/jobs/nightly') } 'what is empty to go';
	removal_is_over();
	is($t->query(claim_of('/jobs')), 'f', 'the slot is claimed once');
};

subtest 'nor does a node with a TTL' => sub {
	my $ttl = 2000;
	$java->ttl('/ttl', $ttl);
	is($s->query(claim_of('/ttl')), 't', 'a slot is claimed');
	$java->ttl('/ttl_too', $ttl);
	wait_until { !$shell->exists('/ttl_too') } 'a later one to go';
	removal_is_over();
	is($t->query(claim_of('/ttl')), 'f', 'the slot is claimed once');
};

subtest 'a node that is replaced has the same ACL' => sub {
	my @acl = ([ 'digest', 'guard:secret', 'r' ], [ 'world', 'anyone', 'rwa' ]);
	$shell->create('/guarded', acl => \@acl);
	my $acl = $shell->acl('/guarded');
	is($s->query(claim_of('/guarded')), 't', 'it has a claim');
	is_deeply($shell->acl('/guarded'), $acl, 'and its ACL');
	is($shell->stat('/guarded')->{version}, 1, 'in another node');
	$shell->set_acl('/guarded', [ [ 'world', 'anyone', 'cdrwa' ] ]);
};

subtest 'an ACL that ZooKeeper does not show is not replaced' => sub {
	$shell->create('/hidden', acl => [ [ 'digest', 'guard:secret', 'cdrwa' ], [ 'world', 'anyone', 'rw' ] ]);
	my $before = $shell->stat('/hidden');
	fails($s->try(claim_of('/hidden')), '42501', 'a claim is refused', error => qr/ZNOAUTH/);
	$shell->create('/unreadable', acl => [ [ 'digest', 'guard:secret', 'cdrwa' ] ]);
	fails($s->try(claim_of('/unreadable')), '42501', 'so it is where even less can be seen', error => qr/ZNOAUTH/);
	is_deeply($shell->stat('/hidden'), $before, 'the node is as it was');
};

subtest 'a node that others have written to is left alone' => sub {
	$shell->create('/written', data => 'x');
	$shell->set('/written', '');
	fails($s->try(claim_of('/written')), '55006', 'a claim is refused', detail => qr/others have written to it/);
};

# A replacement that is held before ZooKeeper has it, or before its answer; what happens meanwhile; how things go on; and
# what the claim of that day comes to
my %held = (op => 'multi', path => '^/late');
my ($heal, $drop) = (sub { $proxy->heal; }, sub { $proxy->drop; $proxy->heal; });
my $other = sub ($path) { is($t->query(claim_of($path, 1)), 't', 'another claims the next slot'); };
my $anew = sub ($path) { $shell->delete($path); $other->($path); };
my @late = (
	[ 'another replaces the node first',             'hold_request_of', $other, $heal, 0, 'f' ],
	[ 'another does, and this request is lost',      'hold_request_of', $other, $drop, 0, 'f' ],
	[ 'the node is deleted, and another makes one',  'hold_request_of', $anew,  $heal, 0, 'f' ],
	[ 'the same, and this request is lost',          'hold_request_of', $anew,  $drop, 0, 'f' ],
	[ 'another does, and claims an earlier slot',    'hold_request_of', $other, $heal, 2, 't' ],
	[ 'the answer is lost',                          'hold_reply_of',   sub { }, $drop, 0, 't' ],
	[ 'it is lost while another claims',             'hold_reply_of',   $other, $drop, 0, 't' ],
	[ 'the request is lost',                         'hold_request_of', sub { }, $drop, 0, 't' ],
	[ 'the node is deleted',                         'hold_request_of', sub ($path) { $shell->delete($path); }, $heal, 0, 't' ]);

foreach my $i (0 .. $#late)
{
	my ($name, $hold, $meanwhile, $go_on, $day, $expected) = @{ $late[$i] };
	subtest "a replacement that is late: $name" => sub {
		my $path = "/late$i";
		$shell->create($path);
		$proxy->$hold($s, claim_of($path, $day), %held);
		$meanwhile->($path);
		my $others = $shell->exists($path) && $shell->get($path);
		$go_on->();
		is($s->finish, $expected, 'it is told whether it has the slot');
		is($shell->get($path), $others, 'what another has claimed stays') if $expected eq 'f';
		is($t->query(claim_of($path, $day)), 'f', 'the slot is claimed once');
		$a->wait_session;
	};
}

subtest 'a node that gets children meanwhile is left alone' => sub {
	$shell->create('/busy');
	$proxy->hold_request_of($s, claim_of('/busy'), op => 'multi', path => '^/busy');
	is($t->query("SELECT zk_lock('/busy')"), 't', 'somebody locks it');
	$proxy->heal;
	fails($s->result, '55006', 'a claim is refused', detail => qr/has or had children/);
	is($t->query("SELECT zk_unlock('/busy')"), 't', 'the lock is held');
};

subtest 'containers that never had a child go as well, with ZooKeeper 3.10 after five minutes' => sub {
	$zk->options(container_check => 1000, java => [ @java, '-Dznode.container.maxNeverUsedIntervalMs=1' ]);
	$zk->restart;
	$_->wait_session foreach $a, $b;
	$java->container('/never');
	my $container = $shell->exists('/never');
	$s->query_start(q{SELECT zk_queue_take('/never')});
	wait_until { my $now = $shell->exists('/never'); $now && $now->{czxid} != $container->{czxid} }
	'the container to go, and the session that waits for an element there to create another node';
	is($t->query(q{SELECT zk_queue_offer('/never', 'x') IS NOT NULL}), 't', 'another session offers an element');
	is($s->finish, 'x', 'the one that waits has it');
	is($t->query(q{SELECT zk_lock('/idle/lock') AND zk_unlock('/idle/lock')}), 't', 'a path can be locked');
};

$java->close_session;
done_clean($zk, $a, $b);
