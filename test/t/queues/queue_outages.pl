# Copyright (c) 2026, zklock contributors
#
# Queues while the link to ZooKeeper is cut, while its packets vanish, while the ZooKeeper server hangs,
# each for a good part of the session timeout, and while workers are terminated: as long as the
# ZooKeeper session lives, what was sent is settled, nobody is told that it could not be found out,
# and each element is removed once.

use Zklock::Test;
use Time::HiRes qw(time);

use constant { SESSIONS => 3, ELEMENTS => 60, TIMEOUT => 20 };

# Three outages at the same time: each server has a proxy and a queue of its own.
my @names = qw(a b c);
my ($zk, @cast) = cast("@names", proxied => "@names", timeout => TIMEOUT . 's');
my @stages = map { { queue => "/q/$names[$_]", proxy => $cast[$_], server => $cast[ $_ + @names ] } } 0 .. $#names;

# For that part of the session timeout; the last heartbeat came up to a second before it began.
sub last_for($part)
{
	my $begun = time;
	wait_until { time - $begun >= $part * scaled(TIMEOUT) } "$part of the session timeout to pass";
	return;
}

sub restart_often($server) { foreach (1 .. 3) { $server->restart_worker; $server->wait_session; } return; }

# How each begins, in the order of the alphabet: the whole ZooKeeper server hangs last. Then how long they last.
my %outages = (
	'packets vanish'   => sub { $_[0]{proxy}->blackhole; },
	'the link is cut'  => sub { $_[0]{proxy}->cut; },
	'the server hangs' => sub { $zk->pause; $_[0]{proxy}->heal; });
my %rounds = (
	'for half of the session timeout'        => [ sub { last_for(0.5); }, %outages ],
	'for nine tenths of the session timeout' => [ sub { last_for(0.9); }, %outages ],
	'until the lease of a server is over'    => [
		sub { $stages[1]{server}->wait_value("SELECT coalesce(lease_remaining, '0') FROM zk_session", '00:00:00'); },
		'replies are lost'       => sub { $_[0]{proxy}->lose_reply(op => 'multi', path => '^/', nth => 3) foreach 1 .. 3; },
		'the link is cut'        => $outages{'the link is cut'},
		'workers are terminated' => sub { restart_often($_[0]{server}); } ]);

foreach my $stage (@stages)
{
	# What was not sent is offered again.
	$stage->{server}->value(q{
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
						IF sqlerrm !~ 'ZooKeeper cannot be reached$|not proved to be alive$' THEN RAISE; END IF;
					END;
				END LOOP;
			END LOOP;
			RETURN names;
		END $$});
	$stage->{server}->value("SELECT zk_queue_offer('$stage->{queue}', 'first'), zk_queue_remove('$stage->{queue}')");
}

# Sessions offer and take, until the answer to one of them is held.
sub begin($stage)
{
	my ($queue, $server) = @{$stage}{qw(queue server)};
	$stage->{$_} = [ map { $server->session } 1 .. SESSIONS ] foreach qw(offering taking);
	$stage->{id} = $server->session_id;
	my $held = $stage->{proxy}->hold_reply(op => 'multi', path => "^$queue", nth => 5);
	my $number = 0;
	$_->query_start("SELECT offer_all('$queue', @{[ $number++ ]}, @{[ ELEMENTS ]})") foreach @{ $stage->{offering} };
	$_->query_start("SELECT string_agg(convert_from(zk_queue_take('$queue'), 'UTF8'), ' ') FROM generate_series(1, @{[ ELEMENTS ]})")
	  foreach @{ $stage->{taking} };
	$stage->{proxy}->fired($held);
	return;
}

sub end($stage, $outage)
{
	my @names = map { split / /, $_->finish } @{ $stage->{offering} };
	my @taken = map { split / /, $_->finish } @{ $stage->{taking} };
	my %names;
	$names{$_}++ foreach grep { $_ ne '' } @names;
	is_deeply([ grep { $names{$_} > 1 } keys %names ], [], "$outage: each name is told once");
	my @offered = map { my $n = $_; map { "$n.$_" } 1 .. ELEMENTS } 0 .. SESSIONS - 1;
	is_deeply([ sort @taken ], [ sort @offered ], 'each element is there once');
	is($stage->{server}->session_id, $stage->{id}, 'in one ZooKeeper session');
	$_->disconnect foreach @{ $stage->{offering} }, @{ $stage->{taking} };
	$stage->{proxy}->clear;
	return;
}

foreach my $round (sort keys %rounds)
{
	subtest "an outage $round" => sub {
		my ($last, %begins) = @{ $rounds{$round} };
		my @outages = sort keys %begins;
		begin($_) foreach @stages;
		$begins{ $outages[$_] }->($stages[$_]) foreach 0 .. $#stages;
		$last->();
		$zk->resume;
		$_->{proxy}->heal foreach @stages;
		$_->{server}->wait_session foreach @stages;
		end($stages[$_], $outages[$_]) foreach 0 .. $#stages;
	};
}

Zklock::Server->assert_clean($zk, [ map { $_->{server} } @stages ], '/zklock-receipts', map { $_->{queue} } @stages);
done_testing;
