# Copyright (c) 2026, zklock contributors
#
# 200 sessions on two servers, all of pgbench, increment a counter that nothing protects but a lock.
#
# A round reads the counter, takes a while, and writes the value plus one. If two sessions did so at the same time,
# one would overwrite the other's increment, and both would have written the same value. The counter is in files, so
# that both servers see it, and is the highest value in them; each value is written into the file behind that of the
# one before. So a session that is hit while it writes does no harm, although COPY writes what it has in its buffer
# when the file is closed, which PostgreSQL does after the locks of a transaction have been released.
#
# Half of the rounds use session-level locks, half transaction-level ones. After an
# undisturbed run, there is one in which sessions are terminated, and waits and holders
# cancelled, all the time. One that is cancelled goes on with its next round.
#
#   ZKLOCK_STRESS_ROUNDS   how many rounds each session does; default 20
#   ZKLOCK_STRESS_SEED     which sessions are hit; default: chosen at random, and printed

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Zklock::Process;

my $sessions_per_server = 100;
my $rounds = $ENV{ZKLOCK_STRESS_ROUNDS} || 20;
my $seed   = $ENV{ZKLOCK_STRESS_SEED}   || int(rand(1_000_000));
srand($seed);
note "$rounds rounds, seed $seed";

my ($zk, @servers) = cast('a b',
	timeout         => '30s',
	max_connections => $sessions_per_server + 20,
	conf            => [ "log_statement = 'none'", "log_min_messages = 'warning'" ]);
my $all = $rounds * $sessions_per_server * @servers;

my $files = 32;
my $dir = PostgreSQL::Test::Utils::tempdir;
chmod 0755, $dir;

foreach my $server (@servers)
{
	$server->safe_psql(
		'postgres', qq{
		CREATE TABLE rounds (value bigint, token bigint);

		CREATE FUNCTION counter() RETURNS bigint LANGUAGE sql VOLATILE AS \$\$
			SELECT max(nullif(trim(pg_read_file('$dir/' || i, 0, 100), E'\\n'), '')::bigint)
			FROM generate_series(0, $files - 1) i \$\$;

		CREATE FUNCTION increment(path text) RETURNS void LANGUAGE plpgsql AS \$\$
		DECLARE
			n bigint;
		BEGIN
			n := counter() + 1;
			PERFORM count(*) FROM generate_series(1, 10000);
			EXECUTE format('COPY (SELECT %s) TO %L', n, '$dir/' || n % $files);
			INSERT INTO rounds VALUES (n, zk_fencing_token(path));
		END \$\$;

		CREATE FUNCTION session_round(path text) RETURNS void LANGUAGE plpgsql AS \$\$
		BEGIN
			ASSERT zk_lock(path), 'no lock';
			PERFORM increment(path);
			ASSERT zk_unlock(path), 'not held';
		EXCEPTION WHEN query_canceled THEN
			-- An error does not release session-level locks.
			PERFORM zk_unlock_all();
		END \$\$;

		CREATE FUNCTION xact_round(path text) RETURNS void LANGUAGE plpgsql AS \$\$
		BEGIN
			ASSERT zk_xact_lock(path), 'no lock';
			PERFORM increment(path);
		EXCEPTION WHEN query_canceled THEN
			RETURN;
		END \$\$;
	});
}

sub counter { return $servers[0]->value('SELECT counter()'); }

# All sessions do their rounds. Returns how many were seen to the end, and what pgbench has said of others.
sub run($name, $disturb)
{
	foreach my $i (0 .. $files - 1)
	{
		unlink "$dir/$i";
		append_to_file("$dir/$i", $i == 0 ? "0\n" : '');
		chmod 0666, "$dir/$i";
	}
	$_->value('TRUNCATE rounds') foreach @servers;
	append_to_file("$dir/${name}_$_", "SELECT ${_}_round('/s/$name');\n") foreach qw(session xact);
	my @runs = map {
		Zklock::Process->new(
			name => "pgbench_${name}_" . $_->name,
			argv => [
				'pgbench', '-n', '-c', $sessions_per_server, '-t', $rounds,
				(map { ('-f', "$dir/${name}_$_") } qw(session xact)), '-h', $_->host, '-p', $_->port, 'postgres' ])
	} @servers;
	my $done = 0;
	while (grep { $_->running } @runs)
	{
		my $next = $done + 5 + int(rand(20));
		wait_until { ($done = counter()) >= $next || !grep { $_->running } @runs } 'sessions to go on';
		$disturb->() if $done >= $next;
	}
	my @written = sort { $a->[0] <=> $b->[0] } map { map { [ split /\|/ ] } split /\n/, $_->value('SELECT * FROM rounds') } @servers;
	ok(increasing(map { $_->[0] } @written), 'each has written another value');
	ok(increasing(map { $_->[1] } @written), 'with a higher token');
	Zklock::Server->assert_clean($zk, \@servers, "/s/$name");
	return (scalar @written, join '', map { slurp_file($_->log_file) } @runs);
}

subtest 'no update is lost by two hundred sessions' => sub {
	my ($done, $said) = run('counter', sub { });
	unlike($said, qr/ERROR|FATAL|aborted/, 'no trouble');
	is($done, $all, 'all rounds are done');
	is(counter(), $all, 'no update is lost');
};

subtest 'no update is lost while sessions are terminated and cancelled all the time' => sub {
	my %hit = (terminate => 0, cancel => 0);
	my ($done, $said) = run('disturbed', sub {
		my $server = $servers[ rand @servers ];
		# Whoever it is, or one that waits, or one that holds the lock. Enough sessions must be left.
		my $whom = ("state IN ('waiting', 'held')", "state = 'waiting'", "state = 'held'")[ rand 3 ];
		my $what = rand() < 0.4 && $hit{terminate} < $sessions_per_server ? 'terminate' : 'cancel';
		$hit{$what} += $server->value(
			"SELECT count(pg_${what}_backend(pid)) FROM (SELECT pid FROM zk_locks WHERE $whom ORDER BY random() LIMIT 2) p");
	});
	note "$done rounds, $hit{terminate} terminated, $hit{cancel} cancelled";
	unlike($said, qr/(?:ERROR|FATAL|PANIC):  (?!canceling statement|terminating connection)/, 'no trouble but what was made');
	# A session that pgbench gives up has been hit, and so has a round that fails. All others are done.
	my $hit     = $hit{terminate} + $hit{cancel};
	my $aborted = () = $said =~ /client \d+ .*aborted/g;
	cmp_ok($aborted, '<=', $hit, 'no session ends but those that were hit');
	cmp_ok($done, '>=', $all - $aborted * $rounds - $hit{cancel}, 'all others have done all rounds');
	cmp_ok($hit{$_}, '>=', $all / 200, "$_: throughout") foreach sort keys %hit;
	cmp_ok($done, '<=', $all - $all / 100, 'which they noticed');
	# Each round that was seen to the end has written a value of its own. One that failed
	# may have written before; nothing else may have.
	my $counter = counter();
	cmp_ok($counter, '>=', $done, 'no update is lost');
	cmp_ok($counter, '<=', $done + $hit, 'and none made by nobody');
};

# Nor is any process left that should have gone.
$_->wait_value(
	"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()", 0)
  foreach @servers;
is($_->zk_session->{expirations}, 0, $_->name . ': the session has lived through it') foreach @servers;
done_clean($zk, @servers);
