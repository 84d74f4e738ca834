# Copyright (c) 2026, zklock contributors
#
# A database server crashes, and when it starts again it ends the ZooKeeper session that it
# left behind, so that others get the locks at once.
#
# The session file is trusted only if it is the server's own: a copy of the data directory, however made, leaves the
# ZooKeeper session of its original alone, and a file that is damaged or may be somebody else's is ignored.
#
# Session timeouts here are so long that no session ends by itself.

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Zklock::Cast;
use Zklock::Util qw(secret);

my @conf = ("zklock.session_timeout = '10min'", 'log_min_messages = debug1', 'autovacuum = off');
my ($zk, $proxy, $a, $b) = cast('a b',
	zk => { maxSessionTimeout => 600000 }, proxied => 'a', conf => \@conf, a => { allows_streaming => 1 });
my $file = $a->session_file;
my $path = '/r/lock';

# A session of a holds the lock, and one of b waits for it. Returns the id of the ZooKeeper session.
sub set_up
{
	hold($a, 'holder', $path);
	queue($b, 'heir', $path);
	return $a->session_id;
}

sub tear_down
{
	all_disconnect();
	wait_until { !$zk->children($path) } "$path to be empty";
	return;
}

# A subtest with a session of a that holds the lock, until it is left behind, and one of b that waits.
sub left_behind($name, $code)
{
	return subtest $name => sub {
		$code->(set_up());
		tear_down();
	};
}

# The lock is still taken, by the session left behind.
sub is_taken($id, $name) { return ok((grep { $_ eq $id } $zk->owners($path)) && $s{heir}->busy, $name); }

sub no_worker_failed($mark, $name)
{
	unlike($a->log_since($mark), qr/zklock worker" \(PID \d+\) (?:exited|was terminated)|PANIC/, $name);
	return;
}

subtest 'the session file names the session that a server has' => sub {
	my $id   = $a->session_id;
	ok(-f $file, 'there is a session file');
	is((stat $file)[2] & 07777, 0600, 'for its owner only');
	like(slurp_file($file), qr/^session $id$/m, 'with the id of the session');
	my $inode = (stat $file)[1];
	$a->restart_worker;
	$a->wait_session;
	is((stat $file)[1], $inode, 'a new worker that continues the session leaves it alone');
	$a->expire_session($zk);
	$a->wait_value("SELECT state = 'connected' AND session_id <> '$id' FROM zk_session", 't');
	$id = $a->session_id;
	like(slurp_file($file), qr/^session $id$/m, 'a new session is written into it');
	$a->restart_connected;
	isnt($a->session_id, $id, 'a restart begins a new session');
	unlike($a->log_since(0), qr/left behind/, 'nothing has been left behind so far');
};

my %crash = (
	'kill -9 of a backend' => sub { kill 'KILL', on($a, 'victim')->pid; },
	'kill -9 of the worker' => sub { kill 'KILL', $a->worker_pid; },
	'immediate shutdown' => sub { $a->stop('immediate'); $a->start; },
	'kill -9 of the postmaster' => sub { $a->kill9; $a->start_again; },
	map {
		my $lose = $_;
		("immediate shutdown, then $lose of the request that ends it" => sub {
				$a->stop('immediate');
				my $lost = $proxy->$lose(op => 'closeSession', any => 1);
				$a->start;
				$proxy->fired($lost);
			})
	} qw(lose_request lose_reply));

foreach my $name (sort keys %crash)
{
	left_behind "after a crash the session left behind is ended: $name" => sub ($id) {
		my $mark = $a->log_mark;
		$crash{$name}->();
		is($s{heir}->finish, 't', "$name: another server gets the lock");
		$a->wait_session;
		isnt($a->session_id, $id, 'the server is back with a session of its own');
		$a->wait_log(qr/LOG:  ended ZooKeeper session $id, which had been left behind/, $mark);
		is($a->lock_count, 0, 'it holds nothing');
		queue($a, 'again', $path);
		$s{heir}->hands_over($path, $s{again}, 'and takes part again');
	};
}

left_behind 'a session left behind that is over already does no harm' => sub ($id) {
	$a->stop('immediate');
	$zk->shell->expire_session($id);
	is($s{heir}->finish, 't', 'the session of a stopped server is ended by someone else');
	my $mark = $a->log_mark;
	$a->start_connected;
	$a->assert_log($mark, qr/session $id, which had been left behind, is over/, 'which its successor finds out');
	no_worker_failed($mark, 'and goes on');
};

left_behind 'a session left behind that cannot be ended is given up' => sub ($id) {
	$a->stop('immediate');
	$proxy->lose_request(op => 'closeSession', any => 1, times => 0);
	my $mark = $a->log_mark;
	$a->start_connected;
	$a->assert_log($mark, qr/could not end ZooKeeper session $id, which had been left behind/, 'after some attempts');
	is_taken($id, 'its lock is taken until it times out');
	$proxy->clear;
	$zk->shell->expire_session($id);
	is($s{heir}->finish, 't', 'then another server gets it');
};

left_behind 'the session left behind is ended when ZooKeeper can be reached again' => sub ($id) {
	$a->stop('immediate');
	$proxy->cut;
	$a->start;
	$a->wait_session('connecting');
	is($a->zk_session->{session_id}, undef, 'the session left behind is not shown as our own');
	on($a, 'waiter')->query_start("SELECT zk_lock('$path')");
	$a->wait_lock($s{waiter}, 'waiting');
	$a->restart_worker;
	$a->stop('fast');
	ok(-e $file, 'without ZooKeeper the server can be stopped: the session is still known');
	$a->start;
	on($a, 'waiter2')->query_start("SELECT zk_lock('$path')");
	$a->wait_lock($s{waiter2}, 'waiting');
	$proxy->heal;
	is($s{heir}->finish, 't', 'when ZooKeeper is back, the session left behind is ended');
	$s{heir}->hands_over($path, $s{waiter2}, 'and who waits here is served in the new one');
	isnt($a->session_id, $id, 'which is another');
};

my $servers   = $a->value('SHOW zklock.servers');
my $auth_file = $a->data_dir . '/auth';
$zk->shell->create('/chroot');

# The server starts again with a setting, and with this in the file of credentials. Then it is in this state, and
# in some the session lives on until the setting is made good.
my @settings = (
	[ 'names of servers that do not resolve', 'zklock.servers' => 'no-such-host.invalid:2181', undef, 'down', 'lives' ],
	[ 'another chroot',                  'zklock.servers'   => "$servers/chroot", undef, 'connected' ],
	[ 'credentials',                     'zklock.auth_file' => $auth_file, 'digest:a:b', 'connected' ],
	[ 'credentials that cannot be read', 'zklock.auth_file' => $auth_file, undef, 'down' ],
	# ZooKeeper does not talk to who shows wrong ones.
	[ 'credentials that are refused', 'zklock.auth_file' => $auth_file, 'nosuchscheme:x', 'authentication failed', 'lives' ]);

foreach my $case (@settings)
{
	my ($what, $setting, $value, $credentials, $state, $lives) = @$case;
	left_behind "the session left behind is ended in spite of $what" => sub ($id) {
		$a->stop('immediate');
		secret($auth_file, "$credentials\n") if $credentials;
		$a->append_conf('postgresql.auto.conf', "$setting = '$value'");
		my $mark = $a->log_mark;
		$a->start;
		is($s{heir}->finish, 't', "with $what") if !$lives;
		$a->wait_session($state);
		is_taken($id, 'nothing happens at first') if $state eq 'down' && $lives;
		$a->set_conf($setting => $setting =~ /servers/ ? $servers : '');
		$a->wait_session;
		is($s{heir}->finish, 't', 'when the setting is right the session left behind is ended') if $lives;
		unlike($a->log_since($mark), qr/exited with exit code (?!1\b)|PANIC/, 'no worker has failed over it');
		unlink $auth_file;
		$a->restart_connected;
	};
}

my $id;

# Of the session file

sub original_untouched($copy, $name)
{
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
	foreach my $what ('a standby', 'a promoted standby')
	{
		$standby->promote if $what =~ /promoted/;
		is($standby->value('SELECT pg_is_in_recovery()'), $what =~ /promoted/ ? 'f' : 't', $what);
		original_untouched($standby, $what);
		$standby->stop('immediate');
		$standby->start_connected;
		original_untouched($standby, "$what after a crash");
	}
	$standby->stop;
};

my $copy;

foreach my $of ('a running server', 'a server that crashed')
{
	subtest "a copy of the files of $of leaves the session alone" => sub {
		$a->stop('immediate') if $of =~ /crashed/;
		$copy = Zklock::Server->copy('copy' . ($of =~ s/\W//gr), of => $a, zookeeper => $zk, conf => \@conf);
		original_untouched($copy, "a copy of the files of $of");
		$copy->assert_log(0, qr/LOG:  ignoring file "\S+zklock.session": it is a copy$/m, 'it has noticed');
		$copy->stop('immediate');
	};
}

subtest 'a copy that shares files with the original leaves the session alone' => sub {
	# A hard link is the same file, in two servers.
	unlink $copy->session_file;
	link $file, $copy->session_file or die "link: $!";
	$copy->start_connected;
	original_untouched($copy, 'a copy that shares files with the original');
	$copy->stop;
	is((stat $file)[3], 1, 'the original has its file for itself again');
	$a->start;
	is($s{heir}->finish, 't', 'the original itself ends its session');
	tear_down();
};

subtest 'a copy that shares pg_stat_tmp with the original, by a symbolic link, leaves the session alone' => sub {
	my $shared = $a->data_dir . '.stat';
	$a->stop;
	rename $a->data_dir . '/pg_stat_tmp', $shared or die "rename: $!";
	symlink $shared, $a->data_dir . '/pg_stat_tmp' or die "symlink: $!";
	$a->start_connected;
	set_up();
	$a->stop('immediate');
	$a->start;
	is($s{heir}->finish, 't', 'the original ends its own session after a crash');
	$a->wait_session;
	tear_down();
	$id = set_up();
	my $clone = Zklock::Server->copy('clone', of => $a, zookeeper => $zk, conf => \@conf);
	original_untouched($clone, 'a copy that shares pg_stat_tmp');
	$clone->assert_log(0, qr/LOG:  ignoring file "\S+zklock.session": it belongs to another data directory$/m, 'it has noticed');
	$clone->stop;
	unlink $a->data_dir . '/pg_stat_tmp' or die "unlink: $!";
	rename $shared, $a->data_dir . '/pg_stat_tmp' or die "rename: $!";
	tear_down();
	$a->restart_connected;
};

my $content;

# In place: the file is still the one that was written
sub overwrite($new)
{
	open(my $fh, '+<', $file) or die "$file: $!";
	truncate($fh, 0);
	print $fh $new;
	close $fh or die "$file: $!";
	return;
}
my @untrusted = (
	[ 'of another machine, or its earlier life', qr/another machine/,
		sub { overwrite($content =~ s/^(boot )(.)/$1 . ($2 eq 'a' ? 'b' : 'a')/emr) } ],
	[ 'of another data directory', qr/another data directory/, sub { overwrite($content =~ s/^(directory )/${1}1/mr) } ],
	[ 'of another device', qr/it is a copy/, sub { overwrite($content =~ s/^(file )/${1}1/mr) } ],
	[ 'others may read', qr/others than its owner/, sub { chmod 0640, $file } ],
	[ 'empty', qr/not valid/, sub { overwrite('') } ],
	[ 'truncated', qr/not valid/, sub { overwrite(substr($content, 0, -1)) } ],
	[ 'truncated more', qr/not valid/, sub { overwrite(substr($content, 0, 60)) } ],
	[ 'with something behind', qr/not valid/, sub { overwrite("$content ") } ],
	[ 'of another version', qr/not valid/, sub { overwrite($content =~ s/session 2/session 1/r) } ],
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
	left_behind "a session file is ignored: one $name" => sub ($id) {
		$a->stop('immediate');
		$content = slurp_file($file);
		$spoil->();
		my $mark = $a->log_mark;
		$a->start_connected;
		isnt($a->session_id, $id, "a file $name: a new session");
		is_taken($id, 'and the one left behind is left alone');
		my @lines = $a->log_since($mark) =~ /ignoring file "\S+": (.*)/g;
		is(scalar @lines, 1, 'the log has a line about it');
		like($lines[0], $reason, 'which says why');
		no_worker_failed($mark, 'the worker is well');
		$zk->shell->expire_session($id);
		is($s{heir}->finish, 't', 'the lock is free when the session ends');
		rmdir "$file/x" && rmdir $file;
		unlink "$file.real";
		$a->restart_connected;
		ok(-f $file && !-l $file, 'there is a proper file again');
	};
}

subtest 'a session file that cannot be written does no harm' => sub {
	$a->stop;
	ok(!-e $file, 'after a shutdown there is no file');
	mkdir "$file.new", 0700;
	my $mark = $a->log_mark;
	$a->start_connected;
	$a->assert_log($mark, qr/LOG:  could not write file "\S+zklock.session": /, 'what cannot be written is logged');
	no_worker_failed($mark, 'the worker is well');
	ok(!-e $file, 'there is no file');
	rmdir "$file.new";
	$a->restart_connected;
	ok(-f $file, 'until it can be written');
};

done_clean($zk, $a, $b);
