# Copyright (c) 2026, zklock contributors
#
# Whatever stands below /zklock-waits: nobody who waits rightly gives up, and nothing crashes.
#
# A session of a waits for one of b, and that for another session of a: a forged record need only claim that its
# session keeps b's from letting go to close a circle that is none.

use Zklock::Test;
use Zklock::Deadlock;

my ($zk, $a, $b) = cast('a b',
	a => { conf => [ "deadlock_timeout = '100ms'", "cluster_name = 'a'" ] },
	b => { conf => [ "deadlock_timeout = '100ms'", "cluster_name = 'b'" ] });
my $sh = $zk->shell;
my ($a1, $a2) = map { $a->session(name => $_) } qw(a1 a2);
my ($b1, $b2) = map { $b->session(name => $_) } qw(b1 b2);
my $root = '/zklock-waits';
my $ours = $sh->session->[0] =~ s/^0x//r;
my $id   = ('0' x (16 - length $ours)) . $ours;
my $n    = 0;

# The name of a record that our own session may write
sub name { return sprintf('%s/%s-%08x', $root, $id, $n++); }

sub wait_of { my ($path, $node, @held) = @_; return join("\n", "wait\t" . (5 + $n) . "\t1\tx", "node\t0\t$path\t$node", map { "held\t$_" } @held) . "\n"; }

sub record { my (@waits) = @_; return "zklock waits 1\nserver\tforged\nseen\t7fffffffffffffff\n" . join('', @waits); }

sub lock { my ($session, $path) = @_; is($session->query("SELECT zk_lock('$path')"), 't', $session->name . " holds $path"); return; }

sub waits
{
	my ($session, $path) = @_;
	$session->query_start("SELECT zk_lock('$path')");
	$session->server->wait_queued($session, $path);
	return;
}

# All of these wait on while the servers go round several times.
sub nobody_gives_up
{
	my (@sessions) = @_;
	my $mark = $zk->mark;
	wait_until { ($zk->requests($mark)->{sync} // 0) >= 12 } 'the servers to look several times';
	ok($_->busy, $_->name . ' waits') foreach @sessions;
	is($_->zk_session->{state}, 'connected', 'the worker of ' . $_->name . ' runs') foreach $a, $b;
	return;
}

my @workers = map { $_->worker_pid } $a, $b;

subtest 'records that are none, or claim what is not so' => sub {
	lock($a1, '/f/a');
	lock($b1, '/f/b');
	lock($b2, '/f/c');
	lock($a2, '/f/d');
	# Ours is older than what waits behind it: it would not be the one to give up.
	my $behind = $sh->create('/f/a/_c_00000000-0000-0000-0000-000000000000-lock-', ephemeral => 1, sequence => 1);
	my ($behind_name) = $behind =~ m,([^/]+)$,;
	waits($b1, '/f/c');
	waits($a1, '/f/b');
	waits($b2, '/f/d');
	wait_until { $zk->children($root) == 2 } 'both servers to publish';
	my %node   = map { my ($session, $path) = @$_; ("$session->{name} $path" => $session->wait_row('true', $path)->{node}) }
	  ([ $a1, '/f/a' ], [ $a1, '/f/b' ], [ $b1, '/f/b' ], [ $b1, '/f/c' ], [ $b2, '/f/c' ]);
	my $good   = $sh->get("$root/" . ($zk->children($root))[0]);
	my @forged = (
		# no records at all
		'', 'x', "\n" x 1000, $good =~ s/.\z//sr, $good x 2, 'zklock waits 1' . "\t" x 20_000,
		# Paths and nodes that cannot be
		record(wait_of('/', 'x', "/f/b\tx")), record(wait_of('/f/../f', 'x', "/f/b\tx")), record(wait_of('/f/a', '../x', "/f/b\t..")),
		record(map { wait_of('/f/b', "n-$_", "/f/b\tn-$_") } 1 .. 300));
	$sh->create(name(), data => $_, ephemeral => 1) foreach @forged;
	$sh->create(name(), hex => '00ff0a09' x 2000, ephemeral => 1);
	$sh->create(name(), hex => unpack('H*', $good) . '00', ephemeral => 1);
	$sh->create(name(), data => 'x' x 900_000, ephemeral => 1);
	$sh->create(name(), data => $good);    # of nobody's session
	$sh->create("$root/$_", data => $good, ephemeral => 1)
	  foreach 'x', 'lock-0000000001', '_c_00000000-0000-0000-0000-000000000000-lock-0000000001', ('f' x 16) . '-00000001', 'g' x 25;
	# In the names of others' sessions
	foreach my $record ($zk->children($root))
	{
		my ($of) = $record =~ /^([0-9a-f]{16})-/ or next;
		next if $of eq $id || $of eq 'f' x 16;
		$sh->create("$root/$of-ffffffff", data => record(wait_of('/f/a', $behind_name, "/f/b\t$node{'b1 /f/b'}")), ephemeral => 1);
		wait_until { !grep { $_ eq "$of-ffffffff" } $zk->children($root) } 'a server to delete what has its name';
	}
	# They claim that another's node is theirs, or one that does not exist, and waits for what the
	# circle needs. Of a session only the newest record counts: this is the one.
	$sh->create(name(), ephemeral => 1, data => record(
		wait_of('/f/a', $behind_name, "/f/b\t$node{'b1 /f/b'}"),
		wait_of('/f/a', $behind_name, "/f/b\t_c_00000000-0000-0000-0000-000000000000-lock-0000000000"),
		wait_of('/f/a', '_c_00000000-0000-0000-0000-000000000000-lock-0999999999', "/f/b\t$node{'b1 /f/b'}")));
	nobody_gives_up($a1, $b1, $b2);
	$sh->delete("$root/$_") foreach grep { !/^0*@{[ $a->session_id =~ s,0x,,r ]}-|^0*@{[ $b->session_id =~ s,0x,,r ]}-/ } $zk->children($root);
	$sh->delete($behind);
	$a2->query('SELECT zk_unlock_all()');
	is($b2->finish, 't', 'one gets what it waits for');
	$b2->query('SELECT zk_unlock_all()');
	is($b1->finish, 't', 'then the next');
	$b1->query('SELECT zk_unlock_all()');
	is($a1->finish, 't', 'and the last');
	$a1->query('SELECT zk_unlock_all()');
	Zklock::Server->assert_clean($zk, [ $a, $b ], '/f/a', '/f/b', '/f/c', $root);
};

subtest 'a record that is stale, since its server has been stopped' => sub {
	lock($a1, '/f/a');
	lock($b1, '/f/b');
	waits($b1, '/f/a');
	wait_until { $zk->children($root) == 1 } 'a record';
	freeze($b->worker_pid);
	is($b1->cancelled, '57014', 'the wait ends, but the record stays');
	waits($a1, '/f/b');
	wait_until { $zk->children($root) == 2 } 'the other server to publish its own';
	my $mark = $zk->mark;
	wait_until { ($zk->requests($mark)->{sync} // 0) >= 12 } 'it to look several times';
	ok($a1->busy, 'nobody gives up');
	thaw($b->worker_pid);
	is($b1->query("SELECT zk_unlock('/f/b')"), 't', 'when it is back, and lets go');
	is($a1->finish, 't', 'the other session goes on');
	$a1->query('SELECT zk_unlock_all()');
	Zklock::Server->assert_clean($zk, [ $a, $b ], '/f/a', '/f/b', $root);
};

subtest 'a deadlock is found in spite of what stands there' => sub {
	$sh->create(name(), data => record(wait_of('/f/a', 'n', "/f/b\tn-$_")), ephemeral => 1) foreach 1 .. 100;
	$_->query('BEGIN') foreach $a1, $b1;
	$a1->query("SELECT zk_xact_lock('/f/a')");
	$b1->query("SELECT zk_xact_lock('/f/b')");
	$a1->start_queued("SELECT zk_xact_lock('/f/b')", '/f/b');
	$b1->query_start("SELECT zk_xact_lock('/f/a')");
	one_victim([ $a1, $b1 ],
		[ $a1, 'ExclusiveLock on ZooKeeper path "/f/b"', $b1, 'ExclusiveLock on ZooKeeper path "/f/a"' ]);
	$sh->delete("$root/$_") foreach grep { /^$id-/ } $zk->children($root);
	Zklock::Server->assert_clean($zk, [ $a, $b ], '/f/a', '/f/b', $root);
};

is_deeply([ map { $_->worker_pid } $a, $b ], \@workers, 'the workers are those of the beginning');
done_testing();
