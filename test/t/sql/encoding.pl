# Copyright (c) 2026, zklock contributors
#
# A path is text: databases of different encodings that mean the same characters mean
# the same lock. In ZooKeeper it is UTF-8.

use Zklock::Test;
use Zklock::Cast qw(fails);

# A node that is kept tells of the session that it was created for.
my ($zk, $a, $b) = cast('a b', conf => ['zklock.keep_idle = 0']);

foreach my $encoding (qw(LATIN1 WIN1252 SQL_ASCII))
{
	my $name = lc $encoding;
	$a->value("CREATE DATABASE $name ENCODING '$encoding' LOCALE 'C' TEMPLATE template0");
	$a->session(dbname => $name)->query('CREATE EXTENSION zklock');
}

# All texts below are made by the server, from ASCII: client encodings do not matter.
my $latin1 = $a->session(dbname => 'latin1');
my $utf8   = $b->session;
is($latin1->query('SHOW server_encoding'), 'LATIN1', 'one database has LATIN1');
is($utf8->query('SHOW server_encoding'), 'UTF8', 'the other has UTF8');
# In both, this is the number of the letter; the bytes are E4 and C3 A4.
my $path = q{'/t/b' || chr(228) || 'r'};
is($latin1->query("SELECT encode(convert_to($path, 'LATIN1'), 'escape')"), '/t/b\344r', 'the path in LATIN1');
is($utf8->query("SELECT encode(convert_to($path, 'UTF8'), 'escape')"), '/t/b\303\244r', 'the path in UTF8');

subtest 'a path is the same lock in databases of different encodings' => sub {
	is($latin1->query("SELECT zk_lock($path)"), 't', 'LATIN1 locks it');
	is($utf8->query("SELECT zk_try_lock($path)"), 'f', 'UTF8 on another server does not get it');
	is_deeply([ $zk->children('/t') ], ["b\x{e4}r"], 'ZooKeeper has it in UTF-8');
	my $same = $a->session;
	is($same->query("SELECT zk_try_lock($path)"), 'f', 'nor does UTF8 on the same server');
	$utf8->start_waiting("SELECT zk_lock($path)");
	is($latin1->query("SELECT zk_unlock($path)"), 't', 'LATIN1 unlocks it');
	is($utf8->finish, 't', 'UTF8 gets it then');
	$latin1->start_waiting("SELECT zk_lock($path)");
	is($utf8->query("SELECT zk_unlock($path)"), 't', 'UTF8 unlocks it');
	is($latin1->finish, 't', 'LATIN1 gets it then');
	is($latin1->query("SELECT zk_lock(ARRAY[$path, '/t/x'])"), 't', 'an array finds it held');
	is($latin1->query('SELECT sum(count), count(DISTINCT path) FROM zk_locks'), '3|2', 'and counts');
	is($latin1->query("SELECT zk_fencing_token($path) > 0"), 't', 'it has a token');
};

subtest 'the bytes of another encoding are another path' => sub {
	# Whatever is in front of the bytes, LATIN1 has other characters for C3 A4.
	my $bytes = q{'/t/b' || chr(195) || chr(164) || 'r'};
	is($latin1->query("SELECT zk_try_lock($bytes)"), 't', 'the bytes of UTF-8 in LATIN1 are another path');
	is($latin1->query("SELECT zk_unlock($bytes)"), 't', 'which is unlocked');
};

subtest 'messages are in the encoding of the database' => sub {
	fails($latin1->try("SELECT zk_fencing_token('/t/' || chr(246))"), '55000', 'no token of a lock not held',
		message => qr{/\x{f6}"$});
	fails($latin1->try("SELECT zk_lock('/t/' || chr(246) || '/')"), '22023', 'no lock on a path that is none',
		message => qr{/\x{f6}/"$});
};

subtest 'what the node tells is UTF-8' => sub {
	my $user = $a->session(dbname => 'latin1');
	$user->query(q{DO $$ BEGIN EXECUTE format('CREATE ROLE %I SUPERUSER LOGIN', 'r' || chr(228)); END $$});
	$user->query(q{DO $$ BEGIN EXECUTE format('SET SESSION AUTHORIZATION %I', 'r' || chr(228)); END $$});
	is($user->query(q{SELECT zk_lock('/t/data')}), 't', 'a user with an umlaut locks, in LATIN1');
	my ($node) = $zk->children('/t/data');
	like($zk->shell->get("/t/data/$node"), qr/"user":"r\x{e4}"/, 'the data of the node is UTF-8');
	$user->query('SELECT zk_unlock_all()');
	$user->query('RESET SESSION AUTHORIZATION');
	# Names of roles are the same bytes in all databases, so that they may be no text at all in
	# some: which is no reason not to lock. E4 alone is no UTF-8, and 81 nothing in WIN1252.
	$a->value(q{DO $$ BEGIN EXECUTE format('CREATE ROLE %I SUPERUSER LOGIN', 'r' || chr(193)); END $$});
	foreach my $case (
		[ 'E4',    "r\xe4",     'postgres' ],
		[ 'E4',    "r\xe4",     'sql_ascii' ],
		[ 'C3 81', "r\xc3\x81", 'latin1' ],
		[ 'C3 81', "r\xc3\x81", 'sql_ascii' ],
		[ 'C3 81', "r\xc3\x81", 'win1252' ])
	{
		my ($bytes, $role, $database) = @$case;
		my $session = $a->session(dbname => $database, user => $role);
		my $result = $session->try(q{SELECT zk_lock('/t/data', '10 s')});
		is($result->{text}, 't', "a user with $bytes in the name locks from database $database")
		  or diag($result->{error});
		next unless $result->{ok};
		($node) = $zk->children('/t/data');
		my $pid  = $session->pid;
		my $data = $zk->shell->get("/t/data/$node");
		like($data, qr/"pid":$pid\b/, 'the data of its node tells who that is');
		# The shell prints bytes that are no UTF-8 like this.
		unlike($data, qr/\\x[0-9a-f]{2}/, 'and is UTF-8');
		$session->query('SELECT zk_unlock_all()');
	}
	$user->query(q{DO $$ BEGIN EXECUTE format('DROP ROLE %I', 'r' || chr(228)); END $$});
	$a->value(q{DO $$ BEGIN EXECUTE format('DROP ROLE %I', 'r' || chr(193)); END $$});
};

subtest 'a path that has no equivalent in UTF-8 is refused' => sub {
	my ($win, $ascii) = map { $a->session(dbname => $_) } qw(win1252 sql_ascii);
	$utf8->query(q{SET client_encoding = 'UTF8'});
	my $invalid = qr/invalid byte sequence for encoding "UTF8"/;
	my $missing = qr/has no equivalent in encoding "UTF8"/;
	foreach my $case (
		# Bytes a client sends do not even get to a function.
		[ $utf8, qq{E'/t/\\xE4'}, '22021', $invalid, 'bytes that are no UTF-8, in UTF8' ],
		# 81 is no character of WIN1252.
		[ $win, q{'/t/' || chr(129)}, '22P05', $missing, 'a character without an equivalent, in WIN1252' ],
		[ $win, q{ARRAY['/t/x', '/t/' || chr(129)]}, '22P05', $missing, 'the same in an array' ],
		# A database of SQL_ASCII takes any bytes; a path must be UTF-8.
		[ $ascii, q{'/t/' || chr(228)}, '22021', $invalid, 'bytes that are no UTF-8, in SQL_ASCII' ],
		# 80 is the euro sign in WIN1252.
		[ $latin1, q{'/t/' || chr(128)}, '22023', qr/invalid ZooKeeper path/, 'a control character, in LATIN1' ])
	{
		my ($session, $expression, $sqlstate, $message, $name) = @$case;
		fails($session->try("SELECT zk_lock($expression)"), $sqlstate, $name, message => $message);
	}
	is($ascii->query(q{SELECT zk_try_lock('/t/b' || chr(195) || chr(164) || 'r')}), 'f',
		'bytes of UTF-8 in SQL_ASCII are the path others have locked');
	is($win->query(q{SELECT zk_lock('/t/' || chr(128))}), 't', 'the euro sign, in WIN1252');
	is($b->value(q{SELECT zk_try_lock('/t/' || chr(8364))}), 'f', 'is the same in UTF8');
	is($win->query('SELECT zk_unlock_all()'), '', 'the euro sign is free again');
};

subtest 'zklock.allowed_paths is in the encoding of the database' => sub {
	$latin1->query("SELECT set_config('zklock.allowed_paths', '/t/' || chr(228) || '/*', false)");
	is($latin1->try(q{SELECT zk_try_lock('/t/' || chr(228) || '/x')})->{text}, 't',
		'zklock.allowed_paths is in the encoding of the database');
	is($latin1->try(q{SELECT zk_try_lock('/t/' || chr(246) || '/x')})->{sqlstate}, '42501',
		'other letters are not allowed');
	$latin1->query('RESET zklock.allowed_paths');
	$latin1->query(q{SELECT zk_unlock('/t/' || chr(228) || '/x')});
};

subtest 'zk_locks shows what other databases lock' => sub {
	# Greek cannot be had in LATIN1, ASCII has neither.
	my $greek = $a->session;
	is($greek->query(q{SELECT zk_lock('/t/' || chr(937) || 'x')}), 't', 'a path in Greek');
	# Waiters show whom they wait for; this one has a name in Greek as well.
	my $foreign = $zk->shell->create("/t/foreign/\x{3a9}-lock-",
		ephemeral => 1, sequence => 1, makepath => 1);
	my $waiter = $a->session;
	$waiter->query_start(q{SELECT zk_lock('/t/foreign')});
	wait_until { $a->wait_waiting($waiter)->{blocked_by_node} } 'the waiter to know for whom it waits';

	my %seen = (
		postgres  => [ q{chr(228)},    q{chr(937)} ],
		latin1    => [ q{chr(228)},    q{'\xce\xa9'} ],
		win1252   => [ q{'\xc3\xa4'},    q{'\xce\xa9'} ],
		sql_ascii => [ q{'\xc3\xa4'},    q{'\xce\xa9'} ]);
	foreach my $database (sort keys %seen)
	{
		my ($umlaut, $omega) = @{ $seen{$database} };
		my $session = $a->session(dbname => $database);
		my $rows    = $session->try('SELECT * FROM zk_locks');
		ok($rows->{ok}, "zk_locks from database $database") or diag($rows->{error});
		is($session->query("SELECT count(*) FROM zk_locks WHERE path = '/t/' || $omega || 'x'"),
			'1', "Greek as seen from $database");
		is($session->query("SELECT blocked_by_node = $omega || '-lock-0000000000' FROM zk_locks WHERE state = 'waiting'"),
			't', "a foreign node with a Greek name as seen from $database");
		# As it is from the database that locked it, and from those of UTF8; elsewhere the
		# letters may be escaped, which is what tells them apart from letters that fail.
		is($session->query("SELECT datname FROM zk_locks WHERE path IN ('/t/b' || $umlaut || 'r', '/t/b' || chr(228) || 'r')"),
			'latin1', "an umlaut as seen from $database");
		is($session->query('SELECT count(*) FROM zk_session'), '1', "zk_session from database $database");
	}

	$zk->shell->delete($foreign);
	is($waiter->finish, 't', 'the waiter gets its lock');

	# A name that is too long to be shown is cut between two letters.
	$foreign = $zk->shell->create('/t/foreign/' . "\x{3a9}" x 100 . '-lock-', ephemeral => 1, sequence => 1);
	my $behind = $b->session;
	$behind->start_waiting(q{SELECT zk_lock('/t/foreign')});
	$waiter->query(q{SELECT zk_unlock('/t/foreign')});
	$b->wait_value('SELECT blocked_by_node = repeat(chr(937), 63) FROM zk_locks', 't');
	pass('a long foreign name is shown as far as there is room');
	$zk->shell->delete($foreign);
	is($behind->finish, 't', 'who waits for it gets the lock');
	$behind->query('SELECT zk_unlock_all()');
	$_->query('SELECT zk_unlock_all()') foreach $waiter, $greek;
};

subtest 'a server whose name is no UTF-8 leads, under a name that is' => sub {
	# So it may stand in the file of settings, which may be written in any encoding.
	my $c = Zklock::Server->new('c', zookeeper => $zk, conf => [ "zklock.server_name = 'caf\xe9'", "zklock.elections = '/t/leader'" ]);
	$c->wait_value('SELECT state FROM zk_elections', 'elected');
	is($zk->shell->get('/t/leader/' . ($zk->children('/t/leader'))[0]), 'caf?', 'in its node');
	is($b->value("SELECT server FROM zk_leader('/t/leader')"), 'caf?', 'and for others');
	$c->stop;
};

$_->query('SELECT zk_unlock_all()') foreach $latin1, $utf8;
# While they live: it is not the end of a session that releases.
Zklock::Server->assert_clean($zk, [ $a, $b ]);
done_clean($zk, $a, $b);
