# Copyright (c) 2026, zklock contributors
#
# The fault run: see test/nemesis/README.md. A short one, with the same schedule each time, unless the environment
# says something else, as "make nemesis" does.

use Zklock::Test;
use FindBin;
use lib "$FindBin::Bin/../../nemesis/lib";
use Nemesis::Run;

Nemesis::Run->new(seconds => scaled(40), seed => 1)->test;
done_testing;
