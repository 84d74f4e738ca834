# Copyright (c) 2026, zklock contributors
#
# zk_xact_queue_take(): the element goes when the transaction commits, and comes back however else it ends; what one
# session sees of that is in sql/queue.sql. Nobody else gets it meanwhile, and who waits gets it then. And the moments
# in between: an element that is just being given back is not missing; one that is lost before its session has seen
# it; a worker that stands still; and a ZooKeeper server that breaks down over a request, which it has done or not.
#
# When others are faster while a request or reply is lost, or somebody gives up, no element is offered twice, none is
# removed that nobody gets, and none comes twice. Where that cannot be known the error names the element. What becomes
# of one element at each call is in the table of faults, faults/faults_of_claims_and_elements.pl.

use Zklock::Test;
use Zklock::Cast qw(cancel_as_answered fails);

use constant { QUEUE => '/x/queue', RECEIPTS => '/zklock-receipts' };

my ($zk, $proxy, $here, $there) = cast('here there', proxied => 'here', timeout => '10s');
my $shell = $zk->shell;
my $s = $here->session(name => 's');
my $t = $there->session(name => 't');

my $take = "SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('@{[ QUEUE ]}'%s)";
sub take($session, $timeout = undef)       { return $session->query(sprintf $take, defined $timeout ? ", '$timeout'" : ''); }
sub take_start($session, $timeout = undef) { return $session->query_start(sprintf $take, defined $timeout ? ", '$timeout'" : ''); }
sub offer      { return map { $s->query("SELECT zk_queue_offer('@{[ QUEUE ]}', '$_')") } @_; }
sub names      { my @names = sort $zk->children(QUEUE); return @names; }
# A transaction begins, and takes this.
sub begins($session, $what, $name = 'taken') { $session->query('BEGIN'); is(take($session), $what, $name); return; }
sub is_left($n, $name)    { wait_until { names() == $n } "$name: $n elements"; return ok(1, $name); }
# All claims are given back.
sub none_claimed { wait_until { !grep { $zk->children(QUEUE . "/$_") } names() } 'no claim'; return; }

subtest 'it comes back when the session ends' => sub {
	offer('one');
	foreach my $end (qw(terminate vanish))
	{
		my $u = $here->session;
		begins($u, 'one');
		$u->$end;
		none_claimed();
		is_left(1, $end);
	}
	begins($s, 'one', 'and can be taken again');
	$s->query('COMMIT');
	is_left(0, 'for good');
};

subtest 'who waits gets what is given back' => sub {
	offer('one');
	foreach my $waiter ($here->session, $there->session)
	{
		begins($s, 'one');
		is(take($waiter, '0'), '', 'who does not wait gets nothing');
		take_start($waiter);
		wait_until { $zk->watch_count >= 2 } 'it to wait';
		ok($waiter->busy, 'it waits');
		$s->query('ROLLBACK');
		is($waiter->finish, 'one', 'and gets the element');
		is_left(0, 'which goes');
		offer('one');
	}
	is(take($s), 'one', 'the last');
	is_left(0, 'goes as well');
};

subtest 'the table of tokens makes it once' => sub {
	my $work = "INSERT INTO done SELECT token FROM zk_xact_queue_take('@{[ QUEUE ]}', '0') ON CONFLICT DO NOTHING RETURNING 'new'";
	$here->value('CREATE TABLE done (token bigint PRIMARY KEY)');
	offer('one');
	$s->query('BEGIN');
	is($s->query($work), 'new', 'it is done');
	# The session ends right after the commit: the element is not removed, and taken again.
	my $worker = $here->worker_pid;
	freeze($worker);
	$s->query('COMMIT');
	$shell->expire_session($here->session_id);
	thaw($worker);
	$here->assert_log(0, qr/element "\/x\/queue\/qn-\d+" was taken by a transaction that committed, and may not have been removed/, 'the log says so');
	$here->wait_session;
	is_left(1, 'it is still there');
	is($s->query($work), '', 'it has the same token the second time');
	is_left(0, 'and goes');
};

subtest 'a lost session fails the commit' => sub {
	foreach my $guard (qw(lease quorum))
	{
		offer('one');
		$s->query("SET zklock.commit_guard = '$guard'");
		begins($s, 'one', "$guard: taken");
		$s->query('INSERT INTO done VALUES (-1)');
		my $id = $here->session_id;
		$here->expire_session($zk);
		wait_until { ($here->session_id || $id) ne $id } 'another session';
		$here->wait_session;
		fails($s->try('COMMIT'), '40001', 'the commit fails', error => qr{element "qn-\d+" of ZooKeeper queue "/x/queue" was lost});
		is($here->value('SELECT count(*) FROM done WHERE token < 0'), 0, 'nothing is written');
		is(take($t), 'one', 'somebody else takes it');
		is_left(0, 'and that is all');
	}
	$s->query('RESET zklock.commit_guard');
};

subtest 'so does a claim that somebody deletes' => sub {
	my ($name) = offer('one');
	begins($s, 'one');
	my $mark = $here->log_mark;
	$shell->delete(QUEUE . "/$name/claim");
	$here->assert_log($mark, qr/claim" of element "\/x\/queue\/$name" was deleted by someone else.*Its holder has lost the element/s, 'the log says so');
	is($s->try('COMMIT')->{sqlstate}, '40001', 'the commit fails');
	is(take($t), 'one', 'somebody else takes it');
};

# The session takes "one" and commits; something happens before the removal, or its answer, has come.
sub commits_but($hold, $meanwhile, $go_on)
{
	my ($name) = offer('one');
	begins($s, 'one');
	my $mark = $here->log_mark;
	my $held = $proxy->$hold(op => 'delete', path => "^@{[ QUEUE ]}/$name/claim\$");
	$s->query_start('COMMIT');
	$proxy->fired($held);
	$meanwhile->($name);
	$go_on->();
	$s->finish;
	return $mark;
}

my $unremoved = qr/element "\/x\/queue\/qn-\d+" was taken by a transaction that committed, and may not have been removed\n.*claim was deleted by someone else/;

subtest 'a claim that somebody deletes after the commit' => sub {
	my $delete = sub ($name) { $shell->delete(QUEUE . "/$name/claim"); };
	my $mark = commits_but('hold_request', $delete, sub { $proxy->heal; });
	$here->assert_log($mark, $unremoved, 'the log says that the element may come again');
	is(take($t), 'one', 'so it does');

	$mark = commits_but('hold_request',
		sub ($name) { $delete->($name); begins($t, 'one', 'another takes it'); },
		sub { $proxy->drop; $proxy->heal; });
	$here->assert_log($mark, $unremoved, 'the log says so when that was lost');
	$t->query('ROLLBACK');
	is(take($t), 'one', 'who takes it has it');
	$here->wait_session;
};

subtest 'no such thing is said if the element has gone' => sub {
	my $mark = commits_but('hold_reply', sub { }, sub { $proxy->drop; $proxy->heal; });
	is_left(0, 'the answer was lost');
	$here->wait_value('SELECT count(*) FROM zk_locks', 0);
	unlike($here->log_since($mark), qr/may not have been removed/, 'the log is silent');
	$here->wait_session;
};

my $take_name   = "SELECT element FROM zk_xact_queue_take('@{[ QUEUE ]}', '0')";
my $remove = "SELECT convert_from(zk_queue_remove('@{[ QUEUE ]}'), 'UTF8')";
my $offer  = "SELECT zk_queue_offer('@{[ QUEUE ]}', 'new')";
my %append = (op => 'multi', path => '^' . QUEUE . '/qn-$');
my %delete = (op => 'multi', path => '^' . RECEIPTS);

sub rest
{
	my @rest;
	while ((my $element = $t->query($remove)) ne '') { push @rest, $element; }
	return "@rest";
}

# All that was in the queue is gone, and no receipt is left.
sub is_clean($name)
{
	$proxy->clear;
	wait_until { !$zk->children(RECEIPTS) } 'no receipt';
	return is(scalar(() = names()), 0, "$name: nothing is left behind");
}

# The session itself does, too: sql/queue.sql.
subtest 'when one rolls back, another one of the server gets the same element, each time' => sub {
	my ($one, $two) = offer(qw(one two));
	my $t = $here->session(name => 't');
	my %got;
	foreach my $i (1 .. 30)
	{
		foreach my $session ($s, $t)
		{
			$session->query('BEGIN');
			$got{ $session->query($take_name) }++;
			$session->query('ROLLBACK');
		}
	}
	is_deeply(\%got, { $one => 60 }, 'both get the first');
	none_claimed();
	is(rest(), 'one two', 'then both are removed');
	$t->disconnect;
};

subtest 'what cannot be given back keeps nobody waiting' => sub {
	my ($one, $two) = offer(qw(one two));
	$s->query('BEGIN');
	is($s->query($take_name), $one, 'taken');
	my $refused = $proxy->refuse(op => 'delete', code => -102, path => "^@{[ QUEUE ]}/$one/claim", times => 0);
	$s->query('ROLLBACK');
	$proxy->fired($refused);
	begins($s, 'two', 'others go on with the next');
	$s->query('ROLLBACK');
	is($s->query($remove), 'two', 'which they remove');
	$proxy->clear;
	wait_until { !$zk->children(QUEUE . "/$one") } 'it to be given back in the end';
	is($s->query($remove), 'one', 'then it can be taken');
};

subtest 'who has taken an element hears of its loss when somebody else has waited for it' => sub {
	my ($name) = offer('watched');
	begins($s, 'watched');
	# The news of another child uses up the watch that covers the claim.
	my $other = $shell->create(QUEUE . "/$name/other");
	$zk->wait_watched(QUEUE . "/$name/claim", $here->session_id);
	my $waiter = $here->session;
	$proxy->hold_reply_of($waiter, sprintf($take, ''), op => 'getData', path => "^@{[ QUEUE ]}/$name/claim\$");
	$proxy->heal;
	is($waiter->cancelled, '57014', 'a wait that ends');
	$here->settle;
	my $mark = $here->log_mark;
	$shell->delete("@{[ QUEUE ]}/$name/claim");
	$here->assert_log($mark, qr/claim" of element "\/x\/queue\/$name" was deleted by someone else/, 'the loss is noticed');
	fails($s->try('COMMIT'), '40001', 'the transaction fails');
	$shell->delete($other);
	is($s->query($remove), 'watched', 'somebody else takes it');
};

subtest 'an element that is lost before its session has seen it is lost' => sub {
	my $t = $here->session(name => 't');
	$t->query('BEGIN');
	my ($name) = offer('lost');
	$proxy->hold_reply_of($t, "SELECT element FROM zk_xact_queue_take('@{[ QUEUE ]}')", op => 'getData', path => "^@{[ QUEUE ]}/$name\$");
	# The data come, but the session does not see them yet.
	freeze($t->pid);
	$proxy->heal;
	$here->settle;
	my $mark = $here->log_mark;
	$shell->delete(QUEUE . "/$name/claim");
	$here->assert_log($mark, qr/claim" of element "\/x\/queue\/$name" was deleted by someone else.*Its holder has lost the element/s, 'it was read, and is lost');
	thaw($t->pid);
	fails($t->result, '40001', 'which the session is told', message => qr/element "$name" of ZooKeeper queue "@{[ QUEUE ]}" was lost/);
	$t->query('ROLLBACK');
	is($s->query($remove), 'lost', 'somebody else takes it');
};

subtest 'a check before commit that fails is not made in a loop' => sub {
	my ($name) = offer('guarded');
	$s->query(q{SET zklock.commit_guard = 'quorum'});
	$s->query('BEGIN');
	is($s->query($take_name), $name, 'taken');
	my $refused = $proxy->refuse(op => 'multi', code => -1, path => "/$name/claim\$", times => 0);
	$proxy->reset_counts;
	$s->query_start('COMMIT');
	$proxy->fired($refused);
	my $t = $here->session(name => 't');
	$t->query("SELECT zk_queue_peek('@{[ QUEUE ]}')") foreach 1 .. 50;
	my @requests = @{ $proxy->requests };
	my $checks = grep { $_->[0] eq 'multi' && ($_->[1] // '') =~ m,/claim$, } @requests;
	my $looks  = grep { $_->[0] =~ /^getChildren/ } @requests;
	cmp_ok($checks, '<', $looks, 'others ask far more meanwhile');
	$proxy->clear;
	$s->finish;
	wait_until { !names() } 'the element to be removed';
	$s->query('RESET zklock.commit_guard');
};

subtest 'a timeout counts while the worker stands still' => sub {
	freeze($here->worker_pid);
	is($s->query("SELECT zk_queue_take('@{[ QUEUE ]}', '100ms')"), '', 'nothing in that time');
	isnt($here->value('SELECT lease_remaining FROM zk_session'), '00:00:00', 'although the lease still holds');
	thaw($here->worker_pid);
	$here->settle;
};

subtest 'a server that breaks down over a request may have done it' => sub {
	my %requests = (
		'a removal' => [ \%delete, $remove, 'one' ],
		'an offer'  => [ \%append, "$offer IS NOT NULL", 't' ],
		'a claim'   => [ { op => 'create2', path => '/claim$' },
			"SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('@{[ QUEUE ]}', '0')", 'one' ]);
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

subtest 'a session that gives up while it looks leaves no watch' => sub {
	$proxy->hold_reply_of($s, "SELECT zk_queue_take('@{[ QUEUE ]}')", op => 'getChildren', path => '^' . QUEUE . '$');
	wait_until { $zk->watch_count == 1 } 'the watch';
	$s->cancel;
	is($s->result->{sqlstate}, '57014', 'cancelled');
	$proxy->heal;
	wait_until { $zk->watch_count == 0 } 'no watch';
	pass('the watch goes when its answer has come');
};

subtest 'a lock is told of the end of its node when who sought elements on its path has left' => sub {
	my ($path, $holder) = ('/x/both', $here->session);
	$shell->create($path);
	$s->query_start("SELECT zk_queue_take('$path')");
	wait_until { $zk->watch_count == 1 } 'the watch';
	is($holder->query("SELECT zk_lock('$path')"), 't', 'an empty queue can be locked');
	is($s->result->{sqlstate}, '55006', 'which ends the search');
	$here->settle;
	$shell->delete("$path/" . ($zk->children($path))[0]);
	$here->wait_value("SELECT state FROM zk_locks WHERE path = '$path'", 'lost');
	pass('the loss is noticed');
	$holder->disconnect;
	$here->wait_value('SELECT count(*) FROM zk_locks', 0);
	$shell->delete($path);
};

subtest 'an offer that was taken before its name was known was made all the same' => sub {
	$proxy->hold_reply_of($s, $offer, %append);
	is($t->query($remove), 'new', 'somebody takes it');
	$proxy->drop;
	$proxy->heal;
	is($s->finish, '', 'it has no name, and there was no error');
	is(rest(), '', 'it is not made again');
	is_clean('taken');
};

subtest 'what was sent is settled where a quorum commits, not by a leader that may have been deposed' => sub {
	offer(qw(one two));
	$proxy->hold_reply_of($s, $remove, %delete);
	my $mark = $here->log_mark;
	$proxy->refuse(op => 'multi', path => '^/$', code => -1, times => 0);
	$proxy->reset_counts;
	$proxy->drop;
	$proxy->heal;
	$here->wait_log(qr/could not synchronize with ZooKeeper/, $mark);
	is_deeply([ grep { $_->[0] eq 'exists' && $_->[1] =~ RECEIPTS } @{ $proxy->requests } ], [], 'its receipt is not asked for');
	ok($s->busy, 'the session waits');
	$proxy->clear;
	is($s->finish, 'one', 'and is told in the end');
	is($t->query($remove), 'two', 'the next is there');
	$here->wait_session;
	is_clean('settled');
};

subtest 'what another client removes first is not returned' => sub {
	offer(qw(one two));
	$proxy->hold_request_of($s, $remove, %delete);
	is($t->query($remove), 'one', 'the other was first');
	$proxy->heal;
	is($s->finish, 'two', 'so it gets the next');
	offer(qw(three four));
	$proxy->hold_request_of($s, $remove, %delete);
	is($t->query($remove), 'three', 'likewise');
	$proxy->drop;
	$proxy->heal;
	is($s->finish, 'four', 'when the request is lost');
	offer(qw(five six));
	$proxy->hold_request_of($s, $remove, %delete);
	begins($t, 'five', 'one that a transaction takes');
	$proxy->heal;
	is($s->finish, 'six', 'is left to it');
	$t->query('COMMIT');
	is_left(0, 'and goes with it');
	is_clean('another client');
};

subtest 'a path stays while an element is removed, so no other element gets its name' => sub {
	my $path = '/x/kept';
	my ($offer_to, $remove_from) = ("SELECT zk_queue_offer('$path', '%s')", "SELECT convert_from(zk_queue_remove('$path'), 'UTF8')");
	$t->query("SELECT zk_lock('$path/lock'), zk_unlock('$path/lock')");
	wait_until { !eval { $shell->delete("$path/lock"); 1 } && !$zk->children($path) } 'a container';
	my $first = $t->query(sprintf $offer_to, 'old');
	$proxy->hold_request_of($s, $remove_from, %delete);
	is($t->query($remove_from), 'old', 'somebody else is faster');
	ok(!eval { $shell->delete($path); 1 }, 'the path cannot be deleted, as ZooKeeper would a container');
	isnt($t->query(sprintf $offer_to, 'new'), $first, 'the next element has another name');
	$proxy->heal;
	is($s->finish, '', 'what was removed is not returned once more');
	is($t->query($remove_from), 'new', 'nor is another one lost');

	# The pin is gone, and then the path; another element has the name of the first.
	$first = $t->query(sprintf $offer_to, 'old');
	$proxy->hold_request_of($s, $remove_from, %delete);
	is($t->query($remove_from), 'old', 'somebody else is faster again');
	wait_until { $shell->delete("$path/$_") foreach $zk->children($path); eval { $shell->delete($path); 1 } } 'the path to be deleted all the same';
	$shell->create("$path/$first", data => 'new', makepath => 1);
	$proxy->heal;
	is($s->finish, 'new', 'which is returned with its own data');
	is($t->query($remove_from), '', 'once');
	$shell->delete($path);
	is_clean('names that recur');
};

subtest 'where no pin can be created elements are removed without' => sub {
	offer('one');
	my $refused = $proxy->refuse(op => 'create2', path => '-pin$', code => -102, times => 0);
	is($s->query($remove), 'one', 'it is removed');
	$proxy->fired($refused);
	is_clean('no pin');
};

subtest 'who cancels while it is sent is told which element may be gone' => sub {
	my ($name) = offer('one');
	$proxy->hold_reply_of($s, $remove, %delete);
	$s->cancel;
	fails($s->result, '57014', 'cancelled', context => qr/removing element "$name" of ZooKeeper queue "@{[ QUEUE ]}", which may be gone/);
	$proxy->heal;
	is_clean('cancelled removal');

	$proxy->hold_reply_of($s, $offer, %append);
	$s->cancel;
	like($s->result->{context}, qr/adding an element to ZooKeeper queue "@{[ QUEUE ]}", where it may be/, 'the offer');
	$proxy->heal;
	wait_until { rest() eq 'new' } 'it is there';
	is_clean('cancelled offer');
};

subtest 'who cancels as the answer comes is told which element is gone' => sub {
	my $answers = sub { $proxy->heal; $here->settle; };
	my ($name) = offer('one');
	$proxy->hold_reply_of($s, $remove, %delete);
	cancel_as_answered($s, $answers);
	fails($s->result, '57014', 'removal', context => qr/after removing element "$name" of ZooKeeper queue "@{[ QUEUE ]}"/);
	is_clean('it is gone');

	($name) = offer('two');
	$proxy->hold_reply_of($s, "SELECT zk_queue_take('@{[ QUEUE ]}')", %delete);
	cancel_as_answered($s, $answers);
	fails($s->result, '57014', 'take', context => qr/after removing element "$name" of ZooKeeper queue "@{[ QUEUE ]}"/);
	is_clean('it is gone');

	$proxy->hold_reply_of($s, $offer, %append);
	cancel_as_answered($s, $answers);
	my $told = $s->result;
	fails($told, '57014', 'offer', context => qr/after adding element "(qn-\d+)" to ZooKeeper queue "@{[ QUEUE ]}"/);
	like($told->{context}, qr/"@{[ names() ]}"/, 'it is there');
	is(rest(), 'new', 'once');
	is_clean('offer');

	($name) = offer('three');
	$s->query('BEGIN');
	$proxy->hold_reply_of($s, sprintf($take, ''), op => 'getData', path => "/$name\$");
	cancel_as_answered($s, $answers);
	fails($s->result, '57014', 'the take of a transaction');
	$s->query('ROLLBACK');
	none_claimed();
	is(rest(), 'three', 'it comes back');
	is_clean('the take of a transaction');
};

subtest 'who cancels before that has removed nothing' => sub {
	offer('one');
	$proxy->hold_reply_of($s, $remove, op => 'getData', path => '^' . QUEUE);
	is($s->cancelled, '57014', 'cancelled');
	$proxy->heal;
	is($s->query($remove), 'one', 'it is still there');
	is_clean('cancelled read');
};

subtest 'a receipt goes before the next one comes' => sub {
	# The connection is going to be dropped: as long as the lease holds, a call waits for the next one.
	$here->wait_session;
	my $refused = $proxy->refuse(op => 'delete|multi', path => '^' . RECEIPTS, code => -127, times => 0);
	isnt($s->query($offer), '', 'an offer is made');
	$proxy->fired($refused);
	$s->query_start($offer);
	$here->wait_event($s, 'call');
	is(scalar(() = $zk->children(RECEIPTS)), 1, 'while its receipt cannot be deleted, there is no other');
	$proxy->clear;
	$proxy->drop;
	isnt($s->finish, '', 'the next offer is made when it has been, on a later connection');
	is(rest(), 'new new', 'both are there');
	is_clean('receipts');
};

subtest 'if it must not be deleted, that is an error, also for the next session with its place' => sub {
	$here->wait_session;
	my $place = "SELECT split_part(virtualtransaction, '/', 1) FROM pg_locks WHERE locktype = 'virtualxid' AND pid = pg_backend_pid()";
	my ($first, $next) = $here->session;
	my $refused = $proxy->refuse(op => 'delete|multi', path => '^' . RECEIPTS, code => -102, times => 0);
	isnt($first->query($offer), '', 'an offer is made');
	my $its = $first->query($place);
	$first->terminate;
	my @others;
	until ($next)
	{
		my $new = $here->session;
		$new->query($place) eq $its ? ($next = $new) : push @others, $new;
	}
	$proxy->fired($refused);
	fails($next->try($offer), '42501', 'the next is refused', error => qr/cannot use ZooKeeper queue.*ZNOAUTH.*zklock-receipts/s);
	is(scalar(() = $zk->children(RECEIPTS)), 1, 'and leaves no other');
	$proxy->clear;
	wait_until { !$zk->children(RECEIPTS) } 'it to be deleted in the end';
	isnt($next->query($offer), '', 'then the next can offer');
	is(rest(), 'new new', 'both are there');
	is_clean('forbidden receipts');
	$_->disconnect foreach $next, @others;
};

subtest 'a session that ends meanwhile: the error names the element' => sub {
	my ($name) = offer('one');
	$proxy->hold_reply_of($s, $remove, %delete);
	$here->expire_session($zk);
	$proxy->drop;
	$proxy->heal;
	fails($s->result, '58030', 'it is not known', error => qr/whether element "$name" of ZooKeeper queue "@{[ QUEUE ]}" was removed/);
	$here->wait_session;
	$proxy->hold_reply_of($s, $offer, %append);
	$here->expire_session($zk);
	$proxy->drop;
	$proxy->heal;
	fails($s->result, '58030', 'nor is it of an offer', error => qr/whether an element was added to ZooKeeper queue "@{[ QUEUE ]}"/);
	rest();
	$here->wait_session;
	is_clean('expired');
};

Zklock::Server->assert_clean($zk, [ $here, $there ], QUEUE, RECEIPTS);
done_testing;
