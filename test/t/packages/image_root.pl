# Copyright (c) 2026, zklock contributors
#
# The tree of an image of the extension: PostgreSQL 18 runs zklock, and ZooKeeper's client library, from it.

use Zklock::Test;
use File::Find qw(find);
use PostgreSQL::Test::Utils;
use Zklock::Cast;

chomp(my $version = `pg_config --version`);
plan skip_all => 'PostgreSQL looks for extensions elsewhere from 18 on' unless $version =~ /PostgreSQL (\d+)/ && $1 >= 18;
my $root = $ENV{ZKLOCK_IMAGE_ROOT} or plan skip_all => 'there is no tree of an image (ZKLOCK_IMAGE_ROOT)';

# As CloudNativePG sets them, but ahead of what this system has installed
my ($zk, $server) = cast('main', stage => '', conf => [
	"extension_control_path = '$root/share:\$system'", "dynamic_library_path = '$root/lib:\$libdir'" ]);

subtest 'the tree has what an image needs, and nothing else' => sub {
	my @files;
	find(sub { push @files, $File::Find::name =~ s{^\Q$root\E/}{}r if -f }, $root);
	is_deeply([ sort @files ], [ 'bin/zklock-run', 'lib/libzookeeper_mt.so.2', 'lib/zklock.so',
		map { "share/extension/$_" } qw(zklock--1.0.sql zklock.control zklock_advisory--1.0.sql zklock_advisory.control) ], 'files');
};

subtest 'both extensions work' => sub {
	hold($server, 'holder', '/image/a');
	queue($server, 'waiter', '/image/a');
	$s{holder}->query('SELECT zk_unlock_all()');
	is($s{waiter}->finish, 't', 'a lock is handed on');
	$s{waiter}->query('SELECT zk_unlock_all()');
	$s{holder}->query('CREATE EXTENSION zklock_advisory');
	is($s{holder}->query('SELECT zk_advisory.pg_try_advisory_lock(42)'), 't', 'an advisory lock');
	$s{holder}->query('SELECT zk_advisory.pg_advisory_unlock_all()');
};

subtest 'the command runs' => sub {
	my ($printed) = run_command([ "$root/bin/zklock-run", '-h', $server->host, '-p', $server->port, '-d', 'postgres',
		'--try', '/image/run', '--', 'sh', '-c', 'echo $ZKLOCK_PATH' ]);
	is($printed, '/image/run', 'with a lock');
};

subtest 'the libraries are those of the tree' => sub {
	my %mapped = map { $_ => 1 } slurp_file('/proc/' . $server->worker_pid . '/maps') =~ m{(/\S*/(?:zklock|libzookeeper_mt)\.so\S*)$}mg;
	is_deeply([ sort keys %mapped ], [ map { "$root/lib/$_" } qw(libzookeeper_mt.so.2 zklock.so) ], 'in the worker');
};

done_clean($zk, $server);
