# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Chart - a plot as SVG, plain and readable, in light and in dark

=head1 SYNOPSIS

  my $svg = Bench::Chart::svg(
      title => '...', description => '...', subtitle => '...', x => 'sessions', y => 'locks per second',
      lines => [ { name => 'zklock', points => [ [1, 1000], [4, 3000] ] }, ... ]);

Gnuplot draws it, with logarithmic axes: what is of interest is by how many times one thing is more than
another. All numbers must be larger than 0. The pictures look like the others in doc/pictures.

=cut

package Bench::Chart;

use v5.36;

use IPC::Run;
use List::Util qw(uniq);

# In light and in dark: what each contestant has in all pictures, and what else there is
my %contestants = (
	'zklock'                      => [ '#0969da', '#4493f8' ],
	'Curator'                     => [ '#cf222e', '#f85149' ],
	'kazoo'                       => [ '#9a6700', '#d29922' ],
	'etcd'                        => [ '#1b7c83', '#39c5cf' ],
	'Redis'                       => [ '#57606a', '#8b949e' ],
	'C, create and delete'        => [ '#8250df', '#ab7df8' ],
	'C, create and list children' => [ '#bf3989', '#db61a2' ],
	'pg_advisory_lock'            => [ '#1a7f37', '#3fb950' ],
	'dblink, pg_advisory_lock'    => [ '#1a7f37', '#3fb950' ]);
my %others = (
	panel => [ '#ffffff', '#0d1117' ],
	grid  => [ '#d1d9e0', '#3d444d' ],
	text  => [ '#1f2328', '#f0f6fc' ],
	dim   => [ '#59636e', '#9198a1' ]);
my ($panel, $grid, $text, $dim) = map { $_->[0] } @others{qw(panel grid text dim)};
my %dark = map { @$_ } values %contestants, values %others;

sub has_colour($contestant) { return exists $contestants{$contestant}; }

sub _commas($n) { 1 while $n =~ s/^(\d+)(\d{3})/$1,$2/; return $n; }
sub _marks(@numbers) { return '(' . join(', ', map { sprintf('"%s" %s', _commas($_), $_) } @numbers) . ')'; }
sub _escape($words) { return $words =~ s/&/&amp;/gr =~ s/</&lt;/gr =~ s/>/&gt;/gr; }

sub _script($plot, @lines)
{
	my @x       = uniq sort { $a <=> $b } map { $_->[0] } map { @{ $_->{points} } } @lines;
	my $x_marks = _marks(@x);
	my $y_marks = _marks(map { my $decade = 10**$_; map { $_ * $decade } 1, 2, 5 } 0 .. 6);
	my ($data, @drawn) = ('');
	foreach my $line (@lines)
	{
		my $colour = $contestants{ $line->{name} }[0];
		my $block  = '$line' . @drawn;
		$data .= join("\n", "$block << END", (map { "@$_" } @{ $line->{points} }), "END\n");
		push @drawn, qq($block title "$line->{name}" linecolor rgb "$colour" linewidth 2 pointtype 7 pointsize 0.6);
	}
	my $drawn = join(', ', @drawn);
	return <<"END";
set terminal svg size 780,400 fixed font 'sans-serif,12.5' background '$panel'
set encoding utf8
set label "{/:Bold $plot->{title}}" at screen 0.03, screen 0.93 textcolor rgb '$text'
set label "$plot->{subtitle}" at screen 0.03, screen 0.88 textcolor rgb '$dim' noenhanced
set xlabel "$plot->{x}" textcolor rgb '$text'
set ylabel "$plot->{y}" textcolor rgb '$text'
set logscale xy
set style data linespoints
set xtics $x_marks
set ytics $y_marks
set xrange [0.999 * $x[0]:1.001 * $x[-1]]
set yrange [*:*] noextend
set offsets 0, 0, graph 0.05, graph 0.05
set border 0
set tics scale 0 textcolor rgb '$dim'
set grid linetype 1 linewidth 1 linecolor rgb '$grid'
set key at screen 0.71, graph 0.95 left top reverse Left spacing 1.5 samplen 1.5 noenhanced textcolor variable
set margins screen 0.115, screen 0.69, screen 0.15, screen 0.81
${data}plot $drawn
END
}

sub svg(%plot)
{
	# In the order in which they end
	my @lines = sort { $b->{points}[-1][1] <=> $a->{points}[-1][1] } grep { @{ $_->{points} } } @{ $plot{lines} };
	die "nothing to plot\n" if !@lines;
	my ($svg, $errors) = ('', '');
	IPC::Run::run(['gnuplot'], '<', \_script(\%plot, @lines), '>', \$svg, '2>', \$errors) or die "gnuplot: $errors";
	my %colour = map { sprintf('rgb(%d,%d,%d)', map { hex } /\w\w/g) => $_ } keys %dark;
	$svg =~ s/(rgb\([\d, ]+\))/$colour{ $1 =~ s{ }{}gr } \/\/ $1/ge;
	$svg =~ s{<title>.*</title>}{'<title>' . _escape($plot{title}) . '</title>'}e;
	$svg =~ s{<desc>.*</desc>}{'<desc>' . _escape($plot{description}) . '</desc>'}e;
	my $frame = qq(<rect x="0.5" y="0.5" width="779" height="399" rx="6" stroke="$grid");
	$svg =~ s{<rect x="0" y="0" width="780" height="400"}{$frame};
	my $rules = '';
	foreach my $light (sort keys %dark)
	{
		$rules .= "[$_='$light'] { $_: $dark{$light}; }\n" foreach qw(fill stroke color);
	}
	$svg =~ s{(?=<g id="gnuplot_canvas">)}{<style>\n\@media (prefers-color-scheme: dark) {\n$rules}\n</style>\n};
	return $svg;
}

1;
