# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Contestants - who locks and unlocks, in the cases that all of them have

=head1 SYNOPSIS

  my @contestants = (zklock($stage, %job), curator($stage, %job), ...);

A contestant is

  { name => 'zklock', pids => [ ... ], run => sub ($seconds) { ... return \%outcome } }

C<prepare> and C<finish>, if there are such, run before and after it, unmeasured. C<pids> are the processes
that speak to ZooKeeper, whose processor time counts. The outcome has
C<durations>, a list of microseconds, and C<acquisitions>, those included that are not
in that list; C<seconds>, if it is to be counted by others than were asked for; and C<figures>, that
take the place of what is calculated. A job has

  sessions   how many, default 1
  servers    on how many database servers, or clients with a ZooKeeper session each; default 1
  path       '/bench/p%d', each session another path; or '/bench/one'
  think      microseconds between lock and unlock, default 0

=cut

package Bench::Contestants;

use v5.36;

use Exporter 'import';
use List::Util qw(sum0);

our @EXPORT_OK = qw(zklock advisory nothing dblink curator kazoo c_create c_pairs c_textbook outcome sql);

my @servers = qw(a b);

# What the load generators answered, together
sub outcome(@answers)
{
	my @durations = map { split / /, $_->{durations} } @answers;
	return { durations => \@durations, acquisitions => @durations + sum0(map { $_->{others} } @answers) };
}

# The sessions of a job, shared out
sub _shares(%job)
{
	my $servers = $job{servers} || 1;
	return map { int((($job{sessions} || 1) + $_ - 1) / $servers) } 1 .. $servers;
}

# A queue takes its time to form: as long as that lasts, nothing is counted.
sub _lead(%job) { return 0.002 * ($job{sessions} || 1); }

sub _contestant($name, $stage, $pids, $requests, %job)
{
	return {
		name => $name,
		pids => $pids,
		run  => sub ($seconds) { return outcome($stage->together(_lead(%job), $seconds, $requests->())) } };
}

# Sessions of PostgreSQL: "pids" of workers, "groups" as Bench::Stage's sessions returns them
sub sql($name, $stage, $pids, $groups, $acquire, $release, %job)
{
	return _contestant($name, $stage, $pids, sub {
		return [ $stage->sql, 'run',
			groups  => join(',', $groups->()),
			acquire => $acquire,
			release => $release,
			path    => $job{path},
			think   => $job{think} || 0 ];
	}, %job);
}

sub zklock($stage, %job)
{
	my @share = _shares(%job);
	my @used  = map { $stage->server($_) } @servers[ 0 .. $#share ];
	return sql('zklock', $stage, [ map { $_->worker_pid } @used ],
		sub { map { $stage->sessions($servers[$_], $share[$_]) } 0 .. $#share },
		'SELECT zk_lock($1::text)', 'SELECT zk_unlock($1::text)', %job);
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

# Java or Python: one process for each of what are database servers elsewhere
sub _clients($kind, $stage, %job)
{
	my @share = _shares(%job);
	my @peers = map { $stage->$kind($_) } 1 .. @share;
	return _contestant({ curator => 'Curator', kazoo => 'kazoo' }->{$kind}, $stage, [ map { $_->pid } @peers ], sub {
		return map { [ $peers[$_], 'run', sessions => $share[$_], path => $job{path}, think => $job{think} || 0 ] } 0 .. $#peers;
	}, %job);
}

sub curator { return _clients('curator', @_); }
sub kazoo   { return _clients('kazoo',   @_); }

sub _c($name, $kind, $stage, %job)
{
	my $c        = $stage->c;
	my $sessions = $job{sessions} || 1;
	$c->call('prepare', path => $job{path}, count => $sessions);
	my @request = ($c, $job{think} ? ('think', think => $job{think}) : ('run', sessions => $sessions), kind => $kind, path => $job{path});
	return _contestant($name, $stage, [ $c->pid ], sub { return [@request] }, %job);
}

sub c_create   { return _c('C, create only',              'create',   @_); }
sub c_pairs    { return _c('C, create and delete',        'create',   @_); }
sub c_textbook { return _c('C, create and list children', 'textbook', @_); }

1;
