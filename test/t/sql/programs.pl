# Copyright (c) 2026, zklock contributors
#
# Programs that call pg_advisory_lock() and its companions, as they are: migrations on two servers at once take turns.
# So do those of programs that doc/recipes.md has call them. ActiveRecord, Django and Alembic are Debian's; the others
# come from the npm registry, and are not tested where that cannot be reached.

use Zklock::Test;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Zklock::Process;
use Zklock::Util qw(blocks);

my $interop = abs_path(dirname(__FILE__) . '/../../interop');
my ($zk, @servers) = cast('a b');
my ($install) = slurp_file("$interop/../../doc/advisory-locks.md") =~ /^```sql\n(.*?)^```$/ms;

foreach my $server (@servers)
{
	$server->value('CREATE DATABASE app');
	is($server->node->psql('app', "CREATE EXTENSION zklock; $install; GRANT CREATE ON SCHEMA public TO app", on_error_stop => 1),
		0, 'doc/advisory-locks.md is followed on server ' . $server->name);
	$server->session(dbname => 'app')->query('CREATE TABLE gate (); GRANT ALL ON gate TO app');
}
sub has_table($server, $table) { return $server->session(dbname => 'app')->query("SELECT to_regclass('public.$table') IS NOT NULL"); }

sub file($directory, $name, $text)
{
	append_to_file("$directory/$name", $text);
	return $directory;
}

sub program($server, $name, %arg)
{
	local @ENV{qw(PGHOST PGPORT PGUSER PGDATABASE)} = ($server->host, $server->port, 'app', 'app');
	my $run = "$name-" . $server->name;
	return Zklock::Process->new(name => $run, %arg);
}

sub ends($program, $code, $name)
{
	$program->wait_end(60);
	is($program->status_text, "exit code $code", $name);
	note(slurp_file($program->log_file));
	return;
}

# The migrations create a table of the program's name, and wait at the gate before. "refused" is what the program says if
# another one runs; one that waits says nothing, and asks again and again, or with "queues" once. "releases" is how it
# releases the lock.
sub take_turns($name, %arg)
{
	my ($a, $b)  = @servers;
	my $refused  = delete $arg{refused};
	my $queues   = delete $arg{queues};
	my $releases = delete $arg{releases} // qr/SELECT pg_advisory_unlock/;
	my $gate     = $a->session(dbname => 'app');
	my $key      = q{path ~ '^/advisory/app/-?\d+$' AND state = 'held' AND mode = 'exclusive'};
	my $refusals = q{SELECT sum(busy) FROM zk_stats};
	$gate->query('BEGIN; LOCK TABLE gate');
	my $first = program($a, $name, %arg);
	$a->wait_value(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND wait_event = 'relation'}, 1);
	is($a->lock_count($key), 1, 'the first runs, and has its lock in ZooKeeper');
	my $before = $b->value($refusals);
	my $second = program($b, $name, %arg);
	if ($refused)
	{
		ends($second, 1, 'that on the other server ends');
		like(slurp_file($second->log_file), $refused, 'since one runs already');
	}
	elsif ($queues) { $b->wait_value(q{SELECT count(*) FROM zk_locks WHERE state = 'waiting'}, 1); }
	else
	{
		wait_until { $b->value($refusals) > $before } 'that on the other server to be refused the lock';
		ok($second->running, 'that on the other server is refused the lock, and waits');
	}
	is(has_table($b, $name), 'f', 'it has done nothing');
	my @marks = map { $_->log_mark } $a, $b;
	$gate->query('COMMIT');
	ends($first, 0, 'the first ends well');
	$second = program($b, $name, %arg) if $refused;
	ends($second, 0, 'now that on the other server does');
	foreach my $server ($a, $b)
	{
		is(has_table($server, $name), 't', 'server ' . $server->name . ' has the table');
		is($server->lock_count($key), 0, 'and no lock');
		my $log = $server->log_since(shift @marks);
		like($log, $releases, 'which the program has released');
		unlike($log, qr/WARNING:  you don't own a lock/, '... here, and not in the server alone');
	}
	$gate->disconnect;
	return;
}

subtest 'migrations of ActiveRecord' => sub {
	take_turns('rails',
		argv => [ 'ruby', "$interop/migrate.rb", file(PostgreSQL::Test::Utils::tempdir, '1_create_rails.rb', <<'END') ],
class CreateRails < ActiveRecord::Migration[ActiveRecord::Migration.current_version]
  def up
    execute 'LOCK TABLE gate'
    create_table :rails
  end
end
END
		refused => qr/ConcurrentMigrationError/);
};

# A block of doc/recipes.md
sub recipe($has) { return (map { $_->[1] } grep { $_->[1] =~ $has } blocks("$interop/../../doc/recipes.md"))[0]; }

subtest 'migrations of Django' => sub {
	my $project = PostgreSQL::Test::Utils::tempdir('django');
	foreach my $package (map { "shop$_" } '', qw(/migrations /management /management/commands))
	{
		mkdir "$project/$package";
		file($project, "$package/__init__.py", '');
	}
	file($project, 'shop/management/commands/migrate.py', recipe(qr/^class Command\(migrate\.Command\):/m));
	file($project, 'shop/migrations/0001_initial.py', <<'END');
from django.db import migrations

class Migration(migrations.Migration):
    operations = [migrations.RunSQL("LOCK TABLE gate"), migrations.RunSQL("CREATE TABLE django ()")]
END
	file($project, 'settings.py', <<'END');
INSTALLED_APPS = ["shop"]
SECRET_KEY = "-"
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "app"}}
END
	take_turns('django',
		argv   => [ qw(env PYTHONPATH=. DJANGO_SETTINGS_MODULE=settings PYTHONDONTWRITEBYTECODE=1 django-admin migrate) ],
		dir    => $project,
		queues => 1);
};

subtest 'migrations of Alembic' => sub {
	my $project = PostgreSQL::Test::Utils::tempdir('alembic');
	mkdir "$project/$_" foreach qw(alembic alembic/versions);
	file($project, 'alembic.ini', "[alembic]\nscript_location = alembic\nsqlalchemy.url = postgresql://\n");
	file($project, 'alembic/env.py', join "\n", 'from alembic import context', 'from sqlalchemy import create_engine, text',
		'config = context.config', recipe(qr/^def run_migrations_online/), 'run_migrations_online()', '');
	file($project, 'alembic/versions/1.py', <<'END');
from alembic import op
revision = "1"
down_revision = None

def upgrade():
    op.execute("LOCK TABLE gate")
    op.execute("CREATE TABLE alembic ()")
END
	take_turns('alembic',
		argv     => [ qw(env PYTHONDONTWRITEBYTECODE=1 alembic upgrade head) ],
		dir      => $project,
		queues   => 1,
		releases => qr/COMMIT/);
};

# What comes from the registry. It is the only reason not to test these.
my $modules = PostgreSQL::Test::Utils::tempdir('npm');
my ($said, $errors) = run_command([ qw(npm install --no-audit --no-fund --fetch-retries=1 --fetch-timeout=60000 --prefix), $modules,
	qw(pg@8 node-pg-migrate@7 postgres-migrations@5) ]);
my $unreachable = $errors =~ /\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT)\b/;

subtest 'what the npm registry has' => sub {
	if ($unreachable)
	{
		diag("NOT TESTED: node-pg-migrate and postgres-migrations, since the npm registry cannot be reached\n$errors");
		plan skip_all => 'the npm registry cannot be reached';
	}
	ok(-e "$modules/node_modules/$_/package.json", "$_ is installed") || diag($errors) foreach qw(pg node-pg-migrate postgres-migrations);

	subtest 'a number is an interval of so many seconds' => sub {
		my $pg = program($servers[0], 'interval', dir => $modules, argv => [ 'node', '-e', <<'END' ]);
const { Client } = require('pg');
(async () => {
  const client = new Client();
  await client.connect();
  const { rows } = await client.query('SELECT $1::interval::text AS number, $2::interval::text AS string', [5000, '5s']);
  console.log(rows[0].number, rows[0].string);
  await client.end();
})();
END
		ends($pg, 0, 'a program calls');
		is(slurp_file($pg->log_file), "01:23:20 00:00:05\n", 'as doc/guide.md says');
	};

	subtest 'node-pg-migrate' => sub {
		take_turns('node',
			argv => [ "$modules/node_modules/.bin/node-pg-migrate", qw(up --schema public --schema zk_advisory --schema pg_catalog -m),
				file(PostgreSQL::Test::Utils::tempdir, '1_node.sql', "-- Up Migration\nLOCK TABLE gate;\nCREATE TABLE node ();\n") ],
			dir     => $modules,
			refused => qr/Another migration is already running/);
	};
	subtest 'postgres-migrations, which waits' => sub {
		take_turns('pgm',
			argv => [ 'node', "$interop/migrate.js",
				file(PostgreSQL::Test::Utils::tempdir, '1_pgm.sql', "LOCK TABLE gate;\nCREATE TABLE pgm ();\n") ],
			dir => $modules);
	};
};

done_clean($zk, @servers);
