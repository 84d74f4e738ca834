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
use IO::Socket::INET;
use JSON::PP;
use Time::HiRes qw(time);
use Zklock::ProxyLoop;

my @links = @{ JSON::PP->new->utf8->decode($ARGV[0] || die "usage: $0 links\n") };
my @arrivals;                # accepted, not yet connected: { link, socket, until }

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
			# The beginning of what the client sends, until that is complete
			add_connection($arrival->{socket}, $server, link => $link, greeting => $link->{kind} eq 'election' ? '' : undef);
		}
		elsif (!$link->{cut} && time < $arrival->{until})
		{
			push @arrivals, $arrival;
		}
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
			$link->{listener} ||= listen_on($link->{port});
		}
		return;
	},
);

$_->{listener} = listen_on($_->{port}) foreach @links;
serve(
	commands  => \%commands,
	listeners => sub {
		return map { my $link = $_; [ $link->{listener}, sub { accept_connection($link) if $link->{listener} } ] }
		  grep { $_->{listener} } @links;
	},
	reads   => sub ($c, $name) { return !$c->{link}{cut}; },
	writes  => sub ($c) { return !$c->{link}{cut}; },
	read    => \&read_side,
	timeout => sub { return @arrivals ? 0.05 : 3600; },
	round   => sub {
		connect_arrivals();
		# One side has gone: the other gets what is still to be delivered, and goes too.
		foreach my $c (grep { !$_->{link}{cut} } all_connections())
		{
			close_connection($c)
			  if $c->{client}{eof} && $c->{server}{out} eq '' || $c->{server}{eof} && $c->{client}{out} eq '';
		}
	});
