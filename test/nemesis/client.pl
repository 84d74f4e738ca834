#!/usr/bin/perl
# Copyright (c) 2026, zklock contributors
#
# client.pl CONFIGURATION
#
# A client of the fault run, as Nemesis::Target has it: takes its turns in a target until SIGUSR1 says
# that the last one is due.

use v5.36;

use FindBin;
use JSON::PP;
use lib "$FindBin::Bin/lib";
use Nemesis::Target;

my $config;

# PostgreSQL's modules, if it needs any, must be there before the program runs.
BEGIN
{
	$config = JSON::PP->new->utf8->decode($ARGV[0]);
	require "Nemesis/$config->{class}.pm";
}
my ($target) = Nemesis::Target->all($config->{target});
my $client = "Nemesis::$config->{class}"->new($config);
$target->turn($client) until $client->last_lap;
$target->last_turn($client);
$client->disconnect;
