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
use PostgreSQL::Test::Utils ();
use POSIX qw(:sys_wait_h);
use Scalar::Util qw(weaken);
use Time::HiRes qw(time);
use Zklock::Util qw(freeze nap thaw);

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
	$arg{log} //= log_of($arg{name});
	my $self = bless {
		name => $arg{name},
		log  => $arg{log},
		pid  => undef,
	}, $class;

	my ($child_in, $child_out);
	if ($arg{pipes})
	{
		pipe($child_in, $self->{in})  or croak "pipe: $!";
		pipe($self->{out}, $child_out) or croak "pipe: $!";
		$self->{in}->autoflush(1);
	}

	my $parent = $$;
	my $pid    = fork;
	croak "cannot fork: $!" unless defined $pid;
	if ($pid == 0)
	{
		# From here on only POSIX::_exit leaves: nothing of the parent's must be
		# destroyed here.
		local $SIG{__DIE__} = 'DEFAULT';
		eval {
			$SIG{$_} = 'DEFAULT' foreach qw(PIPE INT TERM HUP CHLD);
			open(STDIN, '<&', $child_in) or die $! if $child_in;
			open(STDIN, '<', '/dev/null') or die $! unless $child_in;
			# The harness may have tied these handles; the descriptors count.
			open(my $log, '>>', $arg{log}) or die "$arg{log}: $!";
			POSIX::dup2(fileno($child_out || $log), 1) or die $!;
			POSIX::dup2(fileno($log), 2) or die $!;
			chdir $arg{dir} or die $! if $arg{dir};
			exec { 'setpriv' } 'setpriv', '--pdeathsig', 'KILL', @{ $arg{argv} };
			die "cannot run setpriv: $!";
		};
		syswrite(STDERR, "$arg{name}: $@");
		POSIX::_exit(127);
	}
	$self->{pid} = $pid;
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
	delete $alive{ $self->{pid} };
	$self->{pid} = undef;
	return 0;
}

sub status_text($self)
{
	return 'running' if $self->running;
	my $s = $self->{status};
	return 'gone' unless defined $s;
	return $s & 127 ? 'killed by signal ' . ($s & 127) : 'exit code ' . ($s >> 8);
}

sub signal($self, $signal)
{
	kill $signal, $self->{pid} if $self->{pid};
	return;
}

sub pause($self)
{
	return unless $self->{pid};
	freeze($self->{pid});
	$self->{paused} = 1;
	return;
}

sub resume($self)
{
	thaw($self->{pid}) if $self->{pid};
	$self->{paused} = 0;
	return;
}

sub wait_end($self, $timeout)
{
	my $end = time + $timeout;
	while ($self->running)
	{
		return 0 if time >= $end;
		nap(0.01);
	}
	return 1;
}

sub kill9($self)
{
	local $?;
	$self->signal('KILL');
	$self->wait_end(10) or carp "$self->{name} survives SIGKILL";
	return;
}

# Ask it to end; insist after a while.
sub stop($self, $timeout = undef)
{
	local $?;
	return unless $self->running;
	$self->resume if $self->{paused};
	if ($self->{in})
	{
		# The end of its input lets it say goodbye to others.
		close delete $self->{in};
		return if $self->wait_end(3);
	}
	$self->signal('TERM');
	$self->kill9 unless $self->wait_end($timeout || 5);
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
