# Copyright (c) 2026, zklock contributors
#
# zklock.path_dialects: the path decides in which dialect node names are written. zklock.allowed_paths: a value
# that cannot be right but is stored nevertheless allows nothing. sql/role_settings.sql has which values these are, and that
# a role cannot set what it was given by an administrator; here it tries by the options of its connection.

use Zklock::Test;

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
	$a->value('GRANT CREATE ON SCHEMA public TO mallory; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory, stored');
	my $m = $a->session(user => 'mallory');
	is($m->try("ALTER ROLE mallory SET zklock.allowed_paths = '/*'")->{sqlstate}, '42501', 'another is refused');
	$m->disconnect;

	# Not in the session that has run CREATE EXTENSION, which loads the library.
	$a->session->query("ALTER ROLE stored SET zklock.allowed_paths = '/a*, /ok/*'");
};

$a->append_conf('postgresql.conf', q{shared_preload_libraries = 'zklock'});
$a->restart_connected;
my $s = $a->session;

my %marker = (
	curator => qr/^_c_.*-lock-\d+$/, curator_rw => qr/__WRIT__\d+$/, kazoo => qr/__lock__\d+$/,
	zookeeper => qr/^x-/, hive => qr/^LOCK-EXCLUSIVE-/);

sub is_dialect($path, $dialect, $name)
{
	$s->query("SELECT zk_lock('$path')");
	like(($zk->children($path))[0], $marker{$dialect}, "$path: $name");
	$s->query("SELECT zk_unlock('$path')");
	return;
}

# More of what an item is for is in test/unit/test_path_list.c.
subtest 'the most specific item counts' => sub {
	is_dialect('/kz/a',          'kazoo',     'below a prefix');
	is_dialect('/kz/java/two',   'curator',   'the longer prefix, though it comes later');
	is_dialect('/kz/java/one',   'zookeeper', 'the path itself');
	is_dialect('/other',         'curator',   "what is not in the list has Curator's names");
};

subtest 'no caller can change what a function writes' => sub {
	$a->value(q{CREATE FUNCTION pay() RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$ SELECT zk_lock('/pay/lock') $$});
	my $m = $a->session(user => 'mallory');
	$m->query('SELECT pay()');
	like(($zk->children('/pay/lock'))[0], $marker{curator}, 'it writes what the administrator chose');
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

subtest 'a list may have no item, or one for all paths, and blanks' => sub {
	foreach my $value ('', '/*=kazoo', '/a=b=KAZOO', ' /a = hive , /a/* = hive ')
	{
		ok($s->try("ALTER SYSTEM SET zklock.path_dialects = '$value'")->{ok}, "'$value'");
	}
	$a->set_conf('zklock.path_dialects' => '/*=kazoo');
	wait_until { $s->query('SHOW zklock.path_dialects') eq '/*=kazoo' } 'the new setting';
	is_dialect('/any', 'kazoo', 'an item for all paths');
};
Zklock::Server->assert_clean($zk, [$a], '/kz/a', '/kz/java/one', '/other', '/pay/lock', '/kz/semaphore/leases');

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

my $warning = qr{WARNING:  item "/a\*" of "zklock\.allowed_paths" is not valid and allows no path};

subtest 'a wrong value that was stored then allows nothing' => sub {
	my $mark = $a->log_mark;
	my $m = $a->session(user => 'stored');
	$a->assert_log($mark, $warning, 'the log tells of it at each login');
	is($m->query('SHOW zklock.allowed_paths'), '/a*, /ok/*', 'the role has what it was given');
	is(allowed($m, '/ok/a'), 'yes', 'right items count');
	is(allowed($m, $_), 'no', "$_: wrong ones do not") foreach '/a*', '/ab', '/a/b', '/b';
};

subtest 'who connects with such a setting is refused, even if it is what the role was given' => sub {
	my %given = (
		'zklock.commit_guard'          => 'lease',
		'zklock.parent_nodes'          => 'existing',
		'zklock.allowed_paths'         => '/given',
		'zklock.max_locks_per_session' => '3');
	foreach my $setting (sort keys %given)
	{
		$a->value("ALTER ROLE mallory SET $setting = '$given{$setting}'");
		local $ENV{PGOPTIONS} = "-c $setting=$given{$setting}";
		# It asks for nothing: psql that is refused does not read what it should.
		my (undef, undef, $err) = $a->psql('postgres', '', extra_params => [ '-U', 'mallory' ], on_error_die => 0);
		like($err, qr/permission denied to set parameter "\Q$setting\E"/, $setting);
	}
};

subtest 'a wrong value in the file from which the server starts allows nothing' => sub {
	$s->disconnect;
	$a->append_conf('postgresql.conf', "zklock.allowed_paths = '/ok/*, /a*'");
	my $mark = $a->log_mark;
	$a->restart_connected;
	$a->assert_log($mark, $warning, 'the log tells of it');
	$s = $a->session;
	is(allowed($s, '/ok/a'), 'yes', 'right items count');
	is(allowed($s, $_), 'no', "$_: wrong ones do not") foreach '/a*', '/ab', '/b';
	$mark = $a->log_mark;
	$a->append_conf('postgresql.conf', "zklock.allowed_paths = '/b/'");
	$a->reload;
	$a->wait_log(qr{LOG:  invalid value for parameter "zklock\.allowed_paths": "/b/"}, $mark);
	is($s->query('SHOW zklock.allowed_paths'), '/ok/*, /a*', 'at a reload a wrong value is not taken up');
};

done_clean($zk, $a);
