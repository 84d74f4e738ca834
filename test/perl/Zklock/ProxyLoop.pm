# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::ProxyLoop - what the test proxies have in common

=head1 FUNCTIONS

  answer_commands(\%commands)
                reads what has come on standard input, lines of JSON [id, "command", {options}],
                and answers each with one line, {"id":..., "ok":true, "result":...} or
                {"id":..., "ok":false, "error":"..."}. Ends the program at the end of the input
  read_some($side)
                returns what has come on the socket of one side of a connection,
                { socket, out, eof }: '' if nothing has. At the end of its input sets eof
  write_some($side)
                writes of out what the socket takes. If that is broken, there is nothing more
                to write, and eof is set

=cut

package Zklock::ProxyLoop;

use v5.36;

use Errno qw(EAGAIN EINPROGRESS EINTR EWOULDBLOCK);
use Exporter qw(import);
use JSON::PP;

our @EXPORT = qw(answer_commands read_some write_some);

my $json           = JSON::PP->new->utf8->canonical;
my $command_buffer = '';

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

1;
