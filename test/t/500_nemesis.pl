# Copyright (c) 2026, zklock contributors
#
# A short fault run, with another seed each time: see test/nemesis/README.md.

use strict;
use warnings;

use FindBin;

$ENV{NEMESIS_SECONDS} ||= 40;
$ENV{NEMESIS_CLIENTS} ||= 30;
do "$FindBin::Bin/../nemesis/nemesis.pl" or die $@ || $!;
