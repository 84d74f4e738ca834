# Copyright (c) 2026, zklock contributors
#
# The fault run: see README.md in this directory.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../nemesis/lib";
use Nemesis::Run;
use Test::More;

my %setting = map { lc s/^NEMESIS_//r => $ENV{$_} } grep { /^NEMESIS_/ && $ENV{$_} ne '' } keys %ENV;
Nemesis::Run->new(
	seconds => $setting{seconds} || 60,
	seed    => defined $setting{seed} ? $setting{seed} : int(rand(1_000_000)),
	faults  => [ split /[\s,]+/, $setting{faults} || '' ],
	clients => $setting{clients} || 30)->test;
done_testing;
