# Copyright (c) 2026, zklock contributors
#
# What is done once for all, a claim, a persistent lock or an element's way, under each fault of the table in
# Zklock::FaultTable, at each call to ZooKeeper.

use Zklock::Test;
use Zklock::FaultTable;

Zklock::FaultTable->new->check('claim', 'first claim', 'persistent lock', 'element offered', 'element removed', 'element taken');
