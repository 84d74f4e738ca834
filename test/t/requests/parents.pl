# Copyright (c) 2026, zklock contributors
#
# The missing nodes of a path are created below the lowest one that exists, no more than
# sixteen for a request, and only for sessions that still want the lock; the table of faults, faults/faults_of_several_locks.pl,
# has what becomes of that when the connection is lost, or the worker. And
# who waits, with "existing" as zklock.parent_nodes; sql/role_settings.sql has what that means, and who may choose.

use Zklock::Test;
use Zklock::Cast;

my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '60s');
my $shell = $zk->shell;
my $limit = 16;

# What was asked for below a path since the last count: creations of lasting nodes, and readings.
sub creations($path)
{
	my @found = map { $_->[0] =~ /^create/ && $_->[1] !~ /-lock-$/ && $_->[1] =~ /^\Q$path\E(.*)/ ? $1 : () } @{ $proxy->requests };
	$proxy->reset_counts;
	return \@found;
}

# A subtest. In the end nobody holds a lock, and nothing is left behind.
sub clean_story($name, $code)
{
	return subtest $name => sub {
		$code->();
		$_->query('SELECT zk_unlock_all()') foreach values %s;
		$a->assert_clean($zk);
	};
}

# Until the first of the creations of a path's nodes has been held back.
sub hold_creation($session, $hold, $path)
{
	return $proxy->$hold($session, "SELECT zk_lock('$path')",
		op => 'create2|createContainer', path => "^$path\$", any => 1);
}

clean_story 'from the lowest that exists' => sub {
	on($a, 's')->query("SELECT zk_lock('/p/there'), zk_unlock('/p/there')");
	$proxy->reset_counts;
	is($s{s}->query("SELECT zk_lock('/p/there/new') AND zk_unlock('/p/there/new')"), 't', 'a new path below one that exists');
	is_deeply(creations('/p'), ['/there/new'], 'takes the creation of one node');
	is($s{s}->query("SELECT zk_lock('/p/there/a/b/c') AND zk_unlock('/p/there/a/b/c')"), 't', 'one of three new levels');
	is_deeply(creations('/p'), [ map { "/there/$_" } qw(a/b/c a/b a a/b a/b/c) ], 'is tried from below, and made from above');
};

clean_story 'no more than sixteen levels' => sub {
	$proxy->reset_counts;
	is($s{s}->try("SELECT zk_lock('/deep' || repeat('/a', 500))")->{sqlstate}, '54000', 'one too many, however deep');
	cmp_ok(scalar @{ creations('/deep') }, '<=', $limit, 'and little is asked for it');
	is($s{s}->query("SELECT zk_lock('/deep' || repeat('/a', $limit - 1))"), 't', 'sixteen are created');
	is($s{s}->query("SELECT zk_lock('/deep' || repeat('/a', 2 * $limit - 1))"), 't', 'and sixteen more below those');
};

# Until a path is created ahead of its lock's node, as two beside it were created a moment ago: on a slow machine that moment
# may be over, so each attempt has a path of its own. Returns that of the third lock, "next", and the result.
sub created_ahead($name, $prepare = sub { }, $which = 'next')
{
	my ($n, $path, $result) = (0);
	wait_until {
		$n++;
		$path = "/beside/$name$n/next";
		$prepare->($path);
		$proxy->reset_counts;
		$result = $s{s}->try("SELECT zk_lock('/beside/$name$n/a') AND zk_lock('/beside/$name$n/b') AND zk_lock('$path')");
		my ($asked) = grep { ($_->[1] // '') =~ m{^/beside/\Q$name$n/$which\E(?:/|$)} } @{ $proxy->requests };
		$asked && $asked->[0] eq 'createContainer';
	} 'a path to be created ahead';
	return ($path, $result);
}

clean_story 'a path beside one that did not exist is created ahead' => sub {
	my ($path, $result) = created_ahead('missing');
	is($result->{text}, 't', 'all are locked');
	is(scalar(grep { $_->[0] eq 'create2' && $_->[1] =~ /^\Q$path\E/ } @{ $proxy->requests }), 1, 'and its node is created once');
	is(scalar($zk->children($path)), 1, 'there it is');
};

clean_story 'though it exists' => sub {
	my ($path, $result) = created_ahead('there', sub ($path) { $shell->create($path, makepath => 1, data => 'theirs'); });
	is($result->{text}, 't', 'it is locked');
	is($shell->get($path), 'theirs', 'and as it was');
	is($s{s}->query("SELECT zk_lock('$path/first') AND zk_unlock('$path/first')"), 't', 'the next ones are locked, too');
};

clean_story 'though the request or its answer is lost' => sub {
	foreach my $lose (qw(lose_request lose_reply))
	{
		my ($path, $result) = created_ahead($lose, sub ($path) { $proxy->clear; $proxy->$lose(op => 'createContainer', path => "^$path\$"); });
		is($result->{text}, 't', "$lose: it is locked");
		is(scalar($zk->children($path)), 1, 'by one node');
	}
	$proxy->clear;
};

clean_story 'what was created ahead for who is refused is deleted' => sub {
	my ($path, $result) = created_ahead('refused', sub ($path) { $proxy->clear; $proxy->refuse(op => 'create2', path => "^$path/", code => -102); });
	is($result->{sqlstate}, '42501', 'the node is refused');
	wait_until { !$shell->exists($path) } 'the path to go';
	$proxy->clear;
};

clean_story 'nothing is created ahead that would harm others, or was not to be created' => sub {
	my ($theirs, $harm, $missing, @created);
	# As the first path is created ahead after these, they could have been.
	created_ahead('harmed', sub ($path) {
			my $parent = $path =~ s{/next$}{}r;
			$theirs = $shell->create("$parent/_c_00000000-0000-4000-8000-000000000000-lock-", ephemeral => 1, sequence => 1, makepath => 1);
			$s{s}->query("SELECT zk_lock('$parent/c') AND zk_lock('$parent/d')");
			$harm = $s{s}->try("SELECT zk_lock('$parent/0')")->{sqlstate};
			$s{s}->query('SET zklock.parent_nodes = existing');
			$missing = $s{s}->try("SELECT zk_lock('$parent/missing')")->{sqlstate};
			$s{s}->query('RESET zklock.parent_nodes');
			@created = grep { $shell->exists("$parent/$_") } qw(0 missing);
			$shell->delete($theirs);
		}, 'a');
	is($harm, '55006', 'harm is refused');
	is($missing, '42704', 'so is what is missing, to who is to have nothing created');
	is_deeply(\@created, [], 'neither node is there');
};

# Locks paths below a parent whose names might harm others: how often that was listed, and in how many seconds
sub listed_for($parent)
{
	my $begun = time;
	$proxy->reset_counts;
	is($s{s}->query("SELECT count(zk_lock('$parent/-' || i)) FROM generate_series(1, 30) i"), 30, 'all are locked');
	my @asked = map { ($_->[1] // '') eq $parent ? $_->[0] : () } @{ $proxy->requests };
	return (scalar(grep { $_ eq 'getChildren' } @asked), scalar(@asked), time - $begun);
}

clean_story 'names that might harm others cost no long listings' => sub {
	$shell->connect($zk->connect_string, client => 'crowd', timeout => 60);
	$shell->create($_) foreach qw(/few /many);
	$shell->create_many("$_->[0]/x", $_->[1], client => 'crowd') foreach [ '/few', 10 ], [ '/many', 1001 ];
	my ($lists, $all, $seconds) = listed_for('/few');
	cmp_ok($lists, '>=', 1, 'a parent with few children is listed');
	cmp_ok($lists, '<=', 2 + $seconds, 'once in a while, for all paths below it');
	($lists, $all, $seconds) = listed_for('/many');
	is($lists, 0, 'one with many children is not');
	cmp_ok($all, '<=', 2 + $seconds, 'its stat is asked for once in a while');
	$shell->close_connection(client => 'crowd');
};

clean_story 'of several who wait one gives up' => sub {
	hold_creation(on($a, 'first'), 'hold_reply_of', '/w/x/y');
	queue($a, 'second', '/w/x/y');
	queue($a, 'third', '/w/x/y');
	is($s{first}->cancelled, '57014', 'the one that asked first');
	$proxy->heal;
	is($s{second}->finish, 't', 'the next has it');
	$s{second}->query('SELECT zk_unlock_all()');
	is($s{third}->finish, 't', 'and the last');
};

clean_story 'nothing is created for who gave up' => sub {
	hold_creation($s{first}, 'hold_reply_of', '/gone/x/y/z');
	is($s{first}->cancelled, '57014', 'a wait is cancelled');
	$proxy->heal;
	is($s{first}->query("SELECT zk_lock('/w/x/y') AND zk_unlock('/w/x/y')"), 't', 'and others are served');
	ok(!$shell->exists('/gone'), 'no node is there');
};

clean_story 'nor for who joins the one that gave up, and is to have none created' => sub {
	hold_creation($s{first}, 'hold_reply_of', '/gone/x');
	on($a, 'second')->query('SET zklock.parent_nodes = existing');
	queue($a, 'second', '/gone/x');
	is($s{first}->cancelled, '57014', 'a wait is cancelled');
	$proxy->heal;
	is($s{second}->result->{sqlstate}, '42704', 'the other one is refused');
	$s{second}->query('RESET zklock.parent_nodes');
	ok(!$shell->exists('/gone'), 'no node is there');
};

# Until ZooKeeper has created that node of the path, and before its answer; the session gives up
sub gives_up_at($node, $path, $meanwhile = undef)
{
	$proxy->hold_reply_of($s{first}, "SELECT zk_lock('$path')", op => 'createContainer', path => "^$node\$");
	$meanwhile->() if $meanwhile;
	is($s{first}->cancelled, '57014', "a wait is cancelled when $node is there");
	$proxy->heal;
	return;
}

clean_story 'what was created for who gave up is deleted' => sub {
	foreach my $node (qw(/walk /walk/x /walk/x/y))
	{
		gives_up_at($node, '/walk/x/y');
		wait_until { !$shell->exists('/walk') } "$node and those above it to go";
		pass("$node goes, and those above it");
	}
	$shell->create('/walk');
	gives_up_at('/walk/x', '/walk/x/y');
	wait_until { !$shell->exists('/walk/x') } 'it to go';
	ok($shell->exists('/walk'), 'what was there before stays');
};

clean_story 'so it is if a claim or an element was to come there' => sub {
	my %calls = (claim => "SELECT zk_claim('/call/x/y', now())", offer => "SELECT zk_queue_offer('/call/x/y', 'x')");
	foreach my $what (sort keys %calls)
	{
		foreach my $node (qw(/call /call/x))
		{
			$proxy->hold_reply_of($s{first}, $calls{$what}, op => 'createContainer', path => "^$node\$");
			is($s{first}->cancelled, '57014', "the call is cancelled when $node is there");
			$proxy->heal;
			wait_until { !$shell->exists($node) } "$node to go";
			$shell->delete('/call') if $node eq '/call/x';
			$s{first}->disconnect;
			delete $s{first};
			on($a, 'first');
		}
	}
	$proxy->refuse(op => 'multi', path => '^/call/x/y$', code => -102, nth => 2);
	is($s{first}->try($calls{claim})->{sqlstate}, '42501', 'it is refused when both are there');
	wait_until { !$shell->exists('/call/x') } 'the lower one to go';
	$shell->delete('/call');
	pass('ZooKeeper removes what has had a child');
};

clean_story 'but for what others use by then' => sub {
	gives_up_at('/walk/data', '/walk/data/y', sub { $shell->set('/walk/data', 'x'); });
	gives_up_at('/walk/child', '/walk/child/y', sub { $shell->create('/walk/child/theirs'); });
	$a->settle;
	ok($shell->exists("/walk/$_"), "$_ is there") foreach qw(data child/theirs);
};

clean_story 'nor what was to be persistent' => sub {
	$s{first}->query('SET zklock.parent_nodes = persistent');
	$proxy->hold_reply_of($s{first}, "SELECT zk_lock('/stays/x/y')", op => 'create2', path => '^/stays/x$');
	is($s{first}->cancelled, '57014', 'a wait is cancelled');
	$proxy->heal;
	$a->settle;
	ok($shell->exists('/stays/x'), 'it is there: kazoo relies on that');
	$s{first}->query('RESET zklock.parent_nodes');
};

clean_story 'a path that is deleted as another session asks for it' => sub {
	my $deletion = $proxy->hold_request(op => 'delete', path => '^/again/x');
	gives_up_at('/again/x', '/again/x/y');
	$proxy->fired($deletion);
	queue($a, 'second', '/again/x/y');
	$proxy->heal;
	is($s{second}->finish, 't', 'is created again');
};

clean_story 'a node is deleted while those below it are made' => sub {
	$shell->create('/reaped/x', makepath => 1);
	hold_creation($s{first}, 'hold_request_of', '/reaped/x/y/z');
	$shell->delete('/reaped/x');
	$proxy->heal;
	is($s{first}->finish, 't', 'before it is asked for');
	$s{first}->query('SELECT zk_unlock_all()');
	wait_until { !$zk->children('/reaped/x/y/z') } 'the node to go';
	$shell->delete("/reaped/$_") foreach qw(x/y/z x/y);

	# It exists when it is found, and is gone when the next is created.
	$proxy->hold_request_of($s{first}, "SELECT zk_lock('/reaped/x/y')", op => 'create2', path => '-lock-$', nth => 2);
	$shell->delete("/reaped/$_") foreach qw(x/y x);
	$proxy->heal;
	is($s{first}->finish, 't', 'and after it was made');
};

# She may only use what exists.
$a->value($_) foreach 'CREATE ROLE mallory LOGIN', 'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory',
  'ALTER ROLE mallory SET zklock.parent_nodes = existing';

my $m = $s{mallory} = $a->session(user => 'mallory');
my $s = on($a, 's');

clean_story 'who waits behind one that may create the path gets the lock' => sub {
	my $creator = $a->session;
	is($creator->query(q{SELECT zk_lock('/q/created')}), 't', 'one creates it');
	$m->start_waiting(q{SELECT zk_lock('/q/created')});
	$creator->query('SELECT zk_unlock_all()');
	is($m->finish, 't', 'the other one is next');
};

clean_story 'who waits together with one that may not, gets the lock nevertheless' => sub {
	# While ZooKeeper does not answer both join one run, the one that may not being first.
	$zk->pause;
	$m->start_waiting(q{SELECT zk_lock('/q/both')});
	$s->start_waiting(q{SELECT zk_lock('/q/both')});
	$zk->resume;
	is($m->result->{sqlstate}, '42704', 'the first is refused');
	is($s->finish, 't', 'the second has the path created');
};

clean_story 'a path that goes away while it is locked' => sub {
	$shell->create('/q/going', makepath => 1);
	is($m->query(q{SELECT zk_lock('/q/going')}), 't', 'is locked');
	my ($node) = $zk->children('/q/going');
	my $waiter = $a->session(user => 'mallory');
	$waiter->start_waiting(q{SELECT zk_lock('/q/going')});

	# The worker would put another node there in between.
	freeze($a->worker_pid);
	$shell->delete($_) foreach "/q/going/$node", '/q/going';
	thaw($a->worker_pid);
	is($waiter->result->{sqlstate}, '42704', 'who waits for it is refused');
	$a->wait_lock($m, 'lost', '/q/going');
};

done_clean($zk, $a);
