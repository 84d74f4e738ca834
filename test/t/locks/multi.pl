# Copyright (c) 2026, zklock contributors
#
# The text[] forms, and trees: several paths at once, all or nothing, in one order for everybody. What a session has and
# gives back is in sql/array.sql and sql/tree.sql.
#
# Hive takes locks in a tree, on databases, tables and partitions. A session that works on a part keeps others from the
# whole and from that part, and from nothing else: SQL sessions of two servers, and a program that does what Hive does.

use Zklock::Test;
use Time::HiRes qw(time);
use Zklock::JavaPeer;

my ($zk, $a, $b) = cast('a b', zk => { request_log => 1 }, conf => [ "zklock.path_dialects = '/hive/*=hive'", "zklock.parent_nodes = 'persistent'" ]);
my $shell = $zk->shell;

my $s       = $a->session;
my $blocker = $a->session;    # holds what makes the others fail
my $other   = $b->session;

# In the order of locks, which is that of bytes: upper case before lower case, and what is shorter
# before what begins with it.
my @ordered = ('/m/B', '/m/a', '/m/a/x', "/m/\x{e4}");

# What the session has, e.g. '/m/a held 1, /m/b waiting 0'. What it gave up a moment ago and
# ZooKeeper has not confirmed is not its any more.
sub has
{
	return join(', ',
		sort map { "$_->{path} $_->{state} $_->{count}" } $a->locks('pid = ' . $s->pid . " AND state <> 'releasing'"));
}

# Can the other server have these paths, now or as soon as their nodes are deleted?
sub free_elsewhere($name, @paths)
{
	foreach my $path (@paths)
	{
		is($other->query("SELECT zk_lock('$path', '20s')"), 't', "$name: $path is free");
		$other->query("SELECT zk_unlock('$path')");
	}
	return;
}

subtest 'a call for several paths acquires all of them, each once' => sub {
	is($s->query("SELECT zk_lock(ARRAY['/m/c', '/m/a', '/m/b'])"), 't', 'three at once');
	is(has(), '/m/a held 1, /m/b held 1, /m/c held 1', 'all are held');
	is($other->query("SELECT zk_try_lock('$_')"), 'f', "$_ is taken elsewhere") foreach qw(/m/a /m/b /m/c);
	is($s->query("SELECT zk_unlock('/m/b')"), 't', 'one is released');
	free_elsewhere('it', '/m/b');
	is($s->query("SELECT zk_unlock(ARRAY['/m/a', '/m/b', '/m/c'])"), 'f', 'to release all says that one was not held');
	free_elsewhere('all', '/m/a', '/m/c');
};

subtest 'a call for several paths that fails leaves what was held before, and nothing else' => sub {
	my $taken = '/m/new/taken';
	my $array = "ARRAY['$taken', '/m/c', '/m/new', '/m/a']";
	$blocker->query("SELECT zk_lock('$taken')");
	# A lock cannot be below an ephemeral node.
	$shell->create('/m/new/n', ephemeral => 1);
	$s->query("BEGIN; SELECT zk_lock('/m/a'), zk_lock_shared('/m/c'), zk_xact_lock_shared('/m/c')");
	my $held = sub { return [ $a->locks('pid = ' . $s->pid . " AND state <> 'releasing' ORDER BY path, scope") ]; };
	my $before = $held->();
	is(scalar @$before, 3, 'some are held already');
	my @calls = ((map { "${_}_tree('$taken', '/m'" } qw(zk_lock zk_xact_lock)),
		map { ("$_($array", "${_}_shared($array") } qw(zk_lock zk_xact_lock));
	foreach my $call (@calls)
	{
		my $bad  = $call =~ s{$taken}{/m/new/n/lock}r;
		my %ends = (
			'without waiting' => sub { is($s->query("SELECT $call, '0')"), 'f', "$call: not without waiting"); },
			'at its timeout'  => sub { is($s->query("SELECT $call, '100ms')"), 'f', "$call: the timeout passes"); },
			'at lock_timeout' => sub {
				is($s->try("SET LOCAL lock_timeout = '100ms'; SELECT $call)")->{sqlstate}, '55P03', "$call: lock_timeout");
			},
			'cancelled' => sub {
				$s->start_waiting("SELECT $call)", $taken);
				$a->wait_holder($s, '/m/new');
				is($other->query("SELECT zk_try_lock('/m/new')"), 'f', "$call: one is held while another is waited for");
				is($s->cancelled, '57014', "$call: cancelled");
			},
			'with an error' => sub { is($s->try("SELECT $bad)")->{sqlstate}, '42809', "$call: an error at one path"); },
			# So that no end of a transaction helps
			'with an error that is caught' => sub {
				$s->query("DO \$\$ BEGIN PERFORM $bad); EXCEPTION WHEN wrong_object_type THEN NULL; END \$\$");
			});
		foreach my $end (sort keys %ends)
		{
			$s->query('SAVEPOINT s');
			$ends{$end}->();
			is_deeply($held->(), $before, "$call ends $end: the session has what it had");
			$s->query('ROLLBACK TO s');
			is_deeply($held->(), $before, 'the savepoint has nothing to add');
			free_elsewhere("$call ends $end", '/m/new');
		}
	}
	foreach my $function (qw(zk_lock zk_xact_lock))
	{
		my $victim = $a->session;
		$victim->start_waiting("SELECT $function(ARRAY['/m/new', '$taken'])", $taken);
		$victim->terminate;
		free_elsewhere("$function, terminated", '/m/new');
	}
	$shell->delete('/m/new/n');

	$s->start_waiting("SELECT zk_lock_shared($array)", $taken);
	$blocker->hands_over($taken, $s, 'all of them are had when the last is free');
	$s->query('COMMIT');
	is($s->query("SELECT zk_unlock_shared($array), zk_unlock('/m/a'), zk_unlock_shared('/m/c')"), 't|t|t', 'each is counted');
	is_deeply($held->(), [], 'no more');

	# What is wrong with an argument is told before anything is locked.
	wait_until { !grep { /\d{10}$/ } map { $zk->children($_) } '/m/a', '/m/c', '/m/new', $taken } 'what is kept to go';
	$a->settle;
	my $mark = $zk->mark;
	is($s->try("SELECT $_(ARRAY['/m/a', 'wrong'])")->{sqlstate}, '22023', "$_: a bad path") foreach qw(zk_lock zk_xact_lock);
	is_deeply($zk->requests($mark, session => $a->session_id), {}, 'is noticed beforehand');
};

subtest 'paths are locked in one order, whatever that of the arguments' => sub {
	foreach my $order ([ 0, 1, 2, 3 ], [ 3, 2, 1, 0 ], [ 2, 0, 3, 1 ])
	{
		my $array = "ARRAY['" . join("', '", @ordered[@$order]) . "']";
		foreach my $i (0 .. 3)
		{
			$blocker->query("SELECT zk_lock('$ordered[$i]')");
			$s->query_start("SELECT zk_lock($array)");
			my @has = ((map { "$_ held 1" } @ordered[ 0 .. $i - 1 ]), "$ordered[$i] waiting 0");
			# A call asks for all paths at first, and has given back those behind one that is taken when it waits for that.
			wait_until { has() eq join(', ', sort @has) } "what it has with $ordered[$i] taken, argument order @$order";
			pass("argument order @$order: those before the one that is taken, and none after it");
			$blocker->hands_over($ordered[$i], $s, 'then the rest');
			$s->query('SELECT zk_unlock_all()');
		}
	}
};

subtest 'one timeout is for all paths together' => sub {
	# The first is had when half of the time has passed; the second never. Were the timeout
	# that of each, the second alone would take as long.
	$blocker->query("SELECT zk_lock('/m/a'), zk_lock('/m/b')");
	my $start = time;
	$s->query_start("SELECT zk_lock(ARRAY['/m/a', '/m/b'], '8s'),"
		  . ' clock_timestamp() - statement_timestamp()');
	$a->wait_waiting($s, '/m/a');
	wait_until { time >= $start + 4 } 'four seconds to pass';
	$blocker->query("SELECT zk_unlock('/m/a')");
	my $first = time - $start;
	$a->wait_waiting($s, '/m/b');
	my ($got, $took) = split /\|/, $s->finish;
	is($got, 'f', 'one timeout for all');
	is($a->value("SELECT '$took'::interval >= '8s' AND '$took'::interval - '$first s' < '6s'"),
		't', 'counts from the beginning')
	  or diag("$took, of these $first s for the first");
	is(has(), '', 'nothing is held');
	$blocker->query("SELECT zk_unlock('/m/b')");
};

subtest 'hundreds of paths can be locked at once' => sub {
	my $many = "(SELECT array_agg('/m/many/' || i) FROM generate_series(1, 300) i)";
	is($s->query("SELECT zk_lock($many)"), 't', '300 paths');
	is($a->lock_count("state = 'held'"), 300, 'all are held');
	is($other->query("SELECT zk_lock($many, '100ms')"), 'f', 'none for the other server');
	is($s->query("SELECT zk_unlock($many)"), 't', 'all are released');
	# The timeout passes somewhere among those that are free.
	$blocker->query("SELECT zk_lock('/m/z')");
	is($s->query("SELECT zk_lock($many || '/m/z'::text, '50ms')"), 'f', 'a timeout that passes between two waits');
	is(has(), '', 'nothing is held');
	$blocker->query("SELECT zk_unlock('/m/z')");
	is($other->query("SELECT zk_lock($many, '30s') AND zk_unlock($many)"), 't', 'now they can be had there');
};

$shell->delete('/m/a/x');

# ---- trees

my ($t, $r) = ($a->session(name => 't'), $b->session(name => 'r'));
my $root = '/hive';
my ($db, $table, $part, $sister) = ("$root/db", "$root/db/t", "$root/db/t/ds=1", "$root/db/t/ds=2");
my @all = ($db, $table, $part, $sister);

sub tree_lock($path, $timeout = undef) { return "SELECT zk_lock_tree('$path', '$root'" . (defined $timeout ? ", '$timeout'" : '') . ')'; }
sub tree_lock_shared { return tree_lock(@_) =~ s{_tree}{_tree_shared}r; }
sub tree_unlock($path) { return "SELECT zk_unlock_tree('$path', '$root')"; }
sub tree_unlock_shared { return tree_unlock(@_) =~ s{_tree}{_tree_shared}r; }

sub names($path) { return join(' ', map { /^(LOCK-\w+)-/ ? $1 : () } $zk->children($path)); }

subtest 'among sessions a part of a tree keeps others from the whole, and the whole from its parts' => sub {
	is($s->query(tree_lock($part)), 't', 'a session has a part for itself');
	is_deeply([ map { names($_) } $root, @all ], [ '', 'LOCK-SHARED', 'LOCK-SHARED', 'LOCK-EXCLUSIVE', '' ],
		'with shared locks on all above, below the root');
	is($r->query(tree_lock($sister, '0')), 't', 'another has another part');
	is($t->query(tree_lock($_, '0')), 'f', "$_ as a whole is taken") foreach $db, $table;
	is($t->query(tree_lock_shared($_, '0')), 't', "$_ can be shared") foreach $db, $table;
	is($t->query(tree_unlock_shared($_)), 't', 'and given back') foreach $db, $table;
	is($t->query(tree_lock_shared($part, '0')), 'f', 'but not the part itself');
	is($t->query(tree_lock($part, '200ms')), 'f', 'nor can it be had in time');
	is($a->lock_count('pid = ' . $t->pid . " AND state <> 'releasing'"), 0, 'a call that failed has nothing');

	# A session that wants the whole waits for all who have parts, and keeps others from getting more.
	$t->start_waiting(tree_lock($table), $table);
	is($a->wait_holder($t, $db)->{mode}, 'shared', 'who waits for a table has what is above it');
	ok($t->busy, 'it waits');
	is($s->query(tree_unlock($part)), 't', 'one part is given back');
	ok($t->busy, 'it still waits');
	is($r->query(tree_unlock($sister)), 't', 'the other as well');
	is($t->finish, 't', 'then it has the whole');
	is($r->query(tree_lock($sister, '100ms')), 'f', 'and nobody has a part');
	$r->start_waiting(tree_lock($sister), $table);
	is($t->query(tree_unlock($table)), 't', 'until it gives that back');
	is($r->finish, 't', 'who waited gets its part');
	$r->query(tree_unlock($sister));
	Zklock::Server->assert_clean($zk, [ $a, $b ], $part, $sister);
};

my $hive = Zklock::JavaPeer->new;
$hive->connect($zk->connect_string);

# Hive takes such locks one by one too, and from the top down. Here it asks for single ones.
sub hive_waits($name)
{
	wait_until { eval { $hive->refusals($name) >= 3 } } "$name of Hive to be refused";
	return;
}

subtest 'Hive and sessions share a tree' => sub {
	is($s->query(tree_lock($part)), 't', 'SQL has a partition');
	my $whole = $hive->acquire_start('whole', $table, -1, 'hive_exclusive');
	hive_waits('whole');
	ok(!$hive->ready($whole), 'Hive does not get the table');
	is($hive->acquire("above", $_, -1, 'hive_shared'), 1, "but shares $_") && $hive->release('above') foreach $db, $table;
	is($hive->acquire('sister', $sister, -1, 'hive_exclusive'), 1, 'and gets another partition');
	$hive->release('sister');
	is($s->query(tree_unlock($part)), 't', 'SQL gives the partition back');
	is($hive->result($whole), 1, 'then Hive gets the table');
	is($s->query(tree_lock($part, '0')), 'f', 'and SQL no part of it');
	is($s->query(tree_lock_shared($db, '0')), 't', 'while it shares the database');
	$s->query(tree_unlock_shared($db));
	$s->start_waiting(tree_lock($part), $table);
	$hive->release('whole');
	is($s->finish, 't', 'until Hive gives it back');
	$s->query(tree_unlock($part));
};

subtest 'LOCK TABLE of Hive is respected when its session has ended' => sub {
	# LOCK TABLE outlives the session that said so: its node is persistent.
	my $explicit = Zklock::JavaPeer->new;
	$explicit->connect($zk->connect_string);
	$explicit->acquire('table', $table, -1, 'hive_lock_table');
	my ($node) = grep { /^LOCK-EXCLUSIVE/ } $zk->children($table);
	$explicit->close_session;
	is($shell->stat("$table/$node")->{ephemeralOwner}, '0x0', 'LOCK TABLE is a persistent node');
	is($s->query(tree_lock($part, '0')), 'f', 'and is respected when its session has ended');
	$s->start_waiting(tree_lock($part), $table);
	$a->wait_value("SELECT blocked_by_node FROM zk_locks WHERE state = 'waiting' AND pid = " . $s->pid, $node);
	pass('as zk_locks shows');
	$shell->delete("$table/$node");
	is($s->finish, 't', 'until somebody unlocks the table');
	$s->query(tree_unlock($part));
};

subtest 'trees and arrays are locked in one order, so that nobody deadlocks' => sub {
	my @rounds = (tree_lock($part), tree_lock($sister), tree_lock($table), tree_lock_shared($part),
		map { ("SELECT $_(ARRAY['$sister', '$part', '$table'])", "SELECT $_(ARRAY['$table', '$part', '$sister'])") }
		  qw(zk_lock zk_xact_lock));
	my @sessions = map { ($a, $b)[ $_ % 2 ]->session(name => "order $_") } 0 .. 2 * $#rounds + 1;
	foreach my $i (0 .. $#sessions)
	{
		my $lock = $rounds[ $i % @rounds ] =~ s/^SELECT/PERFORM/r;
		$sessions[$i]->query_start("DO \$\$ BEGIN FOR i IN 1 .. 20 LOOP $lock; PERFORM zk_unlock_all(); COMMIT; END LOOP; END \$\$");
	}
	is($_->result->{error}, undef, $_->name . ' is served each time') foreach @sessions;
};

unlike($_->log_since(0), qr/ignoring child/, 'the log is silent about the tree') foreach $a, $b;
$hive->close_session;
is_deeply([ map { names($_) } @all ], [ ('') x 4 ], 'no lock node is left');
done_clean($zk, $a, $b);
