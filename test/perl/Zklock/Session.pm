# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Session - one SQL session, with statements that run in the background

=head1 SYNOPSIS

  my $s = $server->session;                  # or session(user => 'bob', dbname => 'd')

  my $text = $s->query('SELECT 1, true');    # '1|t': as psql -At; croaks on an error
  my $r = $s->try('SELECT 1/0');             # never croaks: see below

  $s->query_start("SELECT zk_lock('/a')");   # returns at once
  ... $s->busy ...
  my $r = $s->result;                        # waits for its end (at most as long as Zklock::Util says)
  my $text = $s->finish;                     # the same, but the text; croaks on an error

  $s->start_waiting($sql [, $path]);     # query_start, until zk_locks shows that it waits
  $s->start_queued($sql [, $path]);      # and has a node with its number
  $s->wait_row($condition [, $path]);    # as that of Zklock::Shown
  $s->modes($path);     # what the session holds or waits for: 'exclusive held', 'shared waiting'
  $s->hands_over($path, $next, $name);   # a test: it unlocks, and the session that waits gets the lock

  $s->cancel; $s->terminate;          # pg_cancel_backend, pg_terminate_backend, from another session
  $s->cancelled; $s->terminated;      # the same, and the SQLSTATE with which the statement ends
  $s->disconnect;       # as a client does that ends well; during a statement: as vanish
  $s->vanish;           # as a client does that dies: the socket just closes

=head1 RESULTS

  $r->{ok}        true if the statement succeeded
  $r->{text}      rows as psql -At prints them: columns parted by '|', rows by newline,
                  NULL empty, booleans t and f; undef on an error
  $r->{rows}      the same as a list of lists, NULL as undef; $r->{columns} has the names
  $r->{sqlstate}  '00000' or e.g. '57014'
  $r->{severity}  ERROR or FATAL; $r->{message} $r->{detail} $r->{hint} $r->{context}
  $r->{error}     'ERROR:  57014: canceling ... DETAIL: ...', the whole text
  $r->{notices}   list of texts, 'WARNING:  01000: you do not own ...'

Several statements in one string, parted by semicolons, run as one; the result is
that of the last one. Built on DBI and DBD::Pg: a session is no process and costs
next to nothing, so that hundreds of them are fine. One that goes out of scope disconnects.

=cut

package Zklock::Session;

use v5.36;

use Carp;
use DBI;
use DBD::Pg qw(:async);
use IO::Select;
use List::Util qw(min);
use Test::More ();
use Time::HiRes qw(time);
use Zklock::Util qw(default_timeout scaled);

our @CARP_NOT = qw(Zklock::Server);

# dsn: libpq connection string; name: for messages; server: Zklock::Server
sub new($class, %arg)
{
	my $self = bless { name => $arg{name}, server => $arg{server} }, $class;
	my $dsn = $arg{dsn} =~ s/ /;/gr;
	$self->{dbh} = DBI->connect(
		"dbi:Pg:$dsn", $arg{user}, '',
		{   PrintError          => 0,
			PrintWarn           => 1,
			AutoInactiveDestroy => 1,
			pg_server_prepare   => 0,
			pg_bool_tf          => 1,
			pg_errorlevel       => 2 })
	  or croak "cannot connect to $arg{dsn}: " . ($DBI::errstr || '?');
	$self->{pid} = $self->{dbh}{pg_pid};
	return $self;
}

sub pid  { return $_[0]{pid}; }
sub name { return $_[0]{name}; }
sub dbh  { return $_[0]{dbh}; }
sub server { return $_[0]{server}; }

# Run code of DBD::Pg, keeping the server's notices.
sub _guarded($self, $code)
{
	local $SIG{__WARN__} = sub ($text) {
		$text =~ s/\s+\z//;
		push @{ $self->{notices} }, $text;
	};
	return $code->();
}

sub query_start($self, $sql)
{
	croak "$self->{name} is closed"           unless $self->{dbh};
	croak "$self->{name} is still busy with: $self->{sql}" if $self->{statement};
	$self->{sql}     = $sql;
	$self->{notices} = [];
	$self->_guarded(
		sub {
			my $statement = $self->{statement} =
			  $self->{dbh}->prepare($sql, { pg_async => PG_ASYNC, pg_direct => 1 });
			$self->{unsent} = !$statement || !defined $statement->execute;
		});
	return $self;
}

sub start_waiting($self, $sql, $path = undef) { return $self->{server}->wait_waiting($self->query_start($sql), $path); }
sub start_queued($self, $sql, $path = undef) { return $self->{server}->wait_queued($self->query_start($sql), $path); }

# Has nothing been heard of the statement yet?
sub _awaits($self)
{
	return 0 if !$self->{statement} || $self->{unsent};
	return $self->_guarded(sub { return !$self->{dbh}->pg_ready; });
}

# Is a statement running? Together with a notice comes the result of the first of several, while the
# next one runs.
sub busy($self)
{
	return 1 if $self->_awaits;
	return 0 unless $self->{statement} && $self->{sql} =~ /;/;
	my $active = "SELECT count(*) FROM pg_stat_activity WHERE pid = $self->{pid} AND state = 'active'";
	return $self->{server}->value($active);
}

sub result($self, $timeout = undef)
{
	croak "$self->{name} runs no statement" unless $self->{statement};
	$timeout = defined $timeout ? scaled($timeout) : default_timeout();
	my $end = time + $timeout;
	while ($self->_awaits)
	{
		my $left = $end - time;
		croak "timed out after $timeout s waiting for $self->{name} (pid $self->{pid}) to finish: $self->{sql}\n"
		  . ($self->{server} ? $self->{server}->describe_locks : '')
		  if $left <= 0;
		my $fd = $self->{dbh}{pg_socket};
		last if $fd < 0;
		IO::Select->new($fd)->can_read(min($left, 0.5));
	}

	my $statement = $self->{statement};
	my %result    = (ok => 0, rows => []);
	$self->_guarded(
		sub {
			my $dbh  = $self->{dbh};
			my $done = $self->{unsent} ? undef : $dbh->pg_result;
			# DBD::Pg 3.21 takes a cancelled statement for no error, but its state tells.
			if (defined $done && !$dbh->err && $dbh->state =~ /^(?:00000)?$/)
			{
				$result{ok}       = 1;
				$result{sqlstate} = '00000';
				@result{qw(columns rows)} = ($statement->{NAME}, $statement->fetchall_arrayref)
				  if $statement->{NUM_OF_FIELDS};
				$result{text} = join("\n",
					map { join('|', map { defined $_ ? $_ : '' } @$_) } @{ $result{rows} });
				return;
			}
			my $error = $dbh->errstr || $statement && $statement->errstr;
			$error ||= sprintf('%s:  %s: %s', map { $dbh->pg_error_field("pg_diag_$_") } qw(severity sqlstate message_primary))
			  if $dbh->state eq '57014';
			$error ||= 'connection lost';
			$result{error} = $error;
			($result{severity}, $result{sqlstate}, $result{message}) =
			  $error =~ /^(\w+):\s+([0-9A-Z]{5}): (.*)/ ? ($1, $2, $3)
			  : ('FATAL', '08006', $error);
			$result{detail}  = $dbh->pg_error_field('pg_diag_message_detail');
			$result{hint}    = $dbh->pg_error_field('pg_diag_message_hint');
			$result{context} = $dbh->pg_error_field('pg_diag_context');
		});
	$result{notices} = $self->{notices};
	undef $self->{statement};
	return \%result;
}

sub finish($self, $timeout = undef)
{
	my $result = $self->result($timeout);
	croak "$self->{name}: $self->{sql}: $result->{error}" unless $result->{ok};
	return $result->{text};
}

sub try($self, $sql) { return $self->query_start($sql)->result; }
sub query($self, $sql) { return $self->query_start($sql)->finish; }

# The notices of the last statement, one text.
sub notices { return join("\n", @{ $_[0]{notices} || [] }); }

sub wait_row($self, @row) { return $self->{server}->wait_row($self, @row); }

# What was given up may still be on its way.
sub modes($self, $path)
{
	my @rows = $self->{server}->locks("pid = $self->{pid} AND path = '$path' AND state <> 'releasing'");
	my @modes = sort map { "$_->{mode} $_->{state}" } @rows;
	return @modes;
}

sub hands_over($self, $path, $next, $name)
{
	return Test::More::is($self->query("SELECT zk_unlock('$path')") . $next->finish, 'tt', $name);
}

sub cancel($self) { return $self->{server}->value("SELECT pg_cancel_backend($self->{pid})") eq 't'; }
# Returns when the backend is gone.
sub terminate($self) { return $self->{server}->terminate_backend($self->{pid}); }

sub cancelled($self) { $self->cancel; return $self->result->{sqlstate}; }
sub terminated($self) { $self->terminate; return $self->result->{sqlstate}; }

sub disconnect($self)
{
	return unless $self->{dbh};
	# The library would wait for the end of a running statement.
	$self->_shut if $self->_awaits;
	undef $self->{statement};
	my $dbh = delete $self->{dbh};
	local $SIG{__WARN__} = sub { };
	$dbh->disconnect;
	return;
}

# Close the socket under the library's feet: the server sees the end of the connection
# without the message that says goodbye.
sub _shut($self)
{
	my $fd = $self->{dbh}{pg_socket};
	# Through a duplicate: the descriptor itself is the library's to close.
	if ($fd >= 0 && open(my $socket, '+<&', $fd))
	{
		shutdown($socket, 2);
	}
	return;
}

sub vanish($self)
{
	return unless $self->{dbh};
	$self->_shut;
	$self->disconnect;
	return;
}

sub DESTROY($self)
{
	local ($@, $!, $?);
	eval { $self->disconnect };
	return;
}

1;
