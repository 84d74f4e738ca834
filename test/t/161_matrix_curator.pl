# Copyright (c) 2026, zklock contributors
#
# Curator's locks and ours in every dialect: who excludes whom, and is it what the table in
# doc/interoperability.md says?

use Zklock::Test;
use Zklock::Matrix;

my $matrix = Zklock::Matrix->new;
$matrix->check(
	{ label => 'Curator `InterProcessMutex`',                     java => 'mutex' },
	{ label => 'Curator `InterProcessMultiLock` of mutexes',      java => 'multi' },
	{ label => 'Curator `InterProcessReadWriteLock`, write lock', java => 'write' },
	{ label => 'Curator `InterProcessReadWriteLock`, read lock',  java => 'read', shared => 1 },
	{ label => 'Curator `InterProcessSemaphoreMutex`',            java => 'semaphore' });
$matrix->end;
done_testing;
