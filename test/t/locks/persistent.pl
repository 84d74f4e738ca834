# Copyright (c) 2026, zklock contributors
#
# zk_lock_persistent: a lock that no session holds. It excludes all others, also Hive and Curator, across ends and
# restarts of everybody, until somebody unlocks it by its token. It does not wait, and a call that fails or finds
# somebody in its way leaves nothing behind. What becomes of one call at each call to ZooKeeper is in the table of
# faults, faults/faults_of_claims_and_elements.pl.

use Zklock::Test;
use Zklock::Cast qw(fails cancel_as_answered);
use Zklock::JavaPeer;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '6s');
my ($s, $t, $admin) = ($a->session(name => 's'), $b->session(name => 't'), $b->session(name => 'admin'));
my $shell = $zk->shell;
my $java  = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);

sub lock_of($path, $mode = '') { return "SELECT zk_lock_persistent$mode('$path')"; }
sub unlock($session, $path, $token) { return $session->query("SELECT zk_unlock_persistent('$path', $token)"); }
sub children($path) { return scalar(my @nodes = $zk->children($path)); }

subtest 'it outlives session, worker, server and ZooKeeper, until its token unlocks it' => sub {
	my $path   = '/p/stays';
	my $holder = $a->session(name => 'holder');
	ok(my $token = $holder->query(lock_of($path)), 'it is locked');
	my $pid = $holder->pid;
	is($holder->query(lock_of($path)), '', 'once: the session that has asked is nobody in particular');
	my %ends = (
		'its session'              => sub { $holder->disconnect },
		"its server's worker"      => sub { $a->restart_worker; $a->wait_session },
		'its server'               => sub { $s->disconnect; $a->stop('immediate'); $a->start_connected; $s = $a->session(name => 's') },
		'the ZooKeeper session'    => sub { $a->expire_session($zk); $a->wait_session },
		'ZooKeeper, which returns' => sub { $zk->restart; $_->wait_session foreach $a, $b });
	foreach my $end (sort keys %ends)
	{
		$ends{$end}->();
		is($t->query("SELECT zk_try_lock('$path')"), 'f', "$end has ended, and nobody else has the lock");
	}
	is_deeply(
		$admin->try("SELECT persistent, granted, fencing_token, owner_session, server, pid FROM zk_contenders('$path')")->{rows},
		[ [ 't', 't', $token, undef, 'a', $pid ] ], 'it shows who took it');
	$t->start_queued("SELECT zk_lock('$path')");
	is_deeply($admin->try("SELECT persistent FROM zk_contenders('$path')")->{rows}, [ ['t'], ['f'] ], 'a session waits behind it');
	my $other = $s->try("SELECT zk_unlock_persistent('$path', $token + 4096)");
	is($other->{text}, 'f', 'another token does not unlock it');
	like($other->{notices}[0], qr/WARNING.*there is no persistent lock "$path" with fencing token/s, 'with a warning');
	is(unlock($s, $path, $token), 't', 'from another session, it is unlocked');
	is($t->finish, 't', 'the session that waits has the lock');
	cmp_ok($t->query("SELECT zk_fencing_token('$path')"), '>', $token, 'with a higher token');
	is($s->query(lock_of($path)), '', 'and is in the way of another persistent one');
	is(unlock($s, $path, $t->query("SELECT zk_fencing_token('$path')")), 'f', "a session's lock is not unlocked by its token");
	is(children($path), 1, 'one node is there');
	$t->query("SELECT zk_unlock('$path')");
};

subtest 'shared ones exclude exclusive ones only' => sub {
	my $path = '/p/shared';
	my @tokens = map { $_->query(lock_of($path, '_shared')) } $s, $t;
	is(scalar(grep { $_ } @tokens), 2, 'two share it');
	is($t->query("SELECT zk_try_lock_shared('$path')"), 't', 'with a session');
	is($t->query("SELECT zk_unlock_shared('$path')"), 't', 'which unlocks its own');
	is($t->query(lock_of($path)), '', 'an exclusive one is refused');
	is(children($path), 2, 'and leaves nothing');
	$t->start_queued("SELECT zk_lock('$path')");
	is($s->query(lock_of($path, '_shared')), '', 'a reader does not pass a writer that waits');
	is(unlock($s, $path, $_), 't', 'one is unlocked') foreach @tokens;
	is($t->finish, 't', 'then the writer has it');
	$t->query("SELECT zk_unlock('$path')");
};

subtest 'all that use such names respect it' => sub {
	foreach my $case ([ 'curator', 'mutex' ], [ 'curator_rw', 'write' ], [ 'hive', 'hive_exclusive' ], [ 'hive', 'hive_lock_table' ])
	{
		my ($dialect, $kind) = @$case;
		my $path = "/p/$kind";
		$a->write_dialect($dialect, $s);
		ok(my $token = $s->query(lock_of($path)), "$kind: it is locked");
		my $id = $java->acquire_start('peer', $path, -1, $kind);
		wait_until { children($path) > 1 || eval { $java->refusals('peer') } } 'the peer to be refused, or to have its node';
		is(unlock($t, $path, $token), 't', "$kind: it is unlocked");
		is($java->result($id), 1, "$kind: then the peer has the lock");
		is($s->query(lock_of($path)), '', "$kind: it is refused");
		is(children($path), 1, "$kind: and leaves nothing");
		$java->release('peer');
		is(children($path), 0, "$kind: nothing is left");
	}
	$a->write_dialect('curator', $s);
};

subtest 'a call that fails leaves nothing' => sub {
	my $path = '/p/cancelled';
	$t->query("SELECT zk_lock('$path') AND zk_unlock('$path')");

	$proxy->refuse(op => 'create2', path => "^$path/", code => -102);
	fails($s->try(lock_of($path)), '42501', 'one that is refused for certain', context => qr/^while locking "$path" persistently$/m);
	$proxy->refuse(op => 'createContainer', path => "^$path-new\$", code => -102);
	fails($s->try(lock_of("$path-new")), '42501', 'one whose path is refused', context => qr/^while locking "$path-new" persistently$/m);

	$proxy->hold_reply_of($s, lock_of($path), op => 'create2', path => "^$path/");
	$s->cancel;
	fails($s->result, '57014', 'a cancelled one', context => qr{while locking "$path" persistently; its node may exist, as zk_contenders\(\) shows});
	is(children($path), 1, 'whose node is there, and nobody knows');
	$proxy->heal;
	wait_until { !children($path) } 'the node to be deleted by the worker';

	$proxy->hold_reply_of($s, lock_of($path), op => 'create2', path => "^$path/");
	cancel_as_answered($s, sub { $proxy->heal; $a->settle; });
	fails($s->result, '57014', 'one that is cancelled as the node is there');
	wait_until { !children($path) } 'the node to be deleted by the worker';

	$proxy->hold_reply_of($s, lock_of($path), op => 'create2', path => "^$path/");
	my $lost = $proxy->lose_request(op => 'delete', path => "^$path/");
	cancel_as_answered($s, sub { $proxy->heal; $a->settle; });
	fails($s->result, '57014', 'one whose node is deleted by a request that is lost');
	$proxy->fired($lost);
	wait_until { !children($path) } 'the node to be deleted on the next connection';

	$proxy->hold_reply_of($s, lock_of($path), op => 'create2', path => "^$path/");
	my $refused = $proxy->refuse(op => 'delete', path => "^$path/", code => -103, times => 0);
	cancel_as_answered($s, sub { $proxy->heal; $a->settle; });
	fails($s->result, '57014', 'one whose node cannot be deleted yet');
	$proxy->fired($refused);
	$proxy->reset_counts;
	$s->query_start(lock_of('/p/following'));
	wait_until { grep { ($_->[1] // '') eq '/p/following' } @{ $proxy->requests } } 'another call to have begun';
	$a->settle;
	ok($s->busy, 'another call waits with its node');
	$proxy->clear;
	ok(my $following = $s->finish, 'until the first one is gone');
	wait_until { !children($path) } 'the node to be deleted';
	is(children('/p/following'), 1, 'that of the other call stays');
	is(unlock($t, '/p/following', $following), 't', 'until it is unlocked');

	$proxy->hold_reply_of($s, lock_of($path), op => 'create2', path => "^$path/");
	$a->terminate_backend($s->pid);
	$proxy->heal;
	wait_until { !children($path) } 'the node of a terminated session to be deleted by the worker';
	$s = $a->session(name => 's');

	ok(my $token = $s->query(lock_of($path)), 'the next one is locked');
	my $other = $s->query(lock_of('/p/another'));
	is($s->query('SELECT count(*) FROM zk_contenders(\'/p/nobody\')'), 0, 'other calls follow');
	$s->disconnect;
	$a->settle;
	is(children($path), 1, 'and it stays');
	is(unlock($t, $path, $token), 't', 'until it is unlocked');
	unlock($t, '/p/another', $other);
	$s = $a->session(name => 's');
};

subtest 'a lost answer is settled' => sub {
	foreach my $dialect (qw(curator hive))
	{
		$a->write_dialect($dialect, $s);
		my $path = "/p/lost_$dialect";
		$t->query("SELECT zk_lock('$path') AND zk_unlock('$path')");
		# Others of the same names are not ours.
		my $foreign = $shell->create("$path/LOCK-SHARED-", sequence => 1);
		foreach my $lost (qw(hold_request_of hold_reply_of))
		{
			$proxy->$lost($s, lock_of($path, '_shared'), op => 'create2', path => "^$path/");
			$proxy->drop;
			ok(my $token = $s->finish, "$dialect, $lost: it is locked");
			is(children($path), 2, 'once');
			is(unlock($t, $path, $token), 't', 'and can be unlocked');
			is_deeply([ $zk->children($path) ], [ $foreign =~ s{.*/}{}r ], 'the other node stays');
		}
		ok(my $token = $t->query(lock_of($path, '_shared')), 'another lock');
		$proxy->hold_reply_of($s, "SELECT zk_unlock_persistent('$path', $token)", op => 'delete', path => "^$path/");
		$proxy->drop;
		is($s->finish, 't', 'a deletion whose answer is lost is one');
		$shell->delete($foreign);
	}
	$a->write_dialect('curator', $s);
};

subtest "another client's node of the same name is not ours" => sub {
	$a->write_dialect('hive', $s);
	my $path = '/p/recurs';
	$shell->create($path, makepath => 1);
	my $fault = $proxy->hold_request_of($s, lock_of($path), op => 'exists', path => "^$path/");
	my ($ours) = $zk->children($path);
	$shell->delete($path, recursive => 1);
	$shell->create($path);
	is($shell->create("$path/LOCK-EXCLUSIVE-", sequence => 1), "$path/$ours", 'the path is made again, with a node of that name');
	$proxy->heal;
	is($s->finish, '', 'the call is refused');
	is_deeply([ $zk->children($path) ], [$ours], 'and leaves the node alone');

	# So does the worker, which deletes the node of a call that fails: before it looks, and after.
	my $again = sub {
		$shell->delete($path, recursive => 1);
		$shell->create($path);
		is($shell->create("$path/LOCK-EXCLUSIVE-", sequence => 1), "$path/$ours", 'another node of the name');
	};
	foreach my $late (0, 1)
	{
		$shell->delete($path, recursive => 1);
		$shell->create($path);
		$proxy->hold_request_of($s, lock_of($path), op => 'exists', path => "^$path/");
		is_deeply([ $zk->children($path) ], [$ours], 'the node is there');
		$again->() unless $late;
		my $deletion = $late && $proxy->hold_request(op => 'delete', path => "^$path/");
		$s->cancel;
		fails($s->result, '57014', 'the call is cancelled');
		$proxy->heal;
		if ($late)
		{
			$proxy->fired($deletion);
			$again->();
			$proxy->heal;
		}
		$a->settle;
		is_deeply([ $zk->children($path) ], [$ours], 'the other node stays');
	}
	$shell->delete("$path/$ours");
	$a->write_dialect('curator', $s);
};

$java->stop;
done_clean($zk, $a, $b);
