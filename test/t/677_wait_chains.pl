# Copyright (c) 2026, zklock contributors
#
# Sessions that wait for another one of their server, which waits for another server: what is told
# of them stays the same as long as they wait, and names the session that is in the way. One waiting
# session searches for deadlocks across servers, for all of its server. When it waits no more, or is not
# heard of, another one takes over.

use Zklock::Test;
use Zklock::Deadlock;

my ($zk, $a, $b) = cast('a b', conf => ["deadlock_timeout = '50ms'"]);
my ($a1, $a2, $a3, $b1, $b2) = (sessions($a, 'a1 a2 a3'), sessions($b, 'b1 b2 b3'));
Zklock::Deadlock::scene($zk, [ $a, $b ], (map { "/d/$_" } qw(a b p one two q)), '/zklock-waits');

# What is told of all waits at this moment
sub told { return join '', map { $zk->shell->get("/zklock-waits/$_") } $zk->children('/zklock-waits'); }

subtest 'a server tells of a wait once' => sub {
	in_transactions($a1, $a2, $a3, $b1);
	steps('b1 shares /d/b, a1 has #1, a2 shares /d/a, a2 has /d/a, a1 shares /d/p, a3 has #0, a3 wants /d/a, a2 wants #1, a1 wants /d/b');
	my @told;
	wait_until { @told = $zk->children('/zklock-waits'); @told == 1 && 2 == (() = told() =~ /^wait/mg) } 'both to be told';
	my $sent = $a->value('SELECT requests FROM zk_session');
	$a->wait_value("SELECT requests > $sent + 20 FROM zk_session", 't');
	is_deeply([ $zk->children('/zklock-waits') ], \@told, 'rounds later it is the same record');
	$b1->query('COMMIT');
	go_on($a1, $a2, $a3);
	clean();
};

circle('a bystander whose wait ends with the same one is not told to be in the way', 'b2 a1 b1',
	'b1 shares /d/p, a1 has #1, b2 has #1, a2 has /d/a, a1 wants /d/p, a2 wants #1, b1 wants #1, b settles, b2 wants to share /d/p');

circle('a session that waits for its own server alone keeps a reader of another one back', 'b2 a1 a2 b1',
	'a1 shares /d/p, a2 shares /d/p, b1 has /d/b, b2 has #0, a2 wants /d/b, a1 wants /d/p, b1 wants #0, b settles, b2 wants to share /d/p');

circle('a session that holds nothing stands between the two locks of another one', 'b1 a1',
	'b1 shares /d/p, a1 wants /d/p, b settles, b1 wants /d/p', victim => 'b1');    # the youngest

circle("other waits behind those of a deadlock do not matter, time $_", 'b1 a2 a1',
	'a1 has #1, b1 has #1, b2 shares /d/b, a2 shares /d/a, b2 has /d/b, b1 shares /d/p, a1 wants /d/p, b3 has #0, '
	  . 'b3 wants /d/b, b2 wants #1, a2 wants #1, b1 wants /d/a', victim => 'b1') foreach 1 .. 3;

# What a server tells of waits, in one record; "" if it has none or is just writing another
sub told_by($server)
{
	my $id = $server->session_id =~ s/^0x//r;
	my @names = grep { /^0*\Q$id\E-/ } $zk->children('/zklock-waits');
	return @names == 1 ? eval { $zk->shell->get("/zklock-waits/$names[0]") } // '' : '';
}

sub wait_told($server, $path) { return wait_until { told_by($server) =~ m{^held\t\Q$path\E/}m } "$path to be told"; }

# The first to wait for long is the one that searches.
sub circle_is_found($what, $end, $after)
{
	subtest "the session that searches $what, and another one takes over" => sub {
		my ($a1) = sessions($a, 'a1');
		in_transactions($a1, $a2, $b1, $b2);
		steps('a1 has /d/one, a2 has /d/two, b1 has /d/p, b2 has /d/q, a1 wants /d/q');
		wait_told($a, '/d/one');
		steps('a2 wants /d/p');
		wait_told($a, '/d/two');
		$end->($a1);
		steps('b1 wants /d/two');
		one_victim('b1 a2');
		$b2->query('COMMIT');
		$after->($a1);
		clean();
	};
	return;
}

circle_is_found(
	'is granted what it waits for',
	sub ($a1) { $b2->query('COMMIT'); is($a1->finish, 't', 'it goes on'); $b2->query('BEGIN'); return; },
	sub { $_[0]->query('COMMIT'); return; });
circle_is_found(
	'is cancelled',
	sub ($a1) { $a1->cancel; is($a1->result->{sqlstate}, '57014', 'it gives up'); return; },
	sub { $_[0]->query('ROLLBACK'); return; });
circle_is_found(
	'is terminated',
	sub ($a1) { $a->value('SELECT pg_terminate_backend(' . $a1->pid . ')'); ok(!$a1->result->{ok}, 'it ends'); return; },
	sub { return; });
circle_is_found(
	'is stopped',
	sub ($a1) { freeze($a1->pid); return; },
	sub ($a1) { thaw($a1->pid); is($a1->finish, 't', 'it goes on later'); $a1->query('COMMIT'); return; });

done_testing();
