# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Queue - a queue that is set up at leisure, and then served

=head1 SYNOPSIS

  my $contestant = Bench::Queue::zklock($stage, %job);    # or curator

Contestants as in Bench::Contestants, whose sessions stand in the queue before the measurement
begins: the first holds the lock, the others wait. When it begins the first releases, and so
does each that gets the lock, at once. The durations are those between one grant and the next. A job has

  path        the lock
  waiting     how many wait
  servers     1, or 2: they belong to one and the other in turn, so that each hand-over is one
              between servers
  foreigners  how many nodes of other clients stand behind them
  counted     of so many hand-overs, from the first, the durations count; default: all

=cut

package Bench::Queue;

use v5.36;

use List::Util qw(sum0);
use Zklock::Util qw(wait_until);

my @servers = qw(a b);

sub _durations($count, @answers)
{
	my @grants = sort { $a <=> $b } map { split / /, $_->{grants} } @answers;
	# The first had it before.
	my @durations = map { $grants[$_] - $grants[ $_ - 1 ] } 2 .. $#grants;
	splice(@durations, $count) if $count && @durations > $count;
	return @durations;
}

sub _outcome($job, @answers)
{
	my @durations = _durations($job->{counted}, @answers);
	return { durations => \@durations, seconds => sum0(@durations) / 1e6, acquisitions => $job->{waiting} };
}

sub _wait_nodes($stage, $path, $count)
{
	wait_until { $stage->c->call('count', path => $path) == $count } "$count nodes below $path";
	return;
}

# Of processes with these pids. The queue is filled, others stand behind it, of which the servers hear; then it drains.
sub _contestant($stage, $job, $pids, $servers, $fill, $drain)
{
	return {
		pids    => $pids,
		prepare => sub {
			$fill->();
			$stage->c->call('foreigners', path => $job->{path}, count => $job->{foreigners}) if $job->{foreigners};
			$_->settle foreach @$servers;
		},
		run    => sub { return _outcome($job, $drain->()) },
		finish => sub { $stage->c->call('disperse') if $job->{foreigners} } };
}

sub zklock($stage, %job)
{
	my $n    = $job{servers} || 1;
	my @used = map { $stage->server($_) } @servers[ 0 .. $n - 1 ];
	my @per_server = map { int(($job{waiting} + $n - $_) / $n) } 0 .. $n - 1;
	my $fill = sub {
		$stage->sessions($servers[$_], $per_server[$_]) foreach 0 .. $n - 1;
		foreach my $i (0 .. $job{waiting})
		{
			# It knows of the one before, and so gets a node behind that one's.
			$used[ $i % $n ]->settle if $n > 1;
			$stage->enqueue($servers[ $i % $n ], int($i / $n), $job{path}, 'SELECT zk_lock($1::text)', 'SELECT zk_unlock($1::text)');
			_wait_nodes($stage, $job{path}, $n > 1 ? $i + 1 : 1) if $n > 1 || $i == 0;
		}
		$_->wait_value(
			"SELECT count(*) FROM zk_locks WHERE path = '$job{path}' AND state IN ('held', 'waiting')",
			$per_server[ $_ == $used[0] ? 0 : 1 ]) foreach @used;
	};
	my $groups = join(',', map { "$servers[$_]:$per_server[$_]" } 0 .. $n - 1);
	return _contestant($stage, \%job, [ map { $_->worker_pid } @used ], \@used, $fill,
		sub { return $stage->sql->call('drain', groups => $groups) });
}

sub curator($stage, %job)
{
	my $n     = $job{servers} || 1;
	my @peers = map { $stage->curator($_) } 1 .. $n;
	my $fill  = sub {
		foreach my $i (0 .. $job{waiting})
		{
			$peers[ $i % $n ]->call('enqueue', path => $job{path});
			_wait_nodes($stage, $job{path}, $i + 1) if $n > 1;
		}
		_wait_nodes($stage, $job{path}, $job{waiting} + 1);
	};
	return _contestant($stage, \%job, [ map { $_->pid } @peers ], [], $fill, sub {
		my @asked = map { [ $_, $_->send('drain') ] } @peers;
		return map { $_->[0]->result($_->[1], 180) } @asked;
	});
}

1;
