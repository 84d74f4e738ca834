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
my @conf     = ("zklock.session_timeout = '20s'");
my $election = Zklock::Election->new($zk, $path);
my $a        = Zklock::Server->new('a', zookeeper => $own, conf => [@conf]);
my $b        = Zklock::Server->new('b', zookeeper => join(',', map { $_->connect_string } @others), conf => [@conf]);
my $s        = $a->session;
$election->stand($a, $b);

subtest 'a failover of the ensemble' => sub {
	my $term = $election->term($a);
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
	$server->set_conf('zklock.session_timeout' => scaled('4s'));
	$server->wait_value("SELECT negotiated_timeout = '@{[ scaled('4s') ]}' FROM zk_session", 't');
	$server->wait_session;
}
$election->wait_state($a, 'elected');

subtest 'behind an isolated ZooKeeper server' => sub {
	$election->watch($a, $b);
	$election->work($s);
	$zk->isolate($own);
	wait_until { $election->leads($b) eq 't' } 'the other server to lead';
	is($election->leads($a), 'f', 'the first does not lead any more');
	isnt($a->value('SELECT state FROM zk_elections'), 'elected', 'nor does it show that');
	is($s->try('COMMIT')->{sqlstate}, '40001', 'what was written under its leadership is not committed');
	$zk->rejoin($own);
	$election->wait_state($a, 'ready');
	$election->led_once;
};

subtest 'a database server that stands still' => sub {
	is($b->session->query("SELECT zk_resign('$path')"), 't', 'the first leads again');
	$election->wait_state($a, 'elected');
	$election->watch($a, $b);
	$election->work($s);
	my @all = ($a->postmaster_pid, children_of($a->postmaster_pid));
	freeze($_) foreach @all;
	wait_until { $election->leads($b) eq 't' } 'the other server to lead';
	$s->query_start('COMMIT');
	thaw($_) foreach reverse @all;
	is($s->result->{sqlstate}, '40001', 'when it goes on, the transaction does not commit');
	is($election->leads($a), 'f', 'and it does not lead');
	$election->wait_state($a, 'ready');
	$election->led_once;
	is($a->value('SELECT count(*) FROM work'), '0', 'nothing is left of its work');
};

$election->over($a, $b);
