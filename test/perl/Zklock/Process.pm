# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Process - a child process that never outlives its test

=head1 SYNOPSIS

  my $p = Zklock::Process->new(name => 'thing', argv => ['thing', '-x']);
  $p->pause; $p->resume; $p->kill9; $p->stop;

Its log is that of the test with this name, unless C<log> says otherwise.

With C<pipes =E<gt> 1> the child's standard input and output are pipes to us
(C<in>, C<out>); otherwise standard output goes to the log as well.

The child gets SIGKILL from the kernel when the test is killed, and is stopped at
the end of the test at the latest, also when the test dies.

=cut

package Zklock::Process;

use v5.36;

use Carp;
use IPC::Open3;
use PostgreSQL::Test::Utils ();
use POSIX qw(:sys_wait_h);
use Scalar::Util qw(weaken);
use Zklock::Util qw(freeze thaw wait_until);

my %alive;    # pid => weak reference to the object

# A test that is interrupted stops what it started as well, by the END blocks of this
# module and of PostgreSQL::Test::Cluster.
$SIG{$_} ||= sub { exit 130 } foreach qw(INT TERM HUP);

sub log_of($name)
{
	my $test = $PostgreSQL::Test::Utils::test_logfile =~ s/.*regress_log_//r;
	return "$PostgreSQL::Test::Utils::log_path/${test}_$name.log";
}

sub new($class, %arg)
{
	my $self = bless { name => $arg{name}, log => $arg{log} // log_of($arg{name}) }, $class;
	open(my $log, '>>', $self->{log}) or croak "$self->{log}: $!";
	my $to_log = '>&' . fileno $log;
	# PostgreSQL::Test::Utils ignores it.
	local $SIG{PIPE} = 'DEFAULT';
	my $pid = $self->{pid} = open3(
		$self->{in}, $arg{pipes} ? $self->{out} : $to_log, $to_log,
		qw(setpriv --pdeathsig KILL env), $arg{dir} ? "--chdir=$arg{dir}" : (), @{ $arg{argv} });
	close delete $self->{in} unless $arg{pipes};
	$alive{$pid} = $self;
	weaken $alive{$pid};
	return $self;
}

sub pid  { return $_[0]{pid}; }
sub name { return $_[0]{name}; }
sub log_file { return $_[0]{log}; }

# Is it still there? Reaps it if not.
sub running($self)
{
	return 0 unless $self->{pid};
	my $r = waitpid($self->{pid}, WNOHANG);
	return 1 if $r == 0;
	$self->{status} = $r > 0 ? $? : undef;
	delete $alive{ delete $self->{pid} };
	return 0;
}

sub status_text($self)
{
	return 'running' if $self->running;
	my $s = $self->{status};
	return 'gone' unless defined $s;
	return $s & 127 ? 'killed by signal ' . ($s & 127) : 'exit code ' . ($s >> 8);
}

sub signal($self, $signal) { kill $signal, $self->{pid} if $self->{pid}; return; }

sub pause($self) { freeze($self->{pid}) if $self->{pid}; return; }
sub resume($self) { thaw($self->{pid}) if $self->{pid}; return; }

sub wait_end($self, $timeout)
{
	local $@;
	return eval { wait_until { !$self->running } "the end of $self->{name}", $timeout };
}

sub kill9($self)
{
	local $?;
	$self->signal('KILL');
	$self->wait_end(10) or carp "$self->{name} survives SIGKILL";
	return;
}

# Ask it to end; insist after a while.
sub stop($self)
{
	local $?;
	return unless $self->running;
	$self->resume;
	if ($self->{in})
	{
		# The end of its input lets it say goodbye to others.
		close delete $self->{in};
		return if $self->wait_end(3);
	}
	$self->signal('TERM');
	$self->kill9 unless $self->wait_end(5);
	return;
}

sub DESTROY($self)
{
	local ($?, $@, $!);
	$self->kill9 if $self->{pid};
	return;
}

END
{
	my $status = $?;
	Zklock::Util::end_of_test($status);
	$_->signal('KILL') foreach grep { defined } values %alive;
	$_->wait_end(10) foreach grep { defined } values %alive;
	$? = $status;
}

1;
