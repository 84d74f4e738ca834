# Copyright (c) 2026, zklock contributors
#
# A server that does not answer is given up, however long the session timeout is.

use Zklock::Test;
use IO::Socket::INET;

my $hour = 3_600_000;
my ($zk, $proxy, $a) = cast('a', proxied => 'a', zk => { minSessionTimeout => $hour, maxSessionTimeout => $hour });
my $s = $a->session;

is($a->value('SELECT negotiated_timeout FROM zk_session'), '01:00:00', 'the session lasts for an hour');
is($s->query("SELECT zk_lock('/t/long')"), 't', 'a lock is held in it');

# The connection that the client makes now is never answered.
my $silent = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "listen: $!";
$proxy->target($silent->sockport, raw => 1);
$proxy->drop;
my $connection = $silent->accept;
$proxy->target($zk);
$a->wait_session;
is($s->query("SELECT zk_unlock('/t/long')"), 't', 'the session goes on, and the lock with it');
done_testing;
