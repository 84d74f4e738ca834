# Copyright (c) 2026, zklock contributors
#
# Queues of elements: many who offer and take, and many who merely wait.

package Bench::Measure::Elements;

use strict;
use warnings;

use parent 'Bench::Measure';

use Bench::Contestants qw(outcome);

# Of 1,000 idle consumers so many get an element while it is measured.
my ($consumers, $offers) = (1000, 200);

sub name  { return 'elements'; }
sub title { return 'Queues of elements'; }

sub text
{
	return <<'END';
"16 offer, 16 take": sessions of one server, as fast as they can; the rate is that of offers and removals together. "1,000
wait": so many sessions wait for elements of one queue; the time is that of one offer, one after the other.
END
}

sub places    { return qw(memory ensemble); }
sub columns   { return qw(p50 p99 rate requests bytes watches cpu); }

sub _busy
{
	my ($stage) = @_;
	my $server = $stage->server('a');
	my $acquire = q{SELECT CASE WHEN current_setting('bench.offers', true) = 'on' }
	  . q{THEN zk_queue_offer($1::text, 'element') }
	  . q{ELSE coalesce(encode(zk_queue_take($1::text, '0.1s'), 'escape'), 'none') END};
	return {
		name    => 'zklock',
		pids    => [ $server->worker_pid ],
		prepare => sub {
			$stage->sessions('a-offer' => 16, 'SET bench.offers = on');
			$stage->sessions('a-take' => 16);
		},
		run => sub {
			my ($seconds) = @_;
			return outcome($stage->together(0.05, $seconds,
					[ $stage->sql, 'run', groups => 'a-offer:16,a-take:16', acquire => $acquire,
						release => 'SELECT $1::text', path => '/bench/elements', think => 0 ]));
		} };
}

sub _idle
{
	my ($stage) = @_;
	my $server = $stage->server('a');
	my $path   = '/bench/idle';
	return {
		name    => 'zklock',
		pids    => [ $server->worker_pid ],
		prepare => sub {
			$stage->sessions(a => $consumers);
			$stage->sessions('a-one' => 1);
			$stage->sql->call('enqueue', name => 'a', index => $_, path => $path,
				acquire => q{SELECT encode(zk_queue_take($1::text, '1h'), 'escape')}, release => 'SELECT $1::text')
			  foreach 0 .. $consumers - 1;
			$server->wait_value("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT encode(zk_queue_take(%'",
				$consumers);
			$server->settle;
		},
		run => sub {
			my $time = $stage->sql->call('time', name => 'a-one', index => 0,
				sql => "SELECT count(zk_queue_offer('$path', 'element')) FROM generate_series(1, $offers)");
			return { durations => [ $time / $offers ], acquisitions => $offers, figures => { rate => 1e6 * $offers / $time } };
		},
		finish => sub {
			my $left = $consumers - $offers;
			$stage->sql->call('time', name => 'a-one', index => 0,
				sql => "SELECT count(zk_queue_offer('$path', 'element')) FROM generate_series(1, $left)");
			$stage->sql->call('drain', groups => "a:$consumers");
		} };
}

sub cases
{
	my ($self, $stage) = @_;
	return (
		{ name => '16 offer, 16 take', contestants => [ _busy($stage) ] },
		{ name => '1,000 wait',        contestants => [ _idle($stage) ] });
}

1;
