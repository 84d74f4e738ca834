# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Report - the results of a run as documents and as pictures

=head1 SYNOPSIS

  my $report = Bench::Report->new($results);    # as bench.pl writes them, decoded
  print $report->targets;                  # and what failed
  $report->write_tables('build/bench');    # tables.md: every figure, and the targets
  $report->write('doc');                   # benchmarks.md, pictures/benchmark-*.svg

Of benchmarks.md what stands before the first heading of a section is made anew. Both write pictures beside their
document.

=cut

package Bench::Report;

use v5.36;
use utf8;

use Bench::Chart;
use Bench::Figures qw(median rounded find values_of against table_of table);
use Bench::Measure;
use Bench::Targets;
use List::Util qw(any first max min uniq);

my @places = (
	[ memory   => 'One ZooKeeper server, data in memory' ],
	[ disk     => 'One ZooKeeper server, data on disk' ],
	[ ensemble => 'Three ZooKeeper servers, data in memory' ],
	[ delay    => 'One ZooKeeper server, data in memory, 0.5 ms to each other host' ]);

# The rows of the document's table of calls: words, measure, case, figure
my @calls = (
	[ 'lock, think 20 ms, unlock: time of the lock call, µs', think => '1 session', 'p50' ],
	[ '16 sessions, a path each: locks a second', closed => '16 sessions', 'rate' ],
	[ '16 sessions, paths never locked twice: locks a second', paths => 'never locked twice', 'rate' ],
	[ '16 sessions, 10,000 paths at random: locks a second', paths => '10,000 at random', 'rate' ],
	[ '16 sessions of one server, one path: hand-overs a second', handover => '16 sessions on one server', 'rate' ],
	[ '2 sessions on two servers, one path: hand-overs a second', handover => '2 sessions on two servers', 'rate' ],
	[ '16 sessions on two servers, one path: hand-overs a second', handover => '16 sessions on two servers', 'rate' ],
	[ 'hand-over while 1,000 sessions of the same server wait, µs', waiting => '1000 waiting', 'p50' ]);

# The columns of tables: what each contestant is called there, and the names that it has in measures. The last is no lock.
my $no_lock = 'the least in C';
my @contestants = (
	[ 'zklock' => 'zklock' ],
	[ '`keep_idle = 0`' => 'zklock, keep_idle = 0' ],
	[ '`keep_idle = 10s`' => 'zklock, keep_idle = 10s' ],
	[ 'Curator' => 'Curator' ],
	[ 'kazoo' => 'kazoo' ],
	[ 'etcd' => 'etcd' ],
	[ 'Redis' => 'Redis' ],
	[ '`pg_advisory_lock`' => 'pg_advisory_lock', 'dblink, pg_advisory_lock' ],
	[ $no_lock => 'C, create only', 'C, create and delete' ]);

# A machine that is idle for less of its time is not left to the benchmarks alone.
my $quiet = 0.9;

sub _is_rate($figure) { return $figure eq 'rate'; }
sub _better($figure) { return (_is_rate($figure) ? 'more' : 'less') . ' is better'; }

sub new($class, $results) { return bless {%$results}, $class; }

# The series of a measure in a place, as they were measured
sub _series($self, $measure, $place)
{
	return grep { $_->{measure} eq $measure->{name} && $_->{place} eq $place } @{ $self->{series} };
}

# The lines of a chart: each contestant's medians, over the numbers that the cases begin with
sub _lines($self, $measure, $chart)
{
	my (%points, @names);
	foreach my $series (grep { !$chart->{match} || $_->{case} =~ $chart->{match} } $self->_series($measure, 'memory'))
	{
		my $name = $series->{contestant};
		my ($x)  = $series->{case} =~ /^(\d+)/;
		my $y    = median(values_of($series, $chart->{figure}));
		next unless Bench::Chart::has_colour($name) && $y;
		push @names, $name unless $points{$name};
		push @{ $points{$name} }, [ $x, $y ];
	}
	return map { { name => $_, points => $points{$_} } } @names;
}

# A line in words
sub _describe($line)
{
	return "$line->{name}: " . join(', ', map { rounded($_->[1], 3) . " at $_->[0]" } @{ $line->{points} }) . '.';
}

# The pictures of some measures, written into the directory, as a document has them
sub _pictures($self, $directory, @measures)
{
	my $text = '';
	foreach my $measure (@measures)
	{
		foreach my $chart (@{ $measure->{charts} })
		{
			my @lines = $self->_lines($measure, $chart) or next;
			my $description = join(' ', map { _describe($_) } @lines);
			_write("$directory/pictures", $chart->{file}, Bench::Chart::svg(
				%$chart,
				subtitle    => "$places[0][1]; " . _better($chart->{figure}) . '; both axes are logarithmic',
				description => $description,
				lines       => \@lines));
			$text .= "![$chart->{title}](pictures/$chart->{file})\n\n";
		}
	}
	return $text;
}

sub _write($directory, $name, $text)
{
	mkdir $directory;
	open(my $fh, '>:encoding(UTF-8)', "$directory/$name") or die "$directory/$name: $!\n";
	print $fh $text;
	close($fh) or die "$directory/$name: $!\n";
	return;
}

sub _section($self, $directory, $measure)
{
	my @tables = map {
		my ($place, $in_words) = @$_;
		my @rows = $self->_series($measure, $place);
		@rows ? "### $measure->{title}: $in_words\n\n" . table_of($measure, @rows) . "\n" : ()
	} @places;
	return '' unless @tables;
	return join('', "## $measure->{title}\n\n$measure->{text}\n", $self->_pictures($directory, $measure), @tables);
}

sub _failed($self)
{
	my @failed = map { "- $_->{measure}, $_->{place}: $_->{why}" =~ s/\s+/ /gr . "\n" } @{ $self->{failed} };
	return @failed ? join('', "**What failed:**\n\n", @failed, "\n") : '';
}

sub targets($self) { return Bench::Targets::markdown(@{ $self->{series} }) . "\n" . $self->_failed; }

# All that was measured
sub write_tables($self, $directory)
{
	my $text = "# All figures of $self->{date}\n\n" . $self->targets
	  . join('', map { $self->_section($directory, $_) } Bench::Measure::all());
	_write($directory, 'tables.md', $text =~ s/\n+\z/\n/r);
	return;
}

sub _find($self, $measure, $case, @names)
{
	return first { defined } map { find($measure, 'memory', $case, $_, @{ $self->{series} }) } @names;
}

# Each contestant's figure, the best lock's in bold, and zklock's as a multiple of it
sub _cells($self, $row, @columns)
{
	my (undef, $measure, $case, $figure) = @$row;
	my @series = map { my (undef, @names) = @$_; $self->_find($measure, $case, @names) } @columns;
	my @values = map { $_ && median(values_of($_, $figure)) } @series;
	my @locks  = grep { defined $values[$_] && $columns[$_][0] ne $no_lock } 0 .. $#columns;
	my $best   = _is_rate($figure) ? max(@values[@locks]) : min(@values[@locks]);
	my @cells  = map { rounded($_, 3) // '' } @values;
	$cells[$_] = "**$cells[$_]**" foreach grep { $values[$_] == $best } @locks;
	foreach my $i (grep { defined $values[$_] } 1 .. $#columns)
	{
		$cells[$i] .= ' (' . rounded(median(against(ratio => $figure, $series[0], $series[$i])), 2) . ' ×)';
	}
	return @cells;
}

# Of the rows that have a figure of zklock's, with the contestants that have any
sub _summary($self, @rows)
{
	@rows = grep { $self->_find(@$_[ 1, 2 ], 'zklock') } @rows;
	my @columns = grep {
		my (undef, @names) = @$_;
		any { $self->_find(@$_[ 1, 2 ], @names) } @rows
	} @contestants;
	return table(1, [ '', map { $_->[0] } @columns ],
		map { [ $_->[0] . (_is_rate($_->[3]) ? '' : '; ' . _better($_->[3])), $self->_cells($_, @columns) ] } @rows);
}

# What users do: in memory with all contestants, elsewhere with Curator
sub _guarded($self)
{
	my @cases = uniq map { $_->{case} } grep { $_->{measure} eq 'guarded' } @{ $self->{series} } or return '';
	my $rows  = $self->_summary(map { [ $_, guarded => $_, 'rate' ] } @cases);
	my $places = table(1, [ "zklock's figure, divided by Curator's", map { lcfirst $_->[1] =~ s/\bZooKeeper //r } @places ], map {
		my $case = $_;
		[ $case, map {
			my $place = $_->[0];
			my @both = grep { $_ } map { find('guarded', $place, $case, $_, @{ $self->{series} }) } qw(zklock Curator);
			@both == 2 ? rounded(median(against(ratio => 'rate', @both)), 2) . ' ×' : ''
		} @places ]
	} @cases);
	return <<"END";
**What locks are for**: lock, `UPDATE` of a row, COMMIT, unlock, in a Java program, by JDBC alone with `zk_xact_lock`, or with
Curator's `InterProcessMutex` around the transaction; with etcd in a program in Go, with Redis in C. zklock proves before each
COMMIT that the lock is still held, which the others leave to the program; they wait until the lock is released, which COMMIT does not.
Transactions a second, with one ZooKeeper server, data in memory:

$rows
And elsewhere:

$places
"0.5 ms" is what each message between program, PostgreSQL and ZooKeeper takes, by relays (`test/bench/relay.c`) on
the same processors: not every kernel has netem.

END
}

sub _paths_that_recur
{
	return <<"END";
**Where zklock is ahead because paths recur.** A server that locks a path again within `zklock.keep_idle`, 100 ms, need not
ask ZooKeeper: [the node is still there](guide.md#session-or-transaction-level). A closed loop with a path for each session is
the best case of that; `keep_idle = 0` is zklock without it. The price, one more round trip for another server, is in no line:
where others have just been, nothing is kept.

END
}

sub _left_out
{
	return <<"END";
**What is left out.** `pg_advisory_lock` on two servers, where it excludes nobody; kazoo in guarded transactions, whose program
is one in Java; Redis where several want one lock, since it notifies nobody; what Debian 12 has no package of.

END
}

sub _kept_equal($self)
{
	my $most = 3 * $self->{warm_up};
	return <<"END";
**What was kept equal.** All contestants ran in one run on one machine, beside the servers and on the same processors, in turn
within each of $self->{rounds} rounds of $self->{seconds} s, after $self->{warm_up} s to $most s of work; figures are medians of
the rounds, to be compared within a line only. Guarded transactions share program, driver, connections and table. Redis is not
on a par: one server that loses its locks when it ends. [The rest](../test/bench/README).

END
}

# How fast it is, for somebody who wonders whether to use it
sub _figures($self, $directory)
{
	my $machine  = join('; ', map { "$_->[0] $_->[1]" } @{ $self->{machine} });
	my $idle     = join(' and ', map { sprintf('%.0f %%', 100 * $_) } @{ $self->{idle} });
	my $others   = grep { $_ < $quiet } @{ $self->{idle} };
	my $warning  = $others ? ' **Others were at work on the machine: this run says little.**' : '';
	my $guarded  = $self->_guarded;
	my $calls    = $self->_summary(@calls);
	my $recur    = $self->_paths_that_recur;
	my $left_out = $self->_left_out;
	my $equal    = $self->_kept_equal;
	my $pictures = $self->_pictures($directory, Bench::Measure::all());
	return <<"END";
# Benchmarks

The speed of zklock, compared with other locks, measured by `make bench` on $self->{date}. More is better, unless a line
says that less is.

$guarded**The calls alone**, with one ZooKeeper server that keeps its data in memory:

$calls
**Bold** is the best lock of the line; in brackets is zklock's figure divided by the contestant's, the median of the rounds.
`pg_advisory_lock` is that of one server: of the session's own, or through `dblink`. "The least in C" creates a node, or
creates and deletes it, which no lock can do without.

$recur$left_out$equal$machine. Processors were idle for $idle of the time before the run and after it.$warning

$pictures
END
}

sub write($self, $directory)
{
	my $words = '';
	if (open(my $fh, '<:encoding(UTF-8)', "$directory/benchmarks.md"))
	{
		local $/;
		($words) = <$fh> =~ /^(## .*)/ms;
	}
	unlink glob "$directory/pictures/benchmark-*.svg";
	_write($directory, 'benchmarks.md', $self->_figures($directory) =~ s/\n+\z/\n\n/r . $self->_failed . ($words // ''));
	return;
}

1;
