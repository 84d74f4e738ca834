# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Report - the results of a run as documents and as pictures

=head1 SYNOPSIS

  my $report = Bench::Report->new($results);    # as bench.pl writes them, decoded
  print $report->targets;                  # and what failed
  $report->write_tables('build/bench');    # tables.md: every figure, and the targets
  $report->write('doc');                   # benchmarks.md, pictures/benchmark-*.svg

=cut

package Bench::Report;

use v5.36;
use utf8;

use Bench::Chart;
use Bench::Measure;
use Bench::Numbers qw(median ratios rounded);
use Bench::Table;
use Bench::Targets;
use File::Basename qw(dirname);
use List::Util qw(first);

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

# The rows of the document's table: words, measure, case, figure
my @summary = (
	[ 'lock, think 20 ms, unlock: time of the lock call, µs', think => '1 session', 'p50' ],
	[ '16 sessions, a path each: locks a second', closed => '16 sessions', 'rate' ],
	[ '16 sessions of one server, one path: hand-overs a second', handover => '16 sessions on one server', 'rate' ],
	[ '2 sessions on two servers, one path', handover => '2 sessions on two servers', 'rate' ],
	[ '16 sessions on two servers, one path', handover => '16 sessions on two servers', 'rate' ],
	[ 'hand-over while 1,000 wait, µs', waiting => '1000 waiting', 'p50' ]);

# Its columns: what each contestant is called there, and the names that it has in measures
my @contestants = (
	[ 'zklock' => 'zklock' ],
	[ 'Curator' => 'Curator' ],
	[ 'kazoo' => 'kazoo' ],
	[ '`pg_advisory_lock`' => 'pg_advisory_lock', 'dblink, pg_advisory_lock' ],
	[ 'the least in C' => 'C, create only', 'C, create and delete' ]);

# A machine that is idle for less of its time is not left to the benchmarks alone.
my $quiet = 0.9;

sub new($class, $results) { return bless { %$results, measures => [ Bench::Measure->all ] }, $class; }

sub _tables($self, $measure)
{
	my @tables = map { [ $_->[1], Bench::Table->new($measure, $_->[0], @{ $self->{series} }) ] } @places;
	return grep { $_->[1]->rows } @tables;
}

# The lines of a chart: each contestant's medians, over the numbers that the cases begin with
sub _lines($self, $measure, $chart)
{
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
sub _describe($line)
{
	return "$line->{name}: " . join(', ', map { rounded($_->[1], 3) . " at $_->[0]" } @{ $line->{points} }) . '.';
}

# File names and their contents
sub _charts($self, $measure)
{
	my @charts;
	foreach my $chart ($measure->charts)
	{
		my @lines = $self->_lines($measure, $chart);
		next unless @lines;
		my %place = map { @$_ } @places;
		my $subtitle = "$place{ $chart->{place} }; both axes are logarithmic";
		my $description = join(' ', map { _describe($_) } @lines);
		push @charts, { %$chart, description => $description,
			svg => Bench::Chart::svg(%$chart, subtitle => $subtitle, description => $description, lines => \@lines) };
	}
	return @charts;
}

sub _idle($self)
{
	my @idle = @{ $self->{idle} };
	my $text = 'Of the processors\' time ' . join(' and ', map { sprintf('%.0f %%', 100 * $_) } @idle)
	  . ' was idle before the run and after it.';
	$text .= ' **Others were at work on the machine: this run says little.**' if grep { $_ < $quiet } @idle;
	return $text;
}

sub _method($self)
{
	return sprintf(<<'END', $self->{rounds}, $self->{seconds});
All contestants ran in one run on one machine, beside the servers, in turn within each of %d rounds of %s s; figures are
medians of the rounds. A machine has good and bad moments, so compare within a line only: in brackets is how many times the
contestant's figure zklock's is, the median of the ratios within the rounds. `pg_advisory_lock` is that of one server: of the
session's own, or through `dblink`. "The least in C" is what no lock can do without: a node created, or created and deleted.
END
}

sub _section($self, $measure)
{
	my @tables = $self->_tables($measure) or return '';
	my $text = '## ' . $measure->title . "\n\n" . $measure->text . "\n";
	$text .= "![$_->{description}](pictures/$_->{file})\n\n" foreach $self->_charts($measure);
	$text .= "### " . $measure->title . ": $_->[0]\n\n" . $_->[1]->markdown . "\n" foreach @tables;
	return $text;
}

sub _failed($self)
{
	my @failed = map { "- $_->{measure}, $_->{place}: $_->{why}" =~ s/\s+/ /gr . "\n" } @{ $self->{failed} };
	return @failed ? join('', "\n## What failed\n\n", @failed) : '';
}

sub targets($self) { return Bench::Targets::markdown(@{ $self->{series} }) . $self->_failed; }

# All that was measured
sub tables($self)
{
	my $text = "# All figures of $self->{date}\n\n" . $self->targets . "\n"
	  . join('', map { $self->_section($_) } @{ $self->{measures} });
	return $text =~ s/\n+\z/\n/r;
}

sub _find($self, $measure, $case, @names)
{
	return first { defined } map { Bench::Table::find($measure, 'memory', $case, $_, @{ $self->{series} }) } @names;
}

# A contestant's figure, and zklock's as a multiple of it
sub _cell($self, $row, @names)
{
	my (undef, $measure, $case, $figure) = @$row;
	my $theirs = $self->_find($measure, $case, @names)    or return '';
	my $ours   = $self->_find($measure, $case, 'zklock') or return '';
	my $value = rounded(median(Bench::Table::values_of($theirs, $figure)), 3);
	return "**$value**" if $theirs == $ours;
	my @ratios = ratios([ Bench::Table::values_of($ours, $figure) ], [ Bench::Table::values_of($theirs, $figure) ]);
	return "$value (" . rounded(median(@ratios), 2) . ' ×)';
}

sub _summary($self)
{
	my @rows = map { my $row = $_; [ $row->[0], map { my (undef, @names) = @$_; $self->_cell($row, @names) } @contestants ] }
	  grep { $self->_find($_->[1], $_->[2], 'zklock') } @summary;
	return join('', '| | ' . join(' | ', map { $_->[0] } @contestants) . " |\n|---|" . '--:|' x @contestants . "\n",
		map { '| ' . join(' | ', @$_) . " |\n" } @rows);
}

# How fast it is, for somebody who wonders whether to use it
sub document($self)
{
	my $machine = join('; ', map { "$_->[0] $_->[1]" } @{ $self->{machine} });
	my $text = "# Benchmarks\n\nHow fast is it beside what else? Made by `make bench` on $self->{date}, with one ZooKeeper server that\n"
	  . "keeps its data in memory.\n\n"
	  . $self->_summary . "\n" . $self->_method . "\n"
	  . "$machine. " . _idle($self) . "\n\n"
	  . join('', map { "![$_->{description}](pictures/$_->{file})\n\n" } map { $self->_charts($_) } @{ $self->{measures} })
	  . <<'END';
## What limits it

- *One lock, nobody else at work.* ZooKeeper commits one write; the rest is processes that wake each other: client, session,
  worker, and back. Curator is one process, and asks ZooKeeper twice in a row.
- *Many locks at once.* Most of the worker's time goes into ZooKeeper's client library, whose threads wake each other for
  each request and answer.
- *One lock that all want.* Within a server a hand-over costs ZooKeeper nothing. Between servers both workers take part; a
  lock that goes to and fro between two idle sessions is the worst case.

[Operations](operations.md#many-database-servers) has the costs that a fleet of servers brings to an ensemble.

## Run it

`make bench` takes some 30 minutes on two cores, and writes this page, and all figures into `build/bench/tables.md`: with
ZooKeeper's data on disk and in an ensemble of three, queues, arrays, the commit guard, `zk_is_leader`, and sessions that do not
use zklock. `make bench QUICK=1` takes a few minutes. [How it is done](../test/bench/README).
END
	return $text . $self->_failed;
}

sub _write_file($file, $text)
{
	open(my $fh, '>:encoding(UTF-8)', $file) or die "$file: $!\n";
	print $fh $text;
	close($fh) or die "$file: $!\n";
	return;
}

sub _write($self, $file, $text)
{
	my $pictures = dirname($file) . '/pictures';
	unlink glob "$pictures/benchmark-*.svg";
	mkdir $pictures;
	_write_file("$pictures/$_->{file}", $_->{svg}) foreach map { $self->_charts($_) } @{ $self->{measures} };
	_write_file($file, $text);
	return;
}

sub write_tables($self, $directory) { return $self->_write("$directory/tables.md", $self->tables); }
sub write($self, $directory) { return $self->_write("$directory/benchmarks.md", $self->document); }

1;
