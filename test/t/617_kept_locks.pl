# Copyright (c) 2026, zklock contributors
#
# A lock that is merely kept, by zklock.keep_idle, does not keep its path from elections and queues
# of this server.

use strict;
use warnings;

use Test::More;
use Zklock::Election;
use Zklock::Server;
use Zklock::ZooKeeper;

my $zk = Zklock::ZooKeeper->standalone;
my $a  = Zklock::Server->new('a', zookeeper => $zk, conf => ["zklock.keep_idle = '1h'"]);
my $s  = $a->session;

# A lock that nobody holds, and whose node is there
sub keep
{
	my ($path) = @_;
	is($s->query("SELECT zk_lock('$path') AND zk_unlock('$path')"), 't', 'a lock is released');
	is(scalar(() = $zk->children($path)), 1, 'and kept');
	return;
}

subtest 'a server stands at an election where it had a lock' => sub {
	keep('/k/election');
	$a->set_conf('zklock.elections' => '/k/election');
	Zklock::Election->new($zk, '/k/election')->wait_state($a, 'elected');
	is(scalar(() = $zk->children('/k/election')), 1, 'with one node');
	$a->set_conf('zklock.elections' => '');
};

subtest 'a queue is where a lock was' => sub {
	keep('/k/queue');
	is($s->query(q{SELECT zk_queue_offer('/k/queue', 'x') IS NOT NULL}), 't', 'an element is offered');
	is($s->query(q{SELECT convert_from(zk_queue_take('/k/queue'), 'UTF8')}), 'x', 'and taken');
	is($s->query(q{SELECT zk_lock('/k/queue')}), 't', 'when it is empty, the path can be locked again');
	is($s->try(q{SELECT zk_queue_offer('/k/queue', 'x')})->{sqlstate}, '55006', 'what is held is not for queues');
};

$s->disconnect;
$a->assert_clean($zk, '/k/election', '/k/queue', '/zklock-receipts');
done_testing;
