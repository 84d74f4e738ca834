# Copyright (c) 2026, zklock contributors
#
# Several locks at once, and one that is downgraded, under each fault of the table in Zklock::FaultTable.

use Zklock::Test;
use Zklock::FaultTable;

Zklock::FaultTable->new->check('tree', 'array', 'downgrade', 'downgrade of a subtransaction',
	Zklock::FaultTable::dialects('downgrade'));
