# Copyright (c) 2026, zklock contributors
#
# Queues, when the worker fails each time that it hears of something it has written: the next
# worker goes on from what is noted in shared memory.

use Zklock::Test;

use constant QUEUE => '/f/queue';

plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};
my ($zk, $server) = cast('a', timeout => '20s', faults => '');
my $s      = $server->session(name => 's');

sub rest
{
	my @rest;
	while ((my $element = $s->query("SELECT convert_from(zk_queue_remove('@{[ QUEUE ]}'), 'UTF8')")) ne '') { push @rest, $element; }
	return "@rest";
}

# The worker fails once or more while the statement runs, and then no more.
sub while_failing
{
	my ($sql) = @_;
	my $pid = $server->worker_pid;
	$server->set_faults('fail-written');
	$s->query_start($sql);
	$server->wait_new_worker($pid);
	$server->set_faults('');
	my $result = $s->finish;
	$server->wait_session;
	return $result;
}

subtest 'an offer is made once' => sub {
	$s->query("SELECT zk_queue_offer('@{[ QUEUE ]}', 'first')");
	isnt(while_failing("SELECT zk_queue_offer('@{[ QUEUE ]}', 'second')"), '', 'it has a name');
	is(rest(), 'first second', 'and is there once');
};

subtest 'what is removed is returned' => sub {
	$s->query("SELECT zk_queue_offer('@{[ QUEUE ]}', '$_')") foreach qw(one two);
	is(while_failing("SELECT convert_from(zk_queue_remove('@{[ QUEUE ]}'), 'UTF8')"), 'one', 'the first');
	is(rest(), 'two', 'and no other is gone');
};

subtest 'what is taken is claimed, and goes with the commit' => sub {
	$s->query("SELECT zk_queue_offer('@{[ QUEUE ]}', '$_')") foreach qw(one two three);
	$s->query('BEGIN');
	is(while_failing("SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('@{[ QUEUE ]}')"), 'one', 'the first');
	while_failing('COMMIT');
	wait_until { 2 == (() = $zk->children(QUEUE)) } 'it to be gone';
	$s->query('BEGIN');
	is($s->query("SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('@{[ QUEUE ]}')"), 'two', 'the next');
	while_failing('ROLLBACK');
	is(rest(), 'two three', 'comes back');
};

$server->assert_clean($zk, QUEUE, '/zklock-receipts');
done_testing;
