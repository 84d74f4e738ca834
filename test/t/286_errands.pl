# Copyright (c) 2026, zklock contributors
#
# Errands: questions of backends that the worker answers after a few calls. Here
# zk_break_lock() asks them, about a node that does not exist. Its first question is whose the
# node is.

use strict;
use warnings;

use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

# More than there are slots
use constant SESSIONS => 70;

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
my $a     = Zklock::Server->new('a', zookeeper => $proxy, conf => [ "zklock.session_timeout = '30s'" ]);
my $node  = '_c_00000000-0000-0000-0000-000000000001-lock-0000000000';
my $ask   = "SELECT zk_break_lock('/e/path', '$node')";
my $s     = $a->session;

sub asked { return scalar grep { $_->[0] eq 'exists' } @{ $proxy->requests }; }

# Each has a slot, or waits for one.
sub wait_all
{
	my $pids = join ',', map { $_->pid } @_;
	return $a->wait_value("SELECT count(*) FROM pg_stat_activity WHERE pid IN ($pids) AND wait_event = 'Extension'", scalar @_);
}

# A reply that is held holds up all that follow.
sub hold_answers
{
	$proxy->reset_counts;
	return $proxy->hold_reply(op => 'exists', path => '^/e/path/', any => 1);
}

sub is_usable
{
	my ($name) = @_;
	is($s->query($ask), 'f', $name);
	return;
}

subtest 'many sessions ask at once, more than there are slots' => sub {
	my @sessions = map { $a->session } 1 .. SESSIONS;
	my $held = hold_answers();
	$_->query_start($ask) foreach @sessions;
	$proxy->fired($held);
	wait_all(@sessions);
	is((grep { !$_->busy } @sessions), 0, 'nobody has an answer yet');
	cmp_ok(asked(), '<', SESSIONS, 'those who find no slot wait');
	$proxy->heal;
	is($_->finish, 'f', 'each gets its answer') foreach @sessions;
	$_->disconnect foreach @sessions;
};

subtest 'a session that waits for an answer can be cancelled, terminated, or lose its client' => sub {
	foreach my $end (qw(cancel terminate vanish))
	{
		my @sessions = map { $a->session } 1 .. 64;
		my $held = hold_answers();
		$_->query_start($ask) foreach @sessions;
		$proxy->fired($held);
		wait_all(@sessions);
		my @pids = map { $_->pid } @sessions;
		$_->$end foreach @sessions;
		if ($end eq 'cancel') { is($_->result->{sqlstate}, '57014', 'cancelled') foreach @sessions; }
		if ($end eq 'vanish')
		{
			# A backend looks for its client only when it has something to say.
			$a->value("SELECT pg_terminate_backend($_)") foreach @pids;
		}
		if ($end ne 'cancel')
		{
			$a->wait_value("SELECT count(*) FROM pg_stat_activity WHERE pid IN (@{[ join ',', @pids ]})", 0);
		}
		$s->query_start($ask);
		ok($s->busy, 'the slots are not free while the worker has something to do for them');
		$proxy->heal;
		is($s->finish, 'f', "all slots are free again: $end");
		is_usable("and again: $end");
		$_->disconnect foreach @sessions;
	}
};

subtest 'an errand outlives the worker' => sub {
	my $held = hold_answers();
	$s->query_start($ask);
	$proxy->fired($held);
	my $pid = $a->worker_pid;
	$a->value("SELECT pg_terminate_backend($pid)");
	wait_until { ($a->worker_pid || $pid) != $pid } 'the next worker';
	$proxy->heal;
	is($s->finish, 'f', 'the next worker answers it');
	is_usable('and others');
};

subtest 'without ZooKeeper there is an error' => sub {
	$proxy->cut;
	wait_until { $a->zk_session->{state} ne 'connected' } 'the worker to notice';
	like($s->try($ask)->{sqlstate}, qr/^58030$/, 'nobody waits for ZooKeeper to come back');
	$proxy->heal;
	$a->wait_session;
	is_usable('it is there again');
};

$s->disconnect;
$a->assert_clean($zk);
done_testing;
