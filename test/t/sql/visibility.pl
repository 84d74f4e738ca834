# Copyright (c) 2026, zklock contributors
#
# What each role sees in zk_locks and zk_session, and what zk_session tells about room for locks.

use Zklock::Test;

my ($zk, $a) = cast('a', conf => ['zklock.max_locks = 100']);

$a->value($_) foreach
  'CREATE ROLE alice LOGIN', 'CREATE ROLE bob LOGIN', 'CREATE ROLE app', 'CREATE ROLE team',
  'CREATE ROLE carol LOGIN', 'CREATE ROLE monitor LOGIN IN ROLE pg_monitor',
  'GRANT team TO alice', 'GRANT alice TO carol', 'GRANT app TO bob',
  'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO alice, bob, app';
my %s = map { $_ => $a->session(user => $_) } qw(alice bob carol monitor);

my @public = qw(pid kind mode state);
my @secret = qw(datname path scope granted count node fencing_token wait_start granted_at
  blocked_by_pid blocked_by_node);

# What a session sees of the locks of another: all of them, or the public columns alone?
sub sees($session, $of, $what, $name)
{
	my $counts = $session->query(
		"SELECT count(*), count(*) FILTER (WHERE path LIKE '/v/%' AND node IS NOT NULL AND scope = 'session'"
		  . ' AND datname = current_database() AND count = 1 AND granted),'
		  . " count(*) FILTER (WHERE num_nonnulls(@{[join ', ', @public]}) >= 3"
		  . " AND num_nonnulls(@{[join ', ', @secret]}) = 0)"
		  . ' FROM zk_locks WHERE pid = ' . $of->pid);
	return is($counts, { all => '2|2|0', public => '2|0|2' }->{$what}, $name);
}

$s{$_}->query("SELECT zk_lock('/v/$_'), zk_semaphore_acquire('/v/slots', 5)") foreach qw(alice bob);

subtest 'who sees all of whose locks, and who what is no secret' => sub {
	%s = (%s, 'alice again' => $a->session(user => 'alice'), superuser => $a->session);
	foreach my $case (
		[ 'alice', 'alice', 'all' ],
		[ 'alice', 'bob',   'public' ],
		[ 'bob',   'alice', 'public' ],
		# another session of the same role
		[ 'alice again', 'alice', 'all' ],
		# a member of that role; members of pg_monitor, and superusers, see everything
		[ 'carol', 'alice', 'all' ],
		[ 'carol', 'bob',   'public' ],
		map { ([ $_ => 'alice', 'all' ], [ $_ => 'bob', 'all' ]) } qw(monitor superuser))
	{
		my ($who, $whose, $what) = @$case;
		sees($s{$who}, $s{$whose}, $what, "$who sees of $whose: $what");
	}
	is( $s{alice}->query('SELECT kind, mode, state FROM zk_locks WHERE pid = ' . $s{bob}->pid . ' ORDER BY kind'),
		"lock|exclusive|held\nsemaphore||held", 'what is held, and how');
};

subtest 'a lock belongs to the session\'s role, and the session itself sees it in any role' => sub {
	$s{bob}->query('SET ROLE app');
	sees($s{bob}, $s{bob}, 'all', 'SET ROLE');
	$s{bob}->query("SELECT zk_lock('/v/app')");
	is($s{bob}->query("SELECT path FROM zk_locks WHERE path = '/v/app'"), '/v/app', 'with a lock taken in that role');
	$s{bob}->query("SELECT zk_unlock('/v/app')");
	$s{bob}->query('RESET ROLE');
	$a->value('CREATE FUNCTION public.take() RETURNS boolean SECURITY DEFINER LANGUAGE sql AS $$ SELECT public.zk_lock(\'/v/taken\') $$');
	is($s{bob}->query('SELECT take()'), 't', 'a lock that a function of another role takes');
	my $second = $a->session(user => 'bob');
	is($second->query("SELECT path FROM zk_locks WHERE path = '/v/taken'"), '/v/taken', 'is the lock of the role of the session');
	$s{bob}->query("SELECT zk_unlock('/v/taken')");
};

subtest 'pg_monitor sees in zk_session how much room for locks there is' => sub {
	# The locks that say whose turn it is at the semaphore may still be on their way out.
	$a->wait_value('SELECT locks_in_use FROM zk_session', '4');
	is($s{monitor}->query('SELECT max_locks, locks_in_use, obstacle FROM zk_session'), '100|4|', 'and nothing is in the way');
	$s{alice}->query('SELECT zk_unlock_all()');
	$a->wait_value('SELECT locks_in_use FROM zk_session', '2');
	pass('what is released is free again');
};

done_clean($zk, $a);
