# Copyright (c) 2026, zklock contributors
#
# Creates of lock nodes that wait while another one is under way go out in one request, which does
# all or nothing. Whatever becomes of it, each session gets its lock, with the token of its own node, and no
# node is left that is nobody's.

use Zklock::Test;
use Zklock::Cast qw(%s all_disconnect fails hold on token);

plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};

my %conf = (conf => [ "zklock.parent_nodes = 'persistent'", "zklock.path_dialects = '/batch/hive/*=hive'" ], timeout => '20s');
my ($zk, $proxy, $a) = cast('a', proxied => 'a', %conf,
	zk => { java => ['-Dzookeeper.enforceQuota=true'] }, a => { faults => 'near' });
my $n    = 6;
my $name = '';
my $shell;

$zk->shell->create('/batch/barrier', makepath => 1);

sub path($i) { return "/batch/$name/$i"; }
sub everyone() { return 0 .. $n; }

# Session 0 asks for its lock, and the answer to its create is held back; the others ask for theirs
# meanwhile. A block may do something before. A new worker has not been refused anything yet.
sub begin($what, $before = undef)
{
	$name  = $what;
	$shell = $zk->shell;
	$shell->create(path($_), makepath => 1) foreach everyone();
	$before->() if $before;
	$a->restart_worker;
	$a->wait_session;
	hold($a, 'barrier', '/batch/barrier');
	$proxy->reset_counts;
	$proxy->hold_reply_of(on($a, 's0'), sprintf("SELECT zk_lock('%s')", path(0)), op => 'create2', path => '^' . path(0) . '/');
	on($a, "s$_")->start_waiting(sprintf("SELECT zk_lock('%s')", path($_)), path($_)) foreach 1 .. $n;
	# The worker answers this by itself, when it has taken up all that was before.
	is(on($a, 'other')->query("SELECT zk_try_lock('/batch/barrier')"), 'f', 'the worker knows of them');
	is($proxy->counts->{create2}, 1, 'while one create is under way, no other one is asked for');
	return;
}

sub created($i) { return $shell->stat(path($i) . '/' . ($zk->wait_children(path($i), 1))[0])->{czxid}; }

# Each has its lock, with the one node that there is on its path
sub all_hold(@sessions)
{
	foreach my $i (@sessions)
	{
		is($s{"s$i"}->finish, 't', "$name: session $i has its lock");
		is(token("s$i", path($i)), created($i) * 4096 + 1, 'with the token of its node');
	}
	return;
}

sub end
{
	foreach my $i (everyone())
	{
		$s{"s$i"}->query('SELECT zk_unlock_all()');
		wait_until { !$zk->children(path($i)) } "lock $i to be free";
	}
	return all_disconnect();
}

sub gathered
{
	begin('gathered');
	$proxy->heal;
	all_hold(everyone());
	my ($first, @others) = map { created($_) } everyone();
	is_deeply(\@others, [ ($others[0]) x $n ], 'the nodes of those who waited were created by one transaction');
	isnt($first, $others[0], 'another one than that of the first');
	my @requests = map { "$_->[0] " . $_->[1] =~ s{-lock-$}{}r =~ s{_c_.*}{X}r } grep { ($_->[1] // '') =~ m{^/batch/gathered/[1-9]} } @{ $proxy->requests };
	is_deeply(\@requests, [ (map { 'create2 ' . path($_) . '/X' } 1 .. $n), map { 'getChildren ' . path($_) } 1 .. $n ],
		'and there was nothing else but a listing of each path');
	end();
	return;
}

subtest 'creates that have gathered are one write' => \&gathered;

subtest 'of a session that asks for several paths, too' => sub {
	begin('several');
	my @more = map { path("more-$_") } 1 .. 3;
	$shell->create($_) foreach @more;
	my $all = join(', ', map { "'$_'" } @more);
	on($a, 'several')->start_waiting("SELECT zk_lock(ARRAY[$all])", $more[2]);
	$proxy->heal;
	is($s{several}->finish, 't', 'it gets all');
	is($s{several}->query("SELECT count(DISTINCT zk_fencing_token(p)) FROM unnest(ARRAY[$all]) p"), 1, 'created by one transaction');
	all_hold(everyone());
	$s{several}->query('SELECT zk_unlock_all()');
	end();
};

subtest 'a path where nothing may be created keeps no other from being locked' => sub {
	begin('forbidden', sub { $shell->set_acl(path(2), [ [ 'world', 'anyone', 'rdwa' ] ]) });
	$proxy->heal;
	fails($s{s2}->result, '42501', 'an ACL forbids one', detail => qr/ZNOAUTH/);
	all_hold(0, 1, 3 .. $n);
	isnt(created(1), created(3), 'each node was created by itself');
	end();
};

subtest 'nor does one where nothing may be deleted' => sub {
	# The stamp of the request would be there.
	begin('undeletable', sub { $shell->set_acl(path(1), [ [ 'world', 'anyone', 'crwa' ] ]) });
	$proxy->heal;
	all_hold(everyone());
	$shell->set_acl(path(1), [ [ 'world', 'anyone', 'cdrwa' ] ]);
	end();
};

subtest 'nor one that has reached its quota' => sub {
	begin('full', sub {
		my $quota = '/zookeeper/quota' . path(4);
		$shell->create("$quota/zookeeper_limits", data => 'countHardLimit=1', makepath => 1);
		$shell->create("$quota/zookeeper_stats", data => 'count=1,bytes=0');
	});
	$proxy->heal;
	fails($s{s4}->result, '58000', 'a quota forbids one', detail => qr/ZQUOTAEXCEEDED/);
	all_hold(0 .. 3, 5 .. $n);
	$shell->delete('/zookeeper/quota' . path(4), recursive => 1);
	end();
};

subtest 'nor one that does not exist yet' => sub {
	begin('missing', sub { $shell->delete(path(5)) });
	$proxy->heal;
	all_hold(everyone());
	end();
};

subtest 'paths that have just been created go together, though others may be missing' => sub {
	$name = 'new';
	my $fault = $proxy->hold_reply(op => 'create2', path => '^' . path(0) . '$');
	on($a, "s$_")->start_waiting(sprintf("SELECT zk_lock('%s')", path($_)), path($_)) foreach everyone();
	$proxy->fired($fault);
	$proxy->heal;
	all_hold(everyone());
	my %transactions = map { created($_) => 1 } everyone();
	cmp_ok(scalar(keys %transactions), '<', 1 + $n, 'some nodes were created by one transaction');
	end();
};

subtest 'an answer, or a request, that is lost is made up for' => sub {
	foreach my $lose (qw(lose_reply lose_request))
	{
		begin($lose);
		my $fault = $proxy->$lose(op => 'create2', path => '^' . path(3) . '/');
		$proxy->heal;
		all_hold(everyone());
		ok($proxy->fired($fault), 'it was lost');
		end();
	}
};

subtest 'a worker that ends meanwhile leaves nothing behind' => sub {
	begin('restart');
	my $fault = $proxy->hold_reply(op => 'create2', path => '^' . path(3) . '/');
	$proxy->heal;
	$proxy->fired($fault);
	$a->restart_worker;
	$proxy->heal;
	all_hold(everyone());
	end();
};

subtest 'nor does a session that gives up' => sub {
	begin('cancelled');
	is($s{s3}->cancelled, '57014', 'it gives up before its node is asked for');
	my $fault = $proxy->hold_reply(op => 'create2', path => '^' . path(4) . '/');
	$proxy->heal;
	$proxy->fired($fault);
	is($s{s4}->cancelled, '57014', 'another one while the answer is held back');
	$proxy->heal;
	all_hold(0 .. 2, 5, 6);
	wait_until { !$zk->children(path($_)) } "no node on path $_" foreach 3, 4;
	end();
};

subtest 'a node whose name does not tell it from others is created by itself, and at once' => sub {
	my $hive = '/batch/hive/table';
	$shell->create($hive, makepath => 1);
	begin('others');
	on($a, 'hive')->query_start("SELECT zk_lock('$hive')");
	is(($zk->wait_children($hive, 1))[0] =~ s/\d+$//r, 'LOCK-EXCLUSIVE-', 'it is created');
	is($proxy->counts->{create2}, 2, 'while the others wait');
	$proxy->heal;
	is($s{hive}->finish, 't', 'its session has the lock');
	all_hold(everyone());
	$s{hive}->query('SELECT zk_unlock_all()');
	end();
};

my @alone = ($zk, $a);

subtest 'so it is with an ensemble' => sub {
	($zk, $proxy, $a) = cast('c', proxied => 'c', %conf, zk => { ensemble => 3 }, c => { faults => 'near' });
	$zk->shell->create('/batch/barrier', makepath => 1);
	gathered();
	$a->end_sessions;
	Zklock::Server->assert_clean($zk, [ $a ]);
};

done_clean(@alone);
