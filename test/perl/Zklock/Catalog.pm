# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Catalog - the objects of the extension, as a database's catalogs have them

=head1 SYNOPSIS

  use Zklock::Catalog qw(describe functions call_all);

  is(describe($updated), describe($fresh), 'both databases have the same');
  my %sqlstate = call_all($session);

=head1 FUNCTIONS

=over

=item describe($session)

All that the catalogs say about the extension and its members, object by object: definitions,
comments, privileges, what hangs on its tables. One line for each property of each.

=item functions($session)

The names of its functions, but those of triggers.

=item call_all($session)

Calls each of these, with nulls for arguments, and returns a hash of statements and SQLSTATEs.
None may end the session.

=back

=cut

package Zklock::Catalog;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT_OK = qw(describe functions call_all);

# Members, and what belongs to members and so is none itself: rules, triggers, constraints,
# indexes, defaults and the types of rows. (The names of TOAST tables have numbers that differ.)
my $description = q{
	WITH RECURSIVE member AS (
		SELECT classid, objid, objsubid FROM pg_depend
		WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
			AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
		UNION
		SELECT d.classid, d.objid, d.objsubid FROM pg_depend d
		JOIN member m ON d.refclassid = m.classid AND d.refobjid = m.objid
		WHERE d.deptype IN ('i', 'a')),
	object AS (
		SELECT DISTINCT classid, objid, pg_describe_object(classid, objid, 0) AS name FROM member),
	property AS (
		SELECT name, 'comment ' || objsubid || ': ' || description AS text
		FROM object JOIN pg_description ON classoid = classid AND objoid = objid
		UNION ALL
		SELECT name, 'first privileges ' || concat_ws(' ', objsubid, privtype, initprivs::text)
		FROM object JOIN pg_init_privs i ON i.classoid = classid AND i.objoid = objid
		UNION ALL
		SELECT name, pg_get_functiondef(p.oid) || ' ' || proowner::regrole || ' ' || coalesce(proacl::text, 'no privileges')
		FROM object JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
		UNION ALL
		SELECT name, concat_ws(' ', relkind, relpersistence, relowner::regrole, relrowsecurity, relreplident, reloptions::text,
			coalesce(relacl::text, 'no privileges'), CASE relkind WHEN 'v' THEN pg_get_viewdef(c.oid) END)
		FROM object JOIN pg_class c ON classid = 'pg_class'::regclass AND c.oid = objid
		UNION ALL
		SELECT name, concat_ws(' ', 'column', attnum, attname, format_type(atttypid, atttypmod), attnotnull, attcollation,
			attstorage, attacl::text)
		FROM object JOIN pg_attribute ON classid = 'pg_class'::regclass AND attrelid = objid AND attnum > 0
		UNION ALL
		SELECT name, pg_get_indexdef(indexrelid)
		FROM object JOIN pg_index ON classid = 'pg_class'::regclass AND indexrelid = objid
		UNION ALL
		SELECT name, pg_get_constraintdef(k.oid)
		FROM object JOIN pg_constraint k ON classid = 'pg_constraint'::regclass AND k.oid = objid
		UNION ALL
		SELECT name, pg_get_expr(adbin, adrelid)
		FROM object JOIN pg_attrdef f ON classid = 'pg_attrdef'::regclass AND f.oid = objid
		UNION ALL
		SELECT name, concat(tgenabled) || pg_get_triggerdef(t.oid)
		FROM object JOIN pg_trigger t ON classid = 'pg_trigger'::regclass AND t.oid = objid
		UNION ALL
		SELECT name, concat(ev_enabled) || pg_get_ruledef(r.oid)
		FROM object JOIN pg_rewrite r ON classid = 'pg_rewrite'::regclass AND r.oid = objid
		UNION ALL
		SELECT name, 'exists' FROM object
		UNION ALL
		SELECT 'extension ' || extname, concat_ws(' ', extversion, extrelocatable, extowner::regrole,
			(SELECT string_agg(t::regclass::text, ' ') FROM unnest(extconfig) t), extcondition::text)
		FROM pg_extension WHERE extname = 'zklock')
	SELECT name, translate(text, E'\n\t', '  ') FROM property WHERE name NOT LIKE '%pg_toast%' ORDER BY 1, 2};

sub describe { my ($session) = @_; return $session->query($description); }

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
