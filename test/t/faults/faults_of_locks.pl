# Copyright (c) 2026, zklock contributors
#
# Locks, in each dialect, and reservations, under each fault of the table in Zklock::FaultTable, at each call to ZooKeeper.

use Zklock::Test;
use Zklock::FaultTable;

Zklock::FaultTable->new->check('lock', 'try-lock', 'shared lock', 'lock of a transaction', 'reservation',
	Zklock::FaultTable::dialects('lock', 'shared lock'));
