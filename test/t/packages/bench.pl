# Copyright (c) 2026, zklock contributors
#
# The benchmarks' harness: what it makes of numbers that are known, and that one measurement runs
# through. How fast anything is, no test can tell.

use Zklock::Test;
use utf8;
use FindBin;
use lib "$FindBin::Bin/../../bench";
use Bench::Chart;
use Bench::Contestants;
use Bench::Figures qw(median percentile compared figures still rounded table_of);
use Bench::Measure;
use Bench::Report;
use Bench::Rounds;
use Bench::Stage;
use Bench::Targets;
use List::Util qw(min sum);
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);

subtest 'medians, percentiles and ratios' => sub {
	is(median(5, 1, 3), 3, 'the median of three');
	is(median(4, 1, 3, 2), 2.5, 'of four');
	is(median(undef, 7), 7, 'of what there is');
	is(median(), undef, 'of nothing');
	is(percentile(50, 1 .. 10),  5,   'half of ten are at most 5');
	is(percentile(99, 1 .. 100), 99,  '99 of a hundred are at most 99');
	is(percentile(99, 1 .. 10),  10,  'the largest of a few');
	is(percentile(99, 3),        3,   'of one');
	my @both = ([ 10, undef, 30, 8 ], [ 20, 7, 10, undef ]);
	is_deeply([ compared(ratio => @both) ], [ 0.5, 3 ], 'a ratio for each round that has both');
	is_deeply([ compared(difference => @both) ], [ -10, 20 ], 'likewise a difference');
	is_deeply(figures([ 300, 100, 200 ], 0.5), { count => 3, rate => 6, p50 => 200, p99 => 300 }, 'figures of a run');
};

subtest 'figures stand still' => sub {
	ok(!still(@$_), "not yet: @$_") foreach [], [ 100, 100 ], [ 80, 100, 101, 90 ], [ 100, 103, 106 ];
	ok(still(20, 80, 100, 102, 104), 'the last three differ by less than 5 %');
};

subtest 'numbers are rounded to the digits that count' => sub {
	my %expected = (
		12345 => '12,300', 0.01234 => '0.0123', 999.6 => '1,000', 100 => '100', 0 => '0', 1234567 => '1,230,000',
		-5.678 => '-5.68');
	is(rounded($_, 3), $expected{$_}, "$_ in three digits") foreach sort keys %expected;
};

subtest 'contestants begin in turn' => sub {
	my %first;
	$first{ (Bench::Rounds::order($_, qw(a b c))) [0] }++ foreach 0 .. 5;
	is_deeply(\%first, { a => 2, b => 2, c => 2 }, 'each of three, twice in six rounds');
	is_deeply([ sort(Bench::Rounds::order(3, qw(a b c))) ], [qw(a b c)], 'and nobody is left out');
};

subtest "ZooKeeper's counters" => sub {
	my $mntr = "zk_packets_received\t10\nzk_bytes_received_count\t100\nzk_response_bytes\t50\n"
	  . "zk_sum_node_deleted_watch_count\t3\nzk_sum_node_children_watch_count\t4\nzk_watch_count\t99\n";
	is_deeply(
		{ Bench::Rounds::counters_of($mntr . "== another server\n" . $mntr) },
		{ requests => 20, bytes => 300, watches => 14 },
		'the sum over all servers');
	is_deeply(
		{ Bench::Rounds::cost({ requests => 20, cpu => 0 }, { requests => 50, cpu => 6 }, 3) },
		{ requests => 10, cpu => 2 },
		'the cost of an acquisition');
};

sub series($measure, $case, $contestant, @rounds)
{
	return { measure => $measure, place => 'memory', case => $case, contestant => $contestant, rounds => \@rounds };
}

# Two rounds of a measure that exists, in which zklock took twice and three times as long as the floor.
my @series = (
	series('think', '1 session', 'zklock',
		{ p50 => 200, p99 => 900, rate => 40, requests => 3, bytes => 650, watches => 1, cpu => 120, switches => 31 }, { p50 => 3000 }),
	series('think', '1 session', 'C, create only',
		{ p50 => 100, p99 => 300, rate => 45, requests => 2, bytes => 500, watches => 0, cpu => 60 }, { p50 => 1000 }),
	map { series('closed', "$_ sessions", 'zklock', { rate => 1000 * $_ }) } 1, 16);
my ($think) = grep { $_->{name} eq 'think' } Bench::Measure::all();

is(table_of($think, @series[ 0, 1 ]), <<'END', 'a table, with the median of the ratios to the floor, and their range');
| case | contestant | p50 µs | p99 µs | per second | zklock's p50 is | requests | bytes | watches | client CPU µs | switches |
| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |
| 1 session | zklock | 1,600 | 900 | 40.0 |  | 3.0 | 650 | 1.0 | 120 | 31.0 |
|  | C, create only | 550 | 300 | 45.0 | 2.50 × (2.00 to 3.00) | 2.0 | 500 | 0 | 60.0 |  |
END

subtest 'targets' => sub {
	my @results = Bench::Targets::results(@series);
	is(scalar @results, 1, 'what was measured');
	is($results[0]{value}, 2.5, 'the median of the ratios');
	ok(!$results[0]{reached}, '2.5 is more than 1.25');
	$series[0]{rounds}[$_]{p50} /= 2 foreach 0, 1;
	ok((Bench::Targets::results(@series))[0]{reached}, '1.25 is not');
	is_deeply([ Bench::Targets::results() ], [], 'nothing of nothing');
};

subtest 'a picture' => sub {
	my $svg = Bench::Chart::svg(
		title => 'a < b', description => 'd', subtitle => 's', x => 'sessions', y => 'per second',
		lines => [
			{ name => 'zklock', points => [ [ 1, 10 ], [ 100, 1000 ] ] },
			{ name => 'pg_advisory_lock', points => [ [ 1, 10 ], [ 10, 100 ] ] } ]);
	like($svg, qr{<title>a &lt; b</title>\s*<desc>d</desc>}, 'its title and what it shows in words');
	like($svg, qr{>\Q$_\E</t}, "it shows: $_") foreach 's', 'sessions', 'per second', 'zklock', 'pg_advisory_lock', '1,000';
	my @marks = map { [ $svg =~ /translate\(([\d.]+),([\d.]+)\)[^>]* color='$_'/g ] } '#0969da', '#1a7f37';
	my ($x, $y, $last_x, $last_y) = @{ $marks[0] };
	my (undef, undef, $end_x, $end_y) = @{ $marks[1] };
	cmp_ok(abs($end_x - ($x + $last_x) / 2), '<', 0.2, 'ten is halfway from 1 to 100');
	cmp_ok(abs($end_y - ($y + $last_y) / 2), '<', 0.2, 'and 100 from 10 to 1,000');
	cmp_ok($end_y, '<', $y, 'more is further up');
	my %seen = map { $_ => 1 } $svg =~ /(?:fill|stroke|color)=['"](#[\da-f]{6})/g;
	like($svg, qr/^\[fill='$_'\] \{ fill: #\w{6}; \}$/m, "$_ has a colour for dark") foreach sort keys %seen;
	unlike($svg, qr/rgb\(/, 'and there are no other colours');
};

# Guarded transactions, of which zklock did twice and four times as many as Curator.
my @guarded = map {
	my ($place, @rates) = @$_;
	map { { %{ series('guarded', '1 thread', $_, { rate => shift @rates }) }, place => $place } } qw(zklock Curator)
} [ memory => 600, 300 ], [ delay => 80, 20 ];

# Does a contestant's run for as long as it takes to come to something. Returns the outcome, and how often it has acquired.
sub run_of($contestant)
{
	my ($all, $outcome) = (0);
	for (my $seconds = 0.1; $seconds < 30 && !@{ $outcome->{durations} // [] }; $seconds *= 4)
	{
		$outcome = $contestant->{run}->($seconds);
		$all += $outcome->{acquisitions};
	}
	return ($outcome, $all);
}

@Bench::Peer::java = qw(-XX:+UseSerialGC -XX:TieredStopAtLevel=1);
my $stage = Bench::Stage->new('memory');
if (!$stage)
{
	SKIP: { skip 'no tmpfs to keep data in', 1; }
	done_testing;
	exit;
}

subtest 'a lock guards a transaction' => sub {
	my @contestants = Bench::Contestants::guarded($stage, path => '/bench/tx', sessions => 4);
	# Each on its server
	my $updates = sub { return sum(map { $_->value('SELECT sum(n) FROM guarded') } values %{ $stage->{servers} }); };
	foreach my $contestant (@contestants)
	{
		my $before = $updates->();
		my (undef, $all) = run_of($contestant);
		cmp_ok($all, '>', 0, "$contestant->{name}: there were some");
		is($updates->() - $before, $all, 'each has updated a row');
	}
	is($stage->server('a')->value('SELECT count(*) FROM guarded WHERE n > 0'), 1, 'which is the same, since the path is');
	my ($two) = Bench::Contestants::guarded($stage, path => '/bench/two%s-%d', sessions => 2, servers => 2);
	my $there = sub { return $stage->server('b')->value('SELECT sum(n) FROM guarded'); };
	run_of($two) until $there->() > 0;
	is_deeply([ sort $stage->zk->children('/bench/zklock') ], [qw(two0-1 two1-1 tx)], 'another server has its part, and another path');
};

subtest 'paths that change' => sub {
	foreach my $make (qw(zklock curator kazoo))
	{
		my ($contestant) = Bench::Contestants->can($make)->($stage, path => '/bench/new%n', sessions => 3);
		my (undef, $all) = run_of($contestant);
		is(scalar(grep { /^new/ } $stage->zk->children("/bench/$contestant->{name}")), $all, "$make: no path recurs");
		($contestant) = Bench::Contestants->can($make)->($stage, path => '/bench/random%r', sessions => 3);
		my @random = grep { /^random/ } $stage->zk->children("/bench/$contestant->{name}");
		is(scalar(@random), 10_000, 'those that are chosen at random are there');
		run_of($contestant);
		is(scalar(grep { /^random/ } $stage->zk->children("/bench/$contestant->{name}")), 10_000, 'and there are no others');
	}
};

subtest 'what is sent takes its time where there is a delay' => sub {
	my $there = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "cannot listen: $!";
	my $port  = PostgreSQL::Test::Cluster::get_free_port();
	my $relay = Bench::Peer::relay($port, $there->sockport, 500_000);
	my $from  = wait_until { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) } 'the relay';
	my $to    = $there->accept;
	foreach my $way ([ $from, $to, 'there' ], [ $to, $from, 'and back' ])
	{
		my $sent = time;
		syswrite($way->[0], 'word');
		sysread($way->[1], my $got, 10);
		is($got, 'word', "it arrives $way->[2]");
		cmp_ok(time - $sent, '>=', 0.5, 'no sooner than it is to');
	}
	$from->close;
	is(sysread($to, my $nothing, 10), 0, 'and so does the end');
	$relay->stop;
	my $far = Bench::Stage->new('delay');
	foreach my $contestant (Bench::Contestants::guarded($far, path => '/bench/far%d'))
	{
		my ($outcome) = run_of($contestant);
		my $trips = { Curator => 5, etcd => 4 }->{ $contestant->{name} } // 3;
		cmp_ok(min(@{ $outcome->{durations} }), '>=', $trips * 1000, "$contestant->{name}: no time is less than $trips times to and fro");
	}
	$far->close;
};

subtest 'one short measurement, and the report of it' => sub {
	my (@measured, %figures);

	# As short as it may be for each of them to come to something.
	for (my $seconds = 0.1; $seconds < 30; $seconds *= 4)
	{
		@measured = Bench::Rounds::run($think, $stage, rounds => 1, seconds => $seconds);
		%figures = map { $_->{contestant} => $_->{rounds}[0] } @measured;
		last unless grep { $_->{count} == 0 } values %figures;
	}
	$stage->close;
	is(scalar(grep { $_->{count} > 0 } values %figures), scalar @measured, 'each contestant has acquired something');
	my $not_kept = $figures{'zklock, keep_idle = 0'} // $figures{zklock};
	cmp_ok($not_kept->{requests},        '>=', 3, 'zklock: create, list, delete');
	cmp_ok($figures{zklock}{cpu},        '>',  0, 'and time of the worker');
	cmp_ok($figures{'C, create only'}{requests}, '>=', 2, 'the floor: create, delete');

	my $directory = PostgreSQL::Test::Utils::tempdir();
	my $report    = Bench::Report->new({
		machine => [ [ 'processors', '2' ] ], idle => [ 1, 0.5 ], date => '2026-01-01',
		rounds => 1, seconds => 0.1, warm_up => 10, series => [ @measured, @guarded, @series[ 2, 3 ] ], failed => [] });
	append_to_file("$directory/benchmarks.md", "# Old\n\nfigures\n\n## What it means\n\nWords.\n");
	$report->write($directory);
	$report->write_tables($directory);
	my $document = slurp_file("$directory/benchmarks.md");
	like($document, qr/^\| 1 thread \| \*\*600\*\* \| 300 \(2\.0 \S+\) \|\n/m, 'what users do');
	like($document, qr/^\| 1 thread \| 2\.0 \S+ \|  \|  \| 4\.0 \S+ \|\n/m, 'and elsewhere');
	like($document, qr/^\| 16 sessions, a path each: locks a second \| \*\*16,000\*\* \|/m, 'the table');
	my @locks = grep { $figures{$_} } 'zklock', 'zklock, keep_idle = 0', qw(Curator kazoo etcd Redis), 'dblink, pg_advisory_lock';
	my $least = min(map { $figures{$_}{p50} } @locks);
	my (undef, @cells) = split(/ \| /, ($document =~ /^\| lock, think .*; (less is better \| .*)$/m)[0]);
	is_deeply([ map { /\*\*/ ? 1 : 0 } @cells ], [ (map { $figures{$_}{p50} == $least ? 1 : 0 } @locks), 0 ], 'the best lock is in bold');
	like(slurp_file("$directory/tables.md"), qr/^\| +1 session \| zklock \|/m, 'all figures');
	like($document, qr/\n\n## What it means\n\nWords\.\n\z/, 'the words below stay');
	unlike($document, qr/Old/, 'and nothing else');
	like($document, qr/others were at work/i, 'that the machine was not quiet');
	like($document, qr{!\[Locks taken and released in a second, by number of sessions\]\(pictures/benchmark-throughput\.svg\)}, 'the picture');
	like(slurp_file("$directory/pictures/benchmark-throughput.svg"), qr/zklock: 1,000 at 1, 16,000 at 16\./, 'which says its figures in words, too');
};

done_testing;
