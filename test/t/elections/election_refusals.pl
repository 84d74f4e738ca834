# Copyright (c) 2026, zklock contributors
#
# What elections refuse: a path where others' candidates are of another kind, or a lock. Wrong settings and arguments
# are in sql/election.sql, and what is refused where a server stands in peers/one_use.pl.

use Zklock::Test;
use Zklock::Election;

my ($zk, $proxy, $a) = cast('a', zk => { request_log => 1 }, proxied => 'a');
my $shell = $zk->shell;
my $s     = $a->session;
my $election = Zklock::Election->new($zk, '/e/leader');

sub stand($setting) { $a->set_conf('zklock.elections' => $setting); return; }

# A candidacy there fails, as the log tells, and why.
sub fails_at($setting, $path, $why, $name)
{
	my $mark = $a->log_mark;
	stand($setting);
	$a->assert_log($mark, qr{election "$path": candidacy is in state "failed"\n.*CONTEXT: .*\n.*LOG: .*$why}, $name);
	return;
}

subtest 'a path that is locked here' => sub {
	stand('/e/leader =  CURATOR_latch ');
	$election->wait_state($a, 'elected');
	$s->query(q{SELECT zk_lock('/e/locked')});
	fails_at('/e/leader, /e/locked', '/e/locked', 'is in use for something else\n.*DETAIL: .*is used as a lock', 'it cannot stand there');
	is($s->query(q{SELECT zk_fencing_token('/e/locked') > 0}), 't', 'the holder keeps its lock');
	$s->query(q{SELECT zk_unlock('/e/locked')});
	$election->wait_state($a, 'elected', '/e/locked');
	stand('/e/leader');
};

# What is created is logged by ZooKeeper: not even for a moment is there anything else.
subtest 'no candidate is created where those of another family are' => sub {
	my %foreign = ('/f/support' => 'n_', '/f/latch' => '_c_edda2515-abf2-4579-b513-df182d03af67-latch-',
		'/f/lock' => '_c_edda2515-abf2-4579-b513-df182d03af67-lock-');
	my %ours = ('/f/support' => 'curator_latch', '/f/latch' => 'zookeeper', '/f/lock' => 'zookeeper');
	foreach my $path (sort keys %foreign)
	{
		my $node = $shell->create("$path/$foreign{$path}", ephemeral => 1, sequence => 1, makepath => 1);
		my $mark = $zk->mark;
		fails_at("/e/leader, $path=$ours{$path}", $path, 'clients of another kind', "$ours{$path} at $path: it fails");
		is($zk->requests($mark)->{create2} // 0, 0, 'without so much as a try to create a node');
		is($a->value("SELECT zk_is_leader('$path')"), 'f', 'it does not lead');
		$shell->delete($node);
		$election->wait_state($a, 'elected', $path);
		is(scalar $zk->children($path), 1, 'when the others have gone, it stands');
		stand('/e/leader');
		wait_until { $zk->children($path) == 0 } 'its node to go';
	}
};

subtest 'nor when its node goes when it has resigned, or is about to' => sub {
	my $rival = '/f/resigns/_c_edda2515-abf2-4579-b513-df182d03af67-latch-';
	my $resign = q{SELECT zk_resign('/f/resigns')};
	my $away = sub ($meanwhile) {
		my $id = $a->session_id;
		$proxy->cut;
		$s->query_start($resign);
		$election->wait_state($a, 'offer', '/f/resigns');
		$meanwhile->();
		$shell->expire_session($id);
	};
	my %ends = (
		'it is deleted later' => sub {
			$s->query($resign);
			$election->wait_state($a, 'ready', '/f/resigns');
			my ($node) = grep { $zk->shell->stat("/f/resigns/$_")->{ephemeralOwner} eq $a->session_id } $zk->children('/f/resigns');
			$proxy->cut;
			$shell->delete("/f/resigns/$node");
			$s->query_start($resign);
		},
		'it is deleted' => sub ($node) {
			$proxy->hold_request_of($s, $resign, op => 'multi', path => '^/f/resigns/');
			$shell->delete($node);
		},
		'the session ends'                 => sub ($node) { $away->(sub { }) },
		'the session ends, and the worker' => sub ($node) { $away->(sub { $a->restart_worker }) });
	foreach my $end (sort keys %ends)
	{
		stand('/f/resigns');
		$election->wait_state($a, 'elected', '/f/resigns');
		my ($ours) = $zk->children('/f/resigns');
		my @nodes = $shell->create($rival, ephemeral => 1, sequence => 1);
		$a->settle;
		$ends{$end}->("/f/resigns/$ours");
		push @nodes, $shell->create('/f/resigns/n_', ephemeral => 1, sequence => 1);
		my $mark = $zk->mark;
		$proxy->heal;
		$s->finish;
		$election->wait_state($a, 'failed', '/f/resigns');
		is($zk->requests($mark)->{create2} // 0, 0, "$end: it tries to create none");
		$shell->delete($_) foreach @nodes;
		$election->wait_state($a, 'elected', '/f/resigns');
	}
	stand('/e/leader');
	wait_until { $zk->children('/f/resigns') == 0 } 'its node to go';
};

subtest 'when ZooKeeper refuses a place at the end of the queue, the server has none' => sub {
	stand('/f/refused');
	$election->wait_state($a, 'elected', '/f/refused');
	my ($term, $mark) = ($a->value("SELECT zk_fencing_token('/f/refused')"), $a->log_mark);
	$proxy->refuse(op => 'multi', code => -102, path => '^/f/refused/');
	is($s->query("SELECT zk_resign('/f/refused')"), 't', 'it has resigned');
	$a->assert_log($mark, qr{election "/f/refused": candidacy is in state "failed".*ZNOAUTH}s, 'as the log tells');
	$election->wait_state($a, 'elected', '/f/refused');
	cmp_ok($a->value("SELECT zk_fencing_token('/f/refused')"), '>', $term, 'later it stands again, and leads in a new term');
	is(scalar $zk->children('/f/refused'), 1, 'with one node');
	stand('/e/leader');
};

subtest 'no container is made for n_ names, which carry nothing but a number' => sub {
	stand('/p/support=zookeeper, /p/latch');
	$election->wait_state($a, 'elected', $_) foreach '/p/support', '/p/latch';
	my ($name) = $zk->children('/p/support');
	is($name, 'n_0000000000', 'a candidate has a number and no name');
	is($shell->get("/p/support/$name"), 'a', 'and the name of the server as data');
	my $mark = $zk->mark;
	stand('/p/new=zookeeper');
	$election->wait_state($a, 'elected', '/p/new');
	is($zk->requests($mark)->{createContainer} // 0, 0, 'no container is made for it');
	$a->set_conf('zklock.parent_nodes' => 'existing');
	fails_at('/p/missing', '/p/missing', 'does not exist', 'with parent_nodes = existing nothing is created');
	$a->value('ALTER SYSTEM RESET zklock.parent_nodes');
};

subtest 'candidates of all clients are shown, and can be broken' => sub {
	my $rows = q{SELECT string_agg(concat_ws(' ', position, kind, dialect, granted, fencing_token = zk_fencing_token('/e/leader'),
		server, owner), ', ' ORDER BY position) FROM zk_contenders('/e/leader')};
	stand('/e/leader, /p/support=zookeeper');
	$election->wait_state($a, 'elected', $_) foreach '/e/leader', '/p/support';
	my $foreign = $shell->create('/e/leader/_c_edda2515-abf2-4579-b513-df182d03af67-latch-',
		ephemeral => 1, sequence => 1, data => 'java');
	is($a->value($rows), '1 candidate curator_latch t t a, 2 candidate curator_latch f java', 'a leader of ours and a candidate behind it');
	is($a->value(q{SELECT kind || ' ' || dialect FROM zk_contenders('/p/support')}), 'candidate zookeeper', 'other names as well');
	is($a->value(q{SELECT zk_break_lock('/e/leader', node) FROM zk_contenders('/e/leader') WHERE owner = 'java'}), 't', 'a candidate is deleted');
	is(scalar(grep { $foreign =~ m{/\Q$_\E$} } $zk->children('/e/leader')), 0, 'and gone');
	my $term = $a->value(q{SELECT zk_fencing_token('/e/leader')});
	is($a->value(q{SELECT zk_break_lock('/e/leader', node) FROM zk_contenders('/e/leader')}), 't', 'so is a leader');
	wait_until { $a->value(q{SELECT coalesce(max(term), 0) FROM zk_elections WHERE path = '/e/leader'}) > $term } 'the server to lead in a new term';
};

subtest 'a candidate that renews its node while it is looked for' => sub {
	my $candidate = sub { $shell->create('/g/renewed/latch-', ephemeral => 1, sequence => 1, makepath => 1, data => $_[0]) };
	my $first     = $candidate->('old');
	$proxy->hold_request_of($s, "SELECT owner FROM zk_leader('/g/renewed')", op => 'getData', path => "^$first\$");
	$shell->delete($first);
	$candidate->('new');
	$proxy->heal;
	is($s->finish, 'new', 'is found by its new one');
	$shell->set("/g/renewed/$_", "a\nb") foreach $zk->children('/g/renewed');
	is($s->query("SELECT owner IS NULL, server IS NULL, session IS NULL FROM zk_leader('/g/renewed')"), 't|t|f',
		'what is no line of text is not shown; peers/contenders.pl has more');
	$shell->delete("/g/renewed/$_") foreach $zk->children('/g/renewed');
	is($s->query("SELECT owner FROM zk_leader('/g/renewed')"), '', 'when it has gone nobody leads');
};

subtest 'a leader that goes while it is looked for' => sub {
	my ($first) = map { $shell->create('/g/gone/latch-', ephemeral => 1, sequence => 1, makepath => 1, data => $_) } qw(first second);
	$proxy->hold_request_of($s, "SELECT owner FROM zk_leader('/g/gone')", op => 'getData', path => "^$first\$");
	$shell->delete($first);
	$proxy->heal;
	is($s->finish, 'second', 'the one behind it leads, as the same listing shows');
	$shell->delete("/g/gone/$_") foreach $zk->children('/g/gone');
};

subtest 'a server all of whose locks are taken stands when there is room again' => sub {
	my $c = Zklock::Server->new('c', zookeeper => $zk, conf => [ 'zklock.max_locks = 10', 'zklock.max_locks_per_session = 10' ]);
	my $holder = $c->session;
	my $lock_all = "SELECT count(*) FROM generate_series(1, 10) i WHERE zk_lock('/full/' || i)";
	is($holder->query($lock_all), '10', 'all are taken');
	my $mark = $c->log_mark;
	$c->set_conf('zklock.elections' => '/full/leader');
	$election->wait_state($c, 'failed', '/full/leader');
	$c->wait_log(qr/DETAIL: +All of "zklock\.max_locks" are in use\./, $mark);
	is(scalar $zk->children('/full/leader'), 0, 'it does not stand');
	$holder->query('SELECT zk_unlock_all()');
	$election->wait_state($c, 'elected', '/full/leader');
	is($holder->try($lock_all =~ s/10\)/9)/r)->{text}, '9', 'the others are taken');
	is($holder->query("SELECT zk_resign('/full/leader')"), 't', 'to go to the end of the queue, it needs one more');
	$election->wait_state($c, 'elected', '/full/leader');
	is(scalar $zk->children('/full/leader'), 1, 'or gives its own back');
	$holder->query('SELECT zk_unlock_all()');
	$c->stop;
};

subtest 'before the worker has begun, nobody leads' => sub {
	my $b = Zklock::Server->new('b', zookeeper => $zk, connect => 0,
		conf => [ 'max_worker_processes = 0', "zklock.elections = '/e/leader'" ]);
	is($b->value("SELECT zk_is_leader('/e/leader')"), 'f', 'which is no error');
};

stand('');
done_clean($zk, $a);
