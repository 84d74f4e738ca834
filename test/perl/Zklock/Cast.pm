# Copyright (c) 2026, zklock contributors

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
  fails($result, $sqlstate, $name, message => ..., detail => ..., hint => ...)
                                tests: the statement failed so, and said this: texts, or
                                regular expressions
  in_transaction($server, $name, $path [, $sql])
                                a test: the session begins a transaction, gets its lock, and runs
                                the statement
  hand_on($path, @names)        tests: the first of the sessions releases the lock, the next one,
                                which waits for it, gets it, and so on; the last releases it as well

On request:

  story($name, $code)           a subtest, whose sessions end with it
  token($name, $path)           the fencing token that the session has
  node_of($server, $name)       the node of the session's first contender
  unlock($name, $path)          a test: the session holds the lock, and releases it
  lost($server, $name, $path)   tests: the lock is lost, and the session is told so
  one_believer([ @servers ], $name, $path)
                                a test: the session alone believes that it holds the lock
  clean($zk, [ @servers ], @paths)
                                a test: all sessions end, and nothing is left behind, as
                                assert_clean of Zklock::Server has it

=cut

package Zklock::Cast;

use v5.36;

use Exporter qw(import);
use Test::More;
use Zklock::Server;

our @EXPORT = qw(%s on hold queue holdings all_disconnect fails in_transaction hand_on);
our @EXPORT_OK = qw(token node_of unlock lost one_believer clean story);
our %s;

sub on($server, $name) { return $s{$name} ||= $server->session(name => $name); }

sub hold($server, $name, $path)
{
	is(on($server, $name)->query("SELECT zk_lock('$path')"), 't', "$name holds $path");
	return;
}

sub queue($server, $name, $path)
{
	on($server, $name)->query_start("SELECT zk_lock('$path')");
	$server->wait_waiting($s{$name}, $path);
	return;
}

sub holdings($server)
{
	return [ map { "$_->{pid} $_->{path} $_->{node} $_->{fencing_token} $_->{granted_at}" }
		  $server->locks("state = 'held' ORDER BY path, pid") ];
}

sub fails($result, $sqlstate, $name, %says)
{
	is($result->{sqlstate}, $sqlstate, $name) or diag explain $result;
	foreach my $part (sort keys %says)
	{
		my ($said, $expected) = ($result->{$part} // '', $says{$part});
		ref $expected ? like($said, $expected, "$name: $part") : is($said, $expected, "$name: $part");
	}
	return;
}

sub in_transaction($server, $name, $path, $sql = undef)
{
	on($server, $name)->query('BEGIN');
	is($s{$name}->query("SELECT zk_xact_lock('$path')"), 't', "a transaction of $name holds $path");
	$s{$name}->query($sql) if $sql;
	return;
}

sub hand_on($path, $name, @next)
{
	unlock($name, $path);
	foreach my $next (@next)
	{
		is($s{$next}->finish, 't', "then $next holds $path");
		unlock($next, $path);
	}
	return;
}

sub token($name, $path) { return $s{$name}->query("SELECT zk_fencing_token('$path')"); }

sub node_of($server, $name) { return ($server->locks('pid = ' . $s{$name}->pid))[0]{node}; }

sub unlock($name, $path)
{
	is($s{$name}->query("SELECT zk_unlock('$path')"), 't', "$name unlocks $path");
	return;
}

sub lost($server, $name, $path)
{
	is($server->wait_lock($s{$name}, 'lost', $path)->{granted}, 'f', "$name has lost $path, says zk_locks");
	is($s{$name}->try("SELECT zk_fencing_token('$path')")->{sqlstate}, '40001', 'its token is an error');
	my $result = $s{$name}->try("SELECT zk_unlock('$path')");
	is($result->{text}, 'f', 'zk_unlock returns false');
	like("@{ $result->{notices} }", qr/WARNING:  40001: lock on ZooKeeper path "\Q$path\E" was lost/, 'with a warning');
	return;
}

sub one_believer($servers, $name, $path)
{
	is(join(' ', map { $_->{pid} } map { $_->locks("path = '$path' AND state = 'held'") } @$servers),
		$s{$name}->pid, "only $name believes to hold $path");
	return;
}

sub clean($zk, $servers, @paths)
{
	all_disconnect();
	return Zklock::Server->assert_clean($zk, $servers, @paths);
}

sub story($name, $code)
{
	return subtest $name => sub { $code->(); all_disconnect(); };
}

sub all_disconnect { $_->disconnect foreach values %s; %s = (); return; }

1;
