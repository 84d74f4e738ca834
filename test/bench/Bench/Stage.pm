# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Stage - the servers and load generators of a benchmark, started when they are needed

=head1 SYNOPSIS

  # or 'disk', 'ensemble', 'delay'; undef if there is no such place
  my $stage = Bench::Stage->new('memory', warm_up => 10);
  $stage->server('a');         # Zklock::Server: with zklock
  $stage->central;             # one without, for everybody's advisory locks
  $stage->url('a');            # for JDBC; there is a table
  $stage->conninfo('a');       # the same for libpq
  $stage->sql; $stage->c; $stage->curator(2); $stage->jdbc(2); $stage->kazoo(1);   # Bench::Peer
  $stage->etcd(1) if $stage->has_etcd; $stage->redis(1) if $stage->has_redis;      # likewise
  $stage->warm_up($peer, $what, sessions => 16, ...);    # once for each of what it does
  $stage->sessions(a => 16, ...);      # opens so many, if there are fewer; 'a:16'

The places are

  memory    one ZooKeeper server, data in memory
  disk      one ZooKeeper server, data on a disk; it and PostgreSQL use fsync
  ensemble  three ZooKeeper servers, data in memory; all are clients of the same follower
  delay     as memory, but what is sent between programs on different hosts takes 0.5 ms: clients of ZooKeeper, etcd
            and PostgreSQL connect to relays

ZooKeeper has its sample configuration's tickTime of 2 s. PostgreSQL logs no statements. etcd has one member, or
three in place of an ensemble, and its data where ZooKeeper has its own; Redis keeps nothing.

C<warm_up> lets a program work for so many seconds, and on until its figures stand still, but not for longer than three
times as long: one in Java compiles itself as it runs.

=cut

package Bench::Stage;

use v5.36;

use Bench::Figures qw(still);
use Bench::Peer;
use File::Temp qw(tempdir);
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use Time::HiRes qw(time);
use Zklock::Process;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

# Sessions on one server, at most
use constant SESSIONS => 1100;

# On each way from one host to another, microseconds
use constant DELAY => 500;

# Where ZooKeeper's servers and etcd's may keep their data, and the MB that three of them need, with room to spare
my %candidates = (
	memory => ['/dev/shm', '/run', '/tmp'],
	disk   => [ $ENV{TESTDATADIR} // (), $ENV{TMPDIR} // (), '/var/tmp', '/tmp' ]);
my $needed = 3000;

sub _fits($kind, $directory)
{
	return 0 unless -d $directory && -w _;
	my ($type, $blocks, $size) = split / /, `stat -f -c '%T %a %S' '$directory'`;
	return ($type eq 'tmpfs') == ($kind eq 'memory') && $blocks * $size / 1e6 >= $needed;
}

my $stages = 0;

sub new($class, $place, %opt)
{
	my $kind    = $place eq 'disk' ? 'disk' : 'memory';
	my ($found) = grep { _fits($kind, $_) } @{ $candidates{$kind} } or return undef;
	my $directory = tempdir('zklock-bench-XXXXXX', DIR => $found, CLEANUP => 1);
	my $self = bless {
		number    => ++$stages,
		place     => $place,
		warm_up   => $opt{warm_up} || 0,
		directory => $directory,
		servers   => {},
		peers     => {},
		processes => {},
		sessions  => {} }, $class;
	$self->{zk} = Zklock::ZooKeeper->ensemble(
		$place eq 'ensemble' ? 3 : 1,
		place       => $directory,
		tickTime    => 2000,
		heap        => 512,
		io_threads  => undef,
		forceSync   => 'yes',
		# As it runs in earnest, not as it starts quickly, if it is to be warm
		java => [ $opt{warm_up} ? '-XX:TieredStopAtLevel=4' : (), '-Dzookeeper.preAllocSize=16384' ]);
	# A leader answers its own clients sooner than those of the others.
	my ($server) = ($self->{zk}->followers, $self->{zk}->servers);
	$self->{hosts} = '127.0.0.1:' . $self->_way($server->port);
	# ZooKeeper itself
	$self->c->call('prepare', path => '/bench/warm%d', count => 16);
	$self->warm_up($self->c, 'chains', kind => 'textbook');
	return $self;
}

sub warm_up($self, $peer, $what, %job)
{
	return $peer if !$self->{warm_up} || $peer->{warm}{$what}++;
	my ($from, @rates) = (time);
	until (time >= $from + $self->{warm_up} && (still(@rates) || time >= $from + 3 * $self->{warm_up}))
	{
		my ($answer) = $self->together(0.03, 1, [ $peer, 'run', path => '/bench/warm%d', sessions => 16, think => 0, %job ]);
		push @rates, scalar split(/ /, $answer->{durations});
	}
	return $peer;
}

# A process of another make, which runs until the end
sub _process($self, $name, @argv)
{
	return $self->{processes}{$name} ||= Zklock::Process->new(name => "${name}_$self->{number}", argv => \@argv);
}

# The port by which one reaches that of a server
sub _way($self, $target)
{
	return $target if $self->place ne 'delay';
	return $self->{ways}{$target} ||= do
	{
		my $port = PostgreSQL::Test::Cluster::get_free_port();
		$self->{processes}{"relay_$port"} = Bench::Peer::relay($port, $target, DELAY);
		wait_until { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) } 'a relay';
		$port;
	};
}

sub place { return $_[0]{place}; }
sub zk    { return $_[0]{zk}; }

my @conf = (
	'log_statement = none', 'log_min_messages = warning', 'log_checkpoints = off',
	'shared_buffers = 64MB', 'max_wal_size = 4GB', 'autovacuum = off', "listen_addresses = '127.0.0.1'");

sub server($self, $name, %opt)
{
	return $self->{servers}{$name} ||= Zklock::Server->new(
		"$name$self->{number}",
		zookeeper       => $self->{zk},
		max_connections => SESSIONS,
		%opt,
		conf => [
			@conf, $self->place eq 'disk' ? 'fsync = on' : (),
			"zklock.servers = '$self->{hosts}'", @{ $opt{conf} || [] } ]);
}

sub central($self) { return $self->server('central', preload => 0, extension => 0); }

# A page has one row, so that they do not get into each other's way.
sub _guarded_table($self, $name)
{
	my $server = $self->server($name);
	$server->value($_) foreach
	  q(CREATE TABLE IF NOT EXISTS guarded (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, filler char(500) NOT NULL DEFAULT '')
		WITH (fillfactor = 10)),
	  'INSERT INTO guarded (id) SELECT generate_series(1, 16) ON CONFLICT DO NOTHING';
	return $self->_way($server->port);
}

sub url($self, $name) { return 'jdbc:postgresql://127.0.0.1:' . $self->_guarded_table($name) . '/postgres'; }

sub conninfo($self, $name)
{
	return 'host=127.0.0.1 port=' . $self->_guarded_table($name) . ' dbname=postgres sslmode=disable';
}

sub sql($self) { return $self->{peers}{sql} ||= Bench::Peer->sql; }
sub c($self) { return $self->{peers}{c}   ||= Bench::Peer->c($self->{hosts}); }
sub jdbc($self, $n) { return $self->{peers}{"jdbc$n"} ||= Bench::Peer->jdbc; }
sub kazoo($self, $n) { return $self->{peers}{"kazoo$n"} ||= Bench::Peer->kazoo($self->{hosts}); }
sub etcd($self, $n) { return $self->{peers}{"etcd$n"} ||= Bench::Peer->etcd($self->_etcd_servers); }
sub redis($self, $n) { return $self->{peers}{"redis$n"} ||= Bench::Peer->redis($self->_redis_server); }

sub curator($self, $n)
{
	return $self->warm_up($self->{peers}{"curator$n"} ||= Bench::Peer->curator($self->{hosts}), 'locks');
}

# One server that writes nothing to a disk: there is nothing to compare it with elsewhere.
sub has_redis($self) { return $self->place eq 'memory' && Bench::Peer::can_redis(); }
sub has_etcd($self) { return Bench::Peer::can_etcd(); }

sub _etcd_servers($self)
{
	return $self->{etcd} ||= do
	{
		my @names = map { "etcd$_" } 1 .. ($self->place eq 'ensemble' ? 3 : 1);
		my %url   = map {
			my $name = $_;
			map { ("$name-$_" => 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port()) } qw(client peer)
		} @names;
		$self->_process(
			$_, 'etcd', '--name', $_, '--data-dir', "$self->{directory}/$_", '--logger', 'zap', '--log-level', 'error',
			'--listen-client-urls', $url{"$_-client"}, '--advertise-client-urls', $url{"$_-client"},
			'--listen-peer-urls', $url{"$_-peer"}, '--initial-advertise-peer-urls', $url{"$_-peer"},
			'--initial-cluster', join(',', map { "$_=" . $url{"$_-peer"} } @names),
			'--auto-compaction-mode', 'revision', '--auto-compaction-retention', '1000') foreach @names;
		join(',', map { '127.0.0.1:' . $self->_way($url{"$_-client"} =~ s/.*://r) } @names);
	};
}

sub _redis_server($self)
{
	return $self->{redis} ||= do
	{
		my $port = PostgreSQL::Test::Cluster::get_free_port();
		$self->_process('redis', 'redis-server', '--bind', '127.0.0.1', '--port', $port, '--save', '', '--appendonly', 'no',
			'--dir', $self->{directory});
		"127.0.0.1:$port";
	};
}

sub together($self, @arg) { return Bench::Peer->together(@arg); }

# "sql" is what each session of a group runs at first. The name of a group is that of its server,
# with something behind a dash if need be.
sub sessions($self, $name, $count, $sql = undef)
{
	my $open = $self->{sessions}{$name} || 0;
	if ($open < $count)
	{
		$self->sql->call('close', name => $name) if $open;
		my $server = $self->{servers}{ $name =~ s/-.*//r };
		$self->sql->call('open', name => $name, count => $count,
			conninfo => $server->connstr('postgres'), sql => $sql // '');
		$self->{sessions}{$name} = $count;
	}
	return "$name:$count";
}

# How long a statement takes in the first session of a group, microseconds
sub time_of($self, $name, $sql) { return $self->sql->call('time', name => $name, index => 0, sql => $sql); }

# A session of a group begins to wait.
sub enqueue($self, $name, $index, $path, $acquire, $release)
{
	return $self->sql->call('enqueue', name => $name, index => $index, path => $path, acquire => $acquire, release => $release);
}

# Nothing that a measure has left running may disturb the next one.
sub close_sessions($self)
{
	$self->sql->call('close', name => $_) foreach sort keys %{ $self->{sessions} };
	$self->{sessions} = {};
	return;
}

# Those whose names match
sub stop_servers($self, $which)
{
	$self->close_sessions;
	$_->stop('fast') foreach map { delete $self->{servers}{$_} } grep { $_ =~ $which } keys %{ $self->{servers} };
	return;
}

# Removes transaction logs and snapshots that no server needs any more: a benchmark writes gigabytes of them.
sub tidy($self)
{
	foreach my $directory (glob "$self->{directory}/*/data/version-2")
	{
		foreach my $kind (qw(log snapshot))
		{
			my @files = sort { hex($b =~ s/.*\.//r) <=> hex($a =~ s/.*\.//r) } glob "$directory/$kind.*";
			unlink splice(@files, 3);
		}
	}
	return;
}

sub close($self)
{
	$self->stop_servers(qr/./) if $self->{peers}{sql};
	$_->stop foreach values %{ delete $self->{peers} };
	$_->stop('fast') foreach values %{ delete $self->{servers} };
	$_->stop foreach values %{ delete $self->{processes} };
	$self->zk->stop;
	return;
}

1;
