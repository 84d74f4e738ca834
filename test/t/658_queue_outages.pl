# Copyright (c) 2026, zklock contributors
#
# Queues while the link to ZooKeeper is cut for a good part of the session timeout, and while
# workers are terminated: as long as the ZooKeeper session lives, what was sent is settled,
# nobody is told that it could not be found out, and each element is removed once.

use strict;
use warnings;

use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

use constant { QUEUE => '/q/outage', SESSIONS => 3, ELEMENTS => 60 };

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
my $a     = Zklock::Server->new('a', zookeeper => $proxy, conf => [ "zklock.session_timeout = '10s'" ]);
my $s     = $a->session;

sub lease_remaining
{
	return $a->value('SELECT coalesce(extract(epoch FROM lease_remaining), 0) FROM zk_session');
}

# The lease ends some time before the session may.
sub cut_until
{
	my ($lease) = @_;
	$proxy->cut;
	wait_until { lease_remaining() <= $lease } "the lease to last for no more than $lease s";
	$proxy->heal;
	$a->wait_session;
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
	'the link is cut for half of the session timeout' => sub { cut_until(3); },
	'the link is cut until the lease is over'         => sub { cut_until(0); },
	'replies are lost'    => sub { $proxy->lose_reply(op => 'multi', path => '^/', nth => 3) foreach 1 .. 3; },
	'workers are terminated' => sub { foreach (1 .. 3) { $a->restart_worker; $a->wait_session; } });

$s->query("SELECT zk_queue_offer('@{[ QUEUE ]}', 'first'), zk_queue_remove('@{[ QUEUE ]}')");
foreach my $outage (sort keys %outages)
{
	subtest $outage => sub {
		my @offering = map { $a->session } 1 .. SESSIONS;
		my @taking   = map { $a->session } 1 .. SESSIONS;
		my $id       = $a->session_id;
		my $held = $proxy->hold_reply(op => 'multi', path => '^' . QUEUE, nth => 5);
		offer($offering[ $_ - 1 ], $_) foreach 1 .. SESSIONS;
		take($_) foreach @taking;
		$proxy->fired($held);
		$outages{$outage}->();
		$proxy->heal;
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
