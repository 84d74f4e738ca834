# Copyright (c) 2026, zklock contributors
#
# Where there is no deadlock nobody is told of one, however much is going on, and however often
# sessions look; and nothing is written to ZooKeeper for that while nobody waits for long. And where there is one
# across servers it is found although more sessions wait for long, and hold something, than a server has room to
# tell of.
#
# ZKLOCK_LOAD_SECONDS says for how long; "make test" has no more than some seconds.

use Zklock::Test;
use Zklock::Deadlock;

use constant CROWD => 150;

my $seconds = $ENV{ZKLOCK_LOAD_SECONDS} || 6;
my ($zk, @servers) = cast('a b', max_connections => CROWD + 20, conf => ["deadlock_timeout = '2ms'"]);
my @paths   = map { "/d/p$_" } 1 .. 5;

# Locks are taken in one order, rows last and in one order as well: this never deadlocks.
foreach my $server (@servers)
{
	$server->value('CREATE TABLE t (id int PRIMARY KEY, n int)');
	$server->value('INSERT INTO t SELECT id, 0 FROM generate_series(1, 3) id');
	$server->value(<<~'SQL');
		CREATE PROCEDURE work(seconds float8) LANGUAGE plpgsql AS $$
		DECLARE
			until timestamptz := clock_timestamp() + seconds * interval '1 s';
			first int; second int; done int := 0;
		BEGIN
			WHILE clock_timestamp() < until OR done < 5 LOOP
				first := 1 + floor(random() * 4);
				second := first + 1 + floor(random() * (5 - first));
				IF random() < 0.3 THEN
					PERFORM zk_xact_lock_shared('/d/p' || first);
				ELSIF random() < 0.3 THEN
					PERFORM zk_xact_lock('/d/p' || first, '5ms');
				ELSE
					PERFORM zk_xact_lock('/d/p' || first);
				END IF;
				PERFORM zk_xact_lock('/d/p' || second);
				IF random() < 0.5 THEN
					UPDATE t SET n = n + 1 WHERE id = 1;
				END IF;
				IF random() < 0.2 AND zk_semaphore_acquire('/d/s', 2, '1 min') THEN
					PERFORM pg_sleep(random() * 0.01);
					PERFORM zk_semaphore_release('/d/s');
				END IF;
				IF random() < 0.5 THEN
					UPDATE t SET n = n + 1 WHERE id = 2;
				END IF;
				COMMIT;
				done := done + 1;
			END LOOP;
			RAISE NOTICE '% rounds', done;
		END $$
		SQL
}

my @sessions = map { my $server = $_; map { $server->session(name => $server->name . $_) } 1 .. 12 } @servers;
$_->query_start("CALL work($seconds)") foreach @sessions;
my $rounds = 0;
foreach my $session (@sessions)
{
	my $result = $session->result($seconds + 60);
	is($result->{sqlstate}, '00000', $session->name . ' was told of nothing') or diag $result->{error};
	$rounds += $1 if "@{ $result->{notices} }" =~ /(\d+) rounds/;
}
cmp_ok($rounds, '>', 100, 'much was going on');
note "$rounds rounds in $seconds s";
is(scalar(grep { $_->log_since(0) =~ /deadlock detected/ } @servers), 0, 'nor was the log');
$_->disconnect foreach @sessions;
Zklock::Server->assert_clean($zk, \@servers, @paths, '/d/s/leases', '/d/s/locks');

# What a session of the crowd holds; long names fill a record soon.
sub path($i) { return '/h/' . 'x' x 120 . $i; }

my ($a, $b) = @servers;
$_->set_conf(deadlock_timeout => '200ms') foreach @servers;
$_->wait_value('SHOW deadlock_timeout', '200ms') foreach @servers;
my ($holder) = sessions($b, 'holder');
my @crowd  = map { $a->session(name => "c$_") } 1 .. CROWD;
in_transactions($holder, @crowd);
steps('holder has /d/p');

foreach my $i (0 .. $#crowd)
{
	$crowd[$i]->query("SELECT zk_xact_lock('" . path($i) . "')");
	$crowd[$i]->query_start("SELECT zk_xact_lock_shared('/d/p')");
}
$a->wait_queued($crowd[$_], '/d/p') foreach 0, $#crowd;
my $last = pop @crowd;
my $path = path(scalar @crowd);
$holder->query_start("SELECT zk_xact_lock('$path')");
is(one_victim([ $holder, zk($path), $last, zk('/d/p', 'Share') ])->name, 'holder', 'the youngest gave up');
is(scalar(grep { !$_->result->{ok} } @crowd), 0, 'all others go on');
$_->query('COMMIT') foreach @crowd;
done_clean($zk, $a, $b);
