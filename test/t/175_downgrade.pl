# Copyright (c) 2026, zklock contributors
#
# Downgrades from exclusive to shared: other readers come in, and writers stay out.
#
# Sessions of two database servers, kazoo's ReadLock and Lock, and nodes as Curator's
# InterProcessReadWriteLock makes them.

use strict;
use warnings;

use Test::More;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my @conf  = ('log_lock_waits = on', "deadlock_timeout = '1s'");
my $a     = Zklock::Server->new('a', zookeeper => $zk, conf => \@conf);
my $b     = Zklock::Server->new('b', zookeeper => $zk, conf => \@conf);
my $kazoo = $zk->shell;
my @as    = map { $a->session(name => "a$_") } 1 .. 4;
my @bs    = map { $b->session(name => "b$_") } 1 .. 3;
my $path  = '/t/upgrade';

sub queue
{
	my ($server, $session, $function) = @_;
	$session->query_start("SELECT $function('$path')");
	$server->wait_queued($session, $path);
	return;
}

sub clean
{
	$_->query('SELECT zk_unlock_all()') foreach @as, @bs;
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
	return;
}

# Downgrades the lock while readers and writers of both servers and a foreign writer wait for it.
sub downgrade_case
{
	my ($what, $lock, $unlock) = @_;

	# In this order, behind the holder: readers here and there, a writer, another reader.
	my $down = $as[0];
	$lock->($down);
	my $token = $down->query("SELECT zk_fencing_token('$path')");
	my $czxid = $token >> 12;
	queue($b, $bs[0], 'zk_lock_shared');
	$_->settle foreach $a, $b;
	queue($a, $as[1], 'zk_lock_shared');
	queue($b, $bs[1], 'zk_lock');
	my $foreign_writer = $kazoo->lock_start('w', $path, client => 'writer');
	wait_until { $zk->children($path) == 5 } 'the foreign writer to queue';
	$_->settle foreach $a, $b;
	queue($a, $as[2], 'zk_lock');
	queue($b, $bs[2], 'zk_lock_shared');

	my ($node) = ($a->locks('pid = ' . $down->pid))[0]{node};
	$unlock->($down);
	is_deeply([ $down->modes($path) ], ['shared held'], "$what: it is a reader now");
	is($down->query("SELECT zk_fencing_token('$path')"), $token, 'with the same token');
	is($bs[0]->finish, 't', 'a reader of another server comes in');
	is($as[1]->finish, 't', 'and one of the same server');
	my ($now) = ($a->locks('pid = ' . $down->pid))[0]{node};
	is(substr($now, -10), substr($node, -10), 'its node has inherited the sequence');
	like($now, qr/__READ__\d{10}$/, 'and is a shared one');
	ok(!(grep { $_ eq $node } $zk->children($path)), 'the exclusive one is gone');
	$_->settle foreach $a, $b;
	ok($_->busy, $_->name . ' waits on') foreach $bs[1], $as[2], $bs[2];
	ok(!$kazoo->ready($foreign_writer), 'so does the foreign writer');

	$_->query("SELECT zk_unlock_shared('$path')") foreach $bs[0], $as[1];
	$_->settle foreach $a, $b;
	ok($_->busy, $_->name . ' waits for the one that was downgraded') foreach $bs[1], $as[2], $bs[2];
	ok(!$kazoo->ready($foreign_writer), 'so does the foreign writer');
	$down->query('COMMIT; SELECT zk_unlock_all()');
	is($bs[1]->finish, 't', 'when it goes, they are served in turn: a writer');
	cmp_ok($bs[1]->query("SELECT zk_fencing_token('$path')"), '>', $token, 'with a token beyond');
	ok(!$kazoo->ready($foreign_writer), 'alone');
	$bs[1]->query("SELECT zk_unlock('$path')");
	is($kazoo->result($foreign_writer), 1, 'the foreign one');
	$kazoo->unlock('w', client => 'writer');
	is($as[2]->finish, 't', 'one more');
	$as[2]->query("SELECT zk_unlock('$path')");
	is($bs[2]->finish, 't', 'and a reader');
	clean();
	return;
}

$kazoo->connect($zk->connect_string, client => 'writer');

subtest 'a lock is downgraded by hand' => sub {
	downgrade_case('by hand',
		sub { is($_[0]->query("SELECT zk_lock('$path') AND zk_lock_shared('$path')"), 't', 'both modes are held') },
		sub { is($_[0]->query("SELECT zk_unlock('$path')"), 't', 'the exclusive one goes') });
};

subtest 'a lock is downgraded at the end of a transaction' => sub {
	downgrade_case('at the end of a transaction',
		sub { $_[0]->query('BEGIN'); is($_[0]->query("SELECT zk_xact_lock('$path') AND zk_lock_shared('$path')"), 't', 'both modes are held') },
		sub { $_[0]->query('COMMIT'); });
};

subtest 'a lock is downgraded by a rollback to a savepoint' => sub {
	downgrade_case('at a rollback to a savepoint',
		sub {
			$_[0]->query('BEGIN; SAVEPOINT s');
			is($_[0]->query("SELECT zk_xact_lock('$path')"), 't', 'the exclusive mode is held');
			# At session level, so it survives.
			is($_[0]->query("SELECT zk_lock_shared('$path')"), 't', 'and the shared one');
		},
		sub { $_[0]->query('ROLLBACK TO s'); });
};

subtest 'a lock is downgraded by zk_unlock_all' => sub {
	downgrade_case('after DISCARD ALL, in a way: zk_unlock_all',
		sub { $_[0]->query('BEGIN'); is($_[0]->query("SELECT zk_lock('$path') AND zk_xact_lock_shared('$path')"), 't', 'both modes are held') },
		sub { $_[0]->query('SELECT zk_unlock_all()'); });
};

subtest 'a foreign reader comes in when no writer is behind it' => sub {
	# A foreign reader, and no writer behind it: kazoo before 2.9 waits for younger ones too.
	is($as[0]->query("SELECT zk_lock('$path') AND zk_lock_shared('$path')"), 't', 'both modes are held');
	my $foreign_reader = $kazoo->lock_start('r', $path, kind => 'shared');
	wait_until { $zk->children($path) == 2 } 'the foreign reader to queue';
	is($as[0]->query("SELECT zk_unlock('$path')"), 't', 'a downgrade');
	is($kazoo->result($foreign_reader), 1, 'lets a foreign reader in');
	is($as[1]->query("SELECT zk_try_lock_shared('$path')"), 't', 'and others');
	is($as[0]->query("SELECT zk_try_lock('$path')"), 'f', 'for which an upgrade has to wait');
	$kazoo->unlock('r');
	clean();
};

subtest 'a writer of the same server that waits keeps its place before all others' => sub {
	# Whoever of the same server waits in the same run keeps its place before all others: the
	# holder's node stays as it is, and is made a shared one when they have given up.
	is($as[0]->query("SELECT zk_lock('$path') AND zk_lock_shared('$path')"), 't', 'both modes are held');
	queue($a, $as[1], 'zk_lock');
	queue($b, $bs[0], 'zk_lock_shared');
	my @nodes = $zk->children($path);
	is($as[0]->query("SELECT zk_unlock('$path')"), 't', 'a downgrade, with a writer next');
	is_deeply([ $as[0]->modes($path) ], ['shared held'], 'the holder reads');
	is_deeply([ sort $zk->children($path) ], [ sort @nodes ], 'its node is needed for the writer');
	$_->settle foreach $a, $b;
	ok($_->busy, $_->name . ' waits') foreach $as[1], $bs[0];
	is(($a->locks('pid = ' . $as[1]->pid))[0]{blocked_by_pid}, $as[0]->pid, 'the writer for the reader');
	is($as[0]->query("SELECT zk_unlock_shared('$path')"), 't', 'it goes');
	is($as[1]->finish, 't', 'the writer has its turn');
	ok($bs[0]->busy, 'first');
	$as[1]->query("SELECT zk_unlock('$path')");
	is($bs[0]->finish, 't', 'then the reader behind');
	clean();
};

subtest 'a reader comes in when the writer before it gives up' => sub {
	is($as[0]->query("SELECT zk_lock('$path') AND zk_lock_shared('$path')"), 't', 'both modes are held');
	queue($a, $as[1], 'zk_lock');
	queue($b, $bs[0], 'zk_lock_shared');
	is($as[0]->query("SELECT zk_unlock('$path')"), 't', 'a downgrade, with a writer next');
	$as[1]->cancel;
	is($as[1]->result->{sqlstate}, '57014', 'that gives up');
	is($bs[0]->finish, 't', 'so a reader comes in');
	is($_->query("SELECT zk_try_lock('$path')"), 'f', 'and no writer') foreach $as[2], $bs[1];
	clean();
};

# Curator's downgrade: a shared node that inherits the sequence, which we must not miss

# Its writer holds; a session waits, and has long heard of all there is.
my $curator = '_c_6f9619ff-8b86-4d01-b42d-00cf4fc964ff-';

foreach my $case ([ 'nobody has come since', 0 ], [ 'others have come since', 1 ])
{
	my ($what, $others) = @$case;
	subtest "Curator's downgrade is not taken for a release: $what" => sub {
		my $writer = $kazoo->create("$path/${curator}__WRIT__", ephemeral => 1, sequence => 1, makepath => 1);
		my ($sequence) = $writer =~ /(\d{10})$/;
		queue($a, $as[0], 'zk_lock');
		queue($b, $bs[0], 'zk_lock_shared') if $others;
		$_->settle foreach $a, $b;
		my $reader = $kazoo->create("$path/${curator}__READ__$sequence", ephemeral => 1);
		$_->settle foreach $a, $b;
		$kazoo->delete($writer);
		$_->settle foreach $a, $b;
		is($bs[0]->busy, 1, 'the reader behind the waiting session waits') if $others;
		ok($as[0]->busy, "Curator downgrades, $what: a session does not take it for gone");
		wait_until {
			my ($row) = $a->locks('pid = ' . $as[0]->pid);
			"$path/" . ($row->{blocked_by_node} || '') eq $reader;
		} 'the session to wait for the shared node';
		$kazoo->delete($reader);
		is($as[0]->finish, 't', 'it waits for the shared node');
		$as[0]->query("SELECT zk_unlock('$path')");
		is($bs[0]->finish, 't', 'and the reader for it') if $others;
		clean();
	};
}

Zklock::Server->assert_clean($zk, [ $a, $b ], $path, '/t/barrier');
done_testing;
