# Copyright (c) 2026, zklock contributors
#
# Commands that PostgreSQL cannot undo, and therefore refuses in a transaction block: the guard looks before them.
# Under a lock that is lost they do nothing, neither to files nor to other servers; while the lease is suspended they wait.

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Zklock::Cast qw(:DEFAULT lost);

my ($zk, $proxy, $main, $publisher) = cast('main publisher',
	proxied   => 'main',
	# Many ask at once.
	publisher => { preload => 0, extension => 0, allows_streaming => 'logical', conf => [ 'max_wal_senders = 30' ] },
	main      => { timeout => '12s', conf => [ 'autovacuum = off', 'log_lock_waits = on', "deadlock_timeout = '100ms'", 'max_logical_replication_workers = 10' ] });
my $version   = int($main->value('SHOW server_version_num') / 10000);
my $directory = PostgreSQL::Test::Utils::tempdir;
mkdir "$directory/$_" foreach qw(used old new);

$publisher->value($_) foreach 'CREATE TABLE first (i int)', 'CREATE TABLE second (i int)',
  map { "CREATE PUBLICATION $_ FOR TABLE first" } qw(p more);
my $connection  = "CONNECTION '" . ($publisher->connstr('postgres') =~ s/'//gr) . "' PUBLICATION";
my $unconnected = "$connection p WITH (copy_data = false, enabled = false)";
$main->value($_) foreach
  'CREATE SCHEMA own',
  'CREATE TABLE first (i int)', 'CREATE TABLE second (i int)',
  (map { ("CREATE TABLE $_ AS SELECT i FROM generate_series(1, 100) i", "CREATE INDEX @{[ s/.*\.//r ]}_i ON $_ (i)") } qw(t built dropped rebuilt retabled vacuumed rewritten clustered own.inside)),
  'CLUSTER clustered USING clustered_i',
  (map { ("CREATE TABLE $_ (i int) PARTITION BY LIST (i)", "CREATE INDEX ${_}_i ON $_ (i)", "CREATE TABLE ${_}_1 PARTITION OF $_ FOR VALUES IN (1)") }
	  qw(parted reindexed indexed ordered)),
  (map { "CREATE TABLESPACE ts_$_ LOCATION '$directory/$_'" } qw(used old)),
  (map { "CREATE DATABASE $_" } qw(d_old d_forced d_moved d_system d_whole d_clean d_packed)),
  (map { "CREATE SUBSCRIPTION $_ $connection p WITH (copy_data = false)" } qw(s_old s_refreshed s_added s_set)),
  "CREATE SUBSCRIPTION s_less $connection p, more WITH (copy_data = false)",
  "ALTER SYSTEM SET work_mem = '6MB'";
$main->session(dbname => $_)->query('CREATE EXTENSION zklock') foreach qw(d_system d_whole d_clean d_packed);
$main->session(dbname => 'd_packed')->query('CREATE TABLE packed AS SELECT 1 AS i');
$main->value("CREATE SUBSCRIPTION s_failover $unconnected") if $version >= 17;
$main->value("CREATE SUBSCRIPTION s_twophase $unconnected") if $version >= 18;
$publisher->value('ALTER PUBLICATION p ADD TABLE second');

# The commands, by release. Those that would deadlock with each other if they were run at once have a database of their own.
my %commands = map { $_ => 'postgres' } (
	'CREATE DATABASE d_new', 'DROP DATABASE d_old', 'DROP DATABASE d_forced WITH (FORCE)', 'ALTER DATABASE d_moved SET TABLESPACE ts_used',
	"CREATE TABLESPACE ts_new LOCATION '$directory/new'", 'DROP TABLESPACE ts_old',
	"ALTER SYSTEM SET maintenance_work_mem = '7MB'", 'ALTER SYSTEM RESET work_mem',
	"CREATE SUBSCRIPTION s_new $unconnected", 'DROP SUBSCRIPTION s_old', 'ALTER SUBSCRIPTION s_refreshed REFRESH PUBLICATION WITH (copy_data = false)',
	(map { "ALTER SUBSCRIPTION $_ PUBLICATION more WITH (copy_data = false)" } 's_added ADD', 's_set SET'),
	'ALTER SUBSCRIPTION s_less DROP PUBLICATION more',
	'CREATE INDEX CONCURRENTLY built_new ON built (i)', 'DROP INDEX CONCURRENTLY dropped_i',
	'REINDEX INDEX CONCURRENTLY rebuilt_i', 'REINDEX TABLE CONCURRENTLY retabled', 'REINDEX SCHEMA own', 'REINDEX TABLE reindexed', 'REINDEX INDEX indexed_i',
	'VACUUM (DISABLE_PAGE_SKIPPING) vacuumed', 'VACUUM FULL rewritten', 'CLUSTER', 'CLUSTER ordered USING ordered_i',
	'ALTER TABLE parted DETACH PARTITION parted_1 CONCURRENTLY');
@commands{ 'REINDEX SYSTEM d_system', 'REINDEX DATABASE d_whole', 'VACUUM' } = qw(d_system d_whole d_clean);
$commands{'ALTER SUBSCRIPTION s_failover SET (failover = true)'}  = 'postgres' if $version >= 17;
$commands{'ALTER SUBSCRIPTION s_twophase SET (two_phase = true)'} = 'postgres' if $version >= 18;
$commands{'REPACK'} = 'd_packed' if $version >= 19;

# All that these commands change: rows, files, slots elsewhere
sub everything
{
	my $relations = q{SELECT oid::regclass, pg_relation_filenode(oid), relispartition, CASE WHEN relname LIKE 'vacuumed%' THEN relallvisible END FROM pg_class ORDER BY oid};
	my @all = map { $main->session(dbname => $_)->query($relations) } qw(postgres d_system d_whole d_clean d_packed);
	push @all, map { $main->value($_) } 'SELECT oid, datname, dattablespace, datconnlimit FROM pg_database ORDER BY oid', 'SELECT oid, spcname FROM pg_tablespace ORDER BY oid',
	  'SELECT oid, subname, subpublications::text, subslotname FROM pg_subscription ORDER BY oid', 'SELECT srsubid, srrelid FROM pg_subscription_rel ORDER BY 1, 2';
	push @all, $publisher->value('SELECT slot_name FROM pg_replication_slots ORDER BY 1');
	push @all, join "\n", map { glob } "$directory/*/*", map { $main->data_dir . "/$_" } 'base/*', 'pg_tblspc/*', 'pg_tblspc/*/*/*';
	return [ map { split /\n/ } @all, slurp_file($main->data_dir . '/postgresql.auto.conf') ];
}

subtest 'under a lock that is lost, nothing is done' => sub {
	my $before = everything();
	my %lost;
	foreach my $database (sort { $a cmp $b } values %commands)
	{
		next if $lost{$database};
		$lost{$database} = $main->session(dbname => $database);
		$lost{$database}->query("SELECT zk_lock('/lost/$database')");
		$main->lose($zk, $lost{$database}, "/lost/$database");
	}
	foreach my $command (sort keys %commands)
	{
		my $database = $commands{$command};
		fails($lost{$database}->try($command), '40001', $command, message => qr/^lock on ZooKeeper path "\/lost\/$database" was lost/);
		is_deeply(everything(), $before, "$command: rows, files and slots are as they were");
	}

	# What PostgreSQL refuses itself it refuses as ever.
	my $s = $lost{postgres};
	$s->query('BEGIN');
	is($s->try('CREATE DATABASE d_new')->{sqlstate}, '25001', 'in a transaction block it is refused for that reason');
	$s->query('ROLLBACK');
	is($s->try('SELECT 1; CREATE DATABASE d_new')->{sqlstate}, '25001', 'and with other statements');

	ok($s->try($_)->{ok}, "what cleans up goes on: $_") foreach
	  'DECLARE c CURSOR WITH HOLD FOR SELECT 1', 'FETCH c', 'CLOSE c', "SET work_mem = '5MB'", 'SHOW work_mem', 'RESET ALL', 'LISTEN x', 'UNLISTEN *',
	  'PREPARE p AS SELECT 1', 'EXECUTE p', 'DEALLOCATE ALL', 'CHECKPOINT', 'DISCARD PLANS', 'BEGIN', 'ROLLBACK', 'DO $$ BEGIN END $$',
	  'COPY (SELECT 1) TO STDOUT' =~ s/STDOUT/'\/dev\/null'/r, 'SELECT 1', 'DISCARD ALL';
	ok($s->try('VACUUM t')->{ok}, 'when the lock has been released, VACUUM runs');
	is($_->query('SELECT zk_unlock_all()'), '', 'released') foreach values %lost;
	$_->disconnect foreach values %lost;
};

subtest 'the setting is that of the lock: "off" looks at nothing, "quorum" asks ZooKeeper' => sub {
	my %guarded = map { $_ => $main->session } qw(off lease quorum);
	foreach my $guard (qw(off lease quorum))
	{
		my $s    = $guarded{$guard};
		my $path = "/guarded/$guard";
		$s->query($_) foreach "SET zklock.commit_guard = $guard", "SELECT zk_lock('$path')";
		$main->wait_value("SELECT lease_remaining > '5s' FROM zk_session", 't');
		my ($node) = $zk->children($path);
		$proxy->reset_counts;
		$proxy->blackhole('replies');
		$zk->shell->delete("$path/$node");
		$s->query_start('VACUUM t');
		if ($guard eq 'quorum')
		{
			wait_until { grep { $_->[0] eq 'multi' && $_->[1] =~ /^\Q$path\E\// } @{ $proxy->requests } } 'the check to be sent';
			ok($s->busy, 'it waits for the answer');
			$proxy->heal;
		}
		is($s->result->{sqlstate}, $guard eq 'quorum' ? '40001' : '00000', "with $guard, before the worker has heard of the loss");
		$main->reconnect($proxy);
		$main->wait_lock($s, 'lost', $path);
		is($s->try('VACUUM t')->{sqlstate}, $guard eq 'off' ? '00000' : '40001', "with $guard, afterwards");
		$s->disconnect;
	}
};

subtest 'while the lease is suspended each of them waits, and does nothing; then it goes on' => sub {
	my $before = everything();
	my %waiting;
	foreach my $command (keys %commands, 'cancelled', 'timed out')
	{
		$waiting{$command} = $main->session(dbname => $commands{$command} // 'postgres');
		$waiting{$command}->query("SELECT zk_lock('/suspended/" . $waiting{$command}->pid . "')");
	}
	my $other = $main->session;
	my $mark  = $main->log_mark;
	my %cut   = map { $_ => delete $waiting{$_} } 'cancelled', 'timed out';
	$proxy->hold_reply(op => 'multi', times => 0);
	$main->wait_value("SELECT lease_remaining FROM zk_session", '00:00:00');
	$waiting{$_}->query_start($_) foreach keys %waiting;
	$cut{cancelled}->query_start('VACUUM t');
	$main->wait_event($_, 'guard') foreach values %waiting, $cut{cancelled};
	fails({ sqlstate => $cut{cancelled}->cancelled }, '57014', 'one is cancelled');
	$cut{'timed out'}->query("SET statement_timeout = '10ms'");
	fails($cut{'timed out'}->try('CREATE DATABASE d_late'), '57014', 'statement_timeout ends one',
		context => qr/^while waiting for proof of ZooKeeper locks before a command that cannot be rolled back: /);
	ok($other->try('VACUUM t')->{ok}, 'who holds no lock is not kept');
	ok($_->busy, 'it waits: ' . $_->{sql}) foreach values %waiting;
	is_deeply(everything(), $before, 'nothing has been done');
	$proxy->clear;
	$main->reconnect($proxy);
	ok($waiting{$_}->result->{ok}, "it goes on: $_") foreach sort keys %waiting;
	$main->assert_log($mark, qr/LOG:  process \d+ acquired proof of its ZooKeeper locks before a command that cannot be rolled back after \d+ ms\n/,
		'the log tells of it');
	isnt($main->value("SELECT oid FROM pg_database WHERE datname = 'd_new'"), '', 'and they have their effect');
	is($main->value("SELECT count(*) FROM pg_database WHERE datname IN ('d_old', 'd_late')"), 0, 'of which no other was done');
	$_->disconnect foreach values %waiting, values %cut;
};

$main->value("DROP SUBSCRIPTION $_") foreach split /\n/, $main->value('SELECT subname FROM pg_subscription');
done_clean($zk, $main);
