# Copyright (c) 2026, zklock contributors
#
# Locks in a tree, as Hive takes them on databases, tables and partitions. A session that
# works on a part keeps others from the whole and from that part, and from nothing else:
# SQL sessions of two servers, and a program that does what Hive does.

use Zklock::Test;
use Zklock::JavaPeer;

my ($zk, $a, $b) = cast('a b', conf => [ "zklock.path_dialects = '/*=hive'", "zklock.parent_nodes = 'persistent'" ]);
my ($s, $t) = map { $a->session(name => $_) } qw(s t);
my $r    = $b->session(name => 'r');
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

subtest 'a function for which a superuser declares other types of text locks the same' => sub {
	my $library = "AS '\$libdir/zklock'";
	$s->query("CREATE DOMAIN paths AS text[]");
	$s->query("CREATE DOMAIN patience AS interval");
	$s->query("CREATE FUNCTION lock_part(varchar, varchar) RETURNS boolean $library, 'zk_lock' LANGUAGE C");
	$s->query("CREATE FUNCTION lock_all(paths, patience) RETURNS boolean $library, 'zk_lock' LANGUAGE C");
	$s->query("CREATE FUNCTION lock_one(varchar, patience) RETURNS boolean $library, 'zk_lock' LANGUAGE C");
	my %calls = (
		"lock_part('$part', '$root')"        => "$db shared, $table shared, $part exclusive",
		"lock_all('{$part, $sister}', '1s')" => "$part exclusive, $sister exclusive",
		"lock_one('$part', '1s')"            => "$part exclusive");
	foreach my $call (sort keys %calls)
	{
		$s->query("SELECT $call");
		is(join(', ', map { "$_->{path} $_->{mode}" } $a->locks("pid = " . $s->pid . " AND state = 'held'")), $calls{$call}, $call);
		$s->query('SELECT zk_unlock_all()');
	}
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
	is($zk->shell->stat("$table/$node")->{ephemeralOwner}, '0x0', 'LOCK TABLE is a persistent node');
	is($s->query(tree_lock($part, '0')), 'f', 'and is respected when its session has ended');
	$s->start_waiting(tree_lock($part), $table);
	$a->wait_value("SELECT blocked_by_node FROM zk_locks WHERE state = 'waiting' AND pid = " . $s->pid, $node);
	pass('as zk_locks shows');
	$zk->shell->delete("$table/$node");
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
$_->end_sessions foreach $a, $b;
Zklock::Server->assert_clean($zk, [ $a, $b ]);
is_deeply([ map { names($_) } @all ], [ ('') x 4 ], 'no lock node is left');
done_testing;
