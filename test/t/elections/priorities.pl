# Copyright (c) 2026, zklock contributors
#
# A server that leads gives way to one of a higher priority, between two transactions that rely on it, when that has stood for
# a while, and to no other: not to one that comes and goes, nor to one that is dead, nor to one of the same priority. A candidate of
# Curator or kazoo that stands between them leads first. What a reload of the setting changes, and what the view shows.

use Zklock::Test;
use Zklock::Election;
use Zklock::JavaPeer;

my ($path, $other) = ('/e/leader', '/e/other');
# The pause is twice the timeout of the server that leads. At first it is longer than what comes and goes stays.
my ($zk, $a, $b) = cast('a b', a => { timeout => '5min', conf => ["zklock.server_name = 'alpha'"] },
	b => { timeout => '2s', conf => ["zklock.server_name = 'beta'"] });
$_->set_conf('zklock.path_dialects' => '/e/kazoo=kazoo') foreach $a, $b;
my $election = Zklock::Election->new($zk, $path);

# At $path and $other
sub stands($server, $at_path, $at_other) { $server->set_conf('zklock.elections' => "$path$at_path, $other$at_other"); return; }

# What the candidates' nodes tell, in the order of their queue; one may go meanwhile.
sub told($at = $path)
{
	my %data = map { substr($_, -10) => eval { $zk->shell->get("$at/$_") } // 'gone' } $zk->children($at);
	return join ', ', @data{ sort keys %data };
}

# $server has given way at $other, where it had as much reason to as at $path, and heard of it no sooner.
sub pause_over($server)
{
	$server->wait_value("SELECT state FROM zk_elections WHERE path = '$other'", 'ready');
	return;
}

stands($a, '', '');
$election->wait_state($a, 'elected', $_) foreach $path, $other;

subtest 'one that comes and goes moves nothing' => sub {
	my $term = $election->term($a);
	foreach my $round (1, 2)
	{
		stands($b, ' priority 2', '');
		$a->wait_value("SELECT preferred FROM zk_elections WHERE path = '$path'", 'beta priority 2');
		is($election->leads($a), 't', 'a server that leads knows that another is to be preferred');
		$b->set_conf('zklock.elections' => '');
		$a->wait_value("SELECT preferred IS NULL FROM zk_elections WHERE path = '$path'", 't');
		is($election->term($a), $term, 'and leads on when that has left');
	}
};

subtest 'one that is dead, and has a node yet, moves nothing' => sub {
	my $term = $election->term($a);
	stands($b, ' priority 2', '');
	$a->wait_value("SELECT preferred FROM zk_elections WHERE path = '$path'", 'beta priority 2');
	$b->kill9;
	wait_until { scalar($zk->children($path)) == 1 } 'its session to end';
	$a->wait_value("SELECT preferred IS NULL FROM zk_elections WHERE path = '$path'", 't');
	is($election->term($a), $term, 'the server leads on');
	$b->start_again;
	$b->wait_session;
	$b->set_conf('zklock.elections' => '');
};

$a->set_conf('zklock.session_timeout' => '2s');
$a->restart;
$election->wait_state($a, 'elected', $_) foreach $path, $other;

subtest 'a server gives way to one of higher priority, between two transactions' => sub {
	my $s = $a->session;
	my $term = $election->term($a);
	$election->work($s);
	stands($b, ' priority 2', ' priority 2');
	$election->wait_state($b, 'ready');
	$b->wait_value("SELECT priority, leader, leader_priority, preferred IS NULL FROM zk_elections WHERE path = '$path'", '2|alpha|0|t');
	is(told(), 'alpha, beta priority 2', 'a priority is in the data of the node, and none is not');
	pause_over($a);
	is($election->leads($a), 't', 'it leads while a transaction relies on that, however long');
	is($a->value("SELECT priority, leader, leader_priority, preferred FROM zk_elections WHERE path = '$path'"),
		'0|alpha|0|beta priority 2', 'the view says who waits for that');
	my $mark = $a->log_mark;
	ok($s->try('COMMIT')->{ok}, 'the transaction commits');
	$b->wait_value("SELECT zk_is_leader('$path')", 't');
	cmp_ok($election->term($b), '>', $term, 'then the other leads, in a higher term');
	$election->wait_state($a, 'ready');
	$a->assert_log($mark, qr{election "$path": this server, of priority 0, gives way to candidate "\S+", of priority 2}, 'the log says why');
	$a->wait_value("SELECT leader, leader_priority, preferred IS NULL FROM zk_elections WHERE path = '$path'", 'beta|2|t');
	is(told(), 'beta priority 2, alpha', 'it stands again, at the end of the queue');
	is($a->value("SELECT server, owner FROM zk_leader('$path')"), 'beta|beta priority 2', 'zk_leader tells the name');
};

subtest 'a reload changes the priority' => sub {
	stands($a, ' priority 3', ' priority 3');
	wait_until { told() eq 'beta priority 2, alpha priority 3' } 'who waits tells its new priority';
	$a->wait_value("SELECT zk_is_leader('$path')", 't');
	$election->wait_state($b, 'ready', $_) foreach $path, $other;
	my $term = $election->term($a);
	is(told(), 'alpha priority 3, beta priority 2', 'it is preferred now');

	# Equal at $path; at $other the second one is higher.
	stands($a, ' priority 5', ' priority 3');
	$a->wait_value("SELECT priority FROM zk_elections WHERE path = '$path'", 5);
	stands($b, ' priority 5', ' priority 5');
	pause_over($a);
	is(told(), 'alpha priority 3, beta priority 5', 'who leads keeps its node');
	is($election->term($a), $term, 'and its term, and gives way to none of the priority that it has now');
};

subtest 'who dies while leadership is handed over leads no more' => sub {
	my $s = $a->session;
	my $term = $election->term($a);
	$b->set_conf('zklock.elections' => '');
	$a->wait_value("SELECT zk_is_leader('$other')", 't');
	$election->work($s);
	stands($b, ' priority 7', ' priority 7');
	$a->wait_value("SELECT preferred FROM zk_elections WHERE path = '$path'", 'beta priority 7');
	pause_over($a);
	$b->kill9;
	my $mark = $a->log_mark;
	ok($s->try('COMMIT')->{ok}, 'the transaction commits');
	$a->wait_log(qr/gives way to candidate/, $mark);
	$a->wait_value("SELECT zk_is_leader('$path')", 't');
	cmp_ok($election->term($a), '>', $term, 'the server leads again when the session of the other has ended');
	$b->start_again;
	$b->wait_session;
};

my $java = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);
foreach my $case ([ 'Curator', $path, '', $java, 'latch' ], [ 'kazoo', '/e/kazoo', '=lock', $zk->shell ])
{
	my ($client, $at, $names, $peer, @kind) = @$case;
	subtest "a candidate of $client between them leads first" => sub {
		my $here = Zklock::Election->new($zk, $at);
		$_->set_conf('zklock.elections' => '') foreach $b, $a;
		wait_until { !grep { $zk->children($_) } $path, $at } 'nobody to stand';
		$a->set_conf('zklock.elections' => $at . $names);
		$here->wait_state($a, 'elected');
		$peer->stand('one', $at, @kind);
		wait_until { scalar($zk->children($at)) == 2 } 'the other to stand';
		$b->set_conf('zklock.elections' => "$at$names priority 2");
		wait_until { $peer->leads('one') } 'the server to give way';
		is(told($at), 'one, beta priority 2, alpha', 'it stands behind both');
		is($here->leads($_), 'f', $_->name . ' does not lead') foreach $a, $b;
		$b->wait_value("SELECT leader, leader_priority FROM zk_elections WHERE path = '$at'", 'one|0');
		$peer->leave('one');
		$b->wait_value("SELECT zk_is_leader('$at')", 't');
	};
}

undef $java; # with it a watch of Curator's goes
$election->over($a, $b);
