# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Shell - ZooKeeper administration, and contenders that use kazoo's Lock

=head1 SYNOPSIS

  my $sh = Zklock::Shell->new;          # or the shared one of a test: $zk->shell
  $sh->connect($zk->connect_string, timeout => 10);    # s; default 30, scaled

  my $path = $sh->create('/a/b', data => 'x', ephemeral => 1, sequence => 1,
      makepath => 1, acl => [ [ 'digest', 'user:password', 'r' ] ]);
  $sh->create('/a/c', hex => 'ff00');   # data of any bytes
  $sh->create_many('/a/b-', 5000, data => 'x');   # ephemeral sequential ones; the last path
  $sh->set_acl('/a', [ [ 'world', 'anyone', 'cdrwa' ] ]);
  @acl = @{ $sh->acl('/a') };           # [ permissions as a number, scheme, id ]
  $sh->delete('/a', recursive => 1);
  @names = @{ $sh->ls('/a') };          # in order of the trailing sequence number
  $data = $sh->get('/a'); $stat = $sh->stat('/a'); $sh->set('/a', 'x');
  $stat = $sh->exists('/a');            # undef if not there
  $sh->add_auth('digest', 'user:password');

  $sh->remove('/lock', 'first');        # a contender: the first, the last, or all of them
                                        # and the path; { czxids => [...], error }
  $sh->expire_session('0x100...');      # ends anybody's session
  $sh->foist('0x100...', '/a/b-');      # creates an ephemeral sequential node in it
  $sh->attach('0x100...', $port);       # one more connection of anybody's session,
  $sh->detach;                          # which stays until then
  $sh->session;                         # [ id as '0x...', password in hex ] of our own
  $sh->close_connection;                # ends our own session
  $sh->reconnect;                       # waits until we are connected (again)

A contender with kazoo's Lock that respects Curator's names as well:

  $sh->lock('me', '/lock');             # waits; croaks if it takes too long
  my $got = $sh->lock('me', '/lock', timeout => 0.5);  # s; 1, or 0 after the timeout
  my $id = $sh->lock_start('me', '/lock');             # does not wait
  ... $sh->ready($id) ...
  my $got = $sh->result($id);
  $sh->unlock('me');
  $sh->cancel_lock('me');               # give up waiting
  my $id = $sh->counter_start($file, $rounds, '/lock', sleep => 1);
  $sh->result($id);                     # done: $rounds times lock, count in the file, unlock

A candidate with kazoo's Election:

  $sh->stand('me', '/election'); $sh->leave('me');
  my $bool = $sh->leads('me'); my @names = @{ $sh->leaders('me') };   # the leader first

C<patterns =E<gt> []> makes it blind for foreign names, as kazoo is if not told; a list of
regular expressions says which ones to respect. C<kind =E<gt> 'write'> and C<'shared'> are
kazoo's WriteLock and ReadLock, which before 2.9 also waits for younger writers.

Every method takes C<client =E<gt> 'name'> as one more option: a session of its own,
made by C<connect($hosts, client =E<gt> 'name')>. The stat is a hash: czxid, mzxid,
pzxid, ephemeralOwner (as '0x...'), numChildren, version, cversion, dataLength, ctime.
Errors croak with kazoo's name of the error, e.g. NoNodeError.

C<pause> and C<resume> stop and continue the whole process, C<kill9> ends it as a crash
would.

=cut

package Zklock::Shell;

use v5.36;

use parent 'Zklock::LinePeer';

use File::Basename qw(dirname);
use Zklock::Util qw(scaled);

our @CARP_NOT = qw(Zklock::LinePeer Zklock::ZooKeeper Zklock::Server);

my $number = 0;

sub new($class, %arg)
{
	return $class->SUPER::new(
		name => $arg{name} || 'shell_' . ++$number,
		argv => [ '/usr/bin/python3', dirname(__FILE__) . '/../../interop/zk_shell.py' ]);
}

# Every method is a request: positional arguments first, options in a hash at the end.
my %positional = (
	connect => 1, close_connection => 0, reconnect => 0, session => 0, create => 1, create_many => 2, delete => 1, remove => 2, ls => 1,
	get => 1, set => 2, set_acl => 2, acl => 1, stat => 1, exists => 1, add_auth => 2, expire_session => 1, attach => 2, foist => 2,
	detach => 0, unlock => 1, cancel_lock => 1, ephemerals => 0, contenders => 1,
	stand => 2, leads => 1, leaders => 1, leave => 1);

foreach my $command (keys %positional)
{
	no strict 'refs';
	*$command = sub ($self, @arg) {
		my @fixed = splice(@arg, 0, $positional{$command});
		unshift @arg, timeout => scaled(30) if $command eq 'connect';
		return $self->call($command, @fixed, {@arg});
	};
}

sub lock_start($self, $name, $path, %opt) { return $self->send('lock', $name, $path, \%opt); }
sub lock($self, @arg) { return $self->result($self->lock_start(@arg)); }

sub counter_start($self, $file, $rounds, $path, %opt)
{
	return $self->send('counter', $file, $rounds, $path, \%opt);
}

1;
