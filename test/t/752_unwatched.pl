# Copyright (c) 2026, zklock contributors
#
# A lock that is granted without a listing is watched a moment later. Whoever relies on it in a
# transaction hears all the same if somebody has deleted its node. The bug watched-early of
# test/faults.md makes this fail.
#
# On server a that moment is a minute.

use strict;
use warnings;

use Test::More;
use Zklock::Cast qw(:DEFAULT lost unlock clean);
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};

my $zk = Zklock::ZooKeeper->standalone;
my $a  = Zklock::Server->new('a', zookeeper => $zk, faults => 'long-pauses,late-watches');
$a->value('CREATE TABLE t (i int)');
my ($path, @paths);

# The session "holder" holds a new path, and its node is not watched.
sub hold_unwatched
{
	my ($suffix) = @_;
	push @paths, $path = '/unwatched/' . @paths;
	on($a, 'holder')->query("DO \$\$ BEGIN FOR i IN 1 .. 6 LOOP
		PERFORM zk_lock$suffix('$path'); PERFORM zk_unlock$suffix('$path'); END LOOP; END \$\$");
	hold($a, 'holder', $path) if $suffix eq '';
	is($s{holder}->query("SELECT zk_lock_shared('$path')"), 't', 'a shared lock') if $suffix ne '';
	return;
}

sub delete_nodes { $zk->shell->delete("$path/$_") foreach $zk->children($path); return; }

foreach my $suffix ('', '_shared')
{
	subtest "zk_lock$suffix: what was written is not committed" => sub {
		$s{holder}->query('BEGIN; INSERT INTO t VALUES (1)') if on($a, 'holder');
		hold_unwatched($suffix);
		delete_nodes();
		is($s{holder}->try('COMMIT')->{sqlstate}, '40001', 'the commit fails');
		is($a->value('SELECT count(*) FROM t'), 0, 'nothing was written');
		lost($a, 'holder', $path) if $suffix eq '';
		$s{holder}->query('SELECT zk_unlock_all()');
	};

	subtest "zk_lock$suffix: nor if the lock was released before" => sub {
		foreach my $release ("SELECT zk_unlock$suffix('%s')", 'SELECT zk_unlock_all()')
		{
			$s{holder}->query('BEGIN; INSERT INTO t VALUES (1)');
			hold_unwatched($suffix);
			delete_nodes();
			my $result = $s{holder}->try($release =~ s/%s/$path/r);
			like("@{ $result->{notices} }", qr/WARNING:.*lost/, 'who releases it is told');
			is($s{holder}->try('COMMIT')->{sqlstate}, '40001', 'the commit fails');
			is($a->value('SELECT count(*) FROM t'), 0, 'nothing was written');
		}
	};

	subtest "zk_lock$suffix: what was written is committed if nobody did anything" => sub {
		$s{holder}->query('BEGIN; INSERT INTO t VALUES (1)');
		hold_unwatched($suffix);
		ok($s{holder}->try('COMMIT')->{ok}, 'the commit passes');
		$s{holder}->query("SELECT zk_unlock$suffix('$path')");
		$s{holder}->query('BEGIN; INSERT INTO t VALUES (1)');
		hold_unwatched($suffix);
		is($s{holder}->query("SELECT zk_unlock$suffix('$path')"), 't', 'the lock is released before');
		ok($s{holder}->try('COMMIT')->{ok}, 'the commit passes');
		is($a->value('SELECT count(*) FROM t'), 2, 'all was written');
		$a->value('TRUNCATE t');
	};
}

subtest 'a lock of the transaction is watched at once' => sub {
	hold_unwatched('');
	unlock('holder', $path);
	$s{holder}->query("BEGIN; SELECT zk_xact_lock('$path')");
	delete_nodes();
	$a->wait_lock($s{holder}, 'lost', $path);
	is($s{holder}->try('COMMIT')->{sqlstate}, '40001', 'the commit fails');
};

subtest 'a release that finds the node gone is a loss' => sub {
	hold_unwatched('');
	my $losses = $a->value('SELECT sum(losses) FROM zk_stats');
	my $mark   = $a->log_mark;
	delete_nodes();
	$s{holder}->query("SELECT zk_unlock('$path')");
	$a->wait_log(qr{WARNING:  node "$path/_c_\S+" of lock "$path" was deleted by someone else}, $mark);
	$a->wait_value('SELECT sum(losses) FROM zk_stats', $losses + 1);
	pass('the log tells of it, and it counts');
};

subtest 'who waits behind it is served when it is gone' => sub {
	hold_unwatched('');
	queue($a, 'waiter', $path);
	delete_nodes();
	is($s{waiter}->finish, 't', 'the next one gets the lock');
	lost($a, 'holder', $path);
	unlock('waiter', $path);
};

subtest 'without late watches, a deletion is noticed at once' => sub {
	$a->set_faults('long-pauses');
	hold_unwatched('');
	delete_nodes();
	lost($a, 'holder', $path);
};

$a->set_faults('');
clean($zk, [$a], @paths);
done_testing;
