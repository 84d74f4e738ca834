# Copyright (c) 2026, zklock contributors
#
# SQL sessions and Java threads with Curator's InterProcessSemaphoreV2 share permits.

use Zklock::Test;
use Zklock::JavaPeer;
use Zklock::Semaphore;
use Zklock::Util qw(most_at_once);

my ($zk, $a, $b) = cast('a b');
my $java = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);
Zklock::Semaphore::cast($zk, $a, $b);
my @s     = ((map { $a->session(name => "a$_") } 1 .. 3), (map { $b->session(name => "b$_") } 1 .. 3));

sub wait_children($turns, $leases)
{
	wait_until { turns() == $turns && leases() == $leases }
	sub { "$turns turns and $leases leases\n" . $a->describe_locks . $b->describe_locks };
	return;
}

subtest 'SQL waits for a permit of Java, and Java behind it' => sub {
	is($java->permit("j$_", $path, 3), 1, "Java gets permit $_") foreach 1 .. 3;
	wait_children(0, 3);
	is(acquire($s[0], 3, '0'), 'f', 'SQL gets none');
	is(acquire($s[0], 3, '100ms'), 'f', 'nor in a while');
	wait_children(0, 3);
	acquire_start($s[0], 3);
	wait_children(1, 4);
	is($java->permit('j4', $path, 3, 100), 0, 'Java waits in vain behind it');
	wait_children(1, 4);
	my $waits = $java->permit_start('j4', $path, 3);
	wait_children(2, 4);
	ok($s[0]->busy, 'SQL waits');
	$java->permit_release('j1');
	is($s[0]->finish, 't', 'and gets the permit that Java releases');
	ok(!$java->ready($waits), 'who asked in Java later waits on');
	release($s[0]);
	is($java->result($waits), 1, 'and gets the one that SQL releases');
};

subtest 'Java, which came first, is served before SQL' => sub {
	my $waits = $java->permit_start('j5', $path, 3);
	wait_children(1, 4);
	acquire_start($s[0], 3);
	wait_children(2, 4);
	is(acquire($s[1], 3, '0'), 'f', 'nobody passes by');
	$java->permit_release('j2');
	is($java->result($waits), 1, 'Java, which came first, is served first');
	ok($s[0]->busy, 'SQL waits');
	wait_children(1, 4);
	$java->permit_release('j3');
	is($s[0]->finish, 't', 'and is served next');
};

subtest 'a Java service whose session ends leaves its permits to others' => sub {
	acquire_start($s[$_], 3) foreach 1, 3;
	wait_children(2, 4);
	$java->close_session;
	is($s[$_]->finish, 't', $s[$_]->name . ' gets a permit when the Java session ends') foreach 1, 3;
	wait_children(0, 3);
	$java->connect($zk->connect_string);
	is($java->permit('j6', $path, 3, 100), 0, 'Java gets none');
	release($s[0]);
	is($java->permit('j6', $path, 3), 1, 'until SQL releases one');
	$s[1]->disconnect;
	is($java->permit('j6', $path, 3), 1, 'or a session ends');
	$java->permit_release('j6') foreach 1, 2;
	release($s[3]);
	wait_children(0, 0);
	$s[1] = $a->session(name => 'a2');
};

subtest 'of six Java threads and six sessions never more than three are inside' => sub {
	# Each notes when it was certainly inside: after it got the permit, and before it gave it
	# back. All clocks are the one of this machine.
	my ($rounds, $sleep) = (8, 20);
	my $microseconds = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
	$_->value('CREATE TABLE inside (began bigint, ended bigint)') foreach $a, $b;
	foreach my $session (@s)
	{
		$session->query_start("DO \$\$
			DECLARE
				began bigint;
			BEGIN
				FOR i IN 1 .. $rounds LOOP
					PERFORM zk_semaphore_acquire('$path', 3);
					began := $microseconds;
					PERFORM pg_sleep($sleep / 1000.0);
					INSERT INTO inside VALUES (began, $microseconds);
					PERFORM zk_semaphore_release('$path');
				END LOOP;
			END \$\$");
	}
	my @ids = map { $java->permit_rounds_start("r$_", $path, 3, $rounds, $sleep) } 1 .. 6;
	my @inside;
	foreach my $id (@ids)
	{
		my $times = $java->result($id);
		is(scalar @$times, $rounds, "a Java thread was served $rounds times");
		push @inside, @$times;
	}
	is($_->result->{error}, undef, $_->name . ' was served') foreach @s;
	foreach my $server ($a, $b)
	{
		my @times = map { [ split /\|/ ] } split /\n/, $server->value('SELECT began, ended FROM inside');
		is(scalar @times, 3 * $rounds, 'as often as it asked, ' . $server->name . ' says');
		push @inside, @times;
	}

	my $most = most_at_once(@inside);
	is(scalar @inside, 12 * $rounds, 'all have told');
	cmp_ok($most, '<=', 3, "never more than three were inside (at most $most)");
};

$java->close_session;
done_clean($zk, $a, $b);
