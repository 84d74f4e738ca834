# Copyright (c) 2026, zklock contributors
#
# Semaphores when something goes wrong: no permit may be had twice, none may leak, and
# who has lost one is told.
#
# Server a talks to ZooKeeper through a proxy, b directly.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(freeze thaw wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $shell = $zk->shell;
my $proxy = Zklock::Proxy->start($zk);
my @conf  = ("zklock.session_timeout = '12s'");
my $a     = Zklock::Server->new('a', zookeeper => $proxy, conf => \@conf);
my $b     = Zklock::Server->new('b', zookeeper => $zk, conf => \@conf);
my $path;
my $number = 0;
my @used;
$a->value('CREATE TABLE t (i int)');

sub new_path
{
	$path = '/t/faulty/' . ++$number;
	push @used, "$path/locks", "$path/leases";
	return $path;
}

sub server_of { my ($session) = @_; return $session->name =~ /^b/ ? $b : $a; }
sub sql { my ($permits, $timeout) = @_; return "SELECT zk_semaphore_acquire('$path', $permits" . (defined $timeout ? ", '$timeout')" : ')'); }
sub acquire { my ($session, @arg) = @_; return $session->query(sql(@arg)); }
sub acquire_start { my ($session, @arg) = @_; return $session->query_start(sql(@arg)); }
sub release { my ($session) = @_; return $session->query("SELECT zk_semaphore_release('$path')"); }
sub leases { return $zk->children("$path/leases"); }
sub turns { return $zk->children("$path/locks"); }

sub wait_row
{
	my ($session, $condition) = @_;
	my $server = server_of($session);
	return wait_until { ($server->locks('pid = ' . $session->pid . " AND path = '$path' AND $condition"))[0] }
	sub { $session->name . " to be $condition\n" . $a->describe_locks . $b->describe_locks };
}

my $blocked     = '(blocked_by_pid IS NOT NULL OR blocked_by_node IS NOT NULL)';
my $has_lease   = "state = 'waiting' AND node ~ 'lease-\\d{10}\$' AND $blocked";
my $has_turn    = "state = 'waiting' AND node ~ 'lock-\\d{10}\$' AND $blocked";

sub settled
{
	my ($held, $name) = @_;
	wait_until
	{
		turns() == 0 && leases() == $held && $a->lock_count + $b->lock_count == $held;
	}
	sub { "$name: $held permits and nothing else\nleft: @{[ turns(), leases() ]}\n" . $a->describe_locks . $b->describe_locks };
	return;
}

my $holder = $b->session(name => 'b holder');
my $next_a = $a->session(name => 'a next');
my $next_b = $b->session(name => 'b next');

# ---- an acquire that ends in each of its states
#
# Each is brought about by code that gets the victim's statement and returns code that
# lets things go on. Then whoever comes next must get the only permit.

my @states = (
	# The worker has not seen the request.
	'requested' => sub {
		my ($victim) = @_;
		my $worker = $a->worker_pid;
		freeze($worker);
		acquire_start($victim, 1, @_[ 1 .. $#_ ]);
		wait_row($victim, "state = 'requested'");
		return sub { thaw($worker) };
	},
	(   map {
			my ($what, $where, $fault) = @$_;
			(   $what => sub {
					my ($victim) = @_;
					$shell->create("$path/$_", makepath => 1) foreach qw(locks leases);
					my $happens = $fault->($path);
					acquire_start($victim, 1, @_[ 1 .. $#_ ]);
					$proxy->fired($happens);
					wait_row($victim, "state = 'waiting'" . ($where ? " AND $where" : ''));
					return sub { $proxy->heal };
				});
		} (
			[ 'turn asked for', "node !~ '\\d{10}\$'",
				sub { $proxy->hold_request(op => 'create2', path => "^$_[0]/locks/") } ],
			[ 'turn not answered', "node !~ '\\d{10}\$'",
				sub { $proxy->hold_reply(op => 'create2', path => "^$_[0]/locks/") } ],
			[ 'turn not listed', "node ~ 'lock-\\d{10}\$'",
				sub { $proxy->hold_request(op => 'getChildren', path => "^$_[0]/locks\$") } ],
			[ 'lease asked for', "node ~ 'lease-\$'",
				sub { $proxy->hold_request(op => 'create2', path => "^$_[0]/leases/") } ],
			[ 'lease not answered', "node ~ 'lease-\$'",
				sub { $proxy->hold_reply(op => 'create2', path => "^$_[0]/leases/") } ],
			[ 'lease not listed', "node ~ 'lease-\\d{10}\$'",
				sub { $proxy->hold_request(op => 'getChildren', path => "^$_[0]/leases\$") } ])),
	'waiting for its turn' => sub {
		my ($victim, @timeout) = @_;
		acquire($holder, 1);
		acquire_start($next_a, 1);
		wait_row($next_a, $has_lease);
		acquire_start($victim, 1, @timeout);
		wait_row($victim, $has_turn);
		return sub { $next_a->cancel; $next_a->result; release($holder) };
	},
	'waiting for a permit' => sub {
		my ($victim, @timeout) = @_;
		acquire($holder, 1);
		acquire_start($victim, 1, @timeout);
		wait_row($victim, $has_lease);
		return sub { release($holder) };
	},
	'not connected' => sub {
		my ($victim, @timeout) = @_;
		$proxy->cut;
		$a->wait_session('connecting');
		acquire_start($victim, 1, @timeout);
		wait_row($victim, "state = 'waiting'");
		return sub { $proxy->heal; $a->wait_session };
	});

my @ways = (
	[ 'cancel', '57014', sub { $_[0]->cancel } ],
	[ 'terminate', '57P01', sub { $_[0]->terminate } ],
	[ 'lock_timeout', '55P03', undef, "SET lock_timeout = '500ms'" ],
	[ 'timeout', '00000', undef, undef, '500ms' ]);

my $case = 0;
while (my ($state, $reach) = splice(@states, 0, 2))
{
	foreach my $way (@ways)
	{
		my ($how, $sqlstate, $end, $set, @timeout) = @$way;
		my $name = "$state, $how";
		new_path();
		my $victim = $a->session(name => 'a victim');
		$victim->query($set) if $set;
		my $go_on = $reach->($victim, @timeout);
		$end->($victim) if $end;
		my $r = $victim->result;
		# Nobody can tell whether a permit is free.
		$sqlstate = '58030' if $how eq 'timeout' && $state eq 'not connected';
		is($r->{sqlstate}, $sqlstate, $name) or diag($r->{error});
		is($r->{text}, 'f', "$name: no permit") if $sqlstate eq '00000';
		$go_on->();
		is(acquire($_, 1, '30s'), 't', "$name: another gets it") && release($_) foreach $next_a, $next_b;
		if ($how ne 'terminate')
		{
			like($victim->try('RESET lock_timeout; ' . "SELECT zk_semaphore_release('$path')")->{text}, qr/^f$/,
				"$name: it holds none");
			is(acquire($victim, 1, '30s'), 't', "$name: but can have one later");
		}
		$victim->disconnect;
		settled(0, $name);
	}
}

# An unlock that is cancelled has released all the same.
foreach my $end (qw(cancel terminate))
{
	new_path();
	my $victim = $a->session(name => 'a victim');
	acquire($victim, 1);
	settled(1, 'a permit');
	my $fault = $proxy->hold_request(op => 'delete', path => "^$path/leases");
	$victim->query_start("SELECT zk_semaphore_release('$path')");
	$proxy->fired($fault);
	$victim->$end;
	is($victim->result->{sqlstate}, $end eq 'cancel' ? '57014' : '57P01', "$end of a release");
	is(acquire($next_b, 1, '0'), 'f', 'the lease is still there');
	$proxy->heal;
	is(acquire($next_b, 1, '30s'), 't', 'when it has gone, another gets the permit');
	is(release($victim), 'f', 'and it is not held any more') if $end eq 'cancel';
	release($next_b);
	$victim->disconnect;
}

# ---- a lost reply or request, of each kind

foreach my $fate (qw(lose_reply lose_request))
{
	my @calls = (
		[ createContainer => '/locks$' ],
		[ createContainer => '/leases$' ],
		[ create2         => '/locks/' ],
		[ create2         => '/leases/' ],
		[ getChildren     => '/locks$' ],
		[ getChildren     => '/leases$' ],
		[ delete          => '/locks/' ],
		[ delete          => '/leases/' ]);
	foreach my $call (@calls)
	{
		my ($op, $where) = @$call;
		my $name = "$fate of $op $where";
		new_path();

		# Alone
		my $s = $a->session(name => 'a s');
		my $fault = $proxy->$fate(op => $op, path => "^$path$where");
		is(acquire($s, 1), 't', "$name: the only permit is had");
		my $has_it = sub {
			settled(1, $name);
			my ($row) = $a->locks('pid = ' . $s->pid);
			is_deeply([ leases() ], [ $row->{node} ], "$name: with one lease, which is known");
			is($shell->stat("$path/leases/$row->{node}")->{ephemeralOwner}, $a->session_id, 'and right');
			is(acquire($next_b, 1, '0'), 'f', "$name: nobody else gets it");
		};
		$has_it->();
		is(release($s), 't', "$name: it is released");
		ok($proxy->fired($fault), "$name has happened");
		is(acquire($next_b, 1, '30s'), 't', "$name: another server gets it");
		settled(1, $name);
		release($next_b);

		# With somebody before, and somebody behind. What makes the path does not come again.
		next if $op eq 'createContainer';
		acquire($holder, 1);
		$fault = $proxy->$fate(op => $op, path => "^$path$where");
		acquire_start($s, 1);
		wait_row($s, $has_lease);
		acquire_start($next_b, 1);
		wait_row($next_b, $has_turn);
		release($holder);
		is($s->finish, 't', "$name: who waits gets the permit");
		ok($next_b->busy, "$name: who comes behind does not");
		is(release($s), 't', "$name: it is released");
		is($next_b->finish, 't', "$name: then it does");
		ok($proxy->fired($fault), "$name has happened");
		settled(1, $name);
		release($next_b);
		$s->disconnect;
	}
}
# The watch on a lease of ours, set when others have come: by a read.
foreach my $fate (qw(lose_reply lose_request))
{
	new_path();
	my $s = $a->session(name => 'a s');
	acquire($s, 2);
	settled(1, 'a permit');
	my $fault = $proxy->$fate(op => 'getData', path => "^$path/leases/");
	acquire($next_b, 2);
	ok($proxy->fired($fault), "$fate of getData");
	$a->wait_session;
	my ($node) = map { $_->{node} } $a->locks('pid = ' . $s->pid);
	$shell->delete("$path/leases/$node");
	is(wait_row($s, "state = 'lost'")->{granted}, 'f', "$fate of getData: a deletion is noticed nevertheless");
	is($s->query("SELECT zk_semaphore_release('$path')"), 'f', 'it was lost');
	release($next_b);
	$s->disconnect;
	settled(0, $fate);
}
is($a->zk_session->{expirations}, '0', 'all in one session');

# ---- nodes deleted by somebody else

my @s = map { $a->session(name => "a$_") } 1 .. 4;

new_path();
acquire($_, 3) foreach @s[ 0, 1 ], $next_b;
acquire($s[0], 3, '0') eq 'f' or die 'there should be none';
my ($node) = map { $_->{node} } $a->locks('pid = ' . $s[0]->pid . " AND state = 'held'");
my $mark = $a->log_mark;
$shell->delete("$path/leases/$node");
my $row = wait_row($s[0], "state = 'lost'");
is($row->{granted}, 'f', 'a deleted lease is a lost permit');
$a->wait_log(qr/\Q$node\E.*deleted by someone else/, $mark);
is($a->lock_count("path = '$path' AND state = 'held'"), 1, 'others of the server hold theirs');
is(acquire($next_a, 3, '30s'), 't', 'somebody else gets it');
my $r = $s[0]->try("SELECT zk_semaphore_release('$path')");
is($r->{text}, 'f', 'its release returns false');
like("@{ $r->{notices} }", qr/WARNING:.*permit of semaphore "$path" was lost/, 'with a warning');
is(release($s[0]), 'f', 'it has no more');
release($_) foreach $s[1], $next_a, $next_b;
settled(0, 'lost');

# Of several permits the lost one goes first.
acquire($s[0], 3) foreach 1 .. 3;
settled(3, 'three');
my @nodes = map { $_->{node} } $a->locks('pid = ' . $s[0]->pid . ' ORDER BY node COLLATE "C"');
$shell->delete("$path/leases/$nodes[1]");
wait_row($s[0], "state = 'lost'");
is($s[0]->query("SELECT zk_semaphore_release('$path')"), 'f', 'the lost one is released first');
is($a->lock_count('pid = ' . $s[0]->pid . " AND state = 'held'"), 2, 'two good ones are left');
is(release($s[0]), 't', 'which can be released') foreach 1, 2;
settled(0, 'lost of several');

# A transaction that has written while a permit was lost does not commit.
acquire($s[0], 1);
settled(1, 'a permit');
$s[0]->query($_) foreach 'BEGIN', 'INSERT INTO t VALUES (1)';
$shell->delete("$path/leases/$_") foreach leases();
wait_row($s[0], "state = 'lost'");
$r = $s[0]->try('COMMIT');
is($r->{sqlstate}, '40001', 'COMMIT fails after a permit is lost') or diag($r->{error});
is($a->value('SELECT count(*) FROM t'), '0', 'and nothing is there');
is($s[0]->query('BEGIN; SELECT 1; COMMIT; SELECT 2'), '2', 'one that only reads commits');
$r = $s[0]->try('SELECT zk_unlock_all()');
like("@{ $r->{notices} }", qr/WARNING:.*permit of semaphore "$path" was lost/, 'zk_unlock_all warns');
is($s[0]->try('INSERT INTO t VALUES (2); DELETE FROM t')->{sqlstate}, '00000', 'released, it is no obstacle');

# With zklock.commit_guard = quorum the permits' nodes are looked at.
$s[0]->query("SET zklock.commit_guard = 'quorum'");
acquire($s[0], 2);
$proxy->reset_counts;
is($s[0]->try('INSERT INTO t VALUES (1); DELETE FROM t')->{sqlstate}, '00000', 'a quorum confirms a permit');
ok((grep { $_->[0] eq 'multi' } @{ $proxy->requests }), 'which has been asked for');
release($s[0]);
$s[0]->query('RESET zklock.commit_guard');

# With zklock.on_lock_loss a statement is interrupted that holds a permit, not one that waits
# for it.
$s[0]->query("SET zklock.on_lock_loss = 'cancel'");
acquire($s[0], 2);
settled(1, 'a permit');
my $blocker = $a->session;
$blocker->query('SELECT pg_advisory_lock(1)');
$s[0]->query_start('SELECT pg_advisory_lock(1)');
$a->wait_value('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $s[0]->pid, 'advisory');
$shell->delete("$path/leases/$_") foreach leases();
$r = $s[0]->result;
is($r->{sqlstate}, '40001', 'a lost permit cancels a statement') or diag($r->{error});
is($s[0]->query("SELECT zk_semaphore_release('$path')"), 'f', 'and is released');
acquire($holder, 1);
acquire_start($s[0], 1);
wait_row($s[0], $has_lease);
$shell->delete("$path/locks/$_") foreach turns();
acquire_start($next_b, 1);
wait_row($next_b, $has_lease);
ok($s[0]->busy, 'a lost turn cancels nothing');
release($holder);
is($s[0]->finish, 't', 'who lost it gets the permit');
release($s[0]);
is($next_b->finish, 't', 'and then the next');
release($next_b);
$s[0]->query('RESET zklock.on_lock_loss');
settled(0, 'on_lock_loss');

# A turn that is lost before its session knows that it had it.
acquire($holder, 1);
acquire_start($next_b, 1);
wait_row($next_b, $has_lease);
acquire_start($s[0], 1);
wait_row($s[0], $has_turn);
my $pid = $s[0]->pid;
freeze($pid);
$next_b->cancel;
is($next_b->result->{sqlstate}, '57014', 'the head of the queue gives up');
wait_row($s[0], 'blocked_by_pid IS NULL AND blocked_by_node IS NULL');
$shell->delete("$path/locks/$_") foreach turns();
wait_until { turns() == 0 } 'the turn to be lost';
thaw($pid);
wait_row($s[0], $has_lease);
release($holder);
is($s[0]->finish, 't', 'the next, which loses its turn at once, gets the permit');
release($s[0]);
settled(0, 'a turn lost early');

# Nodes of those who wait: they go on waiting.
new_path();
acquire($holder, 1);
acquire_start($s[0], 1);
wait_row($s[0], $has_lease);
acquire_start($s[1], 1);
wait_row($s[1], $has_turn);
acquire_start($next_b, 1);
wait_row($next_b, $has_turn);
$row = wait_row($s[0], $has_lease);
$shell->delete("$path/leases/$row->{node}");
my $again = wait_row($s[0], "$has_lease AND node <> '$row->{node}'");
isnt($again->{node}, $row->{node}, 'a waiting lease that is deleted is made again');
# The turn goes to the other server then, which gets a lease behind, and nothing more.
my ($turn) = map { (split / /)[1] } sort map { substr($_, -10) . " $_" } turns();
$shell->delete("$path/locks/$turn");
wait_row($next_b, $has_lease);
wait_row($s[1], "$has_turn AND node !~ '$turn'");
$row = wait_row($s[0], $has_lease);
is($row->{node}, $again->{node}, 'who has a lease waits on when its turn is over');
release($holder);
foreach my $session ($s[0], $next_b, $s[1])
{
	is($session->finish, 't', $session->name . ' gets the permit');
	is(acquire($next_a, 1, '0'), 'f', 'alone');
	release($session);
}
settled(0, 'deleted nodes');

# ---- the end of the ZooKeeper session

new_path();
acquire($_, 3) foreach $s[0], $holder;
acquire($s[0], 3);
settled(3, 'three permits');
acquire_start($s[1], 3);
wait_row($s[1], $has_lease);
acquire_start($s[2], 3);
wait_row($s[2], $has_turn);
my $other = $path;
new_path();
acquire($holder, 1);
acquire_start($next_b, 1);
wait_row($next_b, $has_lease);
acquire_start($s[3], 1);
wait_row($s[3], $has_turn);
$path = $other;
$a->expire_session($zk);
$a->wait_value(
	"SELECT count(*) FROM zk_locks WHERE pid = " . $s[0]->pid . " AND state = 'lost'", 2);
pass('who had permits has lost them, says zk_locks');
is($s[1]->finish, 't', 'who waited at the head gets a permit');
is($s[2]->finish, 't', 'who waited behind, another');
is($b->lock_count("path = '$path' AND state = 'held'"), 1, 'the other server keeps its own');
is(acquire($next_a, 3, '0'), 'f', 'and there are no more');
$r = $s[0]->try("SELECT zk_semaphore_release('$path')");
is($r->{text}, 'f', 'a lost one is released');
$s[0]->disconnect;
$s[0] = $a->session(name => 'a1');
is(acquire($next_a, 3, '0'), 'f', 'which gives nobody a permit');
release($_) foreach @s[ 1, 2 ], $holder;
$path = "/t/faulty/$number";
wait_row($s[3], $has_turn);
pass('who waited behind the other server waits again');
release($holder);
is($next_b->finish, 't', 'which is served first');
ok($s[3]->busy, 'and alone');
release($next_b);
is($s[3]->finish, 't', 'then the one that queued again');
release($s[3]);
settled(0, 'expiry');

# ---- another worker

sub new_worker
{
	$a->restart_worker;
	$a->wait_session;
	return;
}

new_path();
acquire($_, 2) foreach $s[0], $holder;
settled(2, 'two permits');
acquire_start($s[1], 2);
wait_row($s[1], $has_lease);
acquire_start($s[2], 2);
wait_row($s[2], $has_turn);
acquire_start($next_b, 2);
wait_row($next_b, $has_turn);
my @before = (sort(turns()), sort(leases()));
new_worker();
is_deeply([ sort(turns()), sort(leases()) ], \@before, 'a new worker keeps all nodes');
is(wait_row($s[0], 'true')->{state}, 'held', 'the permit is held');
wait_row($s[1], $has_lease);
wait_row($s[2], $has_turn);
is(acquire($next_a, 2, '0'), 'f', 'no permit is free');
release($s[0]);
is($s[1]->finish, 't', 'the head of the queue gets the next');
wait_row($s[2], $has_lease);
ok($next_b->busy, 'the others wait');
new_worker();
release($holder);
is($s[2]->finish, 't', 'the next one another');
release($s[1]);
is($next_b->finish, 't', 'then the other server');
release($_) foreach $s[2], $next_b;
settled(0, 'new workers');

# While the outcome of a create is not known: of the turn's, of the lease's.
foreach my $kind (qw(locks leases))
{
	foreach my $hold (qw(hold_request hold_reply))
	{
		new_path();
		$shell->create("$path/$_", makepath => 1) foreach qw(locks leases);
		my $fault = $proxy->$hold(op => 'create2', path => "^$path/$kind/");
		acquire_start($s[0], 1);
		$proxy->fired($fault);
		$a->restart_worker;
		$proxy->heal;
		is($s[0]->finish, 't', "$hold of create in $kind and a new worker: a permit");
		settled(1, $hold);
		is(acquire($next_b, 1, '0'), 'f', 'one');
		release($s[0]);
		is(acquire($next_b, 1, '30s'), 't', 'released');
		release($next_b);
	}
}

# ---- all at once
#
# Sessions that wait for a while, are cancelled or end, while connections break. Who was inside
# notes when: after it got a permit, and before it gave it back.

new_path();
my $microseconds = '(extract(epoch FROM clock_timestamp()) * 1000000)::bigint';
my @crowd = map { ($a->session(name => "a crowd $_"), $b->session(name => "b crowd $_")) } 1 .. 5;
$_->value('CREATE TABLE inside (began bigint, ended bigint)') foreach $a, $b;
my ($wanted, $cancelled) = (150, 0);
for (my $round = 0; $round < $wanted; $round++)
{
	my $session = $crowd[ $round % @crowd ];
	if ($session->{statement})
	{
		# It is given some time, not for ever.
		if ($round % 3 == 0 && $session->busy)
		{
			$session->cancel;
			$cancelled++;
		}
		$r = $session->result;
		fail("round $round: $r->{error}") unless $r->{ok} || $r->{sqlstate} eq '57014';
	}
	if ($round % 17 == 16)
	{
		my $name = $session->name;
		$session->terminate if $round % 2;
		$session->disconnect;
		$session = $crowd[ $round % @crowd ] = server_of($session)->session(name => $name);
	}
	$proxy->drop if $round % 11 == 10;
	# The permit of a call that is cancelled is had until the next.
	$session->query_start("DO \$\$
		DECLARE
			began bigint;
		BEGIN
			PERFORM zk_unlock_all();
			IF zk_semaphore_acquire('$path', 3, '20s') THEN
				began := $microseconds;
				PERFORM count(*) FROM generate_series(1, 100000);
				INSERT INTO inside VALUES (began, $microseconds);
			END IF;
			PERFORM zk_unlock_all();
		END \$\$");
}
foreach my $session (@crowd)
{
	is($session->result->{error}, undef, $session->name . ' comes to an end');
	$session->disconnect;
}
settled(0, 'all at once');
my @events = map { my ($from, $to) = split /\|/; ("$from enter", "$to a leave") }
  map { split /\n/, $_->value('SELECT began, ended FROM inside') } $a, $b;
my ($now, $most) = (0, 0);
foreach my $event (sort @events)
{
	$now += $event =~ /enter/ ? 1 : -1;
	$most = $now if $most < $now;
}
cmp_ok($most, '<=', 3, "never more than three inside (at most $most, " . @events / 2 . " times, $cancelled cancelled)");
cmp_ok(scalar @events, '>', $wanted, 'most were served');

# ---- ZooKeeper out of reach

new_path();
acquire($s[0], 1);
$proxy->cut;
$a->wait_session('connecting');
is($s[1]->try(sql(1, '0'))->{sqlstate}, '58030', 'who does not wait learns that nobody can be asked');
is($s[1]->try(sql(1, '200ms'))->{sqlstate}, '58030', 'so does who waited');
acquire_start($s[1], 1);
wait_row($s[1], "state = 'waiting'");
is(release($s[0]), 't', 'a release does not wait for it');
$proxy->heal;
is($s[1]->finish, 't', 'a wait may outlive it');
release($s[1]);
settled(0, 'out of reach');

# ---- no room

my $c = Zklock::Server->new('c', zookeeper => $zk, conf => [ 'zklock.max_locks = 3', @conf ]);
my @c = map { $c->session(name => "c$_") } 1, 2;
new_path();
is(acquire($c[0], 9), 't', 'a permit of three entries');
$c->wait_value('SELECT count(*) FROM zk_locks', 1);
is(acquire($c[0], 9), 't', 'another: to ask for it takes two');
$c->wait_value('SELECT count(*) FROM zk_locks', 2);
foreach my $zero (0, 1)
{
	if ($zero)
	{
		# Once what the refused call had taken is given back.
		wait_until { ($c[0]->try(sql(9, '0'))->{text} || '') eq 't' } 'an entry to be free';
		pass('without waiting it takes one, the last');
	}
	$r = $c[1]->try(sql(9));
	is($r->{sqlstate}, '53200', 'then there is no room') or diag($r->{error});
	like($r->{hint}, qr/zklock\.max_locks/, 'which setting is to blame');
	$c->wait_value('SELECT count(*) FROM zk_locks', $zero ? 3 : 2);
}
$c[0]->query('SELECT zk_unlock_all()');
is(acquire($c[1], 1, '30s'), 't', 'after that there is again');
$c[1]->query('SELECT zk_unlock_all()');

$_->disconnect foreach @s, @c, $holder, $next_a, $next_b;
is_deeply([ map { $zk->children($_) } @used ], [], 'no node of any semaphore is left');
Zklock::Server->assert_clean($zk, [ $a, $b, $c ], $used[-1]);
done_testing;
