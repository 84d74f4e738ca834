# Copyright (c) 2026, zklock contributors
#
# Another client attaches to our session, as a copy of this server might, or a client that
# was believed dead.
#
# The client that attached last owns the session. ZooKeeper refuses what others write in its
# name, and closes their connection (SESSIONMOVED). So the worker connects again, and becomes
# the owner. The session lives all the time, and nobody loses a lock or a place.

use Zklock::Test;
use Zklock::Cast;

my ($zk, $a, $b) = cast('a b', timeout => '15s', zk => { ensemble => 3 });
my $shell = $zk->shell;
my $id    = $a->session_id;

hold($a, 'holder', '/m/queue');
queue($a, 'local', '/m/queue');
queue($b, 'remote', '/m/queue');
hold($b, 'elsewhere', '/m/elsewhere');
queue($a, 'behind', '/m/elsewhere');
on($a, 'xact')->query('BEGIN');
$s{xact}->query("SELECT zk_xact_lock('/m/xact')");
my $before = holdings($a);

sub undisturbed
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$a->wait_session;
	is($a->session_id, $id, "$what: the session is the same");
	is_deeply(holdings($a), $before, 'holders have what they had');
	ok($s{$_}->busy, "$_ waits") foreach qw(local remote behind);
	return;
}

sub attach
{
	my ($server) = @_;
	$shell->attach($id, $server->port, timeout => 15000);
	return;
}

subtest 'a connection of others with our session, on any server, disturbs nobody' => sub {
	# On whichever server: where we are, it is only one more connection.
	foreach my $server ($zk->servers, $zk->servers)
	{
		my $row     = $a->zk_session;
		my $another = $server->connect_string ne $row->{server};
		attach($server);
		wait_until { $a->zk_session->{reconnects} > $row->{reconnects} } 'the worker to connect anew' if $another;
		undisturbed('attached to ' . ($another ? 'another server' : 'our server'));
	}
};

subtest 'locks are granted and released while the session is attached elsewhere' => sub {
	# What the worker wants while the session is not its own: a contender, a release.
	on($a, $_) foreach qw(newcomer releaser canceller);
	foreach my $round (1 .. 3)
	{
		my ($server) = grep { $_->connect_string ne $a->zk_session->{server} } $zk->servers;
		hold($a, 'releaser', '/m/release');
		queue($b, 'heir', '/m/release');
		queue($a, 'canceller', '/m/elsewhere');
		attach($server);
		$s{newcomer}->query_start("SELECT zk_lock('/m/new$round')");
		is($s{releaser}->query("SELECT zk_unlock('/m/release')"), 't', 'a lock is released');
		is($s{canceller}->cancelled, '57014', 'a wait cancelled');
		is($s{newcomer}->finish, 't', 'and another lock granted');
		is($s{heir}->finish, 't', 'what was released is free');
		is(scalar($zk->children("/m/new$round")), 1, 'the new lock has one node');
		wait_until { $zk->children('/m/elsewhere') == 2 } 'no node of who gave up to be left';
		$s{newcomer}->query("SELECT zk_unlock('/m/new$round')");
		$s{heir}->query("SELECT zk_unlock('/m/release')");
		undisturbed("round $round");
	}
};

subtest 'a commit whose guard writes is done' => sub {
	# A commit whose guard has to write.
	$s{xact}->query('SET zklock.commit_guard = quorum');
	my ($server) = grep { $_->connect_string ne $a->zk_session->{server} } $zk->servers;
	attach($server);
	ok($s{xact}->try('COMMIT')->{ok}, 'a transaction commits');
	$before = [ grep { !m{/m/xact} } @$before ];
	undisturbed('after the commit');
};

subtest 'a node that others create in our session is deleted' => sub {
	# What others create in our session nobody here will ever release.
	$s{heir}->query("SELECT zk_lock('/m/foisted')");
	my $mark = $a->log_mark;
	my $name = '_c_00000000-0000-0000-0000-000000000000-lock-';
	# It is refused if the worker is the session's owner again before that.
	wait_until {
		eval { $shell->foist($id, "/m/foisted/$name") };
		grep { /^$name/ } $zk->children('/m/foisted');
	} 'a node in our session';
	queue($a, 'newcomer', '/m/foisted');
	$a->wait_log(qr{LOG:  deleting ZooKeeper node "/m/foisted/$name\d{10}", which this server left behind}, $mark);
	$s{heir}->query("SELECT zk_unlock('/m/foisted')");
	is($s{newcomer}->finish, 't', 'a node of our session that we do not know is in nobody\'s way');
	$s{newcomer}->query("SELECT zk_unlock('/m/foisted')");
	undisturbed('after that');
};

subtest "the end of the others' connections is not that of the session" => sub {
	$shell->detach;
	undisturbed('detached');
	is($a->zk_session->{expirations}, 0, 'nothing has expired');
	my $token = $s{holder}->query("SELECT zk_fencing_token('/m/queue')");
	$s{holder}->query("SELECT zk_unlock('/m/queue')");
	is($s{local}->finish, 't', 'the queue goes on');
	ok($s{remote}->busy, 'one after the other');
	cmp_ok($s{local}->query("SELECT zk_fencing_token('/m/queue')"), '>', $token, 'with a higher token');
	$s{local}->query("SELECT zk_unlock('/m/queue')");
	is($s{remote}->finish, 't', 'to the last');
	$s{elsewhere}->query("SELECT zk_unlock('/m/elsewhere')");
	is($s{behind}->finish, 't', 'who waited for another server gets the lock');
};

all_disconnect();
Zklock::Server->assert_clean($zk, [ $a, $b ], map { "/m/$_" } qw(queue elsewhere xact foisted release new1 new2 new3));
done_testing;
