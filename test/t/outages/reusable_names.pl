# Copyright (c) 2026, zklock contributors
#
# Reusable names of nodes: those of dialect hive, of elections with names zookeeper, and of an element's claim tell
# nobody's node from another's. While a server is cut off, or its worker restarts, a path is deleted with its nodes and
# made again, and the same names are other clients' now. Nobody takes these for his own: who waits queues again behind
# them, who held has lost what he held, a COMMIT under it fails, and a node that is not ours is not deleted.
#
# Server a talks to ZooKeeper through a proxy. Its session never expires.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT lost node_of token unlock);
use Zklock::Election;

my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '20s');
my ($id, $shell) = ($a->session_id, $zk->shell);
$a->value('CREATE TABLE work (n int)');
$a->set_conf('zklock.path_dialects' => '/*=hive', 'zklock.commit_guard' => 'quorum');
$a->wait_value('SHOW zklock.path_dialects', '/*=hive');

my ($exclusive, $shared, $candidate) = ('LOCK-EXCLUSIVE-', 'LOCK-SHARED-', 'n_');

# While it lasts, ZooKeeper keeps what server a has.
my %outage = (
	'its connection is cut' => sub ($happens) {
		$a->cut_off($proxy);
		$happens->();
		$a->reconnect($proxy);
	},
	'its worker restarts' => sub ($happens) {
		$a->cut_off($proxy);
		$a->restart_worker;
		$happens->();
		$a->reconnect($proxy);
	});

sub foreign($path, $name) { return $shell->create("$path/$name", ephemeral => 1, sequence => 1, makepath => 1); }

sub foisted($path, $name)
{
	my %before = map { $_ => 1 } $zk->children($path);
	$shell->foist($id, "$path/$name");
	return map { "$path/$_" } grep { !$before{$_} } $zk->children($path);
}

# Deletes a path and makes it again. The node there has this name, and number, and is what $whose says.
sub made_again($path, $name, $number, $whose = \&foreign)
{
	$shell->delete($path, recursive => 1);
	$shell->create($path);
	my @nodes = map { $whose->($path, $name) } 0 .. $number;
	$shell->delete($_) foreach @nodes[ 0 .. $number - 1 ];
	return $nodes[-1];
}

# A session that waited queues again, behind a node that has the name of its own.
sub queues_behind($name, $path, $theirs)
{
	wait_until { !$s{$name}->busy || node_of($a, $name) =~ /2$/ } 'the session to have another node, or to be served';
	ok($s{$name}->busy, 'the session waits');
	is_deeply([ $zk->children($path) ], [ $theirs =~ s{.*/}{}r, node_of($a, $name) ], 'behind the other node');
	return;
}

# It is served, with a node and a token of its own.
sub is_served($name, $path)
{
	is($s{$name}->finish, 't', 'the session gets the lock');
	my ($node) = $zk->children($path);
	is($shell->stat("$path/$node")->{ephemeralOwner}, $id, 'with the node that is there');
	is(token($name, $path), $shell->stat("$path/$node")->{czxid} * 4096 + 1, 'whose token it has');
	unlock($name, $path);
	all_disconnect();
	return $a->assert_clean($zk, $path);
}

foreach my $outage (sort keys %outage)
{
	my $path = '/r/' . ($outage =~ s/\W/-/gr);

	subtest "who waits is not served for another client's node, while $outage" => sub {
		foreign("$path/waiter", $exclusive);
		on($a, 'waiter')->start_queued("SELECT zk_lock('$path/waiter')", "$path/waiter");
		my $theirs;
		$outage{$outage}->(sub { $theirs = made_again("$path/waiter", $exclusive, 1); });
		queues_behind('waiter', "$path/waiter", $theirs);
		$shell->delete($theirs);
		is_served('waiter', "$path/waiter");
	};

	subtest "nor for a node that this server made for something else, while $outage" => sub {
		foreign("$path/foisted", $exclusive);
		on($a, 'waiter')->start_queued("SELECT zk_lock('$path/foisted')", "$path/foisted");
		$outage{$outage}->(sub { made_again("$path/foisted", $exclusive, 1, \&foisted); });
		# Nobody else would delete it.
		is_served('waiter', "$path/foisted");
	};

	subtest "who holds has lost the lock, while $outage" => sub {
		hold($a, 'holder', "$path/holder");
		my $theirs;
		$outage{$outage}->(sub { $theirs = made_again("$path/holder", $exclusive, 0); });
		$a->wait_lock($s{holder}, 'lost', "$path/holder");
		is($a->value("SELECT count(*) || ' ' || count(pid) FROM zk_contenders('$path/holder')"), '1 0',
			'which zk_contenders() takes for nobody of this server');
		lost($a, 'holder', "$path/holder");
		$a->settle;
		$shell->delete($theirs);
		all_disconnect();
		$a->assert_clean($zk, "$path/holder");
	};

	# The name, and the session that owns the node, are those of the holder's: only the czxid is not.
	subtest "nor does he hold it by a node that this server made for something else, while $outage" => sub {
		hold($a, 'holder', "$path/mistaken");
		my $mistaken;
		$outage{$outage}->(sub { $mistaken = made_again("$path/mistaken", $exclusive, 0, \&foisted); });
		$a->wait_lock($s{holder}, 'lost', "$path/mistaken");
		lost($a, 'holder', "$path/mistaken");
		$a->settle;
		$shell->delete($mistaken);
		all_disconnect();
		$a->assert_clean($zk, "$path/mistaken");
	};

	foreach my $recurs (0, 1)
	{
		my $how = $recurs ? 'fails for a node that has the name' : 'succeeds for the node';
		subtest "a COMMIT whose quorum check is under way $how, while $outage" => sub {
			in_transaction($a, 'holder', "$path/commit$recurs", 'INSERT INTO work VALUES (1)');
			my ($theirs, $unread);
			$outage{$outage}->(
				sub {
					$s{holder}->query_start('COMMIT');
					$a->wait_event($s{holder}, 'guard');
					$theirs = made_again("$path/commit$recurs", $exclusive, 0) if $recurs;
					# The answer to the check is to be the first that tells of the node.
					$unread = $proxy->refuse(op => 'getData|exists', path => "^$path/", code => -102, times => 0);
				});
			$proxy->fired($unread);
			$proxy->clear;
			is($s{holder}->result->{sqlstate}, $recurs ? '40001' : '00000', 'as it should');
			$shell->delete($theirs) if $recurs;
			all_disconnect();
			$a->assert_clean($zk, "$path/commit$recurs");
		};
	}

	subtest "a shared lock that was exclusive is held on with its new node, and lost to another, while $outage" => sub {
		hold($a, 'holder', "$path/heir");
		$s{holder}->query("SELECT zk_lock_shared('$path/heir')");
		my $token = token('holder', "$path/heir");
		unlock('holder', "$path/heir");
		$outage{$outage}->(sub { });
		my ($node) = $zk->children("$path/heir");
		like($node, qr/^$shared/, 'its node is a shared one');
		$zk->wait_watched("$path/heir/$node", $id);
		$a->settle;
		is(token('holder', "$path/heir"), $token, 'the lock is held, with the token that it had');
		my $theirs;
		$outage{$outage}->(sub { $theirs = made_again("$path/heir", $shared, 0); });
		$a->wait_lock($s{holder}, 'lost', "$path/heir");
		is($s{holder}->query("SELECT zk_unlock_shared('$path/heir')"), 'f', 'the lock is lost');
		$shell->delete($theirs);
		all_disconnect();
		$a->assert_clean($zk, "$path/heir");
	};

	subtest "an element that a transaction has taken is another's, while $outage" => sub {
		my $element = on($a, 'taker')->query("SELECT zk_queue_offer('$path/queue', 'x')");
		$s{taker}->query('BEGIN');
		is($s{taker}->query("SELECT element FROM zk_xact_queue_take('$path/queue')"), $element, 'it is taken');
		$outage{$outage}->(
			sub {
				$s{taker}->query_start('COMMIT');
				$a->wait_event($s{taker}, 'guard');
				$shell->delete("$path/queue/$element/claim");
				$shell->create("$path/queue/$element/claim", ephemeral => 1);
			});
		is($s{taker}->result->{sqlstate}, '40001', 'the COMMIT fails');
		$a->settle;
		ok($shell->exists("$path/queue/$element/claim"), 'who has it now keeps it');
		$shell->delete("$path/queue", recursive => 1);
		all_disconnect();
		$a->assert_clean($zk, "$path/queue");
	};

	my $election = Zklock::Election->new($zk, "$path/election");
	my $stand = sub { $a->set_conf('zklock.elections' => "$path/election=zookeeper"); };

	# It leads when the other node is gone, and not before.
	my $leads_after = sub ($theirs) {
		$a->wait_value(q{SELECT state || ' ' || "position" FROM zk_elections}, 'ready 2');
		is($election->leads($a), 'f', 'the server does not lead');
		$shell->delete($theirs);
		$election->wait_state($a, 'elected');
		my ($node) = $zk->children("$path/election");
		is($election->term($a), $shell->stat("$path/election/$node")->{czxid} * 4096 + 1, 'then it does, in its own term');
	};

	subtest "no server leads for another client's node, while $outage" => sub {
		foreign("$path/election", $candidate);
		$stand->();
		$election->wait_state($a, 'ready');
		my $theirs;
		my $mark = $a->log_mark;
		$outage{$outage}->(sub { $theirs = made_again("$path/election", $candidate, 1); });
		wait_until { $zk->children("$path/election") == 2 || $election->leads($a) eq 't' } 'the candidate to stand again';
		$leads_after->($theirs);
		my @elected = $a->log_since($mark) =~ /in state "elected"/g;
		is(scalar @elected, 1, 'it has led once');
	};

	subtest "a leader leads no more, and to resign deletes no other client's node, while $outage" => sub {
		my $theirs;
		my $resigns = on($a, 'resigns');
		$stand->();
		$election->wait_state($a, 'elected');
		my ($number) = map { /(\d+)$/ } $zk->children("$path/election");
		$outage{$outage}->(
			sub {
				$resigns->query_start("SELECT zk_resign('$path/election')");
				$a->wait_event($resigns, 'lock');
				$theirs = made_again("$path/election", $candidate, $number);
			});
		ok(defined $resigns->result, 'zk_resign returns');
		$zk->wait_children("$path/election", 2);
		ok($shell->exists($theirs), 'the other node is there');
		$leads_after->($theirs);
		$a->set_conf('zklock.elections' => '');
		$a->wait_value('SELECT count(*) FROM zk_elections', 0);
		all_disconnect();
		$a->assert_clean($zk, "$path/election");
	};
}

# ZooKeeper refuses to read the node once, as it does where an ACL forbids it.
subtest "who may not read its node is not served for another client's either" => sub {
	my $path = '/r/unreadable';
	foreign($path, $exclusive);
	on($a, 'waiter')->start_queued("SELECT zk_lock('$path')", $path);
	my $theirs;
	$a->cut_off($proxy);
	$theirs = made_again($path, $exclusive, 1);
	$proxy->refuse(op => 'getData', path => "^$path/", code => -102);
	$a->reconnect($proxy);
	queues_behind('waiter', $path, $theirs);
	$shell->delete($theirs);
	is_served('waiter', $path);
};

subtest 'a session is not served behind a node of which nobody knows whose it is' => sub {
	my $path = '/r/behind';
	hold($a, 'holder', $path);
	$a->cut_off($proxy);
	my $theirs = made_again($path, $exclusive, 0);
	unlock('holder', $path);
	my $refused = $proxy->refuse(op => 'exists', path => "^$path/", code => -102);
	$a->reconnect($proxy);
	$proxy->fired($refused);
	on($a, 'waiter')->query_start("SELECT zk_lock('$path')");
	$zk->wait_children($path, 2);
	wait_until { !$s{waiter}->busy || $zk->watched($theirs, $id) } 'the session to wait for the other client, or to be served';
	ok($s{waiter}->busy, 'it waits');
	$shell->delete($theirs);
	is_served('waiter', $path);
};

subtest "a downgrade replaces no other client's node" => sub {
	my $path = '/r/downgrade';
	hold($a, 'holder', $path);
	$s{holder}->query("SELECT zk_lock_shared('$path')");
	$proxy->hold_request_of($s{holder}, "SELECT zk_unlock('$path')", op => 'multi', path => "^$path/");
	my $theirs = made_again($path, $exclusive, 0);
	$proxy->heal;
	is($s{holder}->finish, 't', 'it unlocks the exclusive one');
	$a->wait_lock($s{holder}, 'lost', $path);
	is($s{holder}->query("SELECT zk_unlock_shared('$path')"), 'f', 'the lock is lost');
	is_deeply([ map { "$path/$_" } $zk->children($path) ], [$theirs], 'and the other client has its node');
	$shell->delete($theirs);
	all_disconnect();
	$a->assert_clean($zk, $path);
};

is($a->session_id, $id, 'it was the same session all the time');
done_clean($zk, $a);
