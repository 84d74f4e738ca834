# Copyright (c) 2026, zklock contributors
#
# zk_contenders(): who holds and who waits on a path, of all servers and clients, as ZooKeeper has it.

use Zklock::Test;
use utf8;
use Zklock::Cast qw(fails);
use Zklock::JavaPeer;

my ($zk, $a, $b) = cast('a b');
my $shell = $zk->shell;
my $java  = Zklock::JavaPeer->new;
my $java_session = $java->connect($zk->connect_string);
my ($s1, $s2, $admin) = map { $a->session(name => $_) } qw(s1 s2 admin);
my $t    = $b->session(name => 't');
my $user = $s1->query('SELECT session_user');

# Rows as lists of the columns named
sub rows($path, $columns) { return $admin->try("SELECT $columns FROM zk_contenders('$path')")->{rows}; }

# One column of a row
sub cell($path, $column, $where) { return $admin->query("SELECT $column FROM zk_contenders('$path') WHERE $where"); }

subtest 'clients of all kinds stand in the order of their queue' => sub {
	my $path = '/c/all';
	$java->acquire('hive', $path, -1, 'hive_exclusive');
	$s1->start_queued("SELECT zk_lock('$path')");
	my $kazoo = $shell->lock_start('kaz', $path);
	wait_until { 3 == $zk->children($path) } "kazoo's node";
	my $curator = $java->acquire_start('curator', $path);
	wait_until { 4 == $zk->children($path) } "Curator's node";
	$t->start_queued("SELECT zk_lock_shared('$path')");

	is_deeply(
		rows($path, '"position", kind, mode, dialect, granted, server, pid, usename, application_name, heeds_us, fencing_token'),
		[
			[ 1, 'lock', 'exclusive', 'hive', 't', undef, undef, undef, undef, 'f', undef ],
			[ 2, 'lock', 'exclusive', 'curator', 'f', 'a', $s1->pid, $user, 'contenders.pl', 't', undef ],
			[ 3, 'lock', 'exclusive', 'kazoo', 'f', undef, undef, undef, undef, 'f', undef ],
			[ 4, 'lock', 'exclusive', 'curator', 'f', undef, undef, undef, undef, 't', undef ],
			[ 5, 'lock', 'shared', 'curator_rw', 'f', 'b', $t->pid, $user, 'contenders.pl', 't', undef ]
		],
		'who they are, who is granted, and who does not wait for our names');
	is(cell($path, 'owner', "dialect = 'kazoo'"), 'kaz', "kazoo's identifier");
	like(cell($path, 'owner', '"position" = 4'), qr/^[\d.:a-f]+$/, "Curator's address");
	is(cell($path, 'owner', '"position" = 1'), substr($shell->get("$path/LOCK-EXCLUSIVE-0000000000"), 0, 256), "Hive's data");
	is(cell($path, 'count(*)', "owner IS NOT NULL AND server IS NOT NULL"), 0, 'an owner is somebody else');
	is_deeply([ map { $_->[0] } @{ rows($path, 'node') } ], [ $zk->children($path) ], 'nodes');
	is_deeply(rows($path, 'owner_session'), [ map { [$_] }
		$java_session, $a->zk_session->{session_id}, ($shell->session)->[0], $java_session, $b->zk_session->{session_id} ],
		'ZooKeeper sessions');
	foreach my $row (@{ rows($path, q{node, extract(epoch FROM created) * 1000}) })
	{
		is(int $row->[1], $shell->stat("$path/$row->[0]")->{ctime}, "$row->[0]: when it was created");
	}
	$a->write_dialect('hive', $admin);
	is(join('', map { $_->[0] } @{ rows($path, 'heeds_us') }), 'ttfft', 'to one who writes the names of Hive it looks different');
	$a->write_dialect('curator', $admin);

	$java->release('hive');
	is($s1->finish, 't', 'the next one gets the lock');
	is_deeply(rows($path, 'granted, fencing_token IS NOT NULL')->[0], [ 't', 't' ], 'which shows');
	is(cell($path, 'fencing_token', 'granted'), $s1->query("SELECT zk_fencing_token('$path')"), 'with its token');
	$s1->query("SELECT zk_unlock('$path')");
	$shell->result($kazoo);
	$shell->unlock('kaz');
	$java->result($curator);
	$java->release('curator');
	is($t->finish, 't', 'the last one has it');
	is(cell($path, 'mode', 'granted'), 'shared', 'a shared one');
	$t->query("SELECT zk_unlock_shared('$path')");
	is_deeply(rows($path, 'node'), [], 'nobody is left');
};

subtest 'a node of this server shows the session that holds it' => sub {
	my $path = '/c/run';
	$s1->query("SELECT zk_lock('$path')");
	my $node = cell($path, 'node', 'true');
	$s2->start_queued("SELECT zk_lock('$path')");
	is(cell($path, 'pid', 'true'), $s1->pid, 'the first one');
	$s1->hands_over($path, $s2, 'the lock goes to the next');
	is_deeply(rows($path, 'node, pid, usename, application_name'), [ [ $node, $s2->pid, $user, undef ] ],
		'the second one, of which the data of the same node knows nothing');
	is(cell($path, 'fencing_token', 'true'), $s2->query("SELECT zk_fencing_token('$path')"), 'and its token');
	$s2->query("SELECT zk_unlock('$path')");
};

subtest "a semaphore shows its leases, and who waits for the turn to get one" => sub {
	my $path = '/c/slots';
	is($s1->query("SELECT zk_semaphore_acquire('$path', 2)"), 't', 'a permit');
	is($t->query("SELECT zk_semaphore_acquire('$path', 2)"), 't', 'the other one');
	my $java_id = $java->permit_start('p', $path, 2, 60000);
	wait_until { 3 == $zk->children("$path/leases") } "Curator's lease, which waits";
	$s2->query_start("SELECT zk_semaphore_acquire('$path', 2)");
	wait_until { 2 == $zk->children("$path/locks") } 'a session that waits for its turn';
	is_deeply(
		rows($path, 'kind, "position", mode, granted, pid, heeds_us'),
		[
			[ 'semaphore', 1, undef, 't', $s1->pid, 't' ],
			[ 'semaphore', 2, undef, 't', $t->pid, 't' ],
			[ 'semaphore', 3, undef, 'f', undef, 't' ],
			[ 'turn', 1, 'exclusive', 't', undef, 't' ],
			[ 'turn', 2, 'exclusive', 'f', $s2->pid, 't' ]
		],
		'both');
	$s1->query("SELECT zk_semaphore_release('$path')");
	is($java->result($java_id), 1, 'Curator gets its permit');
	$t->query("SELECT zk_semaphore_release('$path')");
	is($s2->finish, 't', 'so does the session');
	$s2->query("SELECT zk_semaphore_release('$path')");
	is(cell($path, 'granted IS NULL', "kind = 'semaphore'"), 't', "without a name of ours nothing tells how many there may be");
	$java->permit_release('p');
};

subtest 'what clients write into names and data does no harm' => sub {
	my $path = '/c/garbage';
	my $name = sub { return sprintf '%s/_c_00000000-0000-0000-0000-%012d-lock-%010d', $path, $_[0], $_[0]; };
	my $valid = '"zklock":"1.0","host":"h","port":5432';
	# What is no contender's data at all, and how it is damaged, is in the unit tests.
	my @data = (
		# hex, and what is shown: owner, server, pid, usename
		[ unpack('H*', 'a service'), 'a service' ],
		[ unpack('H*', "\xc3\xa9t\xc3\xa9"), "\x{e9}t\x{e9}" ],
		[ '', undef ], [ 'ff00fe', undef ], [ 'c3', undef ], [ '00', undef ], [ '610062', undef ],
		[ '1b5b324a', undef ], [ 'c285', undef ],    # control characters
		[ unpack('H*', "\xc3\xa9" x 4000), "\x{e9}" x 128 ],
		[ unpack('H*', 'x' x 9000), undef ],         # too long to be read
		[ unpack('H*', '[' x 8000), '[' x 256 ],
		[ unpack('H*', "{$valid,\"pid\":99999999999}"), "{$valid,\"pid\":99999999999}" ],
		[ unpack('H*', "{$valid,\"pid\":2,\"user\":\"a\\n\"}"), undef, 'h:5432', 2, undef ],
		[ unpack('H*', "{$valid,\"pid\":3,\"user\":\"\xc3\xa9\\\\\\\"\"}"), undef, 'h:5432', 3, "\x{e9}\\\"" ],
		[ unpack('H*', "{$valid,\"pid\":4,\"user\":\"") . 'ff' . unpack('H*', '"}'), undef, 'h:5432', 4, undef ],
		[ unpack('H*', 'zklock-7:1:EXPLICIT:database d user u application psql:box'), undef, 'box', 7, 'u' ]);
	$shell->create($path, makepath => 1);
	$shell->create($name->($_), ephemeral => 1, hex => $data[$_][0]) foreach 0 .. $#data;
	$shell->create("$path/$_") foreach 'lock-', 'x', '__lock__', 'lock-99999999999', "\x{ad}\x{3042}", '_c_-lock-00000000aa', 'leases', 'locks';
	my $shown = rows($path, 'owner, server, pid, usename');
	is(@$shown, @data, 'other children are none of them');
	is_deeply($shown->[$_], [ @{ $data[$_] }[ 1 .. 4 ] ], "data $_") foreach 0 .. $#data;
	$shell->delete($name->($_)) foreach 0 .. $#data;
};

subtest 'what ZooKeeper does not let us read is not shown' => sub {
	my $path = '/c/acl';
	my @secret = (acl => [ [ 'digest', 'me:secret', 'cdrwa' ] ], data => 'mine');
	$shell->create($path, makepath => 1);
	my @nodes = map { $shell->create("$path/_c_x-lock-", ephemeral => 1, sequence => 1, $_ == 2 ? @secret : (data => 'ours')) } 1 .. 3;
	# ZooKeeper 3.9.3 does not even tell those who may not read a node whose it is.
	my $told = eval { $shell->exists($nodes[1]); 't' } || 'f';
	is_deeply(
		rows($path, '"position", granted, owner, owner_session IS NOT NULL, created IS NOT NULL'),
		[ [ 1, 't', 'ours', 't', 't' ], [ 2, 'f', undef, $told, $told ], [ 3, 'f', 'ours', 't', 't' ] ],
		'the data of one node');
	$shell->delete($_) foreach @nodes;
	$shell->create('/c/closed', @secret);
	fails($admin->try("SELECT * FROM zk_contenders('/c/closed')"), '42501', 'a path that we may not list is an error', detail => qr/NOAUTH/);
};

$java->stop;
done_clean($zk, $a, $b);
