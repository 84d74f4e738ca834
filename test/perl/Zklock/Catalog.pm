# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Catalog - the objects of the extension, as a database's catalogs have them

=head1 SYNOPSIS

  use Zklock::Catalog qw(functions call_all);

  my %sqlstate = call_all($session);

  functions($session)   the names of its functions, but those of triggers
  call_all($session)    calls each of these, with nulls for arguments: a hash of statements and
                        SQLSTATEs. None may end the session

=cut

package Zklock::Catalog;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT_OK = qw(functions call_all);

my $its_functions = q{pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
	WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
		AND prorettype <> 'trigger'::regtype};

sub functions
{
	my ($session) = @_;
	return split /\n/, $session->query("SELECT DISTINCT proname FROM $its_functions ORDER BY 1");
}

sub call_all
{
	my ($session) = @_;
	my @calls = split /\n/, $session->query(qq{
		SELECT format('SELECT * FROM %s(%s)', p.oid::regproc,
			(SELECT string_agg(format('NULL::%s', format_type(type, NULL)), ', ' ORDER BY n)
			FROM unnest(proargtypes::oid[]) WITH ORDINALITY a (type, n)))
		FROM $its_functions ORDER BY p.oid::regprocedure::text});
	return map { $_ => $session->try($_)->{sqlstate} } @calls;
}

1;
