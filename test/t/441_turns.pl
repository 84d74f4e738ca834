# Copyright (c) 2026, zklock contributors
#
# The requests of sessions are sent to ZooKeeper in turns: a session that asks for much does
# not keep others waiting. The order is that of the requests in the proxy, while no answers
# come. So it is with one that asks for much and gives up each time, while the link to ZooKeeper takes few
# requests in a second: what it has asked for still goes out, but others wait for no more of that than its share.

use Zklock::Test;
use Zklock::Cast;

# Requests a second; what a session has under way at most; what may pass until the worker has heard
# of the victim, half a second in all
use constant { RATE => 30, SHARE => 48, UNTIL_HEARD => 16 };

my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '60s',
	conf => [ "log_statement = 'none'", "log_min_messages = 'log'" ]);
my $many = 1500;

# Paths that exist, and are not in use.
sub prepare(@paths)
{
	my $session = $a->session;
	$session->query("SELECT zk_lock('$_') AND zk_unlock('$_')") foreach @paths;
	$session->disconnect;
	return;
}

# Nothing is answered, and as much is under way as can be.
sub stop_answers
{
	$proxy->blackhole('replies');
	$proxy->reset_counts;
	return;
}

# The greedy session has asked for all that it will, and the worker has sent of it what it will.
sub wait_full($op)
{
	if ($op eq 'delete') { $a->wait_value("SELECT count(*) FROM zk_locks WHERE path ~ '^/g/' AND state = 'held'", 0); }
	else                 { $a->wait_event($s{greedy}, 'guard'); }
	$proxy->wait_all_sent;
	cmp_ok($proxy->counts->{$op} || 0, '>=', 30, "as many requests ($op) are under way as may be");
	return;
}

# How many requests matched by the one pattern were sent before the first matched by the other?
sub count_before($count, $until)
{
	my $n = 0;
	foreach my $request (@{ $proxy->requests })
	{
		my $text = "$request->[0] " . ($request->[1] || '');
		return $n if $text =~ $until;
		$n++ if $text =~ $count;
	}
	return "$n, but none of the other kind";
}

sub greedy_holds
{
	hold($a, 'greedy', '/g/0');
	is($s{greedy}->query("SELECT count(*) FROM generate_series(1, $many) i WHERE zk_lock('/g/' || i)"), $many, "$many locks of one session");
	return;
}

prepare('/v/lock', map { ("/w/$_", "/x/$_") } 1 .. 8);

subtest 'a lock is not behind a thousand releases of another session' => sub {
	greedy_holds();
	stop_answers();
	$s{greedy}->query_start('SELECT zk_unlock_all()');
	wait_full('delete');
	on($a, 'victim')->query_start("SELECT zk_lock('/v/lock')");
	$a->wait_waiting($s{victim}, '/v/lock');
	$proxy->reset_counts;
	$proxy->heal;
	is($s{victim}->finish, 't', 'it is granted');
	ok($s{greedy}->result->{ok}, 'all is released');
	cmp_ok(count_before(qr{^delete /g/}, qr{^create2 /v/lock/}), '<=', 2, 'after no more than two of the releases');
	my @log = map { "$_->[0] " . ($_->[1] || '') } @{ $proxy->requests };
	my ($create) = grep { $log[$_] =~ m{^create2 /v/lock/} } 0 .. $#log;
	is($log[ $create + 1 ], 'getChildren /v/lock', 'with its listing right behind the create');
	$s{victim}->query("SELECT zk_unlock('/v/lock')");
};

subtest 'nor is it behind the checks of another session\'s COMMIT, nor are these behind each other' => sub {
	greedy_holds();
	hold($a, 'modest', '/v/modest');
	foreach my $name (qw(greedy modest))
	{
		$s{$name}->query("SET zklock.commit_guard = 'quorum'");
		$a->value("CREATE TABLE IF NOT EXISTS t (i int)");
	}
	$_->query('BEGIN'), $_->query('INSERT INTO t VALUES (1)') foreach @s{qw(greedy modest)};
	stop_answers();
	$s{greedy}->query_start('COMMIT');
	wait_full('multi');
	$s{modest}->query_start('COMMIT');
	$a->wait_event($s{modest}, 'guard');
	$s{victim}->start_waiting("SELECT zk_lock('/v/lock')", '/v/lock');
	$proxy->reset_counts;
	$proxy->heal;
	is($s{victim}->finish, 't', 'it is granted');
	ok($s{$_}->result->{ok}, "$_ has committed") foreach qw(greedy modest);
	cmp_ok(count_before(qr{^multi /g/}, qr{^create2 /v/lock/}), '<=', 2, 'after no more than two of the checks');
	cmp_ok(count_before(qr{^multi /g/}, qr{^multi /v/modest/}), '<=', 2, 'and so is the commit of who holds one lock');
	$_->query('SELECT zk_unlock_all()') foreach @s{qw(greedy modest victim)};
};

subtest 'sessions of one role that come first do not starve one that comes later' => sub {
	# Each has but one lock to take, and takes its turn.
	my @crowd = map { on($a, "crowd $_") } 1 .. 8;
	greedy_holds();
	stop_answers();
	$s{greedy}->query_start('SELECT zk_unlock_all()');
	wait_full('delete');
	foreach my $i (1 .. 8)
	{
		$crowd[ $i - 1 ]->query_start("SELECT zk_lock('/w/$i')");
		$a->wait_waiting($crowd[ $i - 1 ], "/w/$i");
	}
	$proxy->reset_counts;
	$proxy->heal;
	is($_->finish, 't', $_->name . ' has its lock') foreach @crowd;
	ok($s{greedy}->result->{ok}, 'all is released');
	my @order = map { $_->[0] eq 'create2' && $_->[1] =~ m{^/w/(\d)/} ? $1 : () } @{ $proxy->requests };
	is("@order", '1 2 3 4 5 6 7 8', 'in the order in which they came');
	# One request deletes up to 32 nodes.
	cmp_ok(count_before(qr{^delete /g/}, qr{^create2 /w/8/}), '<=', 10 * 32, 'with one request for releases between two of them');
};

subtest 'nor do the many sessions of one role keep the one of another waiting' => sub {
	$a->value('CREATE ROLE many LOGIN; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO many');
	my @crowd = map { $a->session(user => 'many', name => "many $_") } 1 .. 8;
	greedy_holds();
	stop_answers();
	$s{greedy}->query_start('SELECT zk_unlock_all()');
	wait_full('delete');
	foreach my $i (1 .. 8)
	{
		$crowd[ $i - 1 ]->query_start("SELECT zk_lock('/x/$i')");
		$a->wait_waiting($crowd[ $i - 1 ], "/x/$i");
	}
	$s{victim}->start_waiting("SELECT zk_lock('/v/lock')", '/v/lock');
	$proxy->reset_counts;
	$proxy->heal;
	is($s{victim}->finish, 't', 'it is granted');
	is($_->finish, 't', $_->name . ' has its lock') foreach @crowd;
	ok($s{greedy}->result->{ok}, 'all is released');
	cmp_ok(count_before(qr{^create2 /x/}, qr{^create2 /v/lock/}), '<=', 1, 'after no more than one of the eight that came before it');
	$s{victim}->query("SELECT zk_unlock('/v/lock')");
	$_->disconnect foreach @crowd;
};

subtest 'a heartbeat does not wait for the answers to other calls' => sub {
	greedy_holds();
	stop_answers();
	$s{greedy}->query_start('SELECT zk_unlock_all()');
	wait_full('delete');
	# With every answer outstanding, nothing but what is urgent is sent.
	my $beats = $proxy->counts->{multi} || 0;
	wait_until { ($proxy->counts->{multi} || 0) >= $beats + 3 } 'heartbeats';
	cmp_ok($proxy->counts->{delete} || 0, '<', 600, 'heartbeats go out while most deletions wait for their turn');
	$proxy->heal;
	ok($s{greedy}->result->{ok}, 'all is released in the end');
};

all_disconnect();
$a->value('CREATE ROLE greedy LOGIN; CREATE ROLE modest LOGIN');
$a->value('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO greedy, modest');
my $greedy = $a->session(user => 'greedy', name => 'greedy');
my %victims = (
	'a session of another role'  => $a->session(user => 'modest', name => 'modest'),
	'another session of its own' => $a->session(user => 'greedy', name => 'other'));
$_->query("SELECT zk_lock('/v/lock') AND zk_unlock('/v/lock')") foreach values %victims;

my $n    = 0;
my %asks = (
	'zk_lock()'  => sub { $n++; $greedy->try("SELECT zk_lock('/m/$n', '2ms')"); },
	'zk_claim()' => sub {
		$n++;
		$greedy->try("SET statement_timeout = '2ms'; SELECT zk_claim('/m/claim', timestamptz '2026-11-23' + interval '$n s')");
	});

# How many of the greedy session's requests have passed, until the victim's?
sub passed
{
	my $passed = 0;
	foreach my $request (map { "$_->[0] " . ($_->[1] // '') } @{ $proxy->requests })
	{
		last if $request =~ m{^create2 /v/};
		$passed++ if $request =~ m{ /m/};
	}
	return $passed;
}

sub clean_up($victim)
{
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
$a->assert_clean($zk);
done_testing;
