#!/usr/bin/perl
# Copyright (c) 2026, zklock contributors
#
# tcp_links.pl LINKS
#
# What is between the servers of a ZooKeeper ensemble: a TCP proxy for each way from one
# server to another, in one process. LINKS is JSON, a list of
#
#   { "from": 1, "to": 2, "kind": "quorum" or "election", "port": ..., "target": ... }
#
# Commands come as lines of JSON on standard input, [id, command, options], and each gets
# one line as answer; Zklock::ZooKeeper is the other end.
#
#   cut  { "servers": [1, 2] }   nothing passes between them: what is connected stays so,
#                                and what is sent stays here; new connections are refused
#   mend { "servers": [1, 2] }   what was held goes on its way, as TCP would send it again
#
# Servers tell each other in the first message of an election connection where they can
# be called back. That would lead around the proxy, so the port is replaced.
#
# Ends at the end of the input.

use v5.36;

use FindBin;
use lib $FindBin::Bin;
use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use JSON::PP;
use Socket qw(IPPROTO_TCP TCP_NODELAY);
use Time::HiRes qw(time);
use Zklock::ProxyLoop;

my @links = @{ JSON::PP->new->utf8->decode($ARGV[0] || die "usage: $0 links\n") };
my %connections;             # number => { link, client, server, greeted }
my $last_connection = 0;
my @arrivals;                # accepted, not yet connected: { link, socket, until }
my %by_handle;               # file descriptor => [connection, 'client' or 'server']

$SIG{PIPE} = 'IGNORE';
STDOUT->autoflush(1);

sub listen_on($link)
{
	$link->{listener} ||= IO::Socket::INET->new(
		LocalAddr => '127.0.0.1',
		LocalPort => $link->{port},
		Listen    => 128,
		ReuseAddr => 1,
		Blocking  => 0) or die "cannot listen on port $link->{port}: $!";
	return;
}

# A server that follows a leader asks again for a while if that does not listen yet. Here
# it has been let in already, so the asking is up to us.
sub accept_connection($link)
{
	my $client = $link->{listener}->accept or return;
	push @arrivals, {
		link   => $link,
		socket => $client,
		until  => time + ($link->{kind} eq 'quorum' ? 4 : 0) };
	return;
}

sub connect_arrivals
{
	foreach my $arrival (splice @arrivals)
	{
		my $link   = $arrival->{link};
		my $server = $link->{cut} ? undef : IO::Socket::INET->new(
			PeerAddr => '127.0.0.1',
			PeerPort => $link->{target});
		if ($server)
		{
			new_connection($link, $arrival->{socket}, $server);
		}
		elsif (!$link->{cut} && time < $arrival->{until})
		{
			push @arrivals, $arrival;
		}
	}
	return;
}

# A side has its socket, what is to be written to it (out), and whether it closed (eof).
sub new_connection($link, $client, $server)
{
	my $number = ++$last_connection;
	my $c = $connections{$number} = {
		number  => $number,
		link    => $link,
		client  => { socket => $client, out => '', eof => 0 },
		server  => { socket => $server, out => '', eof => 0 },
		# The beginning of what the client sends, until that is complete.
		greeting => $link->{kind} eq 'election' ? '' : undef };
	foreach my $side (qw(client server))
	{
		my $socket = $c->{$side}{socket};
		$socket->blocking(0);
		setsockopt($socket, IPPROTO_TCP, TCP_NODELAY, 1);
		$by_handle{ fileno $socket } = [ $c, $side ];
	}
	return;
}

sub close_connection($c)
{
	delete $connections{ $c->{number} } or return;
	foreach my $side (qw(client server))
	{
		delete $by_handle{ fileno $c->{$side}{socket} };
		close $c->{$side}{socket};
	}
	return;
}

# The greeting: version (negative; older versions have none), id of the server, length,
# and host:port of its election address. Returns what to send on, or undef to wait for more.
sub redirect($link, $greeting)
{
	return undef if length $greeting < 8;
	return $greeting if unpack('q>', $greeting) >= 0;
	return undef if length $greeting < 20;
	my ($version, $id, $length) = unpack('q> q> l>', $greeting);
	return undef if length $greeting < 20 + $length;
	my $address = substr($greeting, 20, $length);
	my ($back) = grep {
		$_->{from} == $link->{to} && $_->{to} == $link->{from} && $_->{kind} eq 'election' } @links;
	$address =~ s/:\d+$/:$back->{port}/;
	return pack('q> q> l>', $version, $id, length $address) . $address . substr($greeting, 20 + $length);
}

sub read_side($c, $name)
{
	my $other = $c->{ $name eq 'client' ? 'server' : 'client' };
	my $bytes = read_some($c->{$name});
	return if $bytes eq '';
	if ($name eq 'client' && defined $c->{greeting})
	{
		$c->{greeting} .= $bytes;
		$bytes = redirect($c->{link}, $c->{greeting});
		return unless defined $bytes;
		undef $c->{greeting};
	}
	$other->{out} .= $bytes;
	return;
}

sub links_between($one, $other)
{
	return grep {
		$_->{from} == $one && $_->{to} == $other || $_->{from} == $other && $_->{to} == $one
	} @links;
}

my %commands = (
	ping => sub { return 1; },
	cut  => sub {
		foreach my $link (links_between(@{ $_[0]{servers} }))
		{
			$link->{cut} = 1;
			close delete $link->{listener} if $link->{listener};
		}
		return;
	},
	mend => sub {
		foreach my $link (links_between(@{ $_[0]{servers} }))
		{
			$link->{cut} = 0;
			listen_on($link);
		}
		return;
	},
);

listen_on($_) foreach @links;
while (1)
{
	my ($reads, $writes) = (IO::Select->new(\*STDIN), IO::Select->new);
	my %listeners;
	foreach my $link (grep { $_->{listener} } @links)
	{
		$reads->add($link->{listener});
		$listeners{ fileno $link->{listener} } = $link;
	}
	foreach my $c (grep { !$_->{link}{cut} } values %connections)
	{
		foreach my $side (qw(client server))
		{
			$reads->add($c->{$side}{socket})  unless $c->{$side}{eof};
			$writes->add($c->{$side}{socket}) if $c->{$side}{out} ne '';
		}
	}
	my ($readable, $writable) = IO::Select->select($reads, $writes, undef, @arrivals ? 0.05 : 3600);

	foreach my $handle (@{ $readable || [] })
	{
		# A command may have closed it meanwhile.
		my $fd = fileno $handle;
		if ($handle == \*STDIN)
		{
			answer_commands(\%commands);
		}
		elsif (defined $fd && $listeners{$fd})
		{
			accept_connection($listeners{$fd}) if $listeners{$fd}{listener};
		}
		elsif (defined $fd && (my $entry = $by_handle{$fd}))
		{
			read_side(@$entry) unless $entry->[0]{link}{cut};
		}
	}
	foreach my $handle (@{ $writable || [] })
	{
		my $entry = defined fileno $handle && $by_handle{ fileno $handle } or next;
		my ($c, $side) = @$entry;
		write_some($c->{$side}) unless $c->{link}{cut};
	}
	connect_arrivals();
	# One side has gone: the other gets what is still to be delivered, and goes too.
	foreach my $c (grep { !$_->{link}{cut} } values %connections)
	{
		close_connection($c)
		  if $c->{client}{eof} && $c->{server}{out} eq '' || $c->{server}{eof} && $c->{client}{out} eq '';
	}
}
