# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Matrix - which locks of other products exclude which of ours

=head1 SYNOPSIS

  use Zklock::Matrix;

  my $matrix = Zklock::Matrix->new;
  $matrix->check(
      { label => 'Curator `InterProcessMutex`', java => 'mutex' },
      { label => 'kazoo `ReadLock`', kazoo => 'shared', patterns => [], shared => 1 });
  $matrix->end;

For each peer, each dialect and each mode of ours it finds out, with servers and peers that
are real, whether one waits for the other, in both directions; and compares the outcome with
the row of that label in the table of doc/interoperability.md, cell by cell:

  yes        each waits for the other, and gets the lock when that one releases it
  together   both hold the lock at once, as readers should
  no         ours waits for the peer, but the peer does not wait for ours: both held it
  neither    nobody waits: both held it, whoever came first

A cell is "exclusive / shared". Where exclusive locks exclude each other, sessions of two
servers and threads of the peer then count to 500 together, each by reading, waiting and
writing back.

=cut

package Zklock::Matrix;

use v5.36;

use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::JavaPeer;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my @dialects = qw(curator curator_rw kazoo zookeeper hive);

my %sql = (
	exclusive => {
		try    => "SELECT zk_try_lock('%s')",
		lock   => "SELECT zk_lock('%s')",
		unlock => "SELECT zk_unlock('%s')" },
	shared => {
		try    => "SELECT zk_try_lock_shared('%s')",
		lock   => "SELECT zk_lock_shared('%s')",
		unlock => "SELECT zk_unlock_shared('%s')" });

sub new($class)
{
	my $self = bless { names => 0, paths => [] }, $class;
	$self->{zk}    = Zklock::ZooKeeper->standalone;
	$self->{a}     = Zklock::Server->new('a', zookeeper => $self->{zk});
	$self->{b}     = Zklock::Server->new('b', zookeeper => $self->{zk});
	$self->{shell} = $self->{zk}->shell;
	$self->{sql}   = $self->{a}->session(name => 'sql');
	$self->{ours}  = { map { $_->session_id => 1 } $self->{a}, $self->{b} };
	$self->{shell}->create('/m');
	return $self;
}

sub java($self)
{
	unless ($self->{java})
	{
		$self->{java} = Zklock::JavaPeer->new;
		$self->{java}->connect($self->{zk}->connect_string);
	}
	return $self->{java};
}

# A path that nobody has used. Hyphens would mean something to ZooKeeper's recipe.
sub new_path($self, @words)
{
	my $path = '/m/' . join('_', map { s/\W//gr } @words, ++$self->{names});
	push @{ $self->{paths} }, $path;
	return $path;
}

# ---- the peer, whatever it is

sub peer_start($self, $peer, $path)
{
	my $name = 'p' . ++$self->{names};
	my $wait =
	  $peer->{java}
	  ? { who => $self->java, id => $self->java->acquire_start($name, $path, -1, $peer->{java}) }
	  : {
		who => $self->{shell},
		id  => $self->{shell}->lock_start($name, $path, kind => $peer->{kazoo}, patterns => $peer->{patterns}) };
	return { %$wait, peer => $peer, name => $name, path => $path };
}

sub peer_ready($self, $wait) { return $wait->{who}->ready($wait->{id}); }

sub peer_got($self, $wait) { return $wait->{who}->result($wait->{id}); }

sub peer_release($self, $wait)
{
	return $wait->{peer}{java} ? $wait->{who}->release($wait->{name}) : $wait->{who}->unlock($wait->{name});
}

# Does the peer wait? Then it watches a node of the path, or asks again and again.
sub peer_waits($self, $wait)
{
	if (($wait->{peer}{java} || '') =~ /^hive/)
	{
		return eval { $self->java->refusals($wait->{name}) >= 3 };
	}
	my $path = '';
	foreach my $line (split(/\n/, $self->{zk}->four_letter('wchp')))
	{
		$path = $1 if $line =~ m{^(/.*)};
		return 1 if $line =~ /^\t(0x\w+)/ && !$self->{ours}{$1} && $path =~ m{^\Q$wait->{path}\E/};
	}
	return 0;
}

sub peer_count_start($self, $peer, $file, $rounds, $path)
{
	return $peer->{java}
	  ? { who => $self->java, id => $self->java->counter_start($file, $rounds, $path, 1, $peer->{java}) }
	  : {
		who => $self->{shell},
		id  => $self->{shell}->counter_start($file, $rounds, $path, kind => $peer->{kazoo}, patterns => $peer->{patterns}) };
}

# ---- one cell

# The peer holds: do we wait, and get the lock after its release?
sub we_wait($self, $peer, $mode, $path, $what)
{
	my $sql  = $self->{sql};
	my $hold = $self->peer_start($peer, $path);
	ok($self->peer_got($hold), "$what: the peer holds the lock");
	my $got = $sql->query(sprintf($sql{$mode}{try}, $path)) eq 't';
	if (!$got)
	{
		$sql->query_start(sprintf($sql{$mode}{lock}, $path));
		$self->{a}->wait_waiting($sql, $path);
		ok($sql->busy, 'SQL waits');
	}
	$self->peer_release($hold);
	is($sql->finish, 't', 'SQL gets the lock after the release') unless $got;
	is($sql->query(sprintf($sql{$mode}{unlock}, $path)), 't', 'and releases it');
	return !$got;
}

# We hold: does the peer wait, and get the lock after our release?
sub peer_respects($self, $peer, $mode, $path, $what)
{
	my $sql = $self->{sql};
	is($sql->query(sprintf($sql{$mode}{lock}, $path)), 't', "$what: SQL holds the lock");
	my $wait = $self->peer_start($peer, $path);
	wait_until { $self->peer_ready($wait) || $self->peer_waits($wait) } "$what: the peer to get the lock or wait";
	my $got = $self->peer_ready($wait);
	is($self->{a}->wait_holder($sql, $path)->{granted}, 't', 'both hold it') if $got;
	is($sql->query(sprintf($sql{$mode}{unlock}, $path)), 't', 'SQL releases it');
	ok($self->peer_got($wait), $got ? 'the peer had it' : 'then the peer gets it');
	$self->peer_release($wait);
	return !$got;
}

sub cell($self, $peer, $dialect, $mode)
{
	my $what = "$peer->{label}, $dialect, $mode";
	$self->{a}->write_dialect($dialect, $self->{sql});
	my $ours   = $self->we_wait($peer, $mode, $self->new_path($dialect, $mode), "$what, peer first");
	my $theirs = $self->peer_respects($peer, $mode, $self->new_path($dialect, $mode), "$what, SQL first");
	return 'together' if !$ours && !$theirs && $mode eq 'shared' && $peer->{shared};
	return $ours && $theirs ? 'yes' : $ours ? 'no' : $theirs ? 'blind' : 'neither';
}

# ---- all count together

sub count_together($self, $peer, $dialect)
{
	my $path = $self->new_path($dialect, 'count');
	my $file = PostgreSQL::Test::Utils::tempdir . "/counter_$self->{names}";
	append_to_file($file, "0\n");
	my @sessions = map { ($self->{a}->session, $self->{b}->session) } 1 .. 2;
	$self->{$_}->write_dialect($dialect) foreach qw(a b);
	foreach my $session (@sessions)
	{
		wait_until { $session->query('SHOW zklock.path_dialects') eq "/*=$dialect" } 'names of the dialect';
		$session->query_start("DO \$\$
			DECLARE
				seen bigint;
			BEGIN
				FOR i IN 1 .. 60 LOOP
					PERFORM zk_lock('$path');
					seen := pg_read_file('$file')::bigint;
					PERFORM pg_sleep(0.001);
					EXECUTE format('COPY (SELECT %s) TO %L', seen + 1, '$file');
					PERFORM zk_unlock('$path');
				END LOOP;
			END \$\$");
	}
	my @counting = map { $self->peer_count_start($peer, $file, 130, $path) } 1 .. 2;
	is($_->result->{error}, undef, "$peer->{label}, $dialect: a session counts") foreach @sessions;
	ok(defined $_->{who}->result($_->{id}), 'a thread of the peer counts') foreach @counting;
	chomp(my $count = slurp_file($file));
	is($count, 500, "$peer->{label}, $dialect: two servers and the peer lose no update of 500");
	$_->disconnect foreach @sessions;
	return;
}

# ---- the table

# The table of doc/interoperability.md: { label => { dialect => 'exclusive / shared' } }
sub promised
{
	my $document = slurp_file(dirname(__FILE__) . '/../../../doc/interoperability.md');
	my (@columns, %promised);
	foreach my $line (split(/\n/, $document))
	{
		my @cells = map { s/^\s+|\s+$|\*\*//gr } split(/\|/, $line =~ s/^\|//r);
		@columns = map { tr/`//dr } @cells if $line =~ /^\| *the other side's lock/;
		@columns = () unless $line =~ /^\|/;
		next if !@columns || $cells[0] =~ /^-+$/;
		@{ $promised{ $cells[0] } }{@columns} = @cells;
	}
	return \%promised;
}

sub check($self, @peers)
{
	my $promised = promised();
	foreach my $peer (@peers)
	{
		my %outcome;
		foreach my $dialect (@dialects)
		{
			my @modes = map { $self->cell($peer, $dialect, $_) } qw(exclusive shared);
			$outcome{$dialect} = join(' / ', @modes);
			$self->count_together($peer, $dialect) if $modes[0] eq 'yes' && !$peer->{shared};
		}
		note(join(' | ', $peer->{label}, map { $outcome{$_} } @dialects));
		is_deeply(\%outcome, { map { $_ => $promised->{ $peer->{label} }{$_} } @dialects },
			"$peer->{label}: it is as doc/interoperability.md says");
	}
	return;
}

sub end($self)
{
	$self->{java}->close_session if $self->{java};
	$self->{sql}->disconnect;
	# Curator's semaphores have nodes of their own below the path.
	my @left = grep { !m{/(?:locks|leases)$} }
	  map { my $path = $_; map { "$path/$_" } $self->{zk}->children($path) } @{ $self->{paths} };
	is("@left", '', 'no node is left');
	Zklock::Server->assert_clean($self->{zk}, [ $self->{a}, $self->{b} ]);
	return;
}

1;
