# Copyright (c) 2026, zklock contributors
#
# How much one session can have of what all share: entries in shared memory, and bytes of
# paths in the ZooKeeper session's packets; how much one role can, of those for watches of sessions that wait for elements;
# and the reserve for superusers. sql/role_settings.sql has what counts as a session's share.
#
# The work that a session's permits cause in the worker grows with their number, not with its square, so that
# thousands of them are no burden on others. That is measured in processor time of the worker, in ticks, and not in how
# long anything takes.

use Zklock::Test;
use Zklock::Cast qw(fails);

my ($zk, $a) = cast('a', timeout => '30s', conf => ["log_statement = 'none'"]);
my $s  = $a->session;
my ($few, $many, $rounds) = (250, 1400, 100);

# What it takes to acquire and release another one, again and again
sub work
{
	my (undef, $begun) = $a->worker_effort;
	$s->query("DO \$\$ BEGIN FOR i IN 1 .. $rounds LOOP
		PERFORM zk_semaphore_acquire('/p/many', 9999, '0'); PERFORM zk_semaphore_release('/p/many');
	END LOOP; END \$\$");
	return ($a->worker_effort)[1] - $begun;
}

subtest 'many permits' => sub {
	my $other = $a->session;
	my ($work, $more) = map {
		is($s->query("SELECT count(*) FROM generate_series(1, $_) WHERE zk_semaphore_acquire('/p/many', 9999, '0')"),
			$_, "a session acquires $_ permits");
		work();
	} $few, $many - $few;
	note("$work ticks with $few permits, $more with $many");
	# Its square would be more than twice as much again.
	cmp_ok($more, '<=', 2 * ($work + 1) * $many / $few, 'the work grows with their number, and no faster');
	is($other->query("SELECT zk_lock('/p/other') AND zk_unlock('/p/other')"), 't', 'others are served');
	is($other->query("SELECT zk_semaphore_acquire('/p/many', 1, '0')"), 'f', 'the permits are held');
	$other->disconnect;
	$s->disconnect;
	$s = $a->session;
	$a->assert_clean($zk, '/p/many/leases', '/p/other');
};

$a->value('CREATE ROLE mallory LOGIN');
$a->value('CREATE ROLE trent LOGIN');
$a->value('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory, trent');

# Locks new paths until there is an error: that, with the number of locks, which it does not end
sub fill($session, $prefix)
{
	my $result = $session->try("SELECT count(zk_lock('$prefix' || i)) FROM generate_series(0, 20000) i");
	$result->{n} = $a->lock_count("state = 'held' AND pid = " . $session->pid);
	return $result;
}

# A subtest with a session of mallory's; in the end no lock is left to anybody.
sub with_mallory($name, $code)
{
	return subtest $name => sub {
		$code->($a->session(user => 'mallory'));
		$s->query('SELECT zk_unlock_all()');
		$a->wait_value('SELECT count(*) FROM zk_locks', 0);
	};
}

# A thousand bytes each.
my ($long, @long) = map { "/$_/" . 'x' x 1000 . '/' } 's' .. 'x';

with_mallory 'long paths in one session leave room for others' => sub ($m) {
	my $r = fill($m, $long);
	fails($r, '53200', 'one too many',
		message => qr/: too many paths are locked in this session$/,
		detail  => qr/must not exceed 230400 bytes, its share of the 921600 .* and 132 bytes\.$/,
		hint    => qr/"zklock\.max_locks_per_session"/);
	# A quarter of all; with path, separator and the longest name each takes 1,136 bytes or more.
	cmp_ok($r->{n}, '>=', 195, "$r->{n} locks were granted");
	cmp_ok($r->{n}, '<=', 230_400 / 1136, 'not more than the share');
	ok($m->try("SELECT zk_lock('/s/short')")->{ok}, 'a shorter path still fits');
	my $other = $a->session(user => 'mallory');
	is($other->query("SELECT zk_lock('${long}other')"), 't', 'another session, even of the same role, locks');
	is($s->query("SELECT zk_lock('${long}super')"), 't', 'so does a superuser');
	$_->query('SELECT zk_unlock_all()') foreach $m, $other, $s;
	is(fill($m, $long)->{n}, $r->{n}, 'what is released can be had again');
};

with_mallory 'when many sessions have used up the rest, superusers have a reserve' => sub (@m) {
	push @m, map { $a->session(user => 'mallory') } 2 .. 5;
	my @r = map { fill($m[$_], $long[$_]) } 0 .. $#m;
	fails($r[-1], '53200', 'there is no more',
		message => qr/: too many paths are locked$/,
		detail  => qr/must not exceed 921600 bytes, of which 57600 are reserved for superusers\.$/,
		hint    => qr/^Lock fewer paths/);
	fails($m[-1]->try("SELECT zk_try_lock('${long}another')"), '53200', 'not even for one who does not wait');
	is($s->query("SELECT zk_lock('${long}super')"), 't', 'a superuser locks a long path');
	is($s->query("SELECT count(*) FROM generate_series(1, 20) i WHERE zk_lock('${long}super' || i)"), 20, 'and twenty more');
	is($s->query("SELECT zk_lock('$long[0]0', '1ms')"), 'f', 'or waits for somebody');
};

with_mallory 'a worker that takes over knows who has what' => sub ($m) {
	my $n = fill($m, $long)->{n};
	$a->restart_worker;
	$a->wait_session;
	is($m->try("SELECT zk_lock('${long}more')")->{sqlstate}, '53200', 'the share is used up as before');
	$m->query('SELECT zk_unlock_all()');
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
	is(fill($m, $long)->{n}, $n, 'and free when all is released');
};

# Six queues, whose elements others have claimed, and sessions that wait for them: 95 kB of paths, where 60 kB have room
with_mallory 'watches of those who wait for elements are shared out among roles' => sub (@m) {
	my ($few, @queues) = ('/w/few', map { "/w$_/" . 'q' x 900 } 1 .. 6);
	my $shell = $zk->shell;
	my $name  = $s->query("SELECT zk_queue_offer('$few', 'few')");
	$s->query("SELECT count(zk_queue_offer('$_', 'x')) FROM generate_series(1, 16)") foreach @queues;
	foreach my $queue ($few, @queues)
	{
		$shell->create("$queue/$_/claim", ephemeral => 1) foreach $zk->children($queue);
	}
	push @m, map { $a->session(user => 'mallory') } 1 .. 5;
	$m[$_]->query_start("SELECT zk_queue_take('$queues[$_]')") foreach 0 .. 5;
	$a->wait_event($_, 'element') foreach @m;
	# Bytes of the claims that are watched, with what the client library adds.  A role has a quarter of 60 kB, of which
	# the watches of its queues, which are not shown, take some as well.
	my ($share, $each) = (15 * 1024, 8 + length "$queues[0]/qn-0000000000/claim");
	my $watched = sub { $each * (() = $zk->four_letter('wchp') =~ m{^/w\d/q+/qn-\d+/claim$}mg) };
	wait_until { $watched->() > $share - 7 * $each } 'mallory to have used up what a role has';
	my $trent = $a->session(user => 'trent');
	$trent->query_start("SELECT convert_from(zk_queue_take('$few'), 'UTF8')");
	$zk->wait_watched("$few/$name/claim", $a->session_id);
	$shell->delete("$few/$name/claim");
	is($trent->finish, 'few', 'another role has room, and what it waits for is watched');
	cmp_ok($watched->(), '<=', $share, 'mallory has no more');
	$_->cancel foreach @m;
	$_->disconnect foreach @m, $trent;
	$shell->delete($_, recursive => 1) foreach @queues;
};

$a->append_conf('postgresql.conf', "zklock.max_locks = 64\n");
$a->restart_connected;
$s = $a->session;

with_mallory 'a session has a quarter of the entries, and superusers have a reserve' => sub (@m) {
	push @m, map { $a->session(user => 'mallory') } 2 .. 4;
	my @r = map { fill($m[$_], "/e/$_/") } 0 .. $#m;
	is_deeply([ map { $_->{n} } @r ], [ 16, 16, 16, 12 ], 'four of 64 are left');
	fails($r[-1], '53200', 'one more is refused',
		message => 'out of shared memory for zklock',
		detail  => '60 locks are held or waited for, and the remaining 4 entries are reserved for superusers.',
		hint    => qr/"zklock\.max_locks"/);
	my $r = fill($s, '/e/super/');
	is($r->{n}, 4, 'a superuser has them');
	is($r->{detail}, '64 locks are held or waited for.', 'then there is none');
};

with_mallory 'what is given up faster than ZooKeeper answers counts until it is done' => sub ($m) {
	$zk->pause;
	my $r;
	# There is no answer to any of these, and each has a node that may exist, unless it was given up
	# before the worker took it up.
	for my $i (1 .. 1000)
	{
		$m->query("SET lock_timeout = '1ms'");
		$r = $m->try("SELECT zk_lock('/e/fast/$i')");
		last if $r->{sqlstate} ne '55P03';
	}
	is($r->{sqlstate}, '53200', 'a session that asks and gives up reaches its limit');
	cmp_ok($a->lock_count, '<=', 16, 'and leaves the others their entries');
	$zk->resume;
	$a->wait_session;
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
	$m->query('RESET lock_timeout');
	is(fill($m, '/e/fast/')->{n}, 16, 'when they are gone it has its share again');
};

# What others maintain by hand is in sql/restricted.sql.
with_mallory "autovacuum takes no lock for a table's owner" => sub ($m) {
	$a->value('GRANT CREATE ON SCHEMA public TO mallory');
	$m->query($_) foreach q{CREATE FUNCTION trap(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE SET search_path = public AS $$
		BEGIN
			IF session_user <> 'mallory' THEN PERFORM zk_lock('/victim', '0'); END IF;
			RETURN i;
		END $$},
	  'CREATE TABLE bait (i int) WITH (autovacuum_analyze_threshold = 1, autovacuum_analyze_scale_factor = 0)',
	  'CREATE INDEX ON bait (trap(i))';
	my $mark = $a->log_mark;
	$a->set_conf(autovacuum => 'on', autovacuum_naptime => '1s');
	$m->query('INSERT INTO bait SELECT generate_series(1, 100)');
	$a->assert_log($mark, qr/autovacuum worker.*cannot use ZooKeeper locks within security-restricted operation/, 'it is refused');
	is($a->lock_count, 0, 'nobody holds a lock');
};

done_clean($zk, $a);
