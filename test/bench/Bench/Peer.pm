# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Peer - a load generator, as a process that answers requests

=head1 SYNOPSIS

  my $sql  = Bench::Peer->sql;                        # sql_load.c
  my $c    = Bench::Peer->c($connect_string);         # zk_load.c
  my $java = Bench::Peer->curator($connect_string);   # JavaLoad.java
  my $jdbc = Bench::Peer->jdbc;                       # the same, without ZooKeeper
  my $py   = Bench::Peer->kazoo($connect_string);     # kazoo_load.py
  my $go   = Bench::Peer->etcd($addresses);           # etcd_load.go
  my $red  = Bench::Peer->redis($address);            # redis_load.c
  my $relay = Bench::Peer::relay($port, $target, $microseconds);    # relay.c: a Zklock::Process

  my $result = $c->call('run', kind => 'create', path => '/p%d', ...);
  my @results = Bench::Peer->together($lead, $seconds, [ $java1, 'run', ... ], [ $java2, 'run', ... ]);

C<together> begins all requests at the same moment, and adds to each the arguments C<begin>, C<from> and
C<end>: what happens in the first C<$lead> seconds does not count. See load.h for the form of the requests. Each of
the programs begins with a description of its own. They are compiled when they are first used. C<can_etcd> and
C<can_redis> say whether the packages are there that theirs need.

=cut

package Bench::Peer;

use v5.36;

use parent 'Zklock::LinePeer';

use Carp;
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use Zklock::Jars;
use Zklock::JavaPeer;
use Zklock::Util qw(default_timeout);

our @CARP_NOT = qw(Zklock::LinePeer);

# A ZooKeeper session may be starved for a while on a machine that is this busy.
my $session_timeout = 20000;

# From the request to its beginning, us: all programs have got it by then.
my $start_delay = 30_000;

my $source = dirname(__FILE__) . '/..';
my $number = 0;

sub _pg_config { chomp(my $value = `pg_config --$_[0]`); return $value; }

# A program in C, compiled with these libraries
sub _compiled($name, @libraries)
{
	state $directory = PostgreSQL::Test::Utils::tempdir('load');
	my @gcc = ('gcc', '-O2', '-I/usr/include/zookeeper', '-I' . _pg_config('includedir'), '-L' . _pg_config('libdir'));
	-x "$directory/$name"
	  or system(@gcc, '-o', "$directory/$name", "$source/$name.c", "$source/load.c", @libraries) == 0
	  or croak "cannot compile $name.c";
	return "$directory/$name";
}

sub _classes
{
	state $classes = compile(
		PostgreSQL::Test::Utils::tempdir('load_classes'), classpath(@peer_jars), "$source/JavaLoad.java");
	return $classes;
}

sub _start($class, $name, @argv) { return $class->SUPER::new(name => $name . '_' . ++$number, argv => \@argv); }

sub _connected($self, $hosts)
{
	$self->call('connect', hosts => $hosts, timeout => $session_timeout);
	return $self;
}

sub sql($class) { return $class->_start('sql_load', _compiled('sql_load', '-lpq')); }
sub c($class, $hosts) { return $class->_start('zk_load', _compiled('zk_load', qw(-lzookeeper_mt -lpthread)))->_connected($hosts); }
sub kazoo($class, $hosts) { return $class->_start('kazoo', 'python3', "$source/kazoo_load.py")->_connected($hosts); }

# Options of JVMs: a test has some for a quick start.
our @java;

sub _java($class, $name)
{
	return $class->_start($name, 'java', '-Xms128m', '-Xmx512m', '-XX:-UsePerfData', @java,
		'-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
		'-cp', join(':', _classes(), classpath(@peer_jars), classpath('postgresql')), 'JavaLoad');
}

sub curator($class, $hosts) { return $class->_java('curator')->_connected($hosts); }
sub jdbc($class) { return $class->_java('jdbc'); }

# Debian's sources of Go programs
my $go_path = '/usr/share/gocode';

sub can_etcd { return -x '/usr/bin/etcd' && -x '/usr/bin/go' && -d "$go_path/src/go.etcd.io/etcd/clientv3" && -d "$go_path/src/github.com/lib/pq"; }
sub can_redis { return -x '/usr/bin/redis-server' && -e '/usr/include/hiredis/hiredis.h'; }

sub etcd($class, $hosts)
{
	# test/perl/run-tap has one that is kept from run to run.
	state $program = do
	{
		my ($directory) = grep { -x "$_/etcd_load" } $ENV{ZKLOCK_JAVA} // '';
		$directory //= PostgreSQL::Test::Utils::tempdir('etcd_load');
		system("$source/etcd-load", $directory) == 0 or croak 'cannot compile etcd_load.go';
		"$directory/etcd_load";
	};
	return $class->_start('etcd_load', $program)->_connected($hosts);
}

sub redis($class, $host) { return $class->_start('redis_load', _compiled('redis_load', qw(-lhiredis -lpq -lpthread)))->_connected($host); }

sub relay($port, $target, $delay)
{
	return Zklock::Process->new(name => "relay_$port", argv => [ _compiled('relay'), $port, $target, $delay ]);
}

sub encode_request($self, $id, $command, %argument)
{
	return join("\t", $id, $command, map { "$_=$argument{$_}" } sort keys %argument);
}

# What takes long may be a queue of a thousand sessions that comes to an end.
sub call($self, @request) { return $self->result($self->send(@request), 3 * default_timeout()); }

sub together($class, $lead, $seconds, @requests)
{
	my $begin = int(clock_gettime(CLOCK_MONOTONIC) * 1e6) + $start_delay;
	my $from  = $begin + int($lead * 1e6);
	my $end   = $from + int($seconds * 1e6);
	my @asked = map {
		my ($peer, $command, %argument) = @$_;
		[ $peer, $peer->send($command, %argument, begin => $begin, from => $from, end => $end) ];
	} @requests;
	return map { $_->[0]->result($_->[1], $seconds + 3 * default_timeout()) } @asked;
}

1;
