# Copyright (c) 2026, zklock contributors
#
# Settings, files and credentials that are wrong, in every state that the ZooKeeper session can be in: while locks are
# held, taken up by the next worker, which resumes the session, and after a crash that left the session behind. No fault
# crashes a process or costs a lock that could be kept; zk_session names it; when it is mended, a reload is enough.
#
# That a file is read anew is in settings/reload.pl, what is wrong with one in settings/tls.pl and settings/sasl.pl, too.

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Zklock::Cast;
use Zklock::Tls;
use Zklock::Util qw(secret);

my @conf = ("zklock.session_timeout = '10min'", 'autovacuum = off');
my ($zk, $b) = cast('b', zk => { maxSessionTimeout => 600000 }, conf => \@conf);
my $servers = $zk->connect_string;
my $dir     = PostgreSQL::Test::Utils::tempdir('faults');
my $path    = '/f/lock';
my %usual   = map { ("zklock.$_", '') } qw(auth_file tls_ca_file tls_cert_file tls_key_file);
@usual{qw(zklock.servers zklock.acl zklock.session_timeout zklock.tick_time)} = ($servers, 'open', '10min', '2s');

my $files = 0;

# A new file each time: its name is a changed setting.
sub file($content, $mode = 0600) { return secret("$dir/" . ++$files, $content, $mode); }
sub auth($content, $mode = 0600) { return sub { return (auth_file => file($content, $mode)); }; }
sub unusable($why) { return qr/could not use "zklock.auth_file": $why/; }

# What is wrong; the settings; what zk_session says; whether a session left behind lives on meanwhile
my @faults = (
	[ 'no such auth_file', sub { (auth_file => "$dir/none") }, unusable('No such file') ],
	[ 'an auth_file of others', auth("digest:a:b\n", 0640), unusable('others than its owner') ],
	[ 'an empty auth_file', auth(''), unusable('it is empty') ],
	[ 'an auth_file without a colon', auth("sesame\n"), unusable('.*scheme:credentials') ],
	[ 'a huge auth_file', auth('digest:' . 'x' x 1_000_000), unusable('its line is too long') ],
	[ 'a binary auth_file', auth("digest:\0\1\377:b"), unusable('it contains a zero byte') ],
	[ 'a directory as auth_file', sub { (auth_file => $dir) }, unusable('it is not a regular file') ],
	[ 'an unknown scheme', auth("nosuchscheme:x\n"), qr/ZooKeeper refused the credentials/, 'lives' ],
	[ 'SASL that the library lacks', auth("sasl:mechanism=DIGEST-MD5,user=u,password=p\n"), unusable('.*cannot do SASL'), '', 'installed' ],
	[ 'TLS that the library lacks', sub { (tls_ca_file => $dir) }, qr/library, as it is installed here, cannot do TLS/, 'lives', 'installed' ],
	[ 'servers that do not resolve', sub { (servers => 'no-such-host.invalid:1') }, qr/no server name could be resolved/, 'lives' ],
	[ 'servers where nobody listens', sub { (servers => '127.0.0.1:1') }, qr/could not connect to ZooKeeper server 127.0.0.1:1/, 'lives' ],
	[ 'nobody whom "creator" could name', sub { (acl => 'creator') }, qr/"zklock.acl" is "creator"/ ]);

my $tls;
if (Zklock::Tls->available)
{
	$tls = Zklock::Tls->new;
	$tls->certificate($_) foreach 'client', 'other';
	my @set = map { ($_, $tls->file($_ =~ /ca/ ? 'ca.pem' : $_ =~ /cert/ ? 'client.pem' : 'client.key')) } qw(tls_ca_file tls_cert_file tls_key_file);
	my $with = sub (%changed) { return sub { return (@set, map { ($_, ref $changed{$_} ? $changed{$_}->() : $changed{$_}) } keys %changed); }; };
	push @faults, map { [ @$_, 'built' ] } (
		[ 'SASL with parameters that are wrong', auth("sasl:mechanism=PLAIN,user=u,password=p\n"), unusable('the mechanism of SASL must be'), '' ],
		[ 'SASL that the servers lack', auth("sasl:mechanism=DIGEST-MD5,user=u,password=p\n"), qr/SASL/, 'lives' ],
		[ 'SASL together with TLS', sub { (@set, auth("sasl:mechanism=GSSAPI,host=localhost\n")->()) }, qr/SASL together with TLS|TLS with ZooKeeper server/, 'lives' ],
		[ 'no such tls_ca_file', $with->(tls_ca_file => "$dir/none"), qr/could not use "zklock.tls_ca_file": No such file/, 'lives' ],
		[ 'garbage as tls_cert_file', $with->(tls_cert_file => sub { file("\0garbage\n" x 1000) }), qr/could not use "zklock.tls_cert_file": it has no certificate/, 'lives' ],
		[ 'the key of another certificate', $with->(tls_key_file => $tls->file('other.key')), qr/could not use "zklock.tls_key_file": it is not the key/, 'lives' ],
		[ 'no tls_key_file', $with->(tls_key_file => ''), qr/"zklock.tls_cert_file" is set, but "zklock.tls_key_file" is not/, 'lives' ],
		[ 'TLS that the servers lack', $with->(), qr/TLS/, 'lives' ]);
}

sub no_crash($server, $mark)
{
	return unlike($server->log_since($mark), qr/terminating any other active server processes|was terminated by signal|exited with exit code (?!1\b)|PANIC/,
		'no process has crashed');
}

sub says($server, $error)
{
	my $said = '';
	wait_until {
		my $session = eval { $server->zk_session } or return 0;
		$said = join(' | ', map { $_ // '' } @$session{qw(obstacle last_error)});
		$said =~ $error;
	} sub { "zk_session to say $error; it says $said" };
	return pass('zk_session says why');
}

# Tests faults on as many servers at once: most of the time goes by until a worker is started again.
sub in_every_state($servers, $faults)
{
	my @cases;
	foreach my $fault (@$faults)
	{
		my %case = (server => $servers->[@cases]);
		@case{qw(what set error lives)} = @$fault;
		@case{qw(holder heir path)} = map { $_ . @cases } qw(holder heir /f/lock);
		my %set = $case{set}->();
		$case{settings} = { %usual, map { ("zklock.$_", $set{$_}) } keys %set };
		push @cases, \%case;
	}

	foreach my $case (@cases)
	{
		my ($server, $name, $path) = @$case{qw(server holder path)};
		hold($server, $name, $path);
		@$case{qw(id worker mark)} = ($server->session_id, $server->worker_pid, $server->log_mark);
		$case->{token} = $s{$name}->query("SELECT zk_fencing_token('$path')");
		$server->set_conf(%{ $case->{settings} });
	}
	foreach my $case (@cases)
	{
		my $server = $case->{server};
		$server->wait_log(qr/changed settings of zklock wait until no lock is held/, $case->{mark});
		is($server->worker_pid . $server->session_id, "$case->{worker}$case->{id}", "$case->{what}: while a lock is held, the session goes on");
		$server->value("SELECT pg_terminate_backend($case->{worker})");
	}
	foreach my $case (@cases)
	{
		my $server = $case->{server};
		$server->wait_new_worker($case->{worker});
		says($server, $case->{error});
		is($server->lock_count("path = '$case->{path}' AND state IN ('held', 'suspended')"), 1, "$case->{what}: the next worker loses no lock");
		$server->set_conf(%usual);
		# The session is connected, so the lock goes first.
		$server->value("SELECT pg_terminate_backend($_)") foreach $case->{what} =~ /creator/ ? $server->worker_pid : ();
	}
	foreach my $case (@cases)
	{
		my $server = $case->{server};
		$server->wait_session;
		is($server->session_id, $case->{id}, "$case->{what}: a reload mends it, in the same session");
		is($s{ $case->{holder} }->query("SELECT zk_fencing_token('$case->{path}')"), $case->{token}, 'with the lock');
		no_crash($server, $case->{mark});

		queue($b, $case->{heir}, $case->{path});
		$server->stop('immediate');
		delete $s{ $case->{holder} };
		$server->append_conf('postgresql.auto.conf', "$_ = '$case->{settings}{$_}'") foreach sort keys %{ $case->{settings} };
		$case->{mark} = $server->log_mark;
		$server->start;
	}
	foreach my $case (@cases)
	{
		says($case->{server}, $case->{error});
		is($s{ $case->{heir} }->finish, 't', "$case->{what}: after a crash the session left behind is ended") unless $case->{lives};
		$case->{server}->set_conf(%usual);
	}
	foreach my $case (@cases)
	{
		$case->{server}->wait_session;
		is($s{ $case->{heir} }->finish, 't', "$case->{what}: when it is mended the session left behind is ended") if $case->{lives};
		no_crash($case->{server}, $case->{mark});
	}
	all_disconnect();
	return;
}

foreach my $library ('installed', $tls ? 'built' : ())
{
	my @some = grep { ($_->[4] || 'installed') eq $library } @faults;
	my @servers = map {
		Zklock::Server->new("$library$_", zookeeper => $zk, conf => \@conf, environment => $library eq 'built' ? Zklock::Tls->library : {})
	} 1 .. 4;
	while (my @round = splice @some, 0, scalar @servers)
	{
		subtest join(', ', map { $_->[0] } @round) . ': in every state of the session' => sub { in_every_state(\@servers, \@round); };
	}
	$_->stop foreach @servers;
}

# Ends a server that holds the lock by a crash, starts it with a fault, and returns where its log begins.
sub start_with($server, $fault)
{
	hold($server, 'holder', $path);
	queue($b, 'heir', $path);
	$server->stop('immediate');
	delete $s{holder};
	$server->append_conf('postgresql.auto.conf', "zklock.faults = '$fault'");
	my $mark = $server->log_mark;
	$server->start;
	return $mark;
}

# How often the worker has crashed, and the server restarted
sub crashes($server, $mark) { return scalar(() = $server->log_since($mark) =~ /terminating any other active server processes/g); }

subtest 'a worker that crashes twice as it opens a session does the third time without what it was given' => sub {
	plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};
	my $c    = Zklock::Server->new('c', zookeeper => $zk, conf => \@conf, faults => '');
	my $id   = $c->session_id;
	my $mark = start_with($c, 'crash-leftover');
	$c->wait_log(qr/connected to ZooKeeper server/, $mark);
	is(crashes($c, $mark), 2, 'it crashes twice');
	$c->assert_log($mark, qr/WARNING:  zklock worker has crashed 2 times in a row while it opened a ZooKeeper session/, 'says so');
	$c->wait_session;
	ok($s{heir}->busy, 'and leaves the session to time out');
	$zk->shell->expire_session($id);
	is($s{heir}->finish, 't', 'then another server has the lock');
	all_disconnect();

	$c->set_faults('');
	$c->set_conf('zklock.auth_file' => file("digest:a:b\n"));
	$c->wait_log(qr/changed settings: "zklock.auth_file"/, $mark);
	$c->wait_session;
	$id   = $c->session_id;
	$mark = start_with($c, 'crash-credentials');
	says($c, qr/^There is no connection to ZooKeeper: the worker has crashed again and again/);
	is(crashes($c, $mark), 2, 'over credentials it crashes twice');
	kill 'KILL', $c->session->pid;
	$c->wait_log(qr/all server processes terminated; reinitializing.*all server processes terminated; reinitializing.*all server processes terminated; reinitializing/s, $mark);
	says($c, qr/^There is no connection to ZooKeeper: the worker has crashed again and again/);
	is(crashes($c, $mark), 3, 'and not when another process has');
	$c->append_conf('postgresql.auto.conf', "zklock.faults = ''");
	$c->reload;
	$c->wait_session;
	$zk->shell->expire_session($id);
	is($s{heir}->finish, 't', 'a reload has it try again');
	all_disconnect();
	$c->stop;
};

done_clean($zk, $b);
