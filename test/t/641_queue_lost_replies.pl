# Copyright (c) 2026, zklock contributors
#
# Queues, when others are faster while a request or reply is lost, or somebody gives up: no element is
# offered twice, none is removed that nobody gets, and none comes twice. Where that cannot be known the
# error names the element. What becomes of one element at each call is in the table of faults,
# 296_faults_of_claims_and_elements.pl.

use Zklock::Test;
use Zklock::Cast qw(fails);

use constant QUEUE    => '/l/queue';
use constant RECEIPTS => '/zklock-receipts';

my ($zk, $proxy, $here, $there) = cast('here there', proxied => 'here', timeout => '20s');
my $s     = $here->session(name => 's');
my $t     = $there->session(name => 't');

my $offer  = "SELECT zk_queue_offer('@{[ QUEUE ]}', 'new')";
my $remove = "SELECT convert_from(zk_queue_remove('@{[ QUEUE ]}'), 'UTF8')";

my %append = (op => 'multi', path => '^' . QUEUE . '/qn-$');
my %delete = (op => 'multi', path => '^' . RECEIPTS);

sub fill  { $t->query("SELECT zk_queue_offer('@{[ QUEUE ]}', '$_')") foreach @_; return; }
sub names { my @names = sort $zk->children(QUEUE); return @names; }

sub rest
{
	my @rest;
	while ((my $element = $t->query($remove)) ne '') { push @rest, $element; }
	return "@rest";
}

# All that was in the queue is gone, and no receipt is left.
sub is_clean($name)
{
	$proxy->clear;
	wait_until { !$zk->children(RECEIPTS) } 'no receipt';
	return is(scalar(() = names()), 0, "$name: nothing is left behind");
}

fill('first');
rest();

subtest 'an offer that was taken before its name was known was made all the same' => sub {
	$proxy->hold_reply_of($s, $offer, %append);
	is($t->query($remove), 'new', 'somebody takes it');
	$proxy->drop;
	$proxy->heal;
	is($s->finish, '', 'it has no name, and there was no error');
	is(rest(), '', 'it is not made again');
	is_clean('taken');
};

subtest 'what another client removes first is not returned' => sub {
	fill(qw(one two));
	$proxy->hold_request_of($s, $remove, %delete);
	is($t->query($remove), 'one', 'the other was first');
	$proxy->heal;
	is($s->finish, 'two', 'so it gets the next');
	fill(qw(three four));
	$proxy->hold_request_of($s, $remove, %delete);
	is($t->query($remove), 'three', 'likewise');
	$proxy->drop;
	$proxy->heal;
	is($s->finish, 'four', 'when the request is lost');
	is_clean('another client');
};

subtest 'who cancels while it is sent is told which element may be gone' => sub {
	fill('one');
	my ($name) = names();
	$proxy->hold_reply_of($s, $remove, %delete);
	$s->cancel;
	fails($s->result, '57014', 'cancelled', context => qr/removing element "$name" of ZooKeeper queue "@{[ QUEUE ]}", which may be gone/);
	$proxy->heal;
	is_clean('cancelled removal');

	$proxy->hold_reply_of($s, $offer, %append);
	$s->cancel;
	like($s->result->{context}, qr/adding an element to ZooKeeper queue "@{[ QUEUE ]}", where it may be/, 'the offer');
	$proxy->heal;
	wait_until { rest() eq 'new' } 'it is there';
	is_clean('cancelled offer');
};

subtest 'who cancels before that has removed nothing' => sub {
	fill('one');
	$proxy->hold_reply_of($s, $remove, op => 'getData', path => '^' . QUEUE);
	is($s->cancelled, '57014', 'cancelled');
	$proxy->heal;
	is($s->query($remove), 'one', 'it is still there');
	is_clean('cancelled read');
};

subtest 'a receipt goes before the next one comes' => sub {
	my $refused = $proxy->refuse(op => 'delete|multi', path => '^' . RECEIPTS, code => -102, times => 0);
	isnt($s->query($offer), '', 'an offer is made');
	$proxy->fired($refused);
	$s->query_start($offer);
	$here->wait_event($s, 'call');
	is(scalar(() = $zk->children(RECEIPTS)), 1, 'while its receipt cannot be deleted, there is no other');
	$proxy->clear;
	$proxy->drop;
	isnt($s->finish, '', 'the next offer is made when it has been, on a later connection');
	is(rest(), 'new new', 'both are there');
	is_clean('receipts');
};

subtest 'a session that ends meanwhile: the error names the element' => sub {
	fill('one');
	my ($name) = names();
	$proxy->hold_reply_of($s, $remove, %delete);
	$here->expire_session($zk);
	$proxy->drop;
	$proxy->heal;
	fails($s->result, '58030', 'it is not known', error => qr/whether element "$name" of ZooKeeper queue "@{[ QUEUE ]}" was removed/);
	$here->wait_session;
	$proxy->hold_reply_of($s, $offer, %append);
	$here->expire_session($zk);
	$proxy->drop;
	$proxy->heal;
	fails($s->result, '58030', 'nor is it of an offer', error => qr/whether an element was added to ZooKeeper queue "@{[ QUEUE ]}"/);
	rest();
	$here->wait_session;
	is_clean('expired');
};

Zklock::Server->assert_clean($zk, [ $here, $there ], QUEUE, RECEIPTS);
done_testing;
