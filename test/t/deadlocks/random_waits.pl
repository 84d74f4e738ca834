# Copyright (c) 2026, zklock contributors
#
# Sessions of three servers ask for locks at random, zklock's and PostgreSQL's own, exclusive and
# shared, with another client in their queues. A model knows who waits for whom: when there is a
# deadlock, one of those in it gives up, and nobody else ever does. Its DETAIL tells a circle of
# waits as the model has them.
#
# ZKLOCK_LOAD_SECONDS says for how long, ZKLOCK_SEED which numbers.

use Zklock::Test;
use List::Util qw(first uniq);
use Time::HiRes qw(time);

my $seconds = $ENV{ZKLOCK_LOAD_SECONDS} || 12;
my $seed    = $ENV{ZKLOCK_SEED} || int(time) % 100000;
my ($zk, @servers) = cast('a b c', conf => ["deadlock_timeout = '50ms'"], a => { faults => 'slow-random' });
my @sessions = map { my $server = $_; map { $server->session(name => $server->name . $_) } 1 .. 3 } @servers;
my %named    = map { $_->name => $_ } @sessions;
my %process  = map { $_->server->name . ' ' . $_->pid => $_->name } @sessions;
my @paths    = map { "/d/p$_" } 1 .. 4;
my (%queues, @story, %busy, %ended, $kazoo_path, $kazoo_id);
srand $seed;

# The model: in each queue all is served in the order in which it was asked for, as zklock does, and PostgreSQL
# if all locks are exclusive and nobody asks twice. Who asks waits for all others that asked before and
# conflict, whether these hold or wait. One may ask for the exclusive lock while it has the shared one.
sub entries($name) { return grep { $_->{name} eq $name } map { @$_ } values %queues; }

sub in_the_way($entry)
{
	my @queue = @{ $queues{ $entry->{what} } };
	my $place = first { $queue[$_] == $entry } 0 .. $#queue;
	return uniq map { $_->{name} } grep { $_->{name} ne $entry->{name} && "$_->{mode} $entry->{mode}" =~ /exclusive/ } @queue[ 0 .. $place - 1 ];
}

sub blockers($name) { return uniq map { in_the_way($_) } entries($name); }
sub has_to_wait($name) { return !!(() = blockers($name)); }
sub waits_for($name, $other) { return !!grep { $_ eq $other } blockers($name); }

# The other client waits and blocks like a session, but asks for nothing more while it holds something.
sub waits_behind_kazoo($name, $other) { return waits_for($name, 'kazoo') && waits_for('kazoo', $other); }

# Does one wait for itself, in the end?
sub waits_for_itself($name)
{
	my @next = blockers($name);
	my %seen;
	while (defined(my $at = shift @next))
	{
		return 1 if $at eq $name;
		push @next, blockers($at) unless $seen{$at}++;
	}
	return 0;
}

sub deadlocked { return grep { waits_for_itself($_) } sort keys %named; }

# It asks, unless it has asked for that, or more, before.
sub asks($name, $what, $mode)
{
	return 0 if grep { $_->{what} eq $what && ($_->{mode} eq 'exclusive' || $_->{mode} eq $mode) } entries($name);
	push @{ $queues{$what} }, { name => $name, what => $what, mode => $mode };
	return 1;
}

# It gives back all it has, and asks for nothing more.
sub leaves($name) { @$_ = grep { $_->{name} ne $name } @$_ foreach values %queues; return; }

sub told
{
	my @queues = map { my $what = $_; "$what: " . join ', ', map { "$_->{name} $_->{mode}" . (in_the_way($_) ? ' waits' : '') } @{ $queues{$what} } }
	  sort keys %queues;
	return join "\n", "seed $seed", @story, @queues;
}

# What has been asked is known everywhere.
sub settle { $_->settle foreach @servers; return; }

# Takes in what has ended; who is to go on by the model does.
sub catch_up
{
	foreach my $name (grep { !has_to_wait($_) } sort keys %busy)
	{
		my $result = delete $ended{$name} || $named{$name}->result;
		delete $busy{$name};
		$result->{ok} or fail("$name is served") or diag told(), $result->{error};
	}
	if ($kazoo_id && !has_to_wait('kazoo'))
	{
		$zk->shell->result($kazoo_id);
		undef $kazoo_id;
	}
	settle();
	return;
}

# Something at random that an idle session does not have.
sub choose($session)
{
	my $name = $session->name;
	my $key  = int rand 2;
	return ($session->server->name . ".$key", 'exclusive', "SELECT pg_advisory_xact_lock($key)") if rand() < 0.3;
	my $path = $paths[ rand @paths ];
	return ($path, 'shared', "SELECT zk_xact_lock_shared('$path')") if rand() < 0.4;
	return ($path, 'exclusive', "SELECT zk_xact_lock('$path')");
}

sub ask($session)
{
	my $name = $session->name;
	my ($what, $mode, $sql) = choose($session);
	return unless asks($name, $what, $mode);
	push @story, "$name: $sql";
	$busy{$name} = 1;
	$session->query_start($sql);
	if (has_to_wait($name) && !deadlocked())
	{
		$session->server->wait_value("SELECT wait_event_type IN ('Lock', 'Extension') FROM pg_stat_activity WHERE pid = " . $session->pid, 't');
		$session->server->wait_queued($session, $what) if $what =~ m{^/};
	}
	return;
}

# The other client asks for a lock, or gives it back.
sub kazoo
{
	return if $kazoo_id;
	push @story, 'kazoo: ' . ($kazoo_path ? 'unlock' : 'lock');
	if ($kazoo_path)
	{
		$zk->shell->unlock('kazoo');
		leaves('kazoo');
		return undef $kazoo_path;
	}
	$kazoo_path = $paths[ rand @paths ];
	asks('kazoo', $kazoo_path, 'exclusive');
	$kazoo_id = $zk->shell->lock_start('kazoo', $kazoo_path);
	wait_until { grep { /__lock__\d+$/ } $zk->children($kazoo_path) } 'kazoo to queue';
	return;
}

# Is the circle that a session is told one of the model's?
sub is_true_circle($victim, $detail)
{
	my ($first, $last);
	my $process = qr/process (\d+)(?: of server "(\w+)")?/i;
	foreach (split /\n/, $detail // '')
	{
		/^$process waits for \w+ on .*?( behind another contender)?; blocked by $process\.$/ or return 0;
		my $who  = $process{ ($2 || $victim->server->name) . " $1" } // '';
		my $whom = $process{ ($5 || $victim->server->name) . " $4" } // '';
		return 0 if defined $last && $last ne $who;
		return 0 unless $3 ? waits_behind_kazoo($who, $whom) : waits_for($who, $whom);
		$first //= $who;
		$last = $whom;
	}
	return defined $first && $first eq $victim->name && $first eq $last;
}

# As long as there is a deadlock, somebody in it gives up.
sub resolve
{
	my $n = 0;
	while (my @deadlocked = deadlocked())
	{
		my @failed;
		wait_until
		{
			$ended{$_} = $named{$_}->result foreach grep { !$ended{$_} && !$named{$_}->busy } keys %busy;
			@failed = grep { !$ended{$_}{ok} } keys %ended;
		}
		'a session to give up; ' . told();
		my $victim = $named{ $failed[0] };
		my $result = delete $ended{ $failed[0] };
		delete $busy{ $failed[0] };
		my $good = is($result->{sqlstate}, '40P01', $victim->name . ' is told of a deadlock');
		$good &= ok((grep { $_ eq $victim->name } @deadlocked), "it is one of @deadlocked");
		$good &= ok(is_true_circle($victim, $result->{detail}), 'the circle is true');

		# PostgreSQL's own check looks in each session by itself.
		$good &= is(scalar @failed, 1, 'nobody else gives up') if $result->{detail} =~ /ZooKeeper/;
		$good or diag told(), $result->{error};
		$victim->query('ROLLBACK');
		leaves($victim->name);
		push @story, $victim->name . ': gives up';
		$victim->query('BEGIN');
		catch_up();
		$n++;
	}
	return $n;
}

sub commit($session)
{
	push @story, $session->name . ': COMMIT';
	$session->query('COMMIT');
	$session->query('BEGIN');
	leaves($session->name);
	catch_up();
	return;
}

my ($rounds, $deadlocks, $until) = (0, 0, time + $seconds);
$_->query('BEGIN') foreach @sessions;
$zk->shell->create('/d');
$zk->shell->create($_) foreach @paths;
while (time < $until || $deadlocks < 5)
{
	%queues = ();
	@story = ('round ' . ++$rounds);
	foreach (1 .. 30)
	{
		my @idle = grep { !$busy{ $_->name } } @sessions or last;
		my $what = rand;
		$what < 0.1 ? kazoo() : $what < 0.2 ? commit($idle[ rand @idle ]) : ask($idle[ rand @idle ]);
		$deadlocks += resolve();
		catch_up();
	}
	while (%busy || $kazoo_path)
	{
		commit($_) foreach grep { !$busy{ $_->name } } @sessions;
		kazoo() if $kazoo_path;
		catch_up();
	}
	commit($_) foreach @sessions;
}
note "seed $seed: $rounds rounds, $deadlocks deadlocks";
done_clean($zk, @servers);
