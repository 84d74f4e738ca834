# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Refusals - errors that ZooKeeper answers with, and what becomes of them

=head1 SYNOPSIS

  use Zklock::Refusals;

  foreach my $code (error_codes())       # those that any request may meet
  {
      my $path = new_path('create');     # '/e/create1', '/e/create2', ...
      $proxy->refuse(op => 'create2', code => $code, path => "^$path");
      says($s->try("SELECT zk_lock('$path')"), $code, 'create');
                                         # tests: the result is an error that names $error_name{$code}
      moderate($proxy, 'create2');       # a test: it was not asked for in a storm
  }

=cut

package Zklock::Refusals;

use v5.36;

use Exporter qw(import);
use Test::More;

our @EXPORT = qw(%error_name error_codes new_path says moderate);

our %error_name = (
	-1   => 'ZSYSTEMERROR',
	-3   => 'ZDATAINCONSISTENCY',
	-5   => 'ZMARSHALLINGERROR',
	-6   => 'ZUNIMPLEMENTED',
	-102 => 'ZNOAUTH',
	-120 => 'ZEPHEMERALONLOCALSESSION',
	-125 => 'ZQUOTAEXCEEDED',
	-127 => 'ZTHROTTLEDOP',
	-999 => 'error -999');

sub error_codes { my @codes = sort keys %error_name; return @codes; }

my $paths = 0;
sub new_path { return '/e/' . $_[0] . ++$paths; }

sub says($result, $code, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{sqlstate}, $code == -102 ? '42501' : '58000', "$what: $error_name{$code} is an error");
	like($result->{detail} || '', qr/^ZooKeeper refused: $error_name{$code}\./, 'which is named')
	  or diag explain $result;
	return;
}

# A server that is asked again at once gets hundreds.
sub moderate($proxy, $op)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok($proxy->counts->{$op} || 0, '<', 40, "no storm of $op");
	return;
}

1;
