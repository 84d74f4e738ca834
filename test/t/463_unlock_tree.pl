# Copyright (c) 2026, zklock contributors
#
# zk_unlock_tree() undoes all that one zk_lock_tree() took, or nothing. Locks that other calls
# took stay, as another server sees it.

use Zklock::Test;

my ($zk, $a, $b) = cast('a b', timeout => '20s');
END { $zk->resume if $zk; }
my ($berlin, $paris, $eu) = ('/tree/eu/berlin', '/tree/eu/paris', '/tree/eu');
my $s = $a->session;
my $r = $b->session;

sub tree_lock { return "SELECT zk_lock_tree('$_[0]', '/tree')"; }
sub tree_unlock { return "SELECT zk_unlock_tree('$_[0]', '/tree')"; }

sub held
{
	return join(', ', sort map { "$_->{path} $_->{mode} $_->{count}" } $a->locks('state = $$held$$ AND pid = ' . $s->pid));
}

subtest 'one undoing too many leaves the other call its locks' => sub {
	$s->query(tree_lock($_)) foreach $berlin, $paris;
	is($s->query(tree_unlock($berlin)), 't', 'berlin is undone');
	my $held = held();
	is($held, "$eu shared 1, $paris exclusive 1", 'paris is held, and what is above');
	is($s->query(tree_unlock($berlin)), 'f', 'berlin is undone once more: false');
	like($s->notices, qr/you don't own a session-level exclusive lock on ZooKeeper path "\Q$berlin\E"/, 'with a warning');
	is(held(), $held, 'nothing has changed');
	is($r->query("SELECT zk_try_lock('$eu')"), 'f', 'another server cannot have the whole');
	is($r->query("SELECT zk_try_lock('$berlin')"), 't', 'but berlin');
	$r->query("SELECT zk_unlock('$berlin')");
	is($s->query(tree_unlock($paris)), 't', 'paris is undone');
	is($r->query("SELECT zk_try_lock('$eu') AND zk_unlock('$eu')"), 't', 'then the whole is free, at once');
};

subtest 'one mode, of the same path, does not stand for the other' => sub {
	$s->query(tree_lock($eu));
	is($s->query(tree_unlock($berlin)), 'f', 'who has the whole does not have a part');
	$s->query("SELECT zk_lock('$berlin')");
	is($s->query(tree_unlock($berlin)), 'f', 'an exclusive lock above is not the shared one of the branch');
	like($s->notices, qr/you don't own a session-level shared lock on ZooKeeper path "$eu"/, 'as a warning says');
	is(held(), "$eu exclusive 1, $berlin exclusive 1", 'nothing has changed');
	$s->query('SELECT zk_unlock_all()');
};

subtest 'a lost lock is undone with its branch' => sub {
	$s->query(tree_lock($_)) foreach $berlin, $paris;
	$a->lose($zk, $s, $berlin);
	is($s->query(tree_unlock($berlin)), 'f', 'false, for it was lost');
	like($s->notices, qr/^WARNING: .* lock on ZooKeeper path "\Q$berlin\E" was lost before it was released/, 'with a warning');
	is(held(), "$eu shared 1, $paris exclusive 1", 'its branch has been undone, and no other');
	is($s->query(tree_lock($berlin)), 't', 'so it can be had again');

	# Still all or nothing: a lost lock that has been undone is not held.
	$a->lose($zk, $s, $berlin);
	is($s->query("SELECT zk_unlock('$berlin')"), 'f', 'a lost lock, undone by itself');
	is($s->query(tree_unlock($berlin)), 'f', 'is missing in its branch');
	is(held(), "$eu shared 2, $paris exclusive 1", 'of which nothing else is undone');
	$s->query('SELECT zk_unlock_all()');
};

subtest 'a cancellation finds all undone' => sub {
	$s->query(tree_lock($berlin));
	$zk->pause;
	$s->query_start(tree_unlock($berlin));
	$a->wait_event($s, 'unlock');
	is($s->cancelled, '57014', 'the wait for ZooKeeper is cancelled');
	is($a->lock_count(q{state <> 'releasing'}), 0, 'nothing is held any more');
	$zk->resume;
	$r->query("SELECT zk_lock('$eu') AND zk_unlock('$eu')");
};

done_clean($zk, $a, $b);
