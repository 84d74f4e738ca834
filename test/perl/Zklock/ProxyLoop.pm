# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::ProxyLoop - what zk_proxy.pl does with sockets, and its commands

=head1 DESCRIPTION

A connection has two sides, client and server, each of which has its socket, what was read from it
and not yet taken (in), what is to be written to it (out), and whether its other end has closed (eof).

=cut

package Zklock::ProxyLoop;

use v5.36;

use Errno qw(EAGAIN EINPROGRESS EINTR EWOULDBLOCK);
use Exporter qw(import);
use IO::Handle;
use IO::Socket::INET;
use JSON::PP;
use Socket qw(IPPROTO_TCP TCP_NODELAY);

our @EXPORT = qw(listen_on add_connection close_connection all_connections write_some serve);

my $json           = JSON::PP->new->utf8->canonical;
my $command_buffer = '';
my @listeners;               # [socket, function]; the socket may be closed
my %by_handle;               # file descriptor => [connection, 'client' or 'server']

$SIG{PIPE} = 'IGNORE';
STDOUT->autoflush(1);

# Calls the function when somebody connects.
sub listen_on($port, $accept)
{
	my $socket = IO::Socket::INET->new(
		LocalAddr => '127.0.0.1',
		LocalPort => $port,
		Listen    => 128,
		ReuseAddr => 1,
		Blocking  => 0) || die "cannot listen on port $port: $!";
	push @listeners, [ $socket, $accept ];
	return $socket;
}

# Returns a connection between two sockets, with more properties.
sub add_connection($client, $server, %more)
{
	my $c = {%more};
	foreach my $side ([ client => $client ], [ server => $server ])
	{
		my ($name, $socket) = @$side;
		$socket->blocking(0);
		setsockopt($socket, IPPROTO_TCP, TCP_NODELAY, 1);
		$c->{$name} = { socket => $socket, in => '', out => '', eof => 0 };
		$by_handle{ fileno $socket } = [ $c, $name ];
	}
	return $c;
}

sub close_connection($c)
{
	foreach my $side (@{$c}{qw(client server)})
	{
		delete $by_handle{ fileno $side->{socket} };
		close $side->{socket};
	}
	return;
}

# A copy: the loops over it close connections.
sub all_connections { my @all = map { $_->[1] eq 'client' ? $_->[0] : () } values %by_handle; return @all; }

sub answer_commands($commands)
{
	my $n = sysread(STDIN, $command_buffer, 65536, length $command_buffer);
	exit 0 unless $n;
	while ($command_buffer =~ s/^(.*)\n//)
	{
		my ($id, $command, $options) = @{ $json->decode($1) };
		my $result = eval {
			my $code = $commands->{$command} or die "unknown command $command\n";
			$code->($options || {});
		};
		my %answer = $@ ? (ok => 0, error => "$@") : (ok => 1, result => $result);
		print $json->encode({ id => $id, %answer }), "\n";
	}
	return;
}

sub try_again { return $! == EAGAIN || $! == EWOULDBLOCK || $! == EINTR || $! == EINPROGRESS; }

sub read_some($side)
{
	my $n = sysread($side->{socket}, $side->{in}, 65536, length $side->{in});
	$side->{eof} = 1 unless $n || !defined $n && try_again();
	return;
}

# What the socket takes. If that is broken, there is nothing more to write.
sub write_some($side)
{
	return if $side->{out} eq '';
	my $n = syswrite($side->{socket}, $side->{out});
	if (defined $n)
	{
		substr($side->{out}, 0, $n, '');
	}
	elsif (!try_again())
	{
		$side->{out} = '';
		$side->{eof} = 1;
	}
	return;
}

# Runs until the end of standard input, from where commands come as Zklock::LinePeer sends them:
#
#   commands    by name: a hash of functions, which get the options
#   reads       is what a side of a connection sends to be read now? Gets the connection and
#               "client" or "server"
#   round       what is done after all that has happened at once; writes
#   timeout     the seconds until the next round, if nothing happens
sub serve(%on)
{
	while (1)
	{
		# Bits by file descriptor, as select takes them: this is run through for each message.
		@listeners = grep { defined fileno $_->[0] } @listeners;
		my ($reads, $writes) = ('', '');
		vec($reads, $_, 1) = 1 foreach 0, map { fileno $_->[0] } @listeners;
		while (my ($fd, $entry) = each %by_handle)
		{
			my ($c, $name) = @$entry;
			my $side = $c->{$name};
			# Reading the end of a connection again and again would only spin.
			vec($reads,  $fd, 1) = 1 if !$side->{eof} && $on{reads}->($c, $name);
			vec($writes, $fd, 1) = 1 if $side->{out} ne '';
		}
		if (select($reads, $writes, undef, $on{timeout}->()) > 0)
		{
			answer_commands($on{commands}) if vec($reads, 0, 1);
			my %accept = map { fileno $_->[0] => $_->[1] } grep { defined fileno $_->[0] } @listeners;
			foreach my $fd (grep { vec($reads, $_, 1) } 1 .. 8 * length($reads) - 1)
			{
				# What was done before may have closed it, or forbidden to read it.
				if (my $accept = $accept{$fd}) { $accept->(); next; }
				my ($c, $name) = @{ $by_handle{$fd} // next };
				read_some($c->{$name}) if $on{reads}->($c, $name);
			}
		}
		$on{round}->();
	}
}

1;
