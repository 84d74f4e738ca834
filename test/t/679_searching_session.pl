# Copyright (c) 2026, zklock contributors
#
# One waiting session searches for deadlocks across servers, for all sessions of its server. When it
# waits no more, or is not heard of, another one takes over.

use Zklock::Test;
use Zklock::Deadlock;

my $zk = Zklock::ZooKeeper->standalone;
my ($a, $b) = map { Zklock::Server->new($_, zookeeper => $zk, conf => [ "deadlock_timeout = '100ms'", "cluster_name = '$_'" ]) } qw(a b);
my ($a2, $b1, $b2) = ($a->session(name => 'a2'), map { $b->session(name => $_) } qw(b1 b2));

sub waits
{
	my ($session, $path) = @_;
	$session->query_start("SELECT zk_xact_lock('$path')");
	$session->server->wait_queued($session, $path);
	return;
}

# What a server tells of waits, in one record; "" if it has none or is just writing another
sub told
{
	my ($server) = @_;
	my $id = $server->session_id =~ s/^0x//r;
	my @names = grep { /^0*\Q$id\E-/ } $zk->children('/zklock-waits');
	return @names == 1 ? eval { $zk->shell->get("/zklock-waits/$names[0]") } // '' : '';
}

sub wait_told { my ($server, $path) = @_; return wait_until { told($server) =~ m{^held\t\Q$path\E\t}m } "$path to be told"; }

# The first to wait for long is the one that searches.
sub circle_is_found
{
	my ($what, $end, $after) = @_;
	subtest "it $what" => sub {
		my $a1 = $a->session(name => 'a1');
		in_transactions($a1, $a2, $b1, $b2);
		$a1->query("SELECT zk_xact_lock('/s/one')");
		$a2->query("SELECT zk_xact_lock('/s/two')");
		$b1->query("SELECT zk_xact_lock('/s/p')");
		$b2->query("SELECT zk_xact_lock('/s/q')");
		waits($a1, '/s/q');
		wait_told($a, '/s/one');
		waits($a2, '/s/p');
		wait_told($a, '/s/two');
		$end->($a1);
		waits($b1, '/s/two');
		one_victim([ $a2, $b1 ], [ $b1, 'ExclusiveLock on ZooKeeper path "/s/two"', $a2, 'ExclusiveLock on ZooKeeper path "/s/p"' ]);
		$b2->query('COMMIT');
		$after->($a1);
		Zklock::Server->assert_clean($zk, [ $a, $b ], map { "/s/$_" } qw(one two p q));
		is_deeply([ $zk->children('/zklock-waits') ], [], 'and nothing is told any more');
	};
	return;
}

circle_is_found(
	'is granted what it waits for',
	sub { my ($a1) = @_; $b2->query('COMMIT'); is($a1->finish, 't', 'it goes on'); $b2->query('BEGIN'); return; },
	sub { $_[0]->query('COMMIT'); return; });
circle_is_found(
	'is cancelled',
	sub { my ($a1) = @_; $a1->cancel; is($a1->result->{sqlstate}, '57014', 'it gives up'); return; },
	sub { $_[0]->query('ROLLBACK'); return; });
circle_is_found(
	'is terminated',
	sub { my ($a1) = @_; $a->value('SELECT pg_terminate_backend(' . $a1->pid . ')'); ok(!$a1->result->{ok}, 'it ends'); return; },
	sub { return; });
circle_is_found(
	'is stopped',
	sub { my ($a1) = @_; freeze($a1->pid); return; },
	sub { my ($a1) = @_; thaw($a1->pid); is($a1->finish, 't', 'it goes on later'); $a1->query('COMMIT'); return; });

done_testing();
