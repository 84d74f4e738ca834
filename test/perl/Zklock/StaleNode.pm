# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::StaleNode - nodes of locks that have outlived their session

=head1 SYNOPSIS

  use Zklock::StaleNode;

  my $zk   = Zklock::ZooKeeper->standalone(stale_nodes => 1);
  my $name = stale($zk, '/a');              # of a session that does not exist
  my $name = stale($zk, '/a', $session);    # of this one

=cut

package Zklock::StaleNode;

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT = qw(stale);

my $uuids = 0;

sub stale
{
	my ($zk, $path, $session) = @_;
	my $name = sprintf('_c_00000000-0000-0000-0000-%012d-lock-0000000000', ++$uuids);
	$zk->shell->create($path, makepath => 1) unless $zk->shell->exists($path);
	$zk->stale_node("$path/$name", $session || '0x123456789abcd', $zk->shell->stat($path)->{czxid});
	return $name;
}

1;
