# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Nemesis::Run - a whole fault run, as TAP tests

=head1 SYNOPSIS

  Nemesis::Run->new(seconds => 60, seed => 42, clients => 30, faults => [])->test;
  Nemesis::Run->from_environment(seconds => 60)->test;

Starts an ensemble of three ZooKeeper servers, three database servers with proxies to each
of them, the register, and the clients; lets the schedule of the seed loose on them; heals
everything; has each client take each lock once more; stops, and checks. C<faults> are
names of Nemesis::Schedule; none means all.

The summary is printed as a diagnostic. Each kind of violation makes a test fail.

=cut

package Nemesis::Run;

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use JSON::PP;
use List::Util qw(max sum0);
use Nemesis::Checker;
use Nemesis::Faults;
use Nemesis::History qw(now);
use Nemesis::Register;
use Nemesis::Schedule;
use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Process;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until nap on_failure);
use Zklock::ZooKeeper;

# An isolated ZooKeeper server serves for syncLimit x tickTime = 7 s, longer than a session
# lives that the others do not hear of.
my $tick_time       = 500;
my $sync_limit      = 14;
my $session_timeout = 4;

# After the healing some attempt must end in each of these periods, until all have ended.
my $bound = 20;

my @quick = map { "/nemesis/quick$_" } 1 .. 4;
my @slow  = map { "/nemesis/slow$_" } 1 .. 3;

sub new
{
	my ($class, %arg) = @_;
	my $self = bless { %arg, trouble => [] }, $class;
	$self->{faults}    = [ Nemesis::Schedule->names ] unless @{ $self->{faults} || [] };
	$self->{directory} = "$PostgreSQL::Test::Utils::log_path/history";
	mkdir $self->{directory};
	$self->{scripts}   = abs_path(__FILE__) =~ s{/lib/Nemesis/Run\.pm$}{}r;
	return $self;
}

# NEMESIS_SECONDS, NEMESIS_SEED, NEMESIS_FAULTS and NEMESIS_CLIENTS, if set
sub from_environment
{
	my ($class, %default) = @_;
	my %set = map { lc s/^NEMESIS_//r => $ENV{$_} } grep { /^NEMESIS_/ && $ENV{$_} ne '' } keys %ENV;
	my %arg = (seed => int(rand(1_000_000)), clients => 30, %default, %set);
	$arg{faults} = [ split /[\s,]+/, $arg{faults} || '' ];
	return $class->new(%arg);
}

sub test
{
	my ($self) = @_;
	my @schedule = Nemesis::Schedule->plan(
		seed            => $self->{seed},
		seconds         => $self->{seconds},
		session_timeout => $session_timeout,
		faults          => $self->{faults});
	note "seed $self->{seed}, $self->{seconds} s, " . @schedule . ' faults';
	$self->start;
	$self->disturb(@schedule);
	$self->heal;
	$self->finish_clients;
	$self->look_for_leftovers;
	$self->judge;
	return;
}

sub _trouble
{
	my ($self, $kind, $text) = @_;
	push @{ $self->{trouble} }, { kind => $kind, text => $text };
	return;
}

# ---- the cast

sub start
{
	my ($self) = @_;
	my $zk = $self->{zookeeper} = Zklock::ZooKeeper->ensemble(3,
		links => 1, tickTime => $tick_time, syncLimit => $sync_limit,
		request_log => 0, container_check => 1000);
	foreach my $name (qw(a b c))
	{
		my @proxies = map { Zklock::Proxy->start($_) } $zk->servers;
		push @{ $self->{proxies} }, \@proxies;
		push @{ $self->{servers} }, Zklock::Server->new(
			$name,
			zookeeper => join(',', map { $_->connect_string } @proxies),
			conf      => [
				"zklock.session_timeout = '${session_timeout}s'",
				"zklock.tick_time = '${tick_time}ms'",
				'track_commit_timestamp = on',
				"log_statement = 'none'" ]);
	}
	$_->safe_psql('postgres', 'CREATE TABLE attempts (id text)') foreach @{ $self->{servers} };

	my $register = $self->{register} = Zklock::Server->new('register',
		preload => 0, extension => 0, conf => [ "log_statement = 'none'" ]);
	Nemesis::Register->create($register, @quick, @slow);

	# Two busy servers, and a quiet one with a single client: a connection with writes on
	# their way shows soon that the ensemble is away, one where a lock is held does not.
	foreach my $n (1 .. $self->{clients})
	{
		my $server = $self->{servers}[ $n == 1 ? 2 : $n % 2 ];
		$self->_start_client('sql', $server->name . $n,
			server => $server->name,
			dsn    => $self->_dsn($server),
			keeps  => $slow[ $n - 1 ]);
	}
	foreach my $n (1 .. 2)
	{
		my $pid_file = "$self->{directory}/curator$n.pid";
		push @{ $self->{curators} }, $pid_file;
		$self->_start_client('curator', "curator$n",
			hosts           => $zk->connect_string,
			session_timeout => 1000 * $session_timeout,
			pid_file        => $pid_file);
	}
	my $histories = sub { return map { Nemesis::History->read($_->{history}) } @{ $self->{cast} }; };
	wait_until { grep { defined $_->{granted} } $histories->() } 'a first lock to be taken';
	wait_until { -s $_ } $_ foreach @{ $self->{curators} };

	# A crash that was not ours
	$self->{marks} = { map { $_->name => $_->log_mark } @{ $self->{servers} } };
	return;
}

sub _dsn { my ($self, $server) = @_; return $server->connstr('postgres') =~ s/'//gr =~ s/ /;/gr; }

sub _start_client
{
	my ($self, $kind, $name, %config) = @_;
	my $client = {
		name    => $name,
		history => "$self->{directory}/$name.jsonl" };
	%config = (
		%config,
		name     => $name,
		register => $self->_dsn($self->{register}),
		history  => $client->{history},
		seed     => $self->{seed} + 1000 * @{ $self->{cast} || [] },
		quick    => \@quick,
		slow     => \@slow);
	$client->{process} = Zklock::Process->new(
		name => $name,
		log  => "$PostgreSQL::Test::Utils::log_path/nemesis_$name.log",
		argv => [ $^X, "$self->{scripts}/${kind}_client.pl", JSON::PP->new->canonical->encode(\%config) ]);
	append_to_file($client->{history}, '');
	push @{ $self->{cast} }, $client;
	return;
}

# ---- the play

sub disturb
{
	my ($self, @schedule) = @_;
	my $faults = $self->{nemesis} = Nemesis::Faults->new(
		zookeeper => $self->{zookeeper},
		servers   => $self->{servers},
		proxies   => $self->{proxies},
		curators  => $self->{curators},
		paths     => [ @quick, @slow ],
		complaint => sub { note "could not be done: $_[0]" });
	my $start = now;
	my ($progress, $size) = (now, 0);
	while (now < $start + $self->{seconds})
	{
		# If all stands still, more faults will not tell more.
		my $now = $self->_progress;
		($progress, $size) = (now, $now) if $now > $size;
		last if now > $progress + $bound;
		if (@schedule && now >= $start + $schedule[0]{at})
		{
			my $event = shift @schedule;
			note(Nemesis::Schedule->describe($event));
			$faults->begin($event);
		}
		$faults->turn;
		nap(0.02);
	}
	return;
}

sub heal
{
	my ($self) = @_;
	my $start = now;
	eval { $self->{nemesis}->heal; 1 } or $self->_trouble('no recovery', $@);
	note sprintf('all is up again after %.1f s', now - $start);
	return;
}

# Grows with each attempt that has ended.
sub _progress { my ($self) = @_; return sum0 map { -s $_->{history} } @{ $self->{cast} }; }

# Everybody gets every lock once more.
sub finish_clients
{
	my ($self) = @_;
	my ($start, $progress, $size) = (now, now, 0);
	my @cast = @{ $self->{cast} };
	my @left = @cast;
	$_->{process}->signal('USR1') foreach @cast;
	while (@left = grep { $_->{process}->running } @left)
	{
		my $now = $self->_progress;
		($progress, $size) = (now, $now) if $now > $size;
		last if now > $progress + $bound;
		nap(0.1);
	}
	if (@left)
	{
		$self->_trouble('stuck', "$_->{name} does not get what it waits for") foreach @left;
		$self->{state} = join('', map { $_->describe_locks } @{ $self->{servers} })
		  . join('', map { "$_: @{[ $self->{zookeeper}->children($_) ]}\n" } @quick, @slow);
		$_->{process}->kill9 foreach @left;
	}
	foreach my $client (@cast)
	{
		my $status = $client->{process}->status_text;
		$self->_trouble('client failed', "$client->{name}: $status, see its log")
		  unless $status eq 'exit code 0' || grep { $_ == $client } @left;
	}
	note sprintf('the clients are done after %.1f s', now - $start);
	return;
}

sub look_for_leftovers
{
	my ($self) = @_;
	my @left;
	eval {
		wait_until
		{
			@left = ();
			foreach my $server (@{ $self->{servers} })
			{
				push @left, map { $server->name . ": entry $_->{path} $_->{state} of $_->{pid}" } $server->locks;
			}
			foreach my $path (@quick, @slow)
			{
				push @left, map { "node $path/$_" } $self->{zookeeper}->children($path);
			}
			my $watches = $self->{zookeeper}->watch_count;
			push @left, "$watches watches" if $watches;
			!@left;
		}
		'nothing to be left', $self->{state} ? 5 : $bound;
	};
	$self->_trouble('leftover', $_) foreach @left;
	$self->{leftovers} = @left;
	foreach my $server (@{ $self->{servers} })
	{
		my $log = $server->log_since($self->{marks}{ $server->name });
		$self->_trouble('crash', $server->name . ": $1")
		  while $log =~ /((?:PANIC|TRAP):.*|terminated by signal (?!9:).*)/g;
		$self->_trouble('worker failed', $server->name . ": $1")
		  while $log =~ /zklock worker .*?((?:ERROR|FATAL): .*)/g;
	}
	return;
}

# ---- the judgement

# When each transaction committed, by the servers' own record.
sub _settle
{
	my ($self, @attempts) = @_;
	my %committed;
	foreach my $server (@{ $self->{servers} })
	{
		my $rows = $server->value(
			'SELECT id, extract(epoch FROM pg_xact_commit_timestamp(xmin)) FROM attempts');
		$committed{$1} = $2 while $rows =~ /^(.*)\|(.*)$/mg;
	}
	foreach my $attempt (grep { $_->{kind} eq 'sql' } @attempts)
	{
		my $at = delete $committed{ $attempt->{id} };
		if (defined $at)
		{
			$attempt->{commit_at} = $at - $attempt->{clock};
			$self->_trouble('false refusal', "$attempt->{id} was told '$attempt->{outcome}', but has committed")
			  unless $attempt->{outcome} =~ /^(?:committed|unknown)$/;
			$attempt->{outcome} = 'committed';
		}
		elsif ($attempt->{outcome} eq 'committed')
		{
			$self->_trouble('lost commit', "$attempt->{id} was told that it had committed");
		}
		elsif ($attempt->{outcome} eq 'unknown')
		{
			$attempt->{outcome} = 'aborted';
		}
	}
	return;
}

sub judge
{
	my ($self) = @_;
	my @attempts = map { Nemesis::History->read($_->{history}) } @{ $self->{cast} };
	$self->_settle(@attempts);
	my $verdict = Nemesis::Checker->check(
		attempts        => \@attempts,
		writes          => [ Nemesis::Register->writes($self->{register}) ],
		interventions   => $self->{nemesis}->interventions,
		session_timeout => $session_timeout);
	my @violations = (@{ $verdict->{violations} }, @{ $self->{trouble} });
	$self->_print($verdict, @violations);

	cmp_ok($verdict->{counts}{acquisitions}, '>', $self->{clients}, 'locks were taken');
	my %found;
	push @{ $found{ $_->{kind} } }, $_->{text} foreach @violations;
	foreach my $kind ('unguarded commit', 'exclusion', 'token order', 'fenced register', 'lost update',
		'unexpected error', 'false refusal', 'lost commit', 'no recovery', 'stuck', 'client failed',
		'leftover', 'crash', 'worker failed')
	{
		my @texts = @{ delete $found{$kind} || [] };
		ok(!@texts, "no violation: $kind") or diag join("\n", @texts > 10 ? @texts[0 .. 9] : @texts);
	}
	diag $self->{state} if $self->{state};
	return;
}

sub _print
{
	my ($self, $verdict, @violations) = @_;
	my %count   = %{ $verdict->{counts} };
	my %faults  = %{ $self->{nemesis}->counts };
	my $losses  = sum0 map { $count{$_} || 0 } qw(refused lost);
	my @lines = (
		[ 'seed', $self->{seed} ],
		[ 'seconds', $self->{seconds} ],
		[ 'faults injected', sum0 values %faults ],
		(map { [ "  $_", $faults{$_} ] } sort keys %faults),
		[ '  (nobody there to hit)', $self->{nemesis}->misses ],
		[ 'acquisitions', $count{acquisitions} || 0 ],
		[ '  committed', $count{committed} || 0 ],
		[ '  aborted for other reasons', $count{aborted} || 0 ],
		[ 'losses noticed', $losses ],
		[ '  guarded commits refused', $count{refused} || 0 ],
		[ 'not granted in time, or failed', sum0 map { $count{$_} || 0 } qw(timeout failed) ],
		[ 'believed holds that overlapped', $count{overlaps} || 0 ],
		[ '  by intervention', $count{overlaps_by_intervention} || 0 ],
		[ '  longest detection latency', sprintf('%.3f s', $verdict->{latency}) ],
		[ 'writes accepted: unfenced', $count{unfenced_writes} || 0 ],
		[ '  of which lost an update', $count{lost_unfenced_updates} || 0 ],
		[ 'writes accepted: fenced', $count{fenced_writes} || 0 ],
		[ 'leftovers', $self->{leftovers} ],
		[ 'violations', scalar @violations ]);
	diag join("\n", '', map { sprintf('%-32s %s', @$_) } @lines);
	return;
}

1;
