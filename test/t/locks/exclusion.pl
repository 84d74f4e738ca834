# Copyright (c) 2026, zklock contributors
#
# Sessions of two database servers, and of one, exclude each other.

use Zklock::Test;
use JSON::PP;
use Sys::Hostname;

my ($zk, $proxy, $a, $b) = cast('a b', zk => { request_log => 1 }, proxied => 'b');
my @servers = ($a, $b);
my $shell = $zk->shell;
my $path  = '/t/exclusion';

sub row($session) { return ($session->server->locks('pid = ' . $session->pid . " AND path = '$path'"))[0]; }

# Waits until zk_locks shows a contender blocked, and its node with its number.
sub blocked_row($session)
{
	return $session->wait_row("node ~ '\\d{10}\$' AND (blocked_by_pid IS NOT NULL OR blocked_by_node IS NOT NULL)", $path);
}

my @on_a = map { $a->session } 1 .. 3;
my @on_b = map { $b->session } 1 .. 2;
my $holder;    # the row of the first

subtest 'one session holds a lock, and those who do not wait are told so at once' => sub {
	is($on_a[0]->query("SELECT zk_lock('$path')"), 't', 'the first one gets the lock');
	$holder = row($on_a[0]);
	is_deeply(
		{   map { $_ => $holder->{$_} }
			  qw(datname kind mode scope state granted count wait_start blocked_by_pid blocked_by_node) },
		{   datname => 'postgres', kind => 'lock', mode => 'exclusive', scope => 'session',
			state => 'held', granted => 't', count => 1, wait_start => undef,
			blocked_by_pid => undef, blocked_by_node => undef },
		'zk_locks shows it as holder');
	is($holder->{fencing_token}, $on_a[0]->query("SELECT zk_fencing_token('$path')"),
		'with the token that it sees itself');
	is_deeply([ $zk->children($path) ], [ $holder->{node} ], 'the node shown is the only one');

	$proxy->reset_counts;
	is($on_b[0]->query("SELECT zk_try_lock('$path')"), 'f', 'a try-lock on another server fails');
	is_deeply($proxy->asked, { getChildren => 1 }, 'which takes one listing and creates nothing');
	is($on_b[0]->query("SELECT zk_try_xact_lock('$path')"), 'f', 'so does one for the transaction');
	is($on_b[0]->query("SELECT zk_lock('$path', '0')"), 'f', 'and a timeout of 0');
	is_deeply($proxy->asked, { getChildren => 2 }, 'likewise by reading alone');

	my $mark = $zk->mark;
	is($on_a[1]->query("SELECT zk_try_lock('$path')"), 'f', 'a try-lock on the same server fails');
	is_deeply($zk->requests($mark, session => $a->session_id), {},
		'answered from what the server knows itself');
	is_deeply([ $zk->children($path) ], [ $holder->{node} ], 'no other node was made');

	foreach my $other ([ $a, $on_a[1] ], [ $b, $on_b[0] ])
	{
		my ($server, $session) = @$other;
		my $on = $server == $a ? 'the same' : 'another';
		# PostgreSQL's clock may be set meanwhile, or run a little slower than the one of the wait.
		my $r = $session->try("SELECT zk_lock('$path', '300ms'),"
			  . " clock_timestamp() - statement_timestamp() >= '250ms'");
		is($r->{text}, 'f|t', "a timeout on $on server returns false when it has passed");
		is($server->lock_count('pid = ' . $session->pid . " AND state <> 'releasing'"),
			0, 'and it is not in the queue any more');
	}

	# A lock of one session does not concern its own further requests.
	is($on_a[0]->query("SELECT zk_try_lock('$path'), zk_unlock('$path')"), 't|t',
		'the holder is not blocked by itself');
	is(row($on_a[0])->{count}, 1, 'and holds as often as it locked, less as often as it unlocked');
};

subtest 'zk_locks shows who waits, and for whom' => sub {
	# The nodes of those whose time was over are gone.
	wait_until { $zk->children($path) == 1 } 'the holder to be alone';
	$on_a[1]->start_waiting("SELECT zk_lock('$path')");
	$_->settle foreach @servers;
	is_deeply(
		{   map { $_ => row($on_a[1])->{$_} }
			  qw(mode scope granted count node fencing_token granted_at blocked_by_pid blocked_by_node) },
		{   mode => 'exclusive', scope => 'session', granted => 'f', count => 0,
			node => $holder->{node}, fencing_token => undef, granted_at => undef,
			blocked_by_pid => $on_a[0]->pid, blocked_by_node => undef },
		'a waiter on the same server stands behind the holder, under the same node');
	is($a->value('SELECT wait_start BETWEEN query_start AND clock_timestamp() FROM zk_locks JOIN pg_stat_activity USING (pid)'
			  . ' WHERE pid = ' . $on_a[1]->pid), 't', 'since a time that is shown');
	# A moment later than in zk_locks
	$a->wait_event($on_a[1], 'lock');
	pass('pg_stat_activity shows it waiting for a lock');

	$on_b[0]->start_waiting("SELECT zk_xact_lock('$path')");
	my $waiter = blocked_row($on_b[0]);
	is($waiter->{blocked_by_node}, $holder->{node}, 'a waiter elsewhere stands behind the node');
	is($waiter->{blocked_by_pid}, undef, 'and behind no process of its own server');
	is($waiter->{scope}, 'transaction', 'the scope is that asked for');
	$b->wait_event($on_b[0], 'lock');
	pass('so does that of the other server');
	is_deeply([ $zk->children($path) ], [ $holder->{node}, $waiter->{node} ], 'two nodes');

	# Behind the waiter of B.
	$_->settle foreach @servers;
	$on_a[2]->query_start("SELECT zk_lock('$path')");
	is(blocked_row($on_a[2])->{blocked_by_node}, $waiter->{node},
		'who comes after somebody elsewhere stands behind that one');
	is(row($on_a[1])->{blocked_by_pid}, $on_a[0]->pid, 'the others stand as before');

	# B's earlier waiter is blocked itself, but nearer stands the last of A.
	$_->settle foreach @servers;
	$on_b[1]->query_start("SELECT zk_lock('$path')");
	is(blocked_row($on_b[1])->{blocked_by_node}, row($on_a[2])->{node}, 'and so on');
};

subtest 'they are served in turn, each with a higher token than all before' => sub {
	my @tokens = ($holder->{fencing_token});
	my $shown = "SELECT fencing_token FROM zk_locks WHERE pid = pg_backend_pid() AND granted";
	$on_a[0]->hands_over($path, $on_a[1], 'the next on the same server gets it');
	push @tokens, $on_a[1]->query("SELECT zk_fencing_token('$path')");
	ok($_->busy, $_->name . ' still waits') foreach $on_b[0], $on_a[2], $on_b[1];

	# A transaction-level lock ends with its statement here, and so does the token.
	$on_a[1]->hands_over($path, $on_b[0], 'then the waiter of the other server');
	is($on_a[2]->finish, 't', 'then the one behind it');
	push @tokens, $on_a[2]->query($shown);
	ok($on_b[1]->busy, 'the last still waits');
	$on_a[2]->hands_over($path, $on_b[1], 'until it gets it');
	push @tokens, $on_b[1]->query($shown);
	is($on_b[1]->query("SELECT zk_unlock('$path')"), 't', 'it is free again');
	ok(increasing(@tokens), 'the tokens increase') or diag("@tokens");
};

subtest 'a lock of another client is respected, and other nodes are not' => sub {
	my $foreign = $zk->foreigner($path);
	$proxy->reset_counts;
	is($on_b[0]->query("SELECT zk_try_lock('$path')"), 'f', 'a lock of another client is respected');
	is_deeply($proxy->asked, { getChildren => 1 }, 'a try-lock behind it creates nothing');
	is($on_a[0]->query("SELECT zk_lock('$path', '100ms')"), 'f', 'and waits in vain');
	$on_a[0]->query_start("SELECT zk_lock('$path')");
	is("$path/" . blocked_row($on_a[0])->{blocked_by_node}, $foreign, 'zk_locks names its node');
	$on_a[1]->start_waiting("SELECT zk_lock('$path')");
	$_->settle foreach @servers;
	my $second = row($on_a[1])->{blocked_by_node};
	is($second && "$path/$second", $foreign,
		'also for those who share the node of the first');
	$shell->delete($foreign);
	is($on_a[0]->finish, 't', 'it is granted when that is gone');
	wait_until { (row($on_a[1])->{blocked_by_pid} || 0) == $on_a[0]->pid } 'the next blocker';
	pass('then the next is blocked by a process');
	$on_a[0]->hands_over($path, $on_a[1], 'and gets it in turn');
	$on_a[1]->query("SELECT zk_unlock('$path')");

	# Names that no lock recipe writes are none of our business.
	$shell->create("$path/readme");
	is($on_a[0]->query("SELECT zk_try_lock('$path')"), 't', 'other nodes do not matter');
	$on_a[0]->query("SELECT zk_unlock('$path')");
	$shell->delete("$path/readme");
};

sub node_data
{
	my ($node) = $zk->children($path);
	my $text = $shell->get("$path/$node");
	return ($text, JSON::PP->new->decode($text));
}

subtest 'the node tells who holds the lock' => sub {
	my $odd = qq(o'd "d \\ \x{fc}ser);
	$a->value('CREATE ROLE "o\'d ""d \\ ' . "\x{fc}" . 'ser" SUPERUSER LOGIN');
	utf8::encode(my $login = $odd);
	my $s = $a->session(user => $login);
	$s->query("SET application_name = 'nightly \"run\"'");
	$s->query("BEGIN; SELECT zk_xact_lock('$path', '1min') /* secret */");
	my ($text, $data) = node_data();
	is_deeply([ sort keys %$data ],
		[ sort qw(zklock server host port pid database user application_name started) ],
		'the node tells who holds it and nothing else');
	is_deeply(
		{ map { $_ => $data->{$_} } qw(server host port pid database user application_name) },
		{   server => 'a', host => hostname(), port => $a->port, pid => $s->pid, database => 'postgres', user => $odd,
			application_name => 'nightly "run"' },
		'truly');
	my $started = $data->{started};
	is($a->value("SELECT now() - '$started'::timestamptz BETWEEN '0' AND '5min'"), 't',
		'and since when');
	like($started, qr/(?:Z|[+-]\d\d(?::\d\d)?)$/, 'with its time zone');
	unlike($text, qr/secret|xact/, 'the statement is not told');
	$s->query('COMMIT');
	$s->disconnect;

	$b->set_conf('zklock.server_name' => "b\x{f6}rse 2");
	$s = $b->session;
	$s->query("SET application_name = ''");
	$s->query("SELECT zk_lock('$path')");
	(undef, $data) = node_data();
	is($data->{server}, "b\x{f6}rse 2", 'zklock.server_name is told if it is set');
	is($data->{database}, 'postgres', 'so is the database');
	is($data->{application_name} || '', '', 'an empty application name is no trouble');
	$s->query("SELECT zk_unlock('$path')");
	$b->set_conf('zklock.server_name' => 'x' x 1000);
	wait_until { length $s->query('SHOW zklock.server_name') == 1000 } 'a name that is too long for the node';
	$s->query("SELECT zk_lock('$path')");
	is_deeply((node_data())[1], { zklock => '1.0', host => hostname(), port => $b->port, pid => $s->pid }, 'what is too long is left out, with all that can be');
};

done_clean($zk, @servers);
