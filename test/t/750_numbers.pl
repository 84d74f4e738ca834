# Copyright (c) 2026, zklock contributors
#
# How ZooKeeper numbers sequential nodes: each node created counts, numbered or not, and none
# that is deleted; and a path that is created again begins anew. src/queue/streak.c relies on it.

use strict;
use warnings;

use Test::More;
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $shell = $zk->shell;

sub numbered { my ($path) = @_; return substr($shell->create("$path/n-", ephemeral => 1, sequence => 1), -10) + 0; }

$shell->create('/numbers', makepath => 1);
is(numbered('/numbers'), 0, 'the first');
is(numbered('/numbers'), 1, 'the next');
$shell->delete('/numbers/n-0000000001');
is(numbered('/numbers'), 2, 'a deletion does not count');
$shell->create('/numbers/other', ephemeral => 1);
is(numbered('/numbers'), 4, 'a node without a number counts');
$shell->create('/numbers/lasting');
$shell->delete('/numbers/lasting');
is(numbered('/numbers'), 6, 'so does one that is gone again');
$shell->set('/numbers', 'data');
is(numbered('/numbers'), 7, 'data do not');
$shell->delete("/numbers/$_") foreach $zk->children('/numbers');
$shell->delete('/numbers');
$shell->create('/numbers', makepath => 1);
is(numbered('/numbers'), 0, 'a path that is created again begins anew');
$shell->delete('/numbers/n-0000000000');
done_testing;
