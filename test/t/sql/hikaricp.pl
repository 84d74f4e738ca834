# Copyright (c) 2026, zklock contributors
#
# A connection pool, HikariCP, closes connections whose errors look like a dead database
# connection, and a session's locks go with it. An unreachable ZooKeeper causes no such error.

use Zklock::Test;
use Zklock::Java;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', a => { conf => ["listen_addresses = '127.0.0.1'"] });
my $other = $b->session;
my $user  = $a->value('SELECT current_user');

my $pool = Zklock::Java->program('PoolPeer', jars => [qw(HikariCP postgresql slf4j-api slf4j-simple)]);
$pool->call('open', 'jdbc:postgresql://127.0.0.1:' . $a->port . "/postgres?user=$user");

# What is asked of a connection that was given back, and may have been closed there
sub borrowed(@queries)
{
	$pool->call('borrow');
	my @results = map { $pool->call('query', $_) } @queries;
	$pool->call('giveback');
	return "@results";
}

my $pid = borrowed('SELECT pg_backend_pid()');
is(borrowed(q{SELECT zk_lock('/hik/a')}), 't', 'a lock at session level');

sub still_there($when)
{
	is(borrowed('SELECT pg_backend_pid()'), $pid, "$when: the pool has the same connection");
	is($other->query(q{SELECT zk_try_lock('/hik/a')}), 'f', "$when: and its session has the lock");
	return;
}

is($other->query(q{SELECT zk_lock('/hik/c')}), 't', 'and one of another server');

subtest 'ZooKeeper is away for a moment: calls fail, the connection and its locks stay' => sub {
	$proxy->cut;
	$a->wait_value(q{SELECT state <> 'connected' FROM zk_session}, 't');
	is( borrowed(q{SELECT zk_try_lock('/hik/b')}, 'SELECT pg_backend_pid()'),
		"58030 $pid", 'an error, after which the borrowed connection goes on');
	is(borrowed(q{SELECT zk_lock('/hik/b', '10ms')}), '58030', 'likewise for a timeout that ends meanwhile');
	is(borrowed(q{SELECT zk_break_lock('/hik/c', 'lock-0000000000')}), '58030', 'and for an administrator');
	still_there('ZooKeeper is away');
	$a->reconnect($proxy);
	still_there('ZooKeeper is back');
	is(borrowed(q{SELECT zk_try_lock('/hik/b')}), 't', 'the next call works');
	is(borrowed(q{SELECT zk_break_lock('/hik/c', 'lock-0000000000')}), 'f', 'for an administrator as well');
};

subtest 'the same for lock_timeout' => sub {
	is(borrowed("SET lock_timeout = '10ms'; SELECT zk_lock('/hik/c')", 'SELECT 1'), '55P03 1', 'lock_timeout');
	still_there('after it');
	is(borrowed(q{SELECT zk_unlock('/hik/a')}, q{SELECT zk_unlock('/hik/b')}), 't t', 'what was held is released');
};

$other->query('SELECT zk_unlock_all()');
$pool->stop;
done_clean($zk, $a, $b);
