# Copyright (c) 2026, zklock contributors
#
# A ZooKeeper server whose answers are garbled at random: the database server survives it,
# and when the garbage ends all works again.
#
# Nobody can promise that no two sessions hold a lock meanwhile, or that a lock is kept: a
# listing with one digit changed is well-formed, and wrong.
#
#   ZKLOCK_FUZZ_SECONDS   how long it takes in all; default 25
#   ZKLOCK_FUZZ_SEED      default: chosen at random, and told

use Zklock::Test;
use Time::HiRes qw(time);

my $seed = $ENV{ZKLOCK_FUZZ_SEED} || 1 + int rand 1_000_000;
diag "seed $seed";

my ($zk, $proxy, $server, $other) = cast('a b', proxied => 'a', timeout => '4s', conf => [ "zklock.path_dialects = '/g/3=hive'", 'max_connections = 30' ]);
my $mark   = $server->log_mark;
my @paths  = map { "/g/$_" } 1 .. 3;

# What sessions do meanwhile; whether it succeeds does not matter.
my @statements = (
	(map { ("SELECT zk_lock('$_', '300ms')", "SELECT zk_lock_shared('$_', '300ms')", "SELECT zk_try_lock('$_')") } @paths),
	"SELECT zk_lock(array['/g/2', '/g/3', '/g/1'], '300ms')",
	"SELECT zk_xact_lock('/g/1', '300ms')",
	"SELECT zk_lock('/g/1', '300ms') AND zk_lock_shared('/g/1') AND zk_unlock('/g/1')",
	"SET zklock.commit_guard = quorum",
	"SELECT zk_semaphore_acquire('/g/s', 2, '300ms')",
	"SELECT zk_semaphore_release('/g/s')",
	"SELECT zk_lock('/g/' || floor(random() * 1000), '300ms')",
	"SELECT * FROM zk_locks",
	('SELECT zk_unlock_all()') x 6);

srand $seed;
my $rounds = 0;
my $until  = time + ($ENV{ZKLOCK_FUZZ_SECONDS} || 25);
while (time < $until)
{
	$rounds++;
	subtest "round $rounds: the garbage ends and all works again" => sub {
		my @sessions = ((map { $server->session } 1 .. 6), map { $other->session } 1, 2);
		$proxy->garble(share => (0.02, 0.1, 0.4)[ $rounds % 3 ], seed => $seed + $rounds);
		my $round_until = time + 4;
		my %started;
		while (time < $round_until)
		{
			my @idle;
			wait_until { (@idle = grep { !$_->busy } @sessions) || time >= $round_until } 'an idle session';
			foreach my $s (@idle)
			{
				$s->result if $started{$s}++;
				$s->query_start($statements[ rand @statements ]);
			}
		}
		$proxy->garble(share => 0);

		# The library drops an event whose path or type was changed; a new connection asks again.
		$proxy->drop;
		$_->disconnect foreach @sessions;
		$server->wait_session;
		foreach my $s ($server->session, $other->session)
		{
			foreach my $path (@paths)
			{
				is($s->query("SELECT zk_lock('$path', '50s')"), 't', "$path can be locked");
				is($s->query("SELECT zk_unlock('$path')"), 't', 'and unlocked');
			}
			is($s->query("SELECT zk_semaphore_acquire('/g/s', 2, '50s')"), 't', 'there is a permit');
			is($s->query("SELECT zk_semaphore_release('/g/s')"), 't', 'which is given back');
			$s->disconnect;
		}
	};
}

my @crashes = $server->log_since($mark) =~ /^.*was terminated by signal.*$/mg;
is("@crashes", '', "nothing has crashed in $rounds rounds (seed $seed)");
done_testing;
