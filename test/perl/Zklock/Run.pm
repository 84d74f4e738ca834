# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Run - zklock-run, and the command that it runs

=head1 SYNOPSIS

  my $run = run($server, [ '--try', '/t/a' ], 'sh', '-c', 'echo done');    # its {status}, {out}, {err}
  my $job = start($server, ['/t/a'], 'cat');
  $job->wait_holds('/t/a');
  $job->end;

C<run> waits for its end, C<start> does not. The database is server's, if the options do not name another.
C<run_shell($server, $line, $input)> is C<run> for a line of bash.

C<wait_started> waits until the command runs, C<wait_holds> until the server shows its lock, C<wait_says> until its
standard error matches. C<keeper> and C<command> are processes; C<wait_asleep> waits until zklock-run and the keeper sleep; C<group> is the number of those in the command's
group. C<close_input> closes the command's input, C<status> waits for the end and returns the exit status as a shell
has it; C<end> is both, of a command that ends well.

=cut

package Zklock::Run;

use v5.36;

use parent qw(-norequire Exporter);
use Exporter ();
use IPC::Run ();
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use Zklock::Process;
use Zklock::Util qw(children_of wait_until);

our @EXPORT = qw(run run_shell start);

my $number = 0;

sub _program
{
	my $bindir = `pg_config --bindir`;
	chomp $bindir;
	return ($ENV{ZKLOCK_STAGE} // '') . "$bindir/zklock-run";
}

# The environment of a client of the server, with zklock-run in its path
sub _environment($server)
{
	return (
		PGHOST => $server->host, PGPORT => $server->port, PGDATABASE => 'postgres',
		PATH   => (_program() =~ s{/[^/]*$}{}r) . ":$ENV{PATH}");
}

sub _run($server, $input, @argv)
{
	my %run = (out => '', err => '');
	local %ENV = (%ENV, _environment($server));
	delete $ENV{PGAPPNAME};
	local $SIG{PIPE} = 'DEFAULT';
	IPC::Run::run(\@argv, '<', \$input, '>', \$run{out}, '2>', \$run{err});
	$run{status} = $? & 127 ? 128 + ($? & 127) : $? >> 8;
	return \%run;
}

sub _argv($options, @command) { return (_program(), @$options, @command ? ('--', @command) : ()); }
sub run($server, $options, @command) { return _run($server, '', _argv($options, @command)); }
sub run_shell($server, $line, $input = '') { return _run($server, $input, 'bash', '-c', $line); }

sub start($server, $options, @command)
{
	local %ENV = (%ENV, _environment($server));
	delete $ENV{PGAPPNAME};
	my $process = Zklock::Process->new(
		name  => 'zklock-run-' . ++$number,
		argv  => [ _argv($options, @command) ],
		pipes => 1);
	return bless { process => $process, server => $server }, __PACKAGE__;
}

sub signal($self, $signal) { return $self->{process}->signal($signal); }
sub keeper($self) { return $self->{keeper}; }
sub command($self) { return $self->{command}; }

sub wait_started($self)
{
	wait_until {
		($self->{keeper}) = children_of($self->{process}->pid);
		($self->{command}) = $self->{keeper} ? children_of($self->{keeper}) : ();
		$self->{command} && slurp_file("/proc/$self->{command}/comm") ne "zklock-run\n";
	}
	'the command to start';
	return;
}

sub wait_holds($self, $path)
{
	wait_until { $self->{server}->lock_count("path = '$path' AND state = 'held'") > 0 } "the lock of $path";
	return $self->wait_started;
}

sub says($self) { return slurp_file($self->{process}->log_file); }

sub wait_says($self, $regex, $name)
{
	wait_until { $self->says =~ $regex } "zklock-run to say $regex";
	return pass($name);
}

# How many processes are in the command's group, but for those that nobody has waited for yet
sub group($self)
{
	my $n = 0;
	foreach my $file (glob '/proc/[0-9]*/stat')
	{
		open(my $stat, '<', $file) or next;
		my ($state, undef, $group) = (<$stat> // '') =~ /.*\) (\S) (\d+) (\d+)/;
		$n++ if defined $group && $group == $self->{command} && $state ne 'Z';
	}
	return $n;
}

# A process that asks again and again without waiting is hardly ever asleep.
sub wait_asleep($self, $name)
{
	foreach my $pid ($self->{process}->pid, $self->{keeper})
	{
		wait_until { !grep { slurp_file("/proc/$pid/stat") !~ /.*\) S / } 1 .. 50 } "process $pid to sleep";
	}
	return pass($name);
}

sub close_input($self) { close delete $self->{process}{in}; return; }

sub status($self)
{
	$self->{process}->wait_end(undef);
	my $text = $self->{process}->status_text;
	return $text =~ /^exit code (\d+)/ ? $1 : $text =~ /signal (\d+)/ ? 128 + $1 : $text;
}

sub end($self)
{
	$self->close_input;
	return is($self->status, 0, 'the command ends well');
}

1;
