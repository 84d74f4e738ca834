# Copyright (c) 2026, zklock contributors
#
# Queues while the link to ZooKeeper is cut, while its packets vanish, while the ZooKeeper server hangs,
# each for a good part of the session timeout, and while workers are terminated: as long as the
# ZooKeeper session lives, what was sent is settled, nobody is told that it could not be found out,
# and each element is removed once.

use Zklock::Test;
use Time::HiRes qw(time);

use constant { QUEUE => '/q/outage', SESSIONS => 3, ELEMENTS => 60, TIMEOUT => 20 };

my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => TIMEOUT . 's');
my $s     = $a->session;

sub lease_remaining
{
	return $a->value('SELECT coalesce(extract(epoch FROM lease_remaining), 0) FROM zk_session');
}

# The lease ends some time before the session may.
sub until_lease_over { wait_until { lease_remaining() <= 0 } 'the lease to end'; return; }

# For that part of the session timeout; the last heartbeat came up to a second before it began.
sub last_for
{
	my ($part) = @_;
	my $begun = time;
	wait_until { time - $begun >= $part * TIMEOUT } "$part of the session timeout to pass";
	return;
}

# What was not sent is offered again.
$s->query(q{
	CREATE FUNCTION offer_all(queue text, number int, elements int) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		names text := '';
	BEGIN
		FOR i IN 1 .. elements LOOP
			LOOP
				BEGIN
					names := names || ' ' || coalesce(zk_queue_offer(queue, convert_to(number || '.' || i, 'UTF8')), '');
					EXIT;
				EXCEPTION WHEN io_error THEN
					IF sqlerrm NOT LIKE '%ZooKeeper cannot be reached' THEN RAISE; END IF;
				END;
			END LOOP;
		END LOOP;
		RETURN names;
	END $$});

sub offer
{
	my ($session, $number) = @_;
	return $session->query_start("SELECT offer_all('@{[ QUEUE ]}', $number, @{[ ELEMENTS ]})");
}

sub take
{
	my ($session) = @_;
	return $session->query_start("SELECT string_agg(convert_from(zk_queue_take('@{[ QUEUE ]}'), 'UTF8'), ' ')
		FROM generate_series(1, @{[ ELEMENTS ]})");
}

my %outages = (
	'the link is cut' => [ sub { $proxy->cut; }, sub { $proxy->heal; } ],
	'packets vanish'  => [ sub { $proxy->blackhole; }, sub { $proxy->heal; } ],
	'the server hangs' => [ sub { $zk->pause; $proxy->heal; }, sub { $zk->resume; } ]);
my %lasting = (
	'half of the session timeout'        => sub { last_for(0.5); },
	'nine tenths of the session timeout' => sub { last_for(0.9); });
my %faults = (
	'the link is cut until the lease is over' => sub { $proxy->cut; until_lease_over(); },
	'replies are lost'    => sub { $proxy->lose_reply(op => 'multi', path => '^/', nth => 3) foreach 1 .. 3; },
	'workers are terminated' => sub { foreach (1 .. 3) { $a->restart_worker; $a->wait_session; } });
foreach my $outage (keys %outages)
{
	my ($begin, $end) = @{ $outages{$outage} };
	foreach my $time (keys %lasting)
	{
		$faults{"$outage for $time"} = sub { $begin->(); $lasting{$time}->(); $end->(); };
	}
}

$s->query("SELECT zk_queue_offer('@{[ QUEUE ]}', 'first'), zk_queue_remove('@{[ QUEUE ]}')");
foreach my $fault (sort keys %faults)
{
	subtest $fault => sub {
		my @offering = map { $a->session } 1 .. SESSIONS;
		my @taking   = map { $a->session } 1 .. SESSIONS;
		my $id       = $a->session_id;
		my $held = $proxy->hold_reply(op => 'multi', path => '^' . QUEUE, nth => 5);
		offer($offering[ $_ - 1 ], $_) foreach 1 .. SESSIONS;
		take($_) foreach @taking;
		$proxy->fired($held);
		$faults{$fault}->();
		$proxy->heal;
		$a->wait_session;
		my @names = map { split / /, $_->finish } @offering;
		my @taken = map { split / /, $_->finish } @taking;
		my %names;
		$names{$_}++ foreach grep { $_ ne '' } @names;
		is_deeply([ grep { $names{$_} > 1 } keys %names ], [], 'each name is told once');
		is_deeply([ sort @taken ], [ sort map { my $n = $_; map { "$n.$_" } 1 .. ELEMENTS } 1 .. SESSIONS ], 'each element is there once');
		is($a->session_id, $id, 'in one ZooKeeper session');
		$_->disconnect foreach @offering, @taking;
		$proxy->clear;
	};
}

Zklock::Server->assert_clean($zk, [$a], QUEUE, '/zklock-receipts');
done_testing;
