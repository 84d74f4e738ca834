# Copyright (c) 2026, zklock contributors
#
# A session asks for much and gives up each time, while the link to ZooKeeper takes few requests
# in a second: what it has asked for still goes out, but others wait for no more of that than its
# share. The requests are counted in the proxy.

use Zklock::Test;

# Requests a second; what a session has under way at most; what may pass until the worker has heard
# of the victim, half a second in all
use constant { RATE => 30, SHARE => 48, UNTIL_HEARD => 16 };

my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '60s',
	conf => [ "log_statement = 'none'", "log_min_messages = 'log'" ]);

$a->value('CREATE ROLE greedy LOGIN; CREATE ROLE modest LOGIN');
$a->value('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO greedy, modest');
my $greedy = $a->session(user => 'greedy', name => 'greedy');
my %victims = (
	'a session of another role'  => $a->session(user => 'modest', name => 'modest'),
	'another session of its own' => $a->session(user => 'greedy', name => 'other'));
$_->query("SELECT zk_lock('/v/lock') AND zk_unlock('/v/lock')") foreach values %victims;

my $n    = 0;
my %asks = (
	'zk_lock()'  => sub { $n++; $greedy->try("SELECT zk_lock('/g/$n', '2ms')"); },
	'zk_claim()' => sub {
		$n++;
		$greedy->try("SET statement_timeout = '2ms'; SELECT zk_claim('/g/claim', timestamptz '2026-11-23' + interval '$n s')");
	});

# How many of the greedy session's requests have passed, until the victim's?
sub passed
{
	my $passed = 0;
	foreach my $request (map { "$_->[0] " . ($_->[1] // '') } @{ $proxy->requests })
	{
		last if $request =~ m{^create2 /v/};
		$passed++ if $request =~ m{ /g/};
	}
	return $passed;
}

sub clean_up
{
	my ($victim) = @_;
	is($victim->finish, 't', 'it has its lock');
	$greedy->query('SET statement_timeout = 0; SELECT zk_unlock_all()');
	$victim->query("SELECT zk_unlock('/v/lock')");
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
	return;
}

foreach my $who (sort keys %victims)
{
	my $victim = $victims{$who};

	foreach my $what (sort keys %asks)
	{
		subtest "a session that loops $what keeps $who waiting for no more than its share" => sub {
			$proxy->throttle(RATE);
			$proxy->reset_counts;
			wait_until { $asks{$what}->(); passed() >= RATE } 'the link to be busy';
			$proxy->reset_counts;
			$victim->query_start("SELECT zk_lock('/v/lock')");
			$asks{$what}->() while $victim->busy;
			my $passed = passed();
			cmp_ok($passed, '<=', SHARE + UNTIL_HEARD, "$passed requests passed before its own");
			$proxy->throttle(0);
			clean_up($victim);
		};
	}

	subtest "while nothing is answered, $who can ask when the share of one is used up" => sub {
		# The window of a worker that has just begun is wider than a share. It sends nothing until its
		# connection's sync has been answered.
		$a->restart_worker;
		$victim->query("SELECT zk_lock('/v/lock') AND zk_unlock('/v/lock')");
		$a->wait_value('SELECT count(*) FROM zk_locks', 0);
		$proxy->blackhole('replies');
		$proxy->reset_counts;
		wait_until { $asks{'zk_lock()'}->(); passed() >= SHARE } 'its share to be used up';
		$asks{'zk_lock()'}->() foreach 1 .. SHARE;
		$proxy->wait_all_sent;
		is(passed(), SHARE, 'what was given up counts');
		$victim->query_start("SELECT zk_lock('/v/lock')");
		wait_until { grep { $_->[0] eq 'create2' && $_->[1] =~ m{^/v/lock} } @{ $proxy->requests } } 'the other request';
		is(passed(), SHARE, 'no more was sent meanwhile');
		$proxy->heal;
		clean_up($victim);
	};
}

$_->disconnect foreach $greedy, values %victims;
$a->assert_clean($zk, '/v/lock', '/g');
done_testing;
