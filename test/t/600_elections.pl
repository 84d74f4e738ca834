# Copyright (c) 2026, zklock contributors
#
# Servers stand at elections: one leads, the others are ready; who leads is told by
# zk_is_leader(), zk_elections and zk_leader().

use Zklock::Test;
use Zklock::Election;

my $zk   = Zklock::ZooKeeper->standalone;
my $path = '/e/leader';
my $a = Zklock::Server->new('a', zookeeper => $zk, conf => [ "zklock.elections = '$path'", "zklock.server_name = 'alpha'" ]);
my $b = Zklock::Server->new('b', zookeeper => $zk, conf => [ "zklock.server_name = 'beta'" ]);
my $election = Zklock::Election->new($zk, $path);

subtest 'a server that stands alone leads' => sub {
	$election->wait_state($a, 'elected');
	is($a->value("SELECT zk_is_leader('$path')"), 't', 'it is told so');
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
	is($b->session->try("SELECT zk_fencing_token('$path')")->{sqlstate}, '55000', 'it has no term');
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
Zklock::Server->assert_clean($zk, [ $a, $b ], $path, '/e/second', '/e/lock');
done_testing;
