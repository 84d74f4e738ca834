# Copyright (c) 2026, zklock contributors
#
# zk_claim: one caller in all gets a slot, whatever becomes of it afterwards; what one session sees of claims is in
# sql/claim.sql. When answers are lost, others are faster, the worker is restarted, or
# somebody deletes the node: never two who have a slot, and nobody is told a guess. What becomes of one claim at each
# call is in the table of faults, faults/faults_of_claims_and_elements.pl.

use Zklock::Test;
use List::Util qw(max);
use Zklock::Cast qw(fails cancel_as_answered);

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', a => { timeout => '6s' });
my $s  = $a->session;
my $t  = $b->session;

# Slots are days; each path begins with one.
sub claim_of($path, $day) { return "SELECT zk_claim('$path', date '2026-01-01' + $day)"; }
sub last_day($path) { return $t->query("SELECT slot::date - date '2026-01-01' FROM zk_last_claim('$path')"); }

subtest 'a hundred ask at once' => sub {
	my @sessions = map { ($a->session, $b->session) } 1 .. 50;
	foreach my $day (1 .. 3)
	{
		$_->query_start(claim_of('/c/many', $day)) foreach @sessions;
		is(scalar(grep { $_->finish eq 't' } @sessions), 1, 'one has it');
	}
	my $day = 0;
	$_->query_start(claim_of('/c/order', $day++)) foreach @sessions;
	my @got = grep { $sessions[$_]->finish eq 't' } 0 .. $#sessions;
	is($got[-1], $#sessions, 'of different slots the last is claimed in any case');
	is(last_day('/c/order'), $#sessions, 'and remembered');
	$_->disconnect foreach @sessions;
};

subtest 'slots that were missed are caught up by several, each once' => sub {
	$t->query('CREATE TABLE done (slot timestamptz)');
	is($t->query(q{SELECT zk_claim('/c/next', '2026-01-01 00:00+00')}), 't', 'a slot, long ago');
	# How many slots a session has claimed, which each writes down where it runs
	my $catch_up = q{DO $$ DECLARE slot timestamptz; BEGIN LOOP
		slot := zk_claim_next('/c/next', '1 hour', '2026-01-02 12:00+00');
		EXIT WHEN slot IS NULL;
		INSERT INTO done VALUES (slot);
		COMMIT;
	END LOOP; END $$};
	my @sessions = map { $_->session } ($b) x 5;
	$_->query_start($catch_up) foreach @sessions;
	$s->query('CREATE TABLE done (slot timestamptz)');
	$s->query($catch_up);
	$_->finish foreach @sessions;
	my @done = sort map { split /,/ } map { $_->query(q{SELECT coalesce(string_agg(extract(epoch FROM slot)::text, ','), '') FROM done}) } $s, $t;
	my $first = 1767225600;    # 2026-01-01
	is_deeply([ map { int } @done ], [ map { $first + 3600 * $_ } 1 .. 36 ], 'each slot is claimed once, and none is left out');
	$_->disconnect foreach @sessions;
};

subtest 'it stays, whatever becomes of the server' => sub {
	my ($dying, $claim) = ($a->session, claim_of('/c/stays', 1));
	is($dying->query($claim), 't', 'it is claimed in a session');
	$a->terminate_backend($dying->pid);
	is($t->query($claim), 'f', 'which is terminated');
	$a->expire_session($zk);
	is($t->query($claim), 'f', 'whose ZooKeeper session has ended');
	$a->wait_session;
	$a->stop('immediate');
	is($t->query($claim), 'f', 'whose server has crashed');
	$a->start_connected;
	$s = $a->session;
};

sub undecided($result, $name)
{
	fails($result, '58030', $name, error => qr/could not find out whether slot 2026-01-\d\dT00:00:00Z of ZooKeeper path/);
	return;
}

# A claim that is held before ZooKeeper has it, or before its answer: what it asks, and of which slot; the slots that
# others claim meanwhile; how things go on, and what the claim comes to, unless that cannot be known
my ($drop, $heal) = (sub { $proxy->drop }, sub { $proxy->heal });
my @held = (
	[ 'another claims the slot first',                         'hold_request_of', setData => 1, [1], $heal, 'f' ],
	[ 'a later slot is claimed behind another',                'hold_request_of', setData => 2, [1], $heal, 't' ],
	[ 'another makes the first claim of the path',             'hold_request_of', multi => 1, [1], $heal, 'f' ],
	[ 'the first claim of a path comes behind another',        'hold_request_of', multi => 2, [1], $heal, 't' ],
	[ 'the answer is lost while others claim later slots',     'hold_reply_of',   setData => 1, [ 2 .. 9 ], $drop, 't' ],
	[ 'it is lost while more claim than are remembered',       'hold_reply_of',   setData => 1, [ 2 .. 14 ], $drop, undef ],
	[ 'the request is lost, and another claims the slot',      'hold_request_of', setData => 1, [1], $drop, 'f' ],
	[ 'the next worker finds more claims than are remembered', 'hold_reply_of',   setData => 1, [ 2 .. 14 ],
		sub { $a->restart_worker }, undef ],
	[ 'the ZooKeeper session ends while a claim is under way', 'hold_reply_of',   setData => 1, [],
		sub { $a->expire_session($zk); $proxy->drop }, 't' ]);

foreach my $i (0 .. $#held)
{
	my ($name, $hold, $op, $day, $others, $go_on, $expected) = @{ $held[$i] };
	subtest $name => sub {
		my $path = "/l/held$i";
		$t->query(claim_of($path, 0)) if $op eq 'setData';
		$proxy->$hold($s, claim_of($path, $day), op => $op, path => "^$path\$");
		is($t->query(claim_of($path, $_)), 't', "slot $_ is claimed by another") foreach @$others;
		$go_on->();
		my $result = $s->result;
		defined $expected ? is($result->{text}, $expected, 'it is told whether it has the slot') : undecided($result, 'that it cannot be known is said');
		is(last_day($path), max(@$others, ($expected // '') eq 't' ? $day : ()), 'nothing is undone');
		is($t->query(claim_of($path, $day)), 'f', 'the slot is claimed once');
	};
}

subtest 'somebody deletes the node' => sub {
	foreach my $again (0, 1)
	{
		my $path = "/l/deleted$again";
		$t->query(claim_of($path, 0));
		$proxy->hold_reply_of($s, claim_of($path, 1), op => 'setData', path => "^$path\$");
		$zk->shell->delete($path);
		$t->query(claim_of($path, $_)) foreach 1 .. 2 * $again;
		$proxy->drop;
		undecided($s->result, $again ? 'and it is made again' : 'which takes with it what was known');
	}
	$t->query(claim_of('/l/replaced', 0));
	$proxy->hold_request_of($s, claim_of('/l/replaced', 1), op => 'setData', path => '^/l/replaced');
	$zk->shell->delete('/l/replaced');
	$t->query(claim_of('/l/replaced', 1));
	$proxy->heal;
	undecided($s->result, 'a write that replaces a record of another node is told by it');
};

subtest 'a claim that is refused has not been made, and says no more' => sub {
	$proxy->refuse(op => 'multi', code => -102, path => '^/l/refused');
	fails($s->try(claim_of('/l/refused', 0)), '42501', 'the first', context => qr{ of ZooKeeper path "/l/refused"$}m);
	is($s->query(claim_of('/l/refused', 0)), 't', 'then it can be');
	$proxy->refuse(op => 'createContainer', code => -102, path => '^/l/new$');
	fails($s->try(claim_of('/l/new/path', 0)), '42501', 'one whose parent is refused', message => qr{"/l/new"$}, context => qr{ of ZooKeeper path "/l/new/path"$}m);
	is($s->query(claim_of('/l/new/path', 0)), 't', 'then it can be, too');
};

subtest 'a claim that is cancelled' => sub {
	$t->query(claim_of('/l/cancel', 0));
	$proxy->hold_reply_of($s, claim_of('/l/cancel', 1), op => 'setData', path => '^/l/cancel');
	$s->cancel;
	fails($s->result, '57014', 'ends at once, and says that nobody knows',
		context => qr{while claiming slot 2026-01-02T00:00:00Z of ZooKeeper path "/l/cancel", which may have been done});
	$proxy->heal;
	is($s->query(claim_of('/l/cancel', 1)), 'f', 'at most once');
	is($s->query(claim_of('/l/cancel', 2)), 't', 'the next can be claimed');
};

subtest 'a claim, or a reset, that is cancelled as its answer comes' => sub {
	$t->query(claim_of('/l/answered', 0));
	my %calls = (
		'claiming slot 2026-01-02T00:00:00Z of' => claim_of('/l/answered', 1),
		'resetting claims on'                   => "SELECT zk_claim_reset('/l/answered')");
	foreach my $what (sort keys %calls)
	{
		$proxy->hold_reply_of($s, $calls{$what}, op => 'setData', path => '^/l/answered');
		cancel_as_answered($s, sub { $proxy->heal; $a->settle; });
		fails($s->result, '57014', 'ends at once, and says that it was made',
			context => qr{while $what ZooKeeper path "/l/answered", which has been done});
	}
	is($t->query("SELECT slot IS NULL FROM zk_last_claim('/l/answered')"), 't', 'both were');
};

subtest 'what was not sent was not done' => sub {
	$proxy->hold_reply_of($s, claim_of('/l/answered', 1), op => 'getData', path => '^/l/answered');
	cancel_as_answered($s, sub { $proxy->heal; $a->settle; });
	my $result = $s->result;
	is($result->{sqlstate}, '57014', 'a claim that is cancelled before');
	unlike($result->{context}, qr/done/, 'says nothing of that');
	is($t->query(claim_of('/l/answered', 1)), 't', 'another has the slot');
};

subtest 'a reset whose answer is lost' => sub {
	$s->query(claim_of('/l/reset', 5));
	my $mark  = $a->log_mark;
	my $fault = $proxy->lose_reply(op => 'setData', path => '^/l/reset');
	is($s->query("SELECT zk_claim_reset('/l/reset')"), 't', 'is done');
	$a->assert_log($mark,
		qr{claims on ZooKeeper path "/l/reset" were reset\n.*The last slot was 2026-01-06T00:00:00Z\. It was reset by .*"user":"postgres"},
		'and logged');
	is($t->query("SELECT slot IS NULL, server, usename FROM zk_last_claim('/l/reset')"), 't|a|postgres', 'and shown');
	is($s->query(claim_of('/l/reset', 1)), 't', 'once');
};

my %made_again = (
	'claims' => sub ($path) { $t->query(claim_of($path, $_)) foreach 1, 2; },
	'something else' => sub ($path) { $zk->shell->create($path, data => 'somebody\'s'); });
foreach my $what (sort keys %made_again)
{
	subtest "a reset whose answer is lost, while the node is replaced by one with $what" => sub {
		my $path = '/l/again/' . $what =~ tr/ //dr;
		$t->query(claim_of($path, 0));
		$proxy->hold_reply_of($s, "SELECT zk_claim_reset('$path')", op => 'setData', path => "^$path\$");
		$zk->shell->delete($path);
		$made_again{$what}->($path);
		$proxy->drop;
		fails($s->result, '58030', 'that it cannot be known is said',
			message => qr/could not find out whether claims on ZooKeeper path "$path" were reset/);
	};
}

$_->end_sessions foreach $a, $b;
Zklock::Server->assert_clean($zk, [ $a, $b ], '/c/many', '/c/order', '/c/next', '/l/reset',
	map { "/l/held$_" } 0 .. $#held);
done_clean($zk, $a, $b);
