# Copyright (c) 2026, zklock contributors
#
# Leadership, and resignation, in each family of names, under each fault of the table in Zklock::FaultTable, at each call to ZooKeeper.

use Zklock::Test;
use Zklock::FaultTable;

Zklock::FaultTable->new->check(
	'election', 'resignation', 'resignation without rivals',
	map { ("election, $_", "resignation, $_", "resignation, $_ without rivals") } 'zookeeper', 'lock');
