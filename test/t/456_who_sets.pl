# Copyright (c) 2026, zklock contributors
#
# Settings with which an administrator binds a role: the role cannot set them, by any means, unless it was given
# the privilege.

use Zklock::Test;
use Zklock::Cast qw(fails);

my ($zk, $a) = cast('a');
$a->value('CREATE ROLE mallory LOGIN; GRANT CREATE ON SCHEMA public TO mallory');
$a->value('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory');

# What the role was given counts: with zklock.allowed_paths nothing else can be locked.
sub is_bound($session, $setting, $given, $name)
{
	is($session->query("SHOW $setting"), $given, $name);
	fails($session->try("SELECT zk_lock('/elsewhere')"), '42501', "$name, for a lock elsewhere",
		detail => 'The path is not in "zklock.allowed_paths".') if $setting eq 'zklock.allowed_paths';
	return;
}

# A setting, what the role was given, and what it would like to have
foreach my $case (
	[ 'zklock.commit_guard',          'quorum',   'off' ],
	[ 'zklock.commit_guard',          'off',      'lease' ],
	[ 'zklock.parent_nodes',          'existing', 'persistent' ],
	[ 'zklock.parent_nodes',          'existing', 'container' ],
	[ 'zklock.allowed_paths',         '/given',   '/*' ],
	[ 'zklock.max_locks_per_session', '3',        '64' ])
{
	my ($setting, $given, $wanted) = @$case;
	subtest "$setting: a role that was given $given cannot have $wanted" => sub {
		$a->value("ALTER ROLE mallory SET $setting = '$given'");
		my $m = $a->session(user => 'mallory');
		foreach my $sql (
			"SET $setting = '$wanted'", "SET $setting = '$given'", "SET $setting TO DEFAULT", "RESET $setting",
			"SELECT set_config('$setting', '$wanted', false)", "UPDATE pg_settings SET setting = '$wanted' WHERE name = '$setting'",
			"ALTER ROLE mallory SET $setting = '$wanted'", "ALTER ROLE mallory RESET $setting",
			"CREATE FUNCTION f() RETURNS int LANGUAGE sql SET $setting = '$wanted' AS 'SELECT 1'")
		{
			fails($m->try($sql), '42501', "$sql: refused", message => qq{permission denied to set parameter "$setting"});
		}
		ok($m->try($_)->{ok}, "$_ resets what it may") foreach 'RESET ALL', 'DISCARD ALL', 'ALTER ROLE mallory RESET ALL';
		is_bound($m, $setting, $given, 'it stays as it was');
		is_bound($a->session(user => 'mallory'), $setting, $given, 'in the next session as well');
		{
			local $ENV{PGOPTIONS} = "-c $setting=$wanted";
			# It asks for nothing: psql that is refused does not read what it should.
			my (undef, undef, $err) = $a->psql('postgres', '', extra_params => [ '-U', 'mallory' ], on_error_die => 0);
			like($err, qr/permission denied to set parameter "\Q$setting\E"/, 'connection options: refused');
		}
		$a->value("GRANT SET ON PARAMETER $setting TO mallory");
		ok($m->try("SET $setting = '$wanted'")->{ok}, 'but the privilege can be granted');
		$a->value("REVOKE SET ON PARAMETER $setting FROM mallory; ALTER ROLE mallory RESET $setting");
	};
}

done_clean($zk, $a);
