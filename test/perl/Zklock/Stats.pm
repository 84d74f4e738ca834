# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Stats - what zk_stats has counted since

=head1 SYNOPSIS

  my $stats = Zklock::Stats->new($session);    # which reads the view
  $stats->note;
  ...
  $stats->counted('one wait', 'lock exclusive' => { acquisitions => 1, waits => 1 });    # a test: this,
                                               # and nothing else, since note() or counted()
  my %now = $stats->now;                       # by kind and mode, and by count
  $stats->before('queue')->{waits};            # as it was then

=cut

package Zklock::Stats;

use v5.36;

use Test::More ();

our @ends   = qw(timeouts busy cancels deadlocks failures);
our @counts = (qw(acquisitions reentrant handed_over waits losses), @ends);

sub new($class, $session)
{
	return bless { session => $session, before => {} }, $class;
}

# { "lock exclusive" => { acquisitions => 3, ... }, ... }
sub now($self)
{
	my $list = join ', ', @counts;
	return map { my ($kind, $mode, @values) = @$_; my %row; @row{@counts} = @values; ("$kind$mode" => \%row) }
	  @{ $self->{session}->try("SELECT kind, coalesce(' ' || mode, ''), $list FROM zk_stats")->{rows} };
}

sub note($self) { $self->{before} = { $self->now }; return; }

sub before($self, $kind) { return $self->{before}{$kind}; }

sub counted($self, $name, %expected)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %now = $self->now;
	my %difference;
	foreach my $kind (keys %now)
	{
		foreach my $count (@counts)
		{
			my $more = $now{$kind}{$count} - $self->{before}{$kind}{$count};
			$difference{$kind}{$count} = $more if $more;
		}
	}
	Test::More::is_deeply(\%difference, \%expected, $name);
	$self->{before} = \%now;
	return;
}

1;
