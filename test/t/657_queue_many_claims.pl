# Copyright (c) 2026, zklock contributors
#
# Queues of which another server has taken so many elements that not all claims are watched: who
# waits gets whichever is given back.

use Zklock::Test;

use constant { QUEUE => '/m/queue', ELEMENTS => 100 };

my ($zk, $here, $there) = cast('here there', timeout => '20s');
my $s     = $here->session(name => 's');

my $take = "SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('@{[ QUEUE ]}')";

# Sessions that take so many elements each
sub takers
{
	my (@counts) = @_;
	my @takers;
	foreach my $count (@counts)
	{
		my $taker = $there->session;
		$taker->query('BEGIN');
		$taker->query("SELECT count(zk_xact_queue_take('@{[ QUEUE ]}')) FROM generate_series(1, $count)");
		push @takers, $taker;
	}
	return @takers;
}

$s->query("SELECT count(zk_queue_offer('@{[ QUEUE ]}', convert_to(i::text, 'UTF8'))) FROM generate_series(1, @{[ ELEMENTS ]}) i");
my ($last, @others) = reverse takers(60, 39, 1);

subtest 'the last one is given back' => sub {
	$s->query_start($take);
	wait_until { $zk->watch_count > ELEMENTS + 10 } 'some of the claims to be watched';
	ok($s->busy, 'who waits has none');
	$last->query('ROLLBACK');
	is($s->finish, ELEMENTS, 'and gets it');
};

subtest 'many are given back' => sub {
	$s->query_start($take);
	wait_until { $zk->watch_count > ELEMENTS + 10 } 'some of the claims to be watched';
	$others[0]->query('ROLLBACK');
	cmp_ok($s->finish, '>', 60, 'who waits gets one of them');
	$others[1]->query('COMMIT');
};

wait_until { $s->query("SELECT count(zk_queue_remove('@{[ QUEUE ]}')) FROM generate_series(1, 40)"); !$zk->children(QUEUE) } 'the rest to be taken';
Zklock::Server->assert_clean($zk, [ $here, $there ], QUEUE, '/zklock-receipts');
done_testing;
