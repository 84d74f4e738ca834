# Copyright (c) 2026, zklock contributors
#
# A quota of ZooKeeper's limits what is offered to a queue.

use Zklock::Test;

use constant { QUEUE => '/limited/queue', QUOTA => '/zookeeper/quota/limited/queue' };

my $zk = Zklock::ZooKeeper->standalone(java => ['-Dzookeeper.enforceQuota=true']);
my $a  = Zklock::Server->new('a', zookeeper => $zk);
my $s  = $a->session;

my $offer = "SELECT zk_queue_offer('@{[ QUEUE ]}', repeat('x', %d)::bytea)";

sub beyond
{
	my ($length, $name) = @_;
	my $result = $s->try(sprintf $offer, $length);
	is($result->{sqlstate}, '53400', $name) or diag explain $result;
	like(join(' ', map { $_ // '' } @{$result}{qw(message detail hint)}), qr/has reached its quota.*ZQUOTAEXCEEDED.*raise the quota/, 'by an error that says so');
	return;
}

$s->query(sprintf $offer, 10);
$zk->shell->create(QUOTA . '/zookeeper_limits', data => 'count=-1,bytes=-1=;byteHardLimit=5000;countHardLimit=4', makepath => 1);
$zk->shell->create(QUOTA . '/zookeeper_stats', data => 'count=0,bytes=0');

subtest 'so many elements' => sub {
	$s->query(sprintf $offer, 10) foreach 1 .. 2;
	beyond(10, 'one more is refused');
	is($s->query("SELECT length(zk_queue_remove('@{[ QUEUE ]}'))"), 10, 'when one is taken');
	isnt($s->query(sprintf $offer, 10), '', 'there is room for another');
	$s->query("SELECT zk_queue_remove('@{[ QUEUE ]}')") foreach 1 .. 3;
};

subtest 'so many bytes' => sub {
	beyond(5001, 'more are refused');
	isnt($s->query(sprintf $offer, 4000), '', 'fewer are not');
	is($s->query("SELECT length(zk_queue_remove('@{[ QUEUE ]}'))"), 4000, 'and come out');
};

$s->disconnect;
Zklock::Server->assert_clean($zk, [$a], QUEUE, '/zklock-receipts');
done_testing;
