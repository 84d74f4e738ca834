# Copyright (c) 2026, zklock contributors
#
# Permits of semaphores at transaction level: they go when the transaction ends, or with the
# part of it that acquired them, and never before.

use Zklock::Test;

my ($zk, $a, $b) = cast('a b', a => { conf => ['max_prepared_transactions = 5'] });
my $s     = $a->session;
my $other = $b->session;
my $path  = '/permits';
my $take  = "SELECT zk_xact_semaphore_acquire('$path', 1)";
$a->value('CREATE TABLE t (i int)');

# The semaphore's one permit is, or is not, free for others.
sub others_have($answer, $name)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# It is free when the worker is done, not when the statement that released it is.
	is($other->query("SELECT zk_semaphore_acquire('$path', 1, " . ($answer eq 't' ? "'30s')" : "'0')")), $answer, $name);
	$other->query("SELECT zk_semaphore_release('$path')") if $answer eq 't';
	return;
}

foreach my $case (
	[ commit   => 'COMMIT' ],
	[ rollback => 'ROLLBACK' ],
	[ error    => 'SELECT 1 / 0', 'ROLLBACK' ])
{
	my ($name, @end) = @$case;
	subtest "until the end of the transaction: $name" => sub {
		$s->query('BEGIN');
		is($s->query($take), 't', 'a permit');
		is(join(' ', map { "$_->{kind} $_->{scope} $_->{state}" } $a->locks), 'semaphore transaction held', 'which zk_locks shows');
		like($s->try("SELECT zk_semaphore_release('$path')")->{notices}[0], qr/you don't own a session-level permit/, 'cannot be released by hand');
		$s->query('SELECT zk_unlock_all()');
		others_have('f', 'nobody else has it');
		$s->try($_) foreach @end;
		others_have('t', 'now another server has it');
	};
}

subtest 'or of the part of it that acquired it' => sub {
	$s->query($_) foreach 'BEGIN', 'SAVEPOINT s', $take, 'SAVEPOINT t', 'RELEASE t';
	others_have('f', 'nobody else has it');
	$s->query('ROLLBACK TO s');
	others_have('t', 'a rollback to a savepoint gives it back');
	$s->query($_) foreach $take, 'RELEASE s';
	others_have('f', 'what a savepoint that was released has acquired stays');
	$s->query('COMMIT');
	others_have('t', 'until the end');
	$s->query(qq{DO \$\$ BEGIN BEGIN PERFORM zk_xact_semaphore_acquire('$path', 1); RAISE 'no'; EXCEPTION WHEN raise_exception THEN NULL; END; END \$\$});
	others_have('t', 'as does an exception block');
};

subtest 'several permits, at both levels' => sub {
	$s->query('BEGIN');
	is($s->query("SELECT zk_semaphore_acquire('$path', 2), zk_xact_semaphore_acquire('$path', 2)"), 't|t', 'one each');
	is($other->query("SELECT zk_semaphore_acquire('$path', 2, '0')"), 'f', 'there is no third');
	$s->query('COMMIT');
	is($other->query("SELECT zk_semaphore_acquire('$path', 2, '30s')"), 't', 'one goes with the transaction');
	is($s->query("SELECT zk_semaphore_release('$path')"), 't', 'the other by hand');
	$other->query("SELECT zk_semaphore_release('$path')");
};

subtest 'a transaction that has one cannot be prepared' => sub {
	$s->query($_) foreach 'BEGIN', $take;
	is($s->try("PREPARE TRANSACTION 'p'")->{sqlstate}, '0A000', 'refused');
	others_have('t', 'and it is rolled back');
};

subtest 'a transaction that has lost one cannot commit, and need not release it' => sub {
	$s->query($_) foreach 'BEGIN', $take, 'INSERT INTO t VALUES (1)';
	$zk->shell->delete("$path/leases/$_") foreach $zk->children("$path/leases");
	$a->wait_lock($s, 'lost', $path);
	my $result = $s->try('COMMIT');
	is($result->{sqlstate}, '40001', 'refused');
	is($result->{hint}, 'Others may have held the lock meanwhile. Retry the transaction.', 'the hint knows of no release');
	others_have('t', 'others have it');
	$s->query("SELECT zk_lock('$path/session')");
	$zk->shell->delete("$path/session/$_") foreach $zk->children("$path/session");
	$a->wait_lock($s, 'lost', "$path/session");
	$s->query($_) foreach 'BEGIN', 'INSERT INTO t VALUES (1)';
	is($s->try('COMMIT')->{hint}, 'Others may have held the lock meanwhile. Release it and retry the work.', 'at session level it does');
	$s->query('SELECT zk_unlock_all()');
};

done_clean($zk, $a, $b);
