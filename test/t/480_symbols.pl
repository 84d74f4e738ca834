# Copyright (c) 2026, zklock contributors
#
# Names that zklock.so exports. All libraries that PostgreSQL loads share one space of
# names, so a function that is exported by mistake may be called in place of another
# library's, or another's in place of ours.

use Zklock::Test;
use PostgreSQL::Test::Utils;

sub pg_config { chomp(my $value = `pg_config --$_[0]`); return $value; }

my $stage   = $ENV{ZKLOCK_STAGE} || '';
my $library = $stage . pg_config('pkglibdir') . '/zklock.so';

subtest 'zklock.so exports what PostgreSQL looks up and nothing else' => sub {
	my %expected = map { $_ => 1 } qw(Pg_magic_func _PG_init zklock_worker_main);
	foreach my $script (glob $stage . pg_config('sharedir') . '/extension/zklock--*.sql')
	{
		my $sql = slurp_file($script);
		$expected{$_} = $expected{"pg_finfo_$_"} = 1 foreach $sql =~ /'MODULE_PATHNAME',\s*'(\w+)'/g;
	}
	cmp_ok(keys %expected, '>', 3, 'the SQL scripts name functions');
	my @exported = map { (split)[-1] } split /\n/, `nm -D --defined-only '$library'`;

	# What the linker or a sanitizer adds bears names that are reserved for them.
	@exported = grep { !/^_(_|init$|fini$|edata$|end$)/ } @exported;
	is_deeply([ sort @exported ], [ sort keys %expected ], 'the names are these');
};

my $zk   = Zklock::ZooKeeper->standalone;
my $user = PostgreSQL::Test::Utils::tempdir() . '/libevent_user.so';
system_or_bail('gcc', '-shared', '-fPIC', '-I' . pg_config('includedir-server'),
	'-o', $user, 'test/libevent_user.c', '-levent');

foreach my $order ([ $user, 'zklock' ], [ 'zklock', $user ])
{
	my $name = $order->[0] eq 'zklock' ? 'after' : 'before';
	subtest "a library that uses libevent is loaded $name zklock, and both work" => sub {
		my $server = Zklock::Server->new(
			"libevent_$name",
			zookeeper => $zk,
			conf      => [ "shared_preload_libraries = '" . join(', ', @$order) . "'" ]);
		my $mark   = $server->log_mark;
		my $worker = $server->worker_pid;
		my $s      = $server->session;
		$s->query("CREATE FUNCTION libevent_rounds(int) RETURNS int LANGUAGE c STRICT AS '$user'");
		is($s->query('SELECT libevent_rounds(3)'), 3, 'libevent works');
		is($s->query("SELECT zk_lock('/ev/1', '30s')"), 't', 'a lock is taken');
		is($s->query('SELECT libevent_rounds(3)'), 3, 'libevent works meanwhile');
		is($s->query("SELECT zk_unlock('/ev/1')"), 't', 'and released');
		is($server->worker_pid, $worker, 'by the same worker');
		unlike($server->log_since($mark), qr/was terminated by signal/, 'nothing crashes');
		$s->disconnect;
		$server->assert_clean($zk, '/ev/1');
	};
}

done_testing;
