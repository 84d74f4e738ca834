# Copyright (c) 2026, zklock contributors
#
# Calls that the worker makes for sessions: they take turns, what was given up counts until it is
# answered, and the next worker goes on. Here zk_claim() makes them; the first is to look at the
# path's node, and a reply that is held holds up all that follow.

use Zklock::Test;
use PostgreSQL::Test::Utils qw(slurp_file);

# Listings that one role has under way at most
use constant OF_ROLE => 16;

my ($zk, $proxy, $a) = cast('a',
	proxied => 'a', timeout => '30s', conf => [ 'max_connections = 150', 'superuser_reserved_connections = 3' ]);
my @roles = map { "role$_" } 1 .. 4;

sub claim($path) { return "SELECT zk_claim('/k/$path', '2026-11-22')"; }
sub asked($path, $op = 'exists') { return scalar grep { $_->[0] eq $op && $_->[1] =~ m,^/k/$path, } @{ $proxy->requests }; }

# The sessions claim, and the first reply is held.
sub claim_held($path, @sessions)
{
	$proxy->reset_counts;
	my $held = $proxy->hold_reply(op => 'exists', path => '^/k/', any => 1);
	$_->query_start(claim($path)) foreach @sessions;
	return $proxy->fired($held);
}

sub wait_asked($path, $n, @op)
{
	wait_until { asked($path, @op) == $n } sub { "$n questions about $path, there are " . asked($path, @op) };
	return;
}

$a->value("CREATE ROLE $_ LOGIN; GRANT EXECUTE ON FUNCTION zk_claim, zk_contenders TO $_") foreach @roles;
$a->value("ALTER ROLE $_ SET zklock.allowed_paths = '/k/*'") foreach @roles;
$zk->shell->create($_) foreach '/k', '/k/list';

subtest 'sessions of one role are served in the order in which they came, and keep no other role waiting' => sub {
	# As much is under way as may be, and nothing is answered.
	my $greedy = $a->session;
	$greedy->query("SELECT zk_lock(array_agg('/g/' || i)) FROM generate_series(1, 1500) i");
	$proxy->blackhole('replies');
	$greedy->query_start('SELECT zk_unlock_all()');
	$a->wait_value(q(SELECT count(*) FROM zk_locks WHERE state = 'held'), 0);
	$proxy->wait_all_sent;
	my @many = map { $a->session(user => 'role1') } 1 .. 8;
	my $other = $a->session(user => 'role2');
	my $admin = $a->session;
	my $worker = $a->worker_pid;
	foreach my $each ((map { [ $many[ $_ - 1 ], "one$_" ] } 1 .. @many), [ $other, 'other' ], [ $admin, 'admin' ])
	{
		$each->[0]->query_start(claim($each->[1]));
		$a->wait_event($each->[0], 'call');
		# Those that come while the worker is busy come together.
		wait_until { slurp_file("/proc/$worker/stat") =~ /\) S / } 'the worker to have taken it up';
	}
	$proxy->wait_all_sent;
	is(asked(''), 0, 'their questions wait for their turn');
	$proxy->reset_counts;
	$proxy->heal;
	is($_->finish, 't', 'answered') foreach @many, $other, $admin;
	ok($greedy->result->{ok}, 'and all is released');
	my @order = map { $_->[0] eq 'exists' && $_->[1] =~ m,^/k/(one\d|other|admin)$, ? $1 : () } @{ $proxy->requests };
	my %seen;
	@order = grep { !$seen{$_}++ } @order;
	is("@{[ grep { /one/ } @order ]}", join(' ', map { "one$_" } 1 .. @many), 'those of one role in their order');
	foreach my $who (qw(other admin))
	{
		my ($place) = grep { $order[$_] eq $who } 0 .. $#order;
		cmp_ok($place, '<=', 3, "$who is not behind them: @order");
	}
	$_->disconnect foreach $greedy, @many, $other, $admin;
};

subtest 'of answers that may be long a role has few under way, and other roles have theirs' => sub {
	# The window of a worker that has just begun is wide enough, however slow answers were before.
	$a->restart_worker;
	$a->wait_session;
	my $list = "SELECT count(*) FROM zk_contenders('/k/list')";
	my @many = map { $a->session(user => 'role1') } 1 .. OF_ROLE + 9;
	$proxy->reset_counts;
	my $held = $proxy->hold_reply(op => 'getChildren', path => '^/k/', any => 1);
	$_->query_start($list) foreach @many;
	$proxy->fired($held);
	$a->wait_event($_, 'call') foreach @many;
	wait_asked('list', OF_ROLE, 'getChildren');
	my @others = ($a->session(user => 'role2'), $a->session);
	$_->query_start($list) foreach @others;
	wait_asked('list', OF_ROLE + @others, 'getChildren');
	my $short = $a->session(user => 'role1');
	$short->query_start(claim('short'));
	wait_asked('short', 1);
	is(asked('list', 'getChildren'), OF_ROLE + @others, 'what is short goes out, and no more listings');
	$proxy->heal;
	is($_->finish, '0', 'answered') foreach @many, @others;
	is($short->finish, 't', 'and claimed');
	$_->disconnect foreach @many, @others, $short;
};

subtest 'what a session gives up counts until it is answered' => sub {
	my $s = $a->session(user => 'role1');
	claim_held('again', $s);
	is($s->cancelled, '57014', 'it is cancelled');
	is($s->try("SET statement_timeout = '50ms'; " . claim('again'))->{sqlstate}, '57014', 'the next waits for that') foreach 1 .. 3;
	is(asked('again'), 1, 'and asks nothing');
	$proxy->heal;
	is($s->query("SET statement_timeout = 0; " . claim('again')), 't', 'when it is answered, the session goes on');
	is(asked('again'), 2, 'once');
};

subtest 'a session that ends leaves nothing to the next with its place' => sub {
	my @sessions = map { $a->session(user => 'role1') } 1 .. 3;
	my $place  = "SELECT split_part(virtualtransaction, '/', 1) FROM pg_locks WHERE locktype = 'virtualxid' AND pid = pg_backend_pid()";
	my %places = map { $_->query($place) => 1 } @sessions;
	claim_held('ends', @sessions);
	wait_asked('ends', 3);
	$_->terminate foreach @sessions;
	# Some releases of PostgreSQL give out all other places first.
	my (@next, @others);
	while (@next < 3) { my $new = $a->session; push @{ $places{ $new->query($place) } ? \@next : \@others }, $new; }
	$_->query_start(claim('next')) foreach @next;
	$a->wait_event($_, 'call') foreach @next;
	is(asked('next'), 0, 'it waits for what is under way there');
	$proxy->heal;
	is((grep { $_->finish eq 't' } @next), 1, 'and has an answer of its own, once');
};

subtest 'the next worker sends what was not sent, and reads again' => sub {
	my @sent = map { $a->session(user => 'role1') } 1 .. 4;
	my @unsent = map { $a->session(user => 'role1') } 1 .. 4;
	claim_held('worker', @sent);
	wait_asked('worker', scalar @sent);
	$a->cut_off($proxy);
	$_->query_start(claim('worker')) foreach @unsent;
	$a->wait_event($_, 'call') foreach @unsent;
	is(asked('worker'), scalar @sent, 'what is asked without a connection is not sent');
	$a->restart_worker;
	$a->reconnect($proxy);
	is((grep { $_->finish eq 't' } @sent, @unsent), 1, 'each has an answer, and one the slot');
};

subtest 'without ZooKeeper there is an error' => sub {
	my $s = $a->session(user => 'role1');
	$proxy->cut;
	wait_until { $a->zk_session->{state} ne 'connected' } 'the worker to notice';
	my $result = $s->try(claim('cut'));
	is($result->{sqlstate}, '58030', 'when the lease is over');
	unlike($result->{context} // '', qr/may have been done/, 'which says that nothing was done');
	$a->reconnect($proxy);
	is($s->query(claim('cut')), 't', 'it is there again');
};

subtest 'the session moves to other settings when what was sent is known' => sub {
	my $s  = $a->session(user => 'role1');
	my $id = $a->session_id;
	$zk->shell->create('/elsewhere');
	$proxy->hold_reply_of($s, claim('moves'), op => 'multi', path => '^/k/moves');
	$a->set_conf('zklock.servers' => $proxy->connect_string('/elsewhere'), 'zklock.elections' => '/e');
	# The worker has read this, and has gone on.
	$a->wait_value('SELECT count(*) FROM zk_elections', 1);
	my $mark = $a->log_mark;
	$a->value('SELECT pg_log_backend_memory_contexts(' . $a->worker_pid . ')');
	$a->wait_log(qr/Grand total: /, $mark);
	is($a->session_id, $id, 'it stays until the answer is there');
	$proxy->heal;
	is($s->finish, 't', 'which is that of the claim');
	wait_until { ($a->session_id || $id) ne $id } 'another session';
	$a->wait_session;
	ok(!(grep { $_ eq 'k' } $zk->children('/elsewhere')), 'nothing was claimed there');
	is($s->query(claim('moves')), 't', 'until somebody asks again');
	$a->set_conf('zklock.elections' => '');
};

done_clean($zk, $a);
