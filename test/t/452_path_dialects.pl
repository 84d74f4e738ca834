# Copyright (c) 2026, zklock contributors
#
# zklock.path_dialects: the path decides in which dialect node names are written.

use Zklock::Test;

my ($zk, $a) = cast('a',
	conf => [ "zklock.path_dialects = '/kz/*=kazoo, /hive/*=hive, /kz/java/*=curator, /kz/java/one=zookeeper'" ]);
my $s  = $a->session;

my %marker = (
	curator => qr/^_c_.*-lock-\d+$/, curator_rw => qr/__WRIT__\d+$/, kazoo => qr/__lock__\d+$/,
	zookeeper => qr/^x-/, hive => qr/^LOCK-EXCLUSIVE-/);

sub dialect_of
{
	my ($path, $session) = @_;
	$session ||= $s;
	$session->query("SELECT zk_lock('$path')");
	my ($node) = $zk->children($path);
	$session->query("SELECT zk_unlock('$path')");
	my ($dialect) = grep { $node =~ $marker{$_} } sort keys %marker;
	return $dialect || $node;
}

sub is_dialect
{
	my ($path, $dialect, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(dialect_of($path), $dialect, "$path: $name");
	return;
}

subtest 'the most specific item counts' => sub {
	is_dialect('/kz/a',          'kazoo',     'below a prefix');
	is_dialect('/kz/a/b/c',      'kazoo',     'at any depth');
	is_dialect('/hive/t',        'hive',      'below another');
	is_dialect('/kz/java/two',   'curator',   'the longer prefix, though it comes later');
	is_dialect('/kz/java/one',   'zookeeper', 'the path itself');
	is_dialect('/kz/java/one/x', 'curator',   'what is below it is another path');
	is_dialect('/kz',            'curator',   'a prefix does not stand for itself');
	is_dialect('/kzz/a',         'curator',   'nor for what begins alike');
	is_dialect('/other',         'curator',   "what is not in the list has Curator's names");
};

subtest 'no caller can change what a function writes' => sub {
	$a->value('CREATE ROLE mallory LOGIN');
	$a->value('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory');
	$a->value(q{CREATE FUNCTION pay() RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$ SELECT zk_lock('/pay/lock') $$});
	my $m = $a->session(user => 'mallory');
	is($m->try("SET zklock.path_dialects = '/pay/*=kazoo'")->{sqlstate}, '55P02', 'not by SET');
	$m->query('SELECT pay()');
	like(($zk->children('/pay/lock'))[0], $marker{curator}, 'it writes what the administrator chose');
	$m->disconnect;
};

subtest 'semaphores have nodes of one kind only' => sub {
	$s->query("SELECT zk_semaphore_acquire('/kz/semaphore', 2)");
	like(($zk->children('/kz/semaphore/leases'))[0], qr/^_c_.*-lease-\d+$/, "Curator's");
	$s->query('SELECT zk_unlock_all()');
};

subtest 'a reload is for new locks' => sub {
	$s->query("SELECT zk_lock('/kz/held')");
	my @before = $zk->children('/kz/held');
	$a->set_conf('zklock.path_dialects' => '/other=hive');
	wait_until { $s->query('SHOW zklock.path_dialects') eq '/other=hive' } 'the new setting';
	is_deeply([ $zk->children('/kz/held') ], \@before, 'a lock that is held stays as it is');
	is_dialect('/other', 'hive',    'a new one');
	is_dialect('/kz/a',  'curator', 'and another');
	$s->query("SELECT zk_unlock('/kz/held')");
};

sub refused
{
	my ($value, $item, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = $s->try("ALTER SYSTEM SET zklock.path_dialects = '$value'");
	is($result->{sqlstate}, '22023', "'$value' is refused") or diag explain $result;
	is($result->{detail}, qq{Item "$item" is not valid. $why}, 'the detail names the item and the rule');
	is($result->{hint}, 'Items are "path=dialect" or "/prefix/*=dialect", with commas between them.', 'hint');
	return;
}

subtest 'nonsense is refused' => sub {
	my $dialects = 'The dialects are curator, curator_rw, kazoo, zookeeper and hive.';
	refused('/a=chubby', '/a=chubby', $dialects);
	refused('/a=', '/a=', $dialects);
	refused('/a=kazoo kazoo', '/a=kazoo kazoo', $dialects);
	refused('/a=kaz', '/a=kaz', $dialects);
	refused('/a=kazoo, /b', '/b', 'A dialect is missing.');
	refused('/a=kazoo, /a=hive', '/a=hive', 'Another item is for the same paths.');
	refused('/a/*=kazoo, /b=hive, /a/* = kazoo', '/a/* = kazoo', 'Another item is for the same paths.');
	refused('/a*=kazoo', '/a*=kazoo', 'An asterisk can only stand at the end, behind a slash, for all paths below a path.');
	refused('/a/=kazoo', '/a/=kazoo', 'A path must not end with "/".');
	refused('kazoo', 'kazoo', 'A path must start with "/".');
	refused('/a=kazoo,', '', 'A path must not be empty.');
};

subtest 'and sense is not' => sub {
	foreach my $value ('', '/*=kazoo', '/a=b=KAZOO', ' /a = hive , /a/* = hive ')
	{
		ok($s->try("ALTER SYSTEM SET zklock.path_dialects = '$value'")->{ok}, "'$value'");
	}
	$a->set_conf('zklock.path_dialects' => '/*=kazoo');
	wait_until { $s->query('SHOW zklock.path_dialects') eq '/*=kazoo' } 'the new setting';
	is_dialect('/any', 'kazoo', 'an item for all paths');
};
$s->disconnect;
Zklock::Server->assert_clean($zk, [$a], '/kz/a/b/c', '/kz/java/one/x', '/hive/t', '/other', '/pay/lock', '/kz/semaphore/leases');

subtest 'a server that starts with nonsense says so, and goes on without the setting' => sub {
	$a->stop;
	$a->append_conf('postgresql.auto.conf', "zklock.path_dialects = '/kz/*=kazoo, /a=chubby'");
	my $mark = $a->log_mark;
	$a->start;
	like($a->log_since($mark), qr{invalid value for parameter "zklock\.path_dialects".*DETAIL:  Item "/a=chubby" is not valid}s,
		'the log names the item');
	$s = $a->session;
	is($s->query('SHOW zklock.path_dialects'), '', 'the list is empty');
	is_dialect('/kz/b', 'curator', 'names are those of paths that are not in it');
	$s->disconnect;
};
Zklock::Server->assert_clean($zk, [$a], '/kz/b');
done_testing;
