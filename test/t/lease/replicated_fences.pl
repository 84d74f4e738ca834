# Copyright (c) 2026, zklock contributors
#
# Table zk_fences is part of a publication FOR ALL TABLES. One database's fences never
# change another's that way, while dump, restore and pg_upgrade keep them. What a session that replays by itself can
# change is in sql/fence.sql.

use Zklock::Test;
use File::Basename qw(dirname);
use File::Path qw(make_path);
use PostgreSQL::Test::Utils;

my @options = (preload => 0, allows_streaming => 'logical', conf => ['wal_retrieve_retry_interval = 100ms']);
my ($east, $west) = map { Zklock::Server->new($_, @options) } qw(east west);

sub fences($server)
{
	return $server->value(q{SELECT string_agg(path || ' ' || token, ', ' ORDER BY path) FROM zk_fencing.zk_fences});
}

sub fence($server, %token)
{
	$server->value("SELECT zk_fence('$_', $token{$_})") foreach sort keys %token;
	return;
}

sub publish($server) { $server->value('CREATE PUBLICATION everything FOR ALL TABLES'); return; }

# Changes of $from go to $to, what is there already first of all.
sub subscribe($to, $from)
{
	my $name = 'from_' . $from->name;
	my $mark = $to->log_mark;
	$to->value("CREATE SUBSCRIPTION $name CONNECTION '" . $from->connstr('postgres') =~ s/'//gr . "' PUBLICATION everything");
	wait_until {
		$to->value(q{SELECT count(*) > 0 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel}) eq 't'
	} sub { "the initial copy; log:\n" . $to->log_since($mark) };
	return;
}

# All of $from's changes have reached $to, and none was trouble.
sub replicated($from, $to, $mark, $name)
{
	my $lsn = $from->value('SELECT pg_current_wal_lsn()');
	my $done = eval {
		$from->wait_value(
			"SELECT coalesce(bool_and(replay_lsn >= '$lsn'), false) FROM pg_stat_replication WHERE application_name = 'from_"
			  . $from->name . q{'}, 't', 30);
		1;
	};
	my $log = $to->log_since($mark);
	ok($done && $log !~ /ERROR/, "$name: replication goes on") or diag $@ || $log;
	return;
}

fence($east, '/both' => 20, '/east' => 10);
fence($west, '/both' => 5, '/west' => 7);
foreach my $server ($east, $west)
{
	$server->value('CREATE TABLE account (id int PRIMARY KEY, token bigint)');
	$server->value(q{CREATE FUNCTION fence_account() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM public.zk_fence('/account', NEW.token);
			RETURN NULL;
		END $$});
	$server->value('CREATE TRIGGER fence AFTER INSERT ON account FOR EACH ROW EXECUTE FUNCTION fence_account()');
	$server->value('ALTER TABLE account ENABLE ALWAYS TRIGGER fence');
}
$east->value('INSERT INTO account VALUES (1, 100)');

my $triggers = q{SELECT string_agg(format('%s %s', tgname, tgenabled), ', ' ORDER BY tgname) FROM pg_trigger
	WHERE tgrelid = 'zk_fencing.zk_fences'::regclass};
my $mine = '/both 5, /west 7';

subtest 'the initial copy' => sub {
	my $mark = $west->log_mark;
	publish($east);
	subscribe($west, $east);
	is($west->value('SELECT count(*) FROM account'), 1, 'tables are copied');
	is(fences($west), "/account 100, $mine", 'but no fences; what a trigger fences while rows are copied is kept');
	unlike($west->log_since($mark), qr/ERROR/, 'without trouble');
};

subtest 'changes that follow' => sub {
	foreach my $change (
		[ insert => q{SELECT zk_fence('/new', 1)} ],
		[ update => q{SELECT zk_fence('/both', 21), zk_fence('/east', 11)} ],
		[ 'update of a key' => q{UPDATE zk_fencing.zk_fences SET path = '/west' WHERE path = '/new'} ],
		[ delete => q{DELETE FROM zk_fencing.zk_fences WHERE path IN ('/both', '/west')} ],
		[ truncate => 'TRUNCATE account' ])
	{
		my ($name, $sql) = @$change;
		my $mark = $west->log_mark;
		$east->value($sql);
		replicated($east, $west, $mark, $name);
		is(fences($west), "/account 100, $mine", "$name: changes nothing here");
	}
	is($west->value('SELECT count(*) FROM account'), 0, 'other tables are truncated');
	is(fences($east), '/account 100, /east 11', 'there they are changed');
	my $mark = $west->log_mark;
	$east->value('INSERT INTO account VALUES (2, 102)');
	replicated($east, $west, $mark, 'a trigger');
	is(fences($west), "/account 102, $mine", 'what a trigger fences while changes are applied is kept');
	my $session = $west->session;
	is($session->try(q{SELECT zk_fence('/account', 101)})->{sqlstate}, '40001', 'and refuses what is older');
};

subtest 'both directions at once' => sub {
	# Any other table would go round and round.
	$_->value('DROP TABLE account') foreach $east, $west;
	$_->value(q{DELETE FROM zk_fencing.zk_fences}) foreach $east, $west;
	fence($east, '/both' => 50, '/east' => 51);
	fence($west, '/both' => 60, '/west' => 61);
	my @mark = map { $_->log_mark } $east, $west;
	publish($west);
	subscribe($east, $west);
	fence($east, '/both' => 52);
	fence($west, '/both' => 62, '/fresh' => 1);
	fence($east, '/fresh' => 2);
	replicated($east, $west, $mark[1], 'from east to west');
	replicated($west, $east, $mark[0], 'from west to east');
	is(fences($east), '/both 52, /east 51, /fresh 2', 'east has its own');
	is(fences($west), '/both 62, /fresh 1, /west 61', 'west has its own');
	$east->value('DROP SUBSCRIPTION from_west');
	$west->value('DROP SUBSCRIPTION from_east');
};

subtest 'a subscriber without the extension stops at the first fence, until it has it' => sub {
	$_->value('CREATE DATABASE shop') foreach $east, $west;
	my ($from, $to) = map { $_->session(dbname => 'shop') } $east, $west;
	$_->query('CREATE TABLE sold (i int)') foreach $from, $to;
	$from->query('CREATE PUBLICATION everything FOR ALL TABLES');
	my $subscribe = q{CREATE SUBSCRIPTION %s CONNECTION '} . $east->connstr('shop') =~ s/'//gr . q{' PUBLICATION everything};
	$to->query(sprintf $subscribe, 'older');
	# The first copy of the table would bring what comes after the fence.
	wait_until { $to->query(q{SELECT count(*) FROM pg_subscription_rel WHERE srsubstate = 'r'}) == 1 } 'the first copy';
	my $mark = $west->log_mark;
	$from->query($_) foreach 'CREATE EXTENSION zklock', q{SELECT zk_fence('/shop', 1)}, 'INSERT INTO sold VALUES (1)';
	my $missing = qr{"zk_fencing(?:.zk_fences)?" does not exist};
	$west->wait_log($missing, $mark);
	like($to->try(sprintf $subscribe, 'newer')->{message}, $missing, 'another subscription is refused');
	is($to->query('SELECT count(*) FROM sold'), 0, 'nothing arrives that was done after the fence');
	$to->query('CREATE EXTENSION zklock');
	wait_until { $to->query('SELECT count(*) FROM sold') == 1 } 'replication to go on';
	is($to->query('SELECT count(*) FROM zk_fencing.zk_fences'), 0, 'but for the fence');
	$to->query('DROP SUBSCRIPTION older');
	$_->disconnect foreach $from, $to;
	$_->value('DROP DATABASE shop') foreach $east, $west;
};

subtest 'dump and restore keep fences, also in the mode for replicas' => sub {
	my $dump = PostgreSQL::Test::Utils::tempdir . '/dump';
	$west->node->command_ok([ qw(pg_dump --format=custom --file), $dump, '--dbname', $west->connstr('postgres') ],
		'pg_dump');
	my $kept = fences($west);
	foreach my $role ('origin', 'replica')
	{
		local $ENV{PGOPTIONS} = "-c session_replication_role=$role";
		$west->value("CREATE DATABASE restored_$role TEMPLATE template0");
		$west->node->command_ok([ 'pg_restore', '--dbname', $west->connstr("restored_$role"), $dump ], "pg_restore, $role");
		my $session = $west->session(dbname => "restored_$role");
		is($session->query(q{SELECT string_agg(path || ' ' || token, ', ' ORDER BY path) FROM zk_fencing.zk_fences}), $kept, 'all are there');
		$session->query('DELETE FROM zk_fencing.zk_fences');
		is($session->query($triggers), 'protect A, protect_all A', 'and the triggers are as they were');
	}
};

# An installation that has the zklock under test, whichever is installed in the system:
# PostgreSQL 18's pg_upgrade looks for libraries nowhere else. Programs find what belongs to them
# from where they are; most of it are links.
sub installed_bindir
{
	my $root = PostgreSQL::Test::Utils::tempdir;
	chomp(my ($bindir, $libdir, $sharedir) = map { `pg_config --$_` } qw(bindir pkglibdir sharedir));
	make_path(map { dirname("$root$_") } $bindir, $libdir, $sharedir);
	system_or_bail('cp', '-R', $bindir, "$root$bindir");
	system_or_bail('cp', '-RsT', $_, "$root$_") foreach $libdir, $sharedir;
	if ($ENV{ZKLOCK_STAGE})
	{
		unlink glob "$root$libdir/zklock* $root$libdir/bitcode/zklock* $root$sharedir/extension/zklock* $root$sharedir/man/man1/zklock*";
		system_or_bail('cp', '-R', "$ENV{ZKLOCK_STAGE}$_/.", "$root$_") foreach $libdir, $sharedir;
	}
	return "$root$bindir";
}

subtest 'pg_upgrade keeps them' => sub {
	my $kept = fences($west);
	my $new = Zklock::Server->new('new', preload => 0, start => 0, extension => 0);
	$west->value('DROP DATABASE restored_origin');
	$west->value('DROP DATABASE restored_replica');
	$west->value('CREATE EXTENSION zklock_advisory');
	$west->stop;
	my $bindir = installed_bindir();
	my @no_sync = `pg_upgrade --help` =~ /--no-sync/ ? '--no-sync' : ();
	my $directory = PostgreSQL::Test::Utils::tempdir;
	chdir $directory or die $!;
	command_ok(
		[   'pg_upgrade', @no_sync, '-b', $bindir, '-B', $bindir, '-d', $west->data_dir, '-D', $new->data_dir,
			'-p', $west->port, '-P', $new->port, '-s', $new->host ],
		'pg_upgrade');
	$new->start;
	is(fences($new), $kept, 'all are there');
	fence($new, '/both' => 70);
	is($new->value($triggers), 'protect A, protect_all A', 'and the triggers');
	is($new->value(q{SELECT string_agg(extname || ' ' || extversion, ', ' ORDER BY extname) FROM pg_extension WHERE extname LIKE 'zklock%'}),
		'zklock 1.0, zklock_advisory 1.0', 'both extensions are of the same version');
};

done_testing;
