# Copyright (c) 2026, zklock contributors
#
# Of the servers that are listed, some hang, cannot be reached, or are slow. While one is left that serves, and no
# more than two in a row are silent, no lock is lost: the worker leaves a connection, or an attempt, that has been silent
# for a third of the session timeout, for another machine.
#
# A table of how many are listed, and what becomes of them, each with a database server of its own. What is listed are
# ways to one real server, since only the client is tested; in outages/ensemble.pl real ones stand still.

use Zklock::Test;
use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use Zklock::Cast;

my $timeout = scaled(12);    # of which each silent one takes a third

my $zk    = Zklock::ZooKeeper->standalone;
my $hosts = PostgreSQL::Test::Utils::tempdir . '/hosts';
append_to_file($hosts, map { "$_ double.test\n" } qw(127.0.0.1 127.0.0.2));
local $ENV{NAMES} = $hosts;
my $names = PostgreSQL::Test::Utils::tempdir . '/names.so';
system_or_bail('gcc', '-shared', '-fPIC', '-o', $names, 'test/preload/names.c', '-ldl');
local $ENV{ZKLOCK_PRELOAD} = join(' ', grep { defined } $ENV{ZKLOCK_PRELOAD}, $names);
my @sockets;

# What takes no connections, and does not refuse them either: its queue is full.
sub wall
{
	my $wall = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "listen: $!";
	push @sockets, $wall, map { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $wall->sockport, Blocking => 0) } 1 .. 4;
	return '127.0.0.1:' . $wall->sockport;
}

my %fates = (
	hangs   => sub ($way) { $way->blackhole; },
	refuses => sub ($way) { $way->cut; },
	slow    => sub ($way) { $way->delay(1000 * $timeout * 0.45); },
	# Its other address, too
	'hangs twice' => sub ($way) {
		push @sockets, IO::Socket::INET->new(LocalAddr => '127.0.0.2', LocalPort => $way->port, Listen => 9) || die "listen: $!";
		$way->blackhole;
	});

# Ways that are listed; under which name; other addresses; what becomes of the one that is connected, and of the next
my @table = (
	[ two_slow    => 2, '127.0.0.1', [],  'slow' ],
	[ two_names   => 2, 'double.test', [], 'hangs twice' ],
	[ three_wall  => 2, '127.0.0.1', [1], 'hangs' ],
	[ four_dead   => 4, '127.0.0.1', [],  'hangs', 'refuses', 'hangs' ],
	[ five_dead   => 5, '127.0.0.1', [],  'refuses', 'hangs', 'hangs' ]);

my (%server, %ways, %before);
foreach my $row (@table)
{
	my ($name, $n, $host, $walls) = @$row;
	$ways{$name} = [ map { Zklock::Proxy->start($zk) } 1 .. $n ];
	$server{$name} = Zklock::Server->new($name, connect => 0,
		zookeeper => join(',', (map { "$host:" . $_->port } @{ $ways{$name} }), map { wall() } @$walls),
		conf      => ["zklock.session_timeout = '12s'"]);
}

# The way with which the worker is connected
sub connected($name)
{
	my $session = $server{$name}->zk_session;
	my ($port) = ($session->{server} // '') =~ /:(\d+)$/ or return;
	return $session->{state} eq 'connected' ? (grep { $_->port == $port } @{ $ways{$name} })[0] : undef;
}

# Drops the connections of all these, when each has been of use, and returns when there are others.
sub drop_all(@names)
{
	my %seen = map { $_ => $server{$_}->zk_session } @names;
	foreach my $name (@names)
	{
		wait_until { $server{$name}->zk_session->{requests} > $seen{$name}{requests} } "an answer to $name";
		connected($name)->drop;
	}
	foreach my $name (@names)
	{
		wait_until { $server{$name}->zk_session->{reconnects} > $seen{$name}{reconnects} && connected($name) } "$name to be connected";
	}
	return;
}

subtest 'each is tried in its turn, none twice in a row, with an even number, too' => sub {
	$_->wait_session foreach values %server;
	# The library goes another way until it has been connected.
	drop_all(keys %server);
	my %order;
	for (1 .. 5)
	{
		my @names = grep { @{ $order{$_} // [] } < @{ $ways{$_} } } sort keys %server;
		drop_all(@names);
		push @{ $order{$_} }, connected($_) foreach @names;
	}
	foreach my $name (sort keys %server)
	{
		my @order = @{ $order{$name} };
		my %seen = map { $_->port => 1 } @order;
		is(scalar keys %seen, scalar @order, "$name: each of them");
		# The last one is connected; the first comes next.
		$ways{$name} = [ $order[-1], @order[ 0 .. $#order - 1 ] ];
		hold($server{$name}, $name, "/dead/$name");
		$before{$name} = [ $server{$name}->session_id, $server{$name}->worker_pid, @{ holdings($server{$name}) } ];
	}
};

subtest 'no lock is lost' => sub {
	my %gone;
	foreach my $row (@table)
	{
		my ($name, undef, undef, undef, @fates) = @$row;
		foreach my $i (0 .. $#fates)
		{
			my $way = $ways{$name}[$i];
			$fates{ $fates[$i] }->($way);
			$gone{ $way->port } = 1;
		}
	}
	foreach my $row (@table)
	{
		my ($name, undef, undef, undef, @fates) = @$row;
		my $way;
		wait_until { $way = connected($name) and !$gone{ $way->port } } "$name to be connected elsewhere";
		$server{$name}->wait_renewed;
		is_deeply([ $server{$name}->session_id, $server{$name}->worker_pid, @{ holdings($server{$name}) } ], $before{$name},
			"$name: @fates, and the rest serves");
	}
};

subtest 'if all are slow, one of them is given the time that it takes' => sub {
	my ($a, @slow) = ($server{two_slow}, @{ $ways{two_slow} });
	my ($mark, $id) = ($a->log_mark, $a->session_id);
	$_->delay(1000 * $timeout * 0.45) foreach @slow;
	$a->wait_log(qr/LOG:  lost connection to ZooKeeper(?s:.*)LOG:  connected to ZooKeeper server/, $mark);
	my $requests = $a->zk_session->{requests};
	wait_until { $a->zk_session->{requests} > $requests + 3 } 'answers';
	my $lost = () = $a->log_since($mark) =~ /LOG:  lost connection to ZooKeeper/g;
	cmp_ok($lost, '<=', 3, 'they are not left for one another without an end');
	$_->delay(0) foreach @slow;
	$a->wait_session;
	is($a->session_id, $id, 'and the session lives on');
};

$_->heal foreach map { @$_ } values %ways;
$_->delay(0) foreach map { @$_ } values %ways;
close $_ foreach @sockets;
$_->wait_session foreach values %server;
done_clean($zk, map { $server{$_} } sort keys %server);
