# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Bench::Report - the results of a run as text, as a document and as pictures

=head1 SYNOPSIS

  my $report = Bench::Report->new($results);    # as bench.pl writes them, decoded
  print $report->text;
  $report->write('doc');      # doc/benchmarks.md, doc/pictures/benchmark-*.svg

=cut

package Bench::Report;

use strict;
use warnings;

use Bench::Chart;
use Bench::Measure;
use Bench::Numbers qw(median rounded);
use Bench::Table;
use Bench::Targets;

my @places = (
	[ memory   => 'One ZooKeeper server, data in memory' ],
	[ disk     => 'One ZooKeeper server, data on disk' ],
	[ ensemble => 'Three ZooKeeper servers, data in memory' ]);

# Each has its colour in all pictures.
my %colour = (
	'zklock'                      => 0,
	'Curator'                     => 2,
	'kazoo'                       => 3,
	'C, create and delete'        => 4,
	'C, create and list children' => 5,
	'pg_advisory_lock'            => 1,
	'dblink, pg_advisory_lock'    => 1);

# A machine that is idle for less of its time is not left to the benchmarks alone.
my $quiet = 0.9;

sub new
{
	my ($class, $results) = @_;
	return bless { %$results, measures => [ Bench::Measure->all ] }, $class;
}

sub _tables
{
	my ($self, $measure) = @_;
	my @tables = map { [ $_->[1], Bench::Table->new($measure, $_->[0], @{ $self->{series} }) ] } @places;
	return grep { $_->[1]->rows } @tables;
}

# The lines of a chart: each contestant's medians, over the numbers that the cases begin with
sub _lines
{
	my ($self, $measure, $chart) = @_;
	my (%points, @names);
	foreach my $series (@{ $self->{series} })
	{
		next if $series->{measure} ne $measure->name || $series->{place} ne $chart->{place};
		next if $chart->{match} && $series->{case} !~ $chart->{match};
		my ($x) = $series->{case} =~ /^(\d+)/;
		my $y = median(Bench::Table::values_of($series, $chart->{figure}));
		next unless defined $colour{ $series->{contestant} };
		push @names, $series->{contestant} unless $points{ $series->{contestant} };
		push @{ $points{ $series->{contestant} } }, [ $x, $y ] if $y;
	}
	return map { { name => $_, colour => $colour{$_}, points => $points{$_} } } grep { $points{$_} } @names;
}

# A line in words
sub _describe
{
	my ($line) = @_;
	return "$line->{name}: " . join(', ', map { rounded($_->[1], 3) . " at $_->[0]" } @{ $line->{points} }) . '.';
}

# File names and their contents
sub _charts
{
	my ($self, $measure) = @_;
	my @charts;
	foreach my $chart ($measure->charts)
	{
		my @lines = $self->_lines($measure, $chart);
		next unless @lines;
		my %place = map { @$_ } @places;
		my $x = "$chart->{x}; " . lcfirst $place{ $chart->{place} };
		my $description = join(' ', map { _describe($_) } @lines);
		push @charts, { %$chart, description => $description,
			svg => Bench::Chart::svg(%$chart, x => $x, description => $description, lines => \@lines) };
	}
	return @charts;
}

sub _idle
{
	my ($self) = @_;
	my @idle = @{ $self->{idle} };
	my $text = 'Of the processors\' time ' . join(' and ', map { sprintf('%.0f %%', 100 * $_) } @idle)
	  . ' was idle before the run and after it.';
	$text .= ' **Others were at work on the machine: this run says little.**' if grep { $_ < $quiet } @idle;
	return $text;
}

sub _method
{
	my ($self) = @_;
	return sprintf(<<'END', $self->{seconds}, $self->{rounds});
All contestants ran in one run on one machine, with the servers, after Java's programs had run for some seconds. Of
three ZooKeeper servers all are clients of the same, a follower. In each round all run in turn, %s s each, in an order
that changes; there were %d rounds unless a table says otherwise. Figures are the median of the rounds, each by itself.
Machines have good and bad moments, so figures of different lines are not comparable. What is comparable is under
"zklock's ... is": how many times the line's figure zklock's is within a round, as the median of the rounds (and the
smallest and largest). Times are from the call until the lock is held, in microseconds. Costs are those of one
acquisition with its release: requests to ZooKeeper, bytes in both directions and watches that fired, as its servers
count them; and processor time of the process that speaks to ZooKeeper, zklock's worker or the client program.
[What limits them](internals.md#what-limits-the-speed) is another chapter.
END
}

sub text
{
	my ($self) = @_;
	my $text = '';
	foreach my $measure (@{ $self->{measures} })
	{
		foreach my $table ($self->_tables($measure))
		{
			$text .= $measure->title . ". $table->[0]\n\n" . $table->[1]->text . "\n";
		}
	}
	$text .= "$_->{measure}, $_->{place} FAILED: $_->{why}\n" foreach @{ $self->{failed} };
	my $format = "%-80s %-9s %-13s %-24s %s\n";
	$text .= sprintf($format, 'target', 'ZooKeeper', 'limit', 'median of the rounds', '');
	$text .= sprintf($format, @{$_}{qw(text place limit)}, Bench::Targets::figure($_), $_->{reached} ? 'reached' : 'MISSED')
	  foreach Bench::Targets::results(@{ $self->{series} });
	return $text;
}

sub _section
{
	my ($self, $measure) = @_;
	my @tables = $self->_tables($measure) or return '';
	my $text = '## ' . $measure->title . "\n\n" . $measure->text . "\n";
	$text .= "![$_->{description}](pictures/$_->{file})\n\n" foreach $self->_charts($measure);
	$text .= "### " . $measure->title . ": $_->[0]\n\n" . $_->[1]->markdown . "\n" foreach @tables;
	return $text;
}

sub markdown
{
	my ($self) = @_;
	my $machine = join('', map { "| $_->[0] | $_->[1] |\n" } @{ $self->{machine} });
	my $text = "# Benchmarks\n\nMade by `make bench` on $self->{date}. What follows for large fleets is in\n"
	  . "[operations.md](operations.md#many-database-servers).\n\n"
	  . "| machine | |\n|---|---|\n$machine\n" . _idle($self) . "\n\n"
	  . "## How it is measured\n\n" . _method($self) . "\n"
	  . "## What is to be reached\n\n" . Bench::Targets::markdown(@{ $self->{series} }) . "\n"
	  . join('', map { $self->_section($_) } @{ $self->{measures} });
	my @failed = map { "- $_->{measure}, $_->{place}: $_->{why}" =~ s/\s+/ /gr . "\n" } @{ $self->{failed} };
	$text .= join('', "## What failed\n\n", @failed) if @failed;
	return $text =~ s/\n+\z/\n/r;
}

sub _write_file
{
	my ($file, $text) = @_;
	open(my $fh, '>:encoding(UTF-8)', $file) or die "$file: $!\n";
	print $fh $text;
	close($fh) or die "$file: $!\n";
	return;
}

sub write
{
	my ($self, $directory) = @_;
	unlink glob "$directory/pictures/benchmark-*.svg";
	mkdir "$directory/pictures";
	foreach my $chart (map { $self->_charts($_) } @{ $self->{measures} })
	{
		_write_file("$directory/pictures/$chart->{file}", $chart->{svg});
	}
	_write_file("$directory/benchmarks.md", $self->markdown);
	return;
}

1;
