# Copyright (c) 2026, zklock contributors
#
# What leadership survives, and who leads next when it does not: restarts of the worker and
# of ZooKeeper, the end of the session, crash and shutdown of the server.

use Zklock::Test;
use Zklock::Election;

my $path = '/e/leader';
my ($zk, $a, $b) = cast('a b', timeout => '20s');
my $election = Zklock::Election->new($zk, $path);
$election->stand($a, $b);

sub term($server) { return $election->term($server); }

sub leads_before($leader, $other)
{
	$election->wait_state($leader, 'elected');
	$election->wait_state($other, 'ready');
	return;
}

sub nodes_of($server) { return grep { $zk->shell->stat("$path/$_")->{ephemeralOwner} eq $server->session_id } $zk->children($path); }

subtest 'a restart of the worker ends no term and no place' => sub {
	my ($term, $node) = (term($a), join(' ', $zk->children($path)));
	my $mark = $a->log_mark;
	my $s = $a->session;
	$election->work($s);
	$_->restart_worker foreach $a, $b;
	$_->wait_session foreach $a, $b;
	is($s->try('COMMIT')->{sqlstate}, '00000', 'it commits');
	is($election->leads($a), 't', 'the server leads');
	is(term($a), $term, 'in the same term');
	is(join(' ', $zk->children($path)), $node, 'each has the node that it had');
	is($election->leads($b), 'f', 'the other waits');
	unlike($a->log_since($mark), qr/candidacy is in state "(?!elected|suspended)/, 'the log tells of nothing else');
};

subtest 'a restart of ZooKeeper neither' => sub {
	my $term = term($a);
	$zk->restart;
	$_->wait_session foreach $a, $b;
	leads_before($a, $b);
	is(term($a), $term, 'the term goes on');
	$zk->shell->reconnect;
};

subtest 'after the end of its session a server is the last' => sub {
	my $term = term($a);
	my $mark = $a->log_mark;
	$a->expire_session($zk);
	$a->wait_log(qr/Leadership was lost\. The ZooKeeper session ended/, $mark);
	leads_before($b, $a);
	cmp_ok(term($b), '>', $term, 'the next term is a higher one');
};

subtest 'a server that shuts down hands over at once' => sub {
	my $term = term($b);
	my $s = $b->session;
	$s->query("SELECT zk_lock('/e/lock')");
	$b->stop;
	$election->wait_state($a, 'elected');
	cmp_ok(term($a), '>', $term, 'in a higher term');
	is(scalar $zk->children($path), 1, 'its node is gone');
	like($b->log_since(0), qr/election "$path": candidacy is in state "stop"\n.*The server shuts down/, 'the log says why it does not stand');
	$b->start_connected;
	leads_before($a, $b);
};

subtest 'after a crash the next one leads as soon as the old session is ended' => sub {
	my $term = term($a);
	$a->kill9;
	is($election->leads($b), 'f', 'nobody leads as long as the session may live');
	$a->start_again;
	$a->wait_session;
	leads_before($b, $a);
	cmp_ok(term($b), '>', $term, 'in a higher term');
	is(scalar $zk->children($path), 2, 'each has one node');
};

subtest 'a deleted node ends the term, and the server stands again' => sub {
	my $term = term($b);
	$zk->shell->delete("$path/$_") foreach nodes_of($b);
	leads_before($a, $b);
	cmp_ok(term($a), '>', $term, 'the other leads');
	$zk->shell->delete("$path/$_") foreach nodes_of($b);
	$b->wait_value("SELECT state || (since > clock_timestamp() - interval '1min') FROM zk_elections", 'readytrue');
	wait_until { $zk->children($path) == 2 } 'the candidate to stand again';
	leads_before($a, $b);
};

$election->over($a, $b);
