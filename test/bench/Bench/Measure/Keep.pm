# Copyright (c) 2026, zklock contributors
#
# One session locks the same path again and again, where a lock is kept for a while.

package Bench::Measure::Keep;

use strict;
use warnings;

use parent 'Bench::Measure';

use Bench::Contestants qw(zklock curator);

sub name  { return 'keep'; }
sub title { return 'The same with keep_idle'; }

sub text
{
	return <<'END';
As before, but the server keeps for 10 s what has been released: `zklock.keep_idle`. Nobody else wants it, so
ZooKeeper is not asked.
END
}

sub available { my ($self, $stage) = @_; return $stage->has_setting('zklock.keep_idle'); }

sub cases
{
	my ($self, $stage) = @_;
	$stage->server('a')->set_conf('zklock.keep_idle' => '10s');
	return map {
		my %job = (path => '/bench/keep%d', sessions => $_);
		{ name => $_ == 1 ? '1 session' : "$_ sessions", contestants => [ zklock($stage, %job), curator($stage, %job) ] };
	} 1, 16;
}

sub finish { my ($self, $stage) = @_; $stage->server('a')->set_conf('zklock.keep_idle' => '0'); return; }

1;
