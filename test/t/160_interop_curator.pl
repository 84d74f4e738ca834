# Copyright (c) 2026, zklock contributors
#
# SQL sessions and Java threads with Curator's InterProcessMutex take turns. That each waits for the other, and that they
# lose no update when they count together, is in 161_matrix.pl; their order, in 110_fifo.pl.

use Zklock::Test;
use JSON::PP;
use Zklock::JavaPeer;

my ($zk, $a, $b) = cast('a b', conf => ["zklock.path_dialects = '/rw/*=curator_rw'"]);
my $shell = $zk->shell;
my $java  = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);
my $path = '/pay/lock';

my $s = $a->session;
my $behind = $b->session;

sub blocked_by($session) { return $session->wait_row('blocked_by_node IS NOT NULL')->{blocked_by_node}; }

subtest 'a session waits for Curator' => sub {
	$java->acquire('j', $path);
	my ($node, $czxid, $owner) = @{ $java->node('j') };
	is($s->query("SELECT zk_try_lock('$path')"), 'f', 'Curator holds: a try-lock fails');
	is($s->query("SELECT zk_lock('$path', '200ms')"), 'f', 'and a timeout passes');
	$s->query_start("BEGIN; SELECT zk_xact_lock('$path')");
	is("$path/" . blocked_by($s), $node, 'a session stands behind Curator');
	is_deeply($java->participants($path),
		[ $node, "$path/" . ($a->locks('pid = ' . $s->pid))[0]{node} ],
		'Curator sees it in the queue');
	ok($s->busy, 'it waits');
	$java->release('j');
	is($s->finish, 't', 'and gets the lock after the release');
	cmp_ok($s->query("SELECT zk_fencing_token('$path')"), '>', $czxid * 4096,
		'with a token beyond that of the holder before');
	$s->query('COMMIT');
};

subtest 'Curator ends a wait, or its life, in its own ways' => sub {
	$s->query("SELECT zk_lock('$path')");
	my $waits = $java->acquire_start('j', $path);
	wait_until { $zk->children($path) == 2 } 'Curator to queue';
	$behind->query_start("SELECT zk_lock('$path')");
	wait_until { $zk->children($path) == 3 } 'a session of the other server to queue';
	$java->interrupt('j');
	ok(!eval { $java->result($waits); 1 }, 'Curator gives up');
	wait_until { $zk->children($path) == 2 } 'its node to go';
	ok($behind->busy, 'who is behind it still waits for SQL');
	$s->hands_over($path, $behind, 'and gets the lock from there');
	$waits = $java->acquire_start('j', $path);
	wait_until { $zk->children($path) == 2 } 'Curator to queue';
	$behind->disconnect;
	is($java->result($waits), 1, 'a session that ends leaves the lock to Curator');
	$s->query_start("SELECT zk_lock('$path')");
	blocked_by($s);
	$java->close_session;
	is($s->finish, 't', 'a Curator session that ends leaves the lock to SQL');
	$s->query("SELECT zk_unlock('$path')");
	$java->connect($zk->connect_string, 2000);
	$java->acquire('k', $path);
	$s->query_start("SELECT zk_lock('$path')");
	blocked_by($s);
	$java->kill9;
	is($s->finish, 't', 'a Java process that dies does so when its session has expired');
	$s->query("SELECT zk_unlock('$path')");
};

subtest 'Curator sees our nodes as it does its own' => sub {
	# A database of another encoding, in which names are not what they would be in UTF-8.
	$a->value("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
	my $latin = $a->session(dbname => 'latin');
	$latin->query('CREATE EXTENSION zklock');
	$latin->query(qq(CREATE ROLE "b\x{fc}cher" SUPERUSER));
	$latin->query(qq(SET ROLE "b\x{fc}cher"));
	$latin->query("SELECT zk_lock('/pay/\x{fc}ber')");

	$java = Zklock::JavaPeer->new;
	$java->connect($zk->connect_string);
	$s->query("SELECT zk_lock('$path')");
	my $waits = $java->acquire_start('j', $path);
	wait_until { $zk->children($path) == 2 } 'Curator to queue';
	my ($ours, $theirs) = @{ $java->participants($path) };
	like($ours, qr{^$path/_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lock-\d{10}$},
		'our node bears a name like Curator\'s own');
	my $like = $theirs =~ s/[0-9a-f]{8}-[0-9a-f-]{27}-lock-\d{10}$//r;
	is(substr($ours, 0, length $like), $like, 'as can be seen');
	my $data = JSON::PP->new->decode($shell->get($ours));
	is($data->{pid}, $s->pid, 'its data tells who it is');
	$s->query("SELECT zk_unlock('$path')");
	$java->result($waits);
	$java->release('j');

	my ($name) = $zk->children("/pay/\x{fc}ber");
	my $text = $shell->get("/pay/\x{fc}ber/$name");
	# The shell writes \xNN for what is not UTF-8.
	unlike($text, qr/\\x[0-9a-f]{2}/, 'data written from a LATIN1 database is UTF-8');
	$data = JSON::PP->new->decode($text);
	is($data->{user}, "b\x{fc}cher", 'and right');
	is($data->{database}, 'latin', 'in all its parts');
	$latin->query('SELECT zk_unlock_all()');
};

subtest 'a writer of InterProcessReadWriteLock who reads as well has two nodes with one sequence' => sub {
	$path = '/rw/lock';
	my $t = $a->session;
	$zk->shell->create("$path/_c_00000000-0000-4000-8000-000000000000-${_}0000000000", ephemeral => 1, makepath => 1)
	  foreach qw(__WRIT__ __READ__);
	$s->start_waiting("SELECT zk_lock_shared('$path')");
	$t->start_waiting("SELECT zk_lock('$path')");
	$zk->shell->delete("$path/_c_00000000-0000-4000-8000-000000000000-__WRIT__0000000000");
	is($s->finish, 't', 'who stops to write lets readers in');
	$s->query("SELECT zk_unlock_shared('$path')");
	ok($t->busy, 'but no writer');
	$zk->shell->delete("$path/_c_00000000-0000-4000-8000-000000000000-__READ__0000000000");
	is($t->finish, 't', 'until it stops to read');
	$t->query("SELECT zk_unlock('$path')");
};

$java->close_session;
done_clean($zk, $a, $b);
