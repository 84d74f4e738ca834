# Copyright (c) 2026, zklock contributors
#
# What a commit costs more when a lock is held.

package Bench::Measure::Guard;

use strict;
use warnings;

use parent 'Bench::Measure';

# Commits in a row; those that ask ZooKeeper are slower.
my %commits = (off => 20_000, lease => 20_000, quorum => 200);

sub name  { return 'guard'; }
sub title { return 'The commit guard'; }

sub text
{
	return <<'END';
A session holds a lock, and commits transactions that have written, in a procedural loop, with `synchronous_commit =
off` and different `zklock.commit_guard`. The time is that of one commit, and what it is more than with `off`.
END
}

sub compares { return 'p50'; }
sub columns  { return qw(p50 difference requests bytes); }

sub _contestant
{
	my ($stage, $guard) = @_;
	my $name = "a-$guard";
	$stage->server('a');
	return {
		name    => $guard,
		prepare => sub {
			$stage->sessions($name => 1,
				"SET synchronous_commit = off; SET zklock.commit_guard = '$guard'; SELECT zk_lock('/bench/guard-$guard')");
		},
		run => sub {
			my $sql = "DO 'BEGIN FOR i IN 1..$commits{$guard} LOOP PERFORM txid_current(); COMMIT; END LOOP; END'";
			my $time = $stage->sql->call('time', name => $name, index => 0, sql => $sql);
			return { durations => [ $time / $commits{$guard} ], acquisitions => $commits{$guard}, seconds => $time / 1e6 };
		} };
}

sub cases
{
	my ($self, $stage) = @_;
	return { name => 'a commit', contestants => [ map { _contestant($stage, $_) } qw(off lease quorum) ] };
}

1;
