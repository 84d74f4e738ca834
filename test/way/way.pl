# Copyright (c) 2026, zklock contributors
#
# The way of a lock: which functions of zklock, in which files, one zk_lock() and zk_unlock() cross
# that nobody contends for, in the session and in the worker. "make way" builds zklock for it without
# optimisation, so that inlined functions count, and with recorder.c.
#
# What three repetitions have in common is counted: a heartbeat is due in one of them at most. In each
# the session waits for the worker, and the worker for ZooKeeper, as they do over a network.
#
# Leaves in ZKLOCK_RESULTS the files "summary" and "list".

use Zklock::Test;
use PostgreSQL::Test::Utils;

my $repetitions = 3;
my @roles       = qw(session worker);
my $size        = 1 << 24;              # of the recorder's map: more than zklock.so has

my $results = $ENV{ZKLOCK_RESULTS} || PostgreSQL::Test::Utils::tempdir('way');
my $map     = PostgreSQL::Test::Utils::tempdir('map') . '/map';
open(my $file, '+>:raw', $map) or BAIL_OUT("$map: $!");
truncate($file, $size)         or BAIL_OUT("$map: $!");

# The way to ZooKeeper and back is counted, which a node that is kept spares.
my ($zk, $a) = cast('a', timeout => '40s', conf => ['zklock.keep_idle = 0'], environment => { ZKLOCK_WAY => $map });
my $session   = $a->session;
my $worker    = $a->worker_pid;
my $zookeeper = $zk->server(1)->pid;

# The bit of a role in a repetition
sub mark($role, $repetition) { return 1 << ($role * $repetitions + $repetition); }

sub record(@marks)
{
	sysseek($file, 0, 0);
	return syswrite($file, pack('L2 C2', $session->pid, $worker, @marks));
}

sub wait_idle() { return wait_until { slurp_file("/proc/$worker/stat") =~ /\) S / } 'the worker to have nothing to do'; }

sub cross($sql, $event)
{
	freeze($zookeeper);
	$session->query_start($sql);
	$a->wait_event($session, $event);
	wait_idle;
	thaw($zookeeper);
	is($session->finish, 't', $sql);
	# The session has its answer before the worker has done all that there is to do.
	return wait_idle;
}

# The first time parents are created.
$session->query($_) foreach "SELECT zk_lock('/way/lock')", "SELECT zk_unlock('/way/lock')";
foreach my $repetition (0 .. $repetitions - 1)
{
	record(map { mark($_, $repetition) } 0 .. $#roles);
	cross("SELECT zk_lock('/way/lock')",   'lock');
	cross("SELECT zk_unlock('/way/lock')", 'unlock');
	record(0, 0);
}

# The offsets in the library of the functions that all repetitions have in common, and the roles that call them
sub marked()
{
	my $marks = slurp_file($map);
	my %marked;
	pos($marks) = length pack('L2 C2');
	while ($marks =~ /[^\0]/g)
	{
		my ($offset, $marks) = ($-[0], ord $&);
		my @by = grep { my $role = $_; !grep { !($marks & mark($role, $_)) } 0 .. $repetitions - 1 } 0 .. $#roles;
		$marked{$offset} = { map { $roles[$_] => 1 } @by } if @by;
	}
	return \%marked;
}

# { file }{ function }{ role }; the files are those below src/, and server/ of PostgreSQL's inline functions.
sub way_of($marked)
{
	chomp(my $library = $ENV{ZKLOCK_STAGE} . `pg_config --pkglibdir`);
	my ($symbols) = run_command([ 'nm', '--line-numbers', "$library/zklock.so" ]);
	my %way;
	while ($symbols =~ m{^(\w+) [tT] (\w+)\t.*?/((?:src|server)/[\w/-]+\.[ch]):\d+$}mg)
	{
		my ($offset, $function, $source) = (hex $1, $2, $3);
		$way{$source}{$function}{$_} = 1 foreach keys %{ $marked->{$offset} // {} };
	}
	return \%way;
}

my $way = way_of(marked());

sub summary($what, $sources, @roles)
{
	my ($functions, $files) = (0, 0);
	foreach my $source (map { $way->{$_} } @$sources)
	{
		my $n = grep { my $by = $_; grep { $by->{$_} } @roles } values %$source;
		$functions += $n;
		$files++ if $n;
	}
	return sprintf("%-27s %4d functions in %2d files\n", $what, $functions, $files);
}

my @sources = sort keys %$way;
my @own = grep { /^src/ } @sources;
foreach my $source (@sources)
{
	append_to_file("$results/list", "$source\n");
	append_to_file("$results/list", sprintf("  %-36s %s\n", $_, join ', ', sort keys %{ $way->{$source}{$_} }))
	  foreach sort keys %{ $way->{$source} };
}
append_to_file("$results/summary", join '',
	(map { summary($_, \@own, $_) } @roles),
	summary('both', \@own, @roles),
	summary("with PostgreSQL's headers", \@sources, @roles));

ok($way->{'src/sql/lock_funcs.c'}{zk_lock}{session},      'the session was recorded');
ok($way->{'src/zk/zk_library.c'}{zk_library_send}{worker}, 'the worker was recorded');
done_clean($zk, $a);
