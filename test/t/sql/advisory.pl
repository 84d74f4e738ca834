# Copyright (c) 2026, zklock contributors
#
# Extension zklock_advisory: PostgreSQL's advisory lock functions over all servers. sql/advisory.sql has what one session
# sees of them; sql/programs.pl has programs that call them.

use Zklock::Test;
use Zklock::Cast qw(fails);
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;

my $top = dirname(__FILE__) . '/../../..';
my ($zk, $proxy, $a, $b) = cast('a b', zk => { request_log => 1 }, proxied => 'a', conf => ['max_prepared_transactions = 2']);
my ($install, $lock, $look, $shards) = slurp_file("$top/doc/advisory-locks.md") =~ /^```sql\n(.*?)^```$/msg;
my $path = '/advisory/postgres/42';

sub app($server, %opt) { return $server->session(user => 'app', %opt); }
sub value($session, $sql, $expected, $name) { return is($session->query("SELECT $sql"), $expected, $name); }

subtest 'sessions of two servers exclude each other, as doc/advisory-locks.md shows' => sub {
	is($_->node->psql('postgres', $install, on_error_stop => 1), 0, 'it is installed on server ' . $_->name) foreach $a, $b;
	my ($s1, $s2) = map { app($_) } $a, $b;
	is($_->query($look), 'zk_advisory', 'the functions are found on server ' . $_->server->name) foreach $s1, $s2;
	$s1->query($lock);
	value($s2, 'pg_try_advisory_lock(42)', 'f', 'the other server does not get the key');
	value($s2, 'pg_try_advisory_lock_shared(42)', 'f', 'nor a share of it');
	value($s2, 'pg_try_advisory_xact_lock(42)', 'f', 'nor for a transaction');
	value($s2, 'pg_catalog.pg_try_advisory_lock(42)', 't', 'a call with the schema of PostgreSQL escapes');
	value($s2, 'pg_try_advisory_lock(0, 42)', 't', 'two integers are another key');
	value($s1, 'pg_try_advisory_lock(0, 42)', 'f', 'which excludes as well');
	fails($s2->try("SET lock_timeout = '10ms'; SELECT pg_advisory_lock(42)"), '55P03', 'lock_timeout',
		message => 'canceling statement due to lock timeout');
	$s2->start_waiting('SELECT pg_advisory_lock(42)', $path);
	value($s1, 'pg_advisory_unlock(42)', 't', 'one unlocks');
	$s2->finish;
	value($s1, 'pg_try_advisory_lock(42)', 'f', 'the other, which waited, has it');

	$s1->start_waiting('SELECT pg_advisory_lock_shared(42)', $path);
	$s2->query('SELECT pg_advisory_unlock_all()');
	$s1->finish;
	value($s2, 'pg_try_advisory_lock_shared(42)', 't', 'both share it');
	$s1->query('BEGIN; SELECT pg_advisory_xact_lock(43)');
	$s2->start_waiting('SELECT pg_advisory_xact_lock(43)', '/advisory/postgres/43');
	$s1->query('COMMIT');
	$s2->finish;
	pass('a transaction waits for that of the other server');
	$_->disconnect foreach $s1, $s2;
};

subtest 'the same statements have the same results with the functions of PostgreSQL' => sub {
	my ($cases) = slurp_file("$top/sql/advisory.sql") =~ /^-- -{20,}\n(.*?)^-- -{20,}$/ms;
	cmp_ok($cases =~ s/^SELECT//gmr, 'ne', $cases, 'there are cases');
	my %said;
	foreach my $schemas ('public', 'public,zk_advisory,pg_catalog')
	{
		local $ENV{PGOPTIONS} = "-c search_path=$schemas";
		my $mark = $zk->mark;
		$b->node->psql('postgres', $cases, on_error_stop => 0, stdout => \my $out, stderr => \my $err);
		$said{$schemas} = "$out\n" . $err =~ s/^psql:\S+ //gmr;
		my $nodes = $zk->requests($mark)->{create2} // 0;
		$schemas eq 'public' ? is($nodes, 0, "PostgreSQL's take no lock in ZooKeeper") : cmp_ok($nodes, '>', 30, 'the others do');
	}
	like($said{public}, qr/WARNING:  you don't own a lock of type ExclusiveLock/, 'there are warnings');
	is($said{'public,zk_advisory,pg_catalog'}, $said{public}, 'all is the same');
};

sub shown($session, $where, $columns = q{pid, objid, objsubid, mode, granted, waitstart IS NOT NULL})
{
	return $session->query("SELECT $columns FROM zk_advisory.pg_locks WHERE locktype = 'advisory' AND $where ORDER BY granted DESC, pid");
}

subtest 'zk_advisory.pg_locks shows who has a key and who waits' => sub {
	$b->value($_) foreach 'CREATE ROLE other LOGIN', 'CREATE ROLE watcher LOGIN IN ROLE pg_monitor',
	  'GRANT USAGE ON SCHEMA zk_advisory TO other, watcher', 'GRANT SELECT ON zk_advisory.pg_locks TO other, watcher';
	my ($holder, $waiter, $reader) = map { app($b) } 1 .. 3;
	$holder->query('SELECT pg_advisory_lock(42), pg_try_advisory_xact_lock(42)');
	$waiter->start_waiting('SELECT pg_advisory_lock_shared(42)', $path);
	my $expected = $holder->pid . "|42|1|ExclusiveLock|t|f\n" . $waiter->pid . '|42|1|ShareLock|f|t';
	is(shown($reader, 'objid = 42'), $expected, 'to their own role');
	is(shown($b->session(user => 'watcher'), 'objid = 42'), $expected, 'to members of pg_monitor');
	is(shown($b->session(user => 'other'), 'objid = 42'), '', 'to others not');
	value($reader, q{count(*) > 0 FROM pg_locks WHERE locktype = 'virtualxid' AND pid = pg_backend_pid()}, 't',
		'with the rest of the view');
	$holder->query('SELECT pg_advisory_unlock_all()');
	$waiter->finish;
	is(shown($reader, 'true', 'pid, mode'), $waiter->pid . '|ShareLock', 'the next has it');
	$_->disconnect foreach $holder, $waiter, $reader;
};

# What pools send in place of DISCARD ALL
my $npgsql = 'SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); ';
my %reset = (
	asyncpg                       => 'SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL',
	'Npgsql or deadpool-postgres' => "$npgsql DISCARD SEQUENCES; DISCARD TEMP",
	Odyssey                       => "$npgsql DISCARD PLANS; DISCARD SEQUENCES; DISCARD TEMP");

subtest 'pools that do not send DISCARD ALL release what the role locks as advisory locks, and the rest if they are told to' => sub {
	$a->value('GRANT EXECUTE ON FUNCTION zk_lock(text, interval), zk_unlock_all() TO app');
	foreach my $pool (sort keys %reset)
	{
		my $s = app($a);
		$s->query($_) foreach $lock, q{SELECT zk_lock('/pool')}, $reset{$pool};
		is($a->lock_count("path = '$path'"), 0, "$pool: the advisory lock is free");
		is($a->lock_count(q{path = '/pool'}), 1, 'the next client has the other lock');
		$s->query('SELECT zk_unlock_all()');
		is($a->lock_count(q{path = '/pool' AND state = 'held'}), 0, 'unless zk_unlock_all() follows');
		$s->disconnect;
	}
};

subtest 'databases of other names meet if they have one path' => sub {
	$b->value('CREATE DATABASE shard');
	is($b->node->psql('shard', $install =~ s/^CREATE ROLE.*\n//mr =~ s/^/CREATE EXTENSION zklock; /r, on_error_stop => 1), 0, 'another database');
	my ($s1, $s2) = (app($a), app($b, dbname => 'shard'));
	$s1->query($lock);
	value($s2, 'pg_try_advisory_lock(42)', 't', 'by its name, it has locks of its own');
	is(shown($b->session, 'objid = 42', '(SELECT datname FROM pg_database WHERE oid = database)'), 'shard', 'as the view shows');
	$_->disconnect foreach $s1, $s2;

	foreach ([ $a, 'postgres' ], [ $b, 'shard' ])
	{
		my ($server, $database) = @$_;
		$server->value($shards =~ s/DATABASE postgres/DATABASE $database/r);
	}
	($s1, $s2) = (app($a), app($b, dbname => 'shard'));
	$s1->query($lock);
	value($s2, 'pg_try_advisory_lock(42)', 'f', 'with one path, they exclude each other');
	is($b->session(dbname => 'shard')->try("SELECT zk_try_lock('/advisory/shards/42')")->{text}, 'f', 'it is that path');
	$a->value('ALTER DATABASE postgres RESET zklock.advisory_path');
	$_->disconnect foreach $s1, $s2;
};

subtest 'a lost lock is told, and never taken again' => sub {
	my $s = app($b);
	$s->query($lock);
	$b->lose($zk, $s, $path);
	is(shown($s, 'objid = 42'), '', 'it is not in the view');
	fails($s->try($lock), '40001', 'whoever asks again hears of it');
	fails($s->try('SELECT pg_try_advisory_lock(42)'), '40001', 'whoever tries, too');
	my $result = $s->try('SELECT pg_advisory_unlock(42)');
	is($result->{text}, 'f', 'unlocking returns false');
	like("@{ $result->{notices} }", qr/lock on ZooKeeper path "\Q$path\E" was lost/, 'with a warning');
	value($s, 'pg_try_advisory_lock(42)', 't', 'then it can be had again');
	$s->query('BEGIN; SELECT pg_advisory_xact_lock(43); CREATE TEMP TABLE written ()');
	$b->lose($zk, $s, '/advisory/postgres/43');
	fails($s->try('COMMIT'), '40001', 'a transaction that has lost one is not committed');
	$s->disconnect;
};

subtest 'a pool that resets all settings first releases a role\'s keys' => sub {
	my $s = app($b);
	$s->query($lock);
	$s->query('SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all()');
	is(shown($s, 'objid = 42'), '', 'with a search_path of the role');
	$s->disconnect;
};

subtest 'what fails that does not fail in PostgreSQL' => sub {
	my $s = app($a);
	fails($s->try("BEGIN; SELECT pg_advisory_xact_lock(42); PREPARE TRANSACTION 'advisory'"), '0A000', 'PREPARE TRANSACTION');
	$s->query('ROLLBACK');
	$a->value('GRANT CREATE ON SCHEMA public TO app');
	$s->query('CREATE TABLE indexed (key int); INSERT INTO indexed VALUES (42)');
	$s->query(q{CREATE FUNCTION locked(key int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS
		'BEGIN RETURN zk_advisory.pg_try_advisory_lock(key); END'});
	fails($s->try('CREATE INDEX ON indexed (locked(key))'), '42501', 'a lock in an index expression');
	$s->query(q{CREATE OR REPLACE FUNCTION locked(key int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS
		'BEGIN RETURN pg_try_advisory_lock(key); END'});
	is($s->try('CREATE INDEX ON indexed (locked(key))')->{ok}, $a->value('SHOW server_version_num') >= 170000 ? 1 : 0,
		'which escapes where such expressions see pg_catalog alone');
	$s->query('SELECT pg_catalog.pg_advisory_unlock_all()');
	$a->cut_off($proxy);
	fails($s->try('SELECT pg_try_advisory_lock(42)'), '58030', 'a call that does not wait, while ZooKeeper is away');
	$s->start_waiting('SELECT pg_advisory_lock(42)', $path);
	$a->reconnect($proxy);
	$s->finish;
	value($s, 'pg_advisory_unlock(42)', 't', 'one that waits has the lock when it is back');
	$s->disconnect;
};

# What of a database the extension and its privileges are
my $has = q{
	SELECT string_agg(concat_ws(' ', name, acl::text), E'\n' ORDER BY name) FROM (
		SELECT oid::regprocedure::text, proacl FROM pg_proc WHERE pronamespace = 'zk_advisory'::regnamespace
		UNION ALL SELECT oid::regclass::text, relacl FROM pg_class WHERE relnamespace = 'zk_advisory'::regnamespace
		UNION ALL SELECT nspname, nspacl FROM pg_namespace WHERE nspname = 'zk_advisory'
		UNION ALL SELECT extname || extversion, NULL FROM pg_extension) object (name, acl)};

subtest 'dump and restore' => sub {
	my $dump = PostgreSQL::Test::Utils::tempdir . '/dump';
	$b->node->command_ok([ qw(pg_dump --format=custom --file), $dump, '--dbname', $b->connstr('postgres') ], 'pg_dump');
	$b->value('CREATE DATABASE restored TEMPLATE template0');
	$b->node->command_ok([ qw(pg_restore --exit-on-error --dbname), $b->connstr('restored'), $dump ], 'pg_restore');
	my $restored = $b->session(dbname => 'restored');
	like($b->value($has), qr/pg_advisory_lock\(bigint\) .*app=X/, 'what the database has');
	is($restored->query($has), $b->value($has), 'the restored one has, too');
	my ($s1, $s2) = (app($b, dbname => 'restored'), $restored);
	$s1->query($lock);
	value($s2, 'zk_advisory.pg_try_advisory_lock(42)', 'f', 'it locks');
	value($s2, q{zk_try_lock('/advisory/restored/42')}, 'f', 'at the path of its name');
	$s1->disconnect;
	$restored->disconnect;
};

subtest 'removal' => sub {
	my $s = app($b);
	$s->query($lock);
	fails($b->session->try('DROP EXTENSION zklock'), '2BP01', 'zklock does not go without it');
	$b->session->query($_) foreach 'DROP EXTENSION zklock_advisory';
	is($s->query($look), 'pg_catalog', 'programs find the functions of PostgreSQL again');
	is($b->lock_count("path = '$path' AND state = 'held'"), 1, 'what a session holds it keeps');
	is($b->session->try('DROP EXTENSION zklock')->{sqlstate}, '00000', 'then zklock goes');
	$s->disconnect;
	$b->value('CREATE EXTENSION zklock');
};

done_clean($zk, $a, $b);
