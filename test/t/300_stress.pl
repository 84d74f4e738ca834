# Copyright (c) 2026, zklock contributors
#
# 200 sessions on two servers increment a counter that nothing protects but a lock.
#
# A round reads the counter, takes a while, and writes the value plus one. If two sessions
# did so at the same time, one would overwrite the other's increment, and both would have
# written the same value. The counter is in files, so that both servers see it. Its even
# values are in one and its odd values in the other, so that a session that is killed while
# it writes leaves the value before in the other file.
#
# Half of the sessions use session-level locks, half transaction-level ones. After an
# undisturbed run, there is one in which sessions are terminated, and waits and holders
# cancelled, all the time.
#
#   ZKLOCK_STRESS_ROUNDS   how many rounds each session does; default 20
#   ZKLOCK_STRESS_SEED     which sessions are hit; default: chosen at random, and printed

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);
use Zklock::Util qw(default_timeout);

my $sessions_per_server = 100;
my $rounds = $ENV{ZKLOCK_STRESS_ROUNDS} || 20;
my $seed   = $ENV{ZKLOCK_STRESS_SEED}   || int(rand(1_000_000));
srand($seed);
note "$rounds rounds, seed $seed";

# The log of every request would be most of the work.
my ($zk, @servers) = cast('a b',
	zk              => { request_log => 0 },
	timeout         => '30s',
	max_connections => $sessions_per_server + 20,
	conf            => [ "log_statement = 'none'", "log_min_messages = 'warning'" ]);

my $dir = PostgreSQL::Test::Utils::tempdir;
chmod 0755, $dir;

foreach my $server (@servers)
{
	$server->safe_psql(
		'postgres', qq{
		CREATE FUNCTION counter() RETURNS bigint LANGUAGE sql VOLATILE AS \$\$
			SELECT max(nullif(trim(pg_read_file('$dir/' || i, 0, 100), E'\\n'), '')::bigint)
			FROM generate_series(0, 1) i \$\$;

		-- Returns the value written and the token under which it was.
		CREATE FUNCTION increment(path text) RETURNS text LANGUAGE plpgsql AS \$\$
		DECLARE
			n bigint;
		BEGIN
			n := counter() + 1;
			PERFORM count(*) FROM generate_series(1, 10000);
			EXECUTE format('COPY (SELECT %s) TO %L', n, '$dir/' || n % 2);
			RETURN n || ' ' || zk_fencing_token(path);
		END \$\$;

		CREATE FUNCTION session_round(path text) RETURNS text LANGUAGE plpgsql AS \$\$
		DECLARE
			result text;
		BEGIN
			IF NOT zk_lock(path) THEN
				RAISE 'no lock';
			END IF;
			result := increment(path);
			IF NOT zk_unlock(path) THEN
				RAISE 'not held';
			END IF;
			RETURN result;
		END \$\$;

		CREATE FUNCTION xact_round(path text) RETURNS text LANGUAGE plpgsql AS \$\$
		BEGIN
			IF NOT zk_xact_lock(path) THEN
				RAISE 'no lock';
			END IF;
			RETURN increment(path);
		END \$\$;
	});
}

sub set_counter($n)
{
	foreach my $i (0, 1)
	{
		unlink "$dir/$i";
		append_to_file("$dir/$i", $n % 2 == $i ? "$n\n" : '');
		chmod 0666, "$dir/$i";
	}
	return;
}

sub connect_client($client)
{
	$client->{session}->disconnect if $client->{session};
	$client->{session} = $client->{server}->session(name => $client->{name});
	return;
}

my @clients = map { {
		server => $servers[ $_ % 2 ],
		name   => "client$_",
		scope  => $_ % 4 < 2 ? 'session' : 'xact' } } 0 .. 2 * $sessions_per_server - 1;
my $all = $rounds * @clients;
my %by_fd;

sub begin($client, $path)
{
	my $sql = $client->{recover} ? 'SELECT zk_unlock_all()' : "SELECT $client->{scope}_round('$path')";

	# A session that was terminated between two rounds finds its connection closed.
	if (!eval { $client->{session}->query_start($sql); $client->{session}->dbh->{pg_socket} >= 0 })
	{
		connect_client($client);
		$client->{recover} = 0;
		return if $client->{rounds} <= 0;
		$client->{session}->query_start("SELECT $client->{scope}_round('$path')");
	}
	$by_fd{ $client->{session}->dbh->{pg_socket} } = $client;
	return;
}

# All clients do their rounds. Returns the values written, with their tokens, and how
# many rounds failed.
sub run($path, $disturb = undef)
{
	my (%token, @trouble);
	my ($done, $failed) = (0, 0);
	my %errors;
	my $progress = time;

	%by_fd = ();
	foreach my $client (@clients)
	{
		$client->{rounds}  = $rounds;
		$client->{recover} = 0;
		begin($client, $path);
	}
	while (%by_fd)
	{
		my $bits = '';
		vec($bits, $_, 1) = 1 foreach keys %by_fd;
		select($bits, undef, undef, 1);
		foreach my $fd (keys %by_fd)
		{
			next unless vec($bits, $fd, 1);
			my $client = $by_fd{$fd};
			next if $client->{session}->busy;
			delete $by_fd{$fd};
			my $result = $client->{session}->result;
			if ($client->{recover} && $result->{ok})
			{
				$client->{recover} = 0;
			}
			elsif ($result->{ok})
			{
				my ($value, $token) = split / /, $result->{text};
				push @trouble, "$value was written twice" if exists $token{$value};
				$token{$value} = $token;
				$client->{rounds}--;
				$done++;
				$progress = time;
				$disturb->($done) if $disturb;
			}
			else
			{
				$failed++ unless $client->{recover};
				$errors{ $result->{sqlstate} }++;
				push @trouble, $result->{error}
				  unless $disturb && $result->{sqlstate} =~ /^(57014|57P01|58030|08006|08000)$/;
				if ($result->{severity} eq 'FATAL')
				{
					connect_client($client);
					$client->{recover} = 0;
				}
				else
				{
					# An error does not release session-level locks.
					$client->{recover} = 1;
				}
			}
			begin($client, $path) if $client->{rounds} > 0 || $client->{recover};
		}
		die "no progress after $done rounds:\n" . join('', map { $_->describe_locks } @servers)
		  if time > $progress + default_timeout();
	}
	my @values = sort { $a <=> $b } keys %token;
	foreach my $i (1 .. $#values)
	{
		push @trouble, "$values[$i] was written with a token not above that of $values[$i - 1]"
		  if $token{ $values[$i] } <= $token{ $values[ $i - 1 ] };
	}
	splice(@trouble, 10) if @trouble > 10;
	return { values => \@values, failed => $failed, trouble => \@trouble, errors => \%errors };
}

sub counter { return $servers[0]->value('SELECT counter()'); }

subtest 'no update is lost by two hundred sessions' => sub {
	connect_client($_) foreach @clients;
	set_counter(0);
	my $run = run('/s/counter');
	is_deeply($run->{trouble}, [], 'no trouble');
	is(scalar @{ $run->{values} }, $all, 'all rounds are done');
	is(counter(), $all, 'no update is lost');
	is($run->{values}[-1], $all, 'each has written another value');
	Zklock::Server->assert_clean($zk, \@servers, '/s/counter');
};

subtest 'no update is lost while sessions are terminated and cancelled all the time' => sub {
	set_counter(0);
	my ($terminated, $cancelled) = (0, 0);
	my $next = 0;
	my $disturb = sub ($done) {
		return if $done < $next;
		$next = $done + 5 + int(rand(20));
		my $server = $servers[ rand @servers ];
		# Whoever it is, or one that waits, or one that holds the lock.
		my $whom = ("state IN ('waiting', 'held')", "state = 'waiting'", "state = 'held'")[ rand 3 ];
		my $what = rand() < 0.4 ? 'terminate' : 'cancel';
		my $hit = $server->value(
			"SELECT count(pg_${what}_backend(pid)) FROM (SELECT pid FROM zk_locks WHERE $whom ORDER BY random() LIMIT 2) p");
		$what eq 'terminate' ? ($terminated += $hit) : ($cancelled += $hit);
	};
	my $run = run('/s/disturbed', $disturb);
	note sprintf('%d terminated, %d cancelled, %d rounds failed (%s)', $terminated, $cancelled, $run->{failed},
		join(', ', map { "$_: $run->{errors}{$_}" } sort keys %{ $run->{errors} }));
	is_deeply($run->{trouble}, [], 'disturbed: no trouble but what was made');
	is(scalar @{ $run->{values} }, $all, 'all rounds are done in the end');
	cmp_ok($terminated, '>=', $all / 200, 'sessions were terminated throughout');
	cmp_ok($cancelled,  '>=', $all / 200, 'and cancelled');
	cmp_ok($run->{failed}, '>=', $all / 100, 'which they noticed');
	# Each round that was seen to the end has written a value of its own. One that failed
	# may have written before; nothing else may have.
	my $counter = counter();
	cmp_ok($counter, '>=', $all, 'no update is lost');
	cmp_ok($counter, '<=', $all + $run->{failed}, 'and none made by nobody');
	# Nobody holds anything any more: neither the sessions that are still there...
	is($_->lock_count("state = 'held'"), 0, $_->name . ': no lock is held') foreach @servers;
	Zklock::Server->assert_clean($zk, \@servers, '/s/counter', '/s/disturbed');
};

# ... nor any process that should have gone.
$_->{session}->disconnect foreach @clients;
$_->wait_value(
	"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()", 0)
  foreach @servers;
is($_->zk_session->{expirations}, 0, $_->name . ': the session has lived through it') foreach @servers;
done_testing;
