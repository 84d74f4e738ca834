# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Catalog - the objects of the extension, as a database's catalogs have them

=head1 SYNOPSIS

  use Zklock::Catalog qw(calls call_all);

  my %sqlstate = call_all($session);

  calls($session)       statements that call each of its functions but those of triggers, with
                        nulls for arguments
  call_all($session)    runs them: a hash of statements and SQLSTATEs. None may end the session

=cut

package Zklock::Catalog;

use v5.36;

use Exporter 'import';

our @EXPORT_OK = qw(calls call_all);

sub calls($session)
{
	return split /\n/, $session->query(q{
		SELECT format('SELECT * FROM %s(%s)', p.oid::regproc,
			(SELECT string_agg(format('NULL::%s', format_type(type, NULL)), ', ' ORDER BY n)
			FROM unnest(proargtypes::oid[]) WITH ORDINALITY a (type, n)))
		FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
		WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
			AND prorettype <> 'trigger'::regtype
		ORDER BY p.oid::regprocedure::text});
}

sub call_all($session) { return map { $_ => $session->try($_)->{sqlstate} } calls($session); }

1;
