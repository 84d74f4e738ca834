# Copyright (c) 2026, zklock contributors
#
# A copy of the data directory, however made, leaves the ZooKeeper session of its original
# alone.
#
# The session timeout is so long that no session ends by itself.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Cast;
use Zklock::Crash qw(:all);
use Zklock::Proxy;
use Zklock::Server;
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone(maxSessionTimeout => 600000);
my $proxy = Zklock::Proxy->start($zk);
my @conf  = ("zklock.session_timeout = '10min'", 'log_min_messages = debug1', 'autovacuum = off');
my $a = Zklock::Server->new('a', zookeeper => $proxy, conf => \@conf, allows_streaming => 1);
my $b = Zklock::Server->new('b', zookeeper => $zk, conf => \@conf);
Zklock::Crash::cast($zk, $a, $b);

my $file = $a->session_file;
my $id;

sub original_untouched
{
	my ($copy, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	isnt($copy->session_id, $id, "$name: it has a session of its own");
	is_taken($id, "the lock is still the original's");
	is($a->session_id, $id, 'which has the same session')              if $a->node->{_pid};
	is($s{holder}->query("SELECT zk_fencing_token('$path') > 0"), 't', 'and its lock') if $a->node->{_pid};
	like(slurp_file($copy->session_file), qr/^session @{[$copy->session_id]}$/m,
		'the session file of the copy is its own now');
	return;
}

subtest 'a standby leaves the session alone, before and after its promotion' => sub {
	$id = set_up();
	my $standby = Zklock::Server->standby('standby', primary => $a, zookeeper => $zk, conf => \@conf);
	ok(!-e $a->backup_dir . '/backup1/pg_stat_tmp/zklock.session', 'a base backup has no session file');
	original_untouched($standby, 'a standby');
	$standby->stop('immediate');
	$standby->start;
	$standby->wait_session;
	original_untouched($standby, 'a standby after a crash');
	$standby->promote;
	is($standby->value('SELECT pg_is_in_recovery()'), 'f', 'the standby is promoted');
	original_untouched($standby, 'a promoted standby');
	$standby->stop('immediate');
	$standby->start;
	$standby->wait_session;
	original_untouched($standby, 'a promoted standby after a crash');
	$standby->stop;
};

subtest 'a copy of the files of a running server leaves the session alone' => sub {
	my $copy = Zklock::Server->copy('copy', of => $a, zookeeper => $zk, conf => \@conf);
	original_untouched($copy, 'a copy of the files of a running server');
	$copy->assert_log(0, qr/LOG:  ignoring file "\S+zklock.session": it is a copy$/m, 'it has noticed');
	$copy->stop;
};

my $copy2;

subtest 'a copy of the files of a server that crashed leaves the session alone' => sub {
	$a->stop('immediate');
	$copy2 = Zklock::Server->copy('copy2', of => $a, zookeeper => $zk, conf => \@conf);
	original_untouched($copy2, 'a copy of the files of a server that crashed');
	$copy2->assert_log(0, qr/LOG:  ignoring file "\S+zklock.session": it is a copy$/m, 'it has noticed');
};

subtest 'a copy that shares files with the original leaves the session alone' => sub {
	# A hard link is the same file, in two servers.
	$copy2->stop('immediate');
	unlink $copy2->session_file;
	link $file, $copy2->session_file or die "link: $!";
	$copy2->start;
	$copy2->wait_session;
	original_untouched($copy2, 'a copy that shares files with the original');
	$copy2->stop;
	is((stat $file)[3], 1, 'the original has its file for itself again');
	$a->start;
	is($s{heir}->finish, 't', 'the original itself ends its session');
	tear_down();
};

Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
done_testing;
