# Copyright (c) 2026, zklock contributors
#
# Answers to calls that are long: they come through room in shared memory, of which nothing is left behind whoever
# gives up or dies, and hold nobody up. The function that asks for them here is zk_contenders().

use Zklock::Test;
use Zklock::Cast qw(fails freeze_asleep);
use Zklock::Util qw(thaw);

use constant CONTENDERS => 5000;
use constant READ       => 200;       # are shown in full
use constant LIMIT      => 1310720;
use constant MANY       => 40;        # answers to one session would use up the room if it were not taken back

my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '30s', max_connections => 150);
my $shell = $zk->shell;
my $path  = '/long/path';
my $ask   = "SELECT count(*) FROM zk_contenders('$path')";
my $s     = $a->session(name => 's');

$shell->create($path, makepath => 1);
$shell->connect($zk->connect_string, client => 'crowd', timeout => 60);
$shell->create_many("$path/_c_00000000-0000-0000-0000-000000000001-lock-", CONTENDERS, data => 'crowd', client => 'crowd');

# The worker's heartbeats are questions too.
sub asked($op) { return scalar grep { $_->[0] eq $op && $_->[1] =~ m{^/long/} } @{ $proxy->requests }; }

# The session asks, and the first answer of this kind is held, with all that follow.
sub ask_until($session, $op)
{
	$proxy->reset_counts;
	return $proxy->hold_reply_of($session, $ask, op => $op, path => "^$path", any => 1);
}

sub is_usable($name) { return is($s->query($ask), CONTENDERS, "$name: the next call gets its answer"); }

# How many questions does the worker have in its memory? It says so between two rounds of its main loop.
sub readings
{
	my $mark = $a->log_mark;
	$a->value('SELECT pg_log_backend_memory_contexts(' . $a->worker_pid . ')');
	$a->wait_log(qr/Grand total: /, $mark);
	return scalar(() = $a->log_since($mark) =~ /; zklock call:/g);
}

sub assert_forgotten($name) { return is(readings(), 0, "$name: nor memory in the worker"); }

# All these ask, and what is at each path has been listed when the first node is looked at. Returns when as many
# questions are on their way as may be.
sub all_listed($at, @asks)
{
	$proxy->reset_counts;
	my @askers = map { $_->[0] } @asks;
	my $held = $proxy->hold_reply(op => 'getChildren', path => "^$at", any => 1);
	$_->[0]->query_start("SELECT count(*) FROM zk_contenders('$_->[1]')") foreach @asks;
	$a->wait_event($_, 'call') foreach @askers;
	$proxy->fired($held);
	freeze_asleep($_) foreach @askers;
	$proxy->heal;
	wait_until { asked('getChildren') == @askers } 'all to be listed';
	my $held_behind = $proxy->hold_reply(op => 'exists', path => "^$at", any => 1);
	thaw($_->pid) foreach @askers;
	$proxy->fired($held_behind);
	# Then a round of the worker sends none.
	my $sent = '';
	wait_until { my $before = $sent; $sent = readings() . ' questions, ' . asked('exists'); $sent eq $before } 'all that may be sent';
	return;
}

subtest 'all contenders are shown, and what was left out is said' => sub {
	$proxy->reset_counts;
	my $result = $s->try("SELECT count(*), count(DISTINCT node), min(\"position\"), max(\"position\"), count(owner_session), count(*) FILTER (WHERE granted) FROM zk_contenders('$path')");
	is($result->{text}, join('|', CONTENDERS, CONTENDERS, 1, CONTENDERS, READ, 1), 'rows');
	like($result->{notices}[0], qr/only the first 200 of 5000 contenders on "$path" are shown in full/, 'notice');
	is($s->query("SELECT string_agg(DISTINCT owner, ' ') FROM zk_contenders('$path') WHERE \"position\" <= 200"), 'crowd', 'the first have been read');
	is($s->query("SELECT bool_and(right(node, 10)::int = \"position\" - 1) FROM zk_contenders('$path')"), 't', 'in order of their numbers');
	is(asked('exists'), 3 * READ, 'as many nodes as that were looked at each time');
	is(asked('getData'), 3 * READ, 'and read');
};

subtest 'questions about nodes are not sent one after the other' => sub {
	foreach my $op (qw(exists getData))
	{
		ask_until($s, $op);
		wait_until { asked($op) >= 30 } "many questions ($op) without an answer";
		ok($s->busy, "$op: there is no answer yet");
		$proxy->heal;
		is($s->finish, CONTENDERS, 'and then there is');
	}
};

subtest "others' locks do not wait until all is read" => sub {
	# More than may be under way at once: 16 sessions, of which each has its share.
	$a->value('CREATE ROLE second SUPERUSER LOGIN');
	my @askers = map { ($a->session, $a->session(user => 'second')) } 1 .. 8;
	my $t = $a->session(name => 't');
	is($t->query("SELECT zk_lock('/long/other') AND zk_unlock('/long/other')"), 't', 'the path of the other lock is there');
	all_listed($path, map { [ $_, $path ] } @askers);
	wait_until { readings() == @askers } 'the worker to know all listings';
	$t->query_start("SELECT zk_lock('/long/other')");
	$a->wait_lock($t, 'waiting');
	is(asked('create2'), 0, 'the lock is asked for when many questions wait for their turn');
	$proxy->heal;
	is($_->finish, CONTENDERS, 'answered') foreach @askers;
	is($t->finish, 't', 'and locked');
	my @asked = map { $_->[0] } @{ $proxy->requests };
	my ($create) = grep { $asked[$_] eq 'create2' } 0 .. $#asked;
	my $behind = grep { $_ eq 'exists' } @asked[ $create .. $#asked ];
	cmp_ok($behind, '>', 2 * READ, "of 3200 questions many come behind it: $behind");
	$t->query("SELECT zk_unlock('/long/other')");
	$_->disconnect foreach @askers, $t;
	is_usable('after that');
};

subtest 'whoever gives up while the answer is on its way leaves nothing behind' => sub {
	foreach my $end (qw(cancel terminate))
	{
		foreach my $op (qw(getChildren exists getData))
		{
			my $asker = $a->session;
			ask_until($asker, $op);
			$asker->$end;
			is($asker->result->{sqlstate}, '57014', 'cancelled') if $end eq 'cancel';
			$a->wait_value('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $asker->pid . " AND state = 'active'", 0);
			$proxy->heal;
			is_usable("$end, $op");
		}
	}
	assert_forgotten('given up');
};

my %lost = ('worker' => sub { $a->restart_worker }, 'connection' => sub { $proxy->drop });

foreach my $lost (sort keys %lost)
{
	subtest "the next $lost brings the answer to what was begun with one" => sub {
		foreach my $op (qw(getChildren exists getData))
		{
			ask_until($s, $op);
			$lost{$lost}->();
			$proxy->heal;
			is($s->finish, CONTENDERS, "$op: all rows");
			$a->wait_session;
			is_usable($op);
		}
		assert_forgotten("lost $lost");
	};
}

subtest 'the room of an answer is taken back' => sub {
	is($s->query("SELECT count(*) FROM generate_series(1, @{[MANY]}), LATERAL zk_contenders('$path')"), MANY * CONTENDERS, 'many long answers');
	assert_forgotten('taken back');
};

subtest "a role's long questions leave room for their answers" => sub {
	# What is listed fits into a slot. Of the questions about the nodes at the long path some 85 fill the room of a role, and
	# some about the others the rest of it; all their answers need room.
	my $few    = '/long/few/' . 'x' x 980;
	my %listed = ($few => 19, '/long/fewer' => 18);
	my $prefix = '_c_' . 'x' x 186 . '-lock-';
	$a->value('CREATE ROLE asker LOGIN');
	$a->value('GRANT EXECUTE ON FUNCTION zk_contenders(text) TO asker');
	foreach my $at (keys %listed)
	{
		$shell->create($at, makepath => 1);
		$shell->create_many("$at/$prefix", $listed{$at}, data => 'd' x 1000, client => 'crowd');
	}
	my @askers = map { [ $a->session(user => 'asker'), $few ] } 1 .. 90;
	push @askers, map { [ $a->session(user => 'asker'), '/long/fewer' ] } 1 .. 10;

	all_listed('/long/few', @askers);
	$proxy->heal;
	is(scalar(grep { ($_->[0]->result->{text} // '') eq $listed{ $_->[1] } } @askers), scalar @askers, 'all are answered');
	$_->[0]->disconnect foreach @askers;
	assert_forgotten('long questions');
};

subtest 'an answer beyond the limit is an error that names it' => sub {
	my $long   = '/long/names';
	my $prefix = '_c_' . 'x' x 186 . '-lock-';    # 205 bytes with the number
	$shell->create($long, makepath => 1);
	$shell->create_many("$long/$prefix", 6300, client => 'crowd');
	is($s->query("SELECT count(*) FROM zk_contenders('$long')"), 6300, 'an answer of nearly as much');
	$shell->create_many("$long/$prefix", 100, client => 'crowd');
	$proxy->reset_counts;
	fails($s->try("SELECT * FROM zk_contenders('$long')"), '54000', 'too long', detail => qr/@{[ LIMIT ]} bytes/);
	is(asked('exists'), 0, 'then no node is looked at');
	is_usable('too long');
	assert_forgotten('too long');
};

subtest 'a backend that crashes leaves nothing behind' => sub {
	my $asker = $a->session;
	ask_until($asker, 'exists');
	my $mark = $a->log_mark;
	kill 'KILL', $asker->pid;
	$a->wait_log(qr/all server processes terminated; reinitializing/, $mark);
	$a->reconnect($proxy);
	$s = $a->session(name => 's again');
	is_usable('crash');
};

$shell->close_connection(client => 'crowd');
done_clean($zk, $a);
