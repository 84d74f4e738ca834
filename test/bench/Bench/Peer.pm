# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Peer - a load generator, as a process that answers requests

=head1 SYNOPSIS

  my $sql  = Bench::Peer->sql;                        # sql_load.c
  my $c    = Bench::Peer->c($connect_string);         # zk_load.c
  my $java = Bench::Peer->curator($connect_string);   # CuratorLoad.java
  my $py   = Bench::Peer->kazoo($connect_string);     # kazoo_load.py

  my $result = $c->call('run', kind => 'create', path => '/p%d', ...);
  my @results = Bench::Peer->together($lead, $seconds, [ $java1, 'run', ... ], [ $java2, 'run', ... ]);

C<together> begins all requests at the same moment, and adds to each the arguments C<begin>, C<from> and
C<end>: what happens in the first C<$lead> seconds does not count. See load.h for the form of the requests. Each of
the programs begins with a description of its own. They are compiled when they are first used.

=cut

package Bench::Peer;

use v5.36;

use parent 'Zklock::LinePeer';

use Carp;
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
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
	state $classes = Zklock::Java::compile(
		PostgreSQL::Test::Utils::tempdir('load_classes'), Zklock::JavaPeer::classpath(), "$source/CuratorLoad.java");
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

sub curator($class, $hosts)
{
	return $class->_start('curator', 'java', '-Xms128m', '-Xmx512m', '-XX:-UsePerfData',
		'-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
		'-cp', _classes() . ':' . Zklock::JavaPeer::classpath(), 'CuratorLoad')->_connected($hosts);
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
