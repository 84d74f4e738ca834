# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Contestants - who locks and unlocks, in the cases that all of them have

=head1 SYNOPSIS

  my @contestants = (zklock($stage, %job), curator($stage, %job), ...);
  my @queues = (zklock_queue($stage, %queue), curator_queue($stage, %queue));

A contestant is

  { name => 'zklock', pids => [ ... ], run => sub ($seconds) { ... return \%outcome } }

C<prepare> and C<finish>, if there are such, run before and after it, unmeasured. C<pids> are the processes
that speak to ZooKeeper, whose processor time counts. The outcome has
C<durations>, a list of microseconds, and C<acquisitions>, those included that are not
in that list; C<seconds>, if it is to be counted by others than were asked for; and C<figures>, that
take the place of what is calculated. Who cannot take part is missing; zklock comes twice if it keeps nodes for a
moment, as C<zklock> and as C<zklock, keep_idle = 0>. A job is a closed loop, and has

  sessions   how many, default 1
  servers    on how many database servers, or clients with a ZooKeeper session each; default 1
  path       '/bench/p%d', each session another path; or '/bench/one'; load.h has what else there is. Each
             contestant has paths of its own, so that nothing that one leaves behind is in another's way
  think      microseconds between lock and unlock, default 0

C<guarded(...)> returns all contestants of a job in which programs, one for each database server, run transactions
that a lock guards: in Java, but for etcd and Redis. In its path %s is the number of the server.

A queue stands before the measurement begins: the first session holds the lock, the others wait. When it begins
the first releases, and so does each that gets the lock, at once. The durations are those between one grant and
the next. It has

  path        the lock
  waiting     how many wait
  servers     1, or 2: they belong to one and the other in turn, so that each hand-over is one
              between servers
  foreigners  how many nodes of other clients stand behind them
  counted     of so many hand-overs, from the first, the durations count; default: all

=cut

package Bench::Contestants;

use v5.36;

use Exporter 'import';
use List::Util qw(sum0);
use Zklock::Util qw(wait_until);

our @EXPORT_OK = qw(zklock advisory nothing dblink curator kazoo etcd redis c_create c_pairs c_textbook sql guarded
  zklock_queue curator_queue);

my @servers = qw(a b);
my @lock    = ('SELECT zk_lock($1::text)', 'SELECT zk_unlock($1::text)');

# Sessions of a job, shared out
sub _shares($count, $servers) { return map { int(($count + $servers - $_) / $servers) } 1 .. $servers; }

# For a contestant. What is in ZooKeeper, and chosen at random, is there before: else each path would be made as it
# comes first.
sub _own_path($stage, $name, $path)
{
	my $directory = $name =~ s/\W+/-/gr;
	my $own       = $path =~ s{(?=[^/]*$)}{$directory/}r;
	$stage->c->call('prepare', path => $own =~ s/%r/%d/r, count => 10_000) if $own =~ /%r/ && $name =~ /^(?:zklock|Curator|kazoo)/;
	return $own;
}

# Another build of zklock, by its stage directory, and what it is called
my ($base, $before) = ($ENV{BENCH_BASE}, 'zklock, before');

# zklock with room for the nodes of all paths at random
my $kept = 'zklock, keep_idle = 10s';

# The server has locked all paths twice, by hundreds, and so keeps their nodes.
sub _keep_all($stage, $server, $path)
{
	my $paths = "ARRAY(SELECT '" . $path =~ s/%r//r . "' || n FROM generate_series(100 * i, 100 * i + 99) n)";
	$stage->server($server)->value("DO \$\$ BEGIN
		FOR i IN 0 .. 99 LOOP
			FOR twice IN 1 .. 2 LOOP PERFORM zk_lock($paths), zk_unlock($paths); END LOOP;
		END LOOP; END \$\$");
	return;
}

# What else a job of that contestant is: the servers that keep nodes, and where
sub _keeping($stage, $name, $path, @servers) { return $name eq $kept ? (keep => [ map { [ $_, _own_path($stage, $name, $path) ] } @servers ]) : (); }

# In a closed loop: "requests" are those to load generators
sub _loop($name, $stage, $pids, $requests, %job)
{
	# A queue takes its time to form: as long as that lasts, nothing is counted.
	my $lead = 0.002 * ($job{sessions} || 1);
	return {
		name    => $name,
		pids    => $pids,
		prepare => sub { _keep_all($stage, @$_) foreach @{ $job{keep} || [] } },
		run     => sub ($seconds) {
			my @answers   = $stage->together($lead, $seconds, $requests->());
			my @durations = map { split / /, $_->{durations} } @answers;
			return { durations => \@durations, acquisitions => @durations + sum0(map { $_->{others} } @answers) };
		} };
}

# Sessions of PostgreSQL: "pids" of workers, "groups" as Bench::Stage's sessions returns them
sub sql($name, $stage, $pids, $groups, $acquire, $release, %job)
{
	my $path = _own_path($stage, $name, $job{path});
	return _loop($name, $stage, $pids, sub {
		return [ $stage->sql, 'run',
			groups  => join(',', $groups->()),
			acquire => $acquire,
			release => $release,
			path    => $path,
			think   => $job{think} || 0 ];
	}, %job);
}

# Who locks with zklock: its name as a contestant, and its servers' names
sub _zklocks($stage, $count, $path)
{
	my @keep = @servers[ 0 .. $count - 1 ];
	$stage->server($_) foreach @keep;
	my $has  = sub ($setting) { return $stage->server('a')->value("SELECT count(*) FROM pg_settings WHERE name = 'zklock.$setting'") };
	my %conf = ('zklock' => [], 'zklock, keep_idle = 0' => ['zklock.keep_idle = 0'],
		$kept => [ 'zklock.keep_idle = 10s', 'zklock.max_kept_locks = 16384' ]);
	my @names = ('zklock', $base ? $before : (), $has->('keep_idle') ? 'zklock, keep_idle = 0' : (),
		$path =~ /%r/ && $has->('max_kept_locks') ? $kept : ());
	return map {
		my $name = $_;
		my @its  = map { $_ . ($name =~ /, (?:keep_idle = )?(\w+)/ ? $1 : '') } @keep;
		$stage->server($_, conf => $conf{$name} // [], $name eq $before ? (stage => $base) : ()) foreach @its;
		[ $name, @its ]
	} @names;
}

sub zklock($stage, %job)
{
	my @share = _shares($job{sessions} || 1, $job{servers} || 1);
	return map {
		my ($name, @used) = @$_;
		sql($name, $stage, [ map { $stage->server($_)->worker_pid } @used ],
			sub { map { $stage->sessions($used[$_], $share[$_]) } 0 .. $#share }, @lock,
			%job, _keeping($stage, $name, $job{path}, @used))
	} _zklocks($stage, scalar @share, $job{path});
}

# Sessions of one server, without zklock
sub _plain($name, $acquire, $release, $stage, %job)
{
	$stage->server('a');
	return sql($name, $stage, [], sub { $stage->sessions('a', $job{sessions} || 1) }, $acquire, $release, %job);
}

sub advisory
{
	return _plain('pg_advisory_lock', 'SELECT pg_advisory_lock(hashtext($1))', 'SELECT pg_advisory_unlock(hashtext($1))', @_);
}

# What the statements themselves take
sub nothing { return _plain('two statements that do nothing', 'SELECT $1::text', 'SELECT $1::text', @_); }

sub dblink($stage, %job)
{
	return () unless $stage->server('a')->value(q(SELECT count(*) FROM pg_available_extensions WHERE name = 'dblink'));
	my $call = sub ($function) {
		return "SELECT * FROM dblink('central', format('SELECT $function(%s)', hashtext(\$1))) AS answer (text text)";
	};
	return sql('dblink, pg_advisory_lock', $stage, [],
		sub {
			$stage->server('a')->value('CREATE EXTENSION IF NOT EXISTS dblink');
			my $central = 'host=127.0.0.1 dbname=postgres port=' . $stage->central->port;
			return $stage->sessions('a-dblink', $job{sessions} || 1, "SELECT dblink_connect('central', '$central')");
		},
		$call->('pg_advisory_lock'), $call->('pg_advisory_unlock'), %job);
}

# Java, Python, Go, or threads in C: one process for each of what are database servers elsewhere
sub _clients($name, $stage, %job)
{
	my $kind  = lc $name;
	my @share = _shares($job{sessions} || 1, $job{servers} || 1);
	my @peers = map { $stage->$kind($_) } 1 .. @share;
	my $path  = _own_path($stage, $name, $job{path});
	# What threads have taken that end with the run, nobody can read after it.
	my @pids = $kind =~ /^(?:kazoo|redis)$/ ? () : map { $_->pid } @peers;
	return _loop($name, $stage, \@pids, sub {
		return map { [ $peers[$_], 'run', sessions => $share[$_], path => $path, think => $job{think} || 0 ] } 0 .. $#peers;
	}, %job);
}

sub curator { return _clients('Curator', @_); }
sub kazoo { return _clients('kazoo', @_); }
sub etcd($stage, %job) { return $stage->has_etcd ? _clients('etcd', $stage, %job) : (); }
sub redis($stage, %job) { return $stage->has_redis ? _clients('Redis', $stage, %job) : (); }

# Transactions; of Java programs, by JDBC, the lock is an expression, or empty: then Curator locks
sub _transactions($name, $stage, $kind, $lock, $used, %job)
{
	my @share = _shares($job{sessions} || 1, scalar @$used);
	my $path  = _own_path($stage, $name, $job{path});
	my @requests;
	foreach my $i (0 .. $#share)
	{
		my $peer = $stage->$kind($i + 1);
		my %guard = $kind =~ /^(?:etcd|redis)$/ ? (conninfo => $stage->conninfo($used->[$i])) : (url => $stage->url($used->[$i]), lock => $lock);
		$stage->warm_up($peer, 'transactions', %guard);
		push @requests, [ $peer, 'run', sessions => $share[$i], path => $path =~ s/%s/$i/r, think => 0, %guard ];
	}
	return _loop($name, $stage, [], sub { return @requests }, %job);
}

sub guarded($stage, %job)
{
	my @zklocks = _zklocks($stage, $job{servers} || 1, $job{path});
	my (undef, @used) = @{ $zklocks[0] };
	return (
		(map { my ($name, @its) = @$_;
			_transactions($name, $stage, 'jdbc', 'zk_xact_lock($path)', \@its, %job, _keeping($stage, $name, $job{path}, @its)) } @zklocks),
		_transactions('Curator', $stage, 'curator', '', \@used, %job),
		$stage->has_etcd ? _transactions('etcd', $stage, 'etcd', '', \@used, %job) : (),
		$stage->has_redis && $job{path} =~ /%/ ? _transactions('Redis', $stage, 'redis', '', \@used, %job) : (),
		@used == 1 ? _transactions('pg_advisory_lock', $stage, 'jdbc', 'pg_advisory_xact_lock(hashtext($path))', \@used, %job) : ());
}

sub _c($name, $kind, $stage, %job)
{
	my $c        = $stage->c;
	my $sessions = $job{sessions} || 1;
	my $path     = _own_path($stage, $name, $job{path});
	$c->call('prepare', path => $path, count => $sessions);
	my @request = ($c, $job{think} ? ('think', think => $job{think}) : ('run', sessions => $sessions), kind => $kind, path => $path);
	return _loop($name, $stage, [ $c->pid ], sub { return [@request] }, %job);
}

sub c_create { return _c('C, create only', 'create', @_); }
sub c_pairs { return _c('C, create and delete', 'create', @_); }
sub c_textbook { return _c('C, create and list children', 'textbook', @_); }

sub _wait_nodes($stage, $path, $count)
{
	wait_until { $stage->c->call('count', path => $path) == $count } "$count nodes below $path";
	return;
}

# Of processes with these pids. The queue is filled, others stand behind it, of which the servers hear; then it drains.
sub _queue($name, $stage, $queue, $pids, $servers, $fill, $drain)
{
	return {
		name    => $name,
		pids    => $pids,
		prepare => sub {
			$fill->();
			$stage->c->call('foreigners', path => $queue->{path}, count => $queue->{foreigners}) if $queue->{foreigners};
			$_->settle foreach @$servers;
		},
		run => sub {
			my @grants = sort { $a <=> $b } map { split / /, $_->{grants} } $drain->();
			# The first had it before.
			my @durations = map { $grants[$_] - $grants[ $_ - 1 ] } 2 .. $#grants;
			splice(@durations, $queue->{counted}) if $queue->{counted} && @durations > $queue->{counted};
			return { durations => \@durations, seconds => sum0(@durations) / 1e6, acquisitions => $queue->{waiting} };
		},
		finish => sub { $stage->c->call('disperse') if $queue->{foreigners} } };
}

sub zklock_queue($stage, %queue)
{
	my $n     = $queue{servers} || 1;
	my @used  = map { $stage->server($_) } @servers[ 0 .. $n - 1 ];
	my @share = _shares($queue{waiting} + 1, $n);
	my $fill  = sub {
		$stage->sessions($servers[$_], $share[$_]) foreach 0 .. $n - 1;
		foreach my $i (0 .. $queue{waiting})
		{
			# It knows of the one before, and so gets a node behind that one's.
			$used[ $i % $n ]->settle if $n > 1;
			$stage->enqueue($servers[ $i % $n ], int($i / $n), $queue{path}, @lock);
			_wait_nodes($stage, $queue{path}, $n > 1 ? $i + 1 : 1) if $n > 1 || $i == 0;
		}
		$used[$_]->wait_value(
			"SELECT count(*) FROM zk_locks WHERE path = '$queue{path}' AND state IN ('held', 'waiting')", $share[$_])
		  foreach 0 .. $n - 1;
	};
	my $groups = join(',', map { "$servers[$_]:$share[$_]" } 0 .. $n - 1);
	return _queue('zklock', $stage, \%queue, [ map { $_->worker_pid } @used ], \@used, $fill,
		sub { return $stage->sql->call('drain', groups => $groups) });
}

sub curator_queue($stage, %queue)
{
	my $n     = $queue{servers} || 1;
	my @peers = map { $stage->curator($_) } 1 .. $n;
	my $fill  = sub {
		foreach my $i (0 .. $queue{waiting})
		{
			$peers[ $i % $n ]->call('enqueue', path => $queue{path});
			_wait_nodes($stage, $queue{path}, $i + 1) if $n > 1;
		}
		_wait_nodes($stage, $queue{path}, $queue{waiting} + 1);
	};
	return _queue('Curator', $stage, \%queue, [ map { $_->pid } @peers ], [], $fill, sub {
		my @asked = map { [ $_, $_->send('drain') ] } @peers;
		return map { $_->[0]->result($_->[1], 180) } @asked;
	});
}

1;
