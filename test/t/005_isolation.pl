# Copyright (c) 2026, zklock contributors
#
# The harness: a ZooKeeper server that is cut off from the others while its clients stay
# connected. What is shown here is ZooKeeper's own behaviour, and the reason why an answer
# from a server proves nothing about a session.

use Zklock::Test;
use Zklock::Shell;

# Servers notice each other's silence only after 12 s, sessions end after 2.
my $zk       = Zklock::ZooKeeper->ensemble(3, links => 1, syncLimit => 24);
my $leader   = $zk->leader;
my $follower = ($zk->followers)[0];
my ($other)  = grep { $_->id != $leader->id && $_->id != $follower->id } $zk->servers;

my $outside = Zklock::Shell->new;
$outside->connect($leader->connect_string);
$outside->create('/i');
my $inside = Zklock::Shell->new;
$inside->connect($follower->connect_string, timeout => 2);
my $witness = Zklock::Shell->new;
my $new;    # the leader that the others elect
my $node = $inside->create('/i/node', ephemeral => 1);
ok($outside->exists($node), 'a client of the follower has a node');

subtest 'an isolated follower answers, but learns nothing' => sub {
	$zk->isolate($follower);
	ok($inside->exists($node), 'the isolated follower answers');
	wait_until { !$outside->exists($node) } 'the leader to end the session', 15;
	pass('the leader ends the session of its client');
	ok($inside->exists($node), 'of which the follower knows nothing');
	$outside->create('/i/later');
	ok(!$inside->exists('/i/later'), 'as of anything else');
	my $write = $inside->send('create', '/i/lost', {});
	is($follower->mode, 'follower', 'it still takes itself for one of the ensemble');

	$zk->rejoin($follower);
	my $answer = $inside->answer($write);
	ok(!$answer->{ok}, 'a write fails when the follower is back') or diag explain $answer;
	ok(!$outside->exists('/i/lost'), 'and has not been done');
	wait_until { eval { $witness->connect($follower->connect_string); $witness->exists('/i/later') } }
	'the follower to catch up';
	pass('the follower catches up');
};

subtest 'an isolated leader is replaced, and follows when it is back' => sub {
	$zk->isolate($leader);
	$new = wait_until { (grep { $_->mode eq 'leader' } $follower, $other)[0] } 'a new leader';
	ok($new, 'the others elect a new leader');
	$witness->connect($new->connect_string);
	$witness->create('/i/by-new-leader');
	$zk->rejoin($leader);
	wait_until { $leader->mode eq 'follower' } 'the old leader to follow';
	pass('the old leader becomes a follower');
	wait_until { eval { $outside->connect($leader->connect_string); $outside->exists('/i/by-new-leader') } }
	'the old leader to catch up';
	is(scalar($zk->followers), 2, 'the ensemble is complete');
};

subtest 'two of three are enough' => sub {
	($follower, $other) = $zk->followers;
	$zk->cut($new, $follower);
	ok($outside->create('/i/two', sequence => 1), 'two that are connected are enough');
	$zk->mend($new, $follower);
	is($zk->four_letter('ruok') =~ s/== \w+\n//gr, 'imok' x 3, 'all are there');
};

done_testing;
