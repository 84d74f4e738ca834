# Copyright (c) 2026, zklock contributors
#
# kazoo's locks and ours in every dialect: who excludes whom, and is it what the table in
# doc/interoperability.md says?

use Zklock::Test;
use Zklock::Matrix;

my $matrix = Zklock::Matrix->new;
$matrix->check(
	{ label => 'kazoo `Lock`', kazoo => 'exclusive', patterns => [] },
	{   label    => 'kazoo `Lock` with `extra_lock_patterns=["lock-", "__READ__"]`',
		kazoo    => 'exclusive',
		patterns => [ 'lock-', '__READ__' ] },
	{ label => 'kazoo `WriteLock`', kazoo => 'write', patterns => [] },
	{ label => 'kazoo `ReadLock`',  kazoo => 'shared', patterns => [], shared => 1 });
$matrix->end;
done_testing;
