# Copyright (c) 2026, zklock contributors
#
# Waits that end at about the moment of the grant: none loses a lock, or makes two holders.
#
# The delay from the holder's release to the end of the wait is made longer or shorter after
# each round, so that it stays where the two cross. It may become negative: within a server a
# lock is handed over faster than a cancel request gets through.

use Zklock::Test;
use Time::HiRes qw(time);

my ($zk, $a, $b) = cast('a b');

my $holder = $a->session(name => 'holder');
my $path = '/t/cancel/storm';

my %delay;
my %outcome;
my $canceller = { a => $a->session, b => $b->session };
my ($check_a, $check_b) = ($a->session, $b->session);
my %waiters;

subtest 'no lock is lost, or had twice, when a wait ends at the moment of the grant' => sub {
	my $bad = 0;
	foreach my $round (0 .. 119)
	{
		my $server = $round % 2 ? $b : $a;
		my $kind   = (qw(cancel cancel_xact timeout terminate))[ $round / 2 % 4 ];
		my $key    = $kind . ' on ' . $server->name;
		my $delay  = $delay{$key} //= $server == $a ? 0 : 0.003;
		my $waiter = $waiters{ $server->name } ||= $server->session;

		$holder->query("SELECT zk_lock('$path')");
		$waiter->query('BEGIN') if $kind eq 'cancel_xact';
		my $function = $kind eq 'cancel_xact' ? 'zk_xact_lock' : 'zk_lock';
		my $timeout  = $kind eq 'timeout' ? ", '60ms'" : '';
		my $pid      = $waiter->pid;
		my $started  = time;
		$waiter->query_start("SELECT $function('$path'$timeout)");
		$waiter->wait_row('(blocked_by_pid IS NOT NULL OR blocked_by_node IS NOT NULL)', $path)
		  unless $kind eq 'timeout';
		if ($kind eq 'timeout')
		{
			# Released so long before the timeout.
			1 while time < $started + 0.06 - $delay;
			$holder->query("SELECT zk_unlock('$path')");
		}
		else
		{
			my $c = $canceller->{ $server->name };
			my @both = (
				sub { $holder->query_start("SELECT zk_unlock('$path')") },
				sub { $c->query_start('SELECT ' . ($kind eq 'terminate' ? 'pg_terminate_backend' : 'pg_cancel_backend') . "($pid)") });
			@both = reverse @both if $delay < 0;
			$both[0]->();
			my $when = time + abs $delay;
			1 while time < $when;
			$both[1]->();
			$c->finish;
			wait_until { $kind ne 'terminate' || !kill 0, $pid } "backend $pid to be gone";
			$holder->finish;
		}

		my $r = $waiter->result;
		my $granted = $r->{ok} && $r->{text} eq 't';
		my $as_expected = $granted
		  || $kind eq 'timeout' && $r->{ok}
		  || $kind eq 'terminate' && $r->{severity} eq 'FATAL'
		  || $r->{sqlstate} eq '57014';
		$outcome{$key}{ $granted ? 'granted' : 'not' }++;
		$delay{$key} += ($granted ? -1 : 1) * ($server == $a ? 0.0002 : 0.001);

		my $problem = $as_expected ? '' : "unexpected result: $r->{error}";
		if ($kind eq 'terminate')
		{
			delete $waiters{ $server->name };
			$waiter->disconnect;
		}
		else
		{
			# As pg_advisory_lock, zk_lock may have got the lock when the statement is
			# cancelled; then it is held, as zk_locks says.
			my $held = $server->lock_count("pid = $pid AND state = 'held'");
			$problem .= ' granted, but not held' if $granted && !$held;
			$problem .= ' not granted, but held'
			  if !$granted && $held && $kind ne 'cancel' && $kind ne 'cancel_xact';
			if ($held)
			{
				my $other = $server == $a ? $check_b : $check_a;
				$problem .= ' two holders' if $other->query("SELECT zk_try_lock('$path')") ne 'f';
				$problem .= ' two held' if $a->lock_count("state = 'held'") + $b->lock_count("state = 'held'") != 1;
			}
			$waiter->query($kind eq 'cancel_xact' ? 'ROLLBACK' : 'SELECT zk_unlock_all()');
		}
		foreach my $check ($check_a, $check_b)
		{
			my $got = $check->query("SELECT zk_lock('$path', '10s')");
			$problem .= ' it cannot be taken afterwards' if $got ne 't';
			$check->query("SELECT zk_unlock('$path')") if $got eq 't';
		}
		next unless $problem;
		$bad++;
		diag("round $round, $key:$problem");
		diag($a->describe_locks . $b->describe_locks);
	}
	is($bad, 0, 'rounds of release against the end of a wait: none lost a lock or made two holders');
	foreach my $key (sort keys %outcome)
	{
		note(sprintf('%s: granted %d, not %d, in the end %.2f ms apart',
				$key, map({ $outcome{$key}{$_} || 0 } qw(granted not)), 1000 * $delay{$key}));
	}
	ok( (grep { $_->{granted} } values %outcome) && (grep { $_->{not} } values %outcome),
		'both outcomes occurred');
};

done_clean($zk, $a, $b);
