# Copyright (c) 2026, zklock contributors
#
# ZooKeeper answers with an error, whichever it may be: one that forbids, one that says
# that something broke, one that is newer than we are.
#
# The worker lives, asks again in moderation where it must, and what was refused leaves
# nothing behind. Who can be told is told ZooKeeper's error.

use strict;
use warnings;

use Test::More;
use Zklock::Cast;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $shell = $zk->shell;
my $proxy = Zklock::Proxy->start($zk);
my @conf  = (conf => ["zklock.session_timeout = '10s'"]);
my $a     = Zklock::Server->new('a', zookeeper => $proxy, @conf);
my $b     = Zklock::Server->new('b', zookeeper => $zk, @conf);
my $id     = $a->session_id;
my $worker = $a->worker_pid;

my %name = (
	-1   => 'ZSYSTEMERROR',
	-3   => 'ZDATAINCONSISTENCY',
	-5   => 'ZMARSHALLINGERROR',
	-6   => 'ZUNIMPLEMENTED',
	-102 => 'ZNOAUTH',
	-120 => 'ZEPHEMERALONLOCALSESSION',
	-125 => 'ZQUOTAEXCEEDED',
	-127 => 'ZTHROTTLEDOP',
	-999 => 'error -999');
my @codes = sort keys %name;

my $paths = 0;
sub new_path { return '/e/' . $_[0] . ++$paths; }

# The node of somebody else, who watches nothing
sub foreigner
{
	my ($path) = @_;
	return $shell->create("$path/_c_00000000-0000-0000-0000-000000000000-lock-",
		ephemeral => 1, sequence => 1, makepath => 1);
}

sub says
{
	my ($result, $code, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{sqlstate}, $code == -102 ? '42501' : '58000', "$what: $name{$code} is an error");
	like($result->{detail} || '', qr/^ZooKeeper refused: $name{$code}\./, 'which is named')
	  or diag explain $result;
	return;
}

# So many requests are moderate. A server that is asked again at once gets hundreds.
sub moderate
{
	my ($op) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok($proxy->counts->{$op} || 0, '<', 40, "no storm of $op");
	return;
}

# ---- a request for a lock

foreach my $op (qw(create2 createContainer getChildren))
{
	foreach my $code (@codes)
	{
		my $path = new_path($op);
		$shell->create($path, makepath => 1) unless $op eq 'createContainer';
		$proxy->reset_counts;
		$proxy->refuse(op => $op, code => $code, times => 0, path => "^$path");
		says(on($a, 'asker')->try("SELECT $_('$path')"), $code, "$op, $_")
		  foreach 'zk_lock', 'zk_try_lock';
		moderate($op);
		$proxy->clear;
		is($s{asker}->query("SELECT zk_lock('$path')"), 't', 'afterwards it is granted');
		$s{asker}->query("SELECT zk_unlock('$path')");
		$a->assert_clean($zk, $path);
	}
}

# While somebody holds the lock and others wait
{
	my $path = new_path('shared');
	hold($a, 'holder', $path);
	queue($b, 'remote', $path);
	# Before it has heard of the other server, a newcomer need not look.
	$zk->wait_watched("$path/" . $a->wait_holder($s{holder}, $path)->{node}, $a->session_id);
	my $before = holdings($a);
	my $fault = $proxy->refuse(op => 'getChildren', code => -127, times => 0, path => "^$path");
	says(on($a, 'asker')->try("SELECT zk_lock('$path')"), -127, 'another contender');
	ok($proxy->has_fired($fault), 'that was refused');
	$proxy->clear;
	is_deeply(holdings($a), $before, 'the holder does not suffer');
	$s{holder}->query("SELECT zk_unlock('$path')");
	is($s{remote}->finish, 't', 'nor does who waits elsewhere');
	$s{remote}->query("SELECT zk_unlock('$path')");
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
}

# The server broke down when it had done it already: the node goes, whoever asks or not.
foreach my $code (-1, -3, -5)
{
	my $path = new_path('broken');
	$shell->create($path);
	$proxy->deny(op => 'create2', code => $code, path => "^$path");
	says(on($a, 'asker')->try("SELECT zk_lock('$path')"), $code, 'created nevertheless');
	$a->assert_clean($zk, $path);
}

# A path that cannot be created is tried again for the next one who asks.
{
	my $path = new_path('parents');
	$proxy->blackhole('replies');
	on($a, $_) foreach qw(asker reader);
	$s{asker}->query_start("SELECT zk_lock('$path/lock')");
	$a->wait_waiting($s{asker}, "$path/lock");
	$s{reader}->query_start("SELECT zk_lock_shared('$path/lock')");
	$a->wait_waiting($s{reader}, "$path/lock");
	$proxy->refuse(op => 'createContainer', code => -127, path => "^$path\$");
	$proxy->heal;
	says($s{asker}->result, -127, 'a path that cannot be created');
	is($s{reader}->finish, 't', 'but can be a moment later');
	$s{reader}->query("SELECT zk_unlock_shared('$path/lock')");
	$a->assert_clean($zk, "$path/lock");
}

# The path above goes while the path is created: that does not mean that the chroot is missing.
{
	my $path = new_path('above');
	my $fault = $proxy->refuse(op => 'createContainer', code => -101, path => "^$path/lock\$");
	is(on($a, 'asker')->query("SELECT zk_lock('$path/lock')"), 't', 'a path is created again when the one above went');
	ok($proxy->has_fired($fault), 'as it did');
	$s{asker}->query("SELECT zk_unlock('$path/lock')");
	$a->assert_clean($zk, "$path/lock");
}

# There is no end to the creation of a path that is not there afterwards.
{
	my $path = new_path('nonode');
	$shell->create($path);
	$proxy->reset_counts;
	$proxy->refuse(op => 'create2', code => -101, times => 0, path => "^$path/");
	my $result = on($a, 'asker')->try("SELECT zk_lock('$path')");
	is($result->{sqlstate}, '58000', 'a path that is missing again and again is an error') or diag explain $result;
	like($result->{detail} || '', qr/ZNONODE/, 'which is named');
	moderate('create2');
	$proxy->clear;
	is($s{asker}->query("SELECT zk_lock('$path')"), 't', 'afterwards it is granted');
	$s{asker}->query("SELECT zk_unlock('$path')");
	$a->assert_clean($zk, $path);
}

# Whether there is a node cannot be found out: nobody is told that there is none.
foreach my $op (qw(getChildren getData))
{
	my $path = new_path('unsettled');
	$shell->create($path);
	my $lost = $proxy->lose_reply(op => 'create2', path => "^$path/");
	# The first listing is sent, and lost, with the create.
	my $fault = $proxy->refuse(op => $op, code => -127, times => $op eq 'getChildren' ? 2 : 1, path => "^$path");
	says(on($a, 'asker')->try("SELECT zk_lock('$path')"), -127, "a create without an answer, then $op");
	ok($proxy->has_fired($lost) && $proxy->has_fired($fault), 'which was refused');
	$proxy->clear;
	$a->assert_clean($zk, $path);
}

# The fate of a request is unknown, though the connection stands: so it is found out.
foreach my $code (-2, -4, -7, -9, -112, -116, -118)
{
	my $path = new_path('unknown');
	$proxy->deny(op => 'create2|delete', code => $code, times => 2, path => "^$path/");
	is(on($a, 'asker')->query("SELECT zk_lock('$path')"), 't', "create answered by $code: the lock is granted");
	is(scalar($zk->children($path)), 1, 'under one node');
	is($s{asker}->query("SELECT zk_unlock('$path')"), 't', 'as delete is: it is released');
	$a->assert_clean($zk, $path);
}

# ---- the predecessor: it is waited for in another way

foreach my $code (@codes)
{
	my $path        = new_path('getData');
	my $predecessor = foreigner($path);
	$proxy->reset_counts;
	my $fault = $proxy->refuse(op => 'getData', code => $code, times => 0, path => "^$path");
	queue($a, 'waiter', $path);
	$proxy->fired($fault);
	ok($s{waiter}->busy, "$name{$code}: who waits, waits");
	$shell->delete($predecessor);
	is($s{waiter}->finish, 't', 'and gets the lock');
	moderate('getData');
	moderate('getChildren');
	$proxy->clear;
	$s{waiter}->query("SELECT zk_unlock('$path')");
	$a->assert_clean($zk, $path);
}

# ---- our own node: that it cannot be watched must not last

{
	my $path = new_path('own');
	my $fault = $proxy->refuse(op => 'getData', code => -127, times => 0, path => "^$path");
	hold($a, 'holder', $path);
	my ($node) = map { $_->{node} } $a->locks("path = '$path'");
	# The news of a newcomer uses up the watch that there is.
	my $newcomer = foreigner($path);
	is_deeply($proxy->fired($fault), [ 'getData', "$path/$node" ], 'the watch on our node is refused');
	$proxy->reset_counts;
	$proxy->clear;
	wait_until { $proxy->counts->{getData} } 'it to be asked for again';
	is($s{holder}->query("SELECT zk_fencing_token('$path') > 0"), 't', 'the lock is held meanwhile');
	$shell->delete("$path/$node");
	ok($a->wait_lock($s{holder}, 'lost', $path), 'its end is noticed');
	is($s{holder}->query("SELECT zk_unlock('$path')"), 'f', 'which the holder hears');
	$shell->delete($newcomer);
	$a->assert_clean($zk, $path);
}

# ---- a release: it is seen through

foreach my $code (-1, -127)
{
	my $path = new_path('delete');
	hold($a, 'holder', $path);
	queue($b, 'remote', $path);
	my $mark = $a->log_mark;
	$proxy->reset_counts;
	$proxy->refuse(op => 'delete', code => $code, times => 0, path => "^$path");
	$s{holder}->query_start("SELECT zk_unlock('$path')");
	$a->wait_log(qr{LOG:  could not delete ZooKeeper node "$path/.*": $name{$code}}, $mark);
	ok($s{holder}->busy && $s{remote}->busy, "$name{$code}: nobody believes that the lock is free");
	$proxy->clear;
	is($s{holder}->finish, 't', 'it is released in the end');
	is($s{remote}->finish, 't', 'and granted elsewhere');
	moderate('delete');
	$s{remote}->query("SELECT zk_unlock('$path')");
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
}

# ---- sync: without it a new connection may show the past

{
	my $path = new_path('sync');
	$shell->create($path);
	hold($a, 'holder', "$path-held");
	foreach my $code (-6, -127)
	{
		my $mark = $a->log_mark;
		my $fault = $proxy->refuse(op => 'sync', code => $code, times => 0);
		my $lost = $proxy->lose_reply(op => 'create2', path => "^$path/");
		on($a, 'asker')->query_start("SELECT zk_lock('$path')");
		$proxy->fired($lost);
		$proxy->fired($fault);
		$a->wait_log(qr{LOG:  could not synchronize with ZooKeeper: $name{$code}}, $mark);
		$proxy->reset_counts;
		is(on($a, 'trier')->try("SELECT zk_try_lock('$path-free')")->{sqlstate},
			'58030', "$name{$code}: who does not wait is told that nothing can be asked");
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
	$a->assert_clean($zk, $path, "$path-held", "$path-free");
}

# ---- heartbeats: an error is no proof

on($a, 'xact')->query('BEGIN');
$s{xact}->query("SELECT zk_xact_lock('/e/beat')");
foreach my $code (@codes)
{
	# The leader is asked for the node's ACL last: that we have no right proves the rest.
	next if $code == -102;
	my $fault = $proxy->refuse(op => 'multi', code => $code, times => 1);
	$proxy->fired($fault);
	$a->wait_value("SELECT lease_remaining > '5s' FROM zk_session", 't');
	pass("a heartbeat answered by $name{$code} does no harm");
}
hold($a, 'hander', '/e/hand');
queue($a, 'handed', '/e/hand');
$proxy->refuse(op => 'multi', code => -127, times => 0);
$a->wait_lock($s{xact}, 'suspended', '/e/beat');
pass('many of them end the lease');
$s{hander}->query_start("SELECT zk_unlock('/e/hand')");
$a->wait_value('SELECT count(*) FROM zk_locks WHERE pid = ' . $s{hander}->pid, 0);
$s{xact}->query_start('COMMIT');
$a->wait_value("SELECT wait_event_type FROM pg_stat_activity WHERE pid = " . $s{xact}->pid, 'Lock');
is(on($a, 'trier')->try("SELECT zk_try_lock('/e/beat2')")->{sqlstate}, '58030', 'nothing is granted meanwhile');
is(($a->locks('pid = ' . $s{handed}->pid))[0]{state}, 'waiting', 'not even what was given back here');
$proxy->clear;
ok($s{xact}->result->{ok}, 'the commit waits until they are good again');
ok($s{hander}->result->{ok}, 'what was given back is free');
is($s{handed}->finish, 't', 'and the next one\'s');
$s{handed}->query("SELECT zk_unlock('/e/hand')");
$a->assert_clean($zk, '/e/beat', '/e/beat2', '/e/hand');

# ---- watches that nobody wants any more
#
# The library carries those that could not be removed from connection to connection.

my %trouble = (
	'refused'      => sub { $proxy->refuse(op => 'removeWatches', code => -127, path => "^$_[0]") },
	'request lost' => sub { $proxy->lose_request(op => 'removeWatches', path => "^$_[0]") },
	'reply lost'   => sub { $proxy->lose_reply(op => 'removeWatches', path => "^$_[0]") });
foreach my $what (sort keys %trouble)
{
	my $path        = new_path('watch');
	my $predecessor = foreigner($path);
	queue($a, 'waiter', $path);
	$zk->wait_watched($predecessor);
	my $fault = $trouble{$what}->("$path/");
	$s{waiter}->cancel;
	is($s{waiter}->result->{sqlstate}, '57014', 'a wait is cancelled');
	$proxy->fired($fault);
	wait_until { $zk->watch_count == 0 } sub { 'no watch to be left: ' . $zk->four_letter('wchp') };
	pass("removal of the watch $what: it is repeated");
	$shell->delete($predecessor);
	$a->assert_clean($zk, $path);
}

# Of two that were refused one is wanted again by then.
{
	my @paths        = map { new_path('watch') } 1, 2;
	my @predecessors = map { foreigner($_) } @paths;
	my $watched      = sub { return $zk->watched($predecessors[$_[0]]) };
	queue($a, "waiter$_", $paths[$_]) foreach 0, 1;
	wait_until { $watched->(0) && $watched->(1) } 'the watches on the predecessors';
	$proxy->reset_counts;
	$proxy->refuse(op => 'removeWatches', code => -127, times => 2, path => '^/e/watch\d+/_c');
	$s{"waiter$_"}->cancel foreach 0, 1;
	is($s{"waiter$_"}->result->{sqlstate}, '57014', 'a wait is cancelled') foreach 0, 1;
	wait_until { ($proxy->counts->{removeWatches} || 0) >= 2 } 'both to be refused';
	queue($a, 'waiter0', $paths[0]);
	wait_until { !$watched->(1) } 'the other removal to be repeated';
	ok($watched->(0), 'a watch that is wanted again is not removed');
	$shell->delete($_) foreach @predecessors;
	is($s{waiter0}->finish, 't', 'who waits for it is told');
	$s{waiter0}->query("SELECT zk_unlock('$paths[0]')");
	$a->assert_clean($zk, @paths);
}

# Given up while there is no connection.
{
	my $path        = new_path('watch');
	my $predecessor = foreigner($path);
	queue($a, 'waiter', $path);
	wait_until { $zk->watch_count > 0 } 'the watch on the predecessor';
	$proxy->cut;
	$a->wait_session('connecting');
	$s{waiter}->cancel;
	is($s{waiter}->result->{sqlstate}, '57014', 'a wait is cancelled in an outage');
	$proxy->heal;
	wait_until { $zk->watch_count == 0 && $zk->children($path) == 1 }
	  sub { 'no watch to be left: ' . $zk->four_letter('wchp') };
	pass('neither watch nor node is left');
	$shell->delete($predecessor);
	$a->assert_clean($zk, $path);
}

is($a->worker_pid, $worker, 'the worker has lived through it');
is($a->session_id, $id, 'in one session');
all_disconnect();
Zklock::Server->assert_clean($zk, [ $a, $b ], '/e/beat');
done_testing;
