# Copyright (c) 2026, zklock contributors
#
# What elections refuse: a path where others' candidates are of another kind, or a lock. Wrong settings and arguments
# are in sql/election.sql, and what is refused where a server stands in 627_one_use.pl.

use Zklock::Test;
use Zklock::Election;

my ($zk, $proxy, $a) = cast('a', proxied => 'a');
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
	fails_at('/e/leader, /e/locked', '/e/locked', 'is in use for something else', 'it cannot stand there');
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

subtest 'nor when a candidate that once resigned has lost its node' => sub {
	my $rival = '/f/again/_c_edda2515-abf2-4579-b513-df182d03af67-latch-';
	stand('/e/leader, /f/again');
	$election->wait_state($a, 'elected', '/f/again');
	my @nodes = $shell->create($rival, ephemeral => 1, sequence => 1);
	is($a->value("SELECT zk_resign('/f/again')"), 't', 'it stands behind its rival');
	$election->wait_state($a, 'ready', '/f/again');
	push @nodes, $shell->create('/f/again/n_', ephemeral => 1, sequence => 1);
	my ($ours) = grep { my $name = $_; !grep { m{/\Q$name\E$} } @nodes } $zk->children('/f/again');
	my $mark = $zk->mark;
	$shell->delete("/f/again/$ours");
	$election->wait_state($a, 'failed', '/f/again');
	is($zk->requests($mark)->{create2} // 0, 0, 'it tries to create none beside those of another family');
	$shell->delete($_) foreach @nodes;
	$election->wait_state($a, 'elected', '/f/again');
	stand('/e/leader');
	wait_until { $zk->children('/f/again') == 0 } 'its node to go';
};

subtest 'nor when its node goes while it resigns' => sub {
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

subtest 'what another client has written is shown if it is a line of text' => sub {
	my $hidden = sub ($data) {
		$shell->create('/g/leader/latch-', ephemeral => 1, sequence => 1, makepath => 1, data => $data);
		my $shown = $a->value("SELECT concat_ws('|', coalesce(server, 'hidden'), coalesce(owner, 'hidden')) FROM zk_leader('/g/leader')");
		$shell->delete("/g/leader/$_") foreach $zk->children('/g/leader');
		return $shown;
	};
	is($hidden->($_), "$_|$_", 'text') foreach 'jane', "j\xc3\xa4ne";
	is($hidden->($_->[0]), 'hidden|hidden', $_->[1])
	  foreach [ "a\nb", 'a new line' ], [ "a\x7f", 'a control character' ], [ "a\xc2\x9b0m", 'one of those from U+0080 to U+009F' ];
};

subtest 'a candidate that renews its node while it is looked for' => sub {
	my $candidate = sub { $shell->create('/g/renewed/latch-', ephemeral => 1, sequence => 1, makepath => 1, data => $_[0]) };
	my $first     = $candidate->('old');
	$proxy->hold_request_of($s, "SELECT owner FROM zk_leader('/g/renewed')", op => 'getData', path => "^$first\$");
	$shell->delete($first);
	$candidate->('new');
	$proxy->heal;
	is($s->finish, 'new', 'is found by its new one');
	$shell->delete("/g/renewed/$_") foreach $zk->children('/g/renewed');
	is($s->query("SELECT owner FROM zk_leader('/g/renewed')"), '', 'when it has gone nobody leads');
};

subtest 'before the worker has begun, nobody leads' => sub {
	my $b = Zklock::Server->new('b', zookeeper => $zk, connect => 0,
		conf => [ 'max_worker_processes = 0', "zklock.elections = '/e/leader'" ]);
	is($b->value("SELECT zk_is_leader('/e/leader')"), 'f', 'which is no error');
};

stand('');
done_clean($zk, $a);
