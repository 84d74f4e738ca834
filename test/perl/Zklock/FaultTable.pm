# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::FaultTable - what every recipe must survive, as a table of recipes and faults

=head1 SYNOPSIS

  use Zklock::FaultTable;

  Zklock::FaultTable->new->check('lock', 'shared lock');    # the whole test

=head1 THE TABLE

A session of server C<here>, which talks to ZooKeeper through a proxy, asks for something; the rival,
a session of server C<there>, wants the same. The faults come

  at each call    that the recipe makes of ZooKeeper, in asking and in giving back. Which these are is
                  found out by an undisturbed run
  at each call    that it makes when it has to wait for the rival first: requests and replies are lost
  while it waits  for the rival, whose turn it is
  while it has    what it asked for

Whatever happens, nobody has at the same time what one alone may have, what one has asked for it has
in the end, or is told why not, and nothing is left behind. Another session of C<here> holds a lock
all the time, and notices nothing as long as the ZooKeeper session lives. What becomes of the asking
session says C<outcome>:

  answered    the call returns what it returns undisturbed
  undone      the call fails, or ends, and nobody has what was asked for; a claim may have been made, and
              an element removed or added, at most once
  either      one of these two, whichever the call says. Of several locks those that were granted may
              be lost; whether a claim or an element was written may be beyond knowing
  unreachable undone, since ZooKeeper cannot be asked and the call does not wait
  lost        it had it, and has it no more

Each recipe is one entry of C<%recipes>. What it does differently stands there, as C<expect>, by the
name of the fault; after "waiting: " or "having: " if it is so only then.

  ask, answer     a statement, with PATH, and what it returns
  give, given     the statement that gives it back, and what that returns; none if there is nothing to
                  give back
  try, done       what the rival asks without waiting, and what it is told while the session has it;
                  of what is done once and for all: again, what it is told the next time, and undone,
                  what it is told first if the session has failed
  want            what the rival asks, waiting, when it can have it; to give back what it got: put
  nodes           how many nodes of waiting sessions and holders there are in which folder while it
                  has it; zk_locks names the same
  token           what rises from one holder to the next
  waits           what shows that the session waits for the rival
  prepare         what the rival does before
  over            what is done when all is over
  stand           which servers stand at the election
  family          of the names of candidates there, if it is not the default
  later           the calls of asking that the session need not wait for: it has its answer before
  only            faults come at these calls, and nowhere else: the rest is as with another recipe
  dialect         in which the server writes the names of nodes: C<dialects> names these recipes
  lost            requests and replies are lost, and nothing else happens
  lasts           the server has it, not the session, which may end, and so may its transaction
  loss            of what is not shown when it is lost: statements, with PATH and TOKEN, and what these tell
  workers         the worker is away, and comes back, at more moments; it takes its time
  leave           what a session whose call was cancelled does, since it has a part of what it asked for
  always          the outcome of all faults

Of a statement may stand a function instead, which gets the table and returns the text.

=cut

package Zklock::FaultTable;

use v5.36;

use parent 'Zklock::FaultTable::Story';

use Zklock::Cast qw(cancel_as_answered);
use Zklock::Test;

my %recipes = (
	'lock' => { ask => q{SELECT zk_lock('PATH')}, give => q{SELECT zk_unlock('PATH')}, workers => 1 },
	'shared lock' => { ask => q{SELECT zk_lock_shared('PATH')}, give => q{SELECT zk_unlock_shared('PATH')} },
	'semaphore' => {
		ask => q{SELECT zk_semaphore_acquire('PATH', 1)}, give => q{SELECT zk_semaphore_release('PATH')},
		try => q{SELECT zk_semaphore_acquire('PATH', 1, '0')},
		want => q{SELECT zk_semaphore_acquire('PATH', 1, '60s')}, put => q{SELECT zk_semaphore_release('PATH')},
		nodes => { '/leases' => 1, '/locks' => 0 }, token => undef },
	'tree' => {
		ask => q{SELECT zk_lock_tree('PATH/x/y', 'PATH')}, give => q{SELECT zk_unlock_tree('PATH/x/y', 'PATH')},
		try => q{SELECT zk_try_lock('PATH/x')}, want => q{SELECT zk_lock('PATH/x', '60s')}, put => q{SELECT zk_unlock('PATH/x')},
		nodes => { '/x' => 1, '/x/y' => 1 }, token => undef,
		# Our node above is read when the path below has been created, and may have been granted before that.
		later => qr/^(?:delete|getData)/,
		expect => { 'the ZooKeeper session ends' => 'either' } },
	'array' => {
		ask => q{SELECT zk_lock(ARRAY['PATH/1', 'PATH/2'])}, give => q{SELECT zk_unlock(ARRAY['PATH/1', 'PATH/2'])},
		try => q{SELECT zk_try_lock('PATH/2')},
		want => q{SELECT zk_lock(ARRAY['PATH/2', 'PATH/1'], '60s')}, put => q{SELECT zk_unlock(ARRAY['PATH/1', 'PATH/2'])},
		nodes => { '/1' => 1, '/2' => 1 }, token => undef,
		expect => { 'the ZooKeeper session ends' => 'either' } },
	'lock of a transaction' => { ask => q{BEGIN; SELECT zk_xact_lock('PATH')}, give => 'COMMIT', given => undef },
	# In the end it is a reader, and others read with it.
	'downgrade' => {
		ask => q{SELECT zk_lock('PATH') AND zk_lock_shared('PATH') AND zk_unlock('PATH')},
		give => q{SELECT zk_unlock_shared('PATH')}, leave => q{SELECT zk_unlock_all()}, only => qr/^multi/,
		# Its server learns of the new node after the rival's does.
		try => sub ($t) {
			my $got = $t->{rival}->query(
				"SELECT zk_lock_shared('$t->{path}', '60s') AND zk_unlock_shared('$t->{path}') AND NOT zk_try_lock('$t->{path}')");
			$t->{here}->settle;
			return $got;
		},
		done => 't', expect => { 'the ZooKeeper session ends' => 'lost' } },
	# A server stands again, by itself, whatever has happened.
	'election' => {
		ask  => sub ($t) { return $t->stand('here'); },
		told => sub ($t) { return $t->leads('here'); },
		give => sub ($t) { $t->{here}->set_conf('zklock.elections' => ''); return 't'; },
		# Its node is there before it is told that it leads.
		try  => sub ($t) { $t->leads('here'); return $t->{here}->value("SELECT NOT zk_is_leader('$t->{path}')"); },
		want => sub ($t) { $t->stand('there'); return $t->leads('there'); },
		put  => sub ($t) { $t->{there}->set_conf('zklock.elections' => ''); return 't'; },
		token => sub ($t, $who) { return $t->term($who eq 'rival' ? 'there' : 'here'); },
		waits => q{SELECT bool_or(state = 'ready') FROM zk_elections},
		always => 'answered' },
	# Who leads comes to stand behind the others, in one step, and has a new term if there are none.
	'resignation' => {
		stand => [qw(here there)],
		prepare => sub ($t) { return $t->begin_term; },
		ask => q{SELECT zk_resign('PATH')},
		try => sub ($t) { return $t->end_term; }, undone => 't', again => 'f', only => qr/^multi/,
		over => sub ($t) { $_->set_conf('zklock.elections' => '') foreach @{$t}{qw(here there)}; } },
	# A server gives way, by itself, to one of higher priority, and stands behind it, whatever has happened: here with the fault
	# prefer-at-once, so as not to wait for the pause before each time.
	'giving way' => {
		stand => [qw(here there)],
		prepare => sub ($t) { return $t->begin_term; },
		ask  => sub ($t) { return $t->stand('there', ' priority 1'); },
		told => sub ($t) { $t->leads('there'); return $t->leads('here', 'ready'); },
		try  => sub ($t) { return $t->end_term; }, again => 'f', only => qr/^(?:multi|getData)/, always => 'answered',
		over => sub ($t) { $_->set_conf('zklock.elections' => '') foreach @{$t}{qw(here there)}; } },
	'claim' => {
		prepare => q{SELECT zk_claim('PATH', '2026-01-01')},
		ask => q{SELECT zk_claim('PATH', '2026-01-02')},
		try => q{SELECT zk_claim('PATH', '2026-01-02')}, undone => 't', again => 'f' },
	'first claim' => {
		ask => q{SELECT zk_claim('PATH/job', '2026-01-02')},
		try => q{SELECT zk_claim('PATH/job', '2026-01-02')}, undone => 't', again => 'f' },
	'persistent lock' => {
		prepare => q{SELECT zk_lock('PATH') AND zk_unlock('PATH')},
		ask => q{SELECT zk_lock_persistent('PATH') IS NOT NULL},
		try => q{SELECT zk_lock_persistent('PATH') IS NOT NULL}, undone => 't', again => 'f' },
	# The session has nothing of it, but its transaction relies on it. One whose node is still to be deleted is shown, too.
	'reservation' => {
		ask => q{BEGIN; SELECT zk_rely('PATH', zk_reserve('PATH', '1h')) IS NOT NULL},
		give => q{COMMIT; SELECT zk_unreserve('PATH', coalesce((SELECT fencing_token FROM zk_locks WHERE path = 'PATH' AND scope = 'reservation' AND granted), 1))},
		token => q{SELECT fencing_token FROM zk_locks WHERE path = 'PATH' AND granted}, workers => 1, lasts => 1,
		loss => { 'COMMIT' => '40001', q{SELECT zk_rely('PATH', TOKEN)} => '40001', q{SELECT zk_renew('PATH', TOKEN, '1h')} => 'f' },
		expect => { 'having: the backend is terminated' => 'answered' } },
	'element offered' => {
		ask => q{SELECT zk_queue_offer('PATH', 'x') ~ '^qn-'},
		try => q{SELECT convert_from(zk_queue_remove('PATH'), 'UTF8')}, undone => '', done => 'x', again => '' },
	'element removed' => {
		prepare => q{SELECT zk_queue_offer('PATH', 'x'); SELECT zk_queue_offer('PATH', 'y')},
		ask => q{SELECT convert_from(zk_queue_remove('PATH'), 'UTF8')}, answer => 'x',
		try => sub ($t) { return $t->drain; }, undone => 'x y', done => 'y', again => '' },
	'element taken' => {
		prepare => q{SELECT zk_queue_offer('PATH', 'x')},
		ask => q{SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('PATH', '30s')}, answer => 'x',
		try => q{SELECT convert_from(zk_queue_remove('PATH'), 'UTF8')}, undone => 'x', done => '', again => '',
		later => qr/^(?:removeWatches|getData .*claim|delete)/ });

# It does not wait until the holder has one node only.
$recipes{'downgrade of a subtransaction'} = {
	%{ $recipes{downgrade} }, later => qr/^(?:delete|multi)/,
	ask => q{BEGIN; SAVEPOINT s; SELECT zk_xact_lock('PATH') AND zk_lock_shared('PATH'); ROLLBACK TO s; COMMIT; SELECT true} };
$recipes{'try-lock'} = {
	%{ $recipes{'lock'} }, ask => q{SELECT zk_try_lock('PATH')}, workers => 0, only => qr/^(?:create2|getChildren)/,
	expect => {
		map({ $_ => 'unreachable' } qw(lose_request lose_reply), 'the connection is cut'),
		map({ $_ => 'either' } 'the worker is terminated', 'the ZooKeeper session ends') } };

# What the names look like matters where one is looked for that may have been created or deleted.
my @dialects = qw(curator_rw kazoo zookeeper hive);
foreach my $dialect (@dialects)
{
	$recipes{"$_, $dialect"} = {
		%{ $recipes{$_} }, dialect => $dialect, lost => 1, only => qr/^(?:create2|delete|multi)/ }
	  foreach 'lock', 'shared lock', 'downgrade';
}

# So does whether a candidate has a name by which it can be found.
foreach my $family (qw(zookeeper lock))
{
	$recipes{"election, $family"} = { %{ $recipes{election} }, family => $family, lost => 1, only => qr/^(?:create2|delete)/ };
	$recipes{"$_, $family"} = { %{ $recipes{$_} }, family => $family } foreach 'resignation', 'giving way';
}
$recipes{"$_ without rivals"} = { %{ $recipes{$_} }, stand => ['here'], lost => 1 } foreach grep { /^resignation/ } keys %recipes;

sub dialects(@names) { return map { my $name = $_; map { "$name, $_" } @dialects } @names; }

# What is the same for most
foreach my $recipe (values %recipes)
{
	my %of_all = (answer => 't', done => 'f', later => qr/^delete/);
	my %of_kind = $recipe->{give}
	  ? ( given => 't', nodes => { '' => 1 }, expect => {},
		try => q{SELECT zk_try_lock('PATH')}, token => q{SELECT zk_fencing_token('PATH')},
		want => q{SELECT zk_lock('PATH', '60s')}, put => q{SELECT zk_unlock('PATH')})
	  : (nodes => {}, expect => { 'the ZooKeeper session ends' => 'either' });
	%$recipe = (%of_all, %of_kind, %$recipe);
}

# The state in which a call is when the fault comes, and how the proxy brings it there
my %held = ('before it arrives' => 'hold_request', 'before its answer' => 'hold_reply');

# What may happen at any time, and what it means for one that has what it asked for
my @at_any_time = (
	[ 'the connection is cut', sub ($t) { $t->{proxy}->drop; return 'answered'; } ],
	[ 'the worker is terminated', sub ($t) { $t->{here}->restart_worker; return 'answered'; } ],
	[ 'the worker is killed', sub ($t) { return $t->crash($t->{here}->worker_pid); } ],
	[ 'the ZooKeeper session ends', sub ($t) {
			$t->{here}->expire_session($t->{zk});
			$t->{proxy}->drop;
			return 'lost';
		} ],
	[ 'the backend is killed', sub ($t) { return $t->crash($t->{session}->pid); } ]);

my $cancelled = [ 'the backend is cancelled', sub ($t) { $t->{session}->cancel; return $t->ended('57014'); } ];

# What happens while a call is under way; each ends with a connection that stands.
my @at_call = (
	@at_any_time,
	$cancelled,
	[ 'the backend is cancelled, then the connection cut', sub ($t) {
			$t->{session}->cancel;
			my $outcome = $t->ended('57014');
			$t->{proxy}->drop;
			return $outcome;
		} ],
	[ 'the backend is cancelled, then there is no worker', sub ($t) {
			$t->{session}->cancel;
			my $outcome = $t->ended('57014');
			$t->{here}->restart_worker;
			return $outcome;
		} ],
	[ 'the backend is cancelled while there is no worker', sub ($t) {
			$t->next_has_it($t->cancelled_without_worker);
			return 'undone';
		} ],
	[ 'the backend is terminated', sub ($t) { $t->{session}->terminate; return $t->ended('57P01'); } ],
	[ 'the backend is cancelled as the answer comes', sub ($t) {
			cancel_as_answered($t->{session}, sub { $t->{proxy}->heal; $t->{here}->settle; });
			return $t->ended('57014');
		} ]);

sub hang($t)
{
	$t->{proxy}->blackhole;
	$t->{here}->wait_session('connecting');
	return 'answered';
}

# What happens while it waits for the rival, or has what it asked for. One that waits goes on waiting, unless its
# call has ended.
my @at_rest = (
	@at_any_time,
	[ 'its server hangs', \&hang ],
	[ 'its nodes are deleted', sub ($t) { $t->delete_nodes($t->{here}); return 'lost'; } ],
	[ 'the path is deleted', sub ($t) { $t->delete_path; return 'lost'; } ],
	[ 'the backend is terminated', sub ($t) { $t->{here}->terminate_backend($t->{session}->pid); return 'undone'; } ]);

# What happens besides while it waits
my @while_waiting = (
	$cancelled,
	[ 'the backend is cancelled as its turn comes', sub ($t) {
			cancel_as_answered($t->{session}, sub { $t->part('put'); $t->is_granted; });
			return $t->ended('57014');
		} ],
	(   map {
			my $when = $_;
			[ "the backend is cancelled, then there is no worker: the delete, $when", sub ($t) {
					my $hold = $held{$when};
					my $fault = $t->{proxy}->$hold(op => 'delete', path => "^$t->{path}/");
					$t->{session}->cancel;
					my $outcome = $t->ended('57014');
					$t->{proxy}->fired($fault);
					$t->{here}->restart_worker;
					wait_until { 1 == $t->{zk}->children($t->{path}) } 'the next worker to delete the node';
					return $outcome;
				} ]
		} sort keys %held),
	[ 'who was before it loses its node', sub ($t) { $t->delete_nodes($t->{there}); return 'answered'; } ]);

# What happens besides while the server has what was asked for: it stays
my @while_lasting = (
	[ 'the transaction is rolled back', sub ($t) { $t->{session}->query('ROLLBACK'); return 'answered'; } ],
	[ 'the session forgets everything', sub ($t) { $t->{session}->query($_) foreach 'ROLLBACK', 'DISCARD ALL'; return 'answered'; } ],
	[ 'the session ends', sub ($t) {
			$t->{session}->disconnect;
			wait_until { !kill 0, $t->{session}->pid } 'its backend to be gone';
			return 'answered';
		} ]);

# What server C<here> is besides
sub new($class, %here)
{
	my $self = bless { paths => 0 }, $class;
	@{$self}{qw(zk proxy here there)} = cast('here there', proxied => 'here', timeout => '12s', here => \%here);
	$self->{rival} = $self->{there}->session(name => 'rival');
	$self->stand_by;
	return $self;
}

sub check($self, @names)
{
	foreach my $name (@names)
	{
		$self->{recipe} = $recipes{$name} or die "there is no recipe $name\n";
		$self->{here}->write_dialect($self->{recipe}{dialect}, $self->{here}->session) if $self->{recipe}{dialect};
		subtest $name => sub {
			my ($asking, $giving) = $self->calls;
			my $only = $self->{recipe}{only} // qr/./;
			$self->check_calls('asking', grep { $_->[0] =~ $only } @$asking);
			$self->check_calls('giving', grep { $_->[0] =~ $only } @$giving) if $giving;
			$self->part('over') if $self->{recipe}{over};
			return if !$self->{recipe}{give} || $self->{recipe}{only};
			$self->check_calls_behind;
			$self->check_worker_behind if $self->{recipe}{workers};
			# With the path goes who was before it: outages/node_deleted.pl has what may come of that.
			$self->check_at_rest('waiting', @while_waiting, grep { $_->[0] !~ /^the path/ } @at_rest);
			$self->check_at_rest('having', @at_rest, $self->{recipe}{lasts} ? @while_lasting : ());
		};
	}
	my @resting = grep { $_->{give} && !$_->{only} && !ref $_->{ask} } map { $recipes{$_} } @names;
	subtest 'a server that hangs' => sub { $self->check_hang(@resting) } if @resting;
	unlike($_->log_since(0), qr/zklock worker" \(PID \d+\) exited with exit code (?!1\b)|zklock worker.* PANIC/,
		$_->name . ': no worker has left with another exit code than 1') foreach @{$self}{qw(here there)};
	return done_clean(@{$self}{qw(zk here there)});
}

# ---- faults at each call -------------------------------------------------------

# The calls of two undisturbed runs, in asking and in giving back, each kind once: [ op, pattern of its
# path, only on a new path? ], where PATH stands for the path
sub calls($self)
{
	my (@calls, %seen);
	foreach my $new (0, 1)
	{
		$self->begin;
		$self->make_folders if !$new;
		foreach my $what ('ask', $self->{recipe}{give} ? 'give' : ())
		{
			$self->{here}->settle;
			$self->{proxy}->reset_counts;
			$self->begin_part($what);
			$self->result;
			wait_until { !$self->{here}->lock_count("state = 'releasing'") } 'what is given back to be gone';
			push @{ $calls[ $what eq 'give' ] }, map { [ @$_, $new ] } grep { !$seen{"@$_"}++ } $self->kinds;
		}
		$self->nothing_left('undisturbed');
	}
	note("$_->[0] $_->[1]", $_->[2] ? ', on a new path' : '') foreach map { @$_ } @calls;
	return @calls;
}

sub kinds($self)
{
	my @kinds;
	foreach my $request (@{ $self->{proxy}->requests })
	{
		my ($op, $path) = @$request;
		next unless defined $path && $path =~ m{^(?:\Q$self->{path}\E(?:/|$)|/zklock-[^/]+/)};
		# What is made once for all is not made again.
		my $pattern = '^' . quotemeta($path) . '$';
		$pattern = "^$1" if $path =~ m{^(/zklock-[^/]+/)};
		$pattern =~ s/^\^\Q\Q$self->{path}\E\E/^PATH/;
		$pattern =~ s/[0-9a-f]{8}(?:\\?-?[0-9a-f]{4}){3}\\?-?[0-9a-f]{12}/[-0-9a-f]{32,36}/g;
		$pattern =~ s{/x\\-\K[0-9a-f]{16}}{[0-9a-f]{16}};
		$pattern =~ s/\d{10}\$$/\\d{10}\$/;
		push @kinds, [ $op, $pattern ];
	}
	return @kinds;
}

# Arguments for the proxy
sub fault_at($self, $call)
{
	return (op => $call->[0], path => $call->[1] =~ s/PATH/\Q$self->{path}\E/r, any => !is_write($call));
}

sub is_write($call) { return $call->[0] =~ /^(?:create|delete|set|multi)/; }

sub check_calls($self, $phase, @calls)
{
	my $proxy = $self->{proxy};
	foreach my $call (@calls)
	{
		my $what = "$phase: $call->[0] " . $call->[1] =~ s/\[-0-9a-f\]\{32,36\}/ID/r =~ s/[\\^\$]//gr;
		foreach my $lose (qw(lose_request lose_reply))
		{
			$self->story_at_call($phase, $call, $lose, sub { return $proxy->$lose($self->fault_at($call)); },
				sub { return 'answered'; }, "$what, $lose");
		}
		foreach my $when (sort keys %held)
		{
			my $hold = $held{$when};
			foreach my $fault (@at_call)
			{
				my ($happens, $do) = @$fault;
				next unless $self->applies($happens);
				# Whether ZooKeeper has read something is all the same to us, but not to the next worker.
				next if $hold eq 'hold_request' && !is_write($call) && $happens !~ /no worker$/;
				# After a crash of the server only what ZooKeeper has done is left.
				next if $happens =~ /killed/ && !($hold eq 'hold_reply' && is_write($call));
				# A COMMIT waits for none.
				next if $happens =~ /as the answer comes$/ && ($hold eq 'hold_request' || $phase eq 'giving' && !defined $self->{recipe}{given});
				next if $phase eq 'giving' && $happens =~ /no worker$/;
				next if $phase eq 'asking' && "$call->[0] $call->[1]" =~ $self->{recipe}{later} && $happens =~ /^the (?:backend|ZooKeeper session)|killed/;
				$self->story_at_call($phase, $call, $happens, sub { return $proxy->$hold($self->fault_at($call)); },
					$do, "$what, $when $happens");
			}
		}
	}
	return;
}

sub story_at_call($self, $phase, $call, $happens, $prepare, $do, $name)
{
	$self->begin;
	$self->make_folders if !$call->[2];
	if ($phase eq 'giving')
	{
		$self->begin_part('ask');
		$self->result;
	}
	my $fault = $prepare->();
	local $self->{giving} = $phase eq 'giving';
	$self->begin_part($phase eq 'giving' ? 'give' : 'ask');
	# What is made once for all paths need not be made again.
	if (!eval { $self->{proxy}->fired($fault, 20); 1 })
	{
		fail("$name: the call is made");
		return;
	}
	# What it does not have yet, it does not lose.
	my $outcome = $self->outcome($happens, $do->($self) =~ s/lost/answered/r);
	is($self->part('try'), $self->{recipe}{done}, "$name: the one node is there until ZooKeeper hears of it")
	  if $phase eq 'giving' && $name =~ /before it arrives the backend is (?:cancelled|terminated)$/
	  && 1 == grep { $_ } values %{ $self->{recipe}{nodes} };
	$self->{proxy}->heal;
	if ($phase eq 'asking')
	{
		$self->has_become($outcome, $name);
	}
	else
	{
		# Whatever is told, it is given back.
		my $result = delete $self->{result} // $self->result;
		is($result->{text}, $self->{recipe}{given} // '', "$name: the call returns") if $outcome eq 'answered';
		if ($outcome eq 'answered' && !ref $self->{recipe}{ask})
		{
			$self->begin_part('ask');
			is($self->result->{text}, $self->{recipe}{answer}, "$name: the session can have it again");
			is($self->part('give'), $self->{recipe}{given} // '', "$name: and give it back");
		}
		is($self->part('give'), 'f', "$name: it is held no more") if $happens eq 'the backend is cancelled' && $self->{recipe}{given};
		$self->{here}->wait_session;
		$self->rival_gets_it($name);
		$self->nothing_left($name);
	}
	return;
}

# Requests and replies are lost while a session waits for the rival, and when that has gone.
sub check_calls_behind($self)
{
	my $recipe = $self->{recipe};
	my $story = sub ($name, $prepare) {
		$self->begin;
		is($self->part('want'), 't', "$name: the rival has it");
		$self->{here}->settle;
		$self->{proxy}->reset_counts;
		my $fault = $prepare->();
		$self->begin_part('ask');
		$self->{here}->wait_value($recipe->{waits} // 'SELECT bool_or(blocked_by_node IS NOT NULL) FROM zk_locks', 't');
		$self->part('put');
		my @kinds = $self->kinds;
		$self->has_become('answered', $name);
		return $fault ? $self->{proxy}->has_fired($fault) : @kinds;
	};
	my %seen;
	foreach my $call (grep { !$seen{"@$_"}++ } $story->('behind the rival, undisturbed', sub { }))
	{
		foreach my $lose (qw(lose_request lose_reply))
		{
			my $name = "behind the rival: $lose of $call->[0] $call->[1]" =~ s/[\\^\$]//gr;
			ok($story->($name, sub { return $self->{proxy}->$lose($self->fault_at($call)); }), "$name: it has happened");
		}
	}
	return;
}

# The worker goes while it finds out for whom the session waits.
sub check_worker_behind($self)
{
	foreach my $when (sort keys %held)
	{
		my ($name, $hold) = ("behind the rival: getData, the worker goes $when", $held{$when});
		$self->begin;
		is($self->part('want'), 't', "$name: the rival has it");
		my $fault = $self->{proxy}->$hold(op => 'getData', path => "^$self->{path}/");
		$self->begin_part('ask');
		$self->{proxy}->fired($fault);
		my $next = $self->cancelled_without_worker;
		delete $self->{result};
		ok($next->busy, "$name: who has not given up waits");
		wait_until { 2 == $self->{zk}->children($self->{path}) } "$name: the waiter to have one node, besides the rival's";
		$self->part('put');
		$self->next_has_it($next);
		$self->{proxy}->heal;
		$self->nothing_left($name);
	}
	return;
}

# ---- faults while it waits, and while it has it ---------------------------------

# Deletes the nodes that sessions of a server have on the path.
sub delete_nodes($self, $server)
{
	my $id    = $server->session_id;
	my $shell = $self->{zk}->shell;
	foreach my $folder (sort keys %{ $self->{recipe}{nodes} })
	{
		my $path = "$self->{path}$folder";
		my ($nodes, $owners) = map { [ eval { $self->{zk}->$_($path) } ] } qw(children owners);
		foreach my $i (grep { $nodes->[$_] =~ /\d{10}$/ && $owners->[$_] eq $id } 0 .. $#$nodes)
		{
			eval { $shell->delete("$path/$nodes->[$i]") };
		}
	}
	return;
}

# Deletes the path and all below it, before the server here looks.
sub delete_path($self)
{
	my $worker = $self->{here}->worker_pid;
	freeze($worker);
	$self->{zk}->shell->delete($self->{path}, recursive => 1);
	thaw($worker);
	return;
}

# The rival has it, and the session waits.
sub wait_behind($self, $name)
{
	$self->begin;
	is($self->part('want'), 't', "$name: the rival has it");
	$self->begin_part('ask');
	$self->{here}->wait_value($self->{recipe}{waits}
		  // "SELECT bool_or(blocked_by_node IS NOT NULL) FROM zk_locks WHERE path LIKE '$self->{path}%'", 't');
	$self->{there}->settle;
	return;
}

sub has_waited($self, $happens, $outcome, $name)
{
	if ($outcome ne 'undone')
	{
		$self->{here}->wait_session;
		ok($self->{session}->busy, "$name: it waits on") if $happens !~ /^who was/ && !$self->{told};
	}
	eval { $self->part('put') };
	$self->has_become($outcome eq 'lost' ? 'answered' : $outcome, $name);
	return;
}

sub have($self, $name)
{
	$self->begin;
	$self->begin_part('ask');
	is($self->result->{text}, $self->{recipe}{answer}, "$name: it has it");
	$self->{had} = $self->token('session') if $self->{recipe}{loss};
	return;
}

sub has_had($self, $happens, $outcome, $name)
{
	$self->{here}->wait_session;
	if ($outcome eq 'answered')
	{
		# Nothing is released late. What outlasts its session another one gives back.
		$self->{here}->settle;
		$self->{session} = $self->{here}->session(name => 'another') if $happens =~ /^the (?:backend|session)/;
		$self->has_it($name);
	}
	else
	{
		$self->is_told_of_loss($name) if $outcome =~ /^(?:lost|either)$/;
		$self->rival_gets_it($name);
	}
	$self->nothing_left($name);
	return;
}

# How a story begins and ends
my %rest = (waiting => [ 'wait_behind', 'has_waited' ], having => [ 'have', 'has_had' ]);

sub check_at_rest($self, $state, @faults)
{
	my ($begin, $end) = @{ $rest{$state} };
	foreach my $fault (grep { $self->applies($_->[0]) } @faults)
	{
		my ($happens, $do) = @$fault;
		$self->$begin("$state: $happens");
		my $outcome = $self->outcome($happens, $do->($self), $state);
		$self->{proxy}->heal;
		$self->$end($happens, $outcome, "$state: $happens");
	}
	return;
}

# It takes long until a server that hangs is noticed: it does so for all at once.
sub check_hang($self, @recipes)
{
	my @story = qw(recipe path session had);
	my @stories;
	foreach my $recipe (@recipes)
	{
		foreach my $state (sort keys %rest)
		{
			my ($begin, $end) = @{ $rest{$state} };
			delete $self->{session};
			$self->{recipe} = $recipe;
			my $name = "$state: $recipe->{ask}";
			$self->$begin($name);
			push @stories, { map({ $_ => $self->{$_} } @story), name => $name, end => $end };
		}
	}
	local $self->{together} = 1;
	my $outcome = hang($self);
	$self->{proxy}->heal;
	foreach my $story (@stories)
	{
		my $end = $story->{end};
		@{$self}{@story} = @{$story}{@story};
		$self->$end('its server hangs', $outcome, $story->{name});
		$self->{session}->disconnect;
	}
	return;
}

1;
