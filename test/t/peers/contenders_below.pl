# Copyright (c) 2026, zklock contributors
#
# zk_contenders('/prefix/*'): who holds and waits on all paths below, of all servers and clients; and that a tree which
# somebody has made wide, deep, unreadable or odd, or deletes meanwhile, costs neither the answer nor the locks.

use Zklock::Test;
use utf8;
use Zklock::Cast qw(fails);
use Zklock::JavaPeer;

plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};

use constant WIDE => 3000;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '20s', a => { faults => '' });
my $shell = $zk->shell;
my $java  = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);
my ($s1, $s2, $admin) = map { $a->session(name => $_) } qw(s1 s2 admin);
my $t    = $b->session(name => 't');
my $far  = $b->session(name => 'far');
my $user = $s1->query('SELECT session_user');
my $all  = 'path, kind, "position", node, mode, dialect, granted, fencing_token, server, pid, usename, owner, created, granted_at, persistent, kept';

sub below($prefix, $columns = 'path', %opt)
{
	my $result = ($opt{in} // $admin)->try("SELECT $columns FROM zk_contenders('$prefix/*') ORDER BY path COLLATE \"C\", kind, \"position\"");
	diag($result->{error}) unless $result->{ok};
	return $opt{result} ? $result : $result->{rows};
}

sub paths($prefix) { return join ' ', map { $_->[0] } @{ below($prefix) }; }

# Searches without a word of complaint.
sub finds($prefix, $paths, $name)
{
	my $result = below($prefix, 'path', result => 1);
	is(join(' ', map { $_->[0] } @{ $result->{rows} }), $paths, $name);
	return is_deeply($result->{notices}, [], "$name: it is all");
}

subtest 'who holds what in the fleet' => sub {
	$s1->query(q{SELECT zk_lock('/f/pay/eu/a')});
	$t->start_queued(q{SELECT zk_lock('/f/pay/eu/a')});
	my $persistent = $far->query(q{SELECT zk_lock_persistent('/f/pay/forgotten')});
	my $reserved   = $far->query(q{SELECT zk_reserve('/f/pay/cart', '1h')});
	my $own        = $s2->query(q{SELECT zk_reserve('/f/pay/own cart', '1h')});
	$s2->query(q{SELECT zk_semaphore_acquire('/f/pay/slots', 2)});
	$java->acquire('curator', '/f/pay/eu/deep/er/still', -1);
	$shell->lock('kaz', '/f/pay/k');
	$s1->query(q{SELECT zk_lock('/f/other')});
	my @rows = (
		[ '/f/pay/cart', 'lock', 1, 't', 'b', undef, 'f', 'f', 'f' ],
		[ '/f/pay/eu/a', 'lock', 1, 't', 'a', $s1->pid, 'f', 't', 'f' ],
		[ '/f/pay/eu/a', 'lock', 2, 'f', 'b', $t->pid, 'f', 'f', 'f' ],
		[ '/f/pay/eu/deep/er/still', 'lock', 1, 't', undef, undef, 'f', 'f', 'f' ],
		[ '/f/pay/forgotten', 'lock', 1, 't', 'b', $far->pid, 't', 'f', 'f' ],
		[ '/f/pay/k', 'lock', 1, 't', undef, undef, 'f', 'f', 'f' ],
		[ '/f/pay/own cart', 'lock', 1, 't', 'a', undef, 'f', 't', 'f' ],
		[ '/f/pay/slots', 'semaphore', 1, 't', 'a', $s2->pid, 'f', 't', 'f' ]);
	my $columns = 'path, kind, "position", granted, server, pid, persistent, granted_at IS NOT NULL, kept';
	is_deeply(below('/f/pay', $columns), \@rows, 'all, and nobody else');
	$rows[$_][7] = 'f' foreach 0 .. $#rows;
	$rows[$_][7] = 't' foreach 0;
	is_deeply(below('/f/pay', $columns, in => $far), \@rows, 'from another server, which knows when its own were granted');
	like(below('/f/pay', 'owner')->[0][0], qr/^reservation$/, 'a reservation of another server as such');
	like(below('/f/pay', 'owner')->[6][0], qr/^reservation, until /, 'and one of this server, with its end');
	is(below('/f/pay', 'granted_at')->[1][0], $s1->query(q{SELECT granted_at FROM zk_locks WHERE path = '/f/pay/eu/a'}), 'since when');
	my %at = map { $_->[0] => 1 } @rows;
	is_deeply(below('/f/pay', $all), [ map { @{ $admin->try("SELECT $all FROM zk_contenders('$_')")->{rows} } } sort keys %at ],
		'each row is as it is for its own path');
	is(paths('/f/pay/eu'), '/f/pay/eu/a /f/pay/eu/a /f/pay/eu/deep/er/still', 'below a longer prefix');
	is(paths('/f/pay/eu/a'), '', 'a path is not below itself');
	is(paths('/f/pay/slots'), '', 'nor a semaphore');
	is(paths('/f/nowhere'), '', 'nothing is below a path that does not exist');
	my $root = below('');
	is_deeply([ map { $_->[0] } @$root ], [ '/f/other', map { $_->[0] } @rows ], 'below the root, where the nodes of zklock itself are none');

	$s1->query(q{SELECT zk_unlock_all()});
	is($t->finish, 't', 'who has waited');
	$t->query(q{SELECT zk_unlock('/f/pay/eu/a')});
	$java->release('curator');
	$shell->unlock('kaz');
	$s2->query(q{SELECT zk_semaphore_release('/f/pay/slots')});
	$s2->query("SELECT zk_unreserve('/f/pay/own cart', $own)");
	$far->query("SELECT zk_unreserve('/f/pay/cart', $reserved)");
	finds('/f', '/f/pay/forgotten', 'a forgotten lock is found');
	$far->query("SELECT zk_unlock_persistent('/f/pay/forgotten', $persistent)");
	finds('/f', '', 'nobody is left');
};

subtest 'an election, and a turn that others wait for' => sub {
	my $permits = $java->permit_start('p1', '/e/slots', 1, 60000);
	is($java->result($permits), 1, 'a permit of Curator');
	my $second = $java->permit_start('p2', '/e/slots', 1, 60000);
	wait_until { 2 == $zk->children('/e/slots/leases') } 'a second one, which waits';
	$s1->query_start(q{SELECT zk_semaphore_acquire('/e/slots', 1)});
	wait_until { 2 == $zk->children('/e/slots/locks') } 'a session that waits for its turn';
	$shell->create('/e/latch/_c_11111111-1111-1111-1111-111111111111-latch-', ephemeral => 1, sequence => 1, makepath => 1, data => 'me');
	is_deeply(
		below('/e', 'path, kind, "position"'),
		[
			[ '/e/latch', 'candidate', 1 ], [ '/e/slots', 'semaphore', 1 ], [ '/e/slots', 'semaphore', 2 ],
			[ '/e/slots', 'turn', 1 ], [ '/e/slots', 'turn', 2 ]
		],
		'both');
	$java->permit_release('p1');
	$java->result($second);
	$java->permit_release('p2');
	is($s1->finish, 't', 'the session gets its permit');
	$s1->query(q{SELECT zk_semaphore_release('/e/slots')});
	wait_until { $admin->query(q{SELECT count(*) FROM zk_contenders('/e/*')}) == 1 } 'all to be gone';
	$shell->delete($_) foreach map { "/e/latch/$_" } $zk->children('/e/latch');
};

subtest 'a node that is kept is nobody\'s here, and may be somebody\'s elsewhere' => sub {
	$a->set_conf('zklock.keep_idle' => '1min');
	wait_until { $s1->query(q{SELECT zk_lock('/k/hot') AND zk_unlock('/k/hot')}) foreach 1 .. 2; $zk->children('/k/hot') } 'a node to be kept';
	is_deeply(below('/k', 'granted, pid, kept, granted_at IS NULL'), [ [ 'f', undef, 't', 't' ] ], 'here');
	is_deeply(below('/k', 'server, kept, granted, granted_at IS NULL', in => $far), [ [ 'a', undef, undef, 't' ] ], 'elsewhere');
	$s1->query(q{SELECT zk_lock('/k/hot')});
	is_deeply(below('/k', 'granted, pid, kept'), [ [ 't', $s1->pid, 'f' ] ], 'held again');
	$s1->query(q{SELECT zk_unlock('/k/hot')});
	$a->set_conf('zklock.keep_idle' => '0');
	wait_until { !$zk->children('/k/hot') } 'it to be given up';
};

subtest 'odd names and trees' => sub {
	my $lock = '_c_00000000-0000-0000-0000-000000000001-lock-0000000001';
	my $put = sub ($path) { return $shell->create("$path/$lock", makepath => 1, data => 'here'); };
	my $deep = '/odd/deep' . '/a' x 400;
	my $too_deep = '/odd/abyss' . '/a' x 520;
	my @found = ("/odd/*", '/odd/*/x', "/odd/a b", '/odd/leases/app', '/odd/locks', "/odd/\x{e9}t\x{e9}", '/odd/app/lock-0000000007/inner', $deep, '/odd/%s%n', "/odd/it''s");
	$put->($_ =~ s/''/'/gr) foreach @found, $too_deep;
	# Names of elements of queues: below them nobody is looked for.
	$put->('/odd/queue/qn-0000000001');
	my $result = below('/odd', 'path', result => 1);
	# A node of that name that stays is a contender itself.
	is_deeply([ sort map { $_->[0] } @{ $result->{rows} } ], [ sort map { s/''/'/gr } @found, '/odd/app' ], 'all are found');
	is(scalar @{ $result->{notices} }, 1, 'one warning');
	like($result->{notices}[0], qr/WARNING.*search for contenders below "\/odd" has ended early.*1 nodes more.*paths of 1023 bytes/s, 'of what is too deep');
	is(paths('/odd/*'), '/odd/*/x', 'an asterisk in the middle stands for itself');

	# Names with which a hundred nodes do not fit into a batch
	$shell->create("/long/names/_c_" . $_ x 4000 . '-lock-', makepath => 1, sequence => 1, data => 'long') foreach 'a' .. 'z', 'A' .. 'Z', 0 .. 9;
	$put->('/long/names');
	foreach my $ask ('/long/*', '/long/names')
	{
		is($admin->query("SELECT count(*), count(owner), count(owner_session) FROM zk_contenders('$ask')"), '63|1|0', "$ask: names that are too long to be read");
	}
	$shell->delete($_, recursive => 1) foreach '/odd', '/long';
};

subtest 'what ZooKeeper does not let us list is said' => sub {
	my @secret = (acl => [ [ 'digest', 'me:secret', 'cdrwa' ] ], data => 'mine');
	$shell->create('/acl/open', makepath => 1);
	$shell->create("/acl/$_", @secret) foreach 'x', 'y';
	my $lock = '/acl/open/_c_00000000-0000-0000-0000-000000000001-lock-0000000001';
	$shell->create($lock, @secret);
	my $result = below('/acl', 'path, owner', result => 1);
	is_deeply($result->{rows}, [ [ '/acl/open', undef ] ], 'the others are shown, and what is closed of one is not');
	like($result->{notices}[0], qr/WARNING.*could not search 2 nodes below "\/acl", such as "\/acl\/[xy]"/s, 'the rest is said');
	fails($admin->try(q{SELECT zk_contenders('/acl/x/*')}), '42501', 'the path itself is an error', detail => qr/NOAUTH/);
};

subtest 'a wide tree is searched, and costs no lock' => sub {
	my $victim = $a->session(name => 'victim');
	$victim->query(q{SELECT zk_lock('/victim')});
	my $mark = $a->log_mark;
	$shell->create('/wide/x', makepath => 1);
	$shell->connect($zk->connect_string, client => 'crowd', timeout => 60);
	$shell->create_many('/wide/service-', WIDE, client => 'crowd');
	$shell->create_many('/wide/x/_c_00000000-0000-0000-0000-000000000001-lock-', WIDE, data => 'crowd', client => 'crowd');
	$proxy->reset_counts;
	is($admin->query(q{SELECT count(*), count(owner), count(*) FILTER (WHERE granted) FROM zk_contenders('/wide/*')}), join('|', WIDE, WIDE, 1),
		'all contenders, in full');
	is(scalar(grep { $_->[0] eq 'getChildren' && $_->[1] =~ m{^/wide} } @{ $proxy->requests }), WIDE + 2, 'none of their nodes has been listed');
	my @askers = map { $a->session } 1 .. 6;
	$_->query_start(q{SELECT count(*) FROM zk_contenders('/wide/*')}) foreach @askers;
	is($_->finish, WIDE, 'several at once') foreach @askers;
	$_->disconnect foreach @askers;
	is($a->value(q{SELECT state FROM zk_locks WHERE path = '/victim'}), 'held', 'the lock is held');
	unlike($a->log_since($mark), qr/no longer proved to be alive|[Ll]ocks lost/, 'and was, without a doubt');

	# What lists too much at once is listed in smaller parts: each of these answers is of 700 kB.
	my $long = 'x' x 180;
	foreach my $i (1 .. 4)
	{
		$shell->create("/broad/$i", makepath => 1);
		$shell->create_many("/broad/$i/_c_$long-lock-", 3500, client => 'crowd');
	}
	is($admin->query(q{SELECT count(*), count(DISTINCT path) FROM zk_contenders('/broad/*')}), '14000|4', 'long answers');
	$victim->query(q{SELECT zk_unlock('/victim')});
};

subtest 'the search ends early, and says so' => sub {
	my $lock = '_c_00000000-0000-0000-0000-000000000001-lock-0000000001';
	my $asked = sub {
		return scalar grep { $_->[0] =~ /^(?:getChildren|exists)$/ && $_->[1] =~ m{^/few} } @{ $proxy->requests };
	};
	$shell->create("/few/empty/$_", makepath => 1) foreach 1 .. 60;
	$shell->create("/few/held/$_/$lock", makepath => 1, data => 'here') foreach 1 .. 30;
	foreach my $i (1 .. 10)
	{
		$shell->create("/few/both/$i/$lock", makepath => 1, data => 'here');
		$shell->create("/few/both/$i/$_") foreach qw(x y z);
	}
	$shell->create('/few/crowd/x/_c_00000000-0000-0000-0000-000000000001-lock-', makepath => 1, sequence => 1, data => 'here') foreach 1 .. 60;
	$admin->query(q{SET zklock.faults = 'short-search'});
	my $search = sub ($path) {
		$proxy->reset_counts;
		return below("/few/$path", 'path, owner IS NOT NULL', result => 1);
	};
	my $result = $search->('empty');
	is($asked->(), 40, 'empty paths: so many are listed');
	like($result->{notices}[0], qr/WARNING.*below "\/few\/empty" has ended early.*has found 21 nodes more.*reads 40 nodes at most.*HINT.*longer path/s, 'a warning');

	$result = $search->('held');
	is($asked->(), 40, 'paths with contenders: nine of these are read');
	is(join('|', scalar @{ $result->{rows} }, scalar grep { $_->[1] eq 't' } @{ $result->{rows} }), '30|9', 'all are shown');
	like(join('', @{ $result->{notices} }), qr/^NOTICE.*of 21 contenders.*only the names are known/s, 'the others by their names');

	$result = $search->('both');
	is($asked->(), 40, 'contenders, and paths beside them: both count');
	is(scalar @{ $result->{rows} }, 10, 'the contenders are shown');
	like($result->{notices}[0], qr/WARNING.*has ended early.*has found 11 nodes more/s, 'a warning');

	$result = $search->('crowd');
	is($asked->(), 40, 'a path with many: so many are read');
	is(join('|', scalar @{ $result->{rows} }, scalar grep { $_->[1] eq 't' } @{ $result->{rows} }), '60|38', 'all are shown, these in full');
	like(join('', @{ $result->{notices} }), qr/^NOTICE.*of 22 contenders/s, 'the others by their names');

	# The time is over while an answer is on its way.
	$admin->query(q{SET zklock.faults = 'hasty-search'});
	foreach my $op (qw(getChildren exists getData))
	{
		$proxy->reset_counts;
		my $held = $proxy->hold_reply_of($admin, q{SELECT count(*) FROM zk_contenders('/few/*')}, op => $op, path => '^/few/.*', any => 1);
		$result = $admin->result;
		$proxy->heal;
		ok($result->{ok}, "$op: no error");
		like(join('', @{ $result->{notices} }), qr/WARNING.*ended early.*takes 30 s at most/s, 'a warning');
	}
	$admin->query('RESET zklock.faults');
	$shell->delete('/few', recursive => 1);
};

subtest 'it can be cancelled, and lost and found' => sub {
	foreach my $op (qw(getChildren exists getData))
	{
		$proxy->reset_counts;
		my $held = $proxy->hold_reply_of($s2, q{SELECT count(*) FROM zk_contenders('/wide/*')}, op => $op, path => '^/wide', any => 1);
		$s2->cancel;
		is($s2->result->{sqlstate}, '57014', "$op: cancelled");
		$proxy->heal;
		$proxy->hold_reply_of($s2, q{SELECT count(*) FROM zk_contenders('/wide/*')}, op => $op, path => '^/wide', any => 1);
		$proxy->drop;
		$proxy->heal;
		is($s2->finish, WIDE, "$op: another connection brings the answer");
		$a->wait_session;
	}
};

subtest 'what vanishes meanwhile is left out' => sub {
	$shell->create("/gone/$_/x", makepath => 1) foreach 1 .. 3;
	$shell->create("/gone/4/_c_00000000-0000-0000-0000-00000000000$_-lock-000000000$_", makepath => 1, data => "c$_") foreach 1 .. 2;
	my $held = $proxy->hold_reply_of($s2, q{SELECT owner, "position" FROM zk_contenders('/gone/*')}, op => 'getChildren', path => '^/gone$', any => 1);
	$shell->delete("/gone/$_", recursive => 1) foreach 1 .. 3;
	$proxy->heal;
	is($s2->finish, "c1|1\nc2|2", 'paths');
	$held = $proxy->hold_reply_of($s2, q{SELECT owner, "position" FROM zk_contenders('/gone/*')}, op => 'getChildren', path => '^/gone/4$', any => 1);
	$shell->delete("/gone/4/$_") foreach $zk->children('/gone/4');
	$shell->create('/gone/4/_c_00000000-0000-0000-0000-000000000003-lock-0000000003', data => 'c3');
	$proxy->heal;
	is($s2->finish, 'c3|1', 'contenders, in whose place another one is');
	$shell->delete('/gone', recursive => 1);
};

$shell->close_connection(client => 'crowd');
$shell->delete($_, recursive => 1) foreach '/wide', '/broad';
$java->stop;
done_clean($zk, $a, $b);
