# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Test - what a test begins with

=head1 SYNOPSIS

  use Zklock::Test;

  my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '12s', zk => { ensemble => 3 });
  my ($s1, $s2) = ($a->session, $b->session);

  is($s1->query("SELECT zk_lock('/t/lock')"), 't', 'A gets the lock');
  $s2->start_waiting("SELECT zk_lock('/t/lock')");
  $s1->hands_over('/t/lock', $s2, 'B gets it after A');
  done_clean($zk, $a, $b);

=head1 DESCRIPTION

It switches on C<strict>, C<warnings> and the signatures of subroutines, imports Test::More and what
tests use of Zklock::Util, and loads Zklock::Server, Zklock::ZooKeeper and Zklock::Proxy.

C<cast($names, %options)> starts a ZooKeeper server and PostgreSQL servers with these names, and
returns them. Options:

  proxied  the servers that talk to ZooKeeper through a proxy each; these are returned, too
  timeout  zklock.session_timeout of all servers, scaled as Zklock::Util has it
  zk       options of Zklock::ZooKeeper; C<ensemble>: so many servers

All others are those of Zklock::Server->new, for each of the servers. What one server alone has stands
under its name: C<< b => { faults => '' } >>.

C<done_clean($zk, @servers)> is how a test ends: all sessions with these servers end, and nothing is
left behind in ZooKeeper, nor on the servers, as assert_clean of Zklock::Server has it. Close foreign
contenders before.

A test that fails tells from which lines of the file it was called, so functions with tests in them need
not count levels for Test::Builder.

=cut

package Zklock::Test;

use v5.36;

use feature ();
use parent 'Exporter';

use Test2::API ();
use Test::More ();
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(freeze increasing scaled thaw wait_until);
use Zklock::ZooKeeper;

our @EXPORT = qw(cast done_clean freeze increasing scaled thaw wait_until);

sub import($class)
{
	strict->import;
	warnings->import;
	feature->import('signatures');
	Test::More->export_to_level(1, 'Test::More');
	return $class->export_to_level(1, $class);
}

# From where a test that failed was called
sub _tell_callers($hub, $event, @)
{
	return unless $event->facet_data->{assert} && $event->causes_fail;
	my @lines;
	for (my $depth = 0; my (undef, $file, $line) = caller $depth; $depth++)
	{
		push @lines, $line if $file eq $0;
	}
	Test::More::diag("called at $0, line " . join(', from line ', @lines));
	return;
}
Test2::API::test2_stack()->top->listen(\&_tell_callers, inherit => 1);

sub cast($names, %opt)
{
	my @names   = split / /, $names;
	my %own     = map { $_ => delete $opt{$_} || {} } @names;
	my @proxied = split / /, delete $opt{proxied} // '';
	my %zk      = %{ delete $opt{zk} || {} };
	my $zk      = Zklock::ZooKeeper->ensemble(delete $zk{ensemble} || 1, %zk, start => 0);
	my %proxies = map { $_ => Zklock::Proxy->start($zk) } @proxied;
	my @servers;

	# Data directories are made while ZooKeeper starts.
	$zk->start(wait => 0);
	foreach my $name (@names)
	{
		my %its     = (%opt, %{ $own{$name} });
		my $timeout = delete $its{timeout};
		$its{conf} = [ @{ $its{conf} || [] }, "zklock.session_timeout = '$timeout'" ] if $timeout;
		push @servers, Zklock::Server->new($name, zookeeper => $proxies{$name} // $zk, %its, start => 0);
	}
	$zk->wait_ready;
	$_->launch foreach @servers;
	return ($zk, @proxies{@proxied}, @servers);
}

sub done_clean($zk, @servers)
{
	$_->end_sessions foreach @servers;
	Zklock::Server->assert_clean($zk, \@servers);
	return Test::More::done_testing();
}

1;
