#!/usr/bin/perl
# Copyright (c) 2026, zklock contributors
#
# zk_proxy.pl LINKS
#
# TCP proxy on 127.0.0.1 in front of one ZooKeeper server. It understands the framing of
# the client protocol and injects faults. Commands come as lines of JSON on standard
# input, [id, command, options], and each gets one line as answer; Zklock::Proxy is the
# other end, and its manual tells what the commands do. Ends at the end of the input.
#
# LINKS is JSON, a list of { "port": ..., "target": ... }: Zklock::Proxy has one, a client's way
# to a server. Zklock::ZooKeeper has one for each way from one server of an ensemble to
# another, with more:
#
#   from, to   ids of the servers
#   mode       raw: bytes pass as they are; greeting: but the first message, in which a server
#              tells where it can be called back. That would lead around the proxy, so the
#              port is replaced
#   patience   seconds to wait for the target to listen
#
# The protocol: every message is preceded by its length in 4 bytes, all numbers are big
# endian. The first message of either side sets up the session. Then requests begin with
# xid and operation, replies with xid (4), zxid (8) and error (4). Replies come in the
# order of the requests, but for watch events (xid -1), pings (-2), auth (-4) and
# re-registered watches (-8), which bear these fixed numbers.

use v5.36;

use FindBin;
use lib $FindBin::Bin;
use IO::Socket::INET;
use JSON::PP;
use List::Util qw(max min);
use Time::HiRes qw(time);
use Zklock::Garbler;
use Zklock::ProxyLoop;

my @links = @{ JSON::PP->new->utf8->decode($ARGV[0] || die "usage: $0 links\n") };

my %op_name = (
	-11 => 'closeSession', 0 => 'notification', 1 => 'create', 2 => 'delete', 3 => 'exists',
	4 => 'getData', 5 => 'setData', 6 => 'getACL', 7 => 'setACL', 8 => 'getChildren',
	9 => 'sync', 11 => 'ping', 12 => 'getChildren', 13 => 'check', 14 => 'multi',
	15 => 'create2', 16 => 'reconfig', 17 => 'checkWatches', 18 => 'removeWatches',
	19 => 'createContainer', 20 => 'deleteContainer', 21 => 'createTTL', 22 => 'multiRead',
	100 => 'auth', 101 => 'setWatches', 102 => 'sasl', 103 => 'getEphemerals',
	104 => 'getAllChildrenNumber', 105 => 'setWatches2', 106 => 'addWatch', 107 => 'whoAmI');

# Operations whose request begins with a path; for a multi it is that of its first.
my %has_path = map { $_ => 1 } 1 .. 9, 12, 13, 15, 17 .. 21, 103, 104, 106;

# Of a link there are also its listener, and blackhole: '', 'requests', 'replies' or 'both'.
my @arrivals;                # accepted, not yet connected: [link, socket, until]
my $delay     = 0;           # seconds
my $spacing   = 0;           # of requests, seconds
my $garbler;                 # Zklock::Garbler, if replies are to be garbled
my $hang_up   = 0;           # after the handshake
my $ping_at;                 # when the servers get the next ping in the clients' stead, if they do
my $accepted  = 0;           # connections since the last reset
my (%counts, @log, @faults); # since the last reset; all faults ever
my $last_fault = 0;

# ---- connections --------------------------------------------------------------
#
# Replies wait in the queue, [time, bytes], until their time has come.

sub listen_to($link)
{
	$link->{listener} ||= listen_on($link->{port}, sub { accept_connection($link); });
	return;
}

# A server that follows a leader asks again for a while if that does not listen yet. Here
# it has been let in already, so the asking is up to us.
sub accept_connection($link)
{
	my $client = $link->{listener}->accept or return;
	$accepted++;
	push @arrivals, [ $link, $client, time + ($link->{patience} // 0) ];
	return;
}

sub connect_arrivals
{
	foreach my $arrival (splice @arrivals)
	{
		my ($link, $client, $until) = @$arrival;
		# Whoever was let in to a link that has been cut since is refused after all.
		next unless $link->{listener};
		my $server = IO::Socket::INET->new(
			PeerAddr => '127.0.0.1',
			PeerPort => $link->{target},
			Blocking => 0);
		if ($server)
		{
			add_connection($client, $server,
				link    => $link,
				mode    => $link->{mode} // 'start',    # of the requests: start, frames, greeting, raw
				greeted => 0,           # has the server answered the first message?
				pending => [],          # requests without a reply: { xid, op, path }
				queue   => [],          # replies not yet due
				next_at => 0,           # when the next request may pass, if they are throttled
				held    => '');         # 'request' or 'reply': a fault holds this direction
		}
		elsif (time < $until)
		{
			push @arrivals, $arrival;
		}
	}
	return;
}

sub blocked($c, $direction)
{
	my $blackhole = $c->{link}{blackhole};
	return 1 if $c->{held} eq $direction || $blackhole eq 'both';
	return $blackhole eq ($direction eq 'request' ? 'requests' : 'replies');
}

# What leads from and to a server, if the options of a command name one; all otherwise
sub chosen_links($arg)
{
	my $server = $arg->{server} or return @links;
	return grep { $_->{from} == $server || $_->{to} == $server } @links;
}

# Move on all that can move on.
sub advance($c)
{
	my ($client, $server) = @{$c}{qw(client server)};

	take_requests($c) unless blocked($c, 'request');
	take_replies($c)  unless blocked($c, 'reply');
	my $now = time;
	deliver($c) while @{ $c->{queue} } && $c->{queue}[0][0] <= $now && !blocked($c, 'reply');
	write_some($server);
	write_some($client);

	# One side has gone: the other gets what is still to be delivered, and goes too, unless the session is to live on.
	close_connection($c)
	  if $client->{eof} && $client->{in} eq '' && $server->{out} eq '' && !defined $ping_at
	  || $server->{eof} && $server->{in} eq '' && $client->{out} eq '' && !@{ $c->{queue} }
	  || $c->{doomed} && $client->{out} eq '' && $server->{out} eq '' && !@{ $c->{queue} };
	return;
}

# A client that is stopped, or cut off, has a session all the same. It gets no answers to what it has not sent.
sub send_pings
{
	return unless defined $ping_at && $ping_at <= time;
	$ping_at = time + 0.5;
	foreach my $c (grep { $_->{greeted} && $_->{mode} eq 'frames' } all_connections())
	{
		push @{ $c->{pending} }, { xid => -2, op => 'ping', ours => 1 };
		$c->{server}{out} .= pack('N/a*', pack('l> l>', -2, 11));
	}
	return;
}

sub deliver($c) { $c->{client}{out} .= (shift @{ $c->{queue} })->[1]; return; }

# Takes one complete message, with its length, off a buffer.
sub next_frame($side)
{
	return undef if length $side->{in} < 4;
	my $length = unpack('N', $side->{in});
	return undef if length $side->{in} < 4 + $length;
	return substr($side->{in}, 0, 4 + $length, '');
}

# What a message asks for: its xid, operation, path, and all paths if it is several requests in one
sub request_of($frame)
{
	my ($xid, $op) = unpack('x4 l> l>', $frame);
	my $name = $op_name{$op} // "op$op";
	my ($common, @paths) = $name eq 'multi' ? requests_together($frame) : ();
	return { xid => $xid, op => $common, path => $paths[0], paths => \@paths } if @paths;
	# A multi's first operation is behind a header of 9 bytes.
	my $at = $has_path{$op} ? 12 : $name eq 'multi' ? 21 : length $frame;
	my $path;
	if (length $frame >= $at + 4)
	{
		my $length = unpack("x$at l>", $frame);
		$path = substr($frame, $at + 4, $length) if $length >= 0;
		utf8::decode($path) if defined $path;
	}
	return { xid => $xid, op => $name, path => $path, paths => [] };
}

sub take_requests($c)
{
	my ($client, $server) = @{$c}{qw(client server)};

	# It may be a four-letter command instead of a message.
	$c->{mode} = $client->{in} =~ /^[a-z]{4}/ ? 'raw' : 'connect' if $c->{mode} eq 'start' && length $client->{in} >= 4;
	$c->{mode} = 'raw' if $c->{mode} eq 'greeting' && redirect($c->{link}, $client);
	if ($c->{mode} eq 'raw')
	{
		$server->{out} .= $client->{in};
		$client->{in} = '';
		return;
	}
	until ($c->{doomed} || $c->{mode} eq 'greeting' || blocked($c, 'request'))
	{
		my $now = time;
		last if $spacing && $c->{next_at} > $now;
		my $frame = next_frame($client);
		last unless defined $frame;
		$c->{next_at} = $now + $spacing;
		if ($c->{mode} eq 'connect')
		{
			$c->{mode} = 'frames';
			note_request('connect', undef);
			$server->{out} .= $frame;
			next;
		}
		my $request = request_of($frame);
		my $fault   = due_fault('request', $request);
		if ($fault && $fault->{action} eq 'hold')
		{
			# Back in front: releasing it lets it pass.
			$client->{in} = $frame . $client->{in};
			$c->{held} = 'request';
			return;
		}
		note_request($request->{op}, $_) foreach @{ $request->{paths} } ? @{ $request->{paths} } : $request->{path};
		if ($fault && $fault->{action} eq 'lose')
		{
			$c->{doomed} = 1;
			return;
		}
		if ($fault)
		{
			# Refused: a harmless request takes its place, so that the answer comes in its turn.
			$request->{answer} = $fault->{code};
			$frame = pack('N/a*', pack('l> l> N/a* C', $request->{xid}, 3, '/', 0));
		}
		push @{ $c->{pending} }, $request;
		$server->{out} .= $frame;
	}
	# What is left of a message whose sender has gone will never be complete.
	$client->{in} = '' if $client->{eof} && !blocked($c, 'request');
	return;
}

# The greeting: version (negative; older versions have none), id of the server, length,
# and host:port of its election address. Returns whether it is complete.
sub redirect($link, $client)
{
	return 0 if length $client->{in} < 8;
	return 1 if unpack('q>', $client->{in}) >= 0;
	return 0 if length $client->{in} < 20;
	my ($version, $id, $length) = unpack('q> q> l>', $client->{in});
	return 0 if length $client->{in} < 20 + $length;
	my ($back)  = grep { $_->{mode} eq 'greeting' && $_->{from} == $link->{to} && $_->{to} == $link->{from} } @links;
	my $address = substr($client->{in}, 20, $length) =~ s/:\d+$/:$back->{port}/r;
	substr($client->{in}, 0, 20 + $length) = pack('q> q> l>', $version, $id, length $address) . $address;
	return 1;
}

# What the client is to get instead of the handshake, or a reply
sub handshake_frames($c, $frame)
{
	my $fault = due_fault('reply', { op => 'connect', error => 0 });
	$c->{doomed} = $hang_up;
	return $garbler->handshake($frame) if $garbler;
	return $fault && $fault->{action} eq 'forge' ? pack('N/a*', $fault->{body}) : $frame;
}

sub reply_frames($c, $frame)
{
	return $frame if length $frame < 20;
	my ($xid, $error) = unpack('x4 l> x8 l>', $frame);
	if ($xid == -1)
	{
		$counts{notification}++;
		return $garbler ? $garbler->event($frame) : $frame;
	}
	my $pending = $c->{pending};
	my ($i) = grep { $pending->[$_]{xid} == $xid } 0 .. $#$pending;
	return $frame unless defined $i;
	my $request = splice(@$pending, $i, 1);
	return () if $request->{ours};
	$request->{error} = $error;
	my $fault  = !defined $request->{answer} && due_fault('reply', $request);
	my $action = $fault ? $fault->{action} : '';
	$request->{answer} = $fault->{code} if $action eq 'deny';
	# An error is answered with the header alone.
	return pack('N/a*', substr($frame, 4, 12) . pack('l>', $request->{answer})) if defined $request->{answer};
	return pack('N/a*', substr($frame, 4, 16) . $fault->{body}) if $action eq 'forge';
	if ($action eq 'lose')
	{
		$c->{doomed} = 1;
		return ();
	}
	if ($action eq 'hold')
	{
		# The reply itself is held, and whatever comes behind it; what came before passes.
		deliver($c) while @{ $c->{queue} };
		$c->{held} = 'reply';
	}
	# Requests that went out together are answered as what they were.
	return $garbler->reply($frame, @{ $request->{paths} } ? 'multi' : $request->{op}, scalar grep { $_->{xid} > 0 } @$pending)
	  if $garbler && $xid > 0;
	return $frame;
}

sub take_replies($c)
{
	my $server = $c->{server};

	if ($c->{mode} =~ /^(?:raw|greeting)$/)
	{
		queue_reply($c, $server->{in});
		$server->{in} = '';
		return;
	}
	until ($c->{doomed} || blocked($c, 'reply'))
	{
		my $frame = next_frame($server);
		last unless defined $frame;
		my @frames = $c->{greeted}++ ? reply_frames($c, $frame) : handshake_frames($c, $frame);
		queue_reply($c, $_) foreach @frames;
	}
	$server->{in} = '' if $c->{doomed} || $server->{eof} && !blocked($c, 'reply');
	return;
}

sub queue_reply($c, $bytes)
{
	push @{ $c->{queue} }, [ time + $delay, $bytes ] if $bytes ne '';
	return;
}

sub note_request($name, $path)
{
	$counts{$name}++;
	push @log, [ $name, $path ] if @log < 200_000;
	return;
}

# Deletions, and creates of lock nodes, that go out together in a multi are taken for requests of
# their own: returns which, and their paths. Creates are followed by the stamp's, which
# is named like the first node. A multi that does anything else is one step.
sub requests_together($frame)
{
	my @ops   = operations($frame);
	my $kinds = join(' ', map { $_->[0] } @ops);
	my @paths = map { $_->[1] } @ops;
	return ('delete', @paths) if $kinds =~ /^delete(?: delete)*$/ && $paths[0] !~ m{^/zklock-receipts/};
	return () unless $kinds =~ /^(?:create ){3,}setData delete$/ && !grep { $_ ne $paths[0] } @paths[ -3 .. -1 ];
	return ('create2', @paths[ 0 .. $#paths - 3 ]);
}

# The operations of a multi, [name, path], as far as they are of these kinds
sub operations($frame)
{
	my %rest = (
		create  => \&create_rest,
		delete  => sub ($frame, $at) { return 4; },
		setData => sub ($frame, $at) { return buffer($frame, $at) + 4; });
	my @ops;
	my $at = 12;
	while (length $frame >= $at + 9)
	{
		my ($op, $done) = unpack("x$at l> C", $frame);
		return @ops if $done;
		my $name = $op_name{$op} // '';
		my $rest = $rest{$name} or return ();
		$at += 9;
		my $length = buffer($frame, $at);
		push @ops, [ $name, substr($frame, $at + 4, $length - 4) ];
		$at += $length;
		$at += $rest->($frame, $at);
	}
	return ();
}

# The bytes of a buffer with its length, which is -1 for none
sub buffer($frame, $at) { return 4 + max(0, unpack("x$at l>", $frame)); }

# The bytes of a create's data, ACL and flags
sub create_rest($frame, $at)
{
	my $begin = $at;
	$at += buffer($frame, $at);
	my $entries = unpack("x$at l>", $frame);
	$at += 4;
	foreach (1 .. $entries)
	{
		$at += 4;
		$at += buffer($frame, $at) foreach 1, 2;
	}
	return $at + 4 - $begin;
}

# ---- faults --------------------------------------------------------------------

# The fault that this request or reply sets off, if any.
sub due_fault($direction, $request)
{
	foreach my $fault (@faults)
	{
		next if $fault->{spent} || $fault->{direction} ne $direction;
		next unless grep { $_ eq '*' && $request->{op} !~ /^(ping|multi)$/ || $_ eq $request->{op} } @{ $fault->{op} };
		# The library aborts at an answer to a multi that is cut off.
		next if $fault->{action} eq 'forge' && @{ $request->{paths} // [] };
		my @paths = grep { defined } $request->{path}, @{ $request->{paths} // [] };
		next if defined $fault->{path} && !grep { /$fault->{path}/ } @paths;
		next if $direction eq 'reply' && !$fault->{any} && $request->{error} != 0;
		next if ++$fault->{seen} < $fault->{nth};
		$fault->{spent}   = $fault->{times} && $fault->{seen} >= $fault->{nth} + $fault->{times} - 1;
		$fault->{request} = [ $request->{op}, $request->{path} ];
		return $fault;
	}
	return undef;
}

# ---- commands ------------------------------------------------------------------

my %commands = (
	ping   => sub { return 1; },
	counts => sub { return {%counts}; },
	requests => sub { return [@log]; },
	reset_counts => sub { %counts = (); @log = (); $accepted = 0; return; },
	accepted => sub { return $accepted; },
	hang_up => sub ($arg) { $hang_up = $arg->{on}; return; },
	fault  => sub ($arg) {
		my $fault = { times => 1, %$arg, nth => $arg->{nth} || 1, id => ++$last_fault, seen => 0, spent => 0 };
		$fault->{op}   = [ split /[|,\s]+/, $arg->{op} ] unless ref $arg->{op};
		$fault->{body} = pack('H*', $arg->{body}) if defined $arg->{body};
		my %known = map { $_ => 1 } values %op_name, '*', 'connect';
		$known{$_} or die "unknown operation $_\n" foreach @{ $fault->{op} };
		push @faults, $fault;
		return $fault->{id};
	},
	fired => sub ($arg) {
		my ($fault) = grep { $_->{id} == $arg->{id} } @faults or die "there is no fault $arg->{id}\n";
		return $fault->{request};
	},
	clear => sub { @faults = (); return; },
	connections => sub { return scalar all_connections(); },
	drop => sub { close_connection($_) foreach all_connections(); return; },
	cut  => sub {
		close delete $_->{listener} foreach grep { $_->{listener} } @links;
		foreach my $c (all_connections())
		{
			defined $ping_at ? shutdown($c->{client}{socket}, 2) : close_connection($c);
		}
		return;
	},
	sustain => sub { $ping_at = 0; return; },
	blackhole => sub ($arg) {
		$arg->{direction} =~ /^(requests|replies|both)$/ or die "bad direction\n";
		$_->{blackhole} = $arg->{direction} foreach @links;
		return;
	},
	part => sub ($arg) {
		foreach my $link (chosen_links($arg))
		{
			close delete $link->{listener} if $link->{listener};
			$link->{blackhole} = 'both';
		}
		return;
	},
	heal => sub ($arg) {
		undef $ping_at;
		foreach my $link (chosen_links($arg))
		{
			$link->{blackhole} = '';
			listen_to($link);
		}
		$_->{held} = '' foreach all_connections();
		advance($_) foreach all_connections();
		return;
	},
	notify => sub ($arg) {
		my $event = pack('l> q> l> l> l> N/a*', -1, -1, 0, @{$arg}{qw(type state path)});
		queue_reply($_, pack('N/a*', $event)) foreach all_connections();
		return;
	},
	garble => sub ($arg) { $garbler = $arg->{share} ? Zklock::Garbler->new(%$arg) : undef; return; },
	delay  => sub ($arg) { $delay = $arg->{ms} / 1000; return; },
	throttle => sub ($arg) { $spacing = $arg->{rate} ? 1 / $arg->{rate} : 0; return; },
	target => sub ($arg) { @{ $links[0] }{qw(target mode)} = ($arg->{port}, $arg->{raw} ? 'raw' : 'start'); return; },
);

# ---- main loop -----------------------------------------------------------------

# When something is due that nobody sends us anything for
sub until_due
{
	my @due = @arrivals ? 0.05 : 3600;
	push @due, $ping_at - time if defined $ping_at;
	foreach my $c (all_connections())
	{
		push @due, $c->{queue}[0][0] - time if @{ $c->{queue} } && !blocked($c, 'reply');
		push @due, $c->{next_at} - time if $spacing && $c->{client}{in} ne '' && !blocked($c, 'request');
	}
	return max(0, min(@due));
}

foreach my $link (@links)
{
	$link->{blackhole} = '';
	listen_to($link);
}
serve(
	commands => \%commands,
	# A side that is not read fills up, and its peer notices nothing: that is the black hole.
	reads   => sub ($c, $name) { return !$c->{doomed} && !blocked($c, $name eq 'client' ? 'request' : 'reply'); },
	timeout => \&until_due,
	round   => sub {
		connect_arrivals();
		send_pings();
		advance($_) foreach all_connections();
	});
