# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::ZooKeeper - real ZooKeeper servers for tests

=head1 SYNOPSIS

  my $zk = Zklock::ZooKeeper->standalone;             # started and ready
  my $zk = Zklock::ZooKeeper->ensemble(3, tickTime => 1000);

  $zk->connect_string([ '/chroot' ])    # '127.0.0.1:11111,127.0.0.1:11112'
  $zk->stop; $zk->start; $zk->restart; $zk->kill9; $zk->pause; $zk->resume;
  $zk->leader->kill9;            # one server of an ensemble
  $zk->server(2)->restart;       # likewise, counted from 1

  my $mark = $zk->mark;
  ...
  my $count = $zk->requests($mark);   # { create2 => 1, getChildren2 => 1, delete => 1 }

  $zk->shell->create('/a');      # administration: see Zklock::Shell
  $zk->children('/a')            # list of names; empty also if /a does not exist
  $zk->wait_children('/a', 2)    # the same list, once it has so many
  $zk->owners('/a')              # the sessions that these are of, in the same order
  $zk->places('/a')              # a reference to a list of "name owner": who has which place
  $zk->foreigner('/a')           # a contender of another make; returns the path of its node
  $zk->wait_watched('/a/b' [, @session_ids ]);   # until somebody, or these, wait for this node
                                                 # to change or go

=head1 OPTIONS

Of C<standalone> and C<ensemble>, all optional:

  tickTime         ms, default 500: sessions of 1 s and more, expiry seen within
                   half a second. ZooKeeper's sample configuration has 2000.
  syncLimit        ticks, default 10; scaled, as Zklock::Util has it
  minSessionTimeout, maxSessionTimeout     ms, default 2 ticks and 60000, scaled
  container_check  ms between looks for empty containers, default an hour: what a
                   test counts must not depend on when they go. ZooKeeper has 60000.
  forceSync        'no' (default) or 'yes': fsync of the transaction log
  heap             MB, default 128
  io_threads       besides the one that waits for clients, default 0: that one reads and writes itself, for
                   less processor time. undef: ZooKeeper's own default, two for each processor
  request_log      1: log every request, as requests() needs it
  links            1: the servers of an ensemble reach each other through proxies
  conf             { key => value } added to zoo.cfg
  java             [ '-Dzookeeper.x=y', ... ]
  file_size        KB that no file may exceed, as on a disk that is full
  stale_nodes      1: allows stale_node
  place            directory below which the servers keep their data; default: the test's own
  tls              a Zklock::Tls, and TLS on another port: see there
  start            0: create only

=head1 METHODS

The object stands for all servers of an ensemble; C<server(n)>, C<servers>,
C<leader> and C<followers> give single ones. Both kinds know

  start stop kill9 pause resume restart wait_ready running connect_string port
  four_letter($command) watch_count log_file mark requests

and C<wipe>, which removes the data of servers that do not run; with C<epochs =E<gt> 1> their later transactions
have higher numbers all the same.

start and restart return when the servers serve clients. C<start(wait =E<gt> 0)>
does not wait (an ensemble without a quorum never serves). A single server also has
C<pid> and C<mode>.
C<options(java =E<gt> [...], file_size =E<gt> ...)> changes these options for later starts.

In an ensemble with C<links>, C<isolate($server)> lets nothing pass between it and the others, while
its clients notice nothing: what is connected stays so, and new connections are refused.
C<rejoin($server)> lets pass what was held and all that follows. The servers notice after
syncLimit ticks.

C<requests($mark [, session =E<gt> '0x100...'])> counts by operation what the server, or the
first one, has processed since C<mark>, pings and multis left out: zklock's heartbeats and
quorum checks are multis, which come when they like, and so are its downgrades. An operation
that failed counts as well. C<request_list> gives the single ones in order: { type, path }, the
path of reads only.

C<stale_node($path, $session, $czxid)> puts an ephemeral node of a session that does not
exist into the data of all servers: see test/interop/StaleNode.java.

=cut

package Zklock::ZooKeeper;

use v5.36;

use Carp;
use List::Util qw(sum0 uniq);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Scalar::Util qw(weaken);
use Zklock::Proxy;
use Zklock::Shell;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper::Server;

my $sets = 0;

sub standalone($class, %opt) { return $class->ensemble(1, %opt); }

sub ensemble($class, $n, %opt)
{
	$opt{tickTime} ||= 500;
	my $self = bless { number => ++$sets, tick_time => $opt{tickTime}, servers => [] }, $class;

	my @ports = map {
		{ map { $_ => PostgreSQL::Test::Cluster::get_free_port() } qw(client quorum election) }
	} 1 .. $n;
	my $links = delete $opt{links} && $n > 1 ? $self->_start_links(@ports) : undef;
	foreach my $id (1 .. $n)
	{
		# Each server's own view of how to reach the others.
		my $peers = '';
		foreach my $peer ($n > 1 ? (1 .. $n) : ())
		{
			my $to = $links && $peer != $id ? $links->{"$id $peer"} : $ports[ $peer - 1 ];
			$peers .= "server.$peer=127.0.0.1:$to->{quorum}:$to->{election}\n";
		}
		my $name = 'zookeeper' . ($sets > 1 ? "_$sets" : '') . ($n > 1 ? "_$id" : '');
		push @{ $self->{servers} },
		  Zklock::ZooKeeper::Server->new($name, $id, $ports[ $id - 1 ]{client}, $peers, %opt);
	}
	weaken($_->{set} = $self) foreach $self->servers;
	$self->start if $opt{start} // 1;
	return $self;
}

# The proxies between the servers. Returns { 'from to' => ports that lead there }.
sub _start_links($self, @ports)
{
	my %special = (quorum => { mode => 'raw', patience => 4 }, election => { mode => 'greeting' });
	my (%there, @links);
	foreach my $from (1 .. @ports)
	{
		foreach my $to (grep { $_ != $from } 1 .. @ports)
		{
			foreach my $kind (sort keys %special)
			{
				my $port = $there{"$from $to"}{$kind} = PostgreSQL::Test::Cluster::get_free_port();
				push @links,
				  { from => $from, to => $to, port => $port, target => $ports[ $to - 1 ]{$kind}, %{ $special{$kind} } };
			}
		}
	}
	$self->{links} = Zklock::Proxy->between('links', @links);
	return \%there;
}

sub isolate($self, $server) { return $self->{links}->call('part', { server => $server->id }); }
sub rejoin($self, $server) { return $self->{links}->call('heal', { server => $server->id }); }

sub servers { return @{ $_[0]{servers} }; }

sub server($self, $n) { return $self->{servers}[ $n - 1 ] || croak "there is no ZooKeeper server $n"; }

sub start($self, %opt)
{
	$_->start(wait => 0) foreach $self->servers;
	return unless $opt{wait} // 1;
	$self->wait_ready;
	$self->_shell_back;
	return;
}

# After a restart the administrator's connection is to work at once.
sub _shell_back($self) { $self->{shell}->reconnect if $self->{shell}; return; }

# All at once: one after the other would leave the rest without a leader for a while.
sub stop($self)
{
	$_->begin_stop foreach $self->servers;
	$_->stop       foreach $self->servers;
	return;
}

foreach my $method (qw(kill9 pause resume wipe options wait_ready))
{
	no strict 'refs';
	*$method = sub ($self, %opt) { $_->$method(%opt) foreach $self->servers; return; };
}

sub restart($self) { $self->stop; $self->start; return; }
sub running($self) { return scalar grep { $_->running } $self->servers; }

foreach my $method (qw(port tls_port log_file mark request_list requests))
{
	no strict 'refs';
	*$method = sub ($self, @arg) { return $self->server(1)->$method(@arg); };
}

sub connect_string($self, $chroot = undef)
{
	return join(',', map { $_->connect_string } $self->servers) . ($chroot // '');
}

sub tick_time { return $_[0]{tick_time}; }

# The answers of all servers that run, one after the other.
sub four_letter($self, $command)
{
	my @servers = grep { $_->running } $self->servers;
	return $servers[0]->four_letter($command) if @servers == 1;
	return join('', map { '== ' . $_->name . "\n" . $_->four_letter($command) } @servers);
}

sub watch_count($self) { return sum0(map { $_->watch_count } grep { $_->running } $self->servers); }

# The paths of all ephemeral nodes, whoever has them.
sub ephemerals($self)
{
	my $text = $self->four_letter('dump');
	croak "no server tells the ephemeral nodes: '$text'" unless $text =~ /^Sessions with Ephemerals/m;
	return uniq(sort($text =~ m{^\t(/.*)$}mg));
}

# Is a node's data watched, by all of these sessions if any are given?
sub watched($self, $node, @sessions)
{
	my ($watchers) = $self->four_letter('wchp') =~ m{^\Q$node\E\n((?:\t.*\n)*)}m or return 0;
	return !grep { $watchers !~ /^\t$_$/m } @sessions;
}

sub wait_watched($self, $node, @sessions)
{
	wait_until { $self->watched($node, @sessions) }
	sub { "a watch on $node by @sessions:\n" . $self->four_letter('wchp') };
	return;
}

# Waits until there is one.
sub leader($self)
{
	return wait_until { (grep { $_->mode =~ /^(leader|standalone)$/ } $self->servers)[0] } 'a ZooKeeper leader';
}

sub followers($self) { return grep { $_->mode eq 'follower' } $self->servers; }

sub stale_node($self, @node)
{
	my @files = map { $_->dir . '/stale' } $self->servers;
	append_to_file($_, "@node\n") foreach @files;
	wait_until { !grep { -e } @files } "the stale node $node[0]";
	return;
}

# The administrator's connection, made at the first use.
sub shell($self)
{
	unless ($self->{shell})
	{
		$self->{shell} = Zklock::Shell->new(name => "zk_shell_$self->{number}");
		$self->{shell}->connect($self->connect_string);
	}
	return $self->{shell};
}

sub children($self, $path) { return @{ $self->shell->ls($path, missing_ok => 1) }; }

sub places($self, $path)
{
	return [ map { "$_ " . $self->shell->stat("$path/$_")->{ephemeralOwner} } $self->children($path) ];
}

sub owners($self, $path) { return map { s/.* //r } @{ $self->places($path) }; }

sub wait_children($self, $path, $n)
{
	my @nodes;
	wait_until { @nodes = $self->children($path); @nodes == $n } sub { "$n nodes in $path; there are @nodes" };
	return @nodes;
}

# A node with a name that locks have is a contender, whoever made it.
sub foreigner($self, $path)
{
	return $self->shell->create("$path/_c_00000000-0000-0000-0000-000000000000-lock-",
		ephemeral => 1, sequence => 1, makepath => 1);
}

1;
