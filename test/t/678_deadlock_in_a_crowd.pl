# Copyright (c) 2026, zklock contributors
#
# A deadlock across servers is found although more sessions wait for long, and hold something, than a
# server has room to tell of.

use Zklock::Test;
use Zklock::Deadlock;

use constant CROWD => 150;

# What a session of the crowd holds; long names fill a record soon.
sub path { my ($i) = @_; return '/h/' . 'x' x 120 . $i; }

my ($zk, $a, $b) = cast('a b', max_connections => CROWD + 20, conf => ["deadlock_timeout = '200ms'"]);
my $holder = $b->session(name => 'holder');
my @crowd  = map { $a->session(name => "c$_") } 1 .. CROWD;
in_transactions($holder, @crowd);
lock($holder, '/d/p');

foreach my $i (0 .. $#crowd)
{
	$crowd[$i]->query("SELECT zk_xact_lock('" . path($i) . "')");
	$crowd[$i]->query_start("SELECT zk_xact_lock_shared('/d/p')");
}
$a->wait_queued($crowd[$_], '/d/p') foreach 0, $#crowd;
my $last = pop @crowd;
my $path = path(scalar @crowd);
$holder->query_start("SELECT zk_xact_lock('$path')");
is(one_victim([ $holder, zk($path), $last, zk('/d/p', 'Share') ])->name, 'holder', 'the youngest gave up');
is(scalar(grep { !$_->result->{ok} } @crowd), 0, 'all others go on');
$_->query('COMMIT') foreach @crowd;
Zklock::Server->assert_clean($zk, [ $a, $b ], '/d/p', map { path($_) } 0 .. @crowd);
done_testing();
