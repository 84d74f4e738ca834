# Copyright (c) 2026, zklock contributors
#
# What leadership survives, and who leads next when it does not: restarts of the worker and
# of ZooKeeper, the end of the session, crash and shutdown of the server.

use Zklock::Test;
use Zklock::Election;

my $path = '/e/leader';
my ($zk, $a, $b) = cast('a b', timeout => '20s', a => { conf => ["zklock.elections = '$path'"] });
my $election = Zklock::Election->new($zk, $path);
$election->wait_state($a, 'elected');
$b->set_conf('zklock.elections' => $path);
$election->wait_state($b, 'ready');
my %server = (a => $a, b => $b);

sub term($server) { return $server->value("SELECT term FROM zk_elections"); }

# Who leads, by its state
sub to_lead($name)
{
	$election->wait_state($server{$name}, 'elected');
	my ($other) = grep { $_ ne $name } keys %server;
	$election->wait_state($server{$other}, 'ready');
	return;
}

subtest 'a restart of the worker ends no term and no place' => sub {
	my ($term, $node) = (term($a), join(' ', $zk->children($path)));
	my $mark = $a->log_mark;
	my $s = $a->session;
	$a->value('CREATE TABLE work (n int)');
	$s->query('BEGIN');
	is($s->query("SELECT zk_is_leader('$path')"), 't', 'a transaction is told that its server leads');
	$s->query('INSERT INTO work VALUES (1)');
	$_->restart_worker foreach $a, $b;
	$_->wait_session foreach $a, $b;
	is($s->try('COMMIT')->{sqlstate}, '00000', 'it commits');
	is($a->value("SELECT zk_is_leader('$path')"), 't', 'the server leads');
	is(term($a), $term, 'in the same term');
	is(join(' ', $zk->children($path)), $node, 'each has the node that it had');
	is($b->value("SELECT zk_is_leader('$path')"), 'f', 'the other waits');
	unlike($a->log_since($mark), qr/candidacy is in state "(?!elected|suspended)/, 'the log tells of nothing else');
	$s->disconnect;
};

subtest 'a restart of ZooKeeper neither' => sub {
	my $term = term($a);
	$zk->restart;
	$_->wait_session foreach $a, $b;
	to_lead('a');
	is(term($a), $term, 'the term goes on');
	$zk->shell->reconnect;
};

subtest 'after the end of its session a server is the last' => sub {
	my $term = term($a);
	my $mark = $a->log_mark;
	$a->expire_session($zk);
	$a->wait_log(qr/Leadership was lost\. The ZooKeeper session ended/, $mark);
	to_lead('b');
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
	my $log = $b->log_since(0);
	like($log, qr/election "$path": candidacy is in state "stop"\n.*The server shuts down/, 'the log says why it does not stand');
	$b->start_connected;
	to_lead('a');
};

subtest 'after a crash the next one leads as soon as the old session is ended' => sub {
	my $term = term($a);
	$a->kill9;
	is($b->value("SELECT zk_is_leader('$path')"), 'f', 'nobody leads as long as the session may live');
	$a->start_again;
	$a->wait_session;
	to_lead('b');
	cmp_ok(term($b), '>', $term, 'in a higher term');
	is(scalar $zk->children($path), 2, 'each has one node');
};

subtest 'a deleted node ends the term, and the server stands again' => sub {
	my ($term) = (term($b));
	my ($node) = grep { $zk->shell->stat("$path/$_")->{ephemeralOwner} eq $b->session_id } $zk->children($path);
	$zk->shell->delete("$path/$node");
	to_lead('a');
	cmp_ok(term($a), '>', $term, 'the other leads');
	$zk->shell->delete("$path/$_") foreach grep { $zk->shell->stat("$path/$_")->{ephemeralOwner} eq $b->session_id } $zk->children($path);
	$b->wait_value("SELECT state || (since > clock_timestamp() - interval '1min') FROM zk_elections", 'readytrue');
	wait_until { $zk->children($path) == 2 } 'the candidate to stand again';
	to_lead('a');
};

$_->set_conf('zklock.elections' => '') foreach $a, $b;
Zklock::Server->assert_clean($zk, [ $a, $b ], $path, '/e/lock');
done_testing;
