# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Faults - the table of faults by name, test/faults/README.md

=head1 SYNOPSIS

  use Zklock::Faults;

  my @names = Zklock::Faults->names;            # of all faults
  my @bugs  = Zklock::Faults->names('found by');    # of those whose last column has this head
  my ($test) = Zklock::Faults->tests('orphan');     # 'nemesis lose_reply:op=create2'
  Zklock::Faults->check('orphan,slow-writes');      # dies if there is no such fault

Zklock::Server switches faults on. This module needs nothing of PostgreSQL.

=cut

package Zklock::Faults;

use v5.36;

use Carp;
use File::Basename qw(dirname);

my $table = dirname(__FILE__) . '/../../faults/README.md';
my %faults;

# A row begins with the name in backquotes, the head of a table with the word "fault".
open(my $fh, '<', $table) or die "$table: $!";
my $last_head = '';
while (<$fh>)
{
	next unless /^\|(.*)\|$/;
	my @cells = map { s/^\s+|\s+$//gr } split /\|/, $1;
	$last_head = $cells[-1] if $cells[0] eq 'fault';
	my ($name) = $cells[0] =~ /^`(.+)`$/ or next;
	die "$table has two rows for $name" if $faults{$name};
	$faults{$name} = { head => $last_head, tests => [ $cells[-1] =~ /`([^`]+)`/g ] };
}

sub names($class, $head = undef)
{
	my @names = grep { !defined $head || $faults{$_}{head} eq $head } sort keys %faults;
	return @names;
}

sub tests($class, $name) { $class->check($name); return @{ $faults{$name}{tests} }; }

sub check($class, $list)
{
	my ($unknown) = grep { !$faults{$_} } split /,/, $list;
	croak "there is no fault $unknown; there are: @{[ $class->names ]}" if defined $unknown;
	return;
}

1;
