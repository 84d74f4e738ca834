# Copyright (c) 2026, zklock contributors
#
# Readers and writers in SQL, on two servers, and with Curator's InterProcessReadWriteLock,
# all on one path. No reader ever overlaps a writer, and readers do overlap readers.

use Zklock::Test;
use Zklock::JavaPeer;
use Zklock::Util qw(overlaps);

my ($zk, $a, $b) = cast('a b', conf => ["zklock.path_dialects = '/*=curator_rw'"]);
my $java = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);
my ($s, $t, $r) = ($a->session(name => 's'), $a->session(name => 't'), $b->session(name => 'r'));
my $path = '/rw/lock';

my $read      = "zk_lock_shared('$path')";
my $read_now  = "zk_try_lock_shared('$path')";
my $unread    = "zk_unlock_shared('$path')";
my $write     = "zk_lock('$path')";
my $write_now = "zk_try_lock('$path')";
my $unwrite   = "zk_unlock('$path')";

subtest 'readers share, a writer waits for all of them, and later readers for the writer' => sub {
	is($s->query("SELECT $read"), 't', 'a reads');
	is($java->acquire('reader', $path, -1, 'read'), 1, 'Curator reads at the same time');
	is($r->query("SELECT $read"), 't', 'and b does');
	is($t->query("SELECT $write_now"), 'f', 'nobody may write');
	$t->start_queued("SELECT $write");
	my $writer = $java->acquire_start('writer', $path, -1, 'write');
	wait_until { $zk->children($path) == 5 } 'two writers to queue';

	my $late = $b->session(name => 'late');
	$late->start_waiting("SELECT $read");
	is($late->busy, 1, 'a reader behind writers waits');
	$s->query("SELECT $unread");
	$java->release('reader');
	ok($t->busy, 'a writer waits for the last reader');
	$r->query("SELECT $unread");
	is($t->finish, 't', 'and then writes');
	ok(!$java->ready($writer), 'the next writer waits');
	ok($late->busy, 'as do readers');
	$t->query("SELECT $unwrite");
	is($java->result($writer), 1, 'Curator writes next');
	is($s->query("SELECT $read_now"), 'f', 'while nobody reads');
	ok($late->busy, 'nor waits in vain');
	$java->release('writer');
	is($late->finish, 't', 'then the reader behind them reads');
	$late->query("SELECT $unread");
};

subtest 'a writer who reads as well has two nodes with one sequence' => sub {
	$zk->shell->create("$path/_c_00000000-0000-4000-8000-000000000000-${_}0000000000", ephemeral => 1)
	  foreach qw(__WRIT__ __READ__);
	$s->start_waiting("SELECT $read");
	$t->start_waiting("SELECT $write");
	$zk->shell->delete("$path/_c_00000000-0000-4000-8000-000000000000-__WRIT__0000000000");
	is($s->finish, 't', 'who stops to write lets readers in');
	$s->query("SELECT $unread");
	ok($t->busy, 'but no writer');
	$zk->shell->delete("$path/_c_00000000-0000-4000-8000-000000000000-__READ__0000000000");
	is($t->finish, 't', 'until it stops to read');
	$t->query("SELECT $unwrite");
};

subtest 'no writer overlaps a reader or writer, of all at once' => sub {
	# Each tells when it had just got the lock and when it was about to release it, by one clock.
	# Whatever overlaps then overlapped indeed.
	$_->query("CREATE FUNCTION pg_temp.work(sql_lock text, sql_unlock text) RETURNS SETOF text
		LANGUAGE plpgsql AS \$\$
		DECLARE
			start timestamptz;
		BEGIN
			FOR i IN 1 .. 25 LOOP
				EXECUTE sql_lock;
				start := clock_timestamp();
				PERFORM count(*) FROM generate_series(1, 20000);
				RETURN NEXT format('%s %s', extract(epoch FROM start) * 1000000,
					extract(epoch FROM clock_timestamp()) * 1000000);
				EXECUTE sql_unlock;
			END LOOP;
		END \$\$") foreach my @sessions = map { ($a, $b)[ $_ % 2 ]->session(name => "sql $_") } 0 .. 7;
	my @intervals;
	foreach my $i (0 .. $#sessions)
	{
		my ($lock, $unlock) = $i < 4 ? ($write, $unwrite) : ($read, $unread);
		$sessions[$i]->query_start("SELECT string_agg(w, ',') FROM pg_temp.work(\$q\$SELECT $lock\$q\$, \$q\$SELECT $unlock\$q\$) w");
	}
	my @working = map { $java->intervals_start(25, $path, 2, $_) } qw(write write read read);
	foreach my $i (0 .. $#sessions)
	{
		my @mine = split(/,/, $sessions[$i]->finish);
		is(scalar(@mine), 25, $sessions[$i]->name . ' was served each time');
		push @intervals, map { [ split(/ /), $i < 4 ? 'exclusive' : 'shared', $sessions[$i]->name ] } @mine;
	}
	foreach my $i (0 .. $#working)
	{
		my @mine = @{ $java->result($working[$i]) };
		is(scalar(@mine), 25, "Java thread $i was served each time");
		push @intervals, map { [ @$_, $i < 2 ? 'exclusive' : 'shared', "Java $i" ] } @mine;
	}

	is(scalar(@intervals), 300, 'all of it is told');
	is_deeply([ overlaps(@intervals) ], [], 'no writer overlaps a reader or writer');
};

$java->close_session;
done_clean($zk, $a, $b);
