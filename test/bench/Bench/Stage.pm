# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Stage - the servers and load generators of a benchmark, started when they are needed

=head1 SYNOPSIS

  my $stage = Bench::Stage->new('memory');    # or 'disk', 'ensemble'; undef if there is no such place
  $stage->server('a');         # Zklock::Server: with zklock
  $stage->central;             # one without, for everybody's advisory locks
  $stage->sql; $stage->c; $stage->curator(2); $stage->kazoo(1);    # Bench::Peer
  $stage->sessions(a => 16, ...);      # opens so many, if there are fewer; 'a:16'

The places are

  memory    one ZooKeeper server, data in memory
  disk      one ZooKeeper server, data on a disk, with fsync
  ensemble  three ZooKeeper servers, data in memory; all are clients of the same follower

ZooKeeper has its sample configuration's tickTime of 2 s. PostgreSQL logs no statements.

=cut

package Bench::Stage;

use v5.36;

use Bench::Peer;
use File::Temp qw(tempdir);
use Zklock::Server;
use Zklock::ZooKeeper;

# Sessions on one server, at most
use constant SESSIONS => 1100;

# Where ZooKeeper's servers may keep their data, and the MB that three of them need, with room to spare
my %candidates = (
	memory => ['/dev/shm', '/run', '/tmp'],
	disk   => [ $ENV{TESTDATADIR} // (), $ENV{TMPDIR} // (), '/var/tmp', '/tmp' ]);
my $needed = 1500;

sub _fits($kind, $directory)
{
	return 0 unless -d $directory && -w _;
	my ($type, $blocks, $size) = split / /, `stat -f -c '%T %a %S' '$directory'`;
	return ($type eq 'tmpfs') == ($kind eq 'memory') && $blocks * $size / 1e6 >= $needed;
}

my $stages = 0;

sub new($class, $place)
{
	my $kind    = $place eq 'disk' ? 'disk' : 'memory';
	my ($found) = grep { _fits($kind, $_) } @{ $candidates{$kind} } or return undef;
	my $directory = tempdir('zklock-bench-XXXXXX', DIR => $found, CLEANUP => 1);
	my $self = bless {
		number    => ++$stages,
		place     => $place,
		directory => $directory,
		servers   => {},
		peers     => {},
		sessions  => {} }, $class;
	$self->{zk} = Zklock::ZooKeeper->ensemble(
		$place eq 'ensemble' ? 3 : 1,
		place       => $directory,
		tickTime    => 2000,
		heap        => 512,
		forceSync   => 'yes',
		request_log => 0,
		# As it runs in earnest, not as it starts quickly
		java => [ '-XX:TieredStopAtLevel=4', '-Dzookeeper.preAllocSize=16384' ]);
	# A leader answers its own clients sooner than those of the others.
	$self->{hosts} = $place eq 'ensemble' ? ($self->{zk}->followers)[0]->connect_string : $self->{zk}->connect_string;
	return $self;
}

# Java programs compile themselves as they run, at the expense of all others.
sub warm_up($self, $seconds)
{
	my %job = (path => '/bench/warm%d', sessions => 16);
	$self->c->call('prepare', path => $job{path}, count => $job{sessions});
	$self->together(0.03, $seconds, [ $self->c, 'run', kind => 'textbook', %job ]);
	$self->together(0.03, $seconds, [ $self->curator(1), 'run', think => 0, %job ]);
	return $self;
}

sub place { return $_[0]{place}; }
sub zk    { return $_[0]{zk}; }

my @conf = (
	'log_statement = none', 'log_min_messages = warning', 'log_checkpoints = off',
	'shared_buffers = 64MB', 'max_wal_size = 4GB', 'autovacuum = off');

sub server($self, $name, %opt)
{
	return $self->{servers}{$name} ||= Zklock::Server->new(
		"$name$self->{number}",
		zookeeper       => $self->{zk},
		max_connections => SESSIONS,
		%opt,
		conf => [ @conf, "zklock.servers = '$self->{hosts}'", @{ $opt{conf} || [] } ]);
}

sub central($self)
{
	return $self->server('central', preload => 0, extension => 0, conf => ["listen_addresses = '127.0.0.1'"]);
}

sub sql($self) { return $self->{peers}{sql} ||= Bench::Peer->sql; }
sub c($self) { return $self->{peers}{c}   ||= Bench::Peer->c($self->{hosts}); }
sub curator($self, $n) { return $self->{peers}{"curator$n"} ||= Bench::Peer->curator($self->{hosts}); }
sub kazoo($self, $n) { return $self->{peers}{"kazoo$n"} ||= Bench::Peer->kazoo($self->{hosts}); }
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
	$self->zk->stop;
	return;
}

1;
