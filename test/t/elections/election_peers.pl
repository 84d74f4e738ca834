# Copyright (c) 2026, zklock contributors
#
# Servers and the candidates of Curator, kazoo and ZooKeeper's recipe elect one leader among
# them, in both directions, whichever of them ends.

use Zklock::Test;
use Zklock::Election;
use Zklock::JavaPeer;

# What is stood at, and the peers that understand it
my %setting = ('/e/latch' => 'curator_latch', '/e/support' => 'zookeeper', '/e/lock' => 'lock', '/e/kazoo' => 'lock');
my $elections = join ', ', map { "$_=$setting{$_}" } sort keys %setting;
my ($zk, $a) = cast('a', conf => [ "zklock.server_name = 'alpha'", "zklock.path_dialects = '/e/kazoo=kazoo'" ]);
my $java  = Zklock::JavaPeer->new;
my $shell = $zk->shell;
$java->connect($zk->connect_string);
my @java_peers = ([ 'LeaderLatch', 'latch', '/e/latch' ], [ 'LeaderSelector', 'selector', '/e/lock' ],
	[ 'LeaderElectionSupport', 'support', '/e/support' ]);
my $s = $a->session;

# One candidate of Java or Python behind one interface
sub peer($kind)
{
	my $python = $kind eq 'kazoo';
	my $peer   = $python ? $shell : $java;
	return {
		stand  => sub ($name, $path) { $peer->stand($name, $path, $python ? () : $kind); return; },
		leads  => sub { return $peer->leads($_[0]) ? 1 : 0; },
		leader => sub { return $python ? ($peer->leaders($_[0]))->[0] : $peer->leader($_[0]); },
		leave  => sub { $peer->leave($_[0]); return; } };
}

# A server that has not taken up the setting yet does not lead either.
sub leads($path)
{
	return $s->query("SELECT coalesce((SELECT is_leader FROM zk_elections WHERE path = '$path'), false)") eq 't' ? 1 : 0;
}

sub wait_leads($path) { wait_until { leads($path) } "the server to lead at $path"; return; }

# Both see each other in the queue
sub both($path, $n) { wait_until { $zk->children($path) == $n } "$n candidates at $path"; return; }

$a->set_conf('zklock.elections' => $elections);
wait_leads($_) foreach sort keys %setting;

foreach my $case (@java_peers, [ "kazoo's Election", 'kazoo', '/e/kazoo' ])
{
	my ($title, $kind, $path) = @$case;
	my $peer = peer($kind);
	my $election = Zklock::Election->new($zk, $path);

	subtest "$title waits for the server, and the server for it" => sub {
		$peer->{stand}->('one', $path);
		both($path, 2);
		is($peer->{leader}->('one'), 'alpha', 'it sees that the server leads, and its name');
		is($peer->{leads}->('one'), 0, 'it does not lead');
		is($s->query("SELECT zk_resign('$path')"), 't', 'the server resigns');
		is(leads($path), 0, 'it does not lead any more');
		wait_until { $peer->{leads}->('one') } 'the other to lead';
		is($peer->{leader}->('one'), 'one', 'it knows that');
		is($s->query("SELECT server FROM zk_leader('$path')"), 'one', 'zk_leader shows it');
		$a->wait_value("SELECT state, leader, \"position\" FROM zk_elections WHERE path = '$path'", 'ready|one|2');
		is($s->query("SELECT zk_await_leadership('$path', '100ms')"), 'f', 'the server waits in vain');
		$s->query_start("SELECT zk_await_leadership('$path')");
		$peer->{leave}->('one');
		is($s->finish, 't', 'until the other leaves');
	};

	subtest "$title takes over when the server stops to stand, and gives back when it comes again" => sub {
		my $term = $s->query("SELECT zk_fencing_token('$path')");
		$peer->{stand}->('two', $path);
		both($path, 2);
		$a->set_conf('zklock.elections' => join(', ', map { "$_=$setting{$_}" } grep { $_ ne $path } sort keys %setting));
		wait_until { $peer->{leads}->('two') } 'the other to lead';
		$a->set_conf('zklock.elections' => $elections);
		$election->wait_state($a, 'ready');
		is(leads($path), 0, 'the server comes behind it');
		$peer->{leave}->('two');
		wait_leads($path);
		cmp_ok($s->query("SELECT zk_fencing_token('$path')"), '>', $term, 'in a higher term');
	};
}

subtest 'a peer whose process dies leaves leadership to the server, and the other way round' => sub {
	$java->close_session;
	$java->connect($zk->connect_string, scaled(4000));
	$java->stand("j$_->[1]", $_->[2], $_->[1]) foreach @java_peers;
	both($_->[2], 2) foreach @java_peers;
	$a->kill9;
	$a->start_again;
	$a->wait_session;
	$s = $a->session;
	foreach my $case (@java_peers)
	{
		wait_until { $java->leads("j$case->[1]") } "$case->[0] to lead after the crash of the server";
		is(leads($case->[2]), 0, "$case->[0] leads after the crash of the server, which does not");
	}
	Zklock::Election->new($zk, $_->[2])->wait_state($a, 'ready') foreach @java_peers;
	$java->kill9;
	wait_leads($_->[2]) foreach @java_peers;
	pass('the server leads when the sessions of the others have expired');
};

$a->set_conf('zklock.elections' => '');
done_clean($zk, $a);
