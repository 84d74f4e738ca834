# Copyright (c) 2026, zklock contributors
#
# zklock.path_dialects: the path decides in which dialect node names are written. zklock.allowed_paths: what
# cannot be a path is refused, and what is stored nevertheless allows nothing.

use Zklock::Test;
use Zklock::Cast qw(fails);

my ($zk, $a) = cast('a', preload => 0,
	conf => [ "zklock.path_dialects = '/kz/*=kazoo, /hive/*=hive, /kz/java/*=curator, /kz/java/one=zookeeper'" ]);

sub allowed($session, $path)
{
	my $result = $session->try("SELECT zk_lock('$path')");
	$session->query('SELECT zk_unlock_all()');
	return $result->{ok} ? 'yes' : $result->{sqlstate} eq '42501' ? 'no' : $result;
}

subtest 'while the library is not loaded, only superusers can store a value' => sub {
	$a->value("CREATE ROLE $_ LOGIN") foreach qw(mallory stored);
	$a->value('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory, stored');
	my $m = $a->session(user => 'mallory');
	is($m->try("ALTER ROLE mallory SET zklock.allowed_paths = '/*'")->{sqlstate}, '42501', 'another is refused');
	$m->disconnect;

	# Not in the session that has run CREATE EXTENSION, which loads the library.
	my $superuser = $a->session;
	$superuser->query("ALTER ROLE stored SET zklock.allowed_paths = '/a*, /ok/*'");
	$superuser->disconnect;
};

$a->append_conf('postgresql.conf', q{shared_preload_libraries = 'zklock'});
$a->restart_connected;
my $s = $a->session;

my %marker = (
	curator => qr/^_c_.*-lock-\d+$/, curator_rw => qr/__WRIT__\d+$/, kazoo => qr/__lock__\d+$/,
	zookeeper => qr/^x-/, hive => qr/^LOCK-EXCLUSIVE-/);

sub dialect_of($path, $session = undef)
{
	$session ||= $s;
	$session->query("SELECT zk_lock('$path')");
	my ($node) = $zk->children($path);
	$session->query("SELECT zk_unlock('$path')");
	my ($dialect) = grep { $node =~ $marker{$_} } sort keys %marker;
	return $dialect || $node;
}

sub is_dialect($path, $dialect, $name)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(dialect_of($path), $dialect, "$path: $name");
	return;
}

subtest 'the most specific item counts' => sub {
	is_dialect('/kz/a',          'kazoo',     'below a prefix');
	is_dialect('/kz/a/b/c',      'kazoo',     'at any depth');
	is_dialect('/hive/t',        'hive',      'below another');
	is_dialect('/kz/java/two',   'curator',   'the longer prefix, though it comes later');
	is_dialect('/kz/java/one',   'zookeeper', 'the path itself');
	is_dialect('/kz/java/one/x', 'curator',   'what is below it is another path');
	is_dialect('/kz',            'curator',   'a prefix does not stand for itself');
	is_dialect('/kzz/a',         'curator',   'nor for what begins alike');
	is_dialect('/other',         'curator',   "what is not in the list has Curator's names");
};

subtest 'no caller can change what a function writes' => sub {
	$a->value(q{CREATE FUNCTION pay() RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$ SELECT zk_lock('/pay/lock') $$});
	my $m = $a->session(user => 'mallory');
	is($m->try("SET zklock.path_dialects = '/pay/*=kazoo'")->{sqlstate}, '55P02', 'not by SET');
	$m->query('SELECT pay()');
	like(($zk->children('/pay/lock'))[0], $marker{curator}, 'it writes what the administrator chose');
	$m->disconnect;
};

subtest 'semaphores have nodes of one kind only' => sub {
	$s->query("SELECT zk_semaphore_acquire('/kz/semaphore', 2)");
	like(($zk->children('/kz/semaphore/leases'))[0], qr/^_c_.*-lease-\d+$/, "Curator's");
	$s->query('SELECT zk_unlock_all()');
};

subtest 'a reload is for new locks' => sub {
	$s->query("SELECT zk_lock('/kz/held')");
	my @before = $zk->children('/kz/held');
	$a->set_conf('zklock.path_dialects' => '/other=hive');
	wait_until { $s->query('SHOW zklock.path_dialects') eq '/other=hive' } 'the new setting';
	is_deeply([ $zk->children('/kz/held') ], \@before, 'a lock that is held stays as it is');
	is_dialect('/other', 'hive',    'a new one');
	is_dialect('/kz/a',  'curator', 'and another');
	$s->query("SELECT zk_unlock('/kz/held')");
};

sub no_dialects($value, $item, $why)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return fails($s->try("ALTER SYSTEM SET zklock.path_dialects = '$value'"), '22023', "'$value' is refused",
		detail => qq{Item "$item" is not valid. $why},
		hint   => 'Items are "path=dialect" or "/prefix/*=dialect", with commas between them.');
}

subtest 'nonsense is refused' => sub {
	my $dialects = 'The dialects are curator, curator_rw, kazoo, zookeeper and hive.';
	no_dialects('/a=chubby', '/a=chubby', $dialects);
	no_dialects('/a=', '/a=', $dialects);
	no_dialects('/a=kazoo kazoo', '/a=kazoo kazoo', $dialects);
	no_dialects('/a=kaz', '/a=kaz', $dialects);
	no_dialects('/a=kazoo, /b', '/b', 'A dialect is missing.');
	no_dialects('/a=kazoo, /a=hive', '/a=hive', 'Another item is for the same paths.');
	no_dialects('/a/*=kazoo, /b=hive, /a/* = kazoo', '/a/* = kazoo', 'Another item is for the same paths.');
	no_dialects('/a*=kazoo', '/a*=kazoo', 'An asterisk can only stand at the end, behind a slash, for all paths below a path.');
	no_dialects('/a/=kazoo', '/a/=kazoo', 'A path must not end with "/".');
	no_dialects('kazoo', 'kazoo', 'A path must start with "/".');
	no_dialects('/a=kazoo,', '', 'A path must not be empty.');
};

subtest 'and sense is not' => sub {
	foreach my $value ('', '/*=kazoo', '/a=b=KAZOO', ' /a = hive , /a/* = hive ')
	{
		ok($s->try("ALTER SYSTEM SET zklock.path_dialects = '$value'")->{ok}, "'$value'");
	}
	$a->set_conf('zklock.path_dialects' => '/*=kazoo');
	wait_until { $s->query('SHOW zklock.path_dialects') eq '/*=kazoo' } 'the new setting';
	is_dialect('/any', 'kazoo', 'an item for all paths');
};
Zklock::Server->assert_clean($zk, [$a], '/kz/a/b/c', '/kz/java/one/x', '/hive/t', '/other', '/pay/lock', '/kz/semaphore/leases');

subtest 'a server that starts with nonsense says so, and goes on without the setting' => sub {
	$s->disconnect;
	$a->stop;
	$a->append_conf('postgresql.auto.conf', "zklock.path_dialects = '/kz/*=kazoo, /a=chubby'");
	my $mark = $a->log_mark;
	$a->start;
	like($a->log_since($mark), qr{invalid value for parameter "zklock\.path_dialects".*DETAIL:  Item "/a=chubby" is not valid}s,
		'the log names the item');
	$a->wait_session;
	$s = $a->session;
	is($s->query('SHOW zklock.path_dialects'), '', 'the list is empty');
	is_dialect('/kz/b', 'curator', 'names are those of paths that are not in it');
	$a->value('ALTER SYSTEM RESET zklock.path_dialects');
};

subtest 'a wrong value that was stored then allows nothing' => sub {
	my $mark = $a->log_mark;
	my $m = $a->session(user => 'stored');
	$a->wait_log(qr{WARNING:  item "/a\*" of "zklock\.allowed_paths" is not valid and allows no path}, $mark);
	pass('the log tells of it at each login');
	is($m->query('SHOW zklock.allowed_paths'), '/a*, /ok/*', 'the role has what it was given');
	is(allowed($m, '/ok/a'), 'yes', 'right items count');
	is(allowed($m, $_), 'no', "$_: wrong ones do not") foreach '/a*', '/ab', '/a/b', '/b';
	$m->disconnect;
};

sub refused($value, $item, $why)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $sql ("SET zklock.allowed_paths = E'$value'", "ALTER ROLE mallory SET zklock.allowed_paths = E'$value'",
		"ALTER SYSTEM SET zklock.allowed_paths = E'$value'")
	{
		# ALTER SYSTEM has a rule of its own.
		next if $sql =~ /SYSTEM/ && $value =~ /\\n/;
		fails($s->try($sql), '22023', "$sql: refused",
			detail => qq{Item "$item" is not valid. $why},
			hint   => 'Items are paths, or "/prefix/*" for all paths below /prefix, with commas between them.');
	}
	return;
}

subtest 'what cannot be a path is refused' => sub {
	my $asterisk = 'An asterisk can only stand at the end, behind a slash, for all paths below a path.';
	refused($_, $_, $asterisk) foreach '/a*', '/a/*/b', '*', '/a/b*', '/*/b';
	refused('/ok, /a*,/b', '/a*', $asterisk);
	refused('/a/', '/a/', 'A path must not end with "/".');
	refused('/', '/', 'The root "/" cannot be locked.');
	refused('a', 'a', 'A path must start with "/".');
	refused('/a//b', '/a//b', 'A path must not contain "//".');
	refused('/a//*', '/a//*', 'A path must not end with "/".');
	refused('/a/../*', '/a/../*', 'A path must not have "." or ".." as a component.');
	refused('/a\\tb', "/a\tb", 'A path must not contain control characters.');
	refused('/zookeeper/*', '/zookeeper/*', 'The path "/zookeeper" and all paths below it are reserved for ZooKeeper.');
	refused('/a,,/b', '', 'A path must not be empty.');
	refused('/a, ', '', 'A path must not be empty.');
	refused('/' . 'x' x 1100, '/' . 'x' x 99 . '...', 'A path can have at most 1023 bytes in UTF-8.');
};

subtest 'what can, is not' => sub {
	foreach my $value ('', ' ', '/*', '/a', '/a/*', ' /a , /b/c/* ', '/a b', '/ä/*', '/a=b', '/a, /a')
	{
		ok($s->try("SET zklock.allowed_paths = '$value'")->{ok}, "'$value'");
	}
	$s->query('RESET zklock.allowed_paths');
};

subtest 'and means what it says' => sub {
	$a->value(q{ALTER ROLE mallory SET zklock.allowed_paths = '/ä/*', '/exact', '/deep/er/*'});
	my $m = $a->session(user => 'mallory');
	is(allowed($m, $_), 'yes', "$_: allowed") foreach '/ä/x', '/ä/x/y', '/exact', '/deep/er/x';
	is(allowed($m, $_), 'no', "$_: not allowed")
	  foreach '/ä', '/äx', '/exact/x', '/exactly', '/deep', '/deep/er', '/deep/x', '/deep/errr/x';
	$m->disconnect;
};

subtest 'a role cannot widen it' => sub {
	my $m = $a->session(user => 'mallory');
	foreach my $sql ("SET zklock.allowed_paths = '/*'", 'RESET zklock.allowed_paths', 'SET zklock.allowed_paths TO DEFAULT',
		"ALTER ROLE mallory SET zklock.allowed_paths = '/*'", 'ALTER ROLE mallory RESET zklock.allowed_paths')
	{
		is($m->try($sql)->{sqlstate}, '42501', $sql);
	}
	ok($m->try($_)->{ok}, $_) foreach 'RESET ALL', 'DISCARD ALL', 'ALTER ROLE mallory RESET ALL';
	is(allowed($m, '/elsewhere'), 'no', 'nor does what resets all that it may');
	$m->disconnect;
	$m = $a->session(user => 'mallory');
	is(allowed($m, '/elsewhere'), 'no', 'not in the next session either');
	$m->disconnect;
};
subtest 'a wrong value in the file from which the server starts allows nothing' => sub {
	$s->disconnect;
	$a->append_conf('postgresql.conf', "zklock.allowed_paths = '/ok/*, /a*'");
	my $mark = $a->log_mark;
	$a->restart_connected;
	$a->wait_log(qr{WARNING:  item "/a\*" of "zklock\.allowed_paths" is not valid and allows no path}, $mark);
	pass('the log tells of it');
	$s = $a->session;
	is(allowed($s, '/ok/a'), 'yes', 'right items count');
	is(allowed($s, $_), 'no', "$_: wrong ones do not") foreach '/a*', '/ab', '/b';
	$mark = $a->log_mark;
	$a->append_conf('postgresql.conf', "zklock.allowed_paths = '/b/'");
	$a->reload;
	$a->wait_log(qr{LOG:  invalid value for parameter "zklock\.allowed_paths": "/b/"}, $mark);
	is($s->query('SHOW zklock.allowed_paths'), '/ok/*, /a*', 'at a reload a wrong value is not taken up');
};
$s->disconnect;
Zklock::Server->assert_clean($zk, [$a], '/ok/a', '/exact', '/kz/b');
done_testing;
