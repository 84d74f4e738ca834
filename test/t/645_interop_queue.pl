# Copyright (c) 2026, zklock contributors
#
# Queues that zklock shares with ZooKeeper's own DistributedQueue and with Curator's
# SimpleDistributedQueue: who offers and who takes may be any of them.

use Zklock::Test;
use Zklock::JavaPeer;

my ($zk, $server) = cast('a');
my $java   = Zklock::JavaPeer->new;
my $s      = $server->session(name => 's');
my @paths;

$java->connect($zk->connect_string, 10000);

sub sql
{
	my ($function, $path) = @_;
	return $s->query("SELECT convert_from(zk_queue_$function('$path'), 'UTF8')");
}
sub offer { my ($path, $data) = @_; return $s->query("SELECT zk_queue_offer('$path', '$data')"); }

foreach my $kind (qw(zookeeper curator))
{
	my $path = "/interop/$kind";
	push @paths, $path;
	my $peer = sub { my ($action, @data) = @_; return $java->queue($action, $kind, $kind, $path, @data); };

	subtest "$kind takes what zklock offers, in order" => sub {
		offer($path, $_) foreach qw(one two three);
		is($peer->('element'), 'one', 'the first is shown');
		is($peer->('remove'), $_, $_) foreach qw(one two);
		is($peer->('take'), 'three', 'three');
		is($peer->('remove'), 'none', 'then there is none');
	};

	subtest "zklock takes what $kind offers, in order" => sub {
		$peer->('offer', $_) foreach qw(one two three four);
		is(sql('peek', $path), 'one', 'the first is shown');
		is(sql('remove', $path), $_, $_) foreach qw(one two);
		is(sql('take', $path), 'three', 'three');
		is($s->query("SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('$path')"), 'four', 'four, in a transaction');
		wait_until { !$zk->children($path) } 'it to be gone';
		is(sql('remove', $path), '', 'then there is none');
	};

	subtest "$kind and zklock wake each other" => sub {
		my $id = $java->queue_start('take', 'waiting', $kind, $path);
		wait_until { $zk->watch_count >= 1 } "$kind to wait";
		offer($path, 'for java');
		is($java->result($id), 'for java', "$kind gets what zklock offers");
		$s->query_start("SELECT convert_from(zk_queue_take('$path'), 'UTF8')");
		wait_until { $zk->watch_count >= 1 } 'zklock to wait';
		$peer->('offer', 'for_sql');
		is($s->finish, 'for_sql', "zklock gets what $kind offers");
	};

	subtest "an element that a transaction has taken is not $kind\'s" => sub {
		offer($path, $_) foreach qw(one two);
		$s->query('BEGIN');
		is($s->query("SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('$path')"), 'one', 'taken');
		ok(!eval { $peer->('remove'); 1 }, "$kind cannot remove it");
		like($@, qr/NotEmpty/, 'and is told why');
		is($peer->('element'), 'one', 'but sees it');
		$s->query('ROLLBACK');
		wait_until { !$zk->children("$path/" . (sort $zk->children($path))[0]) } 'it to come back';
		is($peer->('remove'), $_, "then it gets $_") foreach qw(one two);
	};

	subtest "two hundred elements of zklock and $kind, taken by both" => sub {
		my $offers = $server->session;
		$offers->query_start("SELECT count(zk_queue_offer('$path', convert_to('s' || i, 'UTF8'))) FROM generate_series(1, 100) i");
		my $takes = $server->session;
		$takes->query_start("SELECT string_agg(convert_from(e, 'UTF8'), ' ') FROM (SELECT zk_queue_take('$path') e FROM generate_series(1, 100)) x");
		my @got;
		foreach my $i (1 .. 100)
		{
			$peer->('offer', "j$i");
			push @got, $peer->('take');
		}
		push @got, split(/ /, $takes->finish);
		$offers->finish;
		is_deeply([ sort @got ], [ sort map { ("s$_", "j$_") } 1 .. 100 ], 'each once');
		$_->disconnect foreach $offers, $takes;
	};
}

$java->close_session;
$server->assert_clean($zk, @paths, '/zklock-receipts');
done_testing;
