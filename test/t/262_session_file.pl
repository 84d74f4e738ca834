# Copyright (c) 2026, zklock contributors
#
# A session file that cannot be trusted is ignored: the ZooKeeper session that it names may be
# that of another server.

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

my $content;
sub overwrite    # in place: the file is still the one that was written
{
	my ($new) = @_;
	open(my $fh, '+<', $file) or die "$file: $!";
	truncate($fh, 0);
	print $fh $new;
	close $fh or die "$file: $!";
	return;
}
my @untrusted = (
	[ 'of another machine, or its earlier life', qr/another machine/,
		sub { overwrite($content =~ s/^(boot )(.)/$1 . ($2 eq 'a' ? 'b' : 'a')/emr) } ],
	[ 'of another device', qr/it is a copy/, sub { overwrite($content =~ s/^(file )/${1}1/mr) } ],
	[ 'others may read', qr/others than its owner/, sub { chmod 0640, $file } ],
	[ 'empty', qr/not valid/, sub { overwrite('') } ],
	[ 'truncated', qr/not valid/, sub { overwrite(substr($content, 0, -1)) } ],
	[ 'truncated more', qr/not valid/, sub { overwrite(substr($content, 0, 60)) } ],
	[ 'with something behind', qr/not valid/, sub { overwrite("$content ") } ],
	[ 'of another version', qr/not valid/, sub { overwrite($content =~ s/session 1/session 2/r) } ],
	[ 'without a session', qr/not valid/, sub { overwrite($content =~ s/0x\w+/0x0/r) } ],
	[ 'with a bad password', qr/not valid/, sub { overwrite($content =~ s/(password )../$1zz/r) } ],
	[ 'with a NUL', qr/not valid/, sub { overwrite("$content\0") } ],
	[ 'of garbage', qr/not valid/, sub { overwrite(join('', map { chr($_ * 7 % 256) } 1 .. 300)) } ],
	[ 'that is huge', qr/not valid/, sub { overwrite($content . 'x' x 1000000) } ],
	[ 'a symbolic link', qr/symbolic link/, sub { rename $file, "$file.real"; symlink("$file.real", $file) } ],
	[ 'a pipe', qr/not a regular file/, sub { unlink $file; system('mkfifo', '-m', '600', $file) } ],
	[ 'a directory', qr/not a regular file/, sub { unlink $file; mkdir $file, 0700; mkdir "$file/x" } ]);

$a->wait_session;

foreach my $case (@untrusted)
{
	my ($name, $reason, $spoil) = @$case;
	subtest "a session file is ignored: one $name" => sub {
		my $id = set_up();
		$a->stop('immediate');
		$content = slurp_file($file);
		$spoil->();
		my $mark = $a->log_mark;
		$a->start;
		$a->wait_session;
		isnt($a->session_id, $id, "a file $name: a new session");
		is_taken($id, 'and the one left behind is left alone');
		my @lines = $a->log_since($mark) =~ /ignoring file "\S+": (.*)/g;
		is(scalar @lines, 1, 'the log has a line about it');
		like($lines[0], $reason, 'which says why');
		no_worker_failed($a, $mark, 'the worker is well');
		$zk->shell->expire_session($id);
		is($s{heir}->finish, 't', 'the lock is free when the session ends');
		tear_down();
		rmdir "$file/x" && rmdir $file;
		unlink "$file.real";
		$a->restart;
		$a->wait_session;
		ok(-f $file && !-l $file, 'there is a proper file again');
	};
}

subtest 'a session file that cannot be written does no harm' => sub {
	$a->stop;
	ok(!-e $file, 'after a shutdown there is no file');
	mkdir "$file.new", 0700;
	my $mark = $a->log_mark;
	$a->start;
	$a->wait_session;
	$a->assert_log($mark, qr/LOG:  could not write file "\S+zklock.session": /, 'what cannot be written is logged');
	no_worker_failed($a, $mark, 'the worker is well');
	ok(!-e $file, 'there is no file');
	rmdir "$file.new";
	$a->restart;
	$a->wait_session;
	ok(-f $file, 'until it can be written');
};

Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
done_testing;
