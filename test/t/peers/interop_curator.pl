# Copyright (c) 2026, zklock contributors
#
# SQL sessions and Java threads with Curator's InterProcessMutex take turns, and share permits with
# InterProcessSemaphoreV2. That each waits for the other, and that they lose no update when they count together, is in
# peers/matrix.pl; their order, in locks/fifo.pl.

use Zklock::Test;
use JSON::PP;
use Zklock::JavaPeer;
use Zklock::Semaphore;
use Zklock::Util qw(most_at_once);

my ($zk, $a, $b) = cast('a b', conf => ["zklock.path_dialects = '/rw/*=curator_rw'"]);
my $shell = $zk->shell;
my $java  = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);
my $lock = '/pay/lock';

my $s = $a->session;
my $behind = $b->session;

sub blocked_by($session) { return $session->wait_row('blocked_by_node IS NOT NULL')->{blocked_by_node}; }

subtest 'Curator ends a wait, or its life, in its own ways' => sub {
	$s->query("SELECT zk_lock('$lock')");
	my $waits = $java->acquire_start('j', $lock);
	wait_until { $zk->children($lock) == 2 } 'Curator to queue';
	$behind->query_start("SELECT zk_lock('$lock')");
	wait_until { $zk->children($lock) == 3 } 'a session of the other server to queue';
	$java->interrupt('j');
	ok(!eval { $java->result($waits); 1 }, 'Curator gives up');
	wait_until { $zk->children($lock) == 2 } 'its node to go';
	ok($behind->busy, 'who is behind it still waits for SQL');
	$s->hands_over($lock, $behind, 'and gets the lock from there');
	$waits = $java->acquire_start('j', $lock);
	wait_until { $zk->children($lock) == 2 } 'Curator to queue';
	$behind->disconnect;
	is($java->result($waits), 1, 'a session that ends leaves the lock to Curator');
	$s->query_start("SELECT zk_lock('$lock')");
	is("$lock/" . blocked_by($s), $java->node('j')->[0], 'a session stands behind Curator');
	$java->close_session;
	is($s->finish, 't', 'a Curator session that ends leaves the lock to SQL');
	$s->query("SELECT zk_unlock('$lock')");
	$java->connect($zk->connect_string, scaled(4000));
	$java->acquire('k', $lock);
	$s->query_start("SELECT zk_lock('$lock')");
	blocked_by($s);
	$java->kill9;
	is($s->finish, 't', 'a Java process that dies does so when its session has expired');
	$s->query("SELECT zk_unlock('$lock')");
};

subtest 'Curator sees our nodes as it does its own' => sub {
	$java = Zklock::JavaPeer->new;
	$java->connect($zk->connect_string);
	$s->query("SELECT zk_lock('$lock')");
	my $waits = $java->acquire_start('j', $lock);
	wait_until { $zk->children($lock) == 2 } 'Curator to queue';
	my ($ours, $theirs) = @{ $java->participants($lock) };
	like($ours, qr{^$lock/_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lock-\d{10}$},
		'our node bears a name like Curator\'s own');
	my $like = $theirs =~ s/[0-9a-f]{8}-[0-9a-f-]{27}-lock-\d{10}$//r;
	is(substr($ours, 0, length $like), $like, 'as can be seen');
	is(JSON::PP->new->decode($shell->get($ours))->{pid}, $s->pid, 'its data tells who it is');
	$s->query("SELECT zk_unlock('$lock')");
	$java->result($waits);
	$java->release('j');
};

subtest "Curator's Revoker overwrites the data of our nodes, and no more" => sub {
	my $behind = $b->session;
	my $shown = sub ($server) {
		return $server->session->try(
			"SELECT server, pid, owner, owner_session, granted, heeds_us FROM zk_contenders('$lock')")->{rows};
	};
	my @ids = map { $_->zk_session->{session_id} } $a, $b;
	$s->query('CREATE TABLE revoked (i int)');
	$s->query($_) foreach 'SET zklock.commit_guard = quorum', 'BEGIN', "SELECT zk_xact_lock('$lock')", 'INSERT INTO revoked VALUES (1)';
	my $token = $s->query("SELECT zk_fencing_token('$lock')");
	$behind->start_queued("SELECT zk_lock('$lock')");
	my $waits = $java->acquire_start('j', $lock);
	wait_until { $zk->children($lock) == 3 } 'Curator to queue';
	$java->revoke($_) foreach map { "$lock/$_" } ($zk->children($lock))[ 0, 1 ];
	is($shell->get("$lock/" . ($zk->children($lock))[0]), '__REVOKE__', 'it asks for the lock by data of its own');
	is_deeply([ map { @$_[ 0 .. 1 ] } $shown->($a)->@[ 0 .. 1 ] ], [ 'a', $s->pid, undef, undef ], 'a server knows its own node');
	is_deeply([ map { @$_[ 0 .. 1 ] } $shown->($b)->@[ 0 .. 1 ] ], [ undef, undef, 'b', $behind->pid ], 'and so does the other');
	is_deeply([ map { [ @$_[ 2 .. 5 ] ] } $shown->($a)->@[ 0 .. 1 ] ],
		[ [ '__REVOKE__', $ids[0], 't', 't' ], [ '__REVOKE__', $ids[1], 'f', 't' ] ], 'what was asked, and of whom');
	is($s->query("SELECT zk_fencing_token('$lock')"), $token, 'the lock is held as before');
	$s->query('COMMIT');
	is($behind->finish, 't', 'the transaction commits, and who is next gets the lock');
	ok(!$java->ready($waits), 'Curator waits for it');
	$behind->query("SELECT zk_unlock('$lock')");
	is($java->result($waits), 1, 'and gets it when it is released');
	$java->release('j');
	$s->query('RESET zklock.commit_guard');
};

subtest 'a writer of InterProcessReadWriteLock who reads as well has two nodes with one sequence' => sub {
	$lock = '/rw/lock';
	my $t = $a->session;
	$zk->shell->create("$lock/_c_00000000-0000-4000-8000-000000000000-${_}0000000000", ephemeral => 1, makepath => 1)
	  foreach qw(__WRIT__ __READ__);
	$s->start_waiting("SELECT zk_lock_shared('$lock')");
	$t->start_waiting("SELECT zk_lock('$lock')");
	$zk->shell->delete("$lock/_c_00000000-0000-4000-8000-000000000000-__WRIT__0000000000");
	is($s->finish, 't', 'who stops to write lets readers in');
	$s->query("SELECT zk_unlock_shared('$lock')");
	ok($t->busy, 'but no writer');
	$zk->shell->delete("$lock/_c_00000000-0000-4000-8000-000000000000-__READ__0000000000");
	is($t->finish, 't', 'until it stops to read');
	$t->query("SELECT zk_unlock('$lock')");
};

# ---- permits of InterProcessSemaphoreV2

Zklock::Semaphore::cast($zk, $a, $b);
my @s = ((map { $a->session(name => "a$_") } 1 .. 3), (map { $b->session(name => "b$_") } 1 .. 3));

sub wait_children($turns, $leases)
{
	wait_until { turns() == $turns && leases() == $leases }
	sub { "$turns turns and $leases leases\n" . $a->describe_locks . $b->describe_locks };
	return;
}

subtest 'SQL waits for a permit of Java, and Java behind it' => sub {
	is($java->permit("j$_", $path, 3), 1, "Java gets permit $_") foreach 1 .. 3;
	wait_children(0, 3);
	is(acquire($s[0], 3, '0'), 'f', 'SQL gets none');
	is(acquire($s[0], 3, '100ms'), 'f', 'nor in a while');
	wait_children(0, 3);
	acquire_start($s[0], 3);
	wait_children(1, 4);
	is($java->permit('j4', $path, 3, 100), 0, 'Java waits in vain behind it');
	wait_children(1, 4);
	my $waits = $java->permit_start('j4', $path, 3);
	wait_children(2, 4);
	ok($s[0]->busy, 'SQL waits');
	$java->permit_release('j1');
	is($s[0]->finish, 't', 'and gets the permit that Java releases');
	ok(!$java->ready($waits), 'who asked in Java later waits on');
	release($s[0]);
	is($java->result($waits), 1, 'and gets the one that SQL releases');
};

subtest 'Java, which came first, is served before SQL' => sub {
	my $waits = $java->permit_start('j5', $path, 3);
	wait_children(1, 4);
	acquire_start($s[0], 3);
	wait_children(2, 4);
	is(acquire($s[1], 3, '0'), 'f', 'nobody passes by');
	$java->permit_release('j2');
	is($java->result($waits), 1, 'Java, which came first, is served first');
	ok($s[0]->busy, 'SQL waits');
	wait_children(1, 4);
	$java->permit_release('j3');
	is($s[0]->finish, 't', 'and is served next');
};

subtest 'a Java service whose session ends leaves its permits to others' => sub {
	acquire_start($s[$_], 3) foreach 1, 3;
	wait_children(2, 4);
	$java->close_session;
	is($s[$_]->finish, 't', $s[$_]->name . ' gets a permit when the Java session ends') foreach 1, 3;
	wait_children(0, 3);
	$java->connect($zk->connect_string);
	is($java->permit('j6', $path, 3, 100), 0, 'Java gets none');
	release($s[0]);
	is($java->permit('j6', $path, 3), 1, 'until SQL releases one');
	$s[1]->disconnect;
	is($java->permit('j6', $path, 3), 1, 'or a session ends');
	$java->permit_release('j6') foreach 1, 2;
	release($s[3]);
	wait_children(0, 0);
	$s[1] = $a->session(name => 'a2');
};

subtest 'of six Java threads and six sessions never more than three are inside' => sub {
	# Each notes when it was certainly inside: after it got the permit, and before it gave it
	# back. All clocks are the one of this machine.
	my ($rounds, $sleep) = (8, 20);
	my $microseconds = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
	$_->value('CREATE TABLE inside (began bigint, ended bigint)') foreach $a, $b;
	foreach my $session (@s)
	{
		$session->query_start("DO \$\$
			DECLARE
				began bigint;
			BEGIN
				FOR i IN 1 .. $rounds LOOP
					PERFORM zk_semaphore_acquire('$path', 3);
					began := $microseconds;
					PERFORM pg_sleep($sleep / 1000.0);
					INSERT INTO inside VALUES (began, $microseconds);
					PERFORM zk_semaphore_release('$path');
				END LOOP;
			END \$\$");
	}
	my @ids = map { $java->permit_rounds_start("r$_", $path, 3, $rounds, $sleep) } 1 .. 6;
	my @inside = map { @{ $java->result($_) } } @ids;
	is($_->result->{error}, undef, $_->name . ' was served') foreach @s;
	push @inside, map { map { [ split /\|/ ] } split /\n/, $_->value('SELECT began, ended FROM inside') } $a, $b;
	is(scalar @inside, 12 * $rounds, 'each was served as often as it asked');
	my $most = most_at_once(@inside);
	cmp_ok($most, '<=', 3, "never more than three were inside (at most $most)");
};

$java->close_session;
done_clean($zk, $a, $b);
