# Copyright (c) 2026, zklock contributors
#
# ZooKeeper answers with an error, whichever it may be: one that forbids, one that says
# that something broke, one that is newer than zklock. First to the requests of a session that wants a
# lock, then to those on behalf of sessions that wait, hold or release.
#
# The worker lives on, and asks again in moderation where it must. What was refused leaves
# nothing behind, and a session that can be told is told ZooKeeper's error.

use Zklock::Test;
use Zklock::Cast;

# A node that is kept would spare the requests that are to fail.
# A wait that is logged asks ZooKeeper who holds the lock.
my ($zk, $proxy, $a, $b) =
  cast('a b', proxied => 'a', timeout => '10s', conf => [ 'zklock.keep_idle = 0', 'log_lock_waits = off' ]);
my $shell = $zk->shell;
my $id     = $a->session_id;
my $worker = $a->worker_pid;
my $paths  = 0;

my %error_name = (
	-1   => 'ZSYSTEMERROR',
	-3   => 'ZDATAINCONSISTENCY',
	-5   => 'ZMARSHALLINGERROR',
	-6   => 'ZUNIMPLEMENTED',
	-102 => 'ZNOAUTH',
	-119 => 'ZNOTREADONLY',
	-120 => 'ZEPHEMERALONLOCALSESSION',
	-125 => 'ZQUOTAEXCEEDED',
	-127 => 'ZTHROTTLEDOP',
	-999 => 'error -999');
my @any_request_may_meet = grep { $_ != -127 } sort keys %error_name;

# A subtest with a path of its own, which exists. In the end nothing is refused any more, and nothing left behind.
sub on_path($name, $code)
{
	return subtest $name => sub {
		my $path = '/e/' . ++$paths;
		$shell->create($path, makepath => 1);
		$code->($path);
		$proxy->clear;
		Zklock::Server->assert_clean($zk, [ $a, $b ]);
	};
}

sub granted($name, $path, $what)
{
	return is(on($a, $name)->query("SELECT zk_lock('$path') AND zk_unlock('$path')"), 't', $what);
}

# Tests: the result is an error that names ZooKeeper's.
sub says($result, $code, $what)
{
	fails($result, $code == -102 ? '42501' : '58000', "$what: $error_name{$code}", detail => qr/^ZooKeeper refused: $error_name{$code}\./);
	return;
}

# A test: a server that is asked again at once gets hundreds.
sub moderate($op)
{
	cmp_ok($proxy->counts->{$op} || 0, '<', 40, "no storm of $op");
	return;
}

# A server that is too busy says so without looking at the request.
sub busy_server($op, $path, %arg) { return $proxy->refuse(op => $op, code => -127, path => "^$path", times => 2, %arg); }

foreach my $op (qw(create2 createContainer getChildren))
{
	on_path "what a busy server drops is asked for again: $op" => sub ($path) {
		$path .= '/new' if $op eq 'createContainer';
		my $fault = busy_server($op, $path);
		granted('asker', $path, 'until it is granted');
		ok($proxy->has_fired($fault), 'that was dropped');
		$fault = busy_server('delete', $path, times => 3);
		granted('asker', $path, 'the next release, too');
		busy_server($op, "$path-2", times => 0);
		is($s{asker}->query("SELECT zk_lock('$path-2/new', '1s')"), 'f', 'or the time is over');
		moderate($op);
	};
}

on_path 'a path whose creation goes ahead of its node, and is dropped, is created' => sub ($path) {
	granted('asker', "$path/$_", 'beside new paths others are taken to be missing') foreach 1, 2;
	my ($n, @asked) = (2);
	wait_until {
		$n++;
		my $fault = busy_server('createContainer', "$path/$n\$");
		$proxy->reset_counts;
		granted('asker', "$path/$n", 'granted');
		ok($proxy->has_fired($fault), 'though its creation was dropped');
		@asked = map { $_->[0] } grep { ($_->[1] // '') =~ m{^\Q$path\E} && $_->[0] =~ /^create/ } @{ $proxy->requests };
		$asked[0] eq 'createContainer'
	} 'a creation that goes ahead: a second ago is too long';
	is("@asked" =~ s/(createContainer )\K(?:\g1)+//gr, 'createContainer create2 createContainer create2', 'its node waits for it');
};

on_path 'what a busy server drops does not wait until it drops nothing else' => sub ($path) {
	my $others = busy_server('create2|createContainer', "$path-", times => 0);
	on($a, 'reader')->query_start("SELECT count(zk_lock('$path-' || i, '50ms')) FROM generate_series(1, 1000) i");
	$proxy->fired($others);
	my $fault = busy_server('create2', "$path/", times => 1);
	granted('asker', $path, 'granted, in its turn');
	ok($proxy->has_fired($fault), 'that was dropped');
	ok($s{reader}->busy, 'while others are dropped');
	$s{reader}->cancel;
	fails($s{reader}->result, '57014', 'which ends');
};

on_path 'what a busy server drops of several calls that go together is asked for again' => sub ($path) {
	my $fault = busy_server('multi', "$path/qn-");
	like(on($a, 'asker')->query("SELECT zk_queue_offer('$path', 'x')"), qr/^qn-/, 'an element is offered');
	ok($proxy->has_fired($fault), 'whose creation was dropped');
	is(scalar($zk->children($path)), 1, 'once');
	$fault = busy_server('getChildren', $path, times => 1);
	my $sync = busy_server('sync', '/$', times => 1);
	$proxy->reset_counts;
	is($s{asker}->query("SELECT zk_queue_remove('$path')"), 'x', 'and removed');
	ok($proxy->has_fired($fault) && $proxy->has_fired($sync), 'after its path had been read again');
	my @requests = map { $_->[0] } grep { $_->[0] =~ /^(sync|getChildren)$/ } @{ $proxy->requests };
	is(join(' ', @requests[-2, -1]), 'sync getChildren', 'behind a sync that was made');
};

foreach my $op (qw(create2 createContainer getChildren))
{
	foreach my $code (@any_request_may_meet)
	{
		on_path "a refused request for a lock is told: $op, $error_name{$code}" => sub ($path) {
			$path .= '/new' if $op eq 'createContainer';
			$proxy->reset_counts;
			$proxy->refuse(op => $op, code => $code, times => 0, path => "^$path");
			says(on($a, 'asker')->try("SELECT $_('$path')"), $code, "$op, $_")
			  foreach 'zk_lock', 'zk_try_lock';
			moderate($op);
			$proxy->clear;
			granted('asker', $path, 'afterwards it is granted');
		};
	}
}

on_path 'a refusal of one contender costs the holder and others who wait nothing' => sub ($path) {
	hold($a, 'holder', $path);
	queue($b, 'remote', $path);
	# Before it has heard of the other server, a newcomer need not look.
	$zk->wait_watched("$path/" . $a->wait_holder($s{holder}, $path)->{node}, $a->session_id);
	my $before = holdings($a);
	my $fault = $proxy->refuse(op => 'getChildren', code => -119, times => 0, path => "^$path");
	says(on($a, 'asker')->try("SELECT zk_lock('$path')"), -119, 'another contender');
	ok($proxy->has_fired($fault), 'that was refused');
	$proxy->clear;
	is_deeply(holdings($a), $before, 'the holder does not suffer');
	hand_on($path, 'holder', 'remote');
};

foreach my $code (-1, -3, -5)
{
	on_path "a node that was created by a server that broke down goes: $error_name{$code}" => sub ($path) {
		$proxy->deny(op => 'create2', code => $code, path => "^$path");
		says(on($a, 'asker')->try("SELECT zk_lock('$path')"), $code, 'created nevertheless');
	};
}

on_path 'a path that cannot be created is tried again for the next session that asks' => sub ($path) {
	$proxy->blackhole('replies');
	on($a, $_) foreach qw(asker reader);
	$s{asker}->start_waiting("SELECT zk_lock('$path/new/lock')", "$path/new/lock");
	$s{reader}->start_waiting("SELECT zk_lock_shared('$path/new/lock')", "$path/new/lock");
	$proxy->refuse(op => 'createContainer', code => -119, path => "^$path/new\$");
	$proxy->heal;
	says($s{asker}->result, -119, 'a path that cannot be created');
	is($s{reader}->finish, 't', 'but can be a moment later');
	$s{reader}->query("SELECT zk_unlock_shared('$path/new/lock')");
};

on_path 'what is read behind a sync that is refused does not count' => sub ($path) {
	my $fault = $proxy->refuse(op => 'sync', code => -119, path => '^/$');
	says(on($a, 'asker')->try("SELECT zk_queue_remove('$path')"), -119, 'who reads');
	ok($proxy->has_fired($fault), 'after a sync');
};

on_path 'the loss of the path above is not taken for a missing chroot' => sub ($path) {
	my $fault = $proxy->refuse(op => 'createContainer', code => -101, path => "^$path/new/lock\$");
	granted('asker', "$path/new/lock", 'a path is created again when the one above went');
	ok($proxy->has_fired($fault), 'as it did');
};

on_path 'the creation of a path that is not there afterwards comes to an end' => sub ($path) {
	$proxy->reset_counts;
	$proxy->refuse(op => 'create2', code => -101, times => 0, path => "^$path/");
	fails(on($a, 'asker')->try("SELECT zk_lock('$path')"), '58000', 'a path that is missing again and again is an error',
		detail => qr/ZNONODE/);
	moderate('create2');
	$proxy->clear;
	granted('asker', $path, 'afterwards it is granted');
};

on_path 'so do those of claims and elements' => sub ($path) {
	$proxy->refuse(op => 'multi|createContainer', code => -101, times => 0, path => "^$path/new\$");
	fails(on($a, 'asker')->try("SELECT zk_claim('$path/new', now())"), '58000', 'a claim', detail => qr/ZNONODE/);
	$proxy->refuse(op => 'multi', code => -101, times => 0, path => "^$path/qn-");
	fails($s{asker}->try("SELECT zk_queue_offer('$path', 'x')"), '58000', 'an element', detail => qr/delete it as soon as it is there/);
};

foreach my $op (qw(getChildren exists))
{
	on_path "a session is not told that there is no node as long as that cannot be found out: $op" => sub ($path) {
		my $lost = $proxy->lose_reply(op => 'create2', path => "^$path/");
		# The first listing is sent, and lost, with the create.
		my $fault = $proxy->refuse(op => $op, code => -119, times => $op eq 'getChildren' ? 2 : 1, path => "^$path");
		says(on($a, 'asker')->try("SELECT zk_lock('$path')"), -119, "a create without an answer, then $op");
		ok($proxy->has_fired($lost) && $proxy->has_fired($fault), 'which was refused');
	};
}

foreach my $code (-2, -4, -7, -9, -112, -116, -118)
{
	on_path "the fate of a request whose error does not tell it is found out: $code" => sub ($path) {
		$proxy->deny(op => 'create2|delete', code => $code, times => 2, path => "^$path/");
		is(on($a, 'asker')->query("SELECT zk_lock('$path')"), 't', "create answered by $code: the lock is granted");
		is(scalar($zk->children($path)), 1, 'under one node');
		is($s{asker}->query("SELECT zk_unlock('$path')"), 't', 'as delete is: it is released');
	};
}

foreach my $code (@any_request_may_meet)
{
	on_path "a predecessor that cannot be watched is waited for in another way: $error_name{$code}" => sub ($path) {
		my $predecessor = $zk->foreigner($path);
		$proxy->reset_counts;
		my $fault = $proxy->refuse(op => 'getData', code => $code, times => 0, path => "^$path");
		queue($a, 'waiter', $path);
		$proxy->fired($fault);
		ok($s{waiter}->busy, "$error_name{$code}: who waits, waits");
		$shell->delete($predecessor);
		is($s{waiter}->finish, 't', 'and gets the lock');
		moderate('getData');
		moderate('getChildren');
		$proxy->clear;
		$s{waiter}->query("SELECT zk_unlock('$path')");
	};
}

on_path 'our own node is watched again, though that was refused' => sub ($path) {
	my $fault = $proxy->refuse(op => 'getData', code => -119, times => 0, path => "^$path");
	hold($a, 'holder', $path);
	my ($node) = map { $_->{node} } $a->locks("path = '$path'");
	# The news of a newcomer uses up the watch that there is, and the look that follows sets no other.
	my $look = $proxy->refuse(op => 'getChildren', code => -119, path => "^$path");
	my $newcomer = $zk->foreigner($path);
	is_deeply($proxy->fired($fault), [ 'getData', "$path/$node" ], 'the watch on our node is refused');
	$proxy->fired($look);
	$proxy->reset_counts;
	$proxy->clear;
	wait_until { $proxy->counts->{getData} } 'it to be asked for again';
	is($s{holder}->query("SELECT zk_fencing_token('$path') > 0"), 't', 'the lock is held meanwhile');
	$shell->delete("$path/$node");
	ok($a->wait_lock($s{holder}, 'lost', $path), 'its end is noticed');
	is($s{holder}->query("SELECT zk_unlock('$path')"), 'f', 'which the holder hears');
	$shell->delete($newcomer);
};

foreach my $code (-1, -102, -119)
{
	on_path "a release that is refused is repeated until it is done: $error_name{$code}" => sub ($path) {
		hold($a, 'holder', $path);
		queue($b, 'remote', $path);
		my $mark = $a->log_mark;
		$proxy->reset_counts;
		$proxy->refuse(op => 'delete', code => $code, times => 0, path => "^$path");
		is($s{holder}->query("SELECT zk_unlock('$path')"), 't', "$error_name{$code}: zk_unlock does not wait for what is refused");
		$a->wait_log(qr{LOG:  could not delete ZooKeeper node "$path/.*": $error_name{$code}}, $mark);
		ok($s{remote}->busy, 'nobody believes that the lock is free');
		# Who may not delete a node is not even told that it is gone: the administrator deletes it.
		$code == -102 ? $shell->delete("$path/" . ($zk->children($path))[0]) : $proxy->clear;
		is($s{remote}->finish, 't', 'it is granted elsewhere in the end');
		moderate('delete');
		my $lines = () = $a->log_since($mark) =~ /could not delete ZooKeeper node/g;
		cmp_ok($lines, '<=', 5, 'without flooding the log');
		$proxy->clear;
		$s{remote}->query("SELECT zk_unlock('$path')");
	};
}

on_path 'nothing is asked on a new connection before it has been synchronized' => sub ($path) {
	# Without that it may show the past.
	hold($a, 'holder', "$path-held");
	# Nor does a sync help that is answered by a leader which commits nothing: it may have been deposed.
	foreach my $refused ([ sync => -6 ], [ sync => -127 ], [ multi => -1 ])
	{
		my ($op, $code) = @$refused;
		my $mark = $a->log_mark;
		my $fault = $proxy->refuse(op => $op, path => '^/$', code => $code, times => 0);
		my $lost = $proxy->lose_reply(op => 'create2', path => "^$path/");
		on($a, 'asker')->query_start("SELECT zk_lock('$path')");
		$proxy->fired($lost);
		$proxy->fired($fault);
		$a->wait_log(qr{LOG:  could not synchronize with ZooKeeper: $error_name{$code}}, $mark);
		$proxy->reset_counts;
		is(on($a, 'trier')->try("SELECT zk_try_lock('$path-free')")->{sqlstate},
			'58030', "$error_name{$code}: who does not wait is told that nothing can be asked");
		ok(!$proxy->counts->{getChildren}, 'nothing is');
		moderate('sync');
		ok($s{asker}->busy, 'who waits, waits');
		is($s{holder}->query("SELECT zk_fencing_token('$path-held') > 0"), 't', 'who holds, holds');
		$proxy->clear;
		is($s{asker}->finish, 't', 'then the lost reply is made up for');
		is(scalar($zk->children($path)), 1, 'with one node');
		$s{asker}->query("SELECT zk_unlock('$path')");
	}
	$s{holder}->query("SELECT zk_unlock('$path-held')");
};

# lease/lease.pl has what comes of many.
on_path 'a heartbeat that is refused does no harm' => sub ($path) {
	hold($a, 'holder', $path);
	foreach my $code (@any_request_may_meet)
	{
		# The leader is asked for the node's ACL last: that we have no right proves the rest.
		next if $code == -102;
		my $fault = $proxy->refuse(op => 'multi', code => $code, times => 1);
		$proxy->fired($fault);
		$a->wait_value("SELECT lease_remaining > '5s' FROM zk_session", 't');
		is($s{holder}->query("SELECT zk_fencing_token('$path') > 0"), 't', "nor does one answered by $error_name{$code}");
	}
	$s{holder}->query("SELECT zk_unlock('$path')");
};

my %trouble = (
	'refused'      => sub { $proxy->refuse(op => 'removeWatches', code => -127, path => "^$_[0]") },
	'request lost' => sub { $proxy->lose_request(op => 'removeWatches', path => "^$_[0]") },
	'reply lost'   => sub { $proxy->lose_reply(op => 'removeWatches', path => "^$_[0]") });

foreach my $what (sort keys %trouble)
{
	on_path "a watch that nobody wants any more is removed in the end: $what" => sub ($path) {
		my $predecessor = $zk->foreigner($path);
		queue($a, 'waiter', $path);
		$zk->wait_watched($predecessor);
		my $fault = $trouble{$what}->("$path/");
		is($s{waiter}->cancelled, '57014', 'a wait is cancelled');
		$proxy->fired($fault);
		wait_until { $zk->watch_count == 0 } sub { 'no watch to be left: ' . $zk->four_letter('wchp') };
		$shell->delete($predecessor);
	};
}

on_path 'a watch that is wanted again is not removed' => sub ($path) {
	my @paths        = map { "$path/$_" } 1, 2;
	my @predecessors = map { $zk->foreigner($_) } @paths;
	my $watched      = sub { return $zk->watched($predecessors[$_[0]]) };
	queue($a, "waiter$_", $paths[$_]) foreach 0, 1;
	wait_until { $watched->(0) && $watched->(1) } 'the watches on the predecessors';
	$proxy->reset_counts;
	$proxy->refuse(op => 'removeWatches', code => -127, times => 2, path => "^$path/\\d/_c");
	$s{"waiter$_"}->cancel foreach 0, 1;
	is($s{"waiter$_"}->result->{sqlstate}, '57014', 'a wait is cancelled') foreach 0, 1;
	wait_until { ($proxy->counts->{removeWatches} || 0) >= 2 } 'both to be refused';
	queue($a, 'waiter0', $paths[0]);
	wait_until { !$watched->(1) } 'the other removal to be repeated';
	ok($watched->(0), 'a watch that is wanted again is not removed');
	$shell->delete($_) foreach @predecessors;
	is($s{waiter0}->finish, 't', 'who waits for it is told');
	$s{waiter0}->query("SELECT zk_unlock('$paths[0]')");
};

on_path 'a watch that is wanted again, but by a read that is not answered, is removed in the end' => sub ($path) {
	my $predecessor = $zk->foreigner($path);
	queue($a, 'waiter', $path);
	$zk->wait_watched($predecessor);
	my $removal = $proxy->refuse(op => 'removeWatches', code => -127, path => "^$path/", times => 0);
	is($s{waiter}->cancelled, '57014', 'a wait is cancelled');
	$proxy->fired($removal);
	my $read = $proxy->hold_request(op => 'getData', path => "^\Q$predecessor\E\$");
	$s{waiter}->query_start("SELECT zk_lock('$path')");
	$proxy->fired($read);
	is($s{waiter}->cancelled, '57014', 'so is another');
	$proxy->clear;
	$proxy->drop;
	$proxy->heal;
	wait_until { $zk->watch_count == 0 && $zk->children($path) == 1 }
	  sub { 'no watch to be left: ' . $zk->four_letter('wchp') };
	$shell->delete($predecessor);
};

on_path 'a watch that is given up without a connection is removed in the end' => sub ($path) {
	my $predecessor = $zk->foreigner($path);
	queue($a, 'waiter', $path);
	wait_until { $zk->watch_count > 0 } 'the watch on the predecessor';
	$a->cut_off($proxy);
	is($s{waiter}->cancelled, '57014', 'a wait is cancelled in an outage');
	$proxy->heal;
	wait_until { $zk->watch_count == 0 && $zk->children($path) == 1 }
	  sub { 'no watch to be left: ' . $zk->four_letter('wchp') };
	$shell->delete($predecessor);
};

is($a->worker_pid, $worker, 'the worker has lived through it');
is($a->session_id, $id, 'in one session');
done_clean($zk, $a, $b);
