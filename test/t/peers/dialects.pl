# Copyright (c) 2026, zklock contributors
#
# What zklock writes in each dialect: names, data and the kind of the nodes above, just as
# the clients that the dialect is named after do. Which sessions share a node, and how
# foreign names are read.

use Zklock::Test;
use JSON::PP;

# Containers that are empty go at once.
my ($zk, $a) = cast('a', zk => { container_check => 300 });
my $shell = $zk->shell;
my ($s, $other) = map { $a->session(name => $_) } qw(s other);
# Named like whoever runs the tests.
my $user = $s->query('SELECT session_user');

# Of version 8 where the node may be kept, as locks/kept.pl has it
my $uuid = '[0-9a-f]{8}-[0-9a-f]{4}-[48][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}';
my %name = (
	curator    => [ qr/^_c_$uuid-lock-\d{10}$/,     qr/^_c_$uuid-__READ__\d{10}$/ ],
	curator_rw => [ qr/^_c_$uuid-__WRIT__\d{10}$/,  qr/^_c_$uuid-__READ__\d{10}$/ ],
	kazoo      => [ qr/^[0-9a-f]{32}__lock__\d{10}$/, qr/^[0-9a-f]{32}__rlock__\d{10}$/ ],
	zookeeper  => [ qr/^x-[0-9a-f]{16}-\d{10}$/,    qr/^_c_$uuid-read-\d{10}$/ ],
	hive       => [ qr/^LOCK-EXCLUSIVE-\d{10}$/,    qr/^LOCK-SHARED-\d{10}$/ ]);
my %taken;

subtest 'each dialect has names and data of its own' => sub {
	foreach my $dialect (sort keys %name)
	{
		my $path = "/d/names/$dialect";
		$a->write_dialect($dialect, $s);
		foreach my $round (1 .. 3)
		{
			$s->query("SELECT zk_lock('$path')");
			my ($node) = $zk->children($path);
			like($node, $name{$dialect}[0], "$dialect: the name of an exclusive lock's node");
			is(($a->locks("path = '$path'"))[0]{node}, $node, 'which zk_locks shows');
			ok(!$taken{ $node =~ s/\d{10}$//r }++ || $dialect eq 'hive', 'is new each time, but for its number');
			my $data = $shell->get("$path/$node");
			if ($dialect eq 'hive')
			{
				my @field = split(/:/, $data);
				is(scalar(@field), 5, 'the data has the five fields of Hive\'s');
				is($field[0], 'zklock-' . $s->pid, 'a query id');
				my $created = $shell->stat("$path/$node")->{ctime};
				cmp_ok(abs($created - $field[1]), '<', 60000, 'the time in milliseconds');
				is($field[2], 'EXPLICIT', 'that it was asked for');
				is($field[3], "database postgres user $user application dialects.pl", 'who asked');
				is($field[4], ($s->query('SHOW cluster_name') || die) =~ s/://gr, 'and where');
			}
			else
			{
				is(JSON::PP->new->decode($data)->{pid}, $s->pid, 'the data tells who it is');
			}
			$s->query("SELECT zk_unlock('$path')");
			$s->query("SELECT zk_lock_tree_shared('$path', '/d/names')");
			like(($zk->children($path))[0], $name{$dialect}[1], "$dialect: the name of a shared lock's node");
			$s->query("SELECT zk_unlock_tree_shared('$path', '/d/names')");
		}
	}
};

subtest "what is too long is left out of Hive's data" => sub {
	# What Hive parts by colons has four of them, even if it does not all fit.
	$a->set_conf('zklock.server_name' => 'x' x 1000);
	wait_until { length $s->query('SHOW zklock.server_name') == 1000 } 'a name that is too long for the node';
	$a->write_dialect('hive', $s);
	$s->query("SELECT zk_lock('/d/long')");
	like($shell->get('/d/long/' . ($zk->children('/d/long'))[0]), qr/^zklock-@{[$s->pid]}:\d+:EXPLICIT:zklock:$/,
		'hive: what is too long is left out');
	$s->query("SELECT zk_unlock('/d/long')");
	$a->set_conf('zklock.server_name' => '');
	wait_until { $s->query('SHOW zklock.server_name') eq '' } 'no name';
};

subtest "colons are left out of Hive's fields" => sub {
	$a->write_dialect('hive', $s);
	$s->query("SET application_name = 'a:b:c'; BEGIN; SELECT zk_xact_lock('/d/colon')");
	my @field = split(/:/, $shell->get('/d/colon/' . ($zk->children('/d/colon'))[0]));
	is_deeply([ @field[ 2, 3 ] ], [ 'IMPLICIT', "database postgres user $user application abc" ],
		'colons are left out of Hive\'s fields');
	$s->query('COMMIT');
	$s->query("SET application_name = '" . 'x' x 63 . "'");
};

subtest 'what is chosen holds for new locks' => sub {
	my $plain = $a->session;
	$a->write_dialect('kazoo', $plain);
	$plain->query("SELECT zk_lock('/d/plain')");
	$a->write_dialect('curator_rw', $plain);
	$plain->query("SELECT zk_lock('/d/plain')");
	is(scalar($zk->children('/d/plain')), 1, 'a lock that is held is counted, not written again');
	$plain->query("SELECT zk_unlock('/d/plain'); SELECT zk_unlock('/d/plain')");
	$plain->query("SELECT zk_lock('/d/plain')");
	like(($zk->children('/d/plain'))[0], $name{curator_rw}[0], 'the next lock is written in the other');
};

subtest 'sessions in a row share a node if they write the same dialect' => sub {
	$zk->foreigner('/d/runs');
	my @in_line = (qw(curator) x 2, qw(kazoo) x 2, qw(hive), qw(curator));
	my @waiting = map { $a->session(name => "$_") } 0 .. $#in_line;
	foreach my $i (0 .. $#in_line)
	{
		$a->write_dialect($in_line[$i], $waiting[$i]);
		$waiting[$i]->start_waiting("SELECT zk_lock('/d/runs')");
	}
	wait_until { $zk->children('/d/runs') == 5 } 'four nodes of ours behind the foreign one';
	my @nodes = $zk->children('/d/runs');
	my @like  = map { $name{$_}[0] } qw(curator kazoo hive curator);
	like($nodes[ $_ + 1 ], $like[$_], "node $_ of six sessions' four") foreach 0 .. 3;
	$shell->delete("/d/runs/$nodes[0]");
	foreach my $i (0 .. $#in_line)
	{
		is($waiting[$i]->finish, 't', "session $i is served");
		ok($_->busy, 'those behind it wait') foreach @waiting[ $i + 1 .. $#in_line ];
		$waiting[$i]->query("SELECT zk_unlock('/d/runs')");
	}
};

subtest 'of two nodes that wait for the same one each has its own watch' => sub {
	# Who leaves first must not take the watch away from the other.
	my $foreign = $zk->foreigner('/d/two');
	foreach my $case ([ $s, 'curator' ], [ $other, 'kazoo' ])
	{
		my ($session, $dialect) = @$case;
		$a->write_dialect($dialect, $session);
		$session->start_queued("SELECT zk_lock_shared('/d/two')", '/d/two');
	}
	wait_until { $a->lock_count("path = '/d/two' AND blocked_by_node IS NOT NULL") == 2 } 'both to wait for the foreign node';
	is($s->cancelled, '57014', 'one of two that wait for the same node gives up');
	wait_until { $zk->children('/d/two') == 2 } 'its node to go';
	# What the worker asks for comes after all that it has asked for before.
	$s->query("SELECT zk_lock('/d/runs')");
	$s->query("SELECT zk_unlock('/d/runs')");
	$shell->delete($foreign);
	is($other->finish, 't', 'the other one hears when that is gone');
	$other->query("SELECT zk_unlock_shared('/d/two')");
};

subtest 'nodes above a lock are containers, or persistent' => sub {
	$a->write_dialect('curator', $s);
	foreach my $kind (qw(container persistent))
	{
		$s->query("SET zklock.parent_nodes = $kind");
		$s->query("SELECT zk_lock('/$kind/a/b')");
		$s->query("SELECT zk_unlock('/$kind/a/b')");
	}
	wait_until { !$shell->exists('/container') } 'containers to go, from the bottom up, when they are empty';
	ok($shell->exists('/persistent/a/b'), 'persistent nodes stay');

	# kazoo trusts that the path it made, or found, is there.
	$a->write_dialect('kazoo', $s);
	$s->query("SELECT zk_lock('/persistent/a/b')");
	is($shell->lock('k', '/persistent/a/b', timeout => 0.2, patterns => []), 0, 'kazoo waits');
	$s->query("SELECT zk_unlock('/persistent/a/b')");
	is($shell->lock('k', '/persistent/a/b', patterns => []), 1, 'and comes again');
	$shell->unlock('k');
};

subtest 'sessions that soon give up leave no containers' => sub {
	my @many = map { $a->session } 1 .. 6;
	my $brief = q{SELECT count(zk_lock('/brief/%d/' || n || '/x', (n %% 3 + 1 || 'ms')::interval)) FROM generate_series(1, 40) n};
	$many[$_]->query_start(sprintf $brief, $_) foreach 0 .. $#many;
	$_->finish && $_->disconnect foreach @many;
	wait_until { !$shell->exists('/brief') } 'all to go';
	pass('all go');
};

subtest 'a path above other paths can be locked' => sub {
	my $mark = $a->log_mark;
	$a->write_dialect('curator', $s, $other);
	$s->query('SET zklock.parent_nodes = container');
	$shell->create("/d/tree/$_", makepath => 1) foreach qw(db db/t ds=2026-01-01 locks leases 0);
	is($s->query("SELECT zk_lock('/d/tree')"), 't', 'a path above other paths can be locked');
	is($other->query("SELECT zk_lock('/d/tree/db')"), 't', 'and one below it, at the same time');
	is($other->query("SELECT zk_lock('/d/tree/db/t')"), 't', 'and one below that');
	is($other->query("SELECT zk_try_lock('/d/tree')"), 'f', 'each is a lock of its own');
	$s->query("SELECT zk_unlock('/d/tree')");
	is($other->query("SELECT zk_try_lock('/d/tree')"), 't', 'taken or not');
	$other->query('SELECT zk_unlock_all()');
	unlike($a->log_since($mark), qr/ignoring child/, 'the log is silent about directories');
	$shell->create('/d/tree/n_', ephemeral => 1, sequence => 1);
	is($s->query("SELECT zk_lock('/d/tree')"), 't', 'what has a sequence but no known name is ignored');
	$a->wait_log(qr{LOG:  ignoring child "n_\d{10}" of lock path "/d/tree"}, $mark);
	pass('which the log tells');
	$s->query("SELECT zk_unlock('/d/tree')");
};

$shell->delete('/d/tree', recursive => 1);
done_clean($zk, $a);
