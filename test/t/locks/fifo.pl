# Copyright (c) 2026, zklock contributors
#
# First come, first served, among sessions of two database servers and foreign clients of
# three makes, in any mixture. That sessions that come back do not keep a foreigner out is in requests/requests.pl.

use Zklock::Test;
use Zklock::JavaPeer;

my ($zk, %server);
($zk, @server{qw(a b)}) = cast('a b');
my $shell = $zk->shell;
my $java  = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);

sub settle { $_->settle foreach values %server; return; }

# ---- contenders ------------------------------------------------------------------
#
# A contender has a kind, a name, and code to see whether it has the lock and to release
# it:
#	a, b	an SQL session on that server, session-level
#	A, B	the same, transaction-level
#	k		kazoo's Lock, told about Curator's names
#	j		Curator's InterProcessMutex
#	p		a plain node as any client could make it; it has the lock when it is the first

my $names = 0;
my $path;

sub children { return $zk->children($path); }

sub new_contender($kind)
{
	my $c = { kind => $kind, name => $kind . ++$names, server => $kind =~ /[ab]/i ? lc $kind : '' };
	my $nodes = children();
	if ($c->{server})
	{
		my $server  = $server{ $c->{server} };
		my $session = $c->{session} = $server->session;
		my $function = $kind =~ /[AB]/ ? 'zk_xact_lock' : 'zk_lock';
		$session->query('BEGIN') if $function eq 'zk_xact_lock';
		$session->query_start("SELECT $function('$path')");
		$c->{granted} = sub { return !$session->busy && $session->finish eq 't'; };
		$c->{release} = sub { $session->query($kind =~ /[AB]/ ? 'COMMIT' : "SELECT zk_unlock('$path')") };
		# It stands in the queue: its node, own or shared, has got its number.
		$session->wait_row("state IN ('waiting', 'held') AND node ~ '\\d{10}\$'", $path);
		return $c;
	}
	if ($kind eq 'p')
	{
		my $node = $zk->foreigner($path);
		$c->{granted} = sub { return "$path/" . (children())[0] eq $node; };
		$c->{release} = sub { $shell->delete($node) };
		return $c;
	}
	my $peer = $kind eq 'k' ? $shell : $java;
	my $request = $kind eq 'k' ? $shell->lock_start($c->{name}, $path)
	  : $java->acquire_start($c->{name}, $path);
	$c->{granted} = sub { return $peer->ready($request) && $peer->result($request); };
	$c->{release} = sub { $kind eq 'k' ? $shell->unlock($c->{name}) : $java->release($c->{name}) };
	wait_until { children() == $nodes + 1 } "the node of $c->{name}";
	return $c;
}

# Lets the contenders arrive one after the other, each when all know of the one before.
sub arrive
{
	return map { my $c = new_contender($_); settle(); $c } @_;
}

# Releases whoever has the lock until nobody waits; the names in the order of grants.
# At each point only one has it, also when all had time to learn of the release.
sub serve(@waiting)
{
	my (@order, $doubles);
	while (@waiting)
	{
		my @granted;
		my $look = sub {
			my @new = grep { $_->{granted}->() } @waiting;
			push @granted, @new;
			my %new = map { $_->{name} => 1 } @new;
			@waiting = grep { !$new{ $_->{name} } } @waiting;
			return scalar @granted;
		};
		wait_until { $look->() }
		sub {
			'one of ' . join(' ', map { $_->{name} } @waiting) . " to be granted\n"
			  . join(' ', children()) . "\n" . join('', map { $_->describe_locks } values %server);
		};
		settle();
		$look->();
		$doubles .= ' ' . join('+', map { $_->{name} } @granted) if @granted > 1;
		push @order, map { $_->{name} } @granted;
		$_->{release}->() foreach @granted;
	}
	is($doubles, undef, 'never do two have it at once');
	return join(' ', @order);
}

# Nodes there must be for these arrivals: one for each foreigner, and one for each row
# of sessions of one server that nobody else is between.
sub expected_nodes
{
	my ($nodes, $last) = (0, '');
	foreach my $c (@_)
	{
		$nodes++ unless $c->{server} && $c->{server} eq $last;
		$last = $c->{server};
	}
	return $nodes;
}

sub names { return join(' ', map { $_->{name} } @_); }

my $number = 0;

subtest 'contenders of all kinds are served in the order of arrival' => sub {
	foreach my $mixture (
		'a b a b a b',
		'a a a b b a a b b b',
		'A a B b A A b a B',
		'a p a p b p b p a',
		'p a a k b j a b p b a',
		'k k b a p p a b j j a A B',
		'j a k b j a k b j',
		'b b b k a a a j b b b p a a a k k b a',
		map { "a a a a a a $_ a a a a a" } qw(k j p b))
	{
		$path = '/t/fifo/' . ++$number;
		my @queue = arrive(split / /, $mixture);
		is(scalar(children()), expected_nodes(@queue), "$mixture: one node for each run");
		is(serve(@queue), names(@queue), 'the order of grants is that of arrival');
	}
};

subtest 'the order stays that of arrival when some give up' => sub {
	$path = '/t/fifo/' . ++$number;
	my @all = arrive(qw(a a b p a b k a b b a j b a));
	my %gives_up = map { $_ => 1 } 1, 2, 4, 8, 9, 10;
	is($all[$_]{session}->cancelled, '57014', "$all[$_]{name} gives up") foreach sort { $a <=> $b } keys %gives_up;
	my @patient = @all[ grep { !$gives_up{$_} } 0 .. $#all ];
	is(serve(@patient), names(@patient), 'the order stays that of arrival when some give up');
};

subtest 'the order stays that of arrival when a foreigner gives up' => sub {
	# Those behind its node, who could not join the run before it, still come after that run.
	$path = '/t/fifo/' . ++$number;
	my @run = arrive(qw(a a));
	my ($quitter) = arrive('p');
	my @behind = arrive(qw(a b a));
	$quitter->{release}->();
	settle();
	my @last = arrive(qw(a b));
	is(serve(@run, @behind, @last), names(@run, @behind, @last), 'also if a foreigner gives up');
};

$java->close_session;
done_clean($zk, values %server);
