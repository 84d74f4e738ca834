# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Run - a whole fault run, as TAP tests

=head1 SYNOPSIS

  Nemesis::Run->new(seconds => 60, seed => 42)->test;

Starts an ensemble of three ZooKeeper servers, three database servers with proxies to each
of them, the register, and the clients of each target; lets the schedule of the seed loose on
them; heals everything; has each client try everything once more; stops, and has the targets
check. NEMESIS_SECONDS, _SEED, _CLIENTS, _FAULTS (of Nemesis::Schedule) and _TARGETS (of Nemesis::Target) in the
environment say something else; no names mean all. NEMESIS_CONF is a line of postgresql.conf for the three database
servers.

The summary is printed as a diagnostic. Each kind of violation makes a test fail.

=cut

package Nemesis::Run;

use v5.36;

use Cwd qw(abs_path);
use FindBin;
use JSON::PP;
use List::Util qw(max sum0);
use Nemesis::Faults;
use Nemesis::History qw(now);
use Nemesis::Schedule;
use Nemesis::Target;
use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Process;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until nap on_failure scaled);
use Zklock::ZooKeeper;

# An isolated ZooKeeper server serves for syncLimit x tickTime = 7 s, longer than a session
# lives that the others do not hear of.
my $tick_time       = 500;
my $sync_limit      = 14;
my $session_timeout = 4;

# After the healing some attempt must end in each of these periods, until all have ended.
my $bound = scaled(20);

sub new($class, %default)
{
	my %set = map { lc s/^NEMESIS_//r => $ENV{$_} } grep { /^NEMESIS_/ && $ENV{$_} ne '' } keys %ENV;
	my $self = bless { clients => 30, conf => '', faults => '', targets => '', %default, %set, trouble => [] }, $class;
	$self->{faults}    = [ split(/[\s,]+/, $self->{faults}) ];
	$self->{faults}    = [ Nemesis::Schedule->names ] unless @{ $self->{faults} };
	$self->{targets}   = [ Nemesis::Target->all(split(/[\s,]+/, $self->{targets})) ];
	$self->{directory} = "$PostgreSQL::Test::Utils::log_path/history";
	mkdir $self->{directory};
	$self->{script} = abs_path(__FILE__) =~ s{/lib/Nemesis/Run\.pm$}{/client.pl}r;
	return $self;
}

sub test($self)
{
	my @schedule = Nemesis::Schedule->plan(
		seed            => $self->{seed},
		seconds         => $self->{seconds},
		session_timeout => $self->session_timeout,
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

sub targets       { return @{ $_[0]{targets} }; }
sub zookeeper     { return $_[0]{zookeeper}; }
sub servers       { return @{ $_[0]{servers} }; }
sub directory     { return $_[0]{directory}; }
sub interventions { return $_[0]{nemesis}->interventions; }
sub _trouble($self, $kind, $text) { push @{ $self->{trouble} }, { kind => $kind, text => $text }; return; }

# A database server that no fault touches
sub register { return $_[0]{register}; }

# Of the others, one of two; and one where there is little to do
sub busy_server($self, $n) { return $self->{servers}[ $n % 2 ]; }
sub quiet_server { return $_[0]{servers}[2]; }

# SQL clients of all targets
sub client_count { return $_[0]{clients}; }

# Seconds
sub session_timeout { return scaled($session_timeout); }

# ---- the cast

sub start($self)
{
	my $zk = $self->{zookeeper} = Zklock::ZooKeeper->ensemble(3,
		links => 1, tickTime => $tick_time, syncLimit => $sync_limit, container_check => 1000);
	my $names = "$self->{directory}/names.so";
	PostgreSQL::Test::Utils::system_or_bail('gcc', '-shared', '-fPIC', '-o', $names, 'test/preload/names.c', '-ldl');
	$ENV{ZKLOCK_PRELOAD} = join(' ', grep { defined } $ENV{ZKLOCK_PRELOAD}, $names);
	foreach my $name (qw(a b c))
	{
		my @proxies = map { Zklock::Proxy->start($_) } $zk->servers;
		my $hosts = "$self->{directory}/hosts_$name";
		push @{ $self->{proxies} }, \@proxies;
		push @{ $self->{names} }, sub (@addresses) {
			append_to_file("$hosts.new", join('', map { "$addresses[$_] zookeeper$_.test\n" } 0 .. $#addresses));
			rename "$hosts.new", $hosts or die "$hosts: $!";
		};
		$self->{names}[-1]->(('127.0.0.1') x @proxies);
		push @{ $self->{servers} }, Zklock::Server->new(
			$name,
			zookeeper   => join(',', map { "zookeeper$_.test:" . $proxies[$_]->port } 0 .. $#proxies),
			environment => { NAMES => $hosts },
			conf        => [
				"zklock.session_timeout = '${session_timeout}s'",
				"zklock.tick_time = '${tick_time}ms'",
				'track_commit_timestamp = on',
				"log_statement = 'none'",
				(map { $_->server_conf } $self->targets),
				$self->{conf} ]);
	}
	$_->safe_psql('postgres', 'CREATE TABLE attempts (id text)') foreach @{ $self->{servers} };

	my $register = $self->{register} = Zklock::Server->new('register',
		preload => 0, extension => 0, conf => [ "log_statement = 'none'" ]);
	$_->prepare($self) foreach $self->targets;

	my $shares = sum0 map { $_->share } $self->targets;
	foreach my $target ($self->targets)
	{
		my $count = max 1, int($self->{clients} * $target->share / $shares + 0.5);
		$self->_start_client($target, %$_) foreach $target->clients($self, $count);
	}
	foreach my $target ($self->targets)
	{
		wait_until { $target->is_under_way($self->_history($target)) } $target->name . ' to be under way';
	}
	wait_until { -s $_ } $_ foreach @{ $self->{services} };

	# A crash that was not ours
	$self->{marks} = { map { $_->name => $_->log_mark } @{ $self->{servers} } };
	return;
}

sub _dsn($self, $server) { return $server->connstr('postgres') =~ s/'//gr =~ s/ /;/gr; }

# The configuration of a client, as targets have it
sub sql_client($self, $server, $name)
{
	return (name => $server->name . $name, class => 'SqlClient', server => $server->name, dsn => $self->_dsn($server));
}

sub _start_client($self, $target, %config)
{
	my $name   = $config{name};
	my $client = {
		name    => $name,
		target  => $target,
		history => "$self->{directory}/$name.jsonl" };
	%config = (
		%config,
		target   => $target->name,
		register => $self->_dsn($self->{register}),
		history  => $client->{history},
		seed     => $self->{seed} + 1000 * @{ $self->{cast} || [] });
	$client->{process} = Zklock::Process->new(
		name => $name,
		log  => "$PostgreSQL::Test::Utils::log_path/nemesis_$name.log",
		argv => [ $^X, $self->{script}, JSON::PP->new->canonical->encode(\%config) ]);
	append_to_file($client->{history}, '');
	push @{ $self->{cast} }, $client;
	push @{ $self->{services} }, $config{pid_file} if $config{pid_file};
	return;
}

# What the clients of a target have done so far
sub _history($self, $target)
{
	return map { Nemesis::History->read($_->{history}) } grep { $_->{target} == $target } @{ $self->{cast} };
}

# ---- the play

sub disturb($self, @schedule)
{
	my $faults = $self->{nemesis} = Nemesis::Faults->new(
		zookeeper => $self->{zookeeper},
		servers   => $self->{servers},
		proxies   => $self->{proxies},
		names     => $self->{names},
		curators  => $self->{services} || [],
		paths     => [ map { $_->paths } $self->targets ],
		users     => [ grep { defined } map { $_->users } $self->targets ],
		complaint => sub ($text) { $self->_complain($text) });
	my $start = now;
	# If all stands still, more faults will not tell more.
	while (now < $start + $self->{seconds} && $self->_goes_on)
	{
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

# A fault that could not be done since a server was away is none of ours; one that we do not know how to do is.
sub _complain($self, $text)
{
	note "could not be done: $text";
	$self->_trouble('fault failed', $text) if $text =~ /ERROR:  42|arguments for subroutine|Can't locate/;
	return;
}

sub heal($self)
{
	my $start = now;
	eval { $self->{nemesis}->heal; 1 } or $self->_trouble('no recovery', $@);
	note sprintf('all is up again after %.1f s', now - $start);
	return;
}

# Has any attempt ended within the bound?
sub _goes_on($self)
{
	my $size = sum0 map { -s $_->{history} } @{ $self->{cast} };
	@$self{qw(progress size)} = (now, $size) if $size > ($self->{size} // 0);
	return now <= $self->{progress} + $bound;
}

# Everybody gets everything once more.
sub finish_clients($self)
{
	my $start = $self->{progress} = now;
	my @cast = @{ $self->{cast} };
	my @left = @cast;
	$_->{process}->signal('USR1') foreach @cast;
	while (@left = grep { $_->{process}->running } @left)
	{
		last unless $self->_goes_on;
		nap(0.1);
	}
	if (@left)
	{
		$self->_trouble('stuck', "$_->{name} does not get what it waits for") foreach @left;
		$self->{state} = join('', map { $_->describe($self) } $self->targets);
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

# Of the clients, and of processes that died of something else than a fault
sub look_for_leftovers($self)
{
	# Whoever is stuck has been killed.
	local $ENV{ZKLOCK_CLEAN_TIMEOUT} = 5 if $self->{state};
	Zklock::Server->assert_clean($self->{zookeeper}, $self->{servers}, map { $_->emptied($self) } $self->targets);
	foreach my $server (@{ $self->{servers} })
	{
		my $log = $server->log_since($self->{marks}{ $server->name });
		$self->_trouble('crash', $server->name . ": $1")
		  while $log =~ /((?:PANIC|TRAP):.*|terminated by signal (?!9:).*)/g;
		$self->_trouble('worker failed', $server->name . ": $1")
		  while $log =~ /zklock worker .*?((?:ERROR|FATAL): .*)/g;
	}
	# Then no other verdict is about zklock.
	foreach my $server ($self->{zookeeper}->servers)
	{
		$self->_trouble('ensemble inconsistent', $server->name . ": $1")
		  if slurp_file($server->log_file) =~ /(DataTree - Unexpected extra paths under session.*)/;
	}
	return;
}

# ---- the judgement

sub judge($self)
{
	my @verdicts   = map { $_->check($self, $self->_history($_)) } $self->targets;
	my @violations = ((map { @{ $_->{violations} } } @verdicts), @{ $self->{trouble} });
	$self->_print((map { @{ $_->{summary} } } @verdicts), [ 'violations', scalar @violations ]);

	foreach my $activity (map { $_->{activity} } @verdicts)
	{
		my ($number, $minimum, $description) = @$activity;
		cmp_ok($number, '>', $minimum, $description);
	}
	my %found;
	push @{ $found{ $_->{kind} } }, $_->{text} foreach @violations;
	foreach my $kind (
		(map { $_->kinds } $self->targets),
		'unexpected error', 'false refusal', 'lost commit',
		'no recovery', 'stuck', 'fault failed', 'client failed', 'crash', 'worker failed',
		'ensemble inconsistent')
	{
		my @texts = @{ delete $found{$kind} || [] };
		ok(!@texts, "no violation: $kind") or diag join("\n", @texts > 10 ? @texts[0 .. 9] : @texts);
	}
	fail("no violation: $_") foreach sort keys %found;
	diag $self->{state} if $self->{state};
	return;
}

sub _print($self, @rest)
{
	my %faults = %{ $self->{nemesis}->counts };
	my @lines  = (
		[ 'seed', $self->{seed} ],
		[ 'seconds', $self->{seconds} ],
		[ 'faults injected', sum0 values %faults ],
		(map { [ "  $_", $faults{$_} ] } sort keys %faults),
		[ '  (nobody there to hit)', $self->{nemesis}->misses ],
		@rest);
	diag join("\n", '', map { sprintf('%-32s %s', @$_) } @lines);
	return;
}

1;
