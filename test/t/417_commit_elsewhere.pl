# Copyright (c) 2026, zklock contributors
#
# A transaction that writes in another database too, through postgres_fdw, which commits
# there a moment before the commit here. When a lock is lost, nothing is committed anywhere.

use strict;
use warnings;

use Test::More;
use Zklock::Server;
use Zklock::ZooKeeper;

my $zk = Zklock::ZooKeeper->standalone;
my $a = Zklock::Server->new('a', zookeeper => $zk, conf => ["zklock.session_timeout = '20s'", 'max_prepared_transactions = 1']);
plan skip_all => 'needs postgres_fdw'
  unless $a->value("SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'");

$a->value($_) foreach 'CREATE DATABASE elsewhere', 'CREATE EXTENSION postgres_fdw',
  sprintf("CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'elsewhere')",
	$a->host, $a->port),
  "DO 'BEGIN EXECUTE format(''CREATE USER MAPPING FOR CURRENT_USER SERVER elsewhere OPTIONS (user %L)'', current_user); END'",
  'CREATE FOREIGN TABLE there (i int) SERVER elsewhere', 'CREATE TABLE here (i int)';
my $elsewhere = $a->session(dbname => 'elsewhere');
$elsewhere->query('CREATE TABLE there (i int)');

# Callbacks at commit are called in the reverse order of the first use in a session.
my %first = (
	zklock       => "SELECT zk_lock('/e/first') AND zk_unlock('/e/first')",
	postgres_fdw => 'SELECT count(*) FROM there');

subtest 'a commit that zklock refuses is not done elsewhere either, whichever was loaded first' => sub {
	foreach my $first (sort keys %first)
	{
		foreach my $guard (qw(lease quorum))
		{
			my $path    = "/e/$first-$guard";
			my $session = $a->session;
			$session->query($_) foreach $first{$first}, "SET zklock.commit_guard = $guard", 'BEGIN',
			  "SELECT zk_xact_lock('$path')", 'INSERT INTO here VALUES (1)', 'INSERT INTO there VALUES (1)';
			$zk->shell->delete("$path/$_") foreach $zk->children($path);
			$a->wait_lock($session, 'lost', $path);
			is($session->try('COMMIT')->{sqlstate}, '40001', "$guard, $first first: the commit is refused");
			is($session->query('SELECT count(*) FROM here'), 0, 'nothing is written here');
			is($elsewhere->query('SELECT count(*) FROM there'), 0, 'nor elsewhere');

			# The transaction is over, and the next one is as good as any.
			$session->query($_) foreach 'BEGIN', "SELECT zk_xact_lock('$path')", 'INSERT INTO here VALUES (1)',
			  'INSERT INTO there VALUES (1)';
			is($session->try('COMMIT')->{sqlstate}, '00000', 'a lock that is held lets both commit');
			is($elsewhere->query('SELECT count(*) FROM there'), 1, 'elsewhere as well');
			$session->query($_) foreach 'TRUNCATE here', 'DELETE FROM there';
			$session->disconnect;
		}
	}
};

subtest 'what is written elsewhere, or prepared, does not count as written under a lock of the session' => sub {
	# What does not count as having written under a session-level lock.
	my $session = $a->session;
	$session->query($_) foreach "SELECT zk_lock('/e/session')", 'BEGIN', 'INSERT INTO here VALUES (1)', "PREPARE TRANSACTION 'p'";
	$zk->shell->delete("/e/session/$_") foreach $zk->children('/e/session');
	$a->wait_lock($session, 'lost', '/e/session');
	is($session->try('INSERT INTO here VALUES (1)')->{sqlstate}, '40001', 'a lost lock at session level: no more is written here');
	is($session->try($_)->{sqlstate}, '00000', $_)
	  foreach 'INSERT INTO there VALUES (1)', 'NOTIFY somebody', "COMMIT PREPARED 'p'";
	$session->disconnect;
};

$elsewhere->disconnect;
$a->assert_clean($zk, '/e/first', '/e/session', map { my $f = $_; map { "/e/$f-$_" } qw(lease quorum) } keys %first);
done_testing;
