# Copyright (c) 2026, zklock contributors
#
# zklock.allowed_paths: what cannot be a path is refused, and what is stored nevertheless
# allows nothing.

use Zklock::Test;

my ($zk, $a) = cast('a', preload => 0);

sub allowed
{
	my ($session, $path) = @_;
	my $result = $session->try("SELECT zk_lock('$path')");
	$session->query('SELECT zk_unlock_all()');
	return $result->{ok} ? 'yes' : $result->{sqlstate} eq '42501' ? 'no' : $result;
}

subtest 'while the library is not loaded, only superusers can store a value' => sub {
	$a->value("CREATE ROLE $_ LOGIN") foreach qw(mallory stored);
	$a->value('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory, stored');
	my $m = $a->session(user => 'mallory');
	is($m->try("ALTER ROLE mallory SET zklock.allowed_paths = '/*'")->{sqlstate}, '42501', 'another is refused');
	$m->disconnect;

	# Not in the session that has run CREATE EXTENSION, which loads the library.
	my $superuser = $a->session;
	$superuser->query("ALTER ROLE stored SET zklock.allowed_paths = '/a*, /ok/*'");
	$superuser->disconnect;
};

$a->append_conf('postgresql.conf', q{shared_preload_libraries = 'zklock'});
$a->restart;
$a->wait_session;
my $s = $a->session;

subtest 'a wrong value that was stored then allows nothing' => sub {
	my $mark = $a->log_mark;
	my $m = $a->session(user => 'stored');
	$a->wait_log(qr{WARNING:  item "/a\*" of "zklock\.allowed_paths" is not valid and allows no path}, $mark);
	pass('the log tells of it at each login');
	is($m->query('SHOW zklock.allowed_paths'), '/a*, /ok/*', 'the role has what it was given');
	is(allowed($m, '/ok/a'), 'yes', 'right items count');
	is(allowed($m, $_), 'no', "$_: wrong ones do not") foreach '/a*', '/ab', '/a/b', '/b';
	$m->disconnect;
};

sub refused
{
	my ($value, $item, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $shown = $value =~ s/[^ -~]/?/gr;
	foreach my $sql ("SET zklock.allowed_paths = E'$value'", "ALTER ROLE mallory SET zklock.allowed_paths = E'$value'",
		"ALTER SYSTEM SET zklock.allowed_paths = E'$value'")
	{
		# ALTER SYSTEM has a rule of its own.
		next if $sql =~ /SYSTEM/ && $value =~ /\\n/;
		my $result = $s->try($sql);
		is($result->{sqlstate}, '22023', "$sql: refused") or diag explain $result;
		is($result->{detail}, qq{Item "$item" is not valid. $why}, 'the detail names the item and the rule');
		is($result->{hint}, 'Items are paths, or "/prefix/*" for all paths below /prefix, with commas between them.', 'hint');
	}
	return;
}

subtest 'what cannot be a path is refused' => sub {
	my $asterisk = 'An asterisk can only stand at the end, behind a slash, for all paths below a path.';
	refused($_, $_, $asterisk) foreach '/a*', '/a/*/b', '*', '/a/b*', '/*/b';
	refused('/ok, /a*,/b', '/a*', $asterisk);
	refused('/a/', '/a/', 'A path must not end with "/".');
	refused('/', '/', 'The root "/" cannot be locked.');
	refused('a', 'a', 'A path must start with "/".');
	refused('/a//b', '/a//b', 'A path must not contain "//".');
	refused('/a//*', '/a//*', 'A path must not end with "/".');
	refused('/a/../*', '/a/../*', 'A path must not have "." or ".." as a component.');
	refused('/a\\tb', "/a\tb", 'A path must not contain control characters.');
	refused('/zookeeper/*', '/zookeeper/*', 'The path "/zookeeper" and all paths below it are reserved for ZooKeeper.');
	refused('/a,,/b', '', 'A path must not be empty.');
	refused('/a, ', '', 'A path must not be empty.');
	refused('/' . 'x' x 1100, '/' . 'x' x 99 . '...', 'A path can have at most 1023 bytes in UTF-8.');
};

subtest 'what can, is not' => sub {
	foreach my $value ('', ' ', '/*', '/a', '/a/*', ' /a , /b/c/* ', '/a b', '/ä/*', '/a=b', '/a, /a')
	{
		ok($s->try("SET zklock.allowed_paths = '$value'")->{ok}, "'$value'");
	}
	$s->query('RESET zklock.allowed_paths');
};

subtest 'and means what it says' => sub {
	$a->value(q{ALTER ROLE mallory SET zklock.allowed_paths = '/ä/*', '/exact', '/deep/er/*'});
	my $m = $a->session(user => 'mallory');
	is(allowed($m, $_), 'yes', "$_: allowed") foreach '/ä/x', '/ä/x/y', '/exact', '/deep/er/x';
	is(allowed($m, $_), 'no', "$_: not allowed")
	  foreach '/ä', '/äx', '/exact/x', '/exactly', '/deep', '/deep/er', '/deep/x', '/deep/errr/x';
	$m->disconnect;
};

subtest 'a role cannot widen it' => sub {
	my $m = $a->session(user => 'mallory');
	foreach my $sql ("SET zklock.allowed_paths = '/*'", 'RESET zklock.allowed_paths', 'SET zklock.allowed_paths TO DEFAULT',
		"ALTER ROLE mallory SET zklock.allowed_paths = '/*'", 'ALTER ROLE mallory RESET zklock.allowed_paths')
	{
		is($m->try($sql)->{sqlstate}, '42501', $sql);
	}
	ok($m->try($_)->{ok}, $_) foreach 'RESET ALL', 'DISCARD ALL', 'ALTER ROLE mallory RESET ALL';
	is(allowed($m, '/elsewhere'), 'no', 'nor does what resets all that it may');
	$m->disconnect;
	$m = $a->session(user => 'mallory');
	is(allowed($m, '/elsewhere'), 'no', 'not in the next session either');
	$m->disconnect;
};
subtest 'a wrong value in the file from which the server starts allows nothing' => sub {
	$s->disconnect;
	$a->append_conf('postgresql.conf', "zklock.allowed_paths = '/ok/*, /a*'");
	my $mark = $a->log_mark;
	$a->restart;
	$a->wait_session;
	$a->wait_log(qr{WARNING:  item "/a\*" of "zklock\.allowed_paths" is not valid and allows no path}, $mark);
	pass('the log tells of it');
	$s = $a->session;
	is(allowed($s, '/ok/a'), 'yes', 'right items count');
	is(allowed($s, $_), 'no', "$_: wrong ones do not") foreach '/a*', '/ab', '/b';
	$mark = $a->log_mark;
	$a->append_conf('postgresql.conf', "zklock.allowed_paths = '/b/'");
	$a->reload;
	$a->wait_log(qr{LOG:  invalid value for parameter "zklock\.allowed_paths": "/b/"}, $mark);
	is($s->query('SHOW zklock.allowed_paths'), '/ok/*, /a*', 'at a reload a wrong value is not taken up');
};
$s->disconnect;
Zklock::Server->assert_clean($zk, [$a], '/ok/a', '/exact');
done_testing;
