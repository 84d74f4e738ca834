# Copyright (c) 2026, zklock contributors
#
# Answers of errands that are long: they come through a dynamic shared memory segment, of
# which nothing is left behind whoever gives up or dies, and hold nobody up. The function
# that asks for them here is zk_contenders().

use strict;
use warnings;

use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

use constant CONTENDERS => 5000;
use constant READ       => 200;       # are shown in full
use constant LIMIT      => 1048576;
use constant SLOTS      => 64;

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
my $shell = $zk->shell;

# Segments are files in the server's own directory.
my $a = Zklock::Server->new('a', zookeeper => $proxy,
	conf => [ "zklock.session_timeout = '30s'", 'dynamic_shared_memory_type = mmap' ]);
my $path = '/long/path';
my $ask  = "SELECT count(*) FROM zk_contenders('$path')";
my $s    = $a->session(name => 's');

my $segments = "SELECT count(*) FROM pg_ls_dir('pg_dynshmem')";
my $segments_before = $a->value($segments);

$shell->create($path, makepath => 1);
$shell->connect($zk->connect_string, client => 'crowd', timeout => 60);
$shell->create_many("$path/_c_00000000-0000-0000-0000-000000000001-lock-", CONTENDERS, data => 'crowd', client => 'crowd');

sub asked { my ($op) = @_; return scalar grep { $_->[0] eq $op } @{ $proxy->requests }; }

# From now on the first reply of this kind is held, and all that follow.
sub hold
{
	my ($op) = @_;
	$proxy->reset_counts;
	return $proxy->hold_reply(op => $op, path => "^$path", any => 1);
}

sub is_usable
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($s->query($ask), CONTENDERS, "$name: the next call gets its answer");
	$a->wait_value($segments, $segments_before);
	is($a->value($segments), $segments_before, "$name: no segment is left");
	return;
}

# How many errands does the worker have in its memory of which it knows the listing? It says so
# between two rounds of its main loop.
sub readings
{
	my $mark = $a->log_mark;
	$a->value('SELECT pg_log_backend_memory_contexts(' . $a->worker_pid . ')');
	$a->wait_log(qr/Grand total: /, $mark);
	return scalar(() = $a->log_since($mark) =~ /zklock contenders/g);
}

sub assert_forgotten
{
	my ($name) = @_;
	is(readings(), 0, "$name: nor memory in the worker");
	return;
}

subtest 'all contenders are shown, and what was left out is said' => sub {
	$proxy->reset_counts;
	my $result = $s->try("SELECT count(*), count(DISTINCT node), min(\"position\"), max(\"position\"), count(owner_session), count(*) FILTER (WHERE granted) FROM zk_contenders('$path')");
	is($result->{text}, join('|', CONTENDERS, CONTENDERS, 1, CONTENDERS, READ, 1), 'rows');
	like($result->{notices}[0], qr/only the first 200 of 5000 contenders on "$path" are shown in full/, 'notice');
	is($s->query("SELECT string_agg(DISTINCT owner, ' ') FROM zk_contenders('$path') WHERE \"position\" <= 200"), 'crowd', 'the first have been read');
	is($s->query("SELECT bool_and(right(node, 10)::int = \"position\" - 1) FROM zk_contenders('$path')"), 't', 'in order of their numbers');
	is(asked('exists'), 3 * READ, 'as many nodes as that were looked at each time');
	is(asked('getData'), 3 * READ, 'and read');
};

subtest 'questions about nodes are not sent one after the other' => sub {
	foreach my $op (qw(exists getData))
	{
		my $held = hold($op);
		$s->query_start($ask);
		$proxy->fired($held);
		wait_until { asked($op) >= 30 } "many questions ($op) without an answer";
		ok($s->busy, "$op: there is no answer yet");
		$proxy->heal;
		is($s->finish, CONTENDERS, 'and then there is');
	}
};

subtest "others' locks do not wait until all is read" => sub {
	my @askers = map { $a->session } 1 .. 8;
	my $t = $a->session(name => 't');
	is($t->query("SELECT zk_lock('/long/other') AND zk_unlock('/long/other')"), 't', 'the path of the other lock is there');
	# All have their listings before the first node is looked at.
	my $held = hold('getChildren');
	$_->query_start($ask) foreach @askers;
	wait_until { asked('getChildren') == @askers } 'all to ask';
	$proxy->fired($held);
	my $held_behind = $proxy->hold_reply(op => 'exists', path => "^$path", any => 1);
	$proxy->heal;
	$proxy->fired($held_behind);
	# The proxy has passed all listings on; the questions wait when the worker has read them.
	wait_until { readings() == @askers } 'the worker to know all listings';
	$t->query_start("SELECT zk_lock('/long/other')");
	$a->wait_lock($t, 'waiting');
	is(asked('create2'), 0, 'the lock is asked for when many questions wait for their turn');
	$proxy->heal;
	is($_->finish, CONTENDERS, 'answered') foreach @askers;
	is($t->finish, 't', 'and locked');
	my @asked = map { $_->[0] } @{ $proxy->requests };
	my ($create) = grep { $asked[$_] eq 'create2' } 0 .. $#asked;
	my $behind = grep { $_ eq 'exists' } @asked[ $create .. $#asked ];
	cmp_ok($behind, '>', 2 * READ, "of 1600 questions many come behind it: $behind");
	$t->query("SELECT zk_unlock('/long/other')");
	$_->disconnect foreach @askers, $t;
	is_usable('after that');
};

subtest 'whoever gives up while the answer is on its way leaves nothing behind' => sub {
	foreach my $end (qw(cancel terminate))
	{
		foreach my $op (qw(getChildren exists getData))
		{
			my $asker = $a->session;
			my $held  = hold($op);
			$asker->query_start($ask);
			$proxy->fired($held);
			is($a->value($segments), $segments_before + 1, 'there is a segment for the answer');
			my $pid = $asker->pid;
			$asker->$end;
			if ($end eq 'cancel') { is($asker->result->{sqlstate}, '57014', 'cancelled'); }
			$a->wait_value("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND state = 'active'", 0);
			$proxy->heal;
			is_usable("$end, $op");
			$asker->disconnect;
		}
	}
	assert_forgotten('given up');
};

subtest 'there are as many segments as slots, and they are given back' => sub {
	my @askers = map { $a->session } 1 .. SLOTS + 6;
	my $held = hold('getChildren');
	$_->query_start($ask) foreach @askers;
	$proxy->fired($held);
	$a->wait_value($segments, $segments_before + SLOTS);
	# A cancellation that came before its statement would have no effect.
	my $pids = join ',', map { $_->pid } @askers;
	$a->wait_value("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid IN ($pids)", scalar @askers);
	is($a->value($segments), $segments_before + SLOTS, 'who waits for a slot has none');
	$_->cancel foreach @askers;
	is($_->result->{sqlstate}, '57014', 'cancelled') foreach @askers;
	$proxy->heal;
	is_usable('all slots');
	assert_forgotten('all slots');
	$_->disconnect foreach @askers;
};

subtest 'the next worker answers what one has begun' => sub {
	foreach my $op (qw(getChildren exists getData))
	{
		my $held = hold($op);
		$s->query_start($ask);
		$proxy->fired($held);
		my $pid = $a->worker_pid;
		$a->value("SELECT pg_terminate_backend($pid)");
		$a->wait_new_worker($pid);
		$proxy->heal;
		is($s->finish, CONTENDERS, "$op: all rows");
		$a->wait_session;
		is_usable($op);
	}
};

subtest 'a connection that is lost meanwhile is an error, and no more' => sub {
	my $held = hold('exists');
	$s->query_start($ask);
	$proxy->fired($held);
	$proxy->drop;
	is($s->result->{sqlstate}, '58030', 'not a part of the rows');
	$proxy->heal;
	$a->wait_session;
	is_usable('lost connection');
	assert_forgotten('lost connection');
};

subtest 'a segment that somebody has deleted is no harm to the worker' => sub {
	my $files = "SELECT string_agg(name, ' ') FROM pg_ls_dir('pg_dynshmem') name";
	my %known = map { $_ => 1 } split / /, $a->value($files);
	my $pid  = $a->worker_pid;
	my $held = hold('exists');
	$s->query_start($ask);
	$proxy->fired($held);
	my @new = grep { !$known{$_} } split / /, $a->value($files);
	is(@new, 1, 'the segment');
	unlink $a->data_dir . "/pg_dynshmem/$new[0]" or die "unlink: $!";
	$proxy->heal;
	my $result = $s->result;
	is($result->{sqlstate}, '53200', 'the call fails') or diag $result->{error} || $result->{text};
	is($a->worker_pid, $pid, 'the worker is the same');
	is_usable('deleted segment');
};

subtest 'an answer beyond the limit is an error that names it' => sub {
	my $long  = '/long/names';
	my $fails = sub {
		my ($name) = @_;
		my $result = $s->try("SELECT count(*) FROM zk_contenders('$long')");
		is($result->{sqlstate}, '54000', $name) or diag $result->{error} || $result->{text};
		like($result->{detail}, qr/@{[ LIMIT ]} bytes/, 'with the limit');
	};
	my $prefix = '_c_' . 'x' x 186 . '-lock-';    # 205 bytes with the number
	$shell->create($long, makepath => 1);
	$shell->create_many("$long/$prefix", 4900, client => 'crowd');
	is($s->query("SELECT count(*) FROM zk_contenders('$long')"), 4900, 'an answer of nearly a megabyte');
	$shell->create_many("$long/$prefix", 200, client => 'crowd');
	$fails->('too long with what is told besides the names');
	$shell->create_many("$long/$prefix", 100, client => 'crowd');
	$proxy->reset_counts;
	$fails->('too long by the names alone');
	is(asked('exists'), 0, 'then no node is looked at');
	is_usable('too long');
	assert_forgotten('too long');
};

subtest 'a backend that crashes leaves nothing behind' => sub {
	my $asker = $a->session;
	my $held  = hold('exists');
	$asker->query_start($ask);
	$proxy->fired($held);
	my $mark = $a->log_mark;
	kill 'KILL', $asker->pid;
	$a->wait_log(qr/all server processes terminated; reinitializing/, $mark);
	$proxy->heal;
	$a->wait_session;
	$s = $a->session(name => 's again');
	is_usable('crash');
	$asker->disconnect;
};

$s->disconnect;
$shell->close_connection(client => 'crowd');
$a->assert_clean($zk, $path, '/long/names', '/long/other');
done_testing;
