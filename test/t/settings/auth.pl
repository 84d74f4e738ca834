# Copyright (c) 2026, zklock contributors
#
# Things change for the worse while locks are held and waited for: the rights on a path are taken away, and given
# back, ZooKeeper refuses our credentials, demands some that we do not have, or the chroot is deleted.

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Zklock::Cast qw(:DEFAULT clean scene);
use Zklock::Util qw(secret);

my $file = secret(PostgreSQL::Test::Utils::tempdir . '/credentials', "digest:zklock:secret\n");
my @conf = (conf => ["zklock.auth_file = '$file'"]);
my ($zk, $a, $b, $c) = cast('a b c', timeout => '30s', a => {@conf}, c => { @conf, timeout => '3s' });
my $shell = $zk->shell;
my %id = map { $_->name => $_->session_id } $a, $b;

my @no_digest = ('-Dzookeeper.DigestAuthenticationProvider.enabled=false');
my @enforced  = ('-Dzookeeper.enforce.auth.enabled=true', '-Dzookeeper.enforce.auth.schemes=digest');

# Restarts ZooKeeper with other rules. Who does not comply with them does not get in, so
# that is not waited for.
sub rules(@java)
{
	$zk->stop;
	$zk->options(java => \@java);
	$zk->start(@java ? (wait => 0) : ());
	return;
}

sub refused($result, $what, $error = undef)
{
	return fails($result, '42501', "$what is refused", detail => $error // qr/ZAUTHFAILED/);
}

sub denied { return refused(@_, qr/^ZooKeeper refused: ZNOAUTH\./); }

# A call that does not wait may come between two attempts to connect, when nothing can be asked.
sub refused_or_not_asked($result, $what)
{
	like($result->{sqlstate}, qr/^(?:42501|58030)$/, "$what is refused") or diag explain $result;
	like($result->{detail} || '', qr/ZAUTHFAILED|authentication failed/, "with the reason");
	return;
}

subtest 'credentials that are refused cost nobody a lock, unless it is for too long' => sub {
	scene($a, $b, '/a');
	hold($a, 'loser', '/a/deleted');
	hold($c, 'short', '/a/short');
	my $before     = holdings($a);
	my $mark       = $a->log_mark;
	my $reconnects = $a->zk_session->{reconnects};
	rules(@no_digest);
	$a->wait_session('authentication failed');
	$a->wait_log(qr/LOG:  ZooKeeper refused the credentials in "zklock.auth_file"/, $mark);
	like($a->zk_session->{last_error}, qr/authentication failed/, 'zk_session keeps the reason');
	refused($s{$_}->result, "$_, who waited,") foreach qw(local behind);
	refused(on($a, 'trier')->try("SELECT zk_lock('/a/free')"), 'who asks now, zk_lock,');
	refused_or_not_asked($s{trier}->try("SELECT zk_try_lock('/a/free')"), 'who asks now, zk_try_lock,');
	is($s{holder}->query("SELECT zk_fencing_token('/a/queue') > 0"), 't', 'who holds a lock does not lose it by that');
	unlike($a->log_since($mark), qr/secret/, 'nobody is told the credentials');
	cmp_ok($a->zk_session->{reconnects} - $reconnects, '<', 20, 'ZooKeeper is not stormed');
	ok($c->wait_lock($s{short}, 'lost', '/a/short'), 'where that is longer than a session timeout, the lock is lost');
	rules();
	$_->wait_session foreach $a, $b, $c;
	is($s{short}->query("SELECT zk_unlock('/a/short')"), 'f', 'which the holder hears');
	is($s{short}->query("SELECT zk_lock('/a/short', '30s')"), 't', 'then it can have it again');
	is($a->session_id, $id{a}, 'with the old rules the session goes on');
	is_deeply(holdings($a), $before, 'and who held a lock has it');
	hand_on('/a/queue', 'holder', 'remote');
	$zk->shell->delete("/a/deleted/$_") foreach $zk->children('/a/deleted');
	ok($a->wait_lock($s{loser}, 'lost', '/a/deleted'), 'or its node deleted, which is noticed as ever');
	queue($a, 'local', '/a/foreign');
	$s{foreigner}->hands_over('/a/foreign', $s{local}, 'locks are granted again');
	clean($zk, [ $a, $b, $c ], map { "/a/$_" } qw(queue foreign deleted free short));
	$c->stop;
};

subtest 'a server without credentials is refused where there must be some' => sub {
	my $mark = $b->log_mark;
	rules(@enforced);
	$b->wait_session('authentication failed');
	$b->assert_log($mark, qr/LOG:  ZooKeeper demands credentials, and "zklock.auth_file" is not set/, 'the log tells');
	unlike($b->log_since($mark), qr/refused the credentials/, 'and not of credentials that do not exist');
	like($b->zk_session->{last_error}, qr/demands credentials/, 'so does zk_session');
	refused(on($b, 'trier')->try("SELECT zk_lock('/a/free')"), 'without credentials: zk_lock');
	refused_or_not_asked($s{trier}->try("SELECT zk_try_lock('/a/free')"), 'without credentials: zk_try_lock');
	$a->wait_session;
	is(on($a, 'holder')->query("SELECT zk_lock('/a/queue', '30s')"), 't', 'who has some is not concerned');
	# Nothing is held: settings that are right are taken up at once.
	$b->set_conf('zklock.auth_file' => $file);
	$b->wait_session;
	is($s{trier}->query("SELECT zk_lock('/a/free')"), 't', 'with credentials locks are granted again');
	is($b->session_id, $id{b}, 'in the old session');
	rules();
	$_->wait_session foreach $a, $b;
	clean($zk, [ $a, $b ], '/a/queue', '/a/free');
};

subtest 'the chroot is deleted, and created again' => sub {
	$shell->create('/app/locks', makepath => 1);
	my $d = Zklock::Server->new('d', zookeeper => $zk, chroot => '/app/locks',
		conf => [ "zklock.session_timeout = '10s'" ]);
	$d->value('CREATE TABLE t (i int)');
	foreach my $round (1, 2)
	{
		hold($d, 'holder', '/held');
		in_transaction($d, 'xact', '/xact', 'INSERT INTO t VALUES (1)');
		queue($d, 'waiter', '/held');
		my $id = $d->session_id;
		# With locks in use that is a race: new nodes may come while old ones are deleted.
		wait_until { eval { $shell->delete('/app', recursive => 1); 1 } || !$shell->exists('/app') } 'the chroot to be deleted';
		ok($d->wait_lock($s{holder}, 'lost', '/held'), "chroot deleted, round $round: the lock is lost");
		is($s{xact}->try('COMMIT')->{sqlstate}, '40001', 'the transaction does not commit');
		is($s{holder}->query("SELECT zk_unlock('/held')"), 'f', 'the holder hears it');
		# In between the lock may have been the waiter's, for a moment.
		my $result = $s{waiter}->result;
		ok(!$result->{ok} || $d->wait_lock($s{waiter}, 'lost', '/held'), 'who waited has no lock');
		like($result->{sqlstate}, qr/^(58000|40001|00000)$/, 'and is told') or diag explain $result;
		fails($s{holder}->try("SELECT $_"), '58000', "there is nothing to lock any more: $_",
			detail => qr/chroot in "zklock.servers" does not exist/, hint => qr/Create the chroot/)
		  foreach "zk_lock('/held')", "zk_try_lock('/held')", "zk_lock('/deep/er/lock')", "zk_queue_offer('/q', 'x')",
		  "zk_claim('/claim', now() + '1h')";
		ok(!$shell->exists('/app'), 'the chroot is not created silently');
		$d->wait_renewed;
		is($d->session_id, $id, 'the session lives, and is proved to');
		$shell->create('/app/locks', makepath => 1);
		is($s{holder}->query("SELECT zk_lock('/held')"), 't', 'when the chroot is back locks are granted');
		$s{holder}->query("SELECT zk_unlock('/held')");
		clean($zk, [$d], '/app/locks/held', '/app/locks/xact');
	}
};

$shell->add_auth('digest', 'admin:secret');
my @admin = ([ 'digest', 'admin:secret', 'cdrwa' ]);

sub rights($path, $letters)
{
	$shell->set_acl($path, [ @admin, $letters ? [ 'world', 'anyone', $letters ] : () ]);
	return;
}

subtest 'a path that cannot be read any more is refused to newcomers, and left to those who are there' => sub {
	$shell->create('/r/path', makepath => 1);
	hold($a, 'holder', '/r/path');
	queue($a, 'local', '/r/path');
	my $before = holdings($a);
	rights('/r/path', 'cdwa');
	denied(on($b, 'remote')->try("SELECT zk_lock('/r/path')"), 'no right to read: another server');
	denied($s{remote}->try("SELECT zk_try_lock('/r/path')"), 'who does not wait');
	is_deeply(holdings($a), $before, 'the holder holds');
	ok($s{local}->busy, 'who is in the queue stays there');
	hand_on('/r/path', 'holder', 'local');
	wait_until { !$zk->children('/r/path') } 'the node to go';
	rights('/r/path', 'cdrwa');
	is($s{remote}->query("SELECT zk_lock('/r/path')"), 't', 'with the right back it can be locked');
	# Now behind a holder of another server
	queue($a, 'local', '/r/path');
	wait_until { $zk->children('/r/path') == 2 } 'the place';
	rights('/r/path', 'cdwa');
	is($s{remote}->query("SELECT zk_unlock('/r/path')"), 't', 'a foreign holder releases');
	my $result = $s{local}->result;
	ok($result->{ok} || $result->{sqlstate} eq '42501', 'who waited has the lock, or is told why not') or diag explain $result;
	$s{local}->query('SELECT zk_unlock_all()');
	rights('/r/path', 'cdrwa');
	wait_until { !$zk->children('/r/path') } 'nothing to be left';
};

subtest 'a path in which no nodes can be created is refused to newcomers' => sub {
	hold($a, 'holder', '/r/path');
	queue($b, 'remote', '/r/path');
	# A server that has not heard of it yet lets a newcomer have the holder's node next.
	$a->settle;
	rights('/r/path', 'drwa');
	denied(on($a, 'newcomer')->try("SELECT zk_lock('/r/path')"), 'no right to create: a newcomer behind others');
	hand_on('/r/path', 'holder', 'remote');
	denied($s{holder}->try("SELECT zk_lock('/r/path')"), 'a new lock');
	rights('/r/path', 'cdrwa');
};

subtest 'a node that cannot be read with new credentials is deleted all the same, though its name recurs' => sub {
	my $use = sub ($credentials) {
		secret($file, "digest:zklock:$credentials\n");
		$zk->restart;
		$_->wait_session foreach $a, $b;
	};
	$shell->create('/r/hive', makepath => 1);
	hold($a, 'holder', '/r/other');
	$s{holder}->query('SELECT zk_unlock_all()');
	$a->write_dialect('hive', $s{holder});
	$a->set_conf('zklock.acl' => 'creator');
	$a->wait_value(q{SELECT current_setting('zklock.acl')}, 'creator');
	hold($a, 'holder', '/r/hive');
	$use->('other');
	# ZooKeeper 3.9.3 does not even tell those who may not read a node whose it is.
	my ($node) = $zk->children('/r/hive');
	$use->('secret') unless eval { $shell->exists("/r/hive/$node"); 1 };
	is_deeply([ map { $_->{state} } $a->locks(q(path = '/r/hive')) ], ['held'], 'the lock is held');
	is($s{holder}->query("SELECT zk_unlock('/r/hive')"), 't', 'and released');
	is($s{holder}->query("SELECT zk_lock('/r/hive') AND zk_unlock('/r/hive')"), 't', 'nothing is in the way of others');
	$a->set_conf('zklock.acl' => 'open');
	$a->write_dialect('curator', $s{holder});
	$use->('secret');
};

subtest 'the lease goes on although the root cannot be read' => sub {
	# Heartbeats look at it. That they are refused proves as much.
	hold($a, 'holder', '/r/other');
	rights('/', 'cdwa');
	$a->wait_renewed;
	is($s{holder}->query("SELECT zk_unlock('/r/other')"), 't', 'so do locks');
	rights('/', 'cdrwa');
};

done_clean($zk, $a, $b);
