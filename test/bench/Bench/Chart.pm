# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Chart - a plot as SVG, plain and readable, in light and in dark

=head1 SYNOPSIS

  my $svg = Bench::Chart::svg(
      title => '...', description => '...', subtitle => '...', x => 'sessions', y => 'locks per second',
      lines => [ { name => 'zklock', colour => 0, points => [ [1, 1000], [4, 3000] ] }, ... ]);

Both axes are logarithmic: what is of interest is by how many times one thing is more than another. All
numbers must be larger than 0. The pictures look like the others in doc/pictures.

=cut

package Bench::Chart;

use v5.36;

use List::Util qw(max min sum);
use POSIX qw(ceil floor);

# The size, and the place of the plot in it
my ($width, $height) = (780, 400);
my ($left, $right, $top, $bottom) = (90, 206, 70, 56);

# Distance of the names beside the ends of the lines
my $line_height = 18;

# Names of classes, with colours for light and dark
my @colours = (
	[ c1 => '#0969da', '#4493f8' ],
	[ c2 => '#1a7f37', '#3fb950' ],
	[ c3 => '#cf222e', '#f85149' ],
	[ c4 => '#9a6700', '#d29922' ],
	[ c5 => '#8250df', '#ab7df8' ],
	[ c6 => '#bf3989', '#db61a2' ]);

sub _escape($text) { return $text =~ s/&/&amp;/gr =~ s/</&lt;/gr =~ s/>/&gt;/gr; }
sub _log { return log($_[0]) / log(10); }
sub _commas($n) { 1 while $n =~ s/^(\d+)(\d{3})/$1,$2/; return $n; }

# The numbers 1, 2, 5, 10, 20 ... from the last that is not above the values to the first that is not below
sub ticks(@values)
{
	my ($min, $max) = (min(@values), max(@values));
	my @all  = map { my $decade = 10**$_; map { $_ * $decade } 1, 2, 5 } floor(_log($min)) - 1 .. ceil(_log($max)) + 1;
	my $from = max(grep { $_ <= $min * (1 + 1e-9) } @all);
	my $to   = min(grep { $_ >= $max * (1 - 1e-9) && $_ > $from } @all);
	return grep { $_ >= $from && $_ <= $to } @all;
}

sub _style(@used)
{
	my $light = join('', map { "\t\t.$_->[0] { stroke: $_->[1]; }\n\t\t.f$_->[0] { fill: $_->[1]; }\n" } @used);
	my $dark  = join('', map { "\t\t\t.$_->[0] { stroke: $_->[2]; }\n\t\t\t.f$_->[0] { fill: $_->[2]; }\n" } @used);
	return <<"END";
	<style>
		text { font: 13px -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; fill: #1f2328; }
		.b { font-weight: 600; }
		.dim { fill: #59636e; font-size: 12px; }
		.mid { text-anchor: middle; }
		.end { text-anchor: end; }
		.panel { fill: #ffffff; stroke: #d1d9e0; }
		.grid { stroke: #d1d9e0; }
		.line { fill: none; stroke-width: 2; }
		.lead { fill: none; stroke-width: 1; }
$light		\@media (prefers-color-scheme: dark) {
			text { fill: #f0f6fc; }
			.dim { fill: #9198a1; }
			.panel { fill: #0d1117; stroke: #3d444d; }
			.grid { stroke: #3d444d; }
$dark		}
	</style>
END
}

sub _text($class, $x, $y, $text)
{
	return sprintf(qq(\t<text class="%s" x="%.1f" y="%.1f">%s</text>\n), $class, $x, $y, $text);
}

# Where the names go: each at the end of its line, but not upon another. Those that would cover each
# other stand as a group, whose middle is that of their lines' ends.
sub label_places(@wanted)
{
	my @groups;
	foreach my $i (sort { $wanted[$a] <=> $wanted[$b] } 0 .. $#wanted)
	{
		my $group = { members => [$i] };
		_place_group($group, @wanted);
		while (@groups && $groups[-1]{last} + $line_height > $group->{first})
		{
			$group = { members => [ @{ (pop @groups)->{members} }, @{ $group->{members} } ] };
			_place_group($group, @wanted);
		}
		push @groups, $group;
	}
	my @places;
	foreach my $group (@groups)
	{
		my $place = $group->{first};
		foreach my $i (@{ $group->{members} })
		{
			$places[$i] = $place;
			$place += $line_height;
		}
	}
	return @places;
}

sub _place_group($group, @wanted)
{
	my @members = @{ $group->{members} };
	my $length  = $line_height * $#members;
	$group->{first} = sum(@wanted[@members]) / @members - $length / 2;
	$group->{first} = min($group->{first}, $height - $bottom + 4 - $length);
	$group->{last} = $group->{first} + $length;
	return;
}

# How large the marks at the lines' ends are: of several in one place each shows around the next.
sub end_sizes(@ends)
{
	return map { my $i = $_; 3.5 + 2.5 * grep { abs($ends[$_] - $ends[$i]) < 5 } $i + 1 .. $#ends } 0 .. $#ends;
}

sub svg(%plot)
{
	my @lines = grep { @{ $_->{points} } } @{ $plot{lines} };
	die "nothing to plot\n" if !@lines;
	my @used = @colours[ map { $_->{colour} } @lines ];
	my @xs = map { $_->[0] } map { @{ $_->{points} } } @lines;
	my @ys = map { $_->[1] } map { @{ $_->{points} } } @lines;
	my ($x0, $x1) = (_log(min(@xs)), _log(max(@xs)));
	$x1 = $x0 + 1 if $x1 == $x0;
	my @ticks = ticks(@ys);
	my ($y0, $y1) = map { _log($_) } @ticks[ 0, -1 ];
	my $x_scale = ($width - $left - $right) / ($x1 - $x0);
	my $y_scale = ($height - $top - $bottom) / ($y1 - $y0);
	my $x_of    = sub { return sprintf('%.1f', $left + (_log($_[0]) - $x0) * $x_scale) };
	my $y_of    = sub { return sprintf('%.1f', $height - $bottom - (_log($_[0]) - $y0) * $y_scale) };

	my $body = '';
	foreach my $tick (@ticks)
	{
		my $y = $y_of->($tick);
		$body .= sprintf(qq(\t<path class="grid" d="M%s,%s H%s"/>\n), $left, $y, $width - $right);
		$body .= _text('dim end', $left - 8, $y + 4, _commas($tick));
	}
	my %seen;
	foreach my $number (grep { !$seen{$_}++ } sort { $a <=> $b } @xs)
	{
		my $x = $x_of->($number);
		$body .= sprintf(qq(\t<path class="grid" d="M%s,%s V%s"/>\n), $x, $top, $height - $bottom);
		$body .= _text('dim mid', $x, $height - $bottom + 18, _commas($number));
	}
	my @ends   = map { $y_of->($_->{points}[-1][1]) } @lines;
	my @places = label_places(map { $_ + 4 } @ends);
	my @sizes  = end_sizes(@ends);
	my ($lines, $marks) = ('', '');
	foreach my $i (0 .. $#lines)
	{
		my $colour = $used[$i][0];
		my @points = map { [ $x_of->($_->[0]), $y_of->($_->[1]) ] } @{ $lines[$i]{points} };
		my ($end_x, $end_y) = @{ $points[-1] };
		$lines .= qq(\t<polyline class="line $colour" points=") . join(' ', map { "$_->[0],$_->[1]" } @points) . qq("/>\n);
		# A thin line from its end to its name, should they be apart
		$lines .= sprintf(qq(\t<path class="lead $colour" d="M%s,%s L%.1f,%.1f"/>\n),
			$end_x, $end_y, $width - $right + 24, $places[$i] - 4);
		pop @points;
		$marks .= qq(\t<circle class="f$colour" cx="$_->[0]" cy="$_->[1]" r="3.5"/>\n) foreach @points;
		$marks .= qq(\t<circle class="f$colour" cx="$end_x" cy="$end_y" r="$sizes[$i]"/>\n);
		$marks .= _text("f$colour", $width - $right + 28, $places[$i], _escape($lines[$i]{name}));
	}
	$body .= $lines . $marks;
	my ($title, $description, $subtitle, $x, $y) = map { _escape($_) } @plot{qw(title description subtitle x y)};
	my ($panel_width, $panel_height) = ($width - 1, $height - 1);
	my ($middle, $foot)   = (($left + $width - $right) / 2, $height - 16);
	my ($half_way, $side) = (($top + $height - $bottom) / 2, 22);
	my $style = _style(@used);
	my $size  = qq(viewBox="0 0 $width $height" width="$width" height="$height");
	return <<"END";
<svg xmlns="http://www.w3.org/2000/svg" $size role="img" aria-labelledby="title desc">
	<title id="title">$title</title>
	<desc id="desc">$description</desc>
$style	<rect class="panel" x="0.5" y="0.5" width="$panel_width" height="$panel_height" rx="6"/>
	<text class="b" x="24" y="32">$title</text>
	<text class="dim" x="24" y="50">$subtitle</text>
	<text class="mid" x="$middle" y="$foot">$x</text>
	<text class="mid" x="$side" y="$half_way" transform="rotate(-90 $side $half_way)">$y</text>
$body</svg>
END
}

1;
