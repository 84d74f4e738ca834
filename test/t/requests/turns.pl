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

# The greedy session holds many locks.
sub greedy_holds
{
	hold($a, 'greedy', '/g/0');
	is($s{greedy}->query("SELECT zk_lock(array_agg('/g/' || i)) FROM generate_series(1, $many) i"), 't', "$many locks of one session");
	return;
}

# Nothing is answered any more, and the greedy session asks for so much that as much is under way as may be.
sub greedy_asks($sql, $op)
{
	$proxy->blackhole('replies');
	$proxy->reset_counts;
	$s{greedy}->query_start($sql);
	if ($op eq 'delete') { $a->wait_value("SELECT count(*) FROM zk_locks WHERE path ~ '^/g/' AND state = 'held'", 0); }
	else                 { $a->wait_event($s{greedy}, 'guard'); }
	$proxy->wait_all_sent;
	cmp_ok($proxy->counts->{$op} || 0, '>=', 30, "as many requests ($op) are under way as may be");
	return;
}

sub greedy_releases
{
	greedy_holds();
	return greedy_asks('SELECT zk_unlock_all()', 'delete');
}

# There are answers again, to what is asked for from now on as well.
sub answers_come
{
	$proxy->reset_counts;
	$proxy->heal;
	return;
}

# Each of a crowd asks for a lock of its own, one after the other.
sub crowd_asks($folder, @crowd)
{
	$crowd[$_]->start_waiting("SELECT zk_lock('$folder/" . ($_ + 1) . "')") foreach 0 .. $#crowd;
	return;
}

sub sent { return map { "$_->[0] " . ($_->[1] // '') } @{ $proxy->requests }; }

# Which of the requests is the first like this?
sub place($like, @sent) { return (grep { $sent[$_] =~ $like } 0 .. $#sent)[0]; }

# A test: such a request was sent, and no more of another kind before
sub not_behind($kind, $like, $most, $name)
{
	my @sent  = sent();
	my $place = place($like, @sent) // return fail("$name: it was not sent");
	return cmp_ok(scalar(grep { $_ =~ $kind } @sent[ 0 .. $place - 1 ]), '<=', $most, $name);
}

# Paths that exist, and are not in use.
$a->value("SELECT zk_lock('$_') AND zk_unlock('$_')") foreach '/v/lock', map { ("/w/$_", "/x/$_") } 1 .. 8;

subtest 'a lock is not behind a thousand releases of another session' => sub {
	greedy_releases();
	on($a, 'victim')->start_waiting("SELECT zk_lock('/v/lock')");
	answers_come();
	is($s{victim}->finish, 't', 'it is granted');
	ok($s{greedy}->result->{ok}, 'all is released');
	not_behind(qr{^delete /g/}, qr{^create2 /v/lock/}, 2, 'after no more than two of the releases');
	my @sent = sent();
	is($sent[ place(qr{^create2 /v/lock/}, @sent) + 1 ], 'getChildren /v/lock', 'with its listing right behind the create');
	$s{victim}->query("SELECT zk_unlock('/v/lock')");
};

subtest 'nor is it behind the checks of another session\'s COMMIT, nor are these behind each other' => sub {
	$a->value('CREATE TABLE t (i int)');
	greedy_holds();
	hold($a, 'modest', '/v/modest');
	$_->query("SET zklock.commit_guard = 'quorum'"), $_->query('BEGIN; INSERT INTO t VALUES (1)') foreach @s{qw(greedy modest)};
	greedy_asks('COMMIT', 'multi');
	$s{modest}->query_start('COMMIT');
	$a->wait_event($s{modest}, 'guard');
	$s{victim}->start_waiting("SELECT zk_lock('/v/lock')");
	answers_come();
	is($s{victim}->finish, 't', 'it is granted');
	ok($s{$_}->result->{ok}, "$_ has committed") foreach qw(greedy modest);
	not_behind(qr{^multi /g/}, qr{^create2 /v/lock/}, 2, 'after no more than two of the checks');
	not_behind(qr{^multi /g/}, qr{^multi /v/modest/}, 2, 'and so is the commit of who holds one lock');
	$_->query('SELECT zk_unlock_all()') foreach @s{qw(greedy modest victim)};
};

subtest 'sessions of one role that come first do not starve one that comes later' => sub {
	# Each has but one lock to take, and takes its turn.
	my @crowd = map { on($a, "crowd $_") } 1 .. 8;
	greedy_releases();
	crowd_asks('/w', @crowd);
	answers_come();
	is($_->finish, 't', $_->name . ' has its lock') foreach @crowd;
	ok($s{greedy}->result->{ok}, 'all is released');
	my @order = map { $_->[0] eq 'create2' && $_->[1] =~ m{^/w/(\d)/} ? $1 : () } @{ $proxy->requests };
	is("@order", '1 2 3 4 5 6 7 8', 'in the order in which they came');
	# One request deletes up to 32 nodes.
	not_behind(qr{^delete /g/}, qr{^create2 /w/8/}, 10 * 32, 'with one request for releases between two of them');
};

subtest 'nor do the many sessions of one role keep the one of another waiting' => sub {
	$a->value('CREATE ROLE many LOGIN; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO many');
	my @crowd = map { $a->session(user => 'many', name => "many $_") } 1 .. 8;
	greedy_releases();
	crowd_asks('/x', @crowd);
	$s{victim}->start_waiting("SELECT zk_lock('/v/lock')");
	answers_come();
	is($s{victim}->finish, 't', 'it is granted');
	is($_->finish, 't', $_->name . ' has its lock') foreach @crowd;
	ok($s{greedy}->result->{ok}, 'all is released');
	not_behind(qr{^create2 /x/}, qr{^create2 /v/lock/}, 1, 'after no more than one of the eight that came before it');
	$s{victim}->query("SELECT zk_unlock('/v/lock')");
};

subtest 'a heartbeat does not wait for the answers to other calls' => sub {
	greedy_releases();
	# With every answer outstanding, nothing but what is urgent is sent.
	my $beats = $proxy->counts->{multi} || 0;
	wait_until { ($proxy->counts->{multi} || 0) >= $beats + 3 } 'heartbeats';
	cmp_ok($proxy->counts->{delete} || 0, '<', 600, 'heartbeats go out while most deletions wait for their turn');
	$proxy->heal;
	ok($s{greedy}->result->{ok}, 'all is released in the end');
};

subtest 'questions that have waited for a connection go out in the order in which they came' => sub {
	my $b    = Zklock::Server->new('b', zookeeper => $proxy, faults => '');
	my @asks = map { $b->session(name => "asks $_") } 1 .. 3;
	$proxy->cut;
	$b->wait_session('connecting');
	# An order of its own, neither that of the sessions nor its reverse
	foreach my $i (2, 3, 1)
	{
		$asks[ $i - 1 ]->query_start("SELECT zk_queue_offer('/o/$i', 'x')");
		$b->wait_event($asks[ $i - 1 ], 'call');
		# The worker is at the beginning of a round with each of these: it has completed one between them.
		$b->set_faults($_) foreach 'few-facts', '';
	}
	$proxy->reset_counts;
	$proxy->heal;
	ok($_->result->{ok}, $_->name . ' has its answer') foreach @asks;
	my %sent;
	is(join(' ', grep { !$sent{$_}++ } map { m{ /o/(\d)} } sent()), '2 3 1', 'first come first served');
	$b->stop;
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
	my @sent  = sent();
	my $place = place(qr{^create2 /v/}, @sent) // @sent;
	return scalar grep { m{ /m/} } @sent[ 0 .. $place - 1 ];
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
		# connection's sync has been answered. It knows ZooKeeper far away: else creates would wait for
		# an answer, to go out together.
		$proxy->delay(20);
		$a->restart_worker;
		$victim->query("SELECT zk_lock('/v/lock') AND zk_unlock('/v/lock')");
		$a->wait_value('SELECT count(*) FROM zk_locks', 0);
		$proxy->delay(0);
		$proxy->blackhole('replies');
		$proxy->reset_counts;
		wait_until { $asks{'zk_lock()'}->(); passed() >= SHARE } 'its share to be used up';
		$asks{'zk_lock()'}->() foreach 1 .. SHARE;
		$proxy->wait_all_sent;
		is(passed(), SHARE, 'what was given up counts');
		$victim->query_start("SELECT zk_lock('/v/lock')");
		wait_until { defined place(qr{^create2 /v/lock}, sent()) } 'the other request';
		is(passed(), SHARE, 'no more was sent meanwhile');
		$proxy->heal;
		clean_up($victim);
	};
}

done_clean($zk, $a);
