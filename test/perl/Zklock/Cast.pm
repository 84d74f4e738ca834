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
                                which waits for it, gets it with a higher token, while those behind
                                it wait, and so on; the last releases it as well. Returns the last token

On request:

  cancel_as_answered($session, $answered)
                                a statement of the session waits for an answer. Its backend is
                                stopped, the code has the answer come, and returns when it is there;
                                then the statement is cancelled, and the backend goes on: it finds
                                both at once. The statement's result is still to be taken
  freeze_asleep($session)       stops its backend, which waits; thaw its pid
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
  scene($here, $there, $root)   tests: below the path $root, "holder" of the server $here holds
                                "queue", for which "local" and then "remote" of $there wait;
                                "foreigner" of $there holds "foreign", for which "behind" of
                                $here waits
  undisturbed($what)            tests: since then both servers have their sessions, what is held
                                below the path is the same, and who waits, waits
  scene_ends                    tests: each has its turn. Returns the last token of "queue"

=cut

package Zklock::Cast;

use v5.36;

use Exporter qw(import);
use Test::More;
use Zklock::Server;
use Zklock::Util qw(freeze thaw wait_until);

our @EXPORT = qw(%s on hold queue holdings all_disconnect fails in_transaction hand_on);
our @EXPORT_OK = qw(cancel_as_answered freeze_asleep token node_of unlock lost one_believer clean story scene undisturbed scene_ends);
our %s;
my %scene;

sub on($server, $name) { return $s{$name} ||= $server->session(name => $name); }

sub hold($server, $name, $path)
{
	return is(on($server, $name)->query("SELECT zk_lock('$path')"), 't', "$name holds $path");
}

sub queue($server, $name, $path) { return on($server, $name)->start_waiting("SELECT zk_lock('$path')", $path); }

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

# One that is stopped while it is awake might keep others from going on.
sub freeze_asleep($session)
{
	my $asleep = q{SELECT wait_event ~ '^(Zk|Extension$|userlock$)' FROM pg_stat_activity WHERE pid = } . $session->pid;
	wait_until
	{
		$session->server->wait_value($asleep, 't');
		freeze($session->pid);
		return 1 if $session->server->value($asleep) eq 't';
		thaw($session->pid);
		return 0;
	}
	$session->name . ' to sleep';
	return;
}

sub cancel_as_answered($session, $answered)
{
	freeze_asleep($session);
	$answered->();
	$session->cancel;
	thaw($session->pid);
	return;
}

sub hand_on($path, $name, @next)
{
	my $token = token($name, $path);
	unlock($name, $path);
	while (defined(my $next = shift @next))
	{
		is($s{$next}->finish, 't', "then $next holds $path");
		ok($s{$_}->busy, "and $_ waits") foreach @next;
		my $before = $token;
		$token = token($next, $path);
		cmp_ok($token, '>', $before, 'with a higher token');
		unlock($next, $path);
	}
	return $token;
}

sub token($name, $path) { return $s{$name}->query("SELECT zk_fencing_token('$path')"); }

sub node_of($server, $name) { return ($server->locks('pid = ' . $s{$name}->pid))[0]{node}; }

sub unlock($name, $path) { return is($s{$name}->query("SELECT zk_unlock('$path')"), 't', "$name unlocks $path"); }

sub lost($server, $name, $path)
{
	is($server->wait_lock($s{$name}, 'lost', $path)->{granted}, 'f', "$name has lost $path, says zk_locks");
	is($s{$name}->try("SELECT zk_fencing_token('$path')")->{sqlstate}, '40001', 'its token is an error');
	my $result = $s{$name}->try("SELECT zk_unlock('$path')");
	is($result->{text}, 'f', 'zk_unlock returns false');
	like("@{ $result->{notices} }", qr/WARNING:  01000: lock on ZooKeeper path "\Q$path\E" was lost/, 'with a warning');
	return;
}

sub one_believer($servers, $name, $path)
{
	is(join(' ', map { $_->{pid} } map { $_->locks("path = '$path' AND state = 'held'") } @$servers),
		$s{$name}->pid, "only $name believes to hold $path");
	return;
}

sub clean($zk, $servers, @paths) { all_disconnect(); return Zklock::Server->assert_clean($zk, $servers, @paths); }

sub scene($here, $there, $root)
{
	hold($here, 'holder', "$root/queue");
	queue($here, 'local', "$root/queue");
	queue($there, 'remote', "$root/queue");
	hold($there, 'foreigner', "$root/foreign");
	queue($here, 'behind', "$root/foreign");
	%scene = (root => $root, servers => [ $here, $there ], ids => [ map { $_->session_id } $here, $there ]);
	$scene{held} = held_in_scene();
	return;
}

sub held_in_scene() { return [ grep { m{ $scene{root}/} } map { @{ holdings($_) } } @{ $scene{servers} } ]; }

sub undisturbed($what)
{
	# Until both have a lease again: only then is a wait over that began in between.
	$_->wait_session foreach @{ $scene{servers} };
	is_deeply([ map { $_->session_id } @{ $scene{servers} } ], $scene{ids}, "$what: the servers have their sessions");
	is_deeply(held_in_scene(), $scene{held}, 'holders have what they had');
	ok($s{$_}->busy, "$_ waits") foreach qw(local remote behind);
	return;
}

sub scene_ends()
{
	hand_on("$scene{root}/foreign", qw(foreigner behind));
	return hand_on("$scene{root}/queue", qw(holder local remote));
}

sub story($name, $code) { return subtest $name => sub { $code->(); all_disconnect(); }; }

sub all_disconnect { $_->disconnect foreach values %s; %s = (); return; }

1;
