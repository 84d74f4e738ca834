# Copyright (c) 2026, zklock contributors
#
# The worker's main loop is woken by whatever it waits for. A wake-up that were lost would be made
# up for by its timers, the more often the longer: then none of these ends in time.

use Zklock::Test;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a');

sub pairs
{
	my ($path, $n) = @_;
	return "DO \$\$ BEGIN FOR i IN 1 .. $n LOOP PERFORM zk_lock('$path'); PERFORM zk_unlock('$path'); END LOOP; END \$\$";
}

subtest 'by answers, one after the other' => sub {
	my $s = $a->session;
	is($s->try(pairs('/woken/alone', 300))->{error}, undef, 'a session locks and unlocks 300 times');
	$s->disconnect;
};

subtest 'by requests and answers that come while it is busy' => sub {
	my @sessions = map { $a->session } 1 .. 8;
	$sessions[$_]->query_start(pairs("/woken/$_", 100)) foreach 0 .. 7;
	is($_->result->{error}, undef, 'one of eight sessions, 100 times') foreach @sessions;
	$_->disconnect foreach @sessions;
};

subtest 'by what happens elsewhere' => sub {
	my @sessions = map { ($a, $b)[ $_ % 2 ]->session } 0 .. 3;
	$_->query_start(pairs('/woken/together', 75)) foreach @sessions;
	is($_->result->{error}, undef, 'one of four sessions of two servers, 75 times') foreach @sessions;
	$_->disconnect foreach @sessions;
};

subtest 'by the loss of the answer that follows one which wakes nobody' => sub {
	my $s = $a->session;
	foreach my $lose (qw(lose_reply lose_request))
	{
		my $fault = $proxy->$lose(op => 'getChildren', path => '^/woken/lost$');
		is($s->query("SELECT zk_lock('/woken/lost')"), 't', "$lose: a listing behind a create");
		ok($proxy->fired($fault), 'is lost');
		is($s->query("SELECT zk_unlock('/woken/lost')"), 't', 'and the lock released');
	}
	$s->disconnect;
};

Zklock::Server->assert_clean($zk, [ $a, $b ], '/woken/alone', '/woken/together', '/woken/lost', map { "/woken/$_" } 0 .. 7);
done_testing;
