# Copyright (c) 2026, zklock contributors
#
# A server that locks a path again and again keeps the node for a moment. The lock then costs no request, and nobody
# notices: whoever comes from elsewhere has the node deleted, calls that do not wait come to their turn, and what is kept
# is nobody's. That nothing else stays is what all other tests show.
#
# Server a keeps a node for an hour, so that nothing depends on how fast this runs; the default is 100 ms. Server b keeps
# none.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT lost story token unlock);
use Zklock::JavaPeer;

my @conf = ("zklock.keep_idle = '1h'", "zklock.path_dialects = '/k/hive=hive, /k/kazoo=kazoo, /k/recipe=zookeeper'");
my ($zk, $proxy, $a, $b) =
  cast('a b', proxied => 'a', timeout => '30s', conf => \@conf, a => { faults => 'near' }, b => { conf => ['zklock.keep_idle = 0'] });
my $shell = $zk->shell;
my $may_be_kept = qr/^_c_[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-lock-\d{10}$/;

# A session locks the path and releases it, so often.
sub again($session, $path, $times = 1)
{
	foreach (1 .. $times)
	{
		$session->query("SELECT zk_lock('$path') AND zk_unlock('$path')") eq 't' or die "$path was not locked and released";
	}
	return;
}

# The server has locked the path twice, alone, and keeps its node.
sub keep($server, $name, $path)
{
	again(on($server, $name), $path, 2);
	my @nodes = $zk->children($path);
	is(scalar @nodes, 1, "a node of $path is kept") or diag "@nodes";
	return $nodes[0];
}

sub gone($path, $name)
{
	ok(eval { wait_until { !$zk->children($path) } "the node of $path to go", 20 }, $name) or diag $@;
	return;
}

# Locks of the server do not leave a node there, however many they are.
sub not_kept($path, $name)
{
	again($s{s}, $path, 4);
	return is(scalar($zk->children($path)), 0, "$name no node is kept");
}

# From now on nodes are kept for so long, which the worker knows when it keeps one.
sub set_keep_idle($time)
{
	$a->set_conf('zklock.keep_idle' => $time);
	wait_until { again(on($a, 's'), '/k/again', 2); $zk->children('/k/again') } 'a node to be kept';
	return;
}

# What zk_stats counts of exclusive locks
sub counts($server)
{
	my @names = qw(kept kept_grants kept_visited kept_expired kept_crowded);
	my %counts;
	@counts{@names} = split /\|/, $server->value('SELECT ' . join(', ', @names) . q( FROM zk_stats WHERE kind = 'lock' AND mode = 'exclusive'));
	return \%counts;
}

sub requests($name) { return is_deeply($proxy->asked, {}, $name); }

story 'a hot lock costs no request' => sub {
	my $path = '/k/hot';
	again(on($a, 's'), $path);
	is(scalar($zk->children($path)), 0, 'the node of a path that was locked once does not stay');
	my $node = keep($a, 's', $path);
	like($node, $may_be_kept, 'one that may be kept has a name that shows it');
	$proxy->asked;
	my @tokens;
	foreach my $statement (
		("DO \$\$ BEGIN FOR i IN 1 .. 20 LOOP PERFORM zk_lock('$path'); PERFORM zk_unlock('$path'); END LOOP; END \$\$",
			"BEGIN; SELECT zk_xact_lock('$path'); COMMIT", "SELECT zk_try_lock('$path') AND zk_unlock('$path')") x 2)
	{
		$s{s}->query($statement);
		# The next one has it while the first one's transaction may still be ending.
		is(on($a, 'other')->query("SELECT zk_lock('$path')"), 't', 'another session gets it');
		push @tokens, token('other', $path);
		is($s{s}->query("SELECT zk_try_lock('$path')"), 'f', 'and alone');
		unlock('other', $path);
	}
	requests('no request in fifty locks');
	ok(increasing(@tokens), 'each has a token of its own, and later ones higher ones') or diag "@tokens";
	is_deeply([ $zk->children($path) ], [$node], 'all under one node');
};

story 'who waits behind a holder gets a lock that is kept, too, and nobody is passed' => sub {
	my $path = '/k/queue';
	keep($a, 's', $path);
	hold($a, 's', $path);
	queue($a, $_, $path) foreach qw(second third);
	hand_on($path, qw(s second third));
	is(scalar($zk->children($path)), 1, 'and its node is kept again');
};

story 'a deletion of our own is no newcomer' => sub {
	my $path = '/k/own';
	on($a, 's')->query("BEGIN; SELECT zk_xact_lock('$path')");
	hold($a, 'before', '/k/before');
	# Deletions wait for each other, and go out together. A new node does not pass that of the one before it.
	$proxy->hold_reply_of($s{before}, "SELECT zk_unlock('/k/before')", op => 'delete', path => '^/k/before/');
	$s{s}->query('COMMIT');
	queue($a, 'next', $path);
	$proxy->heal;
	is($s{next}->finish, 't', 'who comes while a node is being deleted gets the lock');
	unlock('next', $path);
	is(scalar($zk->children($path)), 1, 'and its node is kept');
	$s{before}->finish;
};

story 'a node that is kept is nobody\'s' => sub {
	my $path = '/k/shown';
	keep($a, 's', $path);
	my $shown = 'SELECT granted, server, pid, usename, application_name, fencing_token';
	is($a->lock_count, 0, 'zk_locks does not show it');
	is($a->zk_session->{locks_in_use}, 0, 'zk_session does not count it');
	is($a->value("$shown FROM zk_contenders('$path')"), 'f|a||||', 'for zk_contenders nobody has it');
	is($a->value("SELECT kept FROM zk_contenders('$path')"), 't', 'as it is kept');
	is($b->value("SELECT granted IS NULL AND kept IS NULL FROM zk_contenders('$path')"), 't', 'elsewhere its name says that it may be');
	hold($a, 's', $path);
	is($a->value("SELECT kept FROM zk_contenders('$path')"), 'f', 'it is not while somebody has it');
	like($a->value("$shown FROM zk_contenders('$path')"), qr/^t\|a\|${\$s{s}->pid}\|.*\|\d+$/, 'until somebody does');
	queue($b, 'waiter', $path);
	is($b->value("SELECT granted, kept FROM zk_contenders('$path') WHERE position = 1"), 't|f', 'whoever waits elsewhere knows that it is not kept');
	unlock('s', $path);
	$s{waiter}->finish;
	unlock('waiter', $path);
};

story 'who comes from elsewhere has it deleted at once, and it is kept again when nobody else has come for a while' => sub {
	foreach my $call ('zk_lock', 'zk_lock_shared', 'zk_xact_lock', 'zk_try_lock', 'zk_try_lock_shared')
	{
		# A try waits for some 20 ms only, which may be too short here: then another path shows it, where nobody has come yet.
		my ($path, $n) = ('', 0);
		wait_until {
			$path = "/k/newcomer/$call" . $n++;
			keep($a, 's', $path);
			on($b, 'newcomer')->query("SELECT $call('$path')") eq 't';
		} "$call elsewhere to get the lock";
		$s{newcomer}->query('SELECT zk_unlock_all()');
		gone($path, 'and releases it');
		not_kept($path, 'then');
	}
	my $path = '/k/newcomer/kazoo';
	keep($a, 's', $path);
	is($shell->lock('kazoo', $path, timeout => 30), 1, 'kazoo gets it');
	$shell->unlock('kazoo');
	gone($path, 'and releases it');
	not_kept($path, 'then');
	wait_until { again($s{s}, $path); $zk->children($path) } 'a node to be kept again';
};

story 'clients that try again and again without waiting find it kept once' => sub {
	my $java = Zklock::JavaPeer->new;
	$java->connect($zk->connect_string);
	my %clients = (
		curator => [ sub ($path) { $java->acquire('curator', $path, 0) }, sub { $java->release('curator') } ],
		kazoo   => [ sub ($path) { $shell->lock('kazoo', $path, timeout => 0) }, sub { $shell->unlock('kazoo') } ]);
	foreach my $client (sort keys %clients)
	{
		my ($try, $release) = @{ $clients{$client} };
		my $path = "/k/tries/$client";
		keep($a, 's', $path);
		my $since = time;
		$release->() if $try->($path);
		gone($path, "$client has it given up by the first attempt");
		foreach (1 .. 5)
		{
			again($s{s}, $path, 4);
			my $count = $zk->children($path);
			last if $count && time - $since >= 10; # a slow machine: it may be kept again by now
			is($count, 0, 'before each of the next ones no node is kept');
			is($try->($path), 1, 'which succeeds');
			$release->();
		}

		# One that fails because of a holder counts, too.
		hold($a, 's', $path);
		is($try->($path), 0, 'an attempt while the lock is held fails');
		unlock('s', $path);
		not_kept($path, 'after that');
	}
	$java->close_session;
};

story 'a call elsewhere that does not wait has its turn beside a server that always is back in time' => sub {
	my $path = '/k/starving';
	my $java = Zklock::JavaPeer->new;
	$java->connect($zk->connect_string);
	$a->value('CREATE TABLE stop ()');
	on($a, 'busy')->query_start("DO \$\$ BEGIN LOOP
		PERFORM zk_lock('$path'); PERFORM zk_unlock('$path'); PERFORM pg_sleep(0.02);
		EXIT WHEN EXISTS (SELECT FROM stop);
	END LOOP; END \$\$");
	my $is_kept = sub { return grep { $_ =~ $may_be_kept } $zk->children($path) };
	foreach my $call ('zk_try_lock', 'zk_try_xact_lock', 'zk_try_lock_shared')
	{
		wait_until { $is_kept->() } 'a node to be kept';
		wait_until { on($b, 'tries')->query("SELECT $call('$path')") eq 't' } "$call to succeed";
		$s{tries}->query('SELECT zk_unlock_all()');
	}
	wait_until { $is_kept->() } 'a node to be kept';
	# Its first attempt has the node given up, the second one finds the path free.
	wait_until { $java->acquire('curator', $path, 0) } 'Curator, which tries again at once';
	$java->release('curator');
	pass('calls of SQL and of Curator that do not wait');
	$a->value('INSERT INTO stop DEFAULT VALUES');
	$s{busy}->finish;
	$java->close_session;
};

story 'a call that does not wait fails, in the end, where somebody holds the lock' => sub {
	my $path = '/k/held';
	keep($a, 's', $path);
	hold($a, 's', $path);
	is(on($b, 'tries')->query("SELECT zk_try_lock('$path')"), 'f', 'it finds the lock taken');
	wait_until { $zk->children($path) == 1 } 'its node to go';
	is(on($b, 'array')->query("SELECT zk_lock(ARRAY['$path', '/k/free'], '0')"), 'f', 'so does one for several locks');
	wait_until { $zk->children($path) == 1 && !$zk->children('/k/free') } 'their nodes to go';
	# With somebody behind, it cannot be free.
	my $foreign = $zk->foreigner($path);
	my @before = $zk->children($path);
	my $number = sub { return $shell->exists($path)->{cversion} };
	my $created = $number->();
	is($s{tries}->query("SELECT zk_try_lock('$path')"), 'f', 'where another waits, it looks');
	is($number->(), $created, 'and no more');
	$shell->delete($foreign);
	unlock('s', $path);
	gone($path, 'after that nothing is kept');
};

story 'it is counted' => sub {
	my ($path, $before) = ('/k/counted', counts($a));
	keep($a, 's', $path);
	my $kept = counts($a);
	is($kept->{kept}, $before->{kept} + 1, 'that it is kept');
	is($kept->{kept_grants}, $before->{kept_grants}, 'that it has not served anybody');
	again($s{s}, $path, 3);
	my $again = counts($a);
	is($again->{kept_grants}, $before->{kept_grants} + 3, 'that it has');
	is($again->{kept}, $kept->{kept}, 'and is kept again');
	is(on($b, 'newcomer')->query("SELECT zk_lock('$path')"), 't', 'somebody comes from elsewhere');
	unlock('newcomer', $path);
	$a->wait_value(q(SELECT kept_visited FROM zk_stats WHERE mode = 'exclusive'), $before->{kept_visited} + 1);
	is(counts($a)->{kept_expired}, $before->{kept_expired}, 'which is no lack of time');
	is($a->value("SELECT count(*) FROM zk_stats WHERE mode IS DISTINCT FROM 'exclusive' AND kept IS NULL AND kept_grants IS NULL"), 5,
		'of exclusive locks only');
};

story 'all is given up for who asks' => sub {
	keep($a, 's', "/k/release/$_") foreach 1 .. 3;
	hold($a, 's', '/k/release/1');
	$a->value('CREATE ROLE nobody LOGIN; CREATE ROLE operator LOGIN IN ROLE pg_signal_backend');
	fails($a->session(user => 'nobody')->try('SELECT zk_release_kept()'), '42501', 'an ordinary role may not');
	cmp_ok($a->session(user => 'operator')->query('SELECT zk_release_kept()'), '>=', 2, 'those who may learn how many they are');
	gone("/k/release/$_", 'what is kept goes') foreach 2, 3;
	is(scalar($zk->children('/k/release/1')), 1, 'what is held stays');
	$a->wait_value(q(SELECT kept FROM zk_stats WHERE mode = 'exclusive'), 0);
	unlock('s', '/k/release/1');
	is(counts($a)->{kept}, 1, 'and is kept when it is released');
};

story 'the node goes when nobody has come back, and with the setting' => sub {
	my $path = '/k/idle';
	keep($a, 's', $path);
	my $expired = counts($a)->{kept_expired};
	$a->set_conf('zklock.keep_idle' => '10ms');
	gone($path, 'a shorter time counts at once');
	cmp_ok(counts($a)->{kept_expired}, '>', $expired, 'and is counted');
	again($s{s}, $path, 3);
	gone($path, 'it does not stay for longer');
	set_keep_idle('1h');
	keep($a, 's', $path);
	$a->set_conf('zklock.keep_idle' => 0);
	gone($path, 'with 0 what is kept goes at once');
	again($s{s}, $path, 3);
	is(scalar($zk->children($path)), 0, 'and nothing is kept');
	hold($a, 's', $path);
	unlike(($zk->children($path))[0], $may_be_kept, 'and no name says so');
	unlock('s', $path);
	set_keep_idle('1h');
};

story 'a loss ends it' => sub {
	foreach my $way (
		[ 'a lock that was held for too long' => sub ($session, $path) {
				$session->query("SET zklock.max_hold_time = '300ms'");
				hold($a, 's', $path);
				$session->query('RESET zklock.max_hold_time');
			} ],
		[ 'a node that was deleted' => sub ($session, $path) {
				hold($a, 's', $path);
				$shell->delete("$path/$_") foreach $zk->children($path);
			} ],
		[ 'a lock that was broken' => sub ($session, $path) {
				hold($a, 's', $path);
				is(on($b, 'admin')->query("SELECT zk_break_lock('$path')"), 't', 'its node is deleted');
			} ])
	{
		my ($name, $lose) = @$way;
		my $path = '/k/lost/' . $name =~ s/ /_/gr;
		keep($a, 's', $path);
		$lose->($s{s}, $path);
		lost($a, 's', $path);
		gone($path, "$name is not kept");
	}
	my $path = '/k/lost/others';
	keep($a, 's', $path);
	$s{s}->query("SET zklock.max_hold_time = '1s'");
	hold($a, 's', $path);
	queue($a, 'next', $path);
	is($s{next}->finish, 't', 'who waits behind one who loses the lock gets it by the same node');
	unlock('next', $path);
	is(scalar($zk->children($path)), 0, 'which is not kept after that');
	lost($a, 's', $path);
	$s{s}->query('RESET zklock.max_hold_time');
	keep($a, 's', $path);
	is(on($b, 'admin')->query("SELECT zk_break_lock('$path')"), 't', 'what is kept can be broken like a lock');
	gone($path, 'and goes');
	$a->settle;
	again($s{s}, $path, 2);
	is($a->lock_count, 0, 'nobody has lost anything');
};

story 'it outlives a connection, but not what has happened meanwhile' => sub {
	my %node = map { $_ => keep($a, 's', "/k/cut/$_") } qw(kept deleted visited);
	hold($a, 's', '/k/cut/kept');
	my $token = token('s', '/k/cut/kept');
	unlock('s', '/k/cut/kept');
	$a->cut_off($proxy);
	$shell->delete("/k/cut/deleted/$node{deleted}");
	queue($b, 'other', '/k/cut/visited');
	$a->reconnect($proxy);
	is($s{other}->finish, 't', 'somebody who has come meanwhile gets the lock');
	unlock('other', '/k/cut/visited');
	gone('/k/cut/visited', 'and nothing is left there');
	is(($zk->children('/k/cut/kept'))[0], $node{kept}, 'where nobody was the node stays');
	hold($a, 's', '/k/cut/kept');
	is(($zk->children('/k/cut/kept'))[0], $node{kept}, 'and the next lock has it');
	cmp_ok(token('s', '/k/cut/kept'), '>', $token, 'with a higher token');
	unlock('s', '/k/cut/kept');
	$proxy->asked;
	again($s{s}, '/k/cut/kept');
	requests('after that a lock costs no request again');
	hold($a, 's', '/k/cut/deleted');
	isnt(($zk->children('/k/cut/deleted'))[0], $node{deleted}, 'where somebody has deleted the node there is a new one');
	unlock('s', '/k/cut/deleted');
};

story 'what ends a session, or the worker ends it, too' => sub {
	foreach my $way (
		[ 'an expired session' => sub { $a->expire_session($zk); } ],
		[ 'another worker' => sub { $a->restart_worker; } ])
	{
		my ($name, $end) = @$way;
		my $path = '/k/away/' . $name =~ s/ /_/gr;
		keep($a, 's', $path);
		hold($a, 's', $path);
		my $token = token('s', $path);
		unlock('s', $path);
		$end->();
		gone($path, "$name leaves no node");
		$a->wait_session;
		hold($a, 's', $path);
		cmp_ok(token('s', $path), '>', $token, 'and the next lock has a higher token');
		unlock('s', $path);
		$a->wait_value('SELECT locks_in_use FROM zk_session', 0);
	}
	my $path = '/k/away/meanwhile';
	keep($a, 's', $path);
	$a->cut_off($proxy);
	$s{s}->start_waiting("SELECT zk_lock('$path')", $path);
	$a->reconnect($proxy);
	is($s{s}->finish, 't', 'who has come meanwhile gets the lock');
	unlock('s', $path);
};

story 'it gives way to other uses of the path' => sub {
	my $s = on($a, 's');
	keep($a, 's', '/k/election');
	$a->set_conf('zklock.elections' => '/k/election');
	$a->wait_value('SELECT is_leader FROM zk_elections', 't');
	unlike($a->log_since(0), qr/election "\/k\/election": candidacy is in state "failed"/, 'a candidate takes its place');
	fails($s->try("SELECT zk_lock('/k/election')"), '55006', 'and no lock can be had any more');
	$a->set_conf('zklock.elections' => '');
	gone('/k/election', 'until the election is over');
	foreach my $n (0, 2)
	{
		my $path = "/k/turns$n";
		keep($a, 's', "$path/leases");
		is($s->query("SELECT zk_semaphore_acquire('$path', 2" . ($n ? '' : ", '0'") . ')'), 't', 'a semaphore has its permit');
		fails($s->try("SELECT zk_lock('$path/leases')"), '55006', 'beside it there is no lock', detail => 'It is a part of a semaphore.');
		is($s->query("SELECT zk_semaphore_release('$path')"), 't', 'it is released');
	}
	keep($a, 's', '/k/claims');
	is($s->query("SELECT count(*) FROM zk_last_claim('/k/claims')"), 0, 'there is no claim, and no error');
	my $refused = qr/It has no data, and has or had children/;
	fails($s->try("SELECT zk_claim('/k/claims', now())"), '55006', 'one cannot be made', detail => $refused);
	$shell->delete("/k/claims/$_") foreach $zk->children('/k/claims');
	fails($s->try("SELECT zk_claim('/k/claims', now())"), '55006', 'nor when nothing is kept', detail => $refused);
};

story 'nobody has less because of it' => sub {
	my $s = on($a, 's');
	$s->query('SET zklock.max_locks_per_session = 2');
	keep($a, 's', "/k/share/$_") foreach 1 .. 3;
	is($s->query("SELECT zk_lock('/k/one') AND zk_lock('/k/two')"), 't', 'a session has its share of entries');
	fails($s->try("SELECT zk_lock('/k/share/1')"), '53200', 'and no more, even of what is kept');
	$s->query('SELECT zk_unlock_all()');

	# Its share of bytes has room for 28 long paths.
	my $long = '/k/' . 'x' x 1000;
	$s->query('SET zklock.max_locks_per_session = 64');
	keep($a, 's', "${long}29");
	keep($a, 'other', "${long}30");
	is($s->query("SELECT count(*) FROM generate_series(1, 28) i WHERE zk_lock('$long' || i)"), 28, 'it has its share of bytes');
	fails($s->try("SELECT zk_lock('$long$_')"), '53200', 'and no more', message => qr/too many paths are locked in this session/) foreach 29, 30;
	$s->query('SELECT zk_unlock_all()');
	$proxy->asked;
	is($s->query("SELECT zk_lock('${long}30')"), 't', 'what is released can be had again');
	requests('by a node that is kept still');
	$s->query('SELECT zk_unlock_all()');
};

story 'what is kept is bounded, and gives way' => sub {
	my $c = Zklock::Server->new('c', zookeeper => $zk, conf => [ @conf, 'zklock.max_locks = 16', 'zklock.max_kept_locks = 5' ]);
	my $s = on($c, 's');
	again($s, "/k/many/$_", 2) foreach 1 .. 20;
	my $kept = () = map { $zk->children("/k/many/$_") } 1 .. 20;
	cmp_ok($kept, '>', 0, "$kept nodes are kept");
	cmp_ok($kept, '<=', 5, 'and no more than the setting allows');
	cmp_ok(counts($c)->{kept_crowded}, '>', 0, 'others have been given up for them');
	is($s->query(q{SELECT count(*) FROM generate_series(1, 16) i WHERE zk_lock('/k/all/' || i)}), 16, 'all locks can be had');
	is($s->query('SELECT locks_in_use FROM zk_session'), 16, 'and are counted');
	fails($s->try("SELECT zk_lock('/k/all/17')"), '53200', 'one more cannot');
	$s->query('SELECT zk_unlock_all()');
	all_disconnect();
	$c->stop;
	is(scalar(map { $zk->children("/k/many/$_") } 1 .. 20), 0, 'a server that shuts down leaves none');

	# Watches of kept nodes have 61,440 bytes, whatever else there is room for.
	my ($long, $before) = ('/k/bytes/' . 'y' x 1000, counts($a));
	again(on($a, 's'), "$long$_", 2) foreach 1 .. 80;
	my @long = grep { $zk->children("$long$_") } 1 .. 80;
	cmp_ok(scalar @long, '>=', 50, @long . ' long paths are kept');
	cmp_ok(scalar @long, '<=', 61, 'and no more than their watches have room for');
	is($long[-1], 80, 'the last one is');
	cmp_ok($long[0], '>', 1, 'and the first ones have given way');
	cmp_ok(counts($a)->{kept_crowded}, '>', $before->{kept_crowded}, 'which is counted');
	$a->value('SELECT zk_release_kept()');
};

story 'the numbers under a node end, and go on under the next' => sub {
	my $path = '/k/long';
	keep($a, 's', $path);
	$proxy->asked;
	$s{s}->query("DO \$\$ DECLARE last bigint := 0; token bigint; BEGIN
		FOR i IN 1 .. 8500 LOOP
			PERFORM zk_lock('$path');
			token := zk_fencing_token('$path');
			ASSERT token > last;
			last := token;
			PERFORM zk_unlock('$path');
		END LOOP; END \$\$");
	cmp_ok($proxy->asked->{create2}, '<=', 4, 'of 8500 locks in a row a few have created a node');
};

story 'what has other names, or other uses, is not kept' => sub {
	again(on($a, 's'), '/k/hive', 3);
	is(scalar($zk->children('/k/hive')), 0, 'a name without a UUID');
	like(keep($a, 's', '/k/kazoo'), qr/^[0-9a-f]{12}8[0-9a-f]{19}__lock__\d{10}$/, "one of kazoo's is, and shows it");
	like(keep($a, 's', '/k/recipe'), qr/^x-[0-9a-f]{12}8[0-9a-f]{3}-\d{10}$/, "so is one of ZooKeeper's recipe");
	$s{s}->query("SELECT zk_semaphore_acquire('/k/semaphore', 2) AND zk_semaphore_release('/k/semaphore')") foreach 1 .. 3;
	wait_until { !grep { $zk->children("/k/semaphore/$_") } qw(locks leases) } 'turns and permits to go', 20;
	$s{s}->query("SELECT zk_lock_shared('/k/shared') AND zk_unlock_shared('/k/shared')") foreach 1 .. 3;
	is(scalar($zk->children('/k/shared')), 0, 'a shared lock');

	# A downgrade in between, and one who shares
	$s{s}->query("SELECT zk_lock('/k/down') AND zk_lock_shared('/k/down') AND zk_unlock('/k/down') AND zk_unlock_shared('/k/down')")
	  foreach 1 .. 3;
	gone('/k/down', 'a lock that was shared in the end');
	keep($a, 's', '/k/both');
	is(on($a, 'reader')->query("SELECT zk_lock_shared('/k/both')"), 't', 'who wants to share the lock gets it');
	is(on($b, 'abroad')->query("SELECT zk_lock_shared('/k/both')"), 't', 'also elsewhere');
	$s{$_}->query('SELECT zk_unlock_all()') foreach qw(reader abroad);
	gone('/k/both', 'and nothing stays');
};

$a->set_conf('zklock.keep_idle' => '100ms');
done_clean($zk, $a, $b);
