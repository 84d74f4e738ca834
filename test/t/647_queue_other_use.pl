# Copyright (c) 2026, zklock contributors
#
# A path is a queue, or has claims, or is an election's: functions of queues refuse what is
# another's, and claims refuse a queue.

use Zklock::Test;

use constant RECEIPTS => '/zklock-receipts';

my ($zk, $proxy, $server) = cast('a', proxied => 'a');
my $shell = $zk->shell;
my $s      = $server->session(name => 's');

# Calls of all functions, for a path
sub calls
{
	my ($path) = @_;
	return ("zk_queue_offer('$path', 'x')", "zk_queue_peek('$path')", "zk_queue_remove('$path')",
		"zk_queue_take('$path', '2s')", "zk_xact_queue_take('$path', '2s')");
}

sub refused
{
	my ($session, $call, $why, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = $session->try("SELECT $call");
	is($result->{sqlstate}, '55006', $name || $call) or diag $result->{error} || $result->{text};
	like(join(' ', map { $_ || '' } @{$result}{qw(message detail)}), $why, 'which says why');
	return;
}

sub stand { my ($setting) = @_; $server->set_conf('zklock.elections' => $setting); return; }

subtest 'claims keep elements out' => sub {
	my $why = qr/in use for something else.*elements of a queue and claims cannot have the same path/;
	is($s->query(q{SELECT zk_claim('/o/claim', '2026-01-01')}), 't', 'a path has claims');
	refused($s, $_, $why) foreach calls('/o/claim');
	is_deeply([ $zk->children('/o/claim') ], [], 'nothing is left there');
	$shell->create('/o/claim/qn-0000000000', data => 'x');
	refused($s, $_, $why, "beside an element of others: $_") foreach calls('/o/claim');
	is_deeply([ $zk->children('/o/claim') ], ['qn-0000000000'], 'which stays');
	$shell->delete('/o/claim/qn-0000000000');
	is($s->query(q{SELECT zk_claim('/o/claim', '2026-01-02')}), 't', 'claims go on');
	$s->query(q{SELECT zk_claim_reset('/o/claim')});
	refused($s, $_, $why, "after a reset: $_") foreach (calls('/o/claim'))[ 0, 2 ];
};

subtest 'a queue keeps claims out' => sub {
	my $claim = q{zk_claim('/o/queue', now())};
	$s->query(q{SELECT zk_queue_offer('/o/queue', 'x')});
	refused($s, $claim, qr/in use for something else.*has or had children/);
	$shell->set('/o/queue', 'data of others');
	refused($s, $claim, qr/in use for something else.*not written by zk_claim/);
	is($s->query(q{SELECT convert_from(zk_queue_remove('/o/queue'), 'UTF8')}), 'x', 'the element is as it was');
	is($s->query(q{SELECT zk_queue_offer('/o/queue', 'y') IS NOT NULL}), 't', 'data of others do not matter to a queue');
	is($s->query(q{SELECT convert_from(zk_queue_take('/o/queue', '0'), 'UTF8')}), 'y', 'nor do they to its consumers');
	$shell->set('/o/queue', '');
	refused($s, $claim, qr/in use for something else.*has or had children/, 'an empty queue is one as well');
};

subtest 'the data of a queue are read before anything is taken, whatever happens meanwhile' => sub {
	$shell->create('/o/lost', data => $shell->get('/o/claim'));
	$shell->create('/o/lost/qn-0000000000', data => 'x');
	my $t = $server->session;
	$proxy->lose_reply(op => 'getData', path => '^/o/lost$');
	refused($t, q{zk_queue_take('/o/lost', '2s')}, qr/claims/, 'also if the answer is lost');
	is($shell->get('/o/lost/qn-0000000000'), 'x', 'the element stays');
	$t->disconnect;
	$shell->delete('/o/lost/qn-0000000000');
};

subtest 'candidates of others keep elements out' => sub {
	my $why = qr/in use for something else.*elements of a queue and the candidates of an election cannot/;
	foreach my $node (qw(_c_edda2515-abf2-4579-b513-df182d03af67-latch-0000000000 latch-0000000003 n_0000000001))
	{
		$shell->create("/o/candidates/$node", ephemeral => 1, makepath => 1);
		refused($s, $_, $why, "$node: $_") foreach calls('/o/candidates');
		is_deeply([ $zk->children('/o/candidates') ], [$node], 'nothing is left there');
		$shell->delete("/o/candidates/$node");
	}
	$shell->create("/o/candidates/$_") foreach qw(region_0000000001 n_x latch);
	is($s->query(q{SELECT zk_queue_offer('/o/candidates', 'x') IS NOT NULL}), 't', 'other names do not');
	$shell->create('/o/candidates/n_0000000009');
	is($s->query(q{SELECT convert_from(zk_queue_remove('/o/candidates'), 'UTF8')}), 'x', 'nor does anything where elements are');
	$shell->delete("/o/candidates/$_") foreach qw(region_0000000001 n_x latch n_0000000009);
};

subtest 'an election of this server keeps elements out' => sub {
	my $why = qr/this server stands at an election there.*"zklock.elections" has "\/o\/election"/;
	my $t = $server->session;
	$t->query_start(q{SELECT zk_queue_take('/o/waited')});
	wait_until { $shell->exists('/o/waited') } 'somebody to wait at a queue';
	stand('/o/election, /o/waited');
	$server->wait_value(q{SELECT state FROM zk_elections WHERE path = '/o/election'}, 'elected');
	refused($s, $_, $why) foreach calls('/o/election'), calls('/o/election/below');
	is(scalar(() = $zk->children('/o/election')), 1, 'nothing has been created there');
	is($s->query(q{SELECT zk_queue_offer('/o/election2', 'x') IS NOT NULL}), 't', 'other paths can be queues');
	my $result = $t->result;
	is($result->{sqlstate}, '55006', 'who waits when the election comes is told') or diag explain $result;
	like($result->{detail} || '', qr/candidates of an election/, 'and why');
	$t->disconnect;
	stand('');
	$server->wait_value('SELECT count(*) FROM zk_elections', 0);
	wait_until { $s->try(q{SELECT zk_queue_offer('/o/election', 'x')})->{ok} } 'the path to be free again';
	$s->query(qq{SELECT zk_queue_remove('$_')}) foreach '/o/election', '/o/election2';
};

subtest 'that costs nothing where a path has no data' => sub {
	$s->query(q{SELECT zk_queue_offer('/o/cheap', 'x')}) foreach 1 .. 2;
	my $receipts_gone = sub { wait_until { !$zk->children(RECEIPTS) } 'receipts to be deleted' };
	$receipts_gone->();
	$proxy->reset_counts;
	$s->query(q{SELECT zk_queue_offer('/o/cheap', 'x')});
	$receipts_gone->();
	is_deeply($proxy->asked, { exists => 1, delete => 1 }, 'an offer');
	$proxy->reset_counts;
	$s->query(q{SELECT zk_queue_peek('/o/cheap')});
	is_deeply($proxy->asked, { sync => 1, getChildren => 1, getData => 1 }, 'a look');
	$s->query(q{SELECT zk_queue_remove('/o/cheap')}) foreach 1 .. 3;
};

$s->disconnect;
$server->assert_clean($zk, RECEIPTS, map { "/o/$_" } qw(claim queue lost candidates election election2 waited cheap));
done_testing;
