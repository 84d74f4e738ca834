# Copyright (c) 2026, zklock contributors
#
# Calls that the worker makes for sessions: whose turn it is, what was given up counts until it is
# answered, and the next worker goes on. Here zk_claim() makes them; the first is to look at the
# path's node, and a reply that is held holds up all that follow.

use Zklock::Test;

# What one role, and all but superusers, have under way at most
use constant { OF_ROLE => 16, OF_ALL => 56 };

my ($zk, $proxy, $a) = cast('a',
	proxied => 'a', timeout => '30s', conf => [ 'max_connections = 150', 'superuser_reserved_connections = 3' ]);
my @roles = map { "role$_" } 1 .. 4;

sub claim($path) { return "SELECT zk_claim('/k/$path', '2026-11-22')"; }
sub asked($path) { return scalar grep { $_->[0] eq 'exists' && $_->[1] =~ m,^/k/$path, } @{ $proxy->requests }; }

# The sessions claim, and the first reply is held.
sub claim_held($path, @sessions)
{
	$proxy->reset_counts;
	my $held = $proxy->hold_reply(op => 'exists', path => '^/k/', any => 1);
	$_->query_start(claim($path)) foreach @sessions;
	return $proxy->fired($held);
}

sub wait_asked($path, $n)
{
	wait_until { asked($path) == $n } sub { "$n questions about $path, there are " . asked($path) };
	return;
}

$a->value("CREATE ROLE $_ LOGIN; GRANT EXECUTE ON FUNCTION zk_claim TO $_") foreach @roles;
$a->value("ALTER ROLE $_ SET zklock.allowed_paths = '/k/*'") foreach @roles;
$zk->shell->create('/k');

subtest 'roles have shares, and superusers a reserve' => sub {
	my @many = map { $a->session(user => 'role1') } 1 .. OF_ROLE + 9;
	claim_held('one', @many);
	$a->wait_event($_, 'call') foreach @many;
	wait_asked('one', OF_ROLE);
	my $other = $a->session(user => 'role2');
	$other->query_start(claim('other'));
	wait_asked('other', 1);
	is(asked('one'), OF_ROLE, 'another role has its turn at once, however many of one wait');
	my @others = map { my $role = $_; map { $a->session(user => $role) } 1 .. OF_ROLE } 'role3', 'role4';
	push @others, map { $a->session(user => 'role2') } 1 .. OF_ROLE - 1;
	$_->query_start(claim('others')) foreach @others;
	$a->wait_event($_, 'call') foreach @others;
	wait_asked('others', OF_ALL - OF_ROLE - 1);
	my $admin = $a->session;
	$admin->query_start(claim('admin'));
	wait_asked('admin', 1);
	is(asked('others'), OF_ALL - OF_ROLE - 1, 'a superuser as well, when all roles together have theirs');
	$proxy->heal;
	$_->finish foreach @many, $other, @others;
	is($admin->finish, 't', 'each has its answer');
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
	my @many = map { $a->session(user => 'role1') } 1 .. OF_ROLE + 4;
	claim_held('worker', @many);
	wait_asked('worker', OF_ROLE);
	$a->restart_worker;
	is((grep { $_->finish eq 't' } @many), 1, 'each has an answer, and one the slot');
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
