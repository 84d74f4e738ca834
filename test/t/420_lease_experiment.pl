# Copyright (c) 2026, zklock contributors
#
# An experiment on the lease. Clients hang on a follower, which is stopped at a random
# moment just after it has answered them; from then on the leader hears nothing of them.
# Seen from the leader, a node of zklock must never be gone before the deadline that its
# server has published. The rule of thumb "last answered request + session timeout" is
# tried beside it, by a client of its own, and must be seen to fail.
#
# ZKLOCK_ROUNDS sets how many rounds there are, at least; default 6.

use Zklock::Test;
use Time::HiRes qw(time);
use Zklock::Shell;

my $rounds  = $ENV{ZKLOCK_ROUNDS} || 6;
my $timeout = 3;

my $zk = Zklock::ZooKeeper->ensemble(3, syncLimit => 40);
my ($leader, $follower) = ($zk->leader, ($zk->followers)[0]);
my @server = map {
	Zklock::Server->new($_, zookeeper => $follower, conf => ["zklock.session_timeout = '${timeout}s'"]) } qw(a b);
my %holder = map { $_->name => $_->session } @server;
my $shell  = Zklock::Shell->new;
$shell->connect($leader->connect_string);
$shell->create('/x/naive', makepath => 1);

# A client that writes once in a while and takes each answer for a sign of life.
my $naive = Zklock::Shell->new;

my ($early, $naive_early, $round) = (0, 0, 0);
my @spare;
while ($round < $rounds || !$naive_early && $round < 50)
{
	$round++;
	my (%node, %seen, %deadline);
	foreach my $server (@server)
	{
		my $name = $server->name;
		$server->wait_session;
		$server->wait_value("SELECT lease_remaining > '1s' FROM zk_session", 't');
		$holder{$name}->try('SELECT zk_unlock_all()');
		$holder{$name}->query("SELECT zk_lock('/x/$name')");
		($node{$name}) = map { "/x/$name/$_->{node}" } $server->locks("path = '/x/$name' AND state = 'held'");
	}
	$naive->connect($follower->connect_string, timeout => $timeout);
	$node{naive} = $naive->create('/x/naive/node', ephemeral => 1);

	# At any phase of the naive client's pings and of the leader's.
	select undef, undef, undef, rand($timeout / 3);
	my $sent = time;
	$naive->set($node{naive}, 'x');
	$follower->pause;
	$deadline{naive} = $sent + $timeout;

	$seen{$_} = 0 foreach keys %node;
	my %gone;
	while (my @left = grep { !$gone{$_} } keys %node)
	{
		foreach my $server (grep { !$gone{ $_->name } } @server)
		{
			my $now = time;
			my $remaining = $server->value('SELECT extract(epoch FROM lease_remaining) FROM zk_session');
			my $until = $now + $remaining;
			$deadline{ $server->name } = $until
			  if $remaining > 0 && $until > ($deadline{ $server->name } || 0);
		}
		foreach my $name (@left)
		{
			my $exists = $shell->exists($node{$name});
			$gone{$name} = time unless $exists;
		}
	}
	foreach my $name (map { $_->name } @server)
	{
		my $spare = $gone{$name} - $deadline{$name};
		push @spare, $spare;
		$early++ if $spare < 0;
	}
	$naive_early++ if $gone{naive} < $deadline{naive};
	$follower->resume;
	$follower->wait_ready;
}
@spare = sort { $a <=> $b } @spare;
note sprintf('%d rounds; after the deadline the node lived on for %.2f to %.2f s; naive rule wrong in %d',
	$round, @spare[ 0, -1 ], $naive_early);
cmp_ok(scalar(@spare), '>=', 2 * $rounds, 'enough was measured');
is($early, 0, 'no session ended before the deadline of its lease');
cmp_ok($naive_early, '>', 0, 'one that counts from the last answer would have been surprised');

$_->wait_session foreach @server;
$naive->stop;
$shell->delete('/x/naive', recursive => 1);
$shell->stop;
done_clean($zk, @server);
