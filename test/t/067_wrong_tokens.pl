# Copyright (c) 2026, zklock contributors
#
# zk_fence() with tokens that ZooKeeper has not given. They are refused where that can be
# known, and a session that is kept out by one is told so, and not to try again.

use Zklock::Test;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', a => { timeout => '8s' });
my ($s, $other) = map { $a->session } 1 .. 2;
my $next = $b->session;

# More than this ensemble's counter can reach for a long time
my $wrong = 17592186048513;

sub fence($path, $token) { return "SELECT zk_fence('$path', $token)"; }
sub own_token($path) { return $s->query("SELECT zk_fencing_token('$path')"); }
sub fences { return $a->value('SELECT path, token FROM zk_fences ORDER BY path'); }

subtest 'a token too high has been seen: the holder is told where, and what to do' => sub {
	$other->query(fence('/w/lock', $wrong));
	$s->query("SELECT zk_lock('/w/lock')");
	my $token = own_token('/w/lock');
	foreach my $schema ('public', '"my fences"')
	{
		my $function = "$schema.zk_fence";
		my $result = $s->try("SELECT $function('/w/lock', $token)");
		is_deeply(
			[ @$result{qw(sqlstate message detail)} ],
			[   '55000',
				'a fencing token has been seen for ZooKeeper path "/w/lock" that ZooKeeper cannot have given yet',
				"This session holds the lock with token $token, but table $schema.zk_fences has token $wrong." ],
			"in schema $schema") or diag explain $result;
		like($result->{hint}, qr/delete the path's row/, 'with a hint');
		if ($schema eq 'public')
		{
			$a->value('CREATE SCHEMA "my fences"');
			$a->value('ALTER EXTENSION zklock SET SCHEMA "my fences"');
		}
	}
	$a->value('ALTER EXTENSION zklock SET SCHEMA public');
	is($other->try(fence('/w/lock', $token))->{sqlstate}, '40001', 'a session that does not hold the lock cannot know');
	like($other->try(fence('/w/lock', $token))->{hint}, qr/table public\.zk_fences/, 'but where to look');
	$a->value("DELETE FROM zk_fences WHERE path = '/w/lock'");
	ok($s->try(fence('/w/lock', $token))->{ok}, 'when the row is deleted, the holder goes on');
};

subtest 'a token that is higher than that of the lock held does no harm' => sub {
	$s->query("SELECT zk_lock('/w/later')");
	my $before = fences();
	my $token = own_token('/w/lock');
	my $later = own_token('/w/later');
	foreach my $high ($later, $wrong)
	{
		my $result = $s->try(fence('/w/lock', $high));
		is_deeply(
			[ @$result{qw(sqlstate message detail)} ],
			[   '22023',
				'fencing token is not one of ZooKeeper path "/w/lock"',
				"The token is $high, but this session holds the lock with token $token, and there is no higher one." ],
			"token $high is refused") or diag explain $result;
	}
	is(fences(), $before, 'and not remembered');
	is($s->query("SELECT zk_unlock('/w/later')"), 't', 'the other lock is released');
};

subtest 'an old token of a path that is held again is stale' => sub {
	my $old = own_token('/w/lock');
	$s->query("SELECT zk_unlock('/w/lock'), zk_lock('/w/lock')");
	ok($s->try(fence('/w/lock', own_token('/w/lock')))->{ok}, 'the new token');
	is($s->try(fence('/w/lock', $old))->{sqlstate}, '40001', 'the old one');
};

subtest 'a shared lock proves nothing about tokens' => sub {
	$s->query("SELECT zk_lock_shared('/w/shared')");
	my $token = own_token('/w/shared');
	ok($s->try(fence('/w/shared', $token + 1))->{ok}, 'a higher token may be that of another holder');
	is($s->try(fence('/w/shared', $token))->{sqlstate}, '40001', 'and the own one stale');
	$s->query("SELECT zk_unlock_shared('/w/shared')");
};

subtest 'nor does a lock that may be lost' => sub {
	my $token = own_token('/w/lock');
	$proxy->blackhole;
	$a->wait_lock($s, 'suspended');
	ok($s->try('BEGIN; ' . fence('/w/lock', $token + 1))->{ok}, 'a higher token may be that of the next holder');
	is($s->try(fence('/w/lock', $token))->{sqlstate}, '40001', 'and the own one stale');
	$s->query('ROLLBACK');
	$a->reconnect($proxy);
	$s->query("SELECT zk_unlock_all(), zk_lock('/w/lock')");
	$token = own_token('/w/lock');
	$next->start_waiting("SELECT zk_lock('/w/lock')");
	$zk->shell->delete("/w/lock/" . ($a->wait_holder($s, '/w/lock'))->{node});
	is($next->finish, 't', 'somebody else gets the lock');
	$a->wait_lock($s, 'lost');
	my $new = $next->query("SELECT zk_fencing_token('/w/lock')");
	ok($other->try(fence('/w/lock', $new))->{ok}, 'and fences');
	is($s->try(fence('/w/lock', $token))->{sqlstate}, '40001', 'the token of a lost lock is stale');
};

$_->query('SELECT zk_unlock_all()') foreach $s, $next;
done_clean($zk, $a, $b);
