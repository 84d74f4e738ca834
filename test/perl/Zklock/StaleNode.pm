# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::StaleNode - nodes of locks that have outlived their session

=head1 SYNOPSIS

  use Zklock::StaleNode;

  my $zk   = Zklock::ZooKeeper->standalone(stale_nodes => 1);
  my $name = stale($zk, '/a');              # of a session that does not exist
  my $name = stale($zk, '/a', $session);    # of this one
  my $name = name($sequence);               # of a node that is not there

  $s->query(call('/a', $name));             # zk_remove_stale_node
  fails($s, call('/a', $name), '55006', 'a node of a session that lives', qr/lives/);
                                            # tests: SQLSTATE, and what the error says

=cut

package Zklock::StaleNode;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

our @EXPORT = qw(name stale call fails);

my $uuids = 0;

sub name { return sprintf('_c_00000000-0000-0000-0000-%012d-lock-%010d', ++$uuids, $_[0] || 0); }

sub stale
{
	my ($zk, $path, $session) = @_;
	my $name = name();
	$zk->shell->create($path, makepath => 1) unless $zk->shell->exists($path);
	$zk->stale_node("$path/$name", $session || '0x123456789abcd', $zk->shell->stat($path)->{czxid});
	return $name;
}

sub call { my ($path, $node) = @_; return "SELECT zk_remove_stale_node('$path', '$node')"; }

sub fails
{
	my ($session, $sql, $sqlstate, $name, $text) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = $session->try($sql);
	is($result->{sqlstate}, $sqlstate, $name) or diag $result->{error} || $result->{text};
	like(join("\n", map { $result->{$_} || '' } qw(message detail hint)), $text, 'which tells why') if $text;
	return;
}

1;
