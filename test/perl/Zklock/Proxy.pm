# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Proxy - a proxy in front of a ZooKeeper server that injects faults

=head1 SYNOPSIS

  my $proxy = Zklock::Proxy->start($zk);           # or $zk->server(2), or a port
  my $a = Zklock::Server->new('a', zookeeper => $proxy);

  $proxy->reset_counts;
  ...
  is_deeply($proxy->asked, { create2 => 1, getChildren => 1 });

  my $fault = $proxy->lose_reply(op => 'create2');
  $session->query_start("SELECT zk_lock('/a')");
  $proxy->fired($fault);                           # waits until it has happened

The administrator's connection ($zk->shell) and other contenders should not go through
the proxy: it counts and disturbs everything that does.

=head1 FAULTS

Each returns a number for C<fired>, and takes

  op     one name, several ('create|create2', or a list), or '*' for all but pings and multis
         (heartbeats). What several deletions in one multi share is a 'delete' whose path is
         any of theirs; creates of lock nodes in one are a 'create2' in the same way
  nth    which such request from now on, default 1
  times  how many, from the nth on; 0 for all until clear
  path   a regular expression
  any    0 by default: a reply that tells of an error does not count

  lose_reply    the server does it, but the reply never arrives: the connection to the client
                is closed instead
  lose_request  the request does not reach the server; the connection is closed
  hold_reply, hold_request
                that reply or request, and what comes after it on the same connection in this
                direction, stays in the proxy until heal
  hold_reply_of($session, $sql, ...), hold_request_of($session, $sql, ...)
                the session runs the statement until that reply or request of it is held
  refuse        the request does not reach the server, and the client is told that it failed
                with the error "code" of ZooKeeper's
  deny          the server does it, and the client is told that it failed
  forge         the server does it, and in its reply what follows the header is replaced by
                the bytes "body"; not of requests that go out together. Of the reply that sets a
                session up, op 'connect', all is

  fired($fault [, $seconds])
                waits until it has happened, the first time; returns [ operation, path ]
  has_fired($fault)   the same without waiting
  clear               forgets all faults

=head1 OTHER METHODS

  notify(type => ..., state => ..., path => ...)
                the client is told of an event that the server knows nothing of
  garble(share => 0.1, seed => 1)
                that share of all replies and events is changed at random, in ways that the
                client library survives; share 0 ends it. Zklock::Garbler has the details
  cut, heal     closes all connections and refuses new ones; back to normal (ends cut, sustain,
                blackhole and held messages, not delay)
  sustain       until heal the sessions of clients that are connected now live on, whatever becomes of the clients: the
                servers get pings in their stead, whose answers stay here. So a client may be stopped, or cut off, until
                its lease is over, for as long as it takes to look at it; otherwise its session ends a moment later
  drop          closes all connections; new ones are welcome
  blackhole($direction)
                nothing gets through any more while connections stay open, new ones too, until
                heal; 'both' (default), 'requests' or 'replies'
  delay($ms)    every reply takes that much longer; 0 ends it
  throttle($rate)   no more requests than that pass in a second; 0 ends it
  hang_up($on)  with a true value each connection is closed right after the handshake, which
                the client still gets; so are those that stand, at once
  connections, accepted   how many there are now, and were made since the start or reset_counts
  target($zk or port [, raw => 1])
                where new connections go from now on. What is no ZooKeeper server is raw: bytes
                pass as they are
  counts, reset_counts
                requests by operation since the start or the last reset: { create2 => 3, ... }.
                Besides ZooKeeper's operations there are 'connect' (sessions set up or resumed)
                and 'notification' (watch events sent to the client)
  asked         what clients have asked for since asked or reset_counts was called last: the
                counts without pings, multis and notifications, without the 'exists' of "/", which
                reminds a server whose answers take long, and without what settle() of
                Zklock::Server leaves behind, the watch on its path, which is set at some time
                and removed later
  requests      the same as a list of [ operation, path ], in order; the path is undef where a
                request begins with none. That of a multi is the path of its first operation,
                but several deletions, or creates of lock nodes, in one are as many requests
  wait_all_sent while no reply gets through: until the client has sent all that it will of what
                it has been asked for. It reminds a server that sits on its requests again and
                again, by one 'exists', in rounds in which it sends whatever else it may; when
                it has done so twice, one whole round is over
  port, connect_string([ $chroot ]), stop, pause, resume

=cut

package Zklock::Proxy;

use v5.36;

use parent 'Zklock::LinePeer';

use Carp;
use File::Basename qw(dirname);
use JSON::PP qw(encode_json);
use PostgreSQL::Test::Cluster;
use Zklock::Util qw(wait_until);

my $number = 0;

sub start($class, $target)
{
	my %link = (port => PostgreSQL::Test::Cluster::get_free_port(), target => ref $target ? $target->port : $target);
	my $self = $class->between('proxy_' . ++$number, \%link);
	$self->{port} = $link{port};
	return $self;
}

# The links are those of zk_proxy.pl.
sub between($class, $name, @links)
{
	my $script = dirname(__FILE__) . '/../zk_proxy.pl';
	my $self   = $class->SUPER::new(name => $name, argv => [ $^X, $script, encode_json(\@links) ]);
	$self->call('ping');    # it listens now
	return $self;
}

sub port { return $_[0]{port}; }

sub connect_string($self, $chroot = undef) { return "127.0.0.1:$self->{port}" . ($chroot // ''); }

my %faults = (
	lose_reply   => [qw(lose reply)],
	lose_request => [qw(lose request)],
	hold_reply   => [qw(hold reply)],
	hold_request => [qw(hold request)],
	refuse       => [qw(refuse request)],
	deny         => [qw(deny reply)],
	forge        => [qw(forge reply)]);

foreach my $name (keys %faults)
{
	my ($action, $direction) = @{ $faults{$name} };
	no strict 'refs';
	*$name = sub ($self, %arg) {
		croak 'op is missing' unless $arg{op};
		$arg{body} = unpack('H*', $arg{body}) if defined $arg{body};
		return $self->call('fault', { action => $action, direction => $direction, %arg });
	};
}

sub has_fired($self, $fault) { return $self->call('fired', { id => $fault }); }

sub fired($self, $fault, $timeout = undef)
{
	return wait_until { $self->has_fired($fault) } "fault $fault of $self->{name}", $timeout;
}

foreach my $hold (qw(hold_reply hold_request))
{
	no strict 'refs';
	*{"${hold}_of"} = sub ($self, $session, $sql, @what) {
		my $fault = $self->$hold(@what);
		$session->query_start($sql);
		return $self->fired($fault);
	};
}

foreach my $command (qw(counts requests reset_counts clear connections accepted cut heal sustain drop notify garble))
{
	no strict 'refs';
	*$command = sub ($self, %arg) { return $self->call($command, \%arg); };
}

sub asked($self)
{
	my $counts = $self->counts;
	delete @{$counts}{qw(ping multi notification)};
	foreach my $request (@{ $self->requests })
	{
		my ($op, $path) = @$request;
		$counts->{$op}-- if $op =~ /^(?:getData|removeWatches)$/ && ($path // '') eq '/t/barrier' || $op eq 'exists' && $path eq '/';
	}
	$counts->{$_} or delete $counts->{$_} foreach qw(exists getData removeWatches);
	$self->reset_counts;
	return $counts;
}

sub wait_all_sent($self)
{
	my $reminders = $self->counts->{exists} || 0;
	wait_until { ($self->counts->{exists} || 0) >= $reminders + 2 } 'reminders behind requests without an answer';
	return;
}

sub blackhole($self, $direction = 'both') { return $self->call('blackhole', { direction => $direction }); }
sub delay($self, $ms) { return $self->call('delay', { ms => $ms }); }
sub throttle($self, $rate) { return $self->call('throttle', { rate => $rate }); }

sub target($self, $target, %arg)
{
	return $self->call('target', { port => ref $target ? $target->port : $target, raw => $arg{raw} || 0 });
}

sub hang_up($self, $on)
{
	$self->call('hang_up', { on => $on ? 1 : 0 });
	$self->drop if $on;
	return;
}

1;
