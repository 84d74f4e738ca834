# Copyright (c) 2026, zklock contributors
#
# A short fault run, with the same schedule each time: see test/nemesis/README.md.

use Zklock::Test;
use FindBin;
use lib "$FindBin::Bin/../nemesis/lib";
use Nemesis::Run;

Nemesis::Run->from_environment(seconds => 40, seed => 1)->test;
done_testing;
