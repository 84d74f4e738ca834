# Copyright (c) 2026, zklock contributors
#
# Sessions of three servers ask for locks at random, zklock's and PostgreSQL's own, exclusive and
# shared, with another client in their queues. A model knows who waits for whom: when there is a
# deadlock, one of those in it gives up, and nobody else ever does. Its DETAIL tells a circle of
# waits as the model has them.
#
# ZKLOCK_LOAD_SECONDS says for how long, ZKLOCK_SEED which numbers.

use Zklock::Test;
use Time::HiRes qw(time);
use Zklock::WaitModel;

my $seconds = $ENV{ZKLOCK_LOAD_SECONDS} || 12;
my $seed    = $ENV{ZKLOCK_SEED} || int(time) % 100000;
my ($zk, @servers) = cast('a b c', conf => ["deadlock_timeout = '50ms'"]);
my @sessions = map { my $server = $_; map { $server->session(name => $server->name . $_) } 1 .. 3 } @servers;
my %named    = map { $_->name => $_ } @sessions;
my %process  = map { $_->server->name . ' ' . $_->pid => $_->name } @sessions;
my @paths    = map { "/d/p$_" } 1 .. 4;
my ($model, @story, %busy, %ended, $kazoo_path, $kazoo_id);
srand $seed;

sub told { return "seed $seed\n" . join("\n", @story) . "\n" . $model->describe; }

# What has been asked is known everywhere.
sub settle { $_->settle foreach @servers; return; }

# Takes in what has ended; who is to go on by the model does.
sub catch_up
{
	foreach my $name (grep { !$model->waits($_) } sort keys %busy)
	{
		my $result = delete $ended{$name} || $named{$name}->result;
		delete $busy{$name};
		$result->{ok} or fail("$name is served") or diag told(), $result->{error};
	}
	if ($kazoo_id && !$model->waits('kazoo'))
	{
		$zk->shell->result($kazoo_id);
		undef $kazoo_id;
	}
	settle();
	return;
}

# Something at random that an idle session does not have.
sub choose
{
	my ($session) = @_;
	my $name = $session->name;
	my $key  = int rand 2;
	return ($session->server->name . ".$key", 'exclusive', "SELECT pg_advisory_xact_lock($key)") if rand() < 0.3;
	my $path = $paths[ rand @paths ];
	return ($path, 'shared', "SELECT zk_xact_lock_shared('$path')") if rand() < 0.4;
	return ($path, 'exclusive', "SELECT zk_xact_lock('$path')");
}

sub ask
{
	my ($session) = @_;
	my $name = $session->name;
	my ($what, $mode, $sql) = choose($session);
	return unless $model->may_ask($name, $what, $mode);
	push @story, "$name: $sql";
	$model->ask($name, $what, $mode);
	$busy{$name} = 1;
	$session->query_start($sql);
	if ($model->waits($name) && !$model->deadlocked)
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
		$model->leave('kazoo');
		undef $kazoo_path;
		return;
	}
	$kazoo_path = $paths[ rand @paths ];
	$model->ask('kazoo', $kazoo_path, 'exclusive');
	$kazoo_id = $zk->shell->lock_start('kazoo', $kazoo_path);
	wait_until { grep { /__lock__\d+$/ } $zk->children($kazoo_path) } 'kazoo to queue';
	return;
}

# Is the circle that a session is told one of the model's?
sub is_true_circle
{
	my ($victim, $detail) = @_;
	my ($first, $last);
	my $process = qr/process (\d+)(?: of server "(\w+)")?/i;
	foreach (split /\n/, $detail // '')
	{
		/^$process waits for \w+ on .*?( behind another contender)?; blocked by $process\.$/ or return 0;
		my $who  = $process{ ($2 || $victim->server->name) . " $1" } // '';
		my $whom = $process{ ($5 || $victim->server->name) . " $4" } // '';
		return 0 if defined $last && $last ne $who;
		return 0 unless $3 ? $model->waits_behind($who, $whom) : $model->waits_for($who, $whom);
		$first //= $who;
		$last = $whom;
	}
	return defined $first && $first eq $victim->name && $first eq $last;
}

# As long as there is a deadlock, somebody in it gives up.
sub resolve
{
	my $n = 0;
	while (my @deadlocked = $model->deadlocked)
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
		$model->leave($victim->name);
		push @story, $victim->name . ': gives up';
		$victim->query('BEGIN');
		catch_up();
		$n++;
	}
	return $n;
}

sub commit
{
	my ($session) = @_;
	push @story, $session->name . ': COMMIT';
	$session->query('COMMIT');
	$session->query('BEGIN');
	$model->leave($session->name);
	catch_up();
	return;
}

my ($rounds, $deadlocks, $until) = (0, 0, time + $seconds);
$_->query('BEGIN') foreach @sessions;
$zk->shell->create('/d');
$zk->shell->create($_) foreach @paths;
while (time < $until || $deadlocks < 5)
{
	$model = Zklock::WaitModel->new(bystanders => ['kazoo']);
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
$_->disconnect foreach @sessions;
Zklock::Server->assert_clean($zk, \@servers, @paths);
done_testing();
