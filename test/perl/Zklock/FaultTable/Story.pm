# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::FaultTable::Story - the parts of a story of the table of faults

=head1 SYNOPSIS

  use parent 'Zklock::FaultTable::Story';

=head1 DESCRIPTION

How a story of L<Zklock::FaultTable> begins and ends, and what is true of it: whether the asking session
has what it asked for, what the rival is told, and that nothing is left behind. The object has the
servers C<here> and C<there>, the sessions C<session>, C<rival> and C<bystander>, C<zk>, C<proxy>,
C<path> and C<recipe>.

=cut

package Zklock::FaultTable::Story;

use v5.36;

use Test::More;
use Zklock::Server;
use Zklock::Util qw(wait_until);

# Does a part of the story, and returns what it was told.
sub part($self, $what)
{
	my $part = $self->{recipe}{$what};
	return $part->($self) if ref $part;
	my $session = $what =~ /^(?:ask|give|leave)$/ ? $self->{session} : $self->{rival};
	return $session->query($part =~ s/PATH/$self->{path}/gr);
}

# Begins it, in the session
sub begin_part($self, $what)
{
	my $part = $self->{recipe}{$what};
	if (ref $part) { $self->{told} = { ok => 1, text => scalar $part->($self) }; }
	else           { $self->{session}->query_start($part =~ s/PATH/$self->{path}/gr); }
	return;
}

# What that came to
sub result($self)
{
	my $told = delete $self->{told};
	return $told && !defined $told->{text} ? { ok => 1, text => $self->{recipe}{told}->($self) } : $told // $self->{session}->result;
}

sub stand($self, $where, $priority = '')
{
	$self->{$where}->set_conf('zklock.elections' => join('=', $self->{path}, $self->{recipe}{family} // ()) . $priority);
	return;
}

sub leads($self, $where, $state = 'elected')
{
	$self->{$where}->wait_value("SELECT coalesce((SELECT state FROM zk_elections WHERE path = '$self->{path}'), 'none')", $state);
	return 't';
}

sub term($self, $where) { return $self->{$where}->value("SELECT zk_fencing_token('$self->{path}')"); }

# All stand, and the first of them leads.
sub begin_term($self)
{
	my ($first, @others) = @{ $self->{recipe}{stand} };
	$self->stand($first);
	$self->leads($first);
	$self->{term} = $self->term($first);
	foreach my $other (@others)
	{
		$self->stand($other);
		$self->leads($other, 'ready');
	}
	return;
}

# Ends the term, unless that has been done: has it? Then the last leads in a later one, and each has one node.
sub end_term($self)
{
	my $term  = "SELECT coalesce(max(term), 0) %s $self->{term} FROM zk_elections WHERE path = '$self->{path}'";
	my @stand = map { $self->{$_} } @{ $self->{recipe}{stand} };
	my $goes_on = $stand[0]->value(sprintf $term, '=');
	$stand[0]->value("SELECT zk_resign('$self->{path}')") if $goes_on eq 't';
	$stand[-1]->wait_value(sprintf($term, '>') . ' AND is_leader', 't');
	$_->wait_session foreach @stand;
	my $order = join ' ', map { $_->session_id } reverse @stand;
	wait_until { $order eq join ' ', $self->{zk}->owners($self->{path}) } 'all to stand once, who resigned as the last';
	return $goes_on;
}

# A new path, and a session that will ask there
sub begin($self)
{
	# Beside another one the path would be created ahead of its nodes, or not: requests/parents.pl.
	my $parent = '/table/' . ++$self->{paths};
	$self->{zk}->shell->create($parent, makepath => 1);
	$self->{path} = "$parent/path";
	$self->{proxy}->clear;
	$self->{here}->reconnect($self->{proxy});
	$self->{session}->disconnect if $self->{session};
	$self->{session} = $self->{here}->session(name => 'session');
	$self->stand_by;
	$self->part('prepare') if $self->{recipe}{prepare};
	return;
}

# A session holds another lock, unless it was lost for a reason: a new ZooKeeper session
sub stand_by($self)
{
	my $id = $self->{here}->session_id;
	my $held = 'SELECT zk_fencing_token(\'/bystander\')';
	if (($self->{session_id} // '') eq $id)
	{
		is($self->{bystander}->query($held), $self->{token}, 'another lock of the server is held') or die 'lost';
		return;
	}
	$self->{bystander}->disconnect if $self->{bystander};
	$self->{session_id} = $id;
	$self->{bystander}  = $self->{here}->session(name => 'bystander');
	$self->{bystander}->query(q{SELECT zk_lock('/bystander')});
	$self->{token} = $self->{bystander}->query($held);
	return;
}

# What the rival finds in a queue
sub drain($self)
{
	my @elements;
	while ((my $element = $self->{rival}->query("SELECT convert_from(zk_queue_remove('$self->{path}'), 'UTF8')")) ne '')
	{
		push @elements, $element;
	}
	return "@elements";
}

# The nodes with a number in each folder
sub nodes($self)
{
	my %nodes;
	foreach my $folder (keys %{ $self->{recipe}{nodes} })
	{
		$nodes{$folder} = [ grep { /\d{10}$/ } eval { $self->{zk}->children("$self->{path}$folder") } ];
	}
	return %nodes;
}

sub count_nodes($self) { my %nodes = $self->nodes; return { map { $_ => scalar @{ $nodes{$_} } } keys %nodes }; }

# Nothing of this path is left, on the servers and in ZooKeeper.
sub nothing_left($self, $name)
{
	my $left;
	my $clean = eval {
		wait_until
		{
			my $count = $self->count_nodes;
			$left = join ', ', map { "$count->{$_} in PATH$_" } grep { $count->{$_} } sort keys %$count;
			my $where = $self->{together} ? "path = '$self->{path}' OR path LIKE '$self->{path}/%'" : "path <> '/bystander'";
			$left .= $_->describe_locks foreach grep { $_->lock_count($where) } @{$self}{qw(here there)};
			$left .= 'receipts' if $self->{zk}->children('/zklock-receipts');
			$left eq '';
		}
		'nothing to be left';
	};
	ok($clean, "$name: nothing is left") or diag($left || $@);
	return;
}

# The session has it, once, and gives it back; then the rival has it.
sub has_it($self, $name)
{
	my $recipe = $self->{recipe};
	wait_until { eq_hash($self->count_nodes, $recipe->{nodes}) } sub { "$name: one node of each kind\n" . $self->{here}->describe_locks };
	is($self->part('try'), $recipe->{done}, "$name: nobody else has it");
	if ($recipe->{give})
	{
		my %nodes = $self->nodes;
		my $known = $self->{here}->value("SELECT string_agg(node, ' ' ORDER BY node) FROM zk_locks WHERE path LIKE '$self->{path}%'");
		is(join(' ', sort map { @$_ } values %nodes), $known, "$name: zk_locks names the nodes") if !ref $recipe->{ask};
		my $token = $recipe->{token} && $self->token('session');
		is($self->part('give'), $recipe->{given} // '', "$name: it is given back");
		$self->rival_gets_it($name, $token);
	}
	else
	{
		is($self->part('try'), $recipe->{again}, "$name: nor will");
	}
	return;
}

sub token($self, $who)
{
	my $token = $self->{recipe}{token};
	return ref $token ? $token->($self, $who) : $self->{$who}->query($token =~ s/PATH/$self->{path}/r);
}

sub rival_gets_it($self, $name, $token = undef)
{
	is($self->part('want'), 't', "$name: the rival gets it");
	cmp_ok($self->token('rival'), '>', $token, "$name: with a higher token") if $token;
	is($self->part('put'),  't', "$name: and gives it back");
	return;
}

sub is_told_of_loss($self, $name)
{
	my $loss = $self->{recipe}{loss};
	$self->{here}->wait_value($loss ? "SELECT count(*) = 0 FROM zk_locks WHERE path = '$self->{path}'"
		: "SELECT bool_or(state = 'lost') FROM zk_locks WHERE path <> '/bystander'", 't');
	# Of a token that the server does not know ZooKeeper is asked.
	$self->{here}->wait_session if $loss;
	foreach my $statement (sort keys %{ $loss // {} })
	{
		my $result = $self->{session}->try($statement =~ s/PATH/$self->{path}/r =~ s/TOKEN/$self->{had}/r);
		is($result->{ok} ? $result->{text} : $result->{sqlstate}, $loss->{$statement}, "$name: $statement");
	}
	is(eval { $self->part('give') } // 'f', 'f', "$name: it is told of the loss");
	return;
}

# The process dies, and with it the server's ZooKeeper session.
sub crash($self, $pid)
{
	my $mark = $self->{here}->log_mark;
	kill 'KILL', $pid;
	$self->{here}->wait_log(qr/all server processes terminated; reinitializing/, $mark);
	wait_until { eval { $self->{here}->value('SELECT 1') } } 'the server to be back';
	return 'undone';
}

# The call has ended by itself, before things go on.
sub ended($self, $sqlstate)
{
	my $result = $self->{result} = $self->{session}->result;
	# What is given back may be gone before.
	return 'undone' if $self->{giving} && $result->{ok};
	is($result->{sqlstate}, $sqlstate, 'it ends');
	return 'undone';
}

# What the session waits for is there, whether it knows or not.
sub is_granted($self)
{
	return $self->{here}->wait_value("SELECT count(*) FROM zk_locks WHERE state <> 'held' AND pid = " . $self->{session}->pid, 0);
}

# Another session of the server asks, too. The first one gives up while there is no worker.
sub cancelled_without_worker($self)
{
	my $next = $self->{here}->session(name => 'next');
	$next->start_waiting($self->{recipe}{ask} =~ s/PATH/$self->{path}/gr);
	my $worker = $self->{here}->worker_away;
	$self->{session}->cancel;
	$self->ended('57014');
	$self->{here}->worker_back($worker);
	return $next;
}

sub next_has_it($self, $next)
{
	my $recipe = $self->{recipe};
	is($next->finish, $recipe->{answer}, 'another session of the server has it');
	wait_until { eq_hash($self->count_nodes, $recipe->{nodes}) } 'one node of each kind';
	is($next->query($recipe->{give} =~ s/PATH/$self->{path}/gr), $recipe->{given} // '', 'and gives it back');
	return;
}

# A server that stands at an election has no session of its own for that. One that hangs does so for
# all sessions at once.
sub applies($self, $happens)
{
	my $recipe = $self->{recipe};
	return 0 if $recipe->{lost} || $happens =~ /no worker/ && !$recipe->{workers};
	return $happens !~ (ref $self->{recipe}{ask} ? qr/^the backend/ : qr/^its server/);
}

sub outcome($self, $happens, $outcome, $state = '')
{
	my $recipe = $self->{recipe};
	return $recipe->{always} // $recipe->{expect}{"$state: $happens"} // $recipe->{expect}{$happens} // $outcome;
}

# What has become of the asking session is what it should be.
sub has_become($self, $outcome, $name)
{
	my $recipe = $self->{recipe};
	my $result = delete $self->{result} // $self->result;
	$outcome = $result->{ok} ? 'answered' : 'undone' if $outcome eq 'either';
	if ($outcome eq 'answered')
	{
		is($result->{text}, $recipe->{answer}, "$name: the call returns") or diag $result->{error};
		$self->has_it($name);
	}
	elsif ($outcome eq 'lost')
	{
		$self->is_told_of_loss($name);
		$self->part('leave');
		$self->rival_gets_it($name);
	}
	else
	{
		ok(!$result->{ok}, "$name: the call fails") or diag $result->{text};
		is($result->{sqlstate}, '58030', "$name: since nobody can be asked") if $outcome eq 'unreachable';
		$self->{here}->wait_session;
		$self->part('leave') if $recipe->{leave} && $result->{sqlstate} eq '57014';
		if ($recipe->{give})
		{
			$self->rival_gets_it($name);
		}
		else
		{
			# An element whose claim is being given back is nobody's to remove yet. What was under way
			# when the call ended has been answered when the server has settled.
			$self->{here}->settle;
			wait_until { !$self->claims } "$name: what was given up to be gone";
			$self->is_done_once($name);
		}
	}
	$self->nothing_left($name);
	return;
}

# The nodes below those of the path: what claims elements
sub claims($self)
{
	my ($zk, $path) = @{$self}{qw(zk path)};
	return map { my $node = $_; eval { $zk->children("$path/$node") } } eval { $zk->children($path) };
}

# It may have been done: somebody who tries again is told whether, and then it was.
sub is_done_once($self, $name)
{
	my $recipe = $self->{recipe};
	like($self->part('try'), qr/^(?:$recipe->{undone}|$recipe->{done})$/, "$name: another one is told whether it was done");
	is($self->part('try'), $recipe->{again}, "$name: not twice");
	return;
}

# The path, so that a create does not fail for want of it
sub make_folders($self)
{
	return if $self->{recipe}{prepare};
	my @folders = keys %{ $self->{recipe}{nodes} };
	my $shell   = $self->{zk}->shell;
	foreach my $folder (@folders ? sort @folders : '')
	{
		my $path = "$self->{path}$folder";
		$shell->create($path, makepath => 1) if !$shell->exists($path);
	}
	return;
}

1;
