# Copyright (c) 2026, zklock contributors
#
# ZooKeeper's own recipe, and Hive's locks, against ours in every dialect: who excludes whom,
# and is it what the table in doc/interoperability.md says?
#
# Hive itself is not in Debian. A Java program does what its source says.

use Zklock::Test;
use Zklock::Matrix;

my $matrix = Zklock::Matrix->new;
$matrix->check(
	{ label => 'ZooKeeper recipes `WriteLock`', java => 'recipe' },
	{ label => 'Hive `EXCLUSIVE`',              java => 'hive_exclusive' },
	{ label => 'Hive `SHARED`',                 java => 'hive_shared', shared => 1 },
	{ label => 'Hive `LOCK TABLE ... EXCLUSIVE`', java => 'hive_lock_table' });
$matrix->end;
done_testing;
