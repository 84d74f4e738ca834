# Copyright (c) 2026, zklock contributors
#
# A path that is locked again and again, by nobody else, is not listed: the numbers of the nodes
# tell that nobody came in between. Whenever they do not tell it, nobody is served too early. The
# bugs streak-gap, streak-path and streak-pause of test/faults.md make this fail.
#
# Server a remembers paths for long, so that what it knows of them is old.

use strict;
use warnings;

use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
my $a     = Zklock::Server->new('a', zookeeper => $proxy, faults => 'long-pauses');
my $b     = Zklock::Server->new('b', zookeeper => $zk);
my $shell = $zk->shell;
my $s     = $a->session(name => 'here');
my $there = $b->session(name => 'there');
my ($path, @paths, %kind, %semaphore);

%kind = (
	'an exclusive lock' => {
		ask => "zk_lock(%s)", give => "zk_unlock(%s)", nodes => '', other => 'zk_lock(%s)',
		name => '_c_00000000-0000-4000-8000-000000000001-lock-' },
	'a shared lock' => {
		ask => "zk_lock_shared(%s)", give => "zk_unlock_shared(%s)", nodes => '', other => 'zk_lock(%s)',
		name => '_c_00000000-0000-4000-8000-000000000001-lock-' },
	'a permit' => {
		ask => "zk_semaphore_acquire(%s, 1)", give => "zk_semaphore_release(%s)", nodes => '/leases',
		other => 'zk_semaphore_acquire(%s, 1)', name => '_c_00000000-0000-4000-8000-000000000001-lease-' });

sub sql { my ($text) = @_; return $text =~ s/%s/'$path'/gr; }

# A new path, locked and unlocked so often that it is not listed any more
sub begin
{
	my ($kind) = @_;
	$path = '/streaks/' . @paths;
	push @paths, $path;
	$semaphore{$path} = $kind->{nodes} ne '';
	again($kind, 6);
	$a->settle;
	$proxy->asked;
	again($kind, 3);
	is($proxy->asked->{getChildren}, undef, 'it is not listed any more');
	return;
}

sub again
{
	my ($kind, $times) = @_;
	$s->query('DO $$ BEGIN FOR i IN 1 .. ' . $times . sql(" LOOP PERFORM $kind->{ask}; PERFORM $kind->{give}; END LOOP; END \$\$"));
	wait_until { !$a->lock_count } 'the last node to go';
	return;
}

# The session asks, and waits; then what is in its way goes.
sub waits_for
{
	my ($kind, $node) = @_;
	$s->query_start(sql("SELECT $kind->{ask}"));
	wait_until { $zk->children($path . $kind->{nodes}) == 2 } 'both nodes';
	wait_until { !$s->busy || $a->lock_count("state = 'waiting' AND blocked_by_node IS NOT NULL") } 'it to wait';
	ok($s->busy, 'it waits for that');
	$shell->delete($node);
	is($s->finish, 't', 'and no longer');
	is($s->query(sql("SELECT $kind->{give}")), 't', 'it lets go');
	again($kind, 8);
	$proxy->asked;
	again($kind, 3);
	is($proxy->asked->{getChildren}, undef, 'after some time it is not listed again');
	return;
}

foreach my $name (sort keys %kind)
{
	my $kind = $kind{$name};
	subtest "$name: somebody has come in between" => sub {
		begin($kind);
		waits_for($kind, $shell->create("$path$kind->{nodes}/$kind->{name}", ephemeral => 1, sequence => 1));
	};

	subtest "$name: somebody has come when the path was created again, and has the number before" => sub {
		begin($kind);
		my $probe = $shell->create("$path$kind->{nodes}/probe-", ephemeral => 1, sequence => 1);
		my ($next) = $probe =~ /(\d{10})$/;
		$shell->delete($probe);
		again($kind, 8);
		$proxy->asked;
		again($kind, 1);
		my $reads = $proxy->asked->{getChildren};
		is($reads, undef, 'it is not listed any more');
		$next += 9;
		$shell->delete($path . $kind->{nodes});
		$shell->create($path . $kind->{nodes});
		foreach my $i (0 .. $next - 1)
		{
			$shell->create("$path$kind->{nodes}/filler", ephemeral => 1);
			$shell->delete("$path$kind->{nodes}/filler");
		}
		my $node = $shell->create("$path$kind->{nodes}/$kind->{name}", ephemeral => 1, sequence => 1);
		is($node =~ /(\d{10})$/ ? $1 + 0 : undef, $next, 'the number of our last node');
		waits_for($kind, $node);
	};

	subtest "$name: another session here, and one elsewhere" => sub {
		begin($kind);
		is($there->query(sql("SELECT $kind->{other}")), 't', 'elsewhere it is taken');
		$s->query_start(sql("SELECT $kind->{ask}"));
		wait_until { !$s->busy || $a->lock_count("state = 'waiting' AND blocked_by_node IS NOT NULL") } 'the other to wait';
		ok($s->busy, 'here one waits');
		$there->query('SELECT zk_unlock_all()');
		is($s->finish, 't', 'and is served');
		$s->query(sql("SELECT $kind->{give}"));
	};
}

subtest 'a shared node without a number of its own' => sub {
	my $kind = $kind{'an exclusive lock'};
	begin($kind);
	# It has the number of a node that is long gone, as after a downgrade.
	my $node = "$path/_c_00000000-0000-4000-8000-000000000001-__READ__0000000000";
	$shell->create($node, ephemeral => 1);
	waits_for($kind, $node);
};

subtest 'a reader elsewhere, which nobody here had to wait for' => sub {
	begin($kind{'a shared lock'});
	my $node = $shell->create("$path/_c_00000000-0000-4000-8000-000000000001-__READ__", ephemeral => 1, sequence => 1);
	again($kind{'a shared lock'}, 8);
	waits_for($kind{'an exclusive lock'}, $node);
};

subtest 'a path that is used for claims meanwhile' => sub {
	begin($kind{'an exclusive lock'});
	# Where locks have been zk_claim would refuse that.
	is($there->query("SELECT zk_claim('/streaks/claim', '2026-01-01')"), 't', 'a claim');
	$shell->set($path, $shell->get('/streaks/claim'));
	is($s->try("SELECT zk_lock('$path')")->{sqlstate}, '55006', 'is seen: it is no lock any more');
};

subtest 'another connection' => sub {
	begin($kind{'an exclusive lock'});
	my $reconnects = $a->value('SELECT reconnects FROM zk_session');
	$proxy->drop;
	$a->wait_value("SELECT reconnects > $reconnects AND state = 'connected' FROM zk_session", 't');
	$proxy->asked;
	again($kind{'an exclusive lock'}, 1);
	cmp_ok($proxy->asked->{getChildren} || 0, '>=', 1, 'on another connection it is listed');
	again($kind{'an exclusive lock'}, 4);
	$proxy->asked;
	again($kind{'an exclusive lock'}, 2);
	is($proxy->asked->{getChildren}, undef, 'and then not any more');
};

$_->disconnect foreach $s, $there;
$a->set_faults('');
Zklock::Server->assert_clean($zk, [ $a, $b ], map { $semaphore{$_} ? ( "$_/locks", "$_/leases") : $_ } @paths);
done_testing;
