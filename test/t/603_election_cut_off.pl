# Copyright (c) 2026, zklock contributors
#
# A failover of the ensemble ends no term. A leader that is cut off, or stopped, ceases to
# lead before another one does: behind an isolated ZooKeeper server, and as a whole database
# server that stands still.

use Zklock::Test;
use Zklock::Election;
use Zklock::Util qw(children_of);

# Servers notice each other's silence only after 12 s, sessions end after 4, once they do.
my $zk       = Zklock::ZooKeeper->ensemble(3, links => 1, syncLimit => 24);
my ($own, @others) = map { $zk->server($_) } 1 .. 3;
my $path     = '/e/leader';
my @conf     = ("zklock.session_timeout = '20s'", "zklock.elections = '$path'");
my $election = Zklock::Election->new($zk, $path);
my $a        = Zklock::Server->new('a', zookeeper => $own, conf => [@conf]);
$election->wait_state($a, 'elected');
my $b = Zklock::Server->new('b', zookeeper => join(',', map { $_->connect_string } @others), conf => [@conf]);
$election->wait_state($b, 'ready');
$_->value('CREATE TABLE work (n int)') foreach $a, $b;

my $s = $a->session;

sub begin_work
{
	$s->query('BEGIN');
	is($s->query("SELECT zk_is_leader('$path')"), 't', 'a transaction is told that its server leads');
	$s->query('INSERT INTO work VALUES (1)');
	return;
}

subtest 'a failover of the ensemble' => sub {
	my $term = $a->value('SELECT term FROM zk_elections');
	$election->watch($a, $b);
	$zk->leader->restart;
	$_->wait_session foreach $a, $b;
	$election->wait_state($a, 'elected');
	$election->wait_state($b, 'ready');
	my %terms = $election->watched;
	is_deeply($terms{a}, [$term], 'the first has led in the term that it had');
	is($terms{b}, undef, 'the other has not led');
};

foreach my $server ($a, $b)
{
	$server->set_conf('zklock.session_timeout' => '4s');
	$server->wait_value('SELECT negotiated_timeout FROM zk_session', '00:00:04');
	$server->wait_session;
}
$election->wait_state($a, 'elected');

subtest 'behind an isolated ZooKeeper server' => sub {
	$election->watch($a, $b);
	begin_work();
	$zk->isolate($own);
	wait_until { $b->value("SELECT zk_is_leader('$path')") eq 't' } 'the other server to lead';
	is($a->value("SELECT zk_is_leader('$path')"), 'f', 'the first does not lead any more');
	isnt($a->value('SELECT state FROM zk_elections'), 'elected', 'nor does it show that');
	is($s->try('COMMIT')->{sqlstate}, '40001', 'what was written under its leadership is not committed');
	$zk->rejoin($own);
	$election->wait_state($a, 'ready');
	my %terms = $election->watched;
	is(scalar @{ $terms{$_} }, 1, "$_ has led once") foreach qw(a b);
};

subtest 'a database server that stands still' => sub {
	is($b->session->query("SELECT zk_resign('$path')"), 't', 'the first leads again');
	$election->wait_state($a, 'elected');
	$election->watch($a, $b);
	begin_work();
	my @all = ($a->postmaster_pid, children_of($a->postmaster_pid));
	freeze($_) foreach @all;
	wait_until { $b->value("SELECT zk_is_leader('$path')") eq 't' } 'the other server to lead';
	$s->query_start('COMMIT');
	thaw($_) foreach reverse @all;
	is($s->result->{sqlstate}, '40001', 'when it goes on, the transaction does not commit');
	is($a->value("SELECT zk_is_leader('$path')"), 'f', 'and it does not lead');
	$election->wait_state($a, 'ready');
	my %terms = $election->watched;
	is(scalar @{ $terms{$_} }, 1, "$_ has led once") foreach qw(a b);
	is($a->value('SELECT count(*) FROM work'), '0', 'nothing is left of its work');
};

$_->set_conf('zklock.elections' => '') foreach $a, $b;
Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
done_testing;
