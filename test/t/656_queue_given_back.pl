# Copyright (c) 2026, zklock contributors
#
# Queues, at the moments in between: an element that is just being given back is not missing; one
# that is lost before its session has seen it; a worker that stands still; and a server that
# breaks down over a request, which it has done or not.

use Zklock::Test;

use constant QUEUE    => '/b/queue';
use constant RECEIPTS => '/zklock-receipts';

my ($zk, $proxy, $server) = cast('a', proxied => 'a', timeout => '40s');
my $shell = $zk->shell;
my $s      = $server->session(name => 's');

my $take   = "SELECT element FROM zk_xact_queue_take('@{[ QUEUE ]}', '0')";
my $remove = "SELECT convert_from(zk_queue_remove('@{[ QUEUE ]}'), 'UTF8')";

sub offer { return map { $s->query("SELECT zk_queue_offer('@{[ QUEUE ]}', '$_')") } @_; }
sub names { my @names = sort $zk->children(QUEUE); return @names; }

subtest 'who rolls back and asks again gets the same element' => sub {
	my ($one, $two) = offer(qw(one two));
	my $t = $server->session(name => 't');
	foreach my $case ([ 'the session itself', $s ], [ 'another one', $t ])
	{
		my ($who, $session) = @$case;
		my %got;
		foreach my $i (1 .. 30)
		{
			$s->query('BEGIN');
			$s->query($take);
			$s->query('ROLLBACK');
			$session->query('BEGIN');
			$got{ $session->query($take) }++;
			$session->query('ROLLBACK');
		}
		is_deeply(\%got, { $one => 30 }, "$who gets the first, each time");
	}
	is($s->query($remove), $_, "then $_ is removed") foreach qw(one two);
	$t->disconnect;
};

subtest 'so does one that rolls back to a savepoint, each time' => sub {
	my ($one) = offer('one');
	$s->query(qq{
		CREATE FUNCTION take_twice() RETURNS text LANGUAGE plpgsql AS \$\$
		BEGIN
			BEGIN
				PERFORM zk_xact_queue_take('@{[ QUEUE ]}', '0');
				RAISE EXCEPTION 'give it back';
			EXCEPTION WHEN raise_exception THEN
			END;
			RETURN element FROM zk_xact_queue_take('@{[ QUEUE ]}', '0');
		END \$\$});
	my %got;
	foreach my $i (1 .. 50)
	{
		$s->query('BEGIN');
		$got{ $s->query('SELECT take_twice()') }++;
		$s->query('ROLLBACK');
	}
	is_deeply(\%got, { $one => 50 }, 'it gets the element that it has given back');
	is($s->query($remove), 'one', 'as does the next call');
};

subtest 'what cannot be given back keeps nobody waiting' => sub {
	my ($one, $two) = offer(qw(one two));
	$s->query('BEGIN');
	is($s->query($take), $one, 'taken');
	my $refused = $proxy->refuse(op => 'delete', code => -102, path => "^@{[ QUEUE ]}/$one/claim", times => 0);
	$s->query('ROLLBACK');
	$proxy->fired($refused);
	is($s->query($remove), 'two', 'others go on with the next');
	$proxy->clear;
	wait_until { !$zk->children(QUEUE . "/$one") } 'it to be given back in the end';
	is($s->query($remove), 'one', 'then it can be taken');
};

subtest 'an element that is lost before its session has seen it is lost' => sub {
	my $t = $server->session(name => 't');
	$t->query('CREATE TABLE done (what text)');
	$t->query('BEGIN');
	my ($name) = offer('lost');
	$proxy->hold_reply_of($t, "SELECT element FROM zk_xact_queue_take('@{[ QUEUE ]}')", op => 'getData', path => "^@{[ QUEUE ]}/$name\$");
	# The data come, but the session does not see them yet.
	freeze($t->pid);
	$proxy->heal;
	$server->settle;
	my $mark = $server->log_mark;
	$shell->delete(QUEUE . "/$name/claim");
	$server->assert_log($mark, qr/claim" of element "\/b\/queue\/$name" was deleted by someone else.*Its holder has lost the element/s, 'it was read, and is lost');
	thaw($t->pid);
	my $result = $t->result;
	is($result->{sqlstate}, '40001', 'which the session is told');
	like($result->{message} || '', qr/element "$name" of ZooKeeper queue "@{[ QUEUE ]}" was lost/, 'and which one');
	$t->query('ROLLBACK');
	is($s->query($remove), 'lost', 'somebody else takes it');
	$t->disconnect;
};

subtest 'a check before commit that fails is not made in a loop' => sub {
	my ($name) = offer('guarded');
	$s->query(q{SET zklock.commit_guard = 'quorum'});
	$s->query('BEGIN');
	is($s->query($take), $name, 'taken');
	my $refused = $proxy->refuse(op => 'multi', code => -1, path => "/$name/claim\$", times => 0);
	$proxy->reset_counts;
	$s->query_start('COMMIT');
	$proxy->fired($refused);
	my $t = $server->session(name => 't');
	$t->query("SELECT zk_queue_peek('@{[ QUEUE ]}')") foreach 1 .. 50;
	my @requests = @{ $proxy->requests };
	my $checks = grep { $_->[0] eq 'multi' && ($_->[1] // '') =~ m,/claim$, } @requests;
	my $looks  = grep { $_->[0] =~ /^getChildren/ } @requests;
	cmp_ok($checks, '<', $looks, 'others ask far more meanwhile');
	$proxy->clear;
	$s->finish;
	wait_until { !names() } 'the element to be removed';
	$s->query('RESET zklock.commit_guard');
	$t->disconnect;
};

subtest 'a timeout counts while the worker stands still' => sub {
	freeze($server->worker_pid);
	is($s->query("SELECT zk_queue_take('@{[ QUEUE ]}', '100ms')"), '', 'nothing in that time');
	isnt($server->value('SELECT lease_remaining FROM zk_session'), '00:00:00', 'although the lease still holds');
	thaw($server->worker_pid);
	$server->settle;
};

subtest 'a server that breaks down over a request may have done it' => sub {
	my %requests = (
		'a removal' => [ { op => 'multi', path => '^' . RECEIPTS }, $remove, 'one' ],
		'an offer'  => [ { op => 'multi', path => '^' . QUEUE . '/qn-$' }, "SELECT zk_queue_offer('@{[ QUEUE ]}', 'new') IS NOT NULL", 't' ],
		'a claim'   => [ { op => 'create2', path => '/claim$' }, "SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('@{[ QUEUE ]}', '0')", 'one' ]);
	foreach my $case (map { [ $_, 'refuse' ], [ $_, 'deny' ] } sort keys %requests)
	{
		my ($name, $kind) = @$case;
		my ($request, $sql, $expected) = @{ $requests{$name} };
		offer('one');
		my $fault = $proxy->$kind(%$request, code => -1);
		is($s->query($sql), $expected, "$name that was " . ($kind eq 'deny' ? 'done' : 'not done') . ' is made');
		$proxy->fired($fault);
		wait_until { names() == ($name eq 'an offer' ? 2 : 0) } 'no element too many, and none lost';
		$s->query($remove) for names();
		wait_until { !$zk->children(RECEIPTS) } 'no receipt';
	}
};

$s->disconnect;
$server->assert_clean($zk, QUEUE, RECEIPTS);
done_testing;
