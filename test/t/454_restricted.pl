# Copyright (c) 2026, zklock contributors
#
# A table's owner has others' sessions run its functions when they maintain the table. There,
# in PostgreSQL's security-restricted operations, locks cannot be had or given up.

use Zklock::Test;
use Zklock::Cast qw(fails);

my ($zk, $a) = cast('a');
my $s  = $a->session;
$a->value($_) foreach 'CREATE ROLE mallory LOGIN', 'GRANT CREATE ON SCHEMA public TO mallory',
  'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory', "ALTER ROLE mallory SET zklock.allowed_paths = '/m/*'";

my $m = $a->session(user => 'mallory');

# What she does is in a function that is changed at will, and can only be called by others.
# She says it is immutable: else it could not be in an index. Maintenance has another search_path.
sub trap($call)
{
	$m->query(qq{CREATE OR REPLACE FUNCTION trap(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE
		SET search_path = public AS \$\$
		BEGIN
			IF session_user <> 'mallory' THEN
				PERFORM $call;
			END IF;
			RETURN i;
		END \$\$});
	return;
}
trap('1');
$m->query($_)
  foreach 'CREATE TABLE bait AS SELECT generate_series(1, 10) i',
  'CREATE INDEX bait_trap ON bait (trap(i))',
  'CREATE MATERIALIZED VIEW view AS SELECT trap(i) FROM bait',
  # Maintenance does not look at tables that have not changed.
  'INSERT INTO bait VALUES (11)';

my @maintenance = (
	'ANALYZE bait', 'VACUUM FULL bait', 'REINDEX TABLE bait', 'CLUSTER bait USING bait_trap',
	'CREATE INDEX another ON bait (trap(i + 1))', 'REFRESH MATERIALIZED VIEW view');

sub refused($sql, $call, %says)
{
	return fails($s->try($sql), '42501', "$sql: $call is refused", %says);
}

subtest 'maintenance by a superuser takes no lock for the owner of the table' => sub {
	trap(q{zk_lock('/victim', '0')});
	refused($_, 'zk_lock', message => 'cannot use ZooKeeper locks within security-restricted operation') foreach @maintenance;
	is($a->lock_count, 0, 'nobody holds a lock');
	is(scalar($zk->children('/')), 1, 'and no node was created') or diag join ' ', $zk->children('/');
};

subtest 'whatever function it calls' => sub {
	foreach my $call (
		(map { ("$_('/victim', '0')", "$_(ARRAY['/victim'], '0')") } qw(zk_lock zk_lock_shared zk_xact_lock zk_xact_lock_shared)),
		(map { "$_('/victim')" } qw(zk_try_lock zk_try_lock_shared zk_try_xact_lock zk_try_xact_lock_shared)),
		(map { "$_('/victim/a', '/', '0')" } qw(zk_lock_tree zk_lock_tree_shared zk_xact_lock_tree zk_xact_lock_tree_shared)),
		q{zk_semaphore_acquire('/victim', 3, '0')})
	{
		trap($call);
		refused('ANALYZE bait', $call);
	}
	is($a->lock_count, 0, 'nobody holds a lock');
};

subtest 'nor does it release any' => sub {
	$s->query("SELECT zk_lock('/held'), zk_lock_shared('/shared'), zk_lock_tree('/tree/a', '/tree'), zk_semaphore_acquire('/semaphore', 3)");
	my $held = $a->lock_count("state = 'held'");
	foreach my $call (
		"zk_unlock('/held')", "zk_unlock(ARRAY['/held'])", "zk_unlock_shared('/shared')",
		"zk_unlock_shared(ARRAY['/shared'])", "zk_unlock_tree('/tree/a', '/tree')",
		"zk_unlock_tree_shared('/tree/a', '/tree')", 'zk_unlock_all()', "zk_semaphore_release('/semaphore')",
		"zk_fencing_token('/held')")
	{
		trap($call);
		refused('ANALYZE bait', $call);
	}
	is($a->lock_count("state = 'held'"), $held, 'all are held');
	$s->query('SELECT zk_unlock_all()');
};

subtest 'nor fences any' => sub {
	trap(q{zk_fence('/victim', 9223372036854775807)});
	refused('ANALYZE bait', 'zk_fence', message => 'cannot use fencing tokens within security-restricted operation');
	is($a->value('SELECT count(*) FROM zk_fences'), '0', 'no token was remembered');
};

subtest 'autovacuum neither' => sub {
	my $mark = $a->log_mark;
	trap(q{zk_lock('/victim', '0')});
	$a->set_conf(autovacuum_naptime => '1s');
	$m->query('ALTER TABLE bait SET (autovacuum_analyze_threshold = 1, autovacuum_analyze_scale_factor = 0)');
	$m->query('INSERT INTO bait SELECT generate_series(1, 100)');
	# Before PostgreSQL 15 a session tells what it has inserted with a later statement.
	wait_until {
		$m->query('SELECT');
		$a->log_since($mark) =~ /autovacuum worker.*cannot use ZooKeeper locks within security-restricted operation/;
	} 'autovacuum to try it';
	is($a->lock_count, 0, 'nobody holds a lock');
};

subtest 'elsewhere an index can have such a function' => sub {
	$m->query(q{CREATE OR REPLACE FUNCTION trap(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE
		SET search_path = public AS $$ BEGIN PERFORM zk_xact_lock('/m/own'); RETURN i; END $$});
	ok($m->try('INSERT INTO bait VALUES (12)')->{ok}, 'who inserts calls it');
	is($m->try('ANALYZE bait')->{sqlstate}, '42501', 'who maintains the table cannot, not even its owner');
};

done_clean($zk, $a);
