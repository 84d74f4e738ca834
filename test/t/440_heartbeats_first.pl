# Copyright (c) 2026, zklock contributors
#
# A role asks for as much as it can, and nobody else loses a lock: heartbeats overtake all
# requests that wait to be sent.

use Zklock::Test;
use Zklock::Cast;

# What mallory does is bounded by its amount, not by time; so slow machines only take longer.
my $clients = 85;
my $rounds  = 8;

# Deep paths fill a small heap.
my $zk    = Zklock::ZooKeeper->standalone(heap => 1024, request_log => 0);
my $proxy = Zklock::Proxy->start($zk);
my $a     = Zklock::Server->new(
	'a',
	zookeeper       => $zk,
	max_connections => 120,
	conf            => [ "zklock.session_timeout = '6s'", "log_statement = 'none'" ]);

subtest 'a flood of long random paths costs nobody a lock' => sub {
	hold($a, 'victim', '/victim');
	my $token = $s{victim}->query("SELECT zk_fencing_token('/victim')");
	my $mark  = $a->log_mark;

	# 1 KB of path, as deep as can be, and as deep as is created.
	my @mallory = map { $a->session(name => "mallory $_") } 1 .. $clients;
	foreach my $i (0 .. $#mallory)
	{
		my $levels = $i % 2 ? 500 : 13;
		$mallory[$i]->query_start("DO \$\$ BEGIN FOR i IN 1 .. $rounds LOOP
				BEGIN
					PERFORM zk_lock('/m/' || random() || repeat('/a', $levels), '5s');
				EXCEPTION WHEN OTHERS THEN
				END;
				PERFORM zk_unlock_all();
			END LOOP; END \$\$");
	}
	my %seen;
	wait_until
	{
		$seen{ $a->value("SELECT state FROM zk_locks WHERE path = '/victim'") }++;
		!grep { $_->busy } @mallory;
	}
	'mallory to be done', 300;
	ok($_->result->{ok}, $_->name . ' has done its worst') foreach @mallory;
	is_deeply([ keys %seen ], ['held'], 'the lock was held all the time');
	unlike($a->log_since($mark), qr/no longer proved to be alive|[Ll]ocks lost/, 'the log knows of no doubt');
	is($s{victim}->query("SELECT zk_fencing_token('/victim')"), $token, 'and its holder has it still');
	$_->disconnect foreach @mallory;
	all_disconnect();
};

subtest 'a heartbeat does not wait for the answers to other calls' => sub {
	my $b = Zklock::Server->new('b', zookeeper => $proxy, conf => ["zklock.session_timeout = '60s'"]);
	hold($b, 'greedy', '/n/0');
	is($s{greedy}->query("SELECT count(*) FROM generate_series(1, 1500) i WHERE zk_lock('/n/' || i)"), 1500, 'many locks');
	$proxy->blackhole('replies');
	$proxy->reset_counts;
	$s{greedy}->query_start('SELECT zk_unlock_all()');
	$b->wait_value("SELECT count(*) FROM zk_locks WHERE state = 'held'", 0);
	# With every answer outstanding, nothing but what is urgent is sent.
	$proxy->wait_all_sent;
	my $beats = $proxy->counts->{multi} || 0;
	wait_until { ($proxy->counts->{multi} || 0) >= $beats + 3 } 'heartbeats';
	my $deletes = $proxy->counts->{delete} || 0;
	cmp_ok($deletes, '>=', 30, 'deletions are sent');
	cmp_ok($deletes, '<', 600, 'and heartbeats go out while most of them wait for their turn');
	$proxy->heal;
	ok($s{greedy}->result->{ok}, 'all is released in the end');
	all_disconnect();
	$b->assert_clean($zk, '/n/0');
	$b->stop;
};

$a->assert_clean($zk, '/victim');
done_testing;
