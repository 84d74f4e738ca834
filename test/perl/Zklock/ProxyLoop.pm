# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::ProxyLoop - what the test proxies have in common: commands, and connections of two sides

=head1 FUNCTIONS

  listen_on($port)
                a socket that listens there
  add_connection($client, $server, %more)
                returns a new connection between two sockets: a hash with a number, the sides client and
                server, and more. A side has its socket, what is to be written to it (out), and
                whether its other end has closed (eof)
  close_connection($c), all_connections
  read_some($side)
                returns what has come on the socket of a side: '' if nothing has. At the end of its
                input sets eof
  write_some($side)
                writes of out what the socket takes. If that is broken, there is nothing more
                to write, and eof is set
  serve(%on)    does all this until the end of standard input. There come commands, lines of JSON
                [id, "command", {options}], and each gets one line as answer, {"id":..., "ok":true,
                "result":...} or {"id":..., "ok":false, "error":"..."}. %on has functions:

    commands    by name: a hash of functions, which get the options
    listeners   a hash of what is called when somebody connects to a listening socket, by its
                file descriptor; with the sockets, [ socket, function ]
    reads       is what a side of a connection sends to be read now? Else that fills up, and its
                other end notices nothing. Gets the connection and "client" or "server"
    writes      is what is to be written to a connection to be written now? Default: yes
    read        something has come; gets the connection and the name of the side
    round       what is done after all that has happened at once
    timeout     the seconds until the next round, if nothing happens

=cut

package Zklock::ProxyLoop;

use v5.36;

use Errno qw(EAGAIN EINPROGRESS EINTR EWOULDBLOCK);
use Exporter qw(import);
use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use JSON::PP;
use Socket qw(IPPROTO_TCP TCP_NODELAY);

our @EXPORT = qw(listen_on add_connection close_connection all_connections read_some write_some serve);

my $json           = JSON::PP->new->utf8->canonical;
my $command_buffer = '';
my %connections;             # number => connection
my $last_connection = 0;
my %by_handle;               # file descriptor => [connection, 'client' or 'server']

$SIG{PIPE} = 'IGNORE';
STDOUT->autoflush(1);

sub listen_on($port)
{
	return IO::Socket::INET->new(
		LocalAddr => '127.0.0.1',
		LocalPort => $port,
		Listen    => 128,
		ReuseAddr => 1,
		Blocking  => 0) || die "cannot listen on port $port: $!";
}

sub add_connection($client, $server, %more)
{
	my $number = ++$last_connection;
	my $c      = $connections{$number} = { number => $number, %more };
	foreach my $side ([ client => $client ], [ server => $server ])
	{
		my ($name, $socket) = @$side;
		$socket->blocking(0);
		setsockopt($socket, IPPROTO_TCP, TCP_NODELAY, 1);
		$c->{$name} = { socket => $socket, out => '', eof => 0 };
		$by_handle{ fileno $socket } = [ $c, $name ];
	}
	return $c;
}

sub close_connection($c)
{
	return unless delete $connections{ $c->{number} };
	foreach my $side (@{$c}{qw(client server)})
	{
		delete $by_handle{ fileno $side->{socket} };
		close $side->{socket};
	}
	return;
}

# A copy: the loops over it close connections.
sub all_connections { my @all = values %connections; return @all; }

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

sub try_again
{
	return $! == EAGAIN || $! == EWOULDBLOCK || $! == EINTR || $! == EINPROGRESS;
}

sub read_some($side)
{
	my $n = sysread($side->{socket}, my $bytes, 65536);
	return $bytes if $n;
	$side->{eof} = 1 unless !defined $n && try_again();
	return '';
}

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

sub serve(%on)
{
	while (1)
	{
		my ($reads, $writes) = (IO::Select->new(\*STDIN), IO::Select->new);
		my %listeners = map { fileno $_->[0] => $_ } $on{listeners}->();
		$reads->add(map { $_->[0] } values %listeners);
		foreach my $entry (values %by_handle)
		{
			my ($c, $name) = @$entry;
			my $side = $c->{$name};
			# Reading the end of a connection again and again would only spin.
			$reads->add($side->{socket})  if !$side->{eof} && $on{reads}->($c, $name);
			$writes->add($side->{socket}) if $side->{out} ne '' && (!$on{writes} || $on{writes}->($c));
		}
		my ($readable, $writable) = IO::Select->select($reads, $writes, undef, $on{timeout}->());

		# What was done before may have closed a handle, or forbidden to read it.
		foreach my $handle (grep { defined fileno $_ } @{ $readable || [] })
		{
			my $listener = $listeners{ fileno $handle };
			my $entry    = $by_handle{ fileno $handle };
			if    ($handle == \*STDIN) { answer_commands($on{commands}); }
			elsif ($listener)          { $listener->[1]->(); }
			elsif ($entry && $on{reads}->(@$entry)) { $on{read}->(@$entry); }
		}
		foreach my $entry (map { defined fileno $_ && $by_handle{ fileno $_ } || () } @{ $writable || [] })
		{
			my ($c, $name) = @$entry;
			write_some($c->{$name}) if !$on{writes} || $on{writes}->($c);
		}
		$on{round}->();
	}
}

1;
