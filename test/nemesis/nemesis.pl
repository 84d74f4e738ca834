# Copyright (c) 2026, zklock contributors
#
# The fault run: see README.md in this directory.

use v5.36;

use FindBin;
use lib "$FindBin::Bin/lib";
use Nemesis::Run;
use Test::More;

Nemesis::Run->from_environment(seconds => 60)->test;
done_testing;
