# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Util - what every part of the test harness shares

=head1 SYNOPSIS

  use Zklock::Util qw(wait_until);
  wait_until { -e $file } "the file $file";
  my $rows = wait_until { $server->value('...') } 'rows', 10;

=head1 FUNCTIONS

  wait_until { condition } $what [, $seconds]
                       polls until the block returns something true, and returns that. Croaks
                       "timed out after N s waiting for $what" otherwise. Nothing else in the
                       harness polls
  default_timeout      seconds that any wait takes at most: ZKLOCK_TEST_TIMEOUT, else 60, scaled
  scaled($time)        a number, or a time with a unit ('4s'), times ZKLOCK_TEST_FACTOR: how much longer than
                       on an idle machine things took when the run began. Limits, and the timeouts of sessions, are
                       scaled where they are set; what wait_until takes is
  nap($seconds)        sleeps for a fraction of a second
  increasing(@numbers) is each number larger than the one before?
  most_at_once([ $from, $until ], ...)
                       how many there were at most at one moment
  overlaps([ $from, $until, $mode, $who ], ...)
                       texts, one for each two of different clients that were there together
                       although the mode of one is exclusive
  secret($file, $text [, $mode])
                       writes a file that its owner alone may read, unless another mode is given; its name
  blocks($file)        the blocks of code of a document: [ language, text ]
  tail($file, $lines [, $skip])
                       the last lines of a file, but for those that match
  children_of($pid)    the processes that a process has started and not outlived
  freeze(@pids), thaw(@pids)
                       stops processes with SIGSTOP, and returns when they stand still; has them
                       go on. At the end of the test all do
  on_failure($name, sub { text })
                       registers a reporter: if the test fails or dies, the text is printed

=cut

package Zklock::Util;

use v5.36;

use Carp;
use Exporter 'import';
use POSIX qw(ceil);
use Test::More ();
use Time::HiRes qw(time);

our @EXPORT_OK = qw(wait_until default_timeout scaled tail children_of freeze thaw on_failure nap increasing most_at_once overlaps secret blocks);

sub factor { return $ENV{ZKLOCK_TEST_FACTOR} || 1; }

sub scaled($time)
{
	my ($number, $unit) = $time =~ /^([\d.]+)(.*)$/ or croak "no time: $time";
	$number = ceil($number * factor());
	return $unit eq '' ? $number : "$number$unit";
}

sub default_timeout { return $ENV{ZKLOCK_TEST_TIMEOUT} || scaled(60); }

sub children_of($parent)
{
	my @children;
	foreach my $file (glob '/proc/[0-9]*/stat')
	{
		open(my $stat, '<', $file) or next;
		my ($pid, $its_parent) = (<$stat> // '') =~ /^(\d+) \(.*\) \S (\d+) / or next;
		push @children, $pid if $its_parent == $parent;
	}
	return @children;
}

my %frozen;

sub freeze(@pids)
{
	croak 'there is no process to freeze' if !@pids || grep { !$_ } @pids;
	@frozen{@pids} = ();
	kill 'STOP', @pids;
	foreach my $pid (@pids)
	{
		# One that has ended meanwhile does not run either.
		wait_until(sub { open(my $stat, '<', "/proc/$pid/stat") or return 1; return (<$stat> // '') !~ /^.*\) [RSD] /; },
			"process $pid to stop");
	}
	return;
}

sub thaw(@pids) { kill 'CONT', @pids; delete @frozen{@pids}; return; }

sub nap($seconds) { select(undef, undef, undef, $seconds); return; }

sub wait_until :prototype(&$;$) ($condition, $what, $timeout = undef)
{
	$timeout = defined $timeout ? scaled($timeout) : default_timeout();
	my $end  = time + $timeout;
	my $step = 0.005;

	while (1)
	{
		my $result = $condition->();
		return $result if $result;
		if (time >= $end)
		{
			$what = $what->() if ref $what eq 'CODE';
			croak "timed out after $timeout s waiting for $what";
		}
		nap($step);
		# What lasts is looked at less often: looks take processor time from what is waited for.
		$step *= 1.5 if $step < ($end - time > $timeout - 1 ? 0.03 : 0.1);
	}
}

sub increasing(@numbers) { return !grep { $numbers[ $_ - 1 ] >= $numbers[$_] } 1 .. $#numbers; }

sub most_at_once(@inside)
{
	my ($now, $most) = (0, 0);
	# At one moment, those who leave come before those who enter.
	foreach my $event (sort { $a->[0] <=> $b->[0] || $a->[1] <=> $b->[1] } map { ([ $_->[0], 1 ], [ $_->[1], -1 ]) } @inside)
	{
		$now += $event->[1];
		$most = $now if $most < $now;
	}
	return $most;
}

sub overlaps
{
	my @holds = sort { $a->[0] <=> $b->[0] } @_;
	my @wrong;
	foreach my $i (0 .. $#holds)
	{
		my $first = $holds[$i];
		foreach my $second (@holds[ $i + 1 .. $#holds ])
		{
			last if $second->[0] >= $first->[1];
			push @wrong, "@$first | @$second"
			  if $first->[3] ne $second->[3] && grep { $_->[2] eq 'exclusive' } $first, $second;
		}
	}
	return @wrong;
}

sub secret($file, $text, $mode = 0600)
{
	open(my $handle, '>', $file) or croak "$file: $!";
	print $handle $text;
	close $handle or croak "$file: $!";
	chmod $mode, $file;
	return $file;
}

sub blocks($file)
{
	open(my $handle, '<', $file) or croak "$file: $!";
	my $text = do { local $/; <$handle> }
	  =~ s/^  (?=```|\S.*;$)//mgr;
	my @words = $text =~ /^```(\w*)\n(.*?)^```$/msg;
	return map { [ @words[ 2 * $_, 2 * $_ + 1 ] ] } 0 .. $#words / 2;
}

sub tail($file, $lines, $skip = undef)
{
	open(my $fh, '<', $file) or return "(cannot read $file: $!)\n";
	seek($fh, -65536, 2);    # fails if it is smaller
	my @all = grep { !defined $skip || !/$skip/ } <$fh>;
	splice(@all, 0, @all - $lines) if @all > $lines;
	return join('', @all);
}

my @reporters;

sub on_failure($name, $code) { push @reporters, [ $name, $code ]; return; }

# Reports come before anything is stopped: Zklock::Process, which stops the
# processes in its own END block, calls this first. What is frozen could not be stopped.
my $reported;

sub end_of_test($status)
{
	my $builder = Test::More->builder;
	thaw(keys %frozen);
	return if $reported++;
	return if $status == 0 && $builder->is_passing;
	# What a dying test says goes to a file too.
	my $log = $PostgreSQL::Test::Utils::test_logfile;
	unshift @reporters, [ "end of $log", sub { tail($log, 15) } ] if $status != 0 && $log;
	foreach my $reporter (@reporters)
	{
		my ($name, $code) = @$reporter;
		my $text = eval { $code->() } // "(no report: $@)";
		$builder->diag("---- $name\n$text");
	}
	return;
}

1;
