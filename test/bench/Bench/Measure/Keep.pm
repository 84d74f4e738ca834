# Copyright (c) 2026, zklock contributors
#
# One session locks the same path again and again, where a lock is kept for a while.

package Bench::Measure::Keep;

use strict;
use warnings;

use parent 'Bench::Measure';

use Bench::Contestants qw(zklock curator nothing);

sub name  { return 'keep'; }
sub title { return 'The same with keep_idle'; }

sub text
{
	return <<'END';
As before, but the server keeps for 10 s what has been released: `zklock.keep_idle`. Nobody else wants it, so
ZooKeeper is not asked. "In one statement": zklock's session locks and unlocks in a procedural loop, as Curator does
in all cases, and the time is that of both; otherwise each is a statement of its own.
END
}

sub available { my ($self, $stage) = @_; return $stage->has_setting('zklock.keep_idle'); }

# One session of zklock that does it without its client
sub _in_one_statement
{
	my ($stage) = @_;
	my $pairs = 5_000;
	return {
		name => 'zklock',
		pids => [ $stage->server('a')->worker_pid ],
		run  => sub {
			my $sql = "DO 'BEGIN FOR i IN 1..$pairs LOOP "
			  . "PERFORM zk_lock(''/bench/keep1''); PERFORM zk_unlock(''/bench/keep1''); END LOOP; END'";
			$stage->sessions(a => 1);
			my $time = $stage->sql->call('time', name => 'a', index => 0, sql => $sql);
			return {
				durations    => [ $time / $pairs ],
				acquisitions => $pairs,
				figures      => { rate => $pairs / ($time / 1e6), p99 => undef } };
		} };
}

sub _in_statements
{
	my ($stage, %job) = @_;
	return {
		name        => $job{sessions} == 1 ? '1 session' : "$job{sessions} sessions",
		contestants => [ map { $_->($stage, %job) } \&zklock, \&curator, \&nothing ] };
}

sub cases
{
	my ($self, $stage) = @_;
	my %job = (path => '/bench/keep%d');
	$stage->server('a')->set_conf('zklock.keep_idle' => '10s');
	return (
		{ name => '1 session, in one statement', contestants => [ _in_one_statement($stage), curator($stage, %job) ] },
		map { _in_statements($stage, %job, sessions => $_) } 1, 16);
}

sub finish { my ($self, $stage) = @_; $stage->server('a')->set_conf('zklock.keep_idle' => '0'); return; }

1;
