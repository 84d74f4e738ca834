# Copyright (c) 2026, zklock contributors
#
# Which locks of other products exclude which of ours: for each peer, each dialect and each mode of ours it
# is found out, with servers and peers that are real, whether one waits for the other, in both directions.
# The outcome is compared with the row of that peer in the table of doc/interoperability.md, cell by cell:
#
#   yes        each waits for the other, and gets the lock when that one releases it
#   together   both hold the lock at once, as readers should
#   no         ours waits for the peer, but the peer does not wait for ours: both held it
#   neither    nobody waits: both held it, whoever came first
#
# A cell is "exclusive / shared". Where exclusive locks exclude each other, sessions of two servers and
# threads of the peer then count to 500 together, at session and transaction level, each by reading, working for a
# while and writing back.

use Zklock::Test;
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Zklock::JavaPeer;

# Hive itself is not in Debian. A Java program does what its source says.
my @peers = (
	{ label => 'Curator `InterProcessMutex`',                     java => 'mutex' },
	{ label => 'Curator `InterProcessMultiLock` of mutexes',      java => 'multi' },
	{ label => 'Curator `InterProcessReadWriteLock`, write lock', java => 'write' },
	{ label => 'Curator `InterProcessReadWriteLock`, read lock',  java => 'read', shared => 1 },
	{ label => 'Curator `InterProcessSemaphoreMutex`',            java => 'semaphore' },
	{ label => 'ZooKeeper recipes `WriteLock`',                   java => 'recipe' },
	{ label => 'Hive `EXCLUSIVE`',                                java => 'hive_exclusive' },
	{ label => 'Hive `SHARED`',                                   java => 'hive_shared', shared => 1 },
	{ label => 'Hive `LOCK TABLE ... EXCLUSIVE`',                 java => 'hive_lock_table' },
	{ label => 'kazoo `Lock`',                                    kazoo => 'exclusive' },
	{ label => 'kazoo `Lock` with `extra_lock_patterns=["lock-", "__READ__"]`',
		kazoo => 'exclusive', patterns => [ 'lock-', '__READ__' ] },
	{ label => 'kazoo `WriteLock`',                               kazoo => 'write' },
	{ label => 'kazoo `ReadLock`',                                kazoo => 'shared', shared => 1 });
my @dialects = qw(curator curator_rw kazoo zookeeper hive);
my %suffix   = (exclusive => '', shared => '_shared');

my ($zk, $a, $b) = cast('a b');
my $sql   = $a->session(name => 'sql');
my $shell = $zk->shell;
my $java  = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);
$shell->create('/m');

my %ours  = map { $_->session_id => 1 } $a, $b;
my $names = 0;
my @paths;

# A path that nobody has used. Hyphens would mean something to ZooKeeper's recipe.
sub new_path(@words)
{
	push @paths, '/m/' . join('_', @words, ++$names);
	return $paths[-1];
}

# ---- the peer, whatever it is

sub peer_start($peer, $path)
{
	my $name = 'p' . ++$names;
	my $id = $peer->{java} ? $java->acquire_start($name, $path, -1, $peer->{java})
	  : $shell->lock_start($name, $path, kind => $peer->{kazoo}, patterns => $peer->{patterns} // []);
	return { who => $peer->{java} ? $java : $shell, id => $id, peer => $peer, name => $name, path => $path };
}

sub peer_ready($wait) { return $wait->{who}->ready($wait->{id}); }

sub peer_got($wait) { return $wait->{who}->result($wait->{id}); }

sub peer_release($wait) { return $wait->{peer}{java} ? $java->release($wait->{name}) : $shell->unlock($wait->{name}); }

# Does the peer wait? Then it watches a node of the path, or asks again and again.
sub peer_waits($wait)
{
	return eval { $java->refusals($wait->{name}) >= 3 } if ($wait->{peer}{java} || '') =~ /^hive/;
	my $path = '';
	foreach my $line (split(/\n/, $zk->four_letter('wchp')))
	{
		$path = $1 if $line =~ m{^(/.*)};
		return 1 if $line =~ /^\t(0x\w+)/ && !$ours{$1} && $path =~ m{^\Q$wait->{path}\E/};
	}
	return 0;
}

sub peer_count_start($peer, $file, $rounds, $path)
{
	return $peer->{java}
	  ? { who => $java, id => $java->counter_start($file, $rounds, $path, 1, $peer->{java}) }
	  : { who => $shell, id => $shell->counter_start($file, $rounds, $path, kind => $peer->{kazoo}, patterns => $peer->{patterns} // []) };
}

# ---- one cell

# The peer holds: do we wait, and get the lock after its release?
sub we_wait($peer, $mode, $path, $what)
{
	my $hold = peer_start($peer, $path);
	ok(peer_got($hold), "$what: the peer holds the lock");
	my $got = $sql->query("SELECT zk_try_lock$suffix{$mode}('$path')") eq 't';
	if (!$got)
	{
		$sql->query_start("SELECT zk_lock$suffix{$mode}('$path')");
		$a->wait_waiting($sql, $path);
		ok($sql->busy, 'SQL waits');
	}
	peer_release($hold);
	is($sql->finish, 't', 'SQL gets the lock after the release') unless $got;
	is($sql->query("SELECT zk_unlock$suffix{$mode}('$path')"), 't', 'and releases it');
	return !$got;
}

# We hold: does the peer wait, and get the lock after our release?
sub peer_respects($peer, $mode, $path, $what)
{
	is($sql->query("SELECT zk_lock$suffix{$mode}('$path')"), 't', "$what: SQL holds the lock");
	my $wait = peer_start($peer, $path);
	wait_until { peer_ready($wait) || peer_waits($wait) } "$what: the peer to get the lock or wait";
	my $got = peer_ready($wait);
	is($a->wait_holder($sql, $path)->{granted}, 't', 'both hold it') if $got;
	is($sql->query("SELECT zk_unlock$suffix{$mode}('$path')"), 't', 'SQL releases it');
	ok(peer_got($wait), $got ? 'the peer had it' : 'then the peer gets it');
	peer_release($wait);
	return !$got;
}

sub cell($peer, $dialect, $mode)
{
	my $what = "$peer->{label}, $dialect, $mode";
	$a->write_dialect($dialect, $sql);
	my $ours   = we_wait($peer, $mode, new_path($dialect, $mode), "$what, peer first");
	my $theirs = peer_respects($peer, $mode, new_path($dialect, $mode), "$what, SQL first");
	return 'together' if !$ours && !$theirs && $mode eq 'shared' && $peer->{shared};
	return $ours && $theirs ? 'yes' : $ours ? 'no' : $theirs ? 'blind' : 'neither';
}

# ---- all count together

sub count_together($peer, $dialect)
{
	my $path = new_path($dialect, 'count');
	my $file = PostgreSQL::Test::Utils::tempdir . "/counter_$names";
	append_to_file($file, "0\n");
	my @sessions = map { ($a->session, $b->session) } 1 .. 2;
	$_->write_dialect($dialect) foreach $a, $b;
	foreach my $i (0 .. $#sessions)
	{
		my $session = $sessions[$i];
		my ($lock, $unlock) = $i < 2 ? ("zk_lock('$path')", "PERFORM zk_unlock('$path')") : ("zk_xact_lock('$path')", 'COMMIT');
		wait_until { $session->query('SHOW zklock.path_dialects') eq "/*=$dialect" } 'names of the dialect';
		$session->query_start("DO \$\$
			DECLARE
				seen bigint;
			BEGIN
				FOR i IN 1 .. 60 LOOP
					PERFORM $lock;
					seen := pg_read_file('$file')::bigint;
					-- Others would read the same meanwhile.
					PERFORM count(*) FROM generate_series(1, 5000);
					EXECUTE format('COPY (SELECT %s) TO %L', seen + 1, '$file');
					$unlock;
				END LOOP;
			END \$\$");
	}
	my @counting = map { peer_count_start($peer, $file, 130, $path) } 1 .. 2;
	is($_->result->{error}, undef, "$peer->{label}, $dialect: a session counts") foreach @sessions;
	ok(defined peer_got($_), 'a thread of the peer counts') foreach @counting;
	chomp(my $count = slurp_file($file));
	is($count, 500, "$peer->{label}, $dialect: two servers and the peer lose no update of 500");
	return;
}

# ---- the table of doc/interoperability.md: label => { dialect => 'exclusive / shared' }

my (@columns, %promised);
foreach my $line (split(/\n/, slurp_file(dirname(__FILE__) . '/../../../doc/interoperability.md')))
{
	my @cells = map { s/^\s+|\s+$|\*\*//gr } split(/\|/, $line =~ s/^\|//r);
	@columns = map { tr/`//dr } @cells if $line =~ /^\| *the other side's lock/;
	@columns = () unless $line =~ /^\|/;
	next if !@columns || $cells[0] =~ /^-+$/;
	@{ $promised{ $cells[0] } }{@columns} = @cells;
}

foreach my $peer (@peers)
{
	subtest "$peer->{label}: it is as doc/interoperability.md says" => sub {
		my %outcome;
		foreach my $dialect (@dialects)
		{
			my @modes = map { cell($peer, $dialect, $_) } qw(exclusive shared);
			$outcome{$dialect} = join(' / ', @modes);
			count_together($peer, $dialect) if $modes[0] eq 'yes' && !$peer->{shared};
		}
		is_deeply(\%outcome, { map { $_ => $promised{ $peer->{label} }{$_} } @dialects }, 'the row of the table');
	};
}

$java->close_session;
# Curator's semaphores have nodes of their own below the path.
my @left = map { my $path = $_; grep { !m{/(?:locks|leases)$} } map { "$path/$_" } $zk->children($path) } @paths;
is("@left", '', 'no node is left');
done_clean($zk, $a, $b);
