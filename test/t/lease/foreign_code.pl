# Copyright (c) 2026, zklock contributors
#
# zk_fence() writes table zk_fences with the rights of the extension's owner. Nothing that others attach to the table
# runs with these: the function refuses while there is anything. And no privilege on the table but SELECT is of use.

use Zklock::Test;
use Zklock::Cast qw(fails);

my $server = Zklock::Server->new('plain', preload => 0);
my $admin  = $server->session;
$admin->query($_) foreach
  'CREATE ROLE app LOGIN',
  'GRANT CREATE ON SCHEMA public TO app',
  'GRANT EXECUTE ON FUNCTION zk_fence(text, bigint) TO app',
  # An administrator who is too generous
  'GRANT USAGE ON SCHEMA zk_fencing TO app',
  'GRANT ALL ON ALL TABLES IN SCHEMA zk_fencing TO app',
  'GRANT ALL ON ALL FUNCTIONS IN SCHEMA zk_fencing TO app',
  q{SELECT zk_fence('/f/kept', 5)};
my $app = $server->session(user => 'app');
$app->query($_) foreach
  q{CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE app SUPERUSER; RETURN NEW; END $$},
  q{CREATE FUNCTION evil(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN EXECUTE 'ALTER ROLE app SUPERUSER'; RETURN true; END $$};
my $table = 'zk_fencing.zk_fences';
my $token = 10;

sub refused($what, $has)
{
	foreach my $session ($admin, $app, $server->session)
	{
		fails($session->try(q{SELECT zk_fence('/f/lock', 9)}), '55000', $what, message => 'table zk_fencing.zk_fences is not as the extension made it',
			detail => "It has $has.");
	}
	is($admin->query(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'app'}), 'f', '... and runs nothing');
	return;
}

sub works($what)
{
	$token++;
	is($_->try("SELECT zk_fence('/f/lock', $token)")->{sqlstate}, '00000', $what) foreach $admin, $app;
	return;
}

subtest 'what a role with all privileges on the table attaches' => sub {
	foreach my $event ('BEFORE INSERT', 'AFTER UPDATE', 'BEFORE DELETE', 'AFTER TRUNCATE')
	{
		foreach my $each ($event =~ /TRUNCATE/ ? 'STATEMENT' : ('ROW', 'STATEMENT'))
		{
			$app->query("CREATE TRIGGER \"\x01\" $event ON $table FOR EACH $each EXECUTE FUNCTION evil()");
			refused("a trigger $event FOR EACH $each", "a trigger \"\x01\"");
			$admin->query("DROP TRIGGER \"\x01\" ON $table");
		}
	}
	# The owner can do without all triggers but those of the extension, whatever events and names the others have.
	$app->query($_) foreach "CREATE TRIGGER \"\x01\" BEFORE DELETE ON $table EXECUTE FUNCTION evil()", "CREATE TRIGGER late AFTER DELETE ON $table FOR EACH ROW EXECUTE FUNCTION evil()",
	  "CREATE TABLE child (path text REFERENCES $table ON DELETE CASCADE)";
	$admin->query("BEGIN; SET LOCAL session_replication_role = replica; DELETE FROM $table; ROLLBACK");
	refused('the owner deletes, as a replica', "a trigger \"\x01\"");
	$admin->query("BEGIN; DELETE FROM $table");
	is($admin->query(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'app'}), 't', 'otherwise they run');
	$admin->query('ROLLBACK');
	$admin->query($_) foreach 'DROP TABLE child', "DROP TRIGGER \"\x01\" ON $table", "DROP TRIGGER late ON $table";
	$app->query("CREATE CONSTRAINT TRIGGER late AFTER INSERT ON $table DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION evil()");
	refused('one that fires at the commit', 'a trigger "late"');
	$admin->query("DROP TRIGGER late ON $table");
	$app->query("CREATE TRIGGER alike BEFORE INSERT ON $table FOR EACH ROW WHEN (evil(NEW.path)) EXECUTE FUNCTION zk_fencing.protect()");
	refused('one with the function of the extension, and a condition', 'a trigger "alike"');
	$admin->query("DROP TRIGGER alike ON $table");
	$app->query("CREATE CONSTRAINT TRIGGER late AFTER INSERT ON $table DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION zk_fencing.protect()");
	refused('one with the function of the extension, at a time when it refuses', 'a trigger "late"');
	$admin->query("DROP TRIGGER late ON $table");
	my %own = (protect => 'BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW', protect_all => 'BEFORE TRUNCATE ON %s');
	foreach my $name (sort keys %own)
	{
		my $made = sprintf "CREATE OR REPLACE TRIGGER $name $own{$name} EXECUTE FUNCTION", $table;
		foreach my $trigger ("$made evil()", "CREATE OR REPLACE TRIGGER $name AFTER INSERT ON $table EXECUTE FUNCTION zk_fencing.protect()", "$made zk_fencing.protect()")
		{
			$app->query($trigger);
			refused($trigger, "a trigger \"$name\"");
		}
		$admin->query("ALTER TABLE $table ENABLE ALWAYS TRIGGER $name");
		works('the owner may say that it is the right one');
	}
	$app->query("CREATE TABLE child (path text REFERENCES $table ON UPDATE CASCADE)");
	refused('a foreign key', 'a foreign key of table "child"');
	$app->query('DROP TABLE child');
	works('without all that it works');
};

subtest 'what is for the owner to attach' => sub {
	foreach my $case (
		[ "CREATE RULE r AS ON INSERT TO $table DO ALSO SELECT evil('')" => 'a rule', "DROP RULE r ON $table" ],
		[ "ALTER TABLE $table ENABLE ROW LEVEL SECURITY" => 'row-level security', "ALTER TABLE $table DISABLE ROW LEVEL SECURITY" ],
		[ "ALTER TABLE $table ALTER fenced_by SET DEFAULT evil('')" => 'other columns or constraints', "ALTER TABLE $table ALTER fenced_by DROP DEFAULT" ],
		[ "ALTER TABLE $table ADD CHECK (evil(path)) NOT VALID" => 'other columns or constraints', "ALTER TABLE $table DROP CONSTRAINT zk_fences_path_check" ],
		[ "CREATE INDEX i ON $table (evil(path)) WHERE token < 0" => 'another index than its primary key', 'DROP INDEX zk_fencing.i' ],
		[ "CREATE DOMAIN checked AS text CHECK (length(VALUE) > 0 OR evil(VALUE)); ALTER TABLE $table ALTER fenced_by TYPE checked" => 'a column of another type',
			"ALTER TABLE $table ALTER fenced_by TYPE text" ],
		[ "ALTER TABLE $table OWNER TO app" => 'another owner than zk_fence()', "ALTER TABLE $table OWNER TO CURRENT_USER" ],
		# What the next table gets that has the name
		[ "ALTER SCHEMA zk_fencing RENAME TO was; CREATE SCHEMA zk_fencing AUTHORIZATION app; SET ROLE app; CREATE TABLE $table (path text PRIMARY KEY, token bigint, fenced_at timestamptz, fenced_by text); RESET ROLE" =>
			  'another owner than zk_fence()',
			'DROP SCHEMA zk_fencing CASCADE; ALTER SCHEMA was RENAME TO zk_fencing' ])
	{
		my ($attach, $has, $undo) = @$case;
		$admin->query('SET client_min_messages = error');
		$admin->query($attach);
		refused($attach, $has);
		$admin->query($undo);
		works('undone, it works');
	}
	$admin->query("CREATE TABLE child (CHECK (evil(path))) INHERITS ($table)");
	works('a child of the table is not looked at');
	$admin->query('DROP TABLE child');
	# Columns cannot be undone.
	$admin->query('BEGIN');
	$admin->query("ALTER TABLE $table ADD evil boolean DEFAULT (random() < 2)");
	fails($admin->try(q{SELECT zk_fence('/f/lock', 9)}), '55000', 'a column', detail => 'It has other columns or constraints.');
	$admin->query('ROLLBACK');
};

subtest 'nobody attaches anything between the look and the write' => sub {
	$token++;
	$admin->query("BEGIN; SELECT zk_fence('/f/lock', $token)");
	my $impatient = $server->session(user => 'app');
	$impatient->query(q{SET lock_timeout = '10ms'});
	is($impatient->try("CREATE TRIGGER t BEFORE INSERT ON $table FOR EACH ROW EXECUTE FUNCTION evil()")->{sqlstate}, '55P03', 'a trigger has to wait');
	$admin->query('COMMIT');
};

subtest 'no privilege on the table is good for changing a fence' => sub {
	$admin->query($_) foreach "GRANT ALL ON $table TO app", 'CREATE ROLE writer LOGIN IN ROLE pg_write_all_data', 'CREATE ROLE reader LOGIN IN ROLE pg_monitor';
	my $writer = $server->session(user => 'writer');
	foreach my $change ("INSERT INTO $table VALUES ('/f/made', 9000, now(), 'x')", "UPDATE $table SET token = 1", "DELETE FROM $table")
	{
		fails($app->try($change), '42501', "all privileges: $change", message => 'permission denied for table zk_fencing.zk_fences',
			detail => 'Only zk_fence() and the owner of the table change it.');
		fails($writer->try($change), '42501', "pg_write_all_data: $change");
	}
	fails($app->try("TRUNCATE $table"), '42501', 'all privileges: TRUNCATE');
	fails($app->try("SET session_replication_role = replica"), '42501', 'nor is the mode for replicas to be had');
	is($server->session(user => 'reader')->query("SELECT token FROM $table WHERE path = '/f/kept'"), '5', 'all is there, to be read');
	is($admin->try("DELETE FROM $table WHERE path = '/f/kept'")->{sqlstate}, '00000', 'the owner may delete it');
	$admin->query('SELECT zk_fence($$/f/kept$$, 5)');
	$admin->query("TRUNCATE $table");
	is($admin->query("SELECT count(*) FROM $table"), '0', 'or all');
};

done_testing;
