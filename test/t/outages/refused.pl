# Copyright (c) 2026, zklock contributors
#
# ZooKeeper is there, and says no: each refusal is an error of its own that names ZooKeeper's, and leaves nothing
# behind. What it says to each request is in outages/errors.pl; rights that are taken away, in settings/auth.pl; nodes that
# cannot be read, in settings/reload.pl.

use Zklock::Test;
use Zklock::Cast qw(fails);

my ($zk, $a, $b) = cast('a b', zk => { request_log => 1 }, timeout => '20s');
my $shell = $zk->shell;
# The administrator may do everything, whatever the world may not.
$shell->add_auth('digest', 'admin:secret');
my @admin = [ 'digest', 'admin:secret', 'cdrwa' ];

my $s = $a->session;
my $other = $a->session;
my $remote = $b->session;

# All ways to ask fail in the same manner.
sub refused($path, $sqlstate, $detail, $what)
{
	foreach my $call ("zk_lock('$path')", "zk_lock('$path', '1min')", "zk_try_lock('$path')",
		"zk_xact_lock('$path')", "zk_try_xact_lock('$path')", "zk_lock(ARRAY['$path', '/r/free'])")
	{
		fails($s->try("SELECT $call"), $sqlstate, "$what: $call fails", detail => $detail);
	}
	return;
}

subtest 'an ephemeral node cannot be locked' => sub {
	$shell->create('/r/ephemeral', ephemeral => 1, makepath => 1);
	refused('/r/ephemeral', '42809', qr/ZNOCHILDRENFOREPHEMERALS/, 'path is an ephemeral node');
	refused('/r/ephemeral/a/b', '42809', qr/ZNOCHILDRENFOREPHEMERALS/, 'path below an ephemeral node');
	$a->assert_clean($zk, '/r/ephemeral', '/r/free');
	$shell->delete('/r/ephemeral');
};

subtest 'a refusal outlives the worker that has heard it' => sub {
	$shell->create('/r/late', ephemeral => 1);
	my ($late, $worker) = ($a->session, $a->worker_pid);
	freeze($worker);
	$late->query_start("SELECT zk_lock('/r/late')");
	$a->wait_lock($late, 'requested');
	freeze($late->pid);
	thaw($worker);
	$a->wait_lock($late, 'failed');
	$a->restart_worker;
	$a->wait_session;
	thaw($late->pid);
	fails($late->result, '42809', 'its session is told', detail => qr/ZNOCHILDRENFOREPHEMERALS/);
	$late->disconnect;
	$a->assert_clean($zk, '/r/late');
	$shell->delete('/r/late');
};

subtest 'children that are no contenders are ignored, and logged once' => sub {
	$shell->create('/r/odd');
	my $mark = $a->log_mark;
	foreach my $name ('readme', 'lock', 'lock-1', 'something-0000000001', "caf\x{e9}",
		'_c_00000000-0000-0000-0000-000000000000-lock-')
	{
		$shell->create("/r/odd/$name");
		is($s->query("SELECT zk_lock('/r/odd')"), 't', 'a child that is no contender is ignored');
		$other->start_waiting("SELECT zk_lock('/r/odd')");
		$s->hands_over('/r/odd', $other, 'by the next session as well');
		$other->query("SELECT zk_unlock('/r/odd')");
	}
	is($remote->query("SELECT zk_try_lock('/r/odd')"), 't', 'and by who does not wait');
	$remote->query("SELECT zk_unlock('/r/odd')");
	$a->wait_log(qr{LOG:  ignoring child ".*" of lock path "/r/odd"}, $mark);
	my $lines = () = $a->log_since($mark) =~ m{LOG:  ignoring child}g;
	is($lines, 1, 'the log tells of it once');
	$shell->delete("/r/odd/$_") foreach $zk->children('/r/odd');
	Zklock::Server->assert_clean($zk, [ $a, $b ], '/r/odd');
};

subtest 'the ACL of a creator who has shown no credentials cannot be made' => sub {
	my $id = $a->session_id;
	is($other->query("SELECT zk_lock('/r/kept')"), 't', 'a lock is held');
	$a->reconfigure('zklock.acl' => 'creator');
	refused('/r/creator', '42501', qr/ZINVALIDACL/, 'zklock.acl = creator without credentials');
	like($s->try("SELECT zk_lock('/r/creator')")->{hint}, qr/ACL/, 'and the hint leads to the ACL');
	$a->reconfigure('zklock.acl' => 'open');
	is($s->query("SELECT zk_lock('/r/creator') AND zk_unlock('/r/creator')"), 't', 'with the old setting it can');
	is($a->session_id, $id, 'all in one session');
	is($other->query("SELECT zk_fencing_token('/r/kept') > 0"), 't', 'whose locks are undisturbed');
	$other->query("SELECT zk_unlock('/r/kept')");
};

subtest 'a downgrade that is refused leaves the lock as it was' => sub {
	# The holder keeps what it has. It is tried again now and then, by a new worker as well, which may not even look.

	$shell->create('/r/nodowngrade');
	is($s->query("SELECT zk_lock('/r/nodowngrade') AND zk_lock_shared('/r/nodowngrade')"), 't', 'held in both modes');
	$remote->query_start("SELECT zk_lock_shared('/r/nodowngrade')");
	$zk->wait_watched('/r/nodowngrade/' . $a->wait_holder($s, '/r/nodowngrade')->{node}, $b->session_id);
	$shell->set_acl('/r/nodowngrade', [@admin]);
	my $mark = $a->log_mark;
	$s->query_start("SELECT zk_unlock('/r/nodowngrade')");
	$a->wait_log(qr{LOG:  could not replace ZooKeeper node "/r/nodowngrade/_c_\S+" by a shared one: ZNOAUTH}, $mark);
	is($s->finish, 't', 'the session does not wait for that');
	my $asked = $zk->mark;
	$a->restart_worker;
	$a->wait_session;
	is($other->query("SELECT zk_lock('/r/free') AND zk_unlock('/r/free')"), 't', 'others are served meanwhile') foreach 1 .. 20;
	my @asked = grep { $_->{path} eq '/r/nodowngrade' } $zk->request_list($asked, session => $a->session_id);
	cmp_ok(scalar(@asked), '<', 10, 'and ZooKeeper is not asked over and over');
	ok($remote->busy, 'nobody can share the lock');
	$shell->set_acl('/r/nodowngrade', [ @admin, [ 'world', 'anyone', 'cdrwa' ] ]);
	is($remote->finish, 't', 'until it is allowed');
	$_->query("SELECT zk_unlock_shared('/r/nodowngrade')") foreach $s, $remote;
};

my %release = (
	'zk_unlock'  => [ "zk_lock('PATH') AND", "zk_unlock('PATH')" ],
	'zk_unreserve' => [ "set_config('r.token', zk_reserve('PATH', '1h')::text, false) <> '' AND", "zk_unreserve('PATH', current_setting('r.token')::bigint)" ]);

foreach my $function (sort keys %release)
{
	subtest "$function does not wait for a deletion that is refused" => sub {
		my $path = "/r/$function";
		my ($take, $release) = map { s/PATH/$path/gr } @{ $release{$function} };
		$shell->create($path);
		is($s->query("SELECT $take true"), 't', 'a path is locked');
		$remote->start_queued("SELECT zk_lock('$path')", $path);
		$shell->set_acl($path, [ @admin, [ 'world', 'anyone', 'cr' ] ]);
		my $mark = $a->log_mark;
		is($s->query("SELECT $release"), 't', 'it returns');
		$a->wait_log(qr{LOG:  could not delete ZooKeeper node "$path/_c_\S+": ZNOAUTH}, $mark);
		ok($remote->busy, 'nobody has the lock');
		$shell->set_acl($path, [ @admin, [ 'world', 'anyone', 'cdrwa' ] ]);
		is($remote->finish, 't', 'until it is allowed');
		$remote->query("SELECT zk_unlock('$path')");
	};
}

done_clean($zk, $a, $b);
