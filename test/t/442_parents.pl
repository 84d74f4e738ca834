# Copyright (c) 2026, zklock contributors
#
# The missing nodes of a path are created below the lowest one that exists, no more than
# sixteen for a request, and only for sessions that still want the lock.

use Zklock::Test;
use Zklock::Cast;

my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '60s');
my $shell = $zk->shell;
my $limit = 16;

sub levels { my ($n) = @_; return join('', map { "/l$_" } 1 .. $n); }

# What was asked for below a path since the last count: creations of lasting nodes, and readings.
sub creations
{
	my ($path) = @_;
	my @found = map { $_->[0] =~ /^create/ && $_->[1] !~ /-lock-$/ && $_->[1] =~ /^\Q$path\E(.*)/ ? $1 : () } @{ $proxy->requests };
	$proxy->reset_counts;
	return \@found;
}

# Until the first of the creations of a path's nodes has been held back.
sub hold_creation
{
	my ($session, $direction, $path) = @_;
	my $hold  = "hold_$direction";
	my $fault = $proxy->$hold(op => 'create2|createContainer', path => "^$path\$", any => 1);
	$session->query_start("SELECT zk_lock('$path')");
	$proxy->fired($fault);
	return;
}

subtest 'from the lowest that exists' => sub {
	on($a, 's')->query("SELECT zk_lock('/p/there'), zk_unlock('/p/there')");
	$proxy->reset_counts;
	is($s{s}->query("SELECT zk_lock('/p/there/new') AND zk_unlock('/p/there/new')"), 't', 'a new path below one that exists');
	is_deeply(creations('/p'), ['/there/new'], 'takes the creation of one node');
	is($s{s}->query("SELECT zk_lock('/p/there/a/b/c') AND zk_unlock('/p/there/a/b/c')"), 't', 'one of three new levels');
	is_deeply(creations('/p'), [ map { "/there/$_" } qw(a/b/c a/b a a/b a/b/c) ], 'is tried from below, and made from above');
	$a->assert_clean($zk, '/p/there/new', '/p/there/a/b/c');
};

subtest 'no more than sixteen levels' => sub {
	foreach my $call ("zk_lock('%s')", "zk_try_lock('%s')", "zk_xact_lock('%s', '1s')")
	{
		my $result = $s{s}->try('SELECT ' . sprintf($call, '/deep' . levels($limit)));
		is($result->{sqlstate}, '54000', "$call: one too many") or diag explain $result;
		like($result->{message}, qr/too many levels of it are missing/, 'says what is wrong');
		like($result->{detail} || '', qr/No more than 16 nodes/, 'and what the limit is');
		like($result->{hint} || '', qr/create the upper levels first/, 'and what to do');
	}
	ok(!$shell->exists('/deep'), 'nothing is created of it');
	$proxy->reset_counts;
	is($s{s}->try("SELECT zk_lock('/deep' || repeat('/a', 500))")->{sqlstate}, '54000', 'however deep');
	cmp_ok(scalar @{ creations('/deep') }, '<=', $limit, 'and little is asked for it');
	is($s{s}->query(q{SELECT zk_lock('/deep} . levels($limit - 1) . q{')}), 't', 'sixteen are created');
	is($s{s}->query(q{SELECT zk_lock('/deep} . levels(2 * $limit - 1) . q{')}), 't', 'and sixteen more below those');
	$s{s}->query('SELECT zk_unlock_all()');
	$a->assert_clean($zk, '/deep' . levels(2 * $limit - 1));
};

subtest 'of several who wait one gives up' => sub {
	hold_creation(on($a, 'first'), 'reply', '/w/x/y');
	queue($a, 'second', '/w/x/y');
	queue($a, 'third', '/w/x/y');
	is($s{first}->cancelled, '57014', 'the one that asked first');
	$proxy->heal;
	is($s{second}->finish, 't', 'the next has it');
	$s{second}->query('SELECT zk_unlock_all()');
	is($s{third}->finish, 't', 'and the last');
	$s{third}->query('SELECT zk_unlock_all()');
	$a->assert_clean($zk, '/w/x/y');
};

subtest 'nothing is created for who gave up' => sub {
	hold_creation($s{first}, 'reply', '/gone/x/y/z');
	is($s{first}->cancelled, '57014', 'a wait is cancelled');
	$proxy->heal;
	is($s{first}->query("SELECT zk_lock('/w/x/y') AND zk_unlock('/w/x/y')"), 't', 'and others are served');
	ok(!$shell->exists('/gone'), 'no node is there');
};

subtest 'a node is deleted while those below it are made' => sub {
	$shell->create('/reaped/x', makepath => 1);
	hold_creation($s{first}, 'request', '/reaped/x/y/z');
	$shell->delete('/reaped/x');
	$proxy->heal;
	is($s{first}->finish, 't', 'before it is asked for');
	$s{first}->query('SELECT zk_unlock_all()');
	wait_until { !$zk->children('/reaped/x/y/z') } 'the node to go';
	$shell->delete("/reaped/$_") foreach qw(x/y/z x/y);

	# It exists when it is found, and is gone when the next is created.
	$proxy->hold_request_of($s{first}, "SELECT zk_lock('/reaped/x/y')", op => 'create2', path => '-lock-$', nth => 2);
	$shell->delete("/reaped/$_") foreach qw(x/y x);
	$proxy->heal;
	is($s{first}->finish, 't', 'and after it was made');
	$s{first}->query('SELECT zk_unlock_all()');
	$a->assert_clean($zk, '/reaped/x/y', '/reaped/x/y/z');
};

subtest 'the connection is lost, or the worker, on the way' => sub {
	foreach my $n (1 .. 5)
	{
		my $fault = $proxy->lose_reply(op => 'create2|createContainer', path => "^/lost$n", nth => $n, any => 1);
		is($s{first}->query("SELECT zk_lock('/lost$n/x/y')"), 't', "reply $n is lost");
		ok($proxy->has_fired($fault), 'indeed') if $n < 5;
		$proxy->clear;
		$s{first}->query('SELECT zk_unlock_all()');
	}
	hold_creation($s{first}, 'reply', '/restart/x/y');
	my $worker = $a->worker_pid;
	$a->value("SELECT pg_terminate_backend($worker)");
	$proxy->heal;
	is($s{first}->finish, 't', 'another worker goes on');
	isnt($a->worker_pid, $worker, 'indeed');
	$s{first}->query('SELECT zk_unlock_all()');
	$a->assert_clean($zk, '/restart/x/y', map { "/lost$_/x/y" } 1 .. 5);
};

subtest 'a refusal on the way up or down' => sub {
	$shell->add_auth('digest', 'admin:secret');
	$shell->create('/r/closed', makepath => 1, acl => [ [ 'digest', 'admin:secret', 'cdrwa' ] ]);
	my $result = $s{first}->try("SELECT zk_lock('/r/closed/a/b/c')");
	is($result->{sqlstate}, '42501', 'where nothing may be created') or diag explain $result;
	$shell->create('/r/closed/a', acl => [ [ 'world', 'anyone', 'cdrwa' ] ]);
	is($s{first}->query("SELECT zk_lock('/r/closed/a/b/c')"), 't', 'is no matter to what is open below it');
	$s{first}->query('SELECT zk_unlock_all()');
	$shell->create('/r/ephemeral', ephemeral => 1);
	is($s{first}->try("SELECT zk_lock('/r/ephemeral/a/b/c')")->{sqlstate}, '42809', 'below an ephemeral node');
	$a->assert_clean($zk, '/r/closed/a/b/c', '/r/ephemeral');
};

all_disconnect();
done_testing;
