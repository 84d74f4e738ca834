# Copyright (c) 2026, zklock contributors
#
# The documents: links lead somewhere, the reference knows all that exists and nothing else,
# and the commands of README.md work as they are pasted.

use Zklock::Test;
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;

my $top       = dirname(__FILE__) . '/../../..';
my %documents = map { s{^\Q$top\E/}{}r => slurp_file($_) } "$top/README.md", glob("$top/doc/*.md");

my ($zk, $a, $b) = cast('a b');

# The part of a document below a heading, up to the next one of the same level.
sub section($document, $heading)
{
	my ($level) = $heading =~ /^(#+)/;
	my ($text) = $documents{$document} =~ /^\Q$heading\E\n(.*?)(?:^\Q$level\E |\z)/ms
	  or die "$document has no section \"$heading\"";
	return $text;
}

sub code($text, $language) { return $text =~ /^```\Q$language\E\n(.*?)^```$/msg; }

# The rows of the first table with this heading in a section: lists of cells.
sub table($text, $heading)
{
	my ($table) = $text =~ /^\| $heading \|.*\n\|[-|]+\n((?:\|.*\n)+)/m or die "no table \"$heading\"";
	return map { [ map { s/^\s+|\s+$//gr } split(/(?<!\\)\|/, s/^\|//r) ] } split(/\n/, $table);
}

# As GitHub makes them.
sub anchors($document)
{
	my $text = $document =~ s/^```.*?^```$//msgr;
	return map { lc(s/[^\w\- ]//gr) =~ tr/ /-/r } $text =~ /^#+ (.*)/mg;
}

subtest 'README.md is short' => sub {
	my @words = $documents{'README.md'} =~ /\S*\w\S*/g;
	cmp_ok(scalar(@words), '<=', 1800, 'at most 1,800 words');
};

subtest 'the tour of the source takes an hour' => sub {
	my ($tour, $errors) = run_command([ "$top/tools/tour" ]);
	is($errors, '', 'each stop exists');
	cmp_ok(scalar(() = $tour =~ /\n/g),  '<=', 1500, 'at most 1,500 lines');
	cmp_ok(scalar(() = $tour =~ /\S+/g), '<=', 8000, 'at most 8,000 words');
};

subtest 'the source has few terms of its own' => sub {
	my ($terms) = slurp_file("$top/src/README") =~ /^Terms\n-+\n(.*?)^\S/ms;
	my @terms = $terms =~ /^    (\w+(?: \w+)*)  /mg;
	cmp_ok(scalar(@terms), '>', 0, 'there are some');
	cmp_ok(scalar(@terms), '<=', 20, 'at most 20') or diag explain \@terms;
};

subtest 'links between documents lead to a file, and to a heading of it' => sub {
	foreach my $from (sort keys %documents)
	{
		foreach my $link ($documents{$from} =~ /\]\(([^)\s]+)\)/g)
		{
			next if $link =~ /^https?:/;
			my ($file, $anchor) = split(/#/, $link);
			my $to = $file eq '' ? $from : dirname($from) . "/$file";
			1 while $to =~ s{^\./|[^/]+/\.\./}{};
			ok($documents{$to} || $to !~ /^(doc|README)/ || -e "$top/$to", "$from: $link") or next;
			ok(scalar(grep { $_ eq $anchor } anchors($documents{$to})), "$from: heading of $link")
			  if defined $anchor && $documents{$to};
		}
	}
};

subtest 'each picture is shown, and has colours for light and dark' => sub {
	my %shown = map { $_ => 1 } map { m{!\[[^\]]+\]\((?:doc/)?(pictures/[\w-]+\.svg)\)}g } values %documents;
	my @files = map { s{.*/doc/}{}r } glob("$top/doc/pictures/*");
	is_deeply([ sort @files ], [ sort keys %shown ], 'all are shown, and nothing else');
	foreach my $file (@files)
	{
		my $svg   = slurp_file("$top/doc/$file");
		my ($light, $dark) = $svg =~ m{<style>(.*)\@media \(prefers-color-scheme: dark\) \{(.*)\}\s*</style>}s;
		my %light = map { $_ => 1 } $light =~ /^\s*\.(\w+) \{[^}]*(?:fill|stroke): #/mg;
		my %dark  = map { $_ => 1 } $dark  =~ /^\s*\.(\w+) \{/mg;
		is_deeply(\%dark, \%light, "$file: each class with a colour has one for dark");
	}
};

subtest 'the reference lists the settings there are, with their defaults' => sub {
	my %documented = map { $_->[0] =~ tr/`//dr => $_ } table(section('doc/reference.md', '## Settings'), 'name');
	my @settings = map { [ split(/\|/, $_, -1) ] }
	  split(/\n/, $a->value(q(SELECT name, boot_val, coalesce(unit, ''), context, array_to_string(enumvals, ' ')
		FROM pg_settings WHERE name LIKE 'zklock.%')));
	is_deeply([ sort keys %documented ], [ sort map { $_->[0] } @settings ], 'all, and no other');
	foreach my $setting (@settings)
	{
		my ($name, $value, $unit, $context, $values) = @$setting;
		my (undef, $default, $takes_effect, $meaning) = @{ $documented{$name} || next };
		$default =~ tr/`//d;
		$default = '' if $default eq 'empty';
		$default =~ s/ms$// or $unit eq 'ms' && $default =~ s/s$// && ($default *= 1000);
		is($default, $value, "$name: default");
		like($meaning, qr/`$_`/, "$name: value $_") foreach split(' ', $values // '');
		my %how = (
			postmaster => qr/restart/,
			sighup     => qr/reload/,
			superuser  => qr/superuser/,
			user       => qr/^`SET`(?!.*superuser)/);
		like($takes_effect, $how{$context}, "$name: how it is changed");
	}
};

subtest 'the reference lists the functions and views there are' => sub {
	my $functions = $a->value(q(SELECT string_agg(DISTINCT proname, ' ') FROM pg_proc p
		JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
		JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'zklock'
		WHERE p.prorettype <> 'trigger'::regtype));
	my %views = map { $_ => 1 } $documents{'doc/reference.md'} =~ /^## View (\w+)$/mg;
	foreach my $function (split(' ', $functions))
	{
		next if $views{$function};
		like($documents{'doc/reference.md'}, qr/`$function(?:\(|`)/, $function);
	}
	foreach my $view (sort keys %views)
	{
		is_deeply(
			[ map { join(' ', map { tr/`//dr } @$_[ 0, 1 ]) } table(section('doc/reference.md', "## View $view"), 'column') ],
			[ split(/\n/, $a->value("SELECT attname || ' ' || CASE atttypid::regtype::text
				WHEN 'timestamp with time zone' THEN 'timestamptz' ELSE atttypid::regtype::text END
				FROM pg_attribute WHERE attrelid = '$view'::regclass AND attnum > 0 ORDER BY attnum")) ],
			"columns of $view");
	}
};

subtest 'a role can do what README.md shows, after what README.md grants' => sub {
	my ($grant) = grep { /GRANT EXECUTE/ } code(section('README.md', '## Install'), 'sql');
	foreach my $server ($a, $b)
	{
		is($server->node->psql('postgres', $grant, on_error_stop => 1), 0, 'what it says works');
		$server->value('CREATE TABLE account (id int, balance int); GRANT ALL ON account TO batch');
		$server->value('GRANT CREATE ON SCHEMA public TO batch');
	}
	my ($transaction) = $documents{'README.md'} =~ /^```sql\n(.*?)^```$/ms;
	my ($functions)   = code(section('README.md', '## Use'), 'sql');
	my ($semaphore) = code(section('README.md', '### At most four batch loads in the whole fleet'), 'sql');
	my $session = $a->session(user => 'batch');
	foreach my $sql ($transaction, $functions, $semaphore)
	{
		foreach my $statement (map { s/^\s+|\s+$//gr } split(/;.*\n/, $sql =~ s/^\s*--.*\n//mgr))
		{
			my $result = $session->try($statement);
			ok($result->{ok}, $statement) or diag($result->{message});
			isnt($result->{text}, 'f', 'and not false') if $result->{ok} && $statement =~ /^SELECT/;
		}
	}
};

subtest 'a member of pg_monitor can run the queries of doc/operations.md' => sub {
	$a->value('CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
	my $session = $a->session(user => 'watcher');
	foreach my $sql (map { code(section('doc/operations.md', $_), 'sql') } '## First look', '## Who blocks whom', '## Who leads')
	{
		foreach my $query (grep { !/zk_break_lock/ } split(/;\n/, $sql))
		{
			my $result = $session->try($query);
			ok($result->{ok}, $query =~ s/\s+/ /gr) or diag($result->{message});
		}
	}
};

subtest 'the nightly job of README.md runs on one server, and the log says on which' => sub {
	my ($procedure) = code(section('README.md', '### One nightly run across all servers'), 'sql');
	# Midnight may come between the two.
	is($procedure =~ s/now\(\)/timestamptz '2026-11-22 03:00+00'/, 1, 'the job claims a day');
	is($procedure =~ s/-- \.\.\. the work.*/COMMIT;/, 1, 'its work is of several transactions');
	my ($first, $second) = map { $_->session(user => 'batch') } $a, $b;
	$_->query($procedure) foreach $first, $second;
	my %mark = (a => $a->log_mark, b => $b->log_mark);
	ok($first->try('CALL nightly()')->{ok}, 'the job runs');
	ok($second->try('CALL nightly()')->{ok}, 'that on the other server returns');
	$a->wait_log(qr/nightly: runs here/, $mark{a});
	$b->wait_log(qr/nightly: the day has been claimed before/, $mark{b});
	unlike($b->log_since($mark{b}), qr/runs here/, 'it did not run there');
	my ($again) = $documents{'doc/guide.md'} =~ /To have a day done again, `(.*?)`/;
	ok($second->try($again)->{ok}, "$again runs");
	$b->wait_log(qr/nightly: runs here/, $mark{b});
};

done_clean($zk, $a, $b);
