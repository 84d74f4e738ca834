# Copyright (c) 2026, zklock contributors
#
# A server gives way to one of higher priority, in each family of names, under each fault of the table in Zklock::FaultTable, at
# each call by which it learns of the other, or goes behind it.

use Zklock::Test;
use Zklock::FaultTable;

plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};

Zklock::FaultTable->new(faults => 'prefer-at-once')->check('giving way', map { "giving way, $_" } 'zookeeper', 'lock');
