# Copyright (c) 2026, zklock contributors
#
# What is published with a release: all files agree on the version, META.json is complete, and the
# lists of SQL are those of the database.

use Zklock::Test;
use Cwd qw(abs_path);
use File::Basename qw(dirname basename);
use JSON::PP;
use PostgreSQL::Test::Utils;

my $top    = abs_path(dirname(__FILE__) . '/../../..');
my $meta   = decode_json(slurp_file("$top/META.json"));
my ($zk, $server) = cast('main', connect => 0);
my ($version) = slurp_file("$top/zklock.control") =~ /^default_version = '(.*)'$/m;
$server->value('CREATE EXTENSION zklock_advisory');

subtest 'all agree on the version' => sub {
	is($meta->{version}, "$version.0", 'META.json');
	is_deeply([ sort keys %{ $meta->{provides} } ], [ sort map { basename($_, '.control') } glob("$top/*.control") ], 'it provides the extensions');
	is($meta->{provides}{$_}{version}, $meta->{version}, "... $_") foreach keys %{ $meta->{provides} };
	is((slurp_file("$top/CHANGELOG.md") =~ /^## (\S+) - /m)[0], $version, 'CHANGELOG.md: the newest release');
	like(slurp_file("$top/debian/changelog"), qr/\Azklock \(\Q$version\E[~-]/, 'debian/changelog');
	is($server->value(q{SELECT string_agg(extversion, ' ') FROM pg_extension WHERE extname LIKE 'zklock%'}), "$version $version",
		'the extensions');
	my ($data) = slurp_file("$top/Makefile") =~ /^DATA = (.*)$/m;
	is_deeply([ sort split ' ', $data ], [ sort map { basename($_) } glob("$top/zklock*--*.sql") ], 'all scripts are installed');
};

subtest 'all agree on the releases of PostgreSQL' => sub {
	my ($from, $below) = slurp_file("$top/src/compat.h") =~ /PG_VERSION_NUM < (\d+) \|\| PG_VERSION_NUM >= (\d+)/;
	my $first = sprintf('%d.%d', $from / 10000, $from % 10000);
	my $last  = $below / 10000 - 1;
	is($meta->{prereqs}{runtime}{requires}{PostgreSQL}, sprintf('>= %s.0, < %d.0.0', $first, $last + 1), 'META.json');
	is(slurp_file("$top/debian/pgversions"), join('', map { "$_\n" } int($first) .. $last), 'debian/pgversions');
	like(slurp_file("$top/$_"), qr/PostgreSQL \Q$first\E to $last\b/, $_) foreach qw(README.md src/compat.h);
};

# debian/control is made when packages are built (debian/tools/build-packages).
subtest 'debian/control.in makes a package for the PostgreSQL that is here' => sub {
	plan skip_all => 'no pg_buildext' unless grep { -x "$_/pg_buildext" } split /:/, $ENV{PATH};
	my $directory = PostgreSQL::Test::Utils::tempdir('debian');
	my ($major)   = `pg_config --version` =~ /(\d+)/;
	system_or_bail('cp', '-R', "$top/debian", $directory);
	system_or_bail('sh', '-c', 'cd "$0" && PG_SUPPORTED_VERSIONS="$1" pg_buildext updatecontrol', $directory, $major);
	my $control = slurp_file("$directory/debian/control");
	like($control, qr/^Source: zklock$/m, 'of this source');
	like($control, qr/^Package: postgresql-$major-zklock$/m, 'for this release');
	unlike($control, qr/PGVERSION/, 'with no place left to fill in');
};

# https://pgxn.org/spec/
subtest 'META.json has what PGXN asks for' => sub {
	foreach my $key (qw(name abstract description version maintainer license provides prereqs release_status tags meta-spec generated_by))
	{
		ok(defined $meta->{$key} && length $meta->{$key}, $key);
	}
	foreach my $provides (values %{ $meta->{provides} })
	{
		ok(-e "$top/$provides->{$_}", "$_: $provides->{$_}") foreach qw(file docfile);
	}
	like($meta->{version}, qr/^\d+\.\d+\.\d+$/, 'a semantic version');
	like($meta->{release_status}, qr/^(?:stable|testing|unstable)$/, 'a status');
};

# A maintainer's address is what Debian cannot do without.
subtest 'nothing names a host that is nobody\'s' => sub {
	foreach my $file (qw(META.json debian/control.in debian/copyright README.md CONTRIBUTING.md))
	{
		unlike(slurp_file("$top/$file") =~ s/^Maintainer: .*$//mr, qr/zklock\.(?:example|org|net|com)\b/, $file);
	}
};

subtest 'the list of SQL in the archive is what the extensions have' => sub {
	my $objects = $server->value(q{
		SELECT string_agg(DISTINCT name, E'\n' ORDER BY name) FROM (
			SELECT 'function ' || coalesce(nullif(pronamespace, extnamespace)::regnamespace || '.', '') || proname FROM pg_proc p
				JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
				JOIN pg_extension e ON e.oid = d.refobjid AND e.extname LIKE 'zklock%'
			UNION ALL
			SELECT CASE relkind WHEN 'v' THEN 'view ' WHEN 'r' THEN 'table ' END
				|| coalesce(nullif(relnamespace, extnamespace)::regnamespace || '.', '') || relname FROM pg_class c
				JOIN pg_depend d ON d.objid = c.oid AND d.classid = 'pg_class'::regclass AND d.deptype = 'e'
				JOIN pg_extension e ON e.oid = d.refobjid AND e.extname LIKE 'zklock%') object (name)});
	my ($listed) = run_command([ $^X, '-n', "$top/tools/sql-objects", glob("$top/zklock*--*.sql") ]);
	is(join("\n", sort split /\n/, $listed), join("\n", sort split /\n/, $objects), 'functions, views and tables');
	my $archived = $meta->{x_sql};
	SKIP:
	{
		skip 'this is no archive', 1 unless $archived;
		my @archived = map { my $kind = $_; map { "$kind $_" } @{ $archived->{"${kind}s"} } } qw(function table view);
		is(join("\n", sort @archived), join("\n", sort split /\n/, $objects), 'and in META.json');
	}
};

done_testing;
