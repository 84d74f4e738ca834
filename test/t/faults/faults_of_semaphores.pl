# Copyright (c) 2026, zklock contributors
#
# Permits under each fault of the table in Zklock::FaultTable, at each call to ZooKeeper.

use Zklock::Test;
use Zklock::FaultTable;

Zklock::FaultTable->new->check('semaphore');
