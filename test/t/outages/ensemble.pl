# Copyright (c) 2026, zklock contributors
#
# ZooKeeper servers die and come back: the one that a database server is connected to, the
# leader, one after the other, all at once.
#
# None of that takes longer than the session lives, so nobody loses a lock or a place, and
# work goes on by itself.
#
# Another client attaches to our session, as a copy of this server might, or a client that
# was believed dead.
#
# The client that attached last owns the session. ZooKeeper refuses what others write in its
# name, and closes their connection (SESSIONMOVED). So the worker connects again, and becomes
# the owner. The session lives all the time, and nobody loses a lock or a place.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT clean token scene undisturbed scene_ends);

my ($zk, $a, $b) = cast('a b', timeout => '20s', zk => { ensemble => 3 });
my $shell = $zk->shell;

# The one that the worker of a is connected to
sub our_server
{
	my $address = $a->zk_session->{server};
	return (grep { $_->connect_string eq $address } $zk->servers)[0];
}

# By default to a server where we are not
sub attach($server = (grep { $_ != our_server() } $zk->servers)[0])
{
	# Of two that continue a session at one follower at once, ZooKeeper answers the later: the worker may be that.
	wait_until { eval { $shell->attach($a->session_id, $server->port, timeout => 15000); 1 } } 'an answer to us, not to the worker';
	return;
}

scene($a, $b, '/m');

subtest 'a connection of others with our session, on any server, disturbs nobody' => sub {
	# On whichever server: where we are, it is only one more connection.
	foreach my $server ($zk->servers, $zk->servers)
	{
		my $another    = $server != our_server();
		my $reconnects = $a->zk_session->{reconnects};
		attach($server);
		wait_until { $a->zk_session->{reconnects} > $reconnects } 'the worker to connect anew' if $another;
		undisturbed('attached to ' . ($another ? 'another server' : 'our server'));
	}
};

subtest 'locks are granted and released while the session is attached elsewhere' => sub {
	# What the worker wants while the session is not its own: a contender, a release.
	on($a, $_) foreach qw(newcomer releaser canceller);
	foreach my $round (1 .. 3)
	{
		hold($a, 'releaser', '/m/release');
		queue($b, 'heir', '/m/release');
		queue($a, 'canceller', '/m/foreign');
		attach();
		$s{newcomer}->query_start("SELECT zk_lock('/m/new$round')");
		is($s{releaser}->query("SELECT zk_unlock('/m/release')"), 't', 'a lock is released');
		is($s{canceller}->cancelled, '57014', 'a wait cancelled');
		is($s{newcomer}->finish, 't', 'and another lock granted');
		is($s{heir}->finish, 't', 'what was released is free');
		is(scalar($zk->children("/m/new$round")), 1, 'the new lock has one node');
		wait_until { $zk->children('/m/foreign') == 2 } 'no node of who gave up to be left';
		$s{newcomer}->query("SELECT zk_unlock('/m/new$round')");
		$s{heir}->query("SELECT zk_unlock('/m/release')");
		undisturbed("round $round");
	}
};

subtest 'a commit whose guard writes is done' => sub {
	on($a, 'xact')->query('SET zklock.commit_guard = quorum');
	in_transaction($a, 'xact', '/m/xact');
	attach();
	ok($s{xact}->try('COMMIT')->{ok}, 'a transaction commits');
	undisturbed('after the commit');
};

subtest 'a node that others create in our session is deleted' => sub {
	# What others create in our session nobody here will ever release.
	$s{heir}->query("SELECT zk_lock('/m/foisted')");
	my $mark = $a->log_mark;
	my $name = '_c_00000000-0000-0000-0000-000000000000-lock-';
	# It is refused if the worker is the session's owner again before that.
	wait_until {
		eval { $shell->foist($a->session_id, "/m/foisted/$name") };
		grep { /^$name/ } $zk->children('/m/foisted');
	} 'a node in our session';
	queue($a, 'newcomer', '/m/foisted');
	$a->wait_log(qr{LOG:  deleted ZooKeeper node "/m/foisted/$name\d{10}", which this server left behind}, $mark);
	hand_on('/m/foisted', 'heir', 'newcomer');
	undisturbed('after that');
};

subtest 'it is deleted when that is allowed, if it was not before' => sub {
	my $mark = $a->log_mark;
	my $name = '_c_00000000-0000-0000-0000-000000000001-lock-';
	$shell->add_auth('digest', 'admin:secret');
	my @admin = [ 'digest', 'admin:secret', 'cdrwa' ];
	$s{heir}->query("SELECT zk_lock('/m/protected')");
	wait_until {
		eval { $shell->foist($a->session_id, "/m/protected/$name") };
		grep { /^$name/ } $zk->children('/m/protected');
	} 'a node in our session';
	$shell->set_acl('/m/protected', [ @admin, [ 'world', 'anyone', 'crwa' ] ]);
	queue($a, 'newcomer', '/m/protected');
	$a->wait_log(qr{LOG:  could not delete ZooKeeper node "/m/protected/$name\d{10}": ZNOAUTH}, $mark);
	ok((grep { /^$name/ } $zk->children('/m/protected')), 'ZooKeeper refuses that');
	$shell->set_acl('/m/protected', [ @admin, [ 'world', 'anyone', 'cdrwa' ] ]);
	hand_on('/m/protected', 'heir', 'newcomer');
	undisturbed('after the refusal');
};

subtest 'so is a permit' => sub {
	my $mark = $a->log_mark;
	my $name = '_c_00000000-0000-0000-0000-000000000000-lease-';
	is($s{newcomer}->query("SELECT zk_semaphore_acquire('/m/permits', 1)"), 't', 'the only permit is taken');
	is($s{newcomer}->query("SELECT zk_semaphore_release('/m/permits')"), 't', 'and given back');
	wait_until {
		eval { $shell->foist($a->session_id, "/m/permits/leases/$name") };
		grep { /^$name/ } $zk->children('/m/permits/leases');
	} 'a permit in our session';
	is($s{newcomer}->query("SELECT zk_semaphore_acquire('/m/permits', 1, '60s')"), 't', 'there is a permit all the same');
	like($a->log_since($mark), qr{LOG:  deleted ZooKeeper node "/m/permits/leases/$name\d{10}", which this server left behind}, 'the log says why');
	$s{newcomer}->query("SELECT zk_semaphore_release('/m/permits')");
	undisturbed('after the permit');
};

subtest "the end of the others' connections is not that of the session" => sub {
	$shell->detach;
	undisturbed('detached');
	is($a->zk_session->{expirations}, 0, 'nothing has expired');
	scene_ends();
};

clean($zk, [ $a, $b ]);

$shell->connect($zk->connect_string, client => 'peer', timeout => 20);

foreach my $server ($a, $b)
{
	$server->value('CREATE TABLE stop (done int)');
	$server->value('CREATE TABLE tokens (token bigint)');
	$server->value('CREATE SEQUENCE rounds');
}
my $traffic = q{
	DO $$
	DECLARE
		last bigint := 0;
		own bigint;
	BEGIN
		WHILE NOT EXISTS (SELECT FROM stop) LOOP
			PERFORM zk_lock('/traffic');
			own := zk_fencing_token('/traffic');
			IF own <= last THEN
				RAISE EXCEPTION 'token % after %', own, last;
			END IF;
			last := own;
			INSERT INTO tokens VALUES (own);
			PERFORM nextval('rounds');
			IF NOT zk_unlock('/traffic') THEN
				RAISE EXCEPTION 'the lock was lost';
			END IF;
		END LOOP;
	END $$};
my @workers = ((map { $a->session } 1 .. 3), (map { $b->session } 1 .. 2));
$_->query_start($traffic) foreach @workers;

sub traffic_goes_on($what)
{
	my %start = map { $_->name => $_->value('SELECT last_value FROM rounds') } $a, $b;
	foreach my $server ($a, $b)
	{
		wait_until { $server->value('SELECT last_value FROM rounds') > $start{ $server->name } + 20 }
		  sub { 'traffic on ' . $server->name . " after $what\n" . $a->describe_locks . $b->describe_locks };
	}
	return pass("$what: work goes on");
}

my $token = 0;
my $foreign;    # the node of somebody who is no database server

# The foreigner may lose its connection at any time, as all may.
sub until_done($what, $action)
{
	return wait_until { my $result = eval { $action->() }; $result || $@ =~ /NoNode/ && 1 } $what;
}

# The foreigner queues behind the remote one.
sub foreigner_queues
{
	wait_until { $zk->children('/z/queue') == 2 } "the remote one's node";
	my $name = '_c_00000000-0000-0000-0000-000000000000-lock-';
	$foreign = until_done 'a foreigner to queue', sub {
		my ($there) = grep { /^\Q$name\E/ } $zk->children('/z/queue');
		return $there ? "/z/queue/$there"
		  : $shell->create("/z/queue/$name", ephemeral => 1, sequence => 1, client => 'peer');
	};
	return;
}

sub dissolve($what)
{
	ok($s{xact}->try('COMMIT')->{ok}, "$what: the transaction commits");
	cmp_ok(token('holder', '/z/queue'), '>', $token, 'the holder came after the foreigner before');
	$token = scene_ends();
	wait_until { join(' ', $zk->children('/z/queue')) eq $foreign =~ s{.*/}{}r } "the foreigner's turn";
	my $stat = until_done "the foreigner's node to be read", sub { $shell->stat($foreign) };
	cmp_ok($stat->{czxid} * 4096 + 1, '>', $token, 'with a higher token');
	$token = $stat->{czxid} * 4096 + 1;
	is($s{$_}->query("SELECT zk_try_lock('/z/queue')"), 'f', "$_ respects it") foreach qw(holder remote);
	until_done 'the foreigner to go', sub { $shell->delete($foreign, client => 'peer'); 1 };
	$_->query('SELECT zk_unlock_all()') foreach values %s;
	return;
}

# Sessions that see the end of a server do not know it at once.
sub away_from($server)
{
	foreach my $db ($a, $b)
	{
		wait_until {
			my $row = $db->zk_session;
			$row->{state} eq 'connected' && ($row->{server} || '') ne $server->connect_string;
		}
		sub { $db->name . " to find another server\n" . $db->describe_locks };
	}
	return;
}

my $after_kill = sub ($server) {
	$server->kill9;
	away_from($server);
	$_->wait_session foreach $a, $b;
	traffic_goes_on('without the server');
	$server->start;
};

my @disturbances = (
	[ 'kill of our server' => sub { $after_kill->(our_server()) } ],
	[   'hang of our server' => sub {
			my $server = our_server();
			$server->pause;
			away_from($server);
			$server->resume;
		} ],
	[ 'kill of the leader' => sub { $after_kill->($zk->leader) } ],
	[   'rolling restart' => sub {
			foreach my $server ($zk->servers) { $server->restart; $_->wait_session foreach $a, $b; }
		} ],
	[ 'stop and start of all' => sub { $zk->restart } ],
	[   'loss and return of the quorum' => sub {
			my @two = (($zk->followers)[0], $zk->leader);
			$_->kill9 foreach @two;
			$a->wait_value("SELECT lease_remaining = '0' FROM zk_session", 't');
			$_->start(wait => 0) foreach @two;
			$zk->wait_ready;
		} ]);

foreach my $disturbance (@disturbances)
{
	my ($what, $code) = @$disturbance;
	subtest "holders, waiters and a workload outlive a disturbance: $what" => sub {
		in_transaction($a, 'xact', '/z/xact', 'INSERT INTO tokens VALUES (-1)');
		scene($a, $b, '/z');
		foreigner_queues();
		$code->();
		$shell->reconnect(client => 'peer');
		undisturbed($what);
		traffic_goes_on($what);
		dissolve($what);
	};
}

is($a->zk_session->{expirations}, 0, 'nothing has expired');

subtest 'the workload has seen no error, and no token twice' => sub {
	$_->value('INSERT INTO stop VALUES (1)') foreach $a, $b;
	foreach my $s (@workers)
	{
		my $result = $s->result;
		ok($result->{ok}, $s->name . ' has seen no error') or diag $result->{error};
		$s->disconnect;
	}
	my %seen;
	my @twice = grep { $_ > 0 && $seen{$_}++ } map { split /\n/, $_->value('SELECT token FROM tokens') } $a, $b;
	is_deeply(\@twice, [], 'no token was given twice');
	cmp_ok(scalar keys %seen, '>', 200, 'of many');
};

$shell->close_connection(client => 'peer');
done_clean($zk, $a, $b);
