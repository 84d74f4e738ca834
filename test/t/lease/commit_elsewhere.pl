# Copyright (c) 2026, zklock contributors
#
# A transaction that writes on another database server too, through postgres_fdw, which
# commits there before the commit here. Under a lock that is known to be lost the command
# COMMIT commits nothing anywhere, whichever of the two extensions the session used first;
# a commit without the command commits nothing here.

use Zklock::Test;

my ($zk, $here) = cast('here', timeout => '20s', conf => ['max_prepared_transactions = 1']);
plan skip_all => 'needs postgres_fdw'
  unless $here->value("SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'");
my $there = Zklock::Server->new('there', preload => 0, extension => 0);

$there->value('CREATE TABLE there (i int)');
$here->value($_) foreach 'CREATE EXTENSION postgres_fdw',
  sprintf("CREATE SERVER there FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'postgres')",
	$there->host, $there->port),
  "DO 'BEGIN EXECUTE format(''CREATE USER MAPPING FOR CURRENT_USER SERVER there OPTIONS (user %L)'', current_user); END'",
  'CREATE FOREIGN TABLE there (i int) SERVER there', 'CREATE TABLE here (i int)',
  # Writes there only when the transaction commits.
  'CREATE TABLE later (i int)',
  'CREATE FUNCTION write_there() RETURNS trigger LANGUAGE plpgsql AS
	 $$ BEGIN INSERT INTO there VALUES (NEW.i); RETURN NULL; END $$',
  'CREATE CONSTRAINT TRIGGER later AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED
	 FOR EACH ROW EXECUTE FUNCTION write_there()';

# What each of them does. If it is to lose its lock, that is known when it has another one.
my $lose = q{
	IF current_setting('t.lose')::boolean THEN PERFORM zk_break_lock(path), zk_xact_lock(path || '/next'); END IF;};
my $work = "PERFORM zk_xact_lock(path); INSERT INTO here VALUES (1); INSERT INTO there VALUES (1); $lose";
$here->value("CREATE FUNCTION f(path text) RETURNS void LANGUAGE plpgsql AS \$\$ BEGIN $work END \$\$");
$here->value("CREATE FUNCTION only_lock(path text) RETURNS void LANGUAGE plpgsql AS
	\$\$ BEGIN PERFORM zk_xact_lock(path); $lose END \$\$");
$here->value("CREATE PROCEDURE p(path text) LANGUAGE plpgsql AS \$\$ BEGIN $work COMMIT; END \$\$");
# What failed has been undone when the transaction goes on.
$here->value("CREATE PROCEDURE caught(path text) LANGUAGE plpgsql AS
	\$\$ BEGIN BEGIN INSERT INTO there VALUES (1), (1 / (random() * 0)::int); EXCEPTION WHEN division_by_zero THEN NULL; END;
	$work COMMIT; END \$\$");
# Locks taken last, by expressions that plpgsql evaluates without the executor.
$here->value(q{CREATE PROCEDURE lock_last(path text) LANGUAGE plpgsql AS $$
	DECLARE held boolean;
	BEGIN
		INSERT INTO here VALUES (1);
		INSERT INTO there VALUES (1);
		held := zk_xact_lock(path);
		IF current_setting('t.lose')::boolean THEN
			held := zk_break_lock(path);
			held := zk_xact_lock(path || '/next');
		END IF;
		COMMIT;
	END $$});

# Statements of a transaction, of which "last" may lose its lock; "end" is the command COMMIT
my %ways = (
	'a procedure that commits'  => { last => sub { "CALL p('$_[0]')" } },
	'a procedure that has caught an error before' => { last => sub { "CALL caught('$_[0]')" } },
	'a procedure that locks last' => { last => sub { "CALL lock_last('$_[0]')" } },
	'a DO block that commits'   => { last => sub { "DO \$\$ DECLARE path text := '$_[0]'; BEGIN $work COMMIT; END \$\$" } },
	'a DO block'                => { last => sub { "DO \$\$ DECLARE path text := '$_[0]'; BEGIN $work END \$\$" } },
	'a single statement'        => { last => sub { "SELECT f('$_[0]')" } },
	'a single statement in the extended protocol' => { last => sub { "SELECT f('$_[0]')" }, extended => 1 },
	'a COMMIT'                  => { first => ['BEGIN'], last => sub { "SELECT f('$_[0]')" }, end => 'COMMIT' },
	'a COMMIT after a savepoint' =>
	  { first => [ 'BEGIN', 'SAVEPOINT s' ], last => sub { "SELECT f('$_[0]')" }, end => 'END' },
	'a COMMIT under the guard of a quorum' =>
	  { first => [ 'SET zklock.commit_guard = quorum', 'BEGIN' ], last => sub { "SELECT f('$_[0]')" }, end => 'COMMIT' },
	'a COMMIT that fires a deferred trigger' => {
		first => [ 'BEGIN', 'INSERT INTO here VALUES (1)', 'INSERT INTO later VALUES (1)' ],
		last  => sub { "SELECT only_lock('$_[0]')" },
		end   => 'COMMIT' });

# What the session has done before
my %before = (
	nothing      => [],
	zklock       => ["SELECT zk_lock('/e/first') AND zk_unlock('/e/first')"],
	postgres_fdw => ['SELECT count(*) FROM there']);

# Through Parse, Bind, Execute and Sync: the commit comes while the statement's portal is open.
sub try_extended($session, $sql)
{
	$sql =~ s/'(.*)'/?/;
	my $statement = $session->dbh->prepare($sql, { pg_server_prepare => 1 });
	$statement->execute($1);
	my $state = $session->dbh->state || '00000';
	$statement->finish;
	return { sqlstate => $state };
}

sub written { return map { $_->value('SELECT count(*) FROM ' . $_->name) } $here, $there; }

sub run($way, $session, $path, $lose)
{
	$session->query($_) foreach "SET t.lose = $lose", @{ $way->{first} || [] };
	my $sql    = $way->{last}->($path);
	my $result = $way->{extended} ? try_extended($session, $sql) : $session->try($sql);
	$result = $session->try($way->{end}) if $way->{end};
	return $result->{sqlstate};
}

foreach my $name (sort keys %ways)
{
	my $place = $ways{$name}{end} ? 'nowhere' : 'nothing here';
	subtest "$name commits $place under a lost lock" => sub {
		foreach my $before (sort keys %before)
		{
			my $session = $here->session;
			my $path    = '/e/' . ($name =~ s/\W/_/gr) . "-$before";
			$session->query($_) foreach @{ $before{$before} };
			is(run($ways{$name}, $session, $path, 1), '40001', "$before used before: the commit is refused");
			my ($writes_here, $writes_there) = written();
			is($writes_here,  0, 'nothing is written here');
			is($writes_there, 0, 'nor there') if $ways{$name}{end};
			$session->query('DELETE FROM there');

			# The transaction is over, and the next one is as good as any.
			is(run($ways{$name}, $session, $path, 0), '00000', 'a lock that is held lets it commit');
			is_deeply([ written() ], [ 1, 1 ], 'in both places');
			$session->query($_) foreach 'TRUNCATE here, later', 'DELETE FROM there';
		}
	};
}

subtest 'the COMMIT of a transaction that has failed rolls it back, whatever has become of its locks' => sub {
	foreach my $savepoint ('', 'SAVEPOINT s; ')
	{
		my $session = $here->session;
		$session->query($_) foreach "SELECT zk_lock('/e/failed')", 'BEGIN', 'INSERT INTO here VALUES (1)';
		$here->lose($zk, $session, '/e/failed');
		is($session->try("${savepoint}SELECT 1 / 0")->{sqlstate}, '22012', "${savepoint}an error");
		is($session->try('COMMIT')->{sqlstate}, '00000', 'COMMIT is no error');
		is($session->try('VALUES (1)')->{sqlstate}, '00000', 'and ends the transaction');
		is_deeply([ written() ], [ 0, 0 ], 'nothing is written');
	}
};

subtest 'what is written elsewhere, or prepared, does not count as written under a lock of the session' => sub {
	my $session = $here->session;
	$session->query($_) foreach "SELECT zk_lock('/e/session')", 'BEGIN', 'INSERT INTO here VALUES (1)', "PREPARE TRANSACTION 'p'";
	$here->lose($zk, $session, '/e/session');
	is($session->try('INSERT INTO here VALUES (1)')->{sqlstate}, '40001', 'a lost lock at session level: no more is written here');
	is($session->try($_)->{sqlstate}, '00000', $_)
	  foreach 'INSERT INTO there VALUES (1)', 'NOTIFY somebody', "COMMIT PREPARED 'p'";
};

done_clean($zk, $here);
