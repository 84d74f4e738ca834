# Copyright (c) 2026, zklock contributors
#
# Sessions of one server take turns without asking ZooKeeper, and yet nobody is overtaken: neither a
# session that waits for a listing, nor a foreigner.

use Zklock::Test;

my ($zk, $proxy, $a) = cast('a', proxied => 'a');
my $shell = $zk->shell;
my $path  = '/t/requests';
my @s     = map { $a->session } 1 .. 50;

subtest 'a session that waits for a listing is not overtaken by one that needs none' => sub {
	$s[0]->query("SELECT zk_lock('$path')");
	# What comes and goes elsewhere uses up the watch.
	$shell->delete($shell->create("$path/_c_6f9619ff-8b86-4d01-b42d-00cf4fc964ff-lock-", ephemeral => 1, sequence => 1));
	$a->settle;
	$proxy->hold_reply_of($s[1], "SELECT zk_lock('$path')", op => 'getChildren', path => "^$path\$");
	# This one comes too late for that listing, and waits for the next.
	$s[2]->start_waiting("SELECT zk_lock('$path')");
	$s[3]->start_waiting("SELECT zk_lock_shared('$path')");
	$proxy->heal;
	$a->wait_queued($_) foreach @s[ 1 .. 3 ];
	$s[0]->hands_over($path, $s[1], 'who came first is first');
	ok($s[$_]->busy, 'who came later waits') foreach 2, 3;
	$s[1]->hands_over($path, $s[2], 'and follows');
	ok($s[3]->busy, 'before who came last');
	$s[2]->hands_over($path, $s[3], 'who follows then');
	$s[3]->query("SELECT zk_unlock_shared('$path')");
};

subtest 'a foreigner comes after those who were there before it, and before all others' => sub {
	$a->value('CREATE TABLE served (number serial, pid int)');
	$s[0]->query("SELECT zk_lock('$path')");
	# The lock is released when the row is there for all to see.
	my $take = "DO \$\$ BEGIN PERFORM zk_xact_lock('$path');"
	  . ' INSERT INTO served (pid) VALUES (pg_backend_pid()); END $$';
	$_->start_waiting($take) foreach @s[ 1 .. 29 ];
	my $kazoo = $shell->lock_start('kazoo', $path);
	wait_until { $zk->children($path) == 2 } 'the foreigner to queue';
	$a->settle;
	$proxy->asked;
	$_->start_waiting($take) foreach @s[ 30 .. 49 ];
	wait_until { $zk->children($path) == 3 } 'those who come after it to have their own node';
	$a->settle;
	my $counts = $proxy->asked;
	cmp_ok($counts->{create2} - 1, '<=', 1, 'they share one node, too');
	cmp_ok($counts->{getChildren} - 1, '<=', 3, 'and look around for it a few times, not twenty');
	$s[0]->query("SELECT zk_unlock('$path')");
	is($shell->result($kazoo), 1, 'the foreigner gets it');
	is($a->value('SELECT count(*) FROM served'), 29, 'right after the 29 who were there before it');
	is($a->lock_count("path = '$path' AND state = 'waiting'"), 20, 'while those who came after it wait');
	is( $a->value('SELECT string_agg(pid::text, \' \' ORDER BY number) FROM served'),
		join(' ', map { $_->pid } @s[ 1 .. 29 ]),
		'who came in this order, too');
	$shell->unlock('kazoo');
	$_->finish foreach @s[ 1 .. 49 ];
	is($a->value('SELECT count(*) FROM served'), 49, 'then they have their turn');
};

subtest 'sessions that come back again and again do not keep a foreigner out' => sub {
	$a->value('CREATE TABLE stop (); CREATE SEQUENCE turns');
	foreach my $session (@s[ 0 .. 19 ])
	{
		$session->query_start("DO \$\$ BEGIN FOR i IN 1 .. 100000 LOOP
			PERFORM zk_lock('$path'); PERFORM nextval('turns'); PERFORM zk_unlock('$path');
			EXIT WHEN EXISTS (SELECT FROM stop);
		END LOOP; END \$\$");
	}
	foreach my $round (1 .. 10)
	{
		my $turns = 'SELECT last_value FROM turns';
		my $begun = $a->value($turns);
		wait_until { $a->value($turns) > $begun + 50 } 'the sessions to take turns';
		my $waits = $shell->lock_start('kazoo', $path);
		# Its node is there, or has been: then it holds the lock.
		wait_until { (grep { /__lock__/ } $zk->children($path)) || $shell->ready($waits) } 'the foreigner to queue';
		$a->settle;
		my $before = $a->value($turns);
		$shell->result($waits) == 1 or die 'kazoo did not get the lock';
		my $holding = $a->value($turns);
		$a->settle;
		is($a->value($turns), $holding, "round $round: a foreigner gets it, and nobody else meanwhile");
		cmp_ok($holding - $before, '<=', 20, 'as soon as it is noticed, after one turn of each at most');
		$shell->unlock('kazoo');
	}
	$a->value('INSERT INTO stop DEFAULT VALUES');
	$_->finish foreach @s[ 0 .. 19 ];
};

done_clean($zk, $a);
