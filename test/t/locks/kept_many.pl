# Copyright (c) 2026, zklock contributors
#
# Thousands of nodes are kept: a lost connection leaves all of them, whatever ends the session or the worker none. Neither
# keeps the next lock from anybody for long, or takes anything from those that are held. How long it takes until the next lock is granted is
# noted. ZKLOCK_KEPT is how many nodes there are.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT story token unlock);
use Time::HiRes qw(time);

my $many = $ENV{ZKLOCK_KEPT} || 3000;
my $most = int($many * 1.07) + 10;    # the last sixteenth stays free
my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '30s', conf => [ "zklock.keep_idle = '1h'", "zklock.max_kept_locks = $most" ]);

sub kept { return $a->value(q(SELECT kept FROM zk_stats WHERE mode = 'exclusive')); }

# Locks so many paths twice, by hundreds, and so keeps their nodes.
sub keep_many($n = $many)
{
	on($a, 'keeper')->query("DO \$\$ BEGIN
		FOR i IN 0 .. $n / 100 - 1 LOOP
			FOR twice IN 1 .. 2 LOOP
				PERFORM zk_lock(ARRAY(SELECT '/many/' || n FROM generate_series(100 * i + 1, 100 * i + 100) n));
				PERFORM zk_unlock_all();
			END LOOP;
		END LOOP; END \$\$");
	is(kept(), $n, "$n nodes are kept");
	return;
}

sub nodes { return () = $zk->four_letter('dump') =~ m{^\s+/many/}mg; }

# After that so many are kept.
sub new_lock($what, $end, $left = 0)
{
	keep_many();
	hold($a, 'holder', '/held');
	my $begin = time;
	$end->();
	hold($a, 'next', '/many/1');
	my $time = time - $begin;
	my $figure = sprintf '%s: the first lock after %.0f ms', $what, 1000 * $time;
	$ENV{ZKLOCK_KEPT} ? diag $figure : note $figure;
	$a->wait_value(q(SELECT kept FROM zk_stats WHERE mode = 'exclusive'), $left);
	is(scalar(nodes()), $left + 1, "$what leaves $left but for that which has been locked since") if $what !~ /no/;
	$_->query('SELECT zk_unlock_all()') foreach grep { defined } @s{qw(next holder)};
	return;
}

story 'a lock costs no request, however many are kept' => sub {
	keep_many();
	$proxy->asked;
	$s{keeper}->query("SELECT count(zk_unlock('/many/' || n)) FROM generate_series(1, $many, 97) n WHERE zk_lock('/many/' || n)");
	is_deeply($proxy->asked, {}, 'as the nodes are there');
	is(kept(), $many, 'and they are kept again');
	is($a->value('SELECT count(*) FROM zk_locks'), 0, 'nobody has them');
	is($s{keeper}->query("SELECT count(*) FROM generate_series(1, 200) n WHERE zk_lock('/other/' || n)"), 200, 'others can be had');
	is($a->value('SELECT locks_in_use FROM zk_session'), 200, 'which alone are in use');
};

story 'the oldest give way' => sub {
	my $crowded = $a->value(q(SELECT kept_crowded FROM zk_stats WHERE mode = 'exclusive'));
	# The first hundred has just been used again, the second is the oldest.
	on($a, 'keeper')->query("SELECT zk_lock('/many/' || n) AND zk_unlock('/many/' || n) FROM generate_series(1, 100) n");
	$s{keeper}->query("SELECT zk_lock('/newer/' || n) AND zk_unlock('/newer/' || n) FROM generate_series(1, 400) n, generate_series(1, 2)");
	$a->wait_value("SELECT kept_crowded > $crowded FROM zk_stats WHERE mode = 'exclusive'", 't');
	cmp_ok(kept(), '<=', $most, 'there are no more than allowed');
	wait_until { !$zk->children('/many/101') } 'the oldest to go';
	is(scalar($zk->children('/many/1')), 1, 'what has been used since stays');
	is(scalar($zk->children('/newer/400')), 1, 'like the newest');
	$a->value('SELECT zk_release_kept()');
	$a->wait_value(q(SELECT kept FROM zk_stats WHERE mode = 'exclusive'), 0);
	is(scalar(nodes()), 0, 'in the end none is left');
};

story 'what ends the session or the worker ends all' => sub {
	new_lock('a lost connection', sub { $a->cut_off($proxy); $a->reconnect($proxy); }, $many - 1);
	new_lock('another worker', sub { $a->restart_worker; });
	new_lock('a crash', sub {
		my $old = $a->worker_pid;
		kill 'KILL', $old;
		all_disconnect();
		wait_until { eval { $a->worker_pid && $a->worker_pid != $old } } 'the server to be up again';
		$a->wait_session;
	});
	# Until the worker knows, it grants by what is kept, which is lost then.
	new_lock('an expired session', sub { $a->expire_session($zk); $a->wait_value('SELECT expirations FROM zk_session', 1); });
};

all_disconnect();
$a->value('SELECT zk_release_kept()');
done_clean($zk, $a);
