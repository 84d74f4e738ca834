# Copyright (c) 2026, zklock contributors
#
# zklock.session_locks = off: nothing is held at session level, as behind a pool of connections
# what one client holds another has.

use Zklock::Test;
use Zklock::Cast qw(fails);

my ($zk, $a) = cast('a');
$a->value('CREATE ROLE pooled LOGIN');
$a->value('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO pooled');
my $before = $a->session(user => 'pooled');
$a->value('ALTER ROLE pooled SET zklock.session_locks = off');
my $s = $a->session(user => 'pooled');

my %instead = (
	"zk_lock('/p')"                             => 'zk_xact_lock',
	"zk_lock(ARRAY['/p'])"                      => 'zk_xact_lock',
	"zk_try_lock('/p')"                         => 'zk_try_xact_lock',
	"zk_lock_shared('/p')"                      => 'zk_xact_lock_shared',
	"zk_lock_shared(ARRAY['/p'])"               => 'zk_xact_lock_shared',
	"zk_try_lock_shared('/p')"                  => 'zk_try_xact_lock_shared',
	"zk_lock_tree('/p/q', '/p')"                => 'zk_xact_lock_tree',
	"zk_lock_tree_shared('/p/q', '/p')"         => 'zk_xact_lock_tree_shared',
	"zk_semaphore_acquire('/s', 1)"             => 'zk_xact_semaphore_acquire');

subtest 'what would be held at session level is refused, and the hint names what is not' => sub {
	foreach my $call (sort keys %instead)
	{
		fails($s->try("SELECT $call"), '55000', "$call: refused",
			message => qr/^cannot use zk_\w+\(\): "zklock.session_locks" is off$/,
			hint    => "Use $instead{$call}(), whose locks end with the transaction.");
		(my $other = $call) =~ s/^\w+/$instead{$call}/;
		is($s->query("SELECT $other"), 't', "$other works");
	}
	is($a->value('SELECT count(*) FROM zk_locks WHERE granted'), 0, 'nothing is left');
};

subtest 'what was held before can be released, and who may change the setting' => sub {
	is($before->query("SELECT zk_lock('/p')"), 't', 'a session from before');
	is($s->try("SET zklock.session_locks = on")->{sqlstate}, '42501', 'the role cannot change it');
	my $admin = $a->session;
	$admin->query("SELECT zk_lock('/q')");
	$admin->query('SET zklock.session_locks = off');
	is($admin->query("SELECT zk_unlock('/q')"), 't', 'what is held is released');
};

done_clean($zk, $a);
