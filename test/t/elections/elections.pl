# Copyright (c) 2026, zklock contributors
#
# Servers stand at elections: one leads, the others are ready; who leads is told by
# zk_is_leader(), zk_elections and zk_leader(). zk_resign() moves leadership on, in each family of names;
# zk_await_leadership() waits for it; how such waits end is in sql/stats.pl. And what leadership survives, and who leads
# next when it does not: restarts of the worker, the end of the session, crash and shutdown of the server; those of
# ZooKeeper are in elections/election_cut_off.pl. A standby stands at no election, and stands when it is promoted; its former
# primary, which runs on, leads no more.

use Zklock::Test;
use Zklock::Cast qw(cancel_as_answered fails);
use Zklock::Election;

my $path = '/e/leader';
# Commits wait for a synchronous standby, which takes streaming.
my ($zk, $proxy, $a, $b) = cast('a b', zk => { request_log => 1 }, proxied => 'a', timeout => '20s', allows_streaming => 1,
	a => { conf => [ "zklock.elections = '$path'", "zklock.server_name = 'alpha'" ] }, b => { conf => ["zklock.server_name = 'beta'"] });
my $election = Zklock::Election->new($zk, $path);

subtest 'a server that stands alone leads' => sub {
	$election->wait_state($a, 'elected');
	is($election->leads($a), 't', 'it is told so');
	my ($name) = $zk->children($path);
	like($name, qr/^_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-latch-0000000000$/, 'its node is called like one of LeaderLatch');
	is($zk->shell->get("$path/$name"), 'alpha', 'with its name as data');
	is($a->value('SELECT path, state, is_leader, "position", leader FROM zk_elections'), "$path|elected|t|1|alpha", 'zk_elections');
	is($a->value("SELECT term = zk_fencing_token('$path') FROM zk_elections"), 't', 'its term is the fencing token');
	is($a->value("SELECT server, owner, session = (SELECT session_id FROM zk_session), term = zk_fencing_token('$path'), since < clock_timestamp() + '1min' FROM zk_leader('$path')"),
		'alpha|alpha|t|t|t', 'zk_leader');
	is($a->lock_count, 0, 'a candidacy is no lock of a session');
};

subtest 'another server is ready when it stands' => sub {
	is($b->session->try("SELECT zk_is_leader('$path')")->{sqlstate}, '42704', 'a server that does not stand has no answer');
	$b->set_conf('zklock.elections' => $path);
	$election->wait_state($b, 'ready');
	is($b->value("SELECT zk_is_leader('$path')"), 'f', 'it does not lead');
	$b->wait_value('SELECT state, is_leader, "position", leader, term IS NULL FROM zk_elections', 'ready|f|2|alpha|t');
	is($b->value("SELECT server FROM zk_leader('$path')"), 'alpha', 'zk_leader tells who does');
	fails($b->session->try("SELECT zk_fencing_token('$path')"), '55000', 'it has no term', hint => qr/zk_leader/);
	my $holder = $b->session;
	$holder->query("SELECT zk_lock('/e/held')");
	is($a->value("SELECT server FROM zk_leader('/e/held')"), 'beta', 'for clients that lead while they hold a lock, its holder leads');
};

subtest 'a reload ends one candidacy and no other' => sub {
	my $term = $a->value("SELECT zk_fencing_token('$path')");
	my $s    = $a->session;
	$s->query("SELECT zk_lock('/e/lock')");
	$a->set_conf('zklock.elections' => "$path, /e/second");
	$election->wait_state($a, 'elected', '/e/second');
	is($a->value("SELECT zk_fencing_token('$path')"), $term, 'the other goes on in its term');
	$a->set_conf('zklock.elections' => '/e/second');
	$election->wait_state($b, 'elected');
	is($a->value('SELECT path FROM zk_elections'), '/e/second', 'one is left');
	cmp_ok($b->value("SELECT zk_fencing_token('$path')"), '>', $term, 'the next leader has a higher term');
	is($a->session->try("SELECT zk_is_leader('$path')")->{sqlstate}, '42704', 'the other has no answer any more');
	is($s->query("SELECT zk_unlock('/e/lock')"), 't', 'locks are untouched');
	$a->set_conf('zklock.elections' => "$path, /e/second");
	$election->wait_state($a, 'ready');
};

subtest 'a path that gets other names leaves, and comes again with these' => sub {
	my $term = $a->value("SELECT zk_fencing_token('/e/second')");
	$a->set_conf('zklock.elections' => '/e/second=zookeeper');
	$a->wait_value("SELECT max(term) > $term FROM zk_elections WHERE path = '/e/second'", 't');
	like(join(' ', $zk->children('/e/second')), qr/^n_\d{10}$/, 'it has one node');
	$a->set_conf('zklock.elections' => '/e/second=lock');
	wait_until { join(' ', $zk->children('/e/second')) =~ /^_c_\S+-lock-\d{10}$/ } 'the other names';
	$election->wait_state($a, 'elected', '/e/second');
};

$_->set_conf('zklock.elections' => '') foreach $a, $b;
all_in_state($_, '') foreach $a, $b;

my @kinds = ([ '/e/latch', 'curator_latch' ], [ '/e/support', 'zookeeper' ], [ '/e/lock', 'lock' ]);
my $elections = join ', ', map { "$_->[0]=$_->[1]" } @kinds;
my ($sa, $sb) = ($a->session, $b->session);

sub all_in_state($server, $state)
{
	$server->wait_value("SELECT string_agg(DISTINCT state, ' ') FROM zk_elections", $state);
	return;
}

$a->set_conf('zklock.elections' => $elections);
all_in_state($a, 'elected');
$b->set_conf('zklock.elections' => $elections);
all_in_state($b, 'ready');

# faults/faults_of_elections.pl has who resigns without rivals.
subtest 'another takes over' => sub {
	is($sb->query("SELECT zk_resign('/e/latch')"), 'f', 'a server that does not lead has nothing to give up');
	foreach my $kind (@kinds)
	{
		my ($path, $names) = @$kind;
		my $term = $sa->query("SELECT zk_fencing_token('$path')");
		$sb->query_start("SELECT zk_await_leadership('$path')");
		$b->wait_event($sb, 'lock');
		my ($mark, $requests) = ($a->log_mark, $zk->mark);
		is($sa->query("SELECT zk_resign('$path')"), 't', "$names: a resigns");
		my $asked = $zk->requests($requests);
		is(($asked->{delete} // 0) + ($asked->{create2} // 0), 0, 'in one step: it is never out of the queue');
		is($sa->query("SELECT zk_is_leader('$path')"), 'f', 'it does not lead any more');
		is($sb->finish, 't', 'b does');
		cmp_ok($sb->query("SELECT zk_fencing_token('$path')"), '>', $term, 'in a higher term');
		$a->wait_value("SELECT state, \"position\", leader FROM zk_elections WHERE path = '$path'", 'ready|2|beta');
		$a->assert_log($mark, qr{election "$path": candidacy is in state "offer".*election "$path": candidacy is in state "ready"}s,
			'the log has each state');
		is(scalar $zk->children($path), 2, 'each has one node');
	}
};

subtest 'a wait that is cancelled as the server comes to lead leaves nothing at stake' => sub {
	my $path = '/e/support';
	$sa->query_start("SELECT zk_await_leadership('$path')");
	cancel_as_answered($sa, sub { $sb->query("SELECT zk_resign('$path')"); $a->wait_value("SELECT zk_is_leader('$path')", 't'); });
	fails($sa->result, '57014', 'it is cancelled');
	$sa->query('BEGIN; CREATE TABLE later ()');
	$a->value("SELECT zk_resign('$path')");
	ok($sa->try('COMMIT')->{ok}, 'what the session writes later does not rely on the term');
	$b->wait_value("SELECT zk_is_leader('$path')", 't');
};

subtest 'the view does not wait for an answer of ZooKeeper' => sub {
	my $view = q{SELECT state, leader FROM zk_elections WHERE path = '/e/latch'};
	foreach my $question ({ op => 'getChildren', path => '^/e/latch$' }, { op => 'getData', path => '^/e/latch/' })
	{
		my $held = $proxy->hold_request(%$question);
		$sa->query("SET statement_timeout = '10s'");
		is($sa->query($view), 'ready|', 'it tells what is known here');
		ok($proxy->fired($held), "who leads elsewhere was asked: $question->{op}");
		$proxy->heal;
		$sa->query('RESET statement_timeout');
		$a->wait_value($view, 'ready|beta');
	}
};

subtest 'leadership is not given up while a transaction commits under it' => sub {
	my $path = '/e/latch';
	my $r = $b->session;
	$b->value('CREATE TABLE work (n int)');
	$b->set_conf(synchronous_standby_names => 'nobody');
	# The checkpointer tells commits that there are standbys to wait for.
	wait_until
	{
		my $probe = $b->session;
		my $waits = "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = " . $probe->pid;
		$probe->query_start('INSERT INTO work VALUES (0)');
		wait_until { !$probe->busy || $b->value($waits) eq 't' } 'a commit to wait, or to end';
		$probe->busy && $probe->cancel && $probe->result;
	}
	'the setting to be in force';
	$sb->query('BEGIN');
	is($sb->query("SELECT zk_is_leader('$path')"), 't', 'b leads');
	$sb->query('INSERT INTO work VALUES (1)');
	$sb->query_start('COMMIT');
	$b->wait_event($sb, 'SyncRep');
	$r->query_start("SELECT zk_resign('$path')");
	wait_until { $b->value("SELECT zk_is_leader('$path')") eq 'f' } 'b to give up leadership';
	$a->settle;
	is($a->value("SELECT zk_is_leader('$path')"), 'f', 'nobody else leads as long as the transaction commits');
	ok($r->busy, 'zk_resign waits');
	$b->set_conf(synchronous_standby_names => '');
	is($sb->result->{ok}, 1, 'the transaction has committed');
	is($r->finish, 't', 'then leadership goes on');
	is($sa->query("SELECT zk_await_leadership('$path', '30s')"), 't', 'to the other');
};

$_->set_conf('zklock.elections' => '') foreach $a, $b;

subtest 'what was asked at an election is not done at the next one, which takes its place' => sub {
	all_in_state($_, '') foreach $a, $b;
	my $mark = $a->log_mark;
	my @next = map { "/e/next$_" } 1 .. 3;
	$a->set_conf('zklock.elections' => join ', ', @next);
	$a->wait_value(q{SELECT count(*) FROM zk_elections WHERE state = 'elected'}, 3);
	# A resignation would have been taken up before this server resigned at the last of them.
	$sa->query("SELECT zk_resign('$next[2]')");
	my $log = $a->log_since($mark);
	is(scalar(() = $log =~ /has given up leadership/g), 1, 'nobody resigns who was not asked to');
	$a->set_conf('zklock.elections' => '');
};

$election->stand($a, $b);

sub leads_before($leader, $other)
{
	$election->wait_state($leader, 'elected');
	$election->wait_state($other, 'ready');
	return;
}

sub nodes_of($server) { return grep { $zk->shell->stat("$path/$_")->{ephemeralOwner} eq $server->session_id } $zk->children($path); }

subtest 'a restart of the worker ends no term and no place' => sub {
	my ($term, $node) = ($election->term($a), join(' ', $zk->children($path)));
	my $mark = $a->log_mark;
	my $s = $a->session;
	$election->work($s);
	$_->restart_worker foreach $a, $b;
	$_->wait_session foreach $a, $b;
	is($s->try('COMMIT')->{sqlstate}, '00000', 'it commits');
	is($election->leads($a), 't', 'the server leads');
	is($election->term($a), $term, 'in the same term');
	is(join(' ', $zk->children($path)), $node, 'each has the node that it had');
	is($election->leads($b), 'f', 'the other waits');
	unlike($a->log_since($mark), qr/candidacy is in state "(?!elected|suspended)/, 'the log tells of nothing else');
};

subtest 'after the end of its session a server is the last' => sub {
	my $term = $election->term($a);
	my $mark = $a->log_mark;
	$a->expire_session($zk);
	$a->wait_log(qr/Leadership was lost\. The ZooKeeper session ended/, $mark);
	leads_before($b, $a);
	cmp_ok($election->term($b), '>', $term, 'the next term is a higher one');
};

subtest 'a server that shuts down hands over at once' => sub {
	my $term = $election->term($b);
	my $s = $b->session;
	$s->query("SELECT zk_lock('/e/lock')");
	$b->stop;
	$election->wait_state($a, 'elected');
	cmp_ok($election->term($a), '>', $term, 'in a higher term');
	is(scalar $zk->children($path), 1, 'its node is gone');
	like($b->log_since(0), qr/election "$path": candidacy is in state "stop"\n.*The server shuts down/, 'the log says why it does not stand');
	$b->start_connected;
	leads_before($a, $b);
};

subtest 'after a crash the next one leads as soon as the old session is ended' => sub {
	my $term = $election->term($a);
	$a->kill9;
	is($election->leads($b), 'f', 'nobody leads as long as the session may live');
	$a->start_again;
	$a->wait_session;
	leads_before($b, $a);
	cmp_ok($election->term($b), '>', $term, 'in a higher term');
	is(scalar $zk->children($path), 2, 'each has one node');
};

subtest 'a deleted node ends the term, and the server stands again' => sub {
	my $term = $election->term($b);
	$zk->shell->delete("$path/$_") foreach nodes_of($b);
	leads_before($a, $b);
	cmp_ok($election->term($a), '>', $term, 'the other leads');
	$zk->shell->delete("$path/$_") foreach nodes_of($b);
	$b->wait_value("SELECT state || (since > clock_timestamp() - interval '1min') FROM zk_elections", 'readytrue');
	wait_until { $zk->children($path) == 2 } 'the candidate to stand again';
	leads_before($a, $b);
};

$b->set_conf('zklock.elections' => '');
$a->reconfigure('zklock.session_timeout' => scaled('4s'));
my $standby = Zklock::Server->standby('standby', primary => $a, zookeeper => $zk,
	conf => [ "zklock.elections = '$path'", "zklock.session_timeout = '4s'", "zklock.server_name = 'gamma'" ]);

subtest 'a standby does not stand' => sub {
	$election->wait_state($standby, 'stop');
	is($election->leads($standby), 'f', 'it does not lead');
	is(scalar $zk->children($path), 1, 'and has no node');
	is($standby->value("SELECT zk_resign('$path')"), 'f', 'it has nothing to give up');
	is($standby->value("SELECT server FROM zk_leader('$path')"), 'alpha', 'it can tell who leads');
	is($a->session->query("SELECT zk_resign('$path')"), 't', 'its primary resigns');
	is($election->leads($a), 't', 'and leads again, as nobody else stands');
};

subtest 'a path keeps its place in shared memory until the server is started again' => sub {
	my $mark = $standby->log_mark;
	foreach my $round (1 .. 5)
	{
		$standby->set_conf('zklock.elections' => join(', ', $path, map { "/e/$round.$_" } 1 .. 63));
		$standby->wait_value("SELECT count(*) FROM zk_elections WHERE path = '/e/$round.1'", 1);
	}
	$standby->wait_log(qr{election "/e/5\.4": cannot stand there before the server is started again}, $mark);
	$standby->wait_value('SELECT count(*) FROM zk_elections', 4);
	pass('there are places for 256 paths');
	$standby->set_conf('zklock.elections' => $path);
	$standby->wait_value('SELECT string_agg(path, $$ $$) FROM zk_elections', $path);
};

subtest 'a promoted standby stands, and leads when its former primary is isolated' => sub {
	$standby->promote;
	$election->wait_state($standby, 'ready');
	is($election->leads($a), 't', 'the former primary leads as long as it can prove it');
	$election->watch($a, $standby);
	$proxy->cut;
	$election->wait_state($standby, 'elected');
	is($election->leads($a), 'f', 'which does not lead any more');
	foreach my $timeout ('0', '100ms')
	{
		fails($a->session->try("SELECT zk_await_leadership('$path', '$timeout')"), '58030', "to wait for leadership there ($timeout)",
			message => qr{could not use ZooKeeper path "\Q$path\E": ZooKeeper cannot be reached});
	}
	$proxy->heal;
	$election->wait_state($a, 'ready');
	$election->led_once;
};

subtest 'a server that pg_upgrade starts has no worker, and so stands at no election' => sub {
	my ($data, $log) = ($b->data_dir, $b->logfile);
	$b->set_conf('zklock.elections' => '/e/upgrade');
	$b->stop;
	PostgreSQL::Test::Utils::system_or_bail('pg_ctl', '-w', '-D', $data, '-l', $log, '-o', '-b', 'start');
	is($b->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_activity WHERE backend_type = $$zklock worker$$'), 0, 'none');
	is($b->safe_psql('postgres', 'SELECT worker_pid IS NULL FROM zk_session'), 't', 'as zk_session says');
	PostgreSQL::Test::Utils::system_or_bail('pg_ctl', '-w', '-D', $data, 'stop');
	is(scalar $zk->children('/e/upgrade'), 0, 'nobody has stood');
	$b->start_connected;
	$b->wait_value('SELECT string_agg(state, $$ $$) FROM zk_elections', 'elected');
	$b->set_conf('zklock.elections' => '');
};

$election->over($a, $b, $standby);
