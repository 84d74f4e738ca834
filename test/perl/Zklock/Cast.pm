# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Cast - the sessions of a test, by name

=head1 SYNOPSIS

  use Zklock::Cast;

  hold($a, 'holder', '/t/lock');       # session "holder" of server $a gets the lock
  queue($b, 'waiter', '/t/lock');      # session "waiter" of $b waits for it
  $s{holder}->query("SELECT zk_unlock('/t/lock')");
  is($s{waiter}->finish, 't', 'the waiter gets it');

=head1 EXPORTS

  %s                            all sessions, by name
  on($server, $name)            the session, made on the server if it is new
  hold($server, $name, $path)   a test: the session gets the lock
  queue($server, $name, $path)  the session asks, and is seen to wait
  holdings($server)             what is held there, with nodes, tokens and times
  all_disconnect                all sessions end

=cut

package Zklock::Cast;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

our @EXPORT = qw(%s on hold queue holdings all_disconnect);
our %s;

sub on { my ($server, $name) = @_; return $s{$name} ||= $server->session(name => $name); }

sub hold
{
	my ($server, $name, $path) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(on($server, $name)->query("SELECT zk_lock('$path')"), 't', "$name holds $path");
	return;
}

sub queue
{
	my ($server, $name, $path) = @_;
	on($server, $name)->query_start("SELECT zk_lock('$path')");
	$server->wait_waiting($s{$name}, $path);
	return;
}

sub holdings
{
	my ($server) = @_;
	return [ map { "$_->{pid} $_->{path} $_->{node} $_->{fencing_token} $_->{granted_at}" }
		  $server->locks("state = 'held' ORDER BY path, pid") ];
}

sub all_disconnect { $_->disconnect foreach values %s; %s = (); return; }

1;
